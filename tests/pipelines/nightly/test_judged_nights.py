"""Night after night with a crawler that follows the schedule, and a truth that is known."""

from __future__ import annotations

import copy
import functools
import json

import numpy as np
import pytest

from tests.pipelines.simulator import Crawler, make_web
from transforms.kept.judging import drift_warnings

# Of each sort of web a seed has ten thousand crawls: what is found in five is known to one percent.
NIGHTS, SEEDS = 14, 5


def _crawler(seed: int, dated: bool = False, **options: float) -> Crawler:
    web = make_web(seed, **({"pages": 1500, "hosts": 40} | options))
    return Crawler(web, budget=len(web.rate) / 2, dated=web.host % 2 == 0 if dated else None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dated", "options"),
    [
        (True, {}),  # half of the hosts
        (False, {"hosts": 1}),
        (False, {"pages": 150, "hosts": 4}),
        (False, {"spread": 1.5, "shape": 0.3}),
    ],
    ids=["last-modified", "one-host", "small", "uneven"],
)
def test_predictions_hold_on_the_pages_that_were_picked_for_what_is_thought_of_them(dated, options):
    """No alarm in any night; over all nights and seeds the predictions are off by a few percent at most."""
    z, found, predicted, reliability = [], 0, 0.0, np.zeros((10, 3))
    first = np.zeros(2)
    fresh, thought, held = 0.0, 0.0, 0
    for seed in range(SEEDS):
        crawler = _crawler(seed, dated, **options)
        for _ in range(NIGHTS):
            judged = crawler.night()
            assert drift_warnings(judged) == []
            if not judged["crawls"]:
                continue
            if len(judged["nights"]) == 1:
                first += judged["changes_found"], judged["changes_predicted"]
            z.append(judged["z"])
            found += judged["changes_found"]
            predicted += judged["changes_predicted"]
            reliability += [[b["crawls"], b["predicted"], b["found"]] for b in judged["reliability"]]
            fresh += judged["crawls"] * judged["freshness_of_time"]["realised"]
            thought += judged["crawls"] * judged["freshness_of_time"]["predicted"]
            held += judged["crawls"]
    assert len(z) == SEEDS * (NIGHTS - 1)
    assert found / predicted == pytest.approx(1.0, abs=0.06)
    # Little is known in the first night: exp(-rate x days) would promise a sixth too many changes.
    assert abs(first[0] - first[1]) < 4 * np.sqrt(first[1] / 2) + 0.05 * first[1]
    assert 0.8 < np.std(z) < 1.3
    assert fresh / held == pytest.approx(thought / held, abs=0.01)
    for crawls, expected, got in reliability:
        chance = expected / max(crawls, 1)
        noise = np.sqrt(max(expected * (1 - chance), 1.0))
        assert abs(got - expected) < 4 * noise + 0.12 * expected


@functools.cache
def _before_the_truth_moves(seed: int) -> Crawler:
    """Nine nights, which all ways to drift have in common; to be copied."""
    crawler = _crawler(seed)
    for _ in range(9):
        assert drift_warnings(crawler.night()) == []
    return crawler


@pytest.mark.parametrize(("factor", "within"), [(2.0, 3), (0.5, 4), (1.5, 6), (0.65, 6)])
@pytest.mark.parametrize("seed", range(2))
def test_rates_that_drift_are_noticed_within_a_week(factor, within, seed):
    """The truth moves on the tenth night; the warning comes soon after, and not before."""
    crawler = copy.deepcopy(_before_the_truth_moves(seed))
    crawler.web.rate *= factor
    for night in range(9, 10 + 7):
        judged = crawler.night()
        warnings = drift_warnings(judged)
        if night == 9:  # its log is of the day before
            assert warnings == []
        if warnings:
            break
    assert warnings and night < 10 + within
    (text,) = warnings
    assert ("in the last 7 days" if judged["drift"]["week"] else "tonight") in text
    assert (judged["rate_factor"] > 1) == (factor > 1)
    assert "--half_life_" in text and len(text.split()) <= 50
    assert ("less as they age" in text) == (factor < 1) == ("at first" not in text)
    suspected = "blocked" in text or "digests" in text
    assert not suspected or ("blocked" in text) == (factor < 1)
    if factor in (1.5, 0.65):  # what pages that appear or age may do
        assert not suspected


def test_a_crawler_that_finds_nothing_any_more_is_noticed_at_once():
    crawler = _crawler(0)
    for _ in range(3):
        crawler.night()
    crawler.web.rate[:] = 0.0
    crawler.night()
    judged = crawler.night()
    # What changed before the end is still found; nothing else.
    (text,) = drift_warnings(judged)
    assert "tonight" in text and "blocked" in text
    assert judged["drift"] == {"night": True, "week": False}


def test_a_week_is_as_many_nights_as_it_takes():
    """Not six days, and not eight; the manifest stays small."""
    crawler = _crawler(0, pages=150, hosts=4)
    spans = []
    for _ in range(11):
        judged = crawler.night()
        spans.append((judged["week"]["days"], len(judged["nights"])))
        assert judged["week"]["crawls"] == sum(n["crawls"] for n in judged["nights"])
        assert len(json.dumps(judged)) < 8000
    assert spans == [(min(i, 7), min(i, 7)) for i in range(11)]


@pytest.mark.parametrize("mean", [0.05, 3.0])
def test_nights_that_know_priors_only_warn_of_no_drift(mean):
    """A dump has the last crawl of each page: the first nights cannot know how often pages change."""
    crawler = Crawler(make_web(1, pages=1200, hosts=3, mean=mean), budget=300.0, warm_up_days=1)
    by_priors = []
    for _ in range(12):
        judged = crawler.night()
        by_priors.append(judged["from_priors"])
        assert drift_warnings(judged) == []
    assert by_priors[:3] == [False, True, True] and not any(by_priors[8:])
    assert judged["week"]["days"] <= 11 - sum(by_priors)
