"""Intervals that are kept to learn clocks from: of every group some, fewer the older they are.

Each interval has a number of its own, drawn by its page and its end, that grows with the time of the end; of
each group those with the greatest numbers are kept. So the kept ones are the same however a log is cut into
nights, and older ones fade out (Gumbel numbers: the chance to be kept falls with the age as exp(-age / T)).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from policies.clocks.learning import CERTAIN, Spells, profiles
from policies.clocks.profile import (
    AGE_EDGES_HOURS,
    AGES,
    FIRST_WEEKDAY,
    NO_TIME,
    US_PER_DAY,
    US_PER_HOUR,
    WEEK_HOURS,
    age_lengths_days,
)
from policies.numerics.scrambling import fractions, scramble
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

HOURS, WEEKDAYS = 24, 7
LONGEST_US = 120 * US_PER_HOUR
"""Longer intervals say next to nothing of hours."""

SHORT_US = 18 * US_PER_HOUR
"""Shorter ones say most of them."""

ENOUGH = 60
"""Short intervals by which it is seen whether hours may matter."""

MANY = 400
"""Short intervals by which hours that matter are found."""

US_PER_MINUTE = 60_000_000
TAUGHT_US = 4 * AGE_EDGES_HOURS[-1] * US_PER_HOUR
"""What older pages do teaches no more of how pages age."""

_MEMORY_DAYS = 30.0
_LEAST_CHANGES = 20


@dataclass(frozen=True)
class Kept:
    """Intervals of pages of g groups, sorted by group, then by end.

    Attributes
    ----------
    group : (k,) int64
    drawn : (k,) uint64
        What their numbers are drawn by.
    from_us, to_us : (k,) int64, UTC microseconds, of whole minutes
    born_us : (k,) int64, UTC microseconds, or `NO_TIME`
    changed : (k,) bool
    rate_per_day : (k,) float64
        Rough change rates of their pages.
    """

    group: IntArray
    drawn: UIntArray
    from_us: IntArray
    to_us: IntArray
    born_us: IntArray
    changed: BoolArray
    rate_per_day: FloatArray

    @classmethod
    def of(
        cls,
        group: IntArray,
        page_hash: UIntArray,
        from_us: IntArray,
        to_us: IntArray,
        born_us: IntArray,
        changed: BoolArray,
        rate_per_day: FloatArray,
    ) -> Kept:
        """A night's intervals; `page_hash` (k,) uint64 is of their pages."""
        drawn = page_hash ^ to_us.astype(np.uint64)
        scramble(drawn)
        begin, end = (_whole_minutes(t) for t in (from_us, to_us))
        end = np.maximum(end, begin + US_PER_MINUTE)
        return cls(group, drawn, begin, end, born_us, changed, rate_per_day)

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: IntArray | BoolArray) -> Kept:
        return Kept(*(getattr(self, f.name)[rows] for f in fields(self)))

    def some(self, most: IntArray) -> Kept:
        """About `most` of each group, (g,) int64, drawn without a look at what they are."""
        size = np.bincount(self.group, minlength=len(most))
        return self.take(fractions(self.drawn) * size[self.group] < most[self.group])

    def with_new(self, other: Kept, most: IntArray) -> Kept:
        """Those of both that are kept, at most so many of each group, (g,) int64."""
        both = Kept(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))
        number = both.to_us / (US_PER_DAY * _MEMORY_DAYS) - np.log(-np.log(fractions(both.drawn)))
        number += np.where(both.to_us - both.from_us <= SHORT_US, 2.0, 0.0)
        order = np.lexsort((-number, both.group))
        group = both.group[order]
        begin = np.flatnonzero(np.diff(group, prepend=-1))
        rank = np.arange(len(group)) - np.repeat(begin, np.diff(np.append(begin, len(group))))
        both = both.take(order[rank < most[group]])
        return both.take(np.lexsort((both.drawn, both.to_us, both.group)))

    def short(self, groups: int) -> IntArray:
        """Short intervals of each group, (g,)."""
        short: IntArray = np.bincount(
            self.group[self.to_us - self.from_us <= SHORT_US], minlength=groups
        ).astype(np.int64)
        return short

    def clocks(self, groups: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Profiles of hours, (g, 168), and of age, (g, `AGES`), flat where nothing is certain.

        The third is by how much the hours foretell better than none would, (g,), see `learning.CERTAIN`.
        """
        changes = np.bincount(self.group[self.changed], minlength=groups)
        mine = self.take((changes >= _LEAST_CHANGES)[self.group])
        hours, gain = mine._hours(groups)
        return hours, mine._ages(groups), gain

    def _hours(self, groups: int) -> tuple[FloatArray, FloatArray]:
        rows = np.flatnonzero(self.to_us - self.from_us <= LONGEST_US)
        mine = self.take(rows)
        week = np.ones((groups, WEEK_HOURS))
        length = _hour_lengths_days(mine.to_us) - _hour_lengths_days(mine.from_us)
        spells = Spells(mine.group, length, mine.changed, mine.rate_per_day)
        speed, gain = profiles(spells, groups, circular=True)
        certain = gain > CERTAIN
        if not certain.any():
            return week, gain
        of_hour = np.arange(WEEK_HOURS) % HOURS
        of_day = (np.arange(WEEK_HOURS) // HOURS + FIRST_WEEKDAY) % WEEKDAYS
        week[certain] = speed[certain][:, of_hour]
        mine = mine.take(certain[mine.group])
        row, hour, days = _pieces(mine.from_us, mine.to_us)
        by_hour = days * speed[mine.group[row], hour % HOURS]
        day = (hour // HOURS + FIRST_WEEKDAY) % WEEKDAYS
        spells = Spells(
            mine.group, _table(row, day, by_hour, len(mine), WEEKDAYS), mine.changed, mine.rate_per_day
        )
        by_day, more = profiles(spells, groups, circular=True)
        sure = more > CERTAIN
        week[sure] *= by_day[sure][:, of_day]
        week[sure] /= week[sure].mean(axis=1, keepdims=True)
        return week, gain

    def _ages(self, groups: int) -> FloatArray:
        # Pages that were there before are others than those that came since: they do not show how these age.
        mine = self.take(self.born_us != NO_TIME)
        born = mine.born_us
        length = age_lengths_days(np.maximum(mine.from_us - born, 0), np.maximum(mine.to_us - born, 1))
        spells = Spells(mine.group, length, mine.changed, np.ones(len(mine)))
        speed: FloatArray = profiles(spells, groups, circular=False)[0]
        assert speed.shape[1] == AGES
        return speed


def teaches(from_us: IntArray, to_us: IntArray, born_us: IntArray) -> BoolArray:
    """Whether intervals tell something of hours, or of ages: (k,) bool."""
    found: BoolArray = to_us - from_us <= LONGEST_US
    found |= (born_us != NO_TIME) & (from_us - born_us < TAUGHT_US)
    return found


def _whole_minutes(at_us: IntArray) -> IntArray:
    return (at_us + US_PER_MINUTE // 2) // US_PER_MINUTE * US_PER_MINUTE


def _table(row: IntArray, column: IntArray, values: FloatArray, rows: int, columns: int) -> FloatArray:
    found = np.bincount(row * columns + column, values, rows * columns).astype(np.float64, copy=False)
    return found.reshape(rows, columns)


def _hour_lengths_days(at_us: IntArray) -> FloatArray:
    """How much of the time from 1970 to an instant lies in each hour of the day: (k, 24), days."""
    day, rest = np.divmod(at_us, US_PER_DAY)
    inside = np.clip(rest[:, None] - np.arange(HOURS) * US_PER_HOUR, 0, US_PER_HOUR)
    result: FloatArray = (day[:, None] * US_PER_HOUR + inside) / US_PER_DAY
    return result


def _pieces(from_us: IntArray, to_us: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Intervals cut at full hours: row, hour since 1970, and length in days of each piece."""
    first = from_us // US_PER_HOUR
    count = (to_us - 1) // US_PER_HOUR - first + 1
    row = np.repeat(np.arange(len(from_us)), count)
    hour = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    begin = np.maximum(hour * US_PER_HOUR, from_us[row])
    end = np.minimum((hour + 1) * US_PER_HOUR, to_us[row])
    return row, hour, (end - begin) / US_PER_DAY
