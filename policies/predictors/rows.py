"""Rows that predictors learn from: pages at a time, what was known then, and whether they changed soon after.

All figures are from before the time of the row. Those of a group leave the page itself out: with it in them,
they would tell of the page what no other page can (and lift the AUC by .05 to .12 on real histories).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from policies.judging.recalibration import CALM_EDGES
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

WINDOWS_DAYS = (1.0, 7.0, 30.0)
"""Windows in which changes are counted (Han et al. 2019, section 4.2.1)."""

HOURS, WEEKDAYS = 24, 7
_MONDAY = 3  # 1970 began with a Thursday
_WIDE = ("count", "group_count")


@dataclass(frozen=True)
class Rows:
    """Pages at k times.

    Attributes
    ----------
    page : (k,) int64
    days : (k,) float64, days
        Length of the interval after the time of the row.
    count : (3, k) float64
        Changes found in the last day, week and month.
    since_days : (k,) float64, days
        Since the last change, or since the page was first seen.
    ever : (k,) bool
        Whether a change was found at all.
    group_count, group_since_days : (3, k) and (k,) float64
        Means of these over the other pages of the group.
    log_rate : (k,) float64
        Logarithm of the estimated change rate, per day.
    day, hour : (k,) int64
        Day since 1970 and hour of the day of the time of the row, UTC.
    metadata : (k, m) int64
        Values of catalogue columns by number; 0 is not known.
    changed : (k,) bool
        Whether there was a change in the interval.
    """

    page: IntArray
    days: FloatArray
    count: FloatArray
    since_days: FloatArray
    ever: BoolArray
    group_count: FloatArray
    group_since_days: FloatArray
    log_rate: FloatArray
    day: IntArray
    hour: IntArray
    metadata: IntArray
    changed: BoolArray

    def __len__(self) -> int:
        return len(self.page)

    def take(self, rows: IntArray | BoolArray) -> Rows:
        """Some rows, in that order."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return Rows(**{n: v[:, rows] if n in _WIDE else v[rows] for n, v in found.items()})

    def joined(self, other: Rows) -> Rows:
        """The rows of both."""
        return Rows.concatenated([self, other])

    @staticmethod
    def concatenated(parts: Sequence[Rows]) -> Rows:
        """The rows of one or more."""
        names = [f.name for f in fields(Rows)]
        return Rows(
            **{n: np.concatenate([getattr(p, n) for p in parts], axis=int(n in _WIDE)) for n in names}
        )

    def values(self) -> IntArray:
        """What a network has embeddings of, metadata, weekday and hour, from 1 on: (k, m + 2) int64."""
        return np.column_stack([self.metadata, self.weekday + 1, self.hour + 1])

    def numbers(self, frequencies: bool) -> FloatArray:
        """What it takes as they are: (k, 8) float64, or (k, 0) without frequencies."""
        return self.frequencies() if frequencies else np.zeros((len(self), 0))

    @property
    def weekday(self) -> IntArray:
        """Monday is 0, (k,) int64."""
        found: IntArray = (self.day + _MONDAY) % WEEKDAYS
        return found

    def times(self) -> FloatArray:
        """Weekday and hour as indicators: (k, 31) float64."""
        found = np.zeros((len(self), WEEKDAYS + HOURS))
        at = np.arange(len(self))
        found[at, self.weekday] = 1.0
        found[at, WEEKDAYS + self.hour] = 1.0
        return found

    def history(self) -> FloatArray:
        """What the page itself has done, as logarithms: (k, 6) float64."""
        return np.column_stack(
            [
                self.log_rate,
                *np.log(self.count + 0.3),
                np.log1p(self.since_days),
                self.ever,
            ]
        )

    def calm(self) -> FloatArray:
        """Time since the last change, times the rate, as indicators of cells: (k, 10) float64.

        Of sites that are built as a whole, or by a timetable, pages are calm until their time is come: no
        line tells that.
        """
        found = np.zeros((len(self), len(CALM_EDGES) + 1))
        cell = np.searchsorted(CALM_EDGES, self.since_days * np.exp(self.log_rate), side="right")
        found[np.arange(len(self)), cell] = 1.0
        return found

    def group(self) -> FloatArray:
        """What the other pages of its group have done, as logarithms: (k, 2) float64."""
        return np.column_stack([np.log(self.group_count[2] + 0.03), np.log1p(self.group_since_days)])

    def frequencies(self) -> FloatArray:
        """The eight figures of Han et al. 2019, Table 1, as logarithms: (k, 8) float64."""
        return np.column_stack(
            [
                *np.log1p(self.count),
                np.log1p(self.since_days),
                *np.log1p(self.group_count),
                np.log1p(self.group_since_days),
            ]
        )
