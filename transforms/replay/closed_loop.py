"""A crawler in a closed loop with its plans: nights see what its crawls found, and plan the next day.

The crawls happen when they are due and see what the history had at that moment. What plans them is a
`Planner`: the nightly job itself (`transforms.replay.job_nights`), or rates of another policy
(`transforms.replay.rate_nights`).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.simulation.intervals import free_crawls
from transforms.replay.worlds import World

Trust = dict[str, tuple[float, float]]


@dataclass(frozen=True)
class Crawls:
    """All crawls of a run, sorted by page, then time.

    Attributes
    ----------
    page : (m,) int64
    at_us : (m,) int64
        UTC microseconds.
    changed : (m,) bool
        Whether the page was not as the crawl before had found it; False at the first crawl of a page.
    predicted : (m,) float64
        The night's probability of that; NaN for the free crawls.
    """

    page: IntArray
    at_us: IntArray
    changed: BoolArray
    predicted: FloatArray

    def take(self, rows: BoolArray | IntArray) -> Crawls:
        """Some of the crawls, in the order of `rows`."""
        return Crawls(self.page[rows], self.at_us[rows], self.changed[rows], self.predicted[rows])

    @property
    def free(self) -> BoolArray:
        """The crawls that cost nothing: the first of each page, (m,)."""
        return np.isnan(self.predicted)


@dataclass(frozen=True)
class Planned:
    """Crawls of one night.

    Attributes
    ----------
    page : (k,) int64
    due_us : (k,) int64
        UTC microseconds.
    value : (k,) float64
        Value of the crawl when it was planned, requests.
    predicted : (k,) float64
        Probability that it finds a change; 0 where nothing is foretold.
    """

    page: IntArray
    due_us: IntArray
    value: FloatArray
    predicted: FloatArray

    @classmethod
    def of(cls, page: IntArray, due_us: IntArray) -> Planned:
        """Crawls of which nothing else is said."""
        return cls(page, due_us, np.zeros(len(page)), np.zeros(len(page)))


@dataclass(frozen=True)
class Day:
    """What a night is told of the day before it.

    Attributes
    ----------
    before_us, as_of_us : int
        The night before and this one; of the first night there is none before.
    page, at_us, version : (k,) int64
        The crawls between them, sorted by page, then time; equal versions of a page are equal contents.
    changed : (k,) bool
    last_us : (n,) int64
        Last crawl of every page, `NO_TIME` if none.
    last_before_us : (n,) int64
        The same at the night before.
    """

    before_us: int
    as_of_us: int
    page: IntArray
    at_us: IntArray
    version: IntArray
    changed: BoolArray
    last_us: IntArray
    last_before_us: IntArray


class Planner(ABC):
    """Plans the crawls of a day from what crawls found before. It may keep what it likes between nights."""

    @abstractmethod
    def plan(self, day: Day) -> Planned:
        """Crawls from the night's instant on, for a day."""

    def trust(self) -> Trust:
        """Learned precision and recall of every source of signals tonight, by "host, source"."""
        return {}


@dataclass
class Run:
    """What came of one run.

    Attributes
    ----------
    crawls : Crawls
    slots : (plans, hosts) int64
        Crawls planned by each night, or part of a day.
    trust : list of dict
        Of each night, `Planner.trust`.
    seconds : (plans,) float64
        What each took.
    """

    crawls: Crawls
    slots: IntArray
    trust: list[Trust]
    seconds: FloatArray


class ClosedLoop:
    """A crawler and its log.

    Parameters
    ----------
    world : World
    planner : Planner
    seed : int
        Of the times of the free crawls, see `policies.simulation.intervals`.
    horizon_us : int
        From one plan to the next, a part of a day.
    """

    def __init__(self, world: World, planner: Planner, seed: int = 0, horizon_us: int = US_PER_DAY) -> None:
        self._world, self._planner, self._horizon_us = world, planner, horizon_us
        self._free_us = free_crawls(world.history, seed)
        self._by_free = np.argsort(self._free_us, kind="stable")
        self._last_us = np.full(len(world), NO_TIME)
        self._last_version = np.full(len(world), -1, np.int64)
        self._log: list[tuple[IntArray, IntArray, BoolArray, FloatArray]] = []

    def run(self, nights: int | None = None) -> Run:
        """All nights, or the first few."""
        world = self._world
        none = np.zeros(0, np.int64)
        planned = Planned.of(none, none)
        slots, trust, seconds = [], [], []
        before_us = int(np.iinfo(np.int64).min)
        begin = world.nights()[:nights, None] + np.arange(0, US_PER_DAY, self._horizon_us)
        for as_of_us in begin.ravel().tolist():
            begun = time.perf_counter()
            day = self._crawl(planned, before_us, as_of_us)
            planned = self._planner.plan(day)
            trust.append(self._planner.trust())
            slots.append(np.bincount(world.host[planned.page], minlength=len(world.hosts)))
            before_us = as_of_us
            seconds.append(time.perf_counter() - begun)
        self._crawl(planned, before_us, before_us + self._horizon_us)
        page, at_us, changed, predicted = (np.concatenate(c) for c in zip(*self._log, strict=True))
        order = np.lexsort((at_us, page))
        crawls = Crawls(page[order], at_us[order], changed[order], predicted[order])
        return Run(crawls, np.array(slots), trust, np.array(seconds))

    def _crawl(self, planned: Planned, after_us: int, until_us: int) -> Day:
        """Make the planned crawls and the free ones of the day."""
        free = self._by_free[
            slice(*np.searchsorted(self._free_us[self._by_free], [after_us + 1, until_us + 1]))
        ]
        page = np.concatenate([free, planned.page])
        at_us = np.concatenate([self._free_us[free], planned.due_us])
        predicted = np.concatenate([np.full(len(free), np.nan), planned.predicted])
        order = np.lexsort((at_us, page))
        page, at_us, predicted = page[order], at_us[order], predicted[order]
        version = self._world.history.version(page, at_us)
        again = np.diff(page, prepend=-1) == 0
        old = np.where(again, np.concatenate([[-1], version[:-1]]), self._last_version[page])
        changed = (old >= 0) & (version != old)
        self._log.append((page, at_us, changed, predicted))
        before = self._last_us.copy()
        self._last_us[page], self._last_version[page] = at_us, version  # the last of each page stands
        return Day(after_us, until_us, page, at_us, version, changed, self._last_us.copy(), before)
