"""A log of requests replayed: each may trigger a crawl, and meets the copy as it is before that.

What is not crawled is not seen: nights learn from the crawls that the strategy made.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.estimation import prior, requests
from policies.history import history as folding
from policies.history import page_state
from policies.history.page_state import US_PER_DAY, PageState
from policies.history.visits import Observations
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.on_request.strategies import Known, Strategy
from policies.simulation.histories import ChangeHistory

HALF_LIFE_CHANGES = 12
REQUEST_HALF_LIFE_DAYS = 28.0
PRIOR_NIGHTS = 7
"""The prior is learned anew so often."""


@dataclass(frozen=True)
class Asked:
    """Requests and what is true when they come, ready for replays.

    Attributes
    ----------
    history : ChangeHistory
        Requests are those of its window. Of each page there is a copy from its start, or its appearance, on.
    group : (n,) int64
        By which pages borrow from each other.
    teaches : (n,) bool
        Pages that the prior is learned from.
    page, at_us : (k,) int64
        By day, then by how many of the page's came before on that day.
    version : (k,) int64
        True then.
    waves : (d,) list of (w + 1,) int64
        Of each day, where requests of one rank begin.
    before : PageState
        What was known when the window begins.
    """

    history: ChangeHistory
    group: IntArray
    teaches: BoolArray
    page: IntArray
    at_us: IntArray
    version: IntArray
    waves: list[IntArray]
    before: PageState

    @classmethod
    def of(
        cls,
        history: ChangeHistory,
        page: IntArray,
        at_us: IntArray,
        group: IntArray,
        teaches: BoolArray | None = None,
        trained: IntArray | None = None,
        every_us: int = US_PER_DAY // 24,
        from_us: int | None = None,
    ) -> Asked:
        """Prepare requests, (k,) pages and times; those outside the window, or of no page yet, are left out.

        Parameters
        ----------
        history : ChangeHistory
        page, at_us : (k,) int64
        group : (n,) int64
        teaches : (n,) bool, optional
            All by default.
        trained : (t,) int64, optional
            Pages that were watched, every `every_us` from `from_us` on, before the window.
        """
        n, start, end = len(history), history.start_us, history.end_us
        inside = (at_us >= np.maximum(start, history.first_us[page])) & (at_us < end)
        page, at_us = page[inside], at_us[inside]
        day = (at_us - start) // US_PER_DAY
        order = np.lexsort((at_us, page, day))
        page, at_us, day = page[order], at_us[order], day[order]
        first = np.flatnonzero((np.diff(page, prepend=-1) != 0) | (np.diff(day, prepend=-1) != 0))
        rank = np.arange(len(page)) - np.repeat(first, np.diff(np.append(first, len(page))))
        order = np.lexsort((page, rank, day))
        page, at_us, day, rank = (v[order] for v in (page, at_us, day, rank))
        days = int(-(-(end - start) // US_PER_DAY))
        edges = np.searchsorted(day, np.arange(days + 1))
        waves = [
            low + np.searchsorted(rank[low:high], np.arange(int(rank[low:high].max(initial=-1)) + 2))
            for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        ]
        state = PageState.empty(n)
        if trained is not None and len(trained):
            moments = np.arange(start if from_us is None else from_us, start, every_us)
            seen, at = np.repeat(trained, len(moments)), np.tile(moments, len(trained))
            state = fold_crawls(state, history, seen, at)
        there = np.flatnonzero(history.first_us <= start)
        state = fold_crawls(state, history, there, np.full(len(there), start))
        taught = np.ones(n, np.bool_) if teaches is None else teaches
        return cls(history, group, taught, page, at_us, history.version(page, at_us), waves, state)


def fold_crawls(state: PageState, history: ChangeHistory, page: IntArray, at_us: IntArray) -> PageState:
    """The state with what crawls, (k,) pages and times, find."""
    digest = (history.version(page, at_us) + 1).astype(np.uint64)
    rows = Observations(page, at_us, digest=digest)
    last = int(at_us.max(initial=0))
    return folding.fold(state, rows, last, half_life_changes=HALF_LIFE_CHANGES)[0]


@dataclass(frozen=True)
class Outcome:
    """Of each request of an `Asked`, whether it met a fresh copy, and whether it triggered a crawl: (k,)."""

    fresh: BoolArray
    crawled: BoolArray


def follow(asked: Asked, strategy: Strategy, seed: int) -> Outcome:
    """Let a strategy decide on all requests.

    Parameters
    ----------
    asked : Asked
    strategy : Strategy
    seed : int
        Of decisions that are left to chance; the same requests have the same draws under all strategies.
    """
    history, state = asked.history, asked.before
    n = len(history)
    key = np.array([seed, 0x0E5], dtype=np.uint64)
    draw = np.random.Generator(np.random.Philox(key=key)).random(len(asked.page))
    born_us = np.maximum(history.first_us, history.start_us)
    last_us = born_us.copy()
    copy = history.version(np.arange(n), last_us)
    fresh, crawled = np.zeros((2, len(asked.page)), np.bool_)
    nights = Nights(asked.group, asked.teaches)
    for day, waves in enumerate(asked.waves):
        strategy.night(nights.learn(state, day), history.start_us + day * US_PER_DAY)
        for low, high in zip(waves[:-1].tolist(), waves[1:].tolist(), strict=True):
            page, at = asked.page[low:high], asked.at_us[low:high]
            fresh[low:high] = copy[page] == asked.version[low:high]
            since = (at - last_us[page]) / US_PER_DAY
            crawl = draw[low:high] < strategy.chance(page, at, since)
            crawled[low:high] = crawl
            mine = page[crawl]
            strategy.crawled(mine, at[crawl], ~fresh[low:high][crawl])
            copy[mine], last_us[mine] = asked.version[low:high][crawl], at[crawl]
        rows = slice(int(waves[0]), int(waves[-1]))
        made = crawled[rows]
        nights.count(asked.page[rows])
        begin = history.start_us + day * US_PER_DAY
        new = np.flatnonzero((born_us > begin) & (born_us <= begin + US_PER_DAY))
        page = np.concatenate([new, asked.page[rows][made]])
        if len(page):
            state = fold_crawls(state, history, page, np.concatenate([born_us[new], asked.at_us[rows][made]]))
    return Outcome(fresh, crawled)


class Nights:
    """What nights learn from crawls and requests."""

    def __init__(self, group: IntArray, teaches: BoolArray) -> None:
        self._group, self._groups, self._teaches = group, int(group.max(initial=-1)) + 1, teaches
        self._asked, self._days = np.zeros(len(group)), 0.0
        self._prior: prior.Prior | None = None

    def count(self, page: IntArray) -> None:
        """Count the requests of a day."""
        keep = 0.5 ** (1.0 / REQUEST_HALF_LIFE_DAYS)
        self._asked = self._asked * keep + np.bincount(page, minlength=len(self._asked))
        self._days = self._days * keep + 1.0

    def learn(self, state: PageState, day: int) -> Known:
        """From the state of all crawls so far."""
        evidence = page_state.evidence(state, HALF_LIFE_CHANGES)
        if self._prior is None or day % PRIOR_NIGHTS == 0:
            self._prior = prior.fit_prior(evidence.take(self._teaches), self._group[self._teaches])
        found = prior.estimate(evidence, self._group, self._groups, self._prior)
        of_group = found.group_mean_per_day[self._group]
        days = evidence.exposure_days + evidence.changed_days()
        exposed = np.full(len(self._asked), self._days)
        asked = requests.request_rate(requests.fit_request_prior(self._asked, exposed), self._asked, exposed)[
            0
        ]
        return Known(
            found.change_rate_per_day,
            found.information,
            (evidence.changes() + of_group) / (days + 1.0),
            of_group,
            asked,
        )


@dataclass(frozen=True)
class Spent:
    """Of periods: how many requests there were, met a fresh copy, and triggered a crawl, (p,) int64 each."""

    requests: IntArray
    fresh: IntArray
    crawls: IntArray


def by_period(asked: Asked, outcome: Outcome, edges_us: IntArray, pages: BoolArray) -> Spent:
    """Add up what came of requests of some pages, (n,) bool, between edges, (p + 1,) int64."""
    period = np.searchsorted(edges_us, asked.at_us, side="right") - 1
    mine = pages[asked.page] & (period >= 0) & (period < len(edges_us) - 1)

    def count(some: BoolArray) -> IntArray:
        return np.bincount(period[mine & some], minlength=len(edges_us) - 1)

    return Spent(count(mine), count(outcome.fresh), count(outcome.crawled))


def drawn_requests(
    rate_per_day: FloatArray, start_us: int, end_us: int, seed: int
) -> tuple[IntArray, IntArray]:
    """Pages and times of Poisson requests, by time: two (k,) int64."""
    rng = np.random.Generator(np.random.Philox(key=np.array([seed, 0xA5C], dtype=np.uint64)))
    span = end_us - start_us
    page = np.repeat(np.arange(len(rate_per_day)), rng.poisson(rate_per_day * (span / US_PER_DAY)))
    at = start_us + (rng.random(len(page)) * span).astype(np.int64)
    order = np.lexsort((page, at))
    return page[order], at[order]
