"""Intervals that are kept to learn clocks from: of every group some, fewer the older they are.

Each interval has a number of its own, drawn by its page and its end, that grows with the time of the end; of
each group those with the greatest numbers are kept. So the kept ones are the same however a log is cut into
nights, and older ones fade out (Gumbel numbers: the chance to be kept falls with the age as exp(-age / T)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from policies.clocks.learning import CERTAIN, Spells, agreement, profiles
from policies.clocks.profile import (
    AGE_EDGES_HOURS,
    NO_TIME,
    US_PER_DAY,
    US_PER_HOUR,
    WEEK_HOURS,
    Clocks,
    Profiles,
    cycle_lengths_days,
)
from policies.numerics.lookup import places
from policies.numerics.scrambling import fractions, scramble
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

HOURS, WEEKDAYS = 24, 7
_WIDTH_US = {HOURS: US_PER_HOUR, WEEKDAYS: US_PER_DAY}
LONGEST_US = 120 * US_PER_HOUR
"""Longer intervals say next to nothing of hours."""

SHORT_US = 18 * US_PER_HOUR
"""Shorter ones say most of them."""

ENOUGH = 60
"""Short intervals by which it is seen whether hours may matter."""

MANY = 400
"""Short intervals by which hours that matter are found."""

WEEKS_US = 21 * US_PER_DAY
"""So long a host must be watched before days of the week may differ: pages change together on some days."""

US_PER_MINUTE = 60_000_000
TAUGHT_US = 4 * AGE_EDGES_HOURS[-1] * US_PER_HOUR
"""What older pages do teaches no more of how pages age."""

AGAINST_AGE = 2.0 * CERTAIN
"""The logarithm of how much less probable a page's own intervals are by a clock of age, if it has none: two
changes when it should have settled."""

_MEMORY_DAYS = 30.0
_LEAST_TOLD = 0.01
_LEAST_CHANGES = 20


@dataclass(frozen=True)
class Kept:
    """Intervals of pages of g groups, sorted by group, then by page, then by end.

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
        if not full.size:
            return self.in_order()
        crowded = (size > most)[self.group]
        rows = np.flatnonzero(crowded)
        rows = rows[np.argsort(self.group[rows], kind="stable")]
        number = self.take(rows).numbers(born_us[self.page[rows]])
        end = np.cumsum(size[full])
        kept = ~crowded
        for g, first, last in zip(full, end - size[full], end, strict=True):
            least = last - first - most[g]
            kept[rows[first:last][np.argpartition(number[first:last], least)[least:]]] = True
        return self.take(kept).in_order()

    def in_order(self) -> Kept:
        """The same by group, then by page, then by end: in an order that no cut into nights changes."""
        return self.take(self._order(self.group, self.page))

    def by_end(self) -> Kept:
        """The same by group, then by end."""
        return self.take(self._order(self.group))

    def _order(self, *by: IntArray) -> IntArray:
        """Rows by these, then by end, then by what they are drawn by."""
        if len(self):
            minute = (self.to_us - self.to_us.min()) // US_PER_MINUTE
            bits = [int(key.max()).bit_length() for key in (*by, minute)]
            left = 64 - sum(bits)
            if left > 0:
                # One key sorts in a fifth of the time that four take, and hardly ever leaves two rows equal.
                key = np.zeros(len(self), np.uint64)
                for part, width in zip((*by, minute), bits, strict=True):
                    key = key << np.uint64(width) | part.astype(np.uint64)
                key = key << np.uint64(left) | self.drawn >> np.uint64(64 - left)
                # By page rows are in two runs, which a stable sort merges.
                order: IntArray = np.argsort(key, kind="stable" if len(by) > 1 else None)
                if (np.diff(key[order]) > 0).all():
                    return order
        return np.lexsort((self.from_us, self.drawn, self.to_us, *by[::-1]))

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
        mine = self.take((changes >= _LEAST_CHANGES)[self.group]).by_end()
        least_hour, least_day, least_age = np.full((3, groups), CERTAIN)
        least_hour[before.group[before.by_hour]] = least_age[before.group[before.by_age]] = 0.0
        least_day[before.group[before.by_weekday]] = 0.0
        born = born_us[mine.page]
        # Pages come at some hours of the day and change soon after: hours count only beside the clock of age,
        # and that, where there are hours, beside these.
        ages = mine._ages(least_age, born, rate_per_day, Profiles.flat())
        hours, gain = mine._hours(least_hour, least_day, born, rate_per_day, ages)
        both = np.isin(mine.group, hours.group)
        beside = mine.take(both)._ages(least_age, born[both], rate_per_day, hours)
        ages = ages.take(~np.isin(ages.group, hours.group)).joined(beside)
        found = Profiles.flat(np.union1d(hours.group, ages.group))
        found.hour[found.rows(hours.group)] = hours.hour
        found.age[found.rows(ages.group)] = ages.age
        return found, gain

    def steady(self, aging: Clocks, plain: Clocks, groups: int) -> BoolArray:
        """Pages whose intervals speak against a clock of age, (n,): a home page among articles.

        Parameters
        ----------
        aging, plain : Clocks of n pages
            With the clock of age of each group, and without.
        groups : int
        """
        changed = np.bincount(self.group[self.changed], minlength=groups)

        def expected(clocks: Clocks) -> FloatArray:
            days = clocks.days(self.page, self.from_us, self.to_us)
            held = np.bincount(self.group, days, groups)
            rate = (changed + 0.5) / np.maximum(held, _LEAST_TOLD)
            found: FloatArray = days * rate[self.group]
            return found

        spells = self.page, self.changed, np.ones(len(self))
        gain = agreement(expected(aging), expected(plain), spells, len(aging.group))
        found: BoolArray = gain < -AGAINST_AGE
        return found

    def hour_spells(self, rate_per_day: FloatArray) -> Spells:
        """Cut by the hours of the day; `rate_per_day`, (k,), are those of their pages."""
        return Spells(self.group, self._lengths_days(HOURS), self.changed, rate_per_day)

    def _lengths_days(self, bins: int) -> FloatArray:
        """How much of each lies in each hour of the day, or with 7 bins on each day from Thursday on.

        Returns
        -------
        (k, bins) float64, days
        """
        return cycle_lengths_days(self.from_us, self.to_us, bins, _WIDTH_US[bins])

    def _hours(
        self,
        least: FloatArray,
        least_day: FloatArray,
        born: IntArray,
        rate_per_day: FloatArray,
        ages: Profiles,
    ) -> tuple[Profiles, FloatArray]:
        use = self.to_us - self.from_us <= LONGEST_US
        mine, born = self.take(use), born[use]
        rate = rate_per_day[mine.page]
        clocks = ages.clocks(mine.group, born)
        aged = np.isin(mine.group, ages.group) & (born != NO_TIME)
        # Weekdays first: a weekend without changes would else speak against the hours of working days.
        old = mine._span_us(len(least)) >= WEEKS_US
        some = np.flatnonzero(old[mine.group])
        length = mine.take(some)._lengths_days(WEEKDAYS)
        length[aged[some]] = mine._cut(some[aged[some]], clocks, WEEKDAYS)
        spells = Spells(mine.group[some], length, mine.changed[some], rate[some])
        weekly, by_day, _ = profiles(spells, least_day, circular=True)
        day = np.ones((len(least), WEEKDAYS))
        day[weekly] = by_day
        spells = mine.hour_spells(rate)
        rows = np.flatnonzero(aged | np.isin(mine.group, weekly))
        spells.length[rows] = mine._cut(rows, clocks, HOURS, day)
        daily, by_hour, gain = profiles(spells, least, circular=True)
        hour = np.ones((len(least), HOURS))
        hour[daily] = by_hour
        found = Profiles.flat(np.union1d(weekly, daily))
        at = np.arange(WEEK_HOURS)
        found.hour[:] = hour[found.group][:, at % HOURS] * day[found.group][:, at // HOURS]
        found.hour[:] /= found.hour.mean(axis=1, keepdims=True)
        return found, gain

    def _span_us(self, groups: int) -> IntArray:
        """From the first to the last end of the intervals of each group, (g,)."""
        span: IntArray = np.zeros(groups, np.int64)
        first = np.flatnonzero(np.diff(self.group, prepend=-1))
        if first.size:
            last = np.append(first[1:], len(self)) - 1
            span[self.group[first]] = self.to_us[last] - self.to_us[first]
        return span

    def _ages(self, least: FloatArray, born: IntArray, rate_per_day: FloatArray, hours: Profiles) -> Profiles:
        # Pages that were there before are others than those that came since: they do not show how these age.
        use = born != NO_TIME
        mine, born = self.take(use), born[use]
        clocks = hours.clocks(mine.group, born)
        length = clocks.age_lengths_days(
            np.arange(len(mine)), np.maximum(mine.from_us, born), np.maximum(mine.to_us, born + 1)
        )
        spells = Spells(mine.group, length, mine.changed, rate_per_day[mine.page])
        certain, speed, _ = profiles(spells, least, circular=False)
        found = Profiles.flat(certain)
        found.age[:] = speed
        return found

    def _cut(self, rows: IntArray, clocks: Clocks, bins: int, by_day: FloatArray | None = None) -> FloatArray:
        """As `_lengths_days` of some intervals, in clock days: (r, bins).

        Days of the week may count by their speeds besides, (g, 7).
        """
        from_us, to_us = self.from_us[rows], self.to_us[rows]
        first = from_us // US_PER_HOUR
        count = (to_us - 1) // US_PER_HOUR - first + 1
        row = np.repeat(np.arange(len(rows)), count)
        hour = places(count) + first[row]
        begin = np.maximum(hour * US_PER_HOUR, from_us[row])
        end = np.minimum((hour + 1) * US_PER_HOUR, to_us[row])
        days = clocks.days(rows[row], begin, end)
        if by_day is not None:
            days *= by_day[self.group[rows[row]], hour // HOURS % WEEKDAYS]
        column = hour * US_PER_HOUR // _WIDTH_US[bins] % bins
        found = np.bincount(row * bins + column, days, len(rows) * bins).astype(np.float64, copy=False)
        return found.reshape(len(rows), bins)


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
