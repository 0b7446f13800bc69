"""What a night thinks of pages until they are crawled again: chances to see a change, and fresh time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.estimation.posterior import Posterior, posterior
from policies.history.evidence import Evidence
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array, IntArray

PROBABILITY_UNIT = 2.0**-32

_SELDOM = 0.999
"""Probability of no change above which that of a change is added up for itself."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the night before thought of its scheduled pages.

    Attributes
    ----------
    row : (n,) int32
        Place of each page of tonight in the columns below; -1 where that night scheduled no crawl of it.
    change_rate_per_day : (m,) float64, positive
    information : (m,) float64, positive
        As from `policies.estimation.estimators.rate`.
    weight : (m,) float64
        What the page weighs, e.g. requests per day.
    exact : Posterior of e pages, optional
    exact_row : (m,) int32, optional
        Place in it of the rows whose posterior is no gamma distribution; -1 of others.
    """

    row: Int32Array
    change_rate_per_day: FloatArray
    information: FloatArray
    weight: FloatArray
    exact: Posterior | None = None
    exact_row: Int32Array | None = None

    def log_unchanged(self, at: IntArray | Int32Array, days: FloatArray) -> FloatArray:
        """See `Told.log_unchanged`, of pages of the rows `at`, (k,)."""
        return self.told(at).log_unchanged(days)

    def told(self, at: IntArray | Int32Array) -> Told:
        """What it says of pages of the rows `at`, (k,)."""
        rows, exact = np.zeros(0, np.int64), None
        if self.exact is not None and self.exact_row is not None:
            row = self.exact_row[at].astype(np.int64)
            rows = np.flatnonzero(row >= 0)
            exact = self.exact.take(row[rows]) if len(rows) else None
        return Told(self.change_rate_per_day[at], self.information[at], rows, exact)


@dataclass(frozen=True, slots=True)
class Told:
    """A forecast of k pages, for several questions.

    Attributes
    ----------
    change_rate_per_day, information : (k,) float64
    rows : (e,) int64
        Those whose posterior is no gamma distribution.
    exact : Posterior of e pages, optional
    """

    change_rate_per_day: FloatArray
    information: FloatArray
    rows: IntArray
    exact: Posterior | None

    def log_unchanged(self, days: FloatArray) -> FloatArray:
        """Log of the probability that pages show no change for `days` (k,): (k,) float64."""
        rate, information, rows = self.change_rate_per_day, self.information, self.rows
        found: FloatArray = -information * np.log1p(rate * days / information)
        if self.exact is not None:
            unchanged = self.exact.unchanged(days[rows])
            log = np.log(np.maximum(unchanged, 1e-300))
            seldom = np.flatnonzero(unchanged > _SELDOM)  # the complement keeps its digits
            log[seldom] = np.log1p(-self.exact.take(seldom).changed(days[rows[seldom]]))
            found[rows] = log
        return found

    def fresh(self, days: FloatArray) -> FloatArray:
        """Expected share of `days` (k,) before the first change: (k,) float64."""
        found = predict(self.change_rate_per_day, self.information, days)[1]
        if self.exact is not None:
            found[self.rows] = self.exact.fresh(days[self.rows])
        return found

    def fresh_if_changed(
        self, days: FloatArray, unchanged: FloatArray, fresh: FloatArray, age_days: FloatArray | None
    ) -> FloatArray:
        """The same, given that a crawl found a change, see the function of this name: (k,) float64."""
        rate, information = self.change_rate_per_day, self.information
        found = fresh_if_changed(rate, information, days, unchanged, fresh, age_days)
        if self.exact is not None and age_days is not None:
            dated = np.flatnonzero(age_days[self.rows] > 0.0)
            rows, age = self.rows[dated], age_days[self.rows[dated]]
            before = days[rows] - age
            found[rows] = self.exact.take(dated).dated(age).fresh(before) * (before / days[rows])
        return found


def forecast(evidence: Evidence, change_rate_per_day: FloatArray, information: FloatArray) -> Forecast:
    """Forecast of n pages, a row each, from their evidence and what `estimators.rate` made of it."""
    n = len(evidence)
    row = np.arange(n, dtype=np.int32)
    changed = np.flatnonzero(np.diff(evidence.bin_start) > 0)
    exact_row = np.full(n, -1, np.int32)
    exact_row[changed] = row[: len(changed)]
    exact = posterior(evidence.take(changed), change_rate_per_day[changed], information[changed])
    return Forecast(row, change_rate_per_day, information, np.ones(n), exact, exact_row)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Forecasts of k intervals.

    Attributes
    ----------
    known : (k,) bool
        Whether there is one; the other columns have any numbers where not.
    rate_per_day : (k,) float64, positive
        Expected changes over the length of the interval.
    information : (k,) float64, positive
        How well they are known: one over their relative variance.
    by_time : (k,) float64, in [0, 1]
        Part of them that comes with time; the rest comes with signals.
    fresh : (k,) float64, in [0, 1]
        Expected share of the interval before its first change.
    fresh_if_changed : (k,) float64, in [0, 1]
        The same where a change was found, given its date if it has one; undefined elsewhere.
    """

    known: BoolArray
    rate_per_day: FloatArray
    information: FloatArray
    by_time: FloatArray
    fresh: FloatArray
    fresh_if_changed: FloatArray

    @property
    def forecast(self) -> Forecast:
        """That of each interval as a row."""
        row = np.arange(len(self.known), dtype=np.int32)
        return Forecast(row, self.rate_per_day, self.information, np.ones(len(row)))

    def take(self, rows: IntArray) -> Clocks:
        """Some intervals, in that order."""
        return Clocks(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def predict(
    change_rate_per_day: FloatArray, information: FloatArray, days: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Chance to see no change for `days`, and the expected share of them before the first change.

    Parameters
    ----------
    change_rate_per_day, information, days : (k,) float64, positive

    Returns
    -------
    unchanged : (k,) float64
        ``S(days) = (1 + r days / h) ** -h``.
    fresh : (k,) float64
        Mean of ``S(u)`` over u from 0 to `days`.
    """
    ratio = change_rate_per_day * days / information
    log = np.log1p(ratio)
    # The mean is (1 - exp(-c)) / c x log / ratio with c = (h - 1) log, stable at h = 1 and at small ratios.
    c = (information - 1.0) * log
    with np.errstate(invalid="ignore", divide="ignore"):
        fresh = np.where(np.abs(c) > 1e-12, -np.expm1(-c) / c, 1.0) * np.where(ratio > 0.0, log / ratio, 1.0)
    return np.exp(-information * log), np.minimum(fresh, 1.0)


def fresh_if_changed(
    change_rate_per_day: FloatArray,
    information: FloatArray,
    days: FloatArray,
    unchanged: FloatArray,
    fresh: FloatArray,
    age_days: FloatArray | None,
) -> FloatArray:
    """Expected share of an interval before its first change, given that a crawl found one at its end.

    Parameters
    ----------
    change_rate_per_day, information, days : (k,) float64
    unchanged, fresh : (k,) float64
        From `predict`.
    age_days : (k,) float64, days, or None
        Age of the last change at the end of the interval, 0 where that is not known.

    Returns
    -------
    (k,) float64
        Without a date, ``(fresh - unchanged) / (1 - unchanged)``, at most one half. With one the posterior
        is narrowed to shape ``h + 1`` and mean ``(h + 1) / (h / r + age)``, and the first change is expected
        of it before the last one, or is that.
    """
    p = 1.0 - unchanged
    share: FloatArray = np.full(len(days), 0.5)
    np.divide(fresh - unchanged, p, out=share, where=p > 1e-8)
    np.clip(share, 0.0, 0.5, out=share)
    if age_days is not None:
        dated = np.flatnonzero(age_days > 0.0)
        rate, h, age = change_rate_per_day[dated], information[dated], age_days[dated]
        before = days[dated] - age
        narrowed = (h + 1.0) / (h / rate + age)
        share[dated] = predict(narrowed, h + 1.0, before)[1] * (before / days[dated])
    return share
