"""What intervals between crawls add up to, for groups of pages: exact whole numbers, so that parts merge.

An unchanged interval counts by its length in each bin alone, so all of them are added up. A changed one says
that there was a change somewhere in it: of these samples are kept, those with the smallest numbers, which
their pages and times draw. Sums are kept by sets of days, by which errors are found. Intervals of more than
five days say next to nothing of hours and weekdays, and count for waits only.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from policies.clocks.kept import LONGEST_US
from policies.clocks.profile import NO_TIME, US_PER_DAY, WEEK_HOURS
from policies.dynamics.lengths import WAITS, wait_bin, wait_lengths_days, week_hour, week_lengths_days
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

SETS = 16
"""Sets of days: no common divisor with a week, so that each has all weekdays."""

UNIT = 2.0**-28
"""Of lengths as whole numbers: days, or changes that are to be expected."""

MOST = 4096
"""Changed intervals that are kept of a group, for hours and as many for waits."""

SITEMAP, LISTED = range(2)
"""Who tells when pages changed."""

_CHUNK = 8192


@dataclass(frozen=True)
class Looks:
    """Intervals between crawls.

    Attributes
    ----------
    from_us, to_us : (k,) int64, microseconds of the site's clock
    changed : (k,) bool
    rate_per_day : (k,) float64
        Of their pages.
    last_from_us, last_to_us : (k,) int64
        The interval that the page's last change before these fell into, `NO_TIME` where none is known.
    dated_us : (k,) int64
        Last-Modified of a changed one, `NO_TIME` where none dates it.
    dates : (k,) bool
        Whether any change of the page is dated.
    drawn : (k,) uint64
        Numbers that look drawn.
    """

    from_us: IntArray
    to_us: IntArray
    changed: BoolArray
    rate_per_day: FloatArray
    last_from_us: IntArray
    last_to_us: IntArray
    dated_us: IntArray
    dates: BoolArray
    drawn: UIntArray

    def __len__(self) -> int:
        return len(self.from_us)

    def take(self, rows: IntArray | BoolArray) -> Looks:
        return Looks(*(getattr(self, f.name)[rows] for f in fields(self)))


@dataclass(frozen=True)
class Sample:
    """Changed intervals of groups: of each those with the smallest numbers, by group."""

    group: IntArray
    looks: Looks

    @classmethod
    def empty(cls) -> Sample:
        """No intervals."""
        none, some = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        return cls(none, Looks(none, none, some, np.zeros(0), none, none, none, some, np.zeros(0, np.uint64)))

    def of(self, group: int) -> Looks:
        """Those of one group."""
        return self.looks.take(self.group == group)

    def add(self, group: IntArray, looks: Looks) -> Sample:
        """The sample of these and more."""
        group = np.concatenate([self.group, group])
        pairs = ((getattr(self.looks, f.name), getattr(looks, f.name)) for f in fields(Looks))
        whole = Looks(*(np.concatenate(pair) for pair in pairs))
        order = np.lexsort((whole.to_us, whole.drawn, group))
        first = np.searchsorted(group[order], group[order])
        order = order[np.arange(len(order)) - first < MOST]
        return Sample(group[order], whole.take(order))


@dataclass(frozen=True)
class Sums:
    """Of g groups; h are the hours of a week, w the bins of waits. Lengths are in `UNIT`.

    Attributes
    ----------
    expected : (g, `SETS`, h) int64
        Changes that unchanged intervals of at most five days would have at the rates of their pages.
    changed : (g,) int64
        Changed intervals of at most five days.
    crawls, found : (g, `SETS`, h) int64
        Intervals by the hour of their end, and those of them that changed.
    dated, dated_expected : (g, `SETS`, h) int64
        Changes by their Last-Modified, and what their pages would have in the time that it tells of.
    told : (2, g, `SETS`, h) int64
        Changes by `SITEMAP` and `LISTED`.
    waited : (g, `SETS`, w) int64, days
        Of unchanged intervals, by the time since the last change.
    waits : (g, w) int64
        Waits from the one crawl that found a change to the next.
    of_hours, of_waits : Sample
        Changed intervals of at most five days, and those whose page has changed before.
    """

    expected: IntArray
    changed: IntArray
    crawls: IntArray
    found: IntArray
    dated: IntArray
    dated_expected: IntArray
    told: IntArray
    waited: IntArray
    waits: IntArray
    of_hours: Sample
    of_waits: Sample

    @classmethod
    def empty(cls, groups: int) -> Sums:
        """Of nothing."""
        by_hour, by_wait = (groups, SETS, WEEK_HOURS), (groups, SETS, WAITS)
        shapes = (by_hour, (groups,), *[by_hour] * 4, (2, *by_hour), by_wait, (groups, WAITS))
        zeros: list[Any] = [np.zeros(shape, np.int64) for shape in shapes]
        return cls(*[*zeros, Sample.empty(), Sample.empty()])

    def add(self, looks: Looks, group: IntArray, longest_us: int = LONGEST_US) -> Sums:
        """With more intervals, each of the group of that number; those of -1 are of none.

        Longer ones than `longest_us` count for waits only. No limit may be set where the length depends on
        when the page changed, as in a list of changes.
        """
        mine = np.flatnonzero(group >= 0)
        for low in range(0, len(mine), _CHUNK):
            rows = mine[low : low + _CHUNK]
            self._count(looks.take(rows), group[rows], longest_us)
        some = mine[looks.changed[mine]]
        short, again = some[_short(looks, longest_us)[some]], some[looks.last_to_us[some] != NO_TIME]
        return replace(
            self,
            of_hours=self.of_hours.add(group[short], looks.take(short)),
            of_waits=self.of_waits.add(group[again], looks.take(again)),
        )

    def tell(self, who: int, at_us: IntArray, group: IntArray) -> None:
        """Count changes that others date, (k,) each."""
        mine = group >= 0
        np.add.at(self.told[who], (group[mine], set_of(at_us[mine]), week_hour(at_us[mine])), 1)

    def merge(self, other: Sums) -> Sums:
        """Of both."""
        both: dict[str, Any] = {}
        for name in (f.name for f in fields(self)):
            mine, its = getattr(self, name), getattr(other, name)
            both[name] = mine.add(its.group, its.looks) if isinstance(mine, Sample) else mine + its
        return Sums(**both)

    def _count(self, looks: Looks, group: IntArray, longest_us: int) -> None:
        day, hour, short = set_of(looks.to_us), week_hour(looks.to_us), _short(looks, longest_us)
        np.add.at(self.crawls, (group, day, hour), 1)
        some = np.flatnonzero(looks.changed)
        np.add.at(self.found, (group[some], day[some], hour[some]), 1)
        np.add.at(self.changed, group[some], short[some])
        known = some[looks.last_to_us[some] != NO_TIME]
        wait = (looks.to_us[known] - looks.last_to_us[known]) / US_PER_DAY
        np.add.at(self.waits, (group[known], wait_bin(wait)), 1)
        still = np.flatnonzero(~looks.changed & short)
        rate = looks.rate_per_day[:, None]
        lengths = week_lengths_days(looks.from_us[still], looks.to_us[still]) * rate[still]
        _add(self.expected, group[still], day[still], lengths)
        of_dated = looks.dates[still]
        _add(self.dated_expected, group[still][of_dated], day[still][of_dated], lengths[of_dated])
        told = some[(looks.dated_us[some] != NO_TIME) & short[some]]
        at = looks.dated_us[told]
        lengths = week_lengths_days(at, looks.to_us[told]) * rate[told]
        _add(self.dated_expected, group[told], day[told], lengths)
        np.add.at(self.dated, (group[told], day[told], week_hour(at)), 1)
        still = np.flatnonzero(~looks.changed & (looks.last_to_us != NO_TIME))
        _add(self.waited, group[still], day[still], waits_of(looks.take(still)))


def _short(looks: Looks, longest_us: int) -> BoolArray:
    found: BoolArray = looks.to_us - looks.from_us <= longest_us
    return found


def waits_of(looks: Looks) -> FloatArray:
    """Their lengths by the time since the last change, (k, `WAITS`), days."""
    return wait_lengths_days(looks.from_us, looks.to_us, looks.last_from_us, looks.last_to_us)


def set_of(at_us: IntArray) -> IntArray:
    """The set of days of each instant, (k,) int64."""
    found: IntArray = at_us // US_PER_DAY % SETS
    return found


def _add(total: IntArray, group: IntArray, day: IntArray, values: FloatArray) -> None:
    key = group * SETS + day
    order = np.argsort(key, kind="stable")
    if len(order):
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        whole = np.rint(values[order] / UNIT).astype(np.int64)
        total.reshape(-1, values.shape[1])[key[order][first]] += np.add.reduceat(whole, first, axis=0)
