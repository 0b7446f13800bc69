"""Clocks of hours that move as a whole: with summer time, a batch comes an hour earlier or later.

What is known of a site's hours is still right, an hour off: a few intervals that tell so are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.clocks.kept import LONGEST_US, Kept
from policies.clocks.learning import CERTAIN, log_probability
from policies.clocks.profile import US_PER_DAY, US_PER_HOUR, Profiles
from policies.clocks.worth import INSTANTS
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import FloatArray, IntArray

PROBED_US, LOOKED_FOR_US = 3 * US_PER_DAY, 7 * US_PER_DAY
"""For how long after clocks were put forward or back somewhere pages are probed, and moves looked for."""

PROBED = 1.0 / 24.0
"""Share of the pages that follow hours, crawled when it tells the old clock from the new one, where summer
time has begun or ended somewhere. Crawls that all keep their hour find a batch that has moved, too, but an
hour late or a day: whole days say nothing of hours."""


def telling(best: IntArray, last: IntArray, hours: int) -> IntArray:
    """At which instants of a day crawls tell whether hours have moved by `hours`: (k,) int64.

    Parameters
    ----------
    best, last : (k,) int64, of `policies.clocks.worth.INSTANTS`
        Where crawls would be best, and where those of the day before were.
    hours : int
    """
    if hours < 0:
        return np.maximum(best - 1, 0)
    # Who was crawled later would have missed nothing; who was not is crawled later first.
    return np.where(last > best, best, np.minimum(best + 1, INSTANTS - 1))


@dataclass(frozen=True)
class Moves:
    """Groups whose hours have moved.

    Attributes
    ----------
    group : (k,) int64, ascending
    from_us : (k,) int64, UTC microseconds
        Intervals that end earlier are of the old hours.
    hours : int
        By how many.
    """

    group: IntArray
    from_us: IntArray
    hours: int

    def of_kept(self, kept: Kept) -> Kept:
        """Intervals of the old hours as the new ones would have had them."""
        if not len(self.group):
            return kept
        at = rows_of(self.group, kept.group)
        old = (at >= 0) & (kept.to_us < self.from_us[at])
        shift = np.where(old, self.hours * US_PER_HOUR, 0)
        return replace(kept, from_us=kept.from_us + shift, to_us=kept.to_us + shift).in_order()

    def of_profiles(self, profiles: Profiles) -> Profiles:
        """Profiles, of these groups the moved ones."""
        hour = profiles.hour.copy()
        rows = np.isin(profiles.group, self.group)
        hour[rows] = np.roll(hour[rows], self.hours, axis=1)
        return replace(profiles, hour=hour)


def moves(
    kept: Kept, profiles: Profiles, born_us: IntArray, rate_per_day: FloatArray, as_of_us: int, hours: int
) -> Moves:
    """Which groups' latest intervals speak for hours that have moved, by so many hours at some time.

    Parameters
    ----------
    kept : Kept
    profiles : Profiles
        Those of the night before.
    born_us : (n,) int64
        When pages came, `policies.clocks.profile.NO_TIME` where that is not known.
    rate_per_day : (n,) float64
        Roughly how often they change.
    as_of_us : int
    hours : int
    """
    daily = profiles.take(profiles.by_hour_of_day)
    use = np.isin(kept.group, daily.group) & (kept.to_us > as_of_us - LOOKED_FOR_US)
    mine = kept.take(use & (kept.to_us - kept.from_us <= LONGEST_US)).by_end()
    if not len(mine):
        return Moves(np.zeros(0, np.int64), np.zeros(0, np.int64), hours)
    rows = np.arange(len(mine))

    def told(of: Profiles) -> FloatArray:
        days = of.clocks(mine.group, born_us[mine.page]).days(rows, mine.from_us, mine.to_us)
        return log_probability(days * rate_per_day[mine.page], mine.changed)

    gain = told(replace(daily, hour=np.roll(daily.hour, hours, axis=1))) - told(daily)
    group, first = np.unique(mine.group, return_index=True)
    from_us, certain = np.zeros(len(group), np.int64), np.zeros(len(group), np.bool_)
    for i, some in enumerate(np.split(gain, first[1:])):
        tail = np.cumsum(some[::-1])[::-1]
        best = int(tail.argmax())
        from_us[i], certain[i] = mine.to_us[first[i] + best], tail[best] > CERTAIN
    return Moves(group[certain], from_us[certain], hours)
