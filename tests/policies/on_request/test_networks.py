"""What networks are told when a page is asked for: against one page and one crawl at a time."""

from __future__ import annotations

import numpy as np
import pytest

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray
from policies.on_request.networks import US_PER_HOUR, Findings, Trained, watched_rows
from policies.on_request.replay import Asked, drawn_requests, follow
from policies.on_request.strategies import RULES, ByNetwork
from policies.predictors.network import Network
from policies.simulation.histories import ChangeHistory

PAGES, DAYS = 12, 40
START = 200 * US_PER_DAY
GROUP = np.arange(PAGES) % 3 % 2
"""Two groups of four and eight."""
METADATA = np.column_stack([np.arange(PAGES) + 1, GROUP + 1])


def history() -> ChangeHistory:
    rng = np.random.default_rng(4)
    rate = np.where(np.arange(PAGES) % 2, 1.5, 0.1)
    return ChangeHistory.poisson(START, START + DAYS * US_PER_DAY, rate, rng, np.full(PAGES, START))


def linear(weight: FloatArray, values: int) -> Network:
    """Log-odds as a sum of the numbers."""
    size = len(weight)
    none = tuple(np.zeros((50, 1)) for _ in range(values))
    layer = np.concatenate([weight, np.zeros(values)])[:, None]
    return Network(np.zeros(size), np.ones(size), none, ((layer, np.zeros(1)),))


def test_features_are_of_the_crawls_that_were_made() -> None:
    rng = np.random.default_rng(1)
    findings = Findings(GROUP, METADATA, np.full(PAGES, START))
    made: list[tuple[int, int, bool]] = []
    for day in range(DAYS):
        night = START + day * US_PER_DAY
        findings.midnight(night)
        findings.midnight(night)  # a day begins once
        for at in np.sort(rng.integers(night, night + US_PER_DAY, 4)):
            page = np.flatnonzero(rng.random(PAGES - 2) < 0.4)  # the last two are never crawled
            changed = rng.random(len(page)) < 0.5
            findings.crawled(page, np.full(len(page), at), changed)
            made += [(int(p), int(at), bool(c)) for p, c in zip(page, changed, strict=True)]
    night = START + (DAYS - 1) * US_PER_DAY
    at = int(max(m[1] for m in made)) + 1
    rows = findings.rows(np.arange(PAGES), np.full(PAGES, at))

    def of(page: int, until: int) -> tuple[list[float], float]:
        """Counts, a day that a window begins in by its part, and days since the last change."""
        mine = [t for p, t, c in made if p == page and c and t < until]
        day, gone = (until - START) // US_PER_DAY, (until - START) % US_PER_DAY / US_PER_DAY
        days = [(t - START) // US_PER_DAY for t in mine]
        whole = [sum(d > day - w for d in days) + (1 - gone) * days.count(day - w) for w in (1, 7, 30)]
        return whole, (until - max(mine, default=START)) / US_PER_DAY

    watched = {p for p, _, _ in made}
    assert watched == set(range(PAGES - 2))
    for page in range(PAGES):
        count, since = of(page, at)
        assert rows.count[:, page] == pytest.approx(count)
        assert rows.since_days[page] == pytest.approx(since)
        others = [p for p in watched if p != page and GROUP[p] == GROUP[page]]
        told = [of(p, night) for p in others]
        assert rows.group_count[:, page] == pytest.approx(np.mean([t[0] for t in told], axis=0))
        assert rows.group_since_days[page] == pytest.approx(np.mean([t[1] for t in told]))
    assert (rows.count[:, :10].max(axis=1) > [0, 3, 10]).all() and not rows.count[:, 10:].any()
    assert rows.values()[:, :2].tolist() == METADATA.tolist()


def test_a_network_learns_from_hourly_crawls_of_what_is_watched() -> None:
    true, until = history(), START + 35 * US_PER_DAY
    findings = Findings(GROUP, METADATA, true.first_us)
    rows = watched_rows(findings, true, np.arange(0, 9), START, until)
    # Four a day at different hours, as far as the outcome is known.
    assert np.bincount(rows.page).tolist() == [139] * 9 and len(np.unique(rows.hour)) == 24
    change = [true.change_us[true.change_page == p] for p in range(9)]
    at = (rows.day * 24 + rows.hour) * US_PER_HOUR
    assert at.max() + 6 * US_PER_HOUR <= until
    for page, moment, changed in zip(rows.page, at, rows.changed, strict=True):
        after = (change[page] > moment) & (change[page] <= moment + 6 * US_PER_HOUR)
        assert changed == after.any()
    midnight = np.flatnonzero(rows.hour == 0)
    assert len(midnight) > 30
    for row in midnight:
        hours = np.unique(-(-change[rows.page[row]] // US_PER_HOUR)) * US_PER_HOUR
        for w, days in enumerate((1, 7, 30)):
            assert rows.count[w, row] == ((hours <= at[row]) & (hours > at[row] - days * US_PER_DAY)).sum()
    before = findings.rows(np.array([1]), np.array([until])).count
    findings.midnight(until)  # the replay begins where the training ended
    assert (findings.rows(np.array([1]), np.array([until])).count == before).all()


def test_what_is_not_crawled_the_network_does_not_know() -> None:
    """Pages that change are crawled more once that is found, and none that is never looked at."""
    true = history()
    page, at = drawn_requests(np.full(PAGES, 8.0), START, true.end_us, 3)
    asked = Asked.of(true, page, at, GROUP)
    findings = Findings(GROUP, METADATA, true.first_us)
    told = Trained(linear(np.array([0.0, 1.0, 0, 0, 0, 0, 0, 0]), 4), True, findings)
    rule = RULES["dnn"]
    assert rule.by_network and rule.frequencies and not RULES["dnn-metadata"].frequencies
    strategy = rule.make(0.8, told)
    assert isinstance(strategy, ByNetwork)
    crawled = np.bincount(asked.page, follow(asked, strategy, 1).crawled) / np.bincount(asked.page)
    assert crawled[1::2].min() > 1.3 * crawled[::2].max()
    # What a strategy has found is its own.
    assert not findings.rows(np.arange(PAGES), np.full(PAGES, START)).count.any()
    blind = rule.make(0.0, told)
    follow(asked, blind, 1)
    assert np.ptp(blind.scores(np.arange(PAGES), np.full(PAGES, true.end_us), np.zeros(PAGES))) == 0.0
