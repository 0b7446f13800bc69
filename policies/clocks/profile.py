"""Clock time: a page whose change rate is ``lambda h(t) a(age)`` is a Poisson process in the integral of h a.

A profile of the hour and weekday, h, and one of a page's age, a, are shared by the pages of a group (a host).
Both are step functions. h has the mean 1 over a week, a the mean 1 over its bins. Where both are flat, clock
time is time, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

NO_TIME = np.iinfo(np.int64).min
"""Stands for "never" in times."""

US_PER_HOUR = 3_600_000_000
US_PER_DAY = 24 * US_PER_HOUR
WEEK_HOURS = 168
FIRST_WEEKDAY = 3
"""Of 1970-01-01, a Thursday, where Monday is 0."""

AGE_EDGES_HOURS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Bins of age double in length; the last one has no end."""

AGES = len(AGE_EDGES_HOURS) + 1
_EDGES_US = np.array((0, *AGE_EDGES_HOURS), np.int64) * US_PER_HOUR

LEAST_US = 60_000_000
"""A clock goes on by a minute at least in any interval: sums are kept for gaps from a minute on."""


_ROUNDING = 1e-9


def cycle_lengths_days(from_us: IntArray, to_us: IntArray, bins: int, width_us: int) -> FloatArray:
    """How much of each interval lies in each bin of a cycle that began in 1970: (k, bins) float64, days."""
    begun = np.arange(bins) * width_us
    # Of the bins before an instant's own, all has gone by of each cycle but the own bin's rest.
    gone = np.tri(bins, bins, -1) * width_us
    lengths = np.zeros((len(from_us), bins))
    row, whole = np.arange(len(from_us)), np.zeros(len(from_us), np.int64)
    for at_us, sign in ((to_us, 1), (from_us, -1)):
        cycle, rest = np.divmod(at_us, bins * width_us)
        own = rest // width_us
        lengths += sign * gone.take(own, axis=0)
        lengths[row, own] += sign * (rest - begun[own])
        whole += sign * cycle
    lengths += (whole * width_us)[:, None]
    lengths /= US_PER_DAY
    return lengths


class _Speeds:
    """What speeds by hour and by age, a row a group, have in common."""

    hour: FloatArray
    age: FloatArray

    @property
    def by_hour(self) -> BoolArray:
        """Groups whose hours of the week differ, (g,)."""
        found: BoolArray = (self.hour != 1.0).any(axis=1)
        return found

    @property
    def of_day(self) -> FloatArray:
        """Speed in each hour of the day over all days of the week, (g, 24)."""
        found: FloatArray = self.hour.reshape(len(self.hour), WEEK_HOURS // 24, 24).mean(axis=1)
        return found

    @property
    def by_hour_of_day(self) -> BoolArray:
        """Groups whose hours of the day differ, (g,)."""
        found: BoolArray = np.ptp(self.of_day, axis=1) > _ROUNDING
        return found

    @property
    def by_weekday(self) -> BoolArray:
        """Groups whose days of the week differ, (g,)."""
        of_week = self.hour.reshape(len(self.hour), WEEK_HOURS // 24, 24).mean(axis=2)
        found: BoolArray = np.ptp(of_week, axis=1) > _ROUNDING
        return found

    @property
    def by_age(self) -> BoolArray:
        """Groups whose ages differ, (g,)."""
        found: BoolArray = (self.age != 1.0).any(axis=1)
        return found


@dataclass(frozen=True)
class Clocks(_Speeds):
    """Clocks of n pages in g groups.

    Attributes
    ----------
    hour : (g, 168) float64
        Speed in each hour of the week, from Thursday 0:00 UTC on; mean 1.
    age : (g, `AGES`) float64
        Speed in each bin of age; mean 1.
    group : (n,) int64
        The row of each page.
    born_us : (n,) int64, UTC microseconds
        When each page appeared; `NO_TIME` if not known: such a page goes by the hours alone.
    """

    hour: FloatArray
    age: FloatArray
    group: IntArray
    born_us: IntArray

    def __post_init__(self) -> None:
        # Clock days from the first hour of the week to each.
        whole = np.zeros((len(self.hour), WEEK_HOURS + 1))
        np.cumsum(self.hour / 24.0, axis=1, out=whole[:, 1:])
        object.__setattr__(self, "_whole", whole)

    def by_days(self) -> Clocks:
        """Clocks that run through each day (UTC) at its mean speed."""
        days = self.hour.reshape(len(self.hour), -1, 24).mean(axis=2)
        return Clocks(np.repeat(days, 24, axis=1), self.age, self.group, self.born_us)

    def hours_at(self, group: IntArray, at_us: IntArray) -> FloatArray:
        """Days of the clock of hours from 1970 to an instant, (k,) float64."""
        whole: FloatArray = self._whole  # type: ignore[attr-defined]
        week, rest = np.divmod(at_us, WEEK_HOURS * US_PER_HOUR)
        hour = rest // US_PER_HOUR
        part = (rest - hour * US_PER_HOUR) / US_PER_DAY
        found: FloatArray = week * whole[group, -1] + whole[group, hour] + self.hour[group, hour] * part
        return found

    def days(self, page: IntArray, from_us: IntArray, to_us: IntArray) -> FloatArray:
        """Clock days from one instant to another, (k,) float64; whole days where the clock is flat.

        Parameters
        ----------
        page : (k,) int64
        from_us, to_us : (k,) int64, UTC microseconds, ``from_us <= to_us``
        """
        group = self.group[page]
        days = (to_us - from_us) / US_PER_DAY
        rows = np.flatnonzero((self.by_hour | self.by_age)[group])
        if not rows.size:
            return days
        page, group, from_us, to_us = page[rows], group[rows], from_us[rows], to_us[rows]
        born = self.born_us[page]
        aged = self.by_age[group] & (born != NO_TIME)
        total = np.where(aged, 0.0, self._between(group, from_us, to_us))
        some = np.flatnonzero(aged)
        group = group[some]
        for b, at, days_of in self._by_age(group, born[some], from_us[some], to_us[some]):
            total[some[at]] += self.age[group[at], b] * days_of
        days[rows] = total
        return days

    def age_lengths_days(self, page: IntArray, from_us: IntArray, to_us: IntArray) -> FloatArray:
        """How much of intervals of pages whose birth is known lies in each bin of age: (k, `AGES`) float64,
        days of the clock of hours.
        """
        found = np.zeros((len(page), AGES))
        for b, at, days in self._by_age(self.group[page], self.born_us[page], from_us, to_us):
            found[at, b] = days
        return found

    def _by_age(
        self, group: IntArray, born_us: IntArray, from_us: IntArray, to_us: IntArray
    ) -> Iterator[tuple[int, IntArray, FloatArray]]:
        """Of each bin of age the intervals that reach into it, for how many days of the clock of hours."""
        for b in range(AGES):
            low = np.maximum(from_us, born_us + _EDGES_US[b]) if b else from_us
            high = np.minimum(to_us, born_us + _EDGES_US[b + 1]) if b + 1 < AGES else to_us
            at = np.flatnonzero(high > low)
            if at.size:
                yield b, at, self._between(group[at], low[at], high[at])

    def _between(self, group: IntArray, from_us: IntArray, to_us: IntArray) -> FloatArray:
        flat = ~self.by_hour[group]
        found = self.hours_at(group, to_us) - self.hours_at(group, from_us)
        return np.where(flat, (to_us - from_us) / US_PER_DAY, found)

    def length_us(self, page: IntArray, from_us: IntArray, to_us: IntArray) -> IntArray:
        """Microseconds of the clock from one instant to another, (k,) int64, at least `LEAST_US`."""
        plain = to_us - from_us
        moving = (self.by_hour | self.by_age)[self.group[page]]
        if not moving.any():
            return plain
        clock = np.rint(self.days(page, from_us, to_us) * US_PER_DAY).astype(np.int64)
        return np.where(moving, np.maximum(clock, np.minimum(plain, LEAST_US)), plain)

    def settles(self, page: IntArray, at_us: IntArray) -> BoolArray:
        """Whether the clock of a page slows down or speeds up with age from an instant on, (k,) bool."""
        born = self.born_us[page]
        young = (born != NO_TIME) & (at_us < born + _EDGES_US[-1])
        found: BoolArray = young & self.by_age[self.group[page]]
        return found


@dataclass(frozen=True)
class Profiles(_Speeds):
    """Clocks of the groups that have one; that of all others is flat.

    Attributes
    ----------
    group : (k,) int64, ascending
    hour : (k, 168) float64
    age : (k, `AGES`) float64
    """

    group: IntArray
    hour: FloatArray
    age: FloatArray

    @classmethod
    def flat(cls, group: IntArray | None = None) -> Profiles:
        """Flat clocks of some groups; by default, none has one."""
        group = np.zeros(0, np.int64) if group is None else group
        return cls(group, np.ones((len(group), WEEK_HOURS)), np.ones((len(group), AGES)))

    def take(self, rows: IntArray | BoolArray) -> Profiles:
        return Profiles(self.group[rows], self.hour[rows], self.age[rows])

    def joined(self, other: Profiles) -> Profiles:
        """Those of both, no group being in both."""
        group = np.concatenate([self.group, other.group])
        hour, age = np.concatenate([self.hour, other.hour]), np.concatenate([self.age, other.age])
        return Profiles(group, hour, age).take(np.argsort(group))

    def __len__(self) -> int:
        return len(self.group)

    def rows(self, group: IntArray) -> IntArray:
        """Where groups are, -1 for those that are not, (m,) int64."""
        return rows_of(self.group, group)

    def ages(self, group: IntArray) -> FloatArray:
        """Speeds of groups at each age, (m, `AGES`)."""
        return np.concatenate([self.age, np.ones((1, AGES))])[self.rows(group)]

    def clocks(self, group: IntArray, born_us: IntArray) -> Clocks:
        """Clocks of pages, (n,) both. The last row is flat."""
        row = self.rows(group)
        hour, age = (np.concatenate([v, np.ones((1, v.shape[1]))]) for v in (self.hour, self.age))
        return Clocks(hour, age, np.where(row < 0, len(self), row), born_us)
