"""A replay does what it says: copies, crawls and what is learned, request by request."""

from __future__ import annotations

import numpy as np
import pytest

from policies.history.page_state import US_PER_DAY
from policies.on_request.replay import Asked, by_period, drawn_requests, follow
from policies.on_request.savings import SHARES, needed, saving, savings_by_period
from policies.on_request.strategies import RULES, ByQuantile, ByValue, Known, Strategy, Uniform, changed_since
from policies.simulation.histories import ChangeHistory

PAGES, DAYS = 60, 20
START = 100 * US_PER_DAY


@pytest.fixture(scope="module")
def asked() -> Asked:
    rng = np.random.default_rng(1)
    first = START + np.where(np.arange(PAGES) < 50, -US_PER_DAY, rng.integers(0, 10 * US_PER_DAY, PAGES))
    rate = np.where(np.arange(PAGES) % 2 == 0, 1.0, 0.05)
    history = ChangeHistory.poisson(START, START + DAYS * US_PER_DAY, rate, rng, first)
    page, at = drawn_requests(rng.gamma(0.5, 8.0, PAGES), START, START + DAYS * US_PER_DAY, 5)
    return Asked.of(history, page, at, np.zeros(PAGES, np.int64))


class _Watched(Strategy):
    """Crawls by a fixed rule, and keeps what it was told."""

    def __init__(self) -> None:
        self.nights: list[Known] = []

    def night(self, known: Known, at_us: int) -> None:
        super().night(known, at_us)
        self.nights.append(known)

    def chance(self, page, at_us, since_days):
        return ((page % 3 == 0) & (since_days > 0.3)).astype(float)


def test_each_request_meets_the_copy_of_the_last_crawl_before_it(asked):
    found = follow(asked, _Watched(), 0)
    history = asked.history
    order = np.lexsort((asked.at_us, asked.page))
    copied: dict[int, int] = {}
    for row in order.tolist():
        page, at = int(asked.page[row]), int(asked.at_us[row])
        last = copied.get(page, max(int(history.first_us[page]), START))
        then, now = (int(history.version(np.array([page]), np.array([t]))[0]) for t in (last, at))
        assert found.fresh[row] == (then == now)
        assert found.crawled[row] == (page % 3 == 0 and (at - last) / US_PER_DAY > 0.3)
        if found.crawled[row]:
            copied[page] = at
    assert (asked.at_us >= history.first_us[asked.page]).all() and found.crawled.sum() > 100


def test_what_is_not_crawled_is_not_learned(asked):
    watched, everything = _Watched(), _Watched()
    everything.chance = lambda page, at_us, since_days: np.ones(len(page))  # type: ignore[method-assign]
    follow(asked, watched, 0)
    follow(asked, everything, 0)
    never = np.flatnonzero((np.arange(PAGES) % 3 != 0) & (np.arange(PAGES) < 50))
    end = watched.nights[-1]
    # Without a crawl after the first copy all are thought to be as their group is.
    assert np.ptp(end.change_rate_per_day[never]) == 0.0
    assert np.ptp(everything.nights[-1].change_rate_per_day[never]) > 0.5
    busy = np.bincount(asked.page, minlength=PAGES) > 60
    learned = everything.nights[-1].change_rate_per_day[busy]
    fast = np.flatnonzero(busy) % 2 == 0
    assert learned[fast].min() > learned[~fast].max()


def test_uniform_levels_crawl_their_share_and_more_is_never_staler(asked):
    made = [follow(asked, Uniform(p), 7) for p in (0.0, 0.3, 1.0)]
    shares = [one.crawled.mean() for one in made]
    assert shares[0] == 0.0 and shares[1] == pytest.approx(0.3, abs=0.02) and shares[2] == 1.0
    assert made[0].fresh.mean() < made[1].fresh.mean() < made[2].fresh.mean()
    assert (made[1].crawled <= made[2].crawled).all()


def test_periods_add_up_to_all_requests(asked):
    found = follow(asked, Uniform(0.4), 1)
    edges = START + np.array([0, 3, 11, DAYS]) * US_PER_DAY
    some = np.arange(PAGES) % 2 == 0
    parts = [by_period(asked, found, edges, pages) for pages in (some, ~some)]
    assert sum(p.requests.sum() for p in parts) == len(asked.page)
    assert sum(p.fresh.sum() for p in parts) == found.fresh.sum()
    assert sum(p.crawls.sum() for p in parts) == found.crawled.sum()


def test_quantiles_make_probabilities_as_equation_1_says():
    n = 1000
    known, now = Known(*(np.ones(n) for _ in range(5))), np.zeros(n, np.int64)
    rule = ByQuantile(1.6, lambda known, page, since: since)
    rule.night(known, 0)
    score = np.random.default_rng(3).permutation(np.arange(1.0, n + 1))
    assert (rule.chance(np.arange(n), now, score) == 0.8).all()  # nothing to rank by yet
    rule.night(known, 0)
    chance = rule.chance(np.arange(n), now, score)
    assert chance == pytest.approx(np.minimum(1.0, 1.6 * np.ceil(score / 10.0) / 100.0), abs=0.017)
    assert chance[score.argmin()] == pytest.approx(0.016) and chance.max() == 1.0
    # Equal scores share the middle of their quantiles: half of gamma.
    rule.chance(np.arange(n), now, np.zeros(n))
    rule.night(known, 0)
    rule.chance(np.arange(n), now, np.zeros(n))
    rule.night(known, 0)
    assert rule.chance(np.arange(3), now[:3], np.zeros(3)) == pytest.approx(np.full(3, 0.8), abs=0.02)


def test_our_rules_save_crawls_where_pages_differ(asked):
    """At the freshness of half of all crawls; three seeds of requests."""
    every = np.ones(PAGES, np.bool_)
    edges = START + np.array([4, 12, 20]) * US_PER_DAY

    def curve(name: str) -> tuple[np.ndarray, np.ndarray]:
        rule = RULES[name]
        spent = [
            by_period(asked, follow(asked, rule.make(level, None), 2), edges, every) for level in rule.levels
        ]
        return tuple(np.array([getattr(s, what) / s.requests for s in spent]) for what in ("crawls", "fresh"))

    uniform = curve("uniform")
    saved = {name: savings_by_period(uniform, curve(name)) for name in ("recrawl", "value")}
    assert saved["value"].min() > 0.3 and saved["recrawl"].mean() > 0.1
    assert savings_by_period(uniform, uniform) == pytest.approx(np.zeros((len(SHARES), 2)), abs=1e-9)


def test_what_a_freshness_needs_is_read_off_the_curve():
    resources, freshness = np.array([0.0, 0.5, 0.2, 1.0]), np.array([0.5, 0.8, 0.7, 0.79])
    got = needed(resources, freshness, np.array([0.5, 0.6, 0.7, 0.75, 0.85]))
    assert got[:4] == pytest.approx([0.0, 0.1, 0.2, 0.35]) and np.isnan(got[4])
    s = saving(np.array([0.3, np.nan, 0.5, 0.4]))
    assert s.mean == pytest.approx(0.3) and s.periods == 3 and s.low < s.mean < s.high


def test_probabilities_are_those_of_the_estimator():
    known = Known(np.array([0.5, 2.0]), np.array([1e9, 1e9]), *(np.ones(2) for _ in range(3)))
    chance = changed_since(known, np.array([1, 0]), np.array([1.0, 2.0]))
    assert chance == pytest.approx(-np.expm1([-2.0, -1.0]), rel=1e-6)
    value = ByValue(1e-9)
    value.night(known, 0)
    assert value.chance(np.array([0, 1]), np.zeros(2, np.int64), np.array([0.0, 1.0])).tolist() == [0.0, 1.0]
