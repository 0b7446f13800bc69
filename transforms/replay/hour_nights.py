"""Crawls at the hour at which the copy stays fresh for longest, told by the truth: what a clock can buy."""

from __future__ import annotations

import numpy as np

from policies.clocks.profile import US_PER_DAY, US_PER_HOUR
from policies.simulation.best_hours import best_hours
from transforms.replay.closed_loop import Day, Planned, Planner
from transforms.replay.worlds import World


class AtBestHours(Planner):
    """The crawls of another planner, moved within the day to the best hour of their hosts.

    Parameters
    ----------
    world : World
    inner : Planner
    from_us : int
        The changes from here to the window's end say which hour is best, UTC microseconds.
    """

    def __init__(self, world: World, inner: Planner, from_us: int) -> None:
        self._inner = inner
        host = np.unique(world.host_hash, return_inverse=True)[1]
        self._hour = best_hours(world.history, host, from_us)

    def plan(self, day: Day) -> Planned:
        planned = self._inner.plan(day)
        page = planned.page
        order = np.lexsort((planned.due_us, page))
        count = np.bincount(page, minlength=len(self._hour))[page]
        rank = np.empty(len(page), np.int64)
        rank[order] = np.arange(len(page)) - np.searchsorted(page[order], page[order])
        # Several crawls of a page stay a part of the day apart.
        after_us = self._hour[page] * US_PER_HOUR - day.as_of_us % US_PER_DAY + rank * US_PER_DAY // count
        due_us = day.as_of_us + after_us % US_PER_DAY
        sort = np.argsort(due_us, kind="stable")
        return Planned(page[sort], due_us[sort], planned.value[sort], planned.predicted[sort])
