"""Levels of crawl value, and the clock at which each page of each lane reaches the level of its lane.

Thresholds are solved at a few levels, the anchors. Crawl value is convex in e^-clock, so on the chord between
two anchors a threshold for any level in between is at most a little early, never late.
"""

from collections.abc import Callable

import numpy as np

from policies.greedy.crawl_values import CrawlValue, clock_at_least, clock_jump, clock_speed, highest_value
from policies.numerics.typing_ import FloatArray, IntArray
from policies.signalled.pages import SignalPages

LARGEST_JUMP = 1e3
"""Of a clock, in place of inf: every threshold is below."""
_SLACK = 1e-11  # of values, relative
_CLOCK_SLACK = 1e-8
_ANCHORS = 5  # levels of each lane at which thresholds are known
_WIDEST, _NARROWEST = 1.0, 0.04  # steps between them, relative
_BLOCKS_AHEAD = 24.0
_PAGES_AT_ONCE = 1 << 18


class Levels:
    """State of `lanes` x `m` pages.

    Attributes
    ----------
    level : (lanes,) float64
        Candidates of a lane are the pages that may reach this crawl value.
    wake : (lanes, m) float64
        Where the clock of a page, had it never been crawled, stands when it reaches the anchor below the
        level: no page reaches the level earlier.
    speed, jump, best : (lanes, m) float64
        Clock per time and per signal, and the highest crawl value there is.
    """

    def __init__(self, pages: SignalPages, terms: list[int | None], m: int) -> None:
        lanes = len(terms)
        shape = (lanes, m)
        self.pages, self.terms, self.m = pages, terms, m
        self.speed = clock_speed(pages).reshape(shape)
        self.jump = clock_jump(pages, LARGEST_JUMP).reshape(shape)
        self.best = np.empty(shape)
        for t, rows in by_terms(terms, np.arange(lanes)):
            for lane in rows:
                part = slice(lane * m, (lane + 1) * m)
                self.best[lane] = highest_value(pages.take(part), t)
        self.level = np.zeros(lanes)
        self.wake = np.full(shape, -np.inf)
        self._anchor = np.zeros((lanes, _ANCHORS))
        self._threshold = np.zeros((_ANCHORS, *shape))
        self._low, self._high = np.zeros((2, lanes), np.int64)
        self._margin = np.ones(lanes)
        self._noise = np.zeros(lanes)
        self._least, self._expected, self._drift = np.zeros((3, lanes))

    def wake_of(self, lane: IntArray, page: IntArray, clock: FloatArray) -> None:
        """Pages were crawled when their uncrawled clock stood at `clock`."""
        start = _early(self._threshold[self._low[lane], lane, page])
        self.wake[lane, page] = np.where(self.level[lane] > 0.0, start, -np.inf) + clock

    def due(self, lane: IntArray, page: IntArray) -> FloatArray:
        """Reading of the clock since the last crawl at which pages reach the level: (n,) float64."""
        level, best = self.level[lane], self.best[lane, page]
        low, high = self._low[lane], self._high[lane]
        floor = self._anchor[lane, low]
        top = np.minimum(self._anchor[lane, high], best)
        share = (level - floor) / np.where(top > floor, top - floor, 1.0)
        fresh = np.exp(-self._threshold[low, lane, page])
        fresh += (np.exp(-self._threshold[high, lane, page]) - fresh) * share
        reached = (level <= best * (1.0 + _SLACK)) & (best > 0.0)
        u = -np.log(np.clip(fresh, 1e-320, 1.0))
        return np.where(level > 0.0, np.where(reached, _early(u), np.inf), -np.inf)

    def set(
        self, lane: IntArray, level: FloatArray, clock_at_crawl: Callable[[IntArray], FloatArray]
    ) -> None:
        """Set the level of lanes; `clock_at_crawl(lanes)` is of their pages' last crawls: (lanes, m)."""
        before = np.where(self.level[lane] > 0.0, self._anchor[lane, self._low[lane]], 0.0)
        self.level[lane] = level
        self.wake[lane[level <= 0.0]] = -np.inf
        rows = np.flatnonzero(level > 0.0)
        lane, level, before = lane[rows], level[rows], before[rows]
        if lane.size == 0:
            return
        self._low[lane], self._high[lane] = self._around(lane, level)
        moved = lane[self._anchor[lane, self._low[lane]] != before]
        if moved.size:
            u = self._threshold[self._low[moved], moved]
            self.wake[moved] = _early(u) + clock_at_crawl(moved)

    def _around(self, lane: IntArray, level: FloatArray) -> tuple[IntArray, IntArray]:
        """Anchors next below and above the levels of lanes; solves for those that are too far away.

        What is near depends on how fast the level of the lane moves.
        """
        pace = self._noise[lane] + np.abs(self._drift[lane])
        near = 1.0 + np.clip(_BLOCKS_AHEAD * pace / level, _NARROWEST, _WIDEST)
        for is_high in (False, True):
            anchor = self._anchor[lane]
            if is_high:
                found = np.where(anchor >= level[:, None], anchor, np.inf).min(axis=1)
                far = np.flatnonzero(found > level * near)
                price = level * np.sqrt(near)
            else:
                found = np.where(anchor <= level[:, None], anchor, 0.0).max(axis=1)
                far = np.flatnonzero(found * near < level)
                price = level / np.sqrt(near)
            if far.size:
                with np.errstate(divide="ignore"):
                    oldest = np.abs(np.log(anchor[far] / level[far, None])).argmax(axis=1)
                self._solve(lane[far], oldest, price[far])
        anchor = self._anchor[lane]
        low = np.where(anchor <= level[:, None], anchor, -1.0).argmax(axis=1)
        high = np.where(anchor >= level[:, None], anchor, np.inf).argmin(axis=1)
        return low, high

    def _solve(self, lane: IntArray, slot: IntArray, price: FloatArray) -> None:
        """Put an anchor at `price` into a slot of each lane."""
        step = max(_PAGES_AT_ONCE // self.m, 1)
        for start in range(0, lane.size, step):
            some, cost = lane[start : start + step], price[start : start + step]
            for terms, rows in by_terms(self.terms, some):
                at = (some[rows][:, None] * self.m + np.arange(self.m)).ravel()
                u = clock_at_least(self.pages.take(at), np.repeat(cost[rows], self.m), terms)
                into = slot[start : start + step][rows]
                self._threshold[into, some[rows]] = u.reshape(rows.size, self.m)
        self._anchor[lane, slot] = price

    def lower(
        self, lane: IntArray, found: FloatArray, clock_at_crawl: Callable[[IntArray], FloatArray]
    ) -> None:
        """The best candidates of lanes are worth `found` only, below their level: -inf if there are none."""
        self._margin[lane] = np.minimum(self._margin[lane] + 0.3, 3.0)
        value = np.maximum(found, 0.0)
        down = 0.5 * (self.level[lane] - value) + 0.5 * self._noise[lane]
        level = np.where(found > 0.0, value - down, 0.25 * self.level[lane]) * (1.0 - 1e-9)
        self.set(lane, np.where(level > 1e-6 * self._least[lane], level, 0.0), clock_at_crawl)

    def follow(self, least: FloatArray, clock_at_crawl: Callable[[IntArray], FloatArray]) -> None:
        """Levels for the next block, from the least value that won in the last one: (lanes,).

        They lie below where it is heading, by some multiple of how far off that has been before.
        """
        is_first = self._least <= 0.0
        off = np.where(is_first, 0.2 * least, np.abs(least - self._expected))
        self._noise = np.where(is_first, off, 0.8 * self._noise + 0.2 * off)
        self._drift = np.where(is_first, 0.0, 0.7 * self._drift + 0.3 * (least - self._least))
        steady = np.abs(self._drift) <= self._noise
        self._least, self._expected = least, np.where(steady, least, least + self._drift)
        self._margin = np.maximum(self._margin - 0.01, -0.8)
        noise = np.maximum(self._noise, 1e-6 * least)
        wanted = np.maximum(self._expected - self._margin * noise, 0.25 * least) * (1.0 - 1e-9)
        late = np.abs(wanted - self.level) > 0.5 * noise
        rows = np.flatnonzero(late)
        if rows.size:
            self.set(rows, wanted[rows], clock_at_crawl)


def _early(clock: FloatArray) -> FloatArray:
    """A little less, for rounding."""
    return clock * (1.0 - _CLOCK_SLACK) - _CLOCK_SLACK


def by_terms(terms: list[int | None], lane: IntArray) -> list[tuple[int | None, IntArray]]:
    """Positions in `lane` by the number of terms that the policy of the lane uses."""
    numbers = np.array([0 if t is None else t for t in terms])[lane]
    found = np.flatnonzero(np.bincount(numbers))
    return [(int(t) or None, np.flatnonzero(numbers == t)) for t in found]


def terms_of(policies: list[CrawlValue], repetitions: int) -> list[int | None]:
    """Terms of each lane, all repetitions of the first policy first."""
    return [policy.terms for policy in policies for _ in range(repetitions)]
