"""At which hours of the day new links come: time that runs as fast as links do.

Links push each other off, so with the hours of the day both slow down: in the night links come seldom and
stay long. Hours are therefore counted in the time of a group's own clock, of which a day has 24 hours too.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.discovery.items import Items
from policies.numerics.typing_ import FloatArray, IntArray

HOURS: Final = 24
PRIOR_LINKS: Final = 30.0
"""Links that each hour of the day is thought to have brought at the mean rate, beforehand."""
_LONGEST: Final = 3.5  # hours between visits that tell when a link came
_LEAST: Final = 1e-6


class DayHours:
    """The clocks of g groups.

    Attributes
    ----------
    seen, expected : (g, 24) float64
        New links by hour of day, and how many the rates of their sources alone would give. Sums.
    speed : (g, 24) float64
        New links in each hour of the day, over the mean.
    """

    def __init__(self, items: Items) -> None:
        self._group = items.group
        self.seen = np.zeros((items.groups, HOURS))
        self.expected = np.zeros((items.groups, HOURS))
        self._set()

    def _set(self) -> None:
        speed = (self.seen + PRIOR_LINKS) / (self.expected + PRIOR_LINKS)
        self.speed = speed / speed.mean(axis=1, keepdims=True)
        self._sum = np.concatenate([np.zeros((len(speed), 1)), np.cumsum(self.speed, axis=1)], axis=1)

    def elapsed(self, item: IntArray, now_hours: float, hours: FloatArray) -> FloatArray:
        """The last hours before now by the groups' clocks.

        Parameters
        ----------
        item : (m,) int64
        now_hours : float
            Since 1970-01-01 UTC.
        hours : (m,) float64
            inf stays inf.

        Returns
        -------
        (m,) float64
        """
        finite = np.isfinite(hours)
        group, at = self._group[item], np.where(finite, now_hours - np.where(finite, hours, 0.0), now_hours)
        passed = self._reading(group, np.full(len(group), now_hours)) - self._reading(group, at)
        return np.where(finite, np.maximum(passed, _LEAST), np.inf)

    def _reading(self, group: IntArray, at_hours: FloatArray) -> FloatArray:
        day, within = np.divmod(at_hours, HOURS)
        hour = np.minimum(within.astype(np.int64), HOURS - 1)
        whole = day * HOURS + self._sum[group, hour]
        return np.asarray(whole + (within - hour) * self.speed[group, hour], np.float64)

    def learn(
        self, item: IntArray, now_hours: float, hours: FloatArray, new: IntArray, rate_per_hour: FloatArray
    ) -> None:
        """Take in new links of some sources, spread evenly over the hours since their last visits.

        Visits that are further apart do not tell when links came, and are left out.

        Parameters
        ----------
        item : (m,) int64
        now_hours : float
        hours : (m,) float64
        new : (m,) int64
        rate_per_hour : (m,) float64
            By the mean clock.
        """
        near = hours <= _LONGEST
        item, hours, new, rate_per_hour = item[near], hours[near], new[near], rate_per_hour[near]
        last = int(np.ceil(now_hours)) - 1
        for back in range(int(np.ceil(_LONGEST))):
            within = np.clip(hours - back, 0.0, 1.0)
            place = self._group[item], np.full(len(item), (last - back) % HOURS)
            np.add.at(self.expected, place, rate_per_hour * within)
            np.add.at(self.seen, place, new * within / hours)
        self._set()
