"""At which hours of the day new links come: time that runs as fast as links do.

Links push each other off, so with the hours of the day both slow down: in the night links come seldom and
stay long. Hours are therefore counted by a clock of each source, of which a day has 24 hours too.

How fast it runs in each hour is the number of new links over that expected at an even rate. Nobody knows when
links came between two visits: they are spread as the clock so far says, a step of expectation and
maximisation (Dempster, Laird and Rubin 1977). The clock of a source is drawn to that of its group, as that is
to an even one. Visits leave no hour out, so what an even rate would give is the same in each: one number.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.discovery.items import Items
from policies.numerics.typing_ import FloatArray, IntArray

HOURS: Final = 24
GROUP_PRIOR: Final = 30.0
SOURCE_PRIOR: Final = 10.0
"""Links in each hour of the day for which the prior counts."""
_LEAST: Final = 1e-6


class DayHours:
    """The clocks of n sources.

    Attributes
    ----------
    seen : (n, 24) float64
        New links by hour of day. Sums.
    expected : (n,) float64
        How many an even rate would give in each. Sums.
    speed : (n, 24) float64
        New links in each hour of the day, over their mean.
    """

    def __init__(self, items: Items) -> None:
        self._items = items
        self.seen = np.zeros((len(items), HOURS))
        self.expected = np.zeros(len(items))
        self.speed = np.ones((len(items), HOURS))
        self._read(np.arange(len(items)))

    def fit(self) -> None:
        """Set the clocks by all that is known."""
        items = self._items
        seen = np.stack([items.sums(hour) for hour in self.seen.T], axis=1)
        expected = items.sums(self.expected)[:, None]
        prior = _even((seen + GROUP_PRIOR) / (expected + GROUP_PRIOR))[items.group]
        self.speed = _even((self.seen + SOURCE_PRIOR * prior) / (self.expected[:, None] + SOURCE_PRIOR))
        self._read(np.arange(len(items)))

    def _read(self, item: IntArray) -> None:
        zero = np.zeros((len(item), 1))
        self._sum = np.concatenate([zero, np.cumsum(self.speed, axis=1)], axis=1)

    def elapsed(self, item: IntArray, now_hours: float, hours: FloatArray) -> FloatArray:
        """The last hours before now by the sources' clocks.

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
        since = now_hours - np.where(finite, hours, 0.0)
        passed = self._reading(item, np.full(len(item), now_hours)) - self._reading(item, since)
        return np.where(finite, np.maximum(passed, _LEAST), np.inf)

    def _reading(self, item: IntArray, at_hours: FloatArray) -> FloatArray:
        day, within = np.divmod(at_hours, HOURS)
        hour = np.minimum(within.astype(np.int64), HOURS - 1)
        whole = day * HOURS + self._sum[item, hour]
        return np.asarray(whole + (within - hour) * self.speed[item, hour], np.float64)

    def learn(
        self, item: IntArray, now_hours: float, hours: FloatArray, new: FloatArray, rate_per_hour: FloatArray
    ) -> None:
        """Take in new links of some sources. Visits further apart than a day do not tell when links came.

        Parameters
        ----------
        item : (m,) int64
        now_hours : float
        hours : (m,) float64
        new : (m,) float64
        rate_per_hour : (m,) float64
            By the mean clock.
        """
        near = hours <= HOURS
        item, hours, new, rate_per_hour = item[near], hours[near], new[near], rate_per_hour[near]
        back = np.arange(HOURS)
        within = np.clip(hours[:, None] - back, 0.0, 1.0)
        hour = (int(np.ceil(now_hours)) - 1 - back) % HOURS
        there = within * self.speed[item[:, None], hour]
        place = item[:, None], hour[None, :]
        self.expected[item] += rate_per_hour * hours / HOURS
        self.seen[place] += new[:, None] * there / np.maximum(there.sum(axis=1, keepdims=True), _LEAST)


def _even(speed: FloatArray) -> FloatArray:
    return np.asarray(speed / speed.mean(axis=1, keepdims=True), np.float64)
