"""At which hour of the day a crawl keeps a copy fresh for longest, by when pages changed."""

from __future__ import annotations

import numpy as np

from policies.clocks.profile import US_PER_DAY, US_PER_HOUR
from policies.numerics.typing_ import IntArray
from policies.simulation.histories import ChangeHistory

HOURS = 24


def best_hours(past: ChangeHistory, group: IntArray, from_us: int) -> IntArray:
    """The best full hour, UTC, of each page's group, (n,) int64: that after which copies stay fresh longest.

    Parameters
    ----------
    past : ChangeHistory of n pages
    group : (n,) int64, 0..g-1
    from_us : int
        Changes before this do not count, UTC microseconds.
    """
    use = past.change_us >= from_us
    page, at_us = past.change_page[use], past.change_us[use]
    # A copy taken before an earlier change on the same day is stale already.
    gap_us = np.minimum(np.diff(at_us, prepend=from_us), US_PER_DAY)
    gap_us[np.diff(page, prepend=-1) != 0] = US_PER_DAY
    stale_us = np.zeros((int(group.max(initial=0)) + 1, HOURS))
    for hour in range(HOURS):
        wait_us = (at_us - hour * US_PER_HOUR) % US_PER_DAY
        missing_us = np.where(wait_us < gap_us, US_PER_DAY - wait_us, 0)
        stale_us[:, hour] = np.bincount(group[page], missing_us, len(stale_us))
    best: IntArray = stale_us.argmin(axis=1)[group]
    return best
