"""`--on_request_share`: a part of the budget is left for crawls at requests, by how bursty requests are."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from policies.on_request.pairs import PairSums
from policies.on_request.value import crawl_value
from tests.pipelines.jobs import at, nightly
from tests.pipelines.nightly.test_on_request import LOG, PAGES
from transforms.kept.carrying import find_previous
from transforms.kept.errors import StateError
from transforms.night.request_share import RequestShare
from transforms.shards.catalogue import DAY_US

BUDGET, DAYS = 20, 28
CLICKS = [
    {"url": url, "day": at(day)[:10], "clicks": 6 + i % 3}
    for i, url in enumerate(PAGES)
    for day in range(i % 7, DAYS, 7)
]
"""Each page on one day of the week."""


def run(folder, name, day=DAYS, **options):
    done = nightly(folder, name, budget=BUDGET, as_of=at(day), **options)
    assert done.code == 0, done.complaints
    return done


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("share")
    return run(folder, "first", observations=LOG, requests=CLICKS, on_request_share="auto")


def test_auto_leaves_nothing_before_it_knows_and_half_once_requests_come_in_bursts(first):
    assert first.manifest["on_request"]["share"] == 0.0 and len(first.rows("schedule")) == BUDGET
    assert "how bursty requests are is not known yet" in first.printed
    pairs = first.manifest["on_request"]["pairs"]
    assert pairs["clicks"]["ratio"] > 4.0 and pairs["impressions"]["ratio"] is None
    more = [{"url": url, "day": at(DAYS)[:10], "clicks": 6} for url in PAGES[::7]]
    seen = [{"url": r["url"], "fetched_at": r["due_at"].isoformat()} for r in first.rows("schedule")]
    done = run(
        first.folder.parent, "second", DAYS + 1, observations=seen, requests=more,
        state=first.folder / "state", on_request_share="auto",
    )  # fmt: skip
    found = done.manifest["on_request"]
    assert (found["share"], found["price_factor"]) == (0.5, 0.5)
    assert done.manifest["budget_per_day"] == BUDGET / 2 == len(done.rows("schedule"))
    assert "so 50% of the budget is left" in done.printed and "10 of 20 crawls a day are left" in done.printed


def test_pairs_are_the_same_for_any_batches_and_shards(first):
    other = run(first.folder.parent, "cut", observations=LOG, requests=CLICKS, num_shards=3, rows_per_batch=7)
    assert other.manifest["on_request"]["pairs"] == first.manifest["on_request"]["pairs"]
    assert "crawls at requests" not in other.printed


def test_a_given_share_is_taken_before_the_search_and_ages_are_at_the_price(tmp_path):
    done = run(tmp_path, "fixed", observations=LOG, requests=CLICKS, on_request_share=0.25)
    assert len(done.rows("schedule")) == 15 and done.manifest["allocated_per_day"] == pytest.approx(15)
    rows = [r for r in done.rows("pages") if r["crawl_on_request"] is not None]
    asked, rate, error, hours = (
        np.array([r[n] for r in rows])
        for n in ("weight", "change_rate_per_day", "change_rate_stderr", "crawl_on_request")
    )
    assert len(rows) > 10
    price = 0.75 * done.manifest["multiplier"]
    worth = crawl_value(asked, rate, (rate / error) ** 2, hours / 24.0)
    assert worth == pytest.approx(np.full(len(rows), price), rel=2e-3)


def test_a_share_that_nothing_can_use_is_told_and_wrong_ones_are_refused(tmp_path):
    done = run(tmp_path, "equal", observations=LOG[:40], weight_by="equal", on_request_share=0.5)
    assert any("10 crawls a day are left" in w and "--requests" in w for w in done.manifest["warnings"])
    assert "warning" not in done.manifest["on_request"]
    for value in ("half", "0.95"):
        wrong = nightly(tmp_path, "wrong", observations=LOG, budget=BUDGET, on_request_share=value)
        assert wrong.code == 2 and f"--on_request_share={value}: expected a number" in wrong.complaints


DAY = 20_000
"""Since 1970, of the night before."""


def after(at_us, asked=0.5, objective="periodic", **said):
    """The night after one at an instant, which said this of its share."""
    said = {"share": 0.5, "budget_per_day": 100.0, "price_factor": 0.6} | said
    return RequestShare.of(asked, 100.0, objective, {"options": {"as_of_us": at_us}, "on_request": said})


def test_the_price_follows_what_the_log_says_was_spent():
    share = after(DAY * DAY_US)
    spent = {DAY - 1: 1_000, DAY: 100, DAY + 1: 100}
    assert share.factor(spent, (DAY + 2) * DAY_US) == pytest.approx(0.72)
    assert share.factor({DAY: 100}, (DAY + 2) * DAY_US) == pytest.approx(0.5)
    # Where the log is missing nothing is said.
    assert share.factor({DAY - 1: 1_000}, (DAY + 2) * DAY_US) == 0.6


@pytest.mark.parametrize("hour", [1, 12, 23])
def test_a_day_that_was_read_in_part_counts_whole_for_the_price(hour):
    """Its rows are of all its hours: by the hours since the last night alone more would seem spent."""
    share = after(DAY * DAY_US + hour * DAY_US // 24)
    assert share.factor({DAY: 96, DAY + 1: 96}, (DAY + 2) * DAY_US) == 0.6
    assert share.factor({DAY: 90, DAY + 1: 90}, (DAY + 2) * DAY_US) == pytest.approx(0.5)
    # Tonight's day goes as far as the night.
    assert share.factor({DAY: 96, DAY + 1: 48}, (DAY + 1) * DAY_US + DAY_US // 2) == 0.6


def test_without_a_share_prices_are_those_of_the_schedule():
    spent = {DAY: 100}
    assert after(DAY * DAY_US, asked=0.0).factor(spent, (DAY + 1) * DAY_US) == 1.0
    # The first night with one begins anew, whatever the factor of one without.
    assert after(DAY * DAY_US, share=0.0, price_factor=1.0).factor(spent, (DAY + 1) * DAY_US) == 0.5


@pytest.mark.parametrize(
    ("objective", "weight_by", "because"),
    [
        ("periodic", "clicks", ""),
        ("harmonic", "clicks", "the objective is harmonic.*Give another --objective"),
        ("harmonic", "equal", "the objective is harmonic.*Give another --objective"),
        ("periodic", "importance", "pages weigh by importance.*Give --requests"),
    ],
)
def test_what_no_crawl_at_a_request_can_use_is_told_with_its_true_reason(objective, weight_by, because):
    share = after(DAY * DAY_US, 0.25, objective)
    warning = share.account(PairSums(), {}, weight_by, (DAY + 1) * DAY_US, 28.0)["warning"]
    assert re.search(because, warning) if because else not warning


BURSTS = {
    "weight_by": "clicks",
    "on_request": {"pairs": {"clicks": {"found": [40.0] * 16, "expected": [8.0] * 16}}},
    "counters": {"pages_known": 500},
}
"""What a night says whose requests come in bursts: half of the budget is for them."""


@pytest.mark.parametrize(
    ("floor_per_day", "page_min_per_day", "planned"),
    [(0.0, 0.0, 50.0), (60.0, 0.0, 80.0), (60.0, 0.04, 80.0), (0.0, 0.12, 80.0), (300.0, 0.0, 100.0)],
)
def test_auto_leaves_alone_what_floors_take(floor_per_day, page_min_per_day, planned):
    last = BURSTS | {"search": {"floor_per_day": floor_per_day}}
    share = RequestShare.of(None, 100.0, "periodic", last, page_min_per_day)
    assert share.planned_per_day == pytest.approx(planned)


def test_auto_leaves_nothing_where_no_request_weighs_and_says_why():
    for objective, weight_by, why in (
        ("harmonic", "clicks", "for which no request is worth a crawl"),
        ("harmonic", "equal", "for which no request is worth a crawl"),
        ("periodic", "equal", "pages do not weigh by requests"),
    ):
        share = RequestShare.of(None, 100.0, objective, BURSTS | {"weight_by": weight_by})
        assert share.share == 0.0 and why in share.why


@pytest.mark.parametrize(
    "said",
    [
        [],
        {"share": "0.5"},
        {"share": float("nan")},
        {"price_factor": -1.0},
        {"budget_per_day": None},
        {"pairs": []},
        {"pairs": {"clicks": {"found": [1.0] * 16}}},
        {"pairs": {"clicks": {"found": [1.0] * 15, "expected": [1.0] * 16}}},
        {"pairs": {"clicks": {"found": [1.0] * 16, "expected": [float("inf")] * 16}}},
    ],
)
def test_a_damaged_share_in_a_manifest_is_an_error_that_names_the_file(tmp_path, said):
    """Else it is met somewhere in the night, if at all: a share that is not finite leaves no budget."""
    manifest = {"files": [], "carry": {"shards": [], "total": 0}, "counters": {}, "on_request": said or [0]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StateError, match=r"manifest\.json: damaged: on_request is not what a night writes"):
        find_previous(str(tmp_path / "state"), 1 << 60, {})
