"""Intervals that are kept to learn clocks from: of every group some, fewer the older they are.

Each interval has a number of its own, drawn by its page and its end, that grows with the time of the end; of
each group those with the greatest numbers are kept. So the kept ones are the same however a log is cut into
nights, and older ones fade out (Gumbel numbers: the chance to be kept falls with the age as exp(-age / T)).
"""

from __future__ import annotations

from collections.abc import Sequence
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
    Profiles,
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
_LEAST_TOLD = 0.01
_LEAST_CHANGES = 20


@dataclass(frozen=True)
class Kept:
    """Intervals of pages of g groups, sorted by group, then by end.

    Attributes
    ----------
    group, page : (k,) int64
        Codes of their groups and pages.
    drawn : (k,) uint64
        What their numbers are drawn by.
    from_us, to_us : (k,) int64, UTC microseconds, of whole minutes
    changed : (k,) bool
    """

    group: IntArray
    page: IntArray
    drawn: UIntArray
    from_us: IntArray
    to_us: IntArray
    changed: BoolArray

    @classmethod
    def of(
        cls,
        group: IntArray,
        page: IntArray,
        page_hash: UIntArray,
        from_us: IntArray,
        to_us: IntArray,
        changed: BoolArray,
    ) -> Kept:
        """Intervals of pages that have these hashes, (k,) uint64; times of any microsecond."""
        begin, end = (_whole_minutes(t) for t in (from_us, to_us))
        end = np.maximum(end, begin + US_PER_MINUTE)
        drawn = page_hash ^ end.astype(np.uint64)
        scramble(drawn)
        return cls(group, page, drawn, begin, end, changed)

    def __len__(self) -> int:
        return len(self.group)

    def take(self, rows: IntArray | BoolArray) -> Kept:
        return Kept(*(getattr(self, f.name)[rows] for f in fields(self)))

    def best(self, most: IntArray, born_us: IntArray) -> Kept:
        """Those that are kept, at most so many of each group, (g,) int64; `born_us` as for `profiles`."""
        size = np.bincount(self.group, minlength=len(most))
        full = np.flatnonzero(size > most)
        by_group = np.argsort(self.group, kind="stable")
        start = np.cumsum(size) - size
        number = self.numbers(born_us[self.page])
        rows = [by_group[(size <= most)[self.group[by_group]]]]
        for g in full:
            mine = by_group[start[g] : start[g] + size[g]]
            rows.append(mine[np.argpartition(number[mine], size[g] - most[g])[size[g] - most[g] :]])
        found = self.take(np.concatenate(rows))
        return found.take(np.lexsort((found.from_us, found.drawn, found.to_us, found.group)))

    def numbers(self, born_us: IntArray) -> FloatArray:
        """The number of each, (k,) float64; `born_us`, (k,), when their pages came, or `NO_TIME`."""
        # Whole days say nothing of hours, and where some have gone by besides, the rest says little.
        days, rest = np.divmod((self.to_us - self.from_us) / US_PER_DAY, 1.0)
        tells = 4.0 * rest * (1.0 - rest) * np.exp(-days)
        tells[(born_us != NO_TIME) & (self.from_us - born_us < TAUGHT_US)] = 1.0
        number: FloatArray = np.log(tells + _LEAST_TOLD) - np.log(-np.log(fractions(self.drawn)))
        number += self.to_us / (US_PER_DAY * _MEMORY_DAYS)
        return number

    def short(self, groups: int) -> IntArray:
        """Short intervals of each group, (g,)."""
        short: IntArray = np.bincount(
            self.group[self.to_us - self.from_us <= SHORT_US], minlength=groups
        ).astype(np.int64)
        return short

    def profiles(
        self, groups: int, born_us: IntArray, rate_per_day: FloatArray, before: Profiles
    ) -> tuple[Profiles, FloatArray]:
        """Clocks of groups that certainly have one.

        Parameters
        ----------
        groups : int
        born_us : (n,) int64
            When pages came, `NO_TIME` where that is not known.
        rate_per_day : (n,) float64
            Roughly how often they change: those that change more are crawled at other ages and hours.
        before : Profiles
            Clocks that groups had: to keep one asks for less than to get one, so that none comes and goes.

        Returns
        -------
        Profiles; (g,) float64
            The second is by how much the hours foretell better than none would, see `learning.CERTAIN`.
        """
        changes = np.bincount(self.group[self.changed], minlength=groups)
        mine = self.take((changes >= _LEAST_CHANGES)[self.group])
        least_hour, least_age = np.full((2, groups), CERTAIN)
        least_hour[before.group[before.by_hour]] = least_age[before.group[before.by_age]] = 0.0
        by_hour, hour, gain = mine._hours(least_hour, rate_per_day)
        by_age, age = mine._ages(least_age, born_us[mine.page], rate_per_day)
        group = np.union1d(by_hour, by_age)
        found = Profiles(group, np.ones((len(group), WEEK_HOURS)), np.ones((len(group), AGES)))
        found.hour[found.rows(by_hour)] = hour
        found.age[found.rows(by_age)] = age
        return found, gain

    def hour_spells(self, rate_per_day: FloatArray) -> Spells:
        """Cut by the hours of the day; `rate_per_day`, (k,), are those of their pages."""
        length = _hour_lengths_days(self.to_us) - _hour_lengths_days(self.from_us)
        return Spells(self.group, length, self.changed, rate_per_day)

    def _hours(self, least: FloatArray, rate_per_day: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        mine = self.take(self.to_us - self.from_us <= LONGEST_US)
        spells = mine.hour_spells(rate_per_day[mine.page])
        certain, speed, gain = profiles(spells, least, circular=True)
        number = np.full(len(least), -1)
        number[certain] = np.arange(len(certain))
        mine = mine.take(number[mine.group] >= 0)
        code = number[mine.group]
        row, hour, days = _pieces(mine.from_us, mine.to_us)
        by_hour = days * speed[code[row], hour % HOURS]
        day = (hour // HOURS + FIRST_WEEKDAY) % WEEKDAYS
        length = _table(row, day, by_hour, len(mine), WEEKDAYS)
        spells = Spells(code, length, mine.changed, rate_per_day[mine.page])
        sure, by_day, _ = profiles(spells, np.full(len(certain), CERTAIN), circular=True)
        week = speed[:, np.arange(WEEK_HOURS) % HOURS]
        week[sure] *= by_day[:, (np.arange(WEEK_HOURS) // HOURS + FIRST_WEEKDAY) % WEEKDAYS]
        week[sure] /= week[sure].mean(axis=1, keepdims=True)
        return certain, week, gain

    def _ages(
        self, least: FloatArray, born: IntArray, rate_per_day: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        # Pages that were there before are others than those that came since: they do not show how these age.
        mine, born = self.take(born != NO_TIME), born[born != NO_TIME]
        length = age_lengths_days(np.maximum(mine.from_us - born, 0), np.maximum(mine.to_us - born, 1))
        spells = Spells(mine.group, length, mine.changed, rate_per_day[mine.page])
        return profiles(spells, least, circular=False)[:2]


def joined(parts: Sequence[Kept]) -> Kept:
    """All of one or more parts, in their order."""
    return Kept(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Kept)))


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
