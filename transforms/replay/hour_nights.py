"""Crawls at the hour at which the copy stays fresh for longest, told by the truth: what a clock can buy."""

from __future__ import annotations

import numpy as np

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import IntArray
from transforms.replay.closed_loop import Day, Planned, Planner
from transforms.replay.worlds import World

HOURS = 24
_US_PER_HOUR = US_PER_DAY // HOURS


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
        self._hour = best_hours(world, from_us)

    def plan(self, day: Day) -> Planned:
        planned = self._inner.plan(day)
        page = planned.page
        order = np.lexsort((planned.due_us, page))
        count = np.bincount(page, minlength=len(self._hour))[page]
        rank = np.empty(len(page), np.int64)
        rank[order] = np.arange(len(page)) - np.searchsorted(page[order], page[order])
        # Several crawls of a page stay a part of the day apart.
        after_us = self._hour[page] * _US_PER_HOUR - day.as_of_us % US_PER_DAY + rank * US_PER_DAY // count
        due_us = day.as_of_us + after_us % US_PER_DAY
        sort = np.argsort(due_us, kind="stable")
        return Planned(page[sort], due_us[sort], planned.value[sort], planned.predicted[sort])


def best_hours(world: World, from_us: int) -> IntArray:
    """Hour of the day, UTC, at which crawls of each page's host stay fresh for longest, (n,) int64.

    By the mean time from each full hour to the next change of the host's pages, a day at most.
    """
    past = world.history
    hosts, host = np.unique(world.host_hash, return_inverse=True)
    use = past.change_us >= from_us
    page, at_us = past.change_page[use], past.change_us[use]
    # Between two changes of a page the wait falls evenly; only the last day before a change counts.
    gap_us = np.minimum(np.diff(at_us, prepend=from_us), US_PER_DAY)
    gap_us[np.diff(page, prepend=-1) != 0] = US_PER_DAY
    kept = np.zeros((len(hosts), HOURS))
    for hour in range(HOURS):
        wait_us = (at_us - hour * _US_PER_HOUR) % US_PER_DAY
        missing_us = np.where(wait_us < gap_us, US_PER_DAY - wait_us, 0)
        kept[:, hour] = -np.bincount(host[page], missing_us, len(hosts))
    best: IntArray = kept.argmax(axis=1)[host]
    return best
