"""The default predictor: factors on the cumulative hazard of a change, log-linear in features.

    P(change) = 1 - exp(-exp(offset + x . b))

With the estimator's log cumulative hazard over an interval as offset, intervals of any length train it, be
they crawl intervals or hours of a label. The logarithm of the likelihood is concave in `b`; its sums add up
over parts of the rows, so that shards can be summed before a step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.numerics.errors import NotConvergedError
from policies.numerics.typing_ import BoolArray, FloatArray
from policies.predictors.predictor import LARGEST_LOG_HAZARD, LEAST_LOG_HAZARD, probability
from policies.predictors.rows import HOURS, WEEKDAYS, Rows

RIDGE = 10.0
SHARED = 2 + WEEKDAYS + HOURS
"""The last of the default features: of the group, weekday and hour."""

RECENT_DAYS = 14
"""The level is that of the last days: rates of a whole site rise and fall faster than features tell."""

_RECENT_PRIOR = 10.0
_LEVEL_ROUNDS = 5
_MAX_STEPS = 100
_TOLERANCE = 1e-4
_LEAST_STEP = 1e-6

Features = Callable[[Rows], FloatArray]


def default_features(rows: Rows) -> FloatArray:
    """Own history, that of the group, weekday and hour: (k, 50) float64, the first of them 1."""
    own = rows.history(), rows.calm()
    return np.column_stack([np.ones(len(rows)), *own, rows.group(), rows.times()])


def frequency_features(rows: Rows) -> FloatArray:
    """Frequencies of page and group, as Han et al. 2019 combine them: (k, 9), the first of them 1."""
    return np.column_stack([np.ones(len(rows)), rows.frequencies()])


@dataclass(frozen=True)
class NewtonSums:
    """Minus the log likelihood of rows at some `b`, its gradient and its Hessian.

    Attributes
    ----------
    loss : float, nats
    gradient : (d,) float64
    hessian : (d, d) float64
    """

    loss: float
    gradient: FloatArray
    hessian: FloatArray

    def merge(self, other: NewtonSums) -> NewtonSums:
        """Sums over the rows of both."""
        return NewtonSums(
            self.loss + other.loss, self.gradient + other.gradient, self.hessian + other.hessian
        )


def newton_sums(x: FloatArray, offset: FloatArray, changed: BoolArray, b: FloatArray) -> NewtonSums:
    """Sums over rows.

    Parameters
    ----------
    x : (k, d) float64
    offset : (k,) float64
        Log cumulative hazards.
    changed : (k,) bool
    b : (d,) float64
    """
    hazard = np.exp(np.clip(offset + x @ b, LEAST_LOG_HAZARD, LARGEST_LOG_HAZARD))
    found = hazard / np.expm1(hazard)
    slope = np.where(changed, -found, hazard)
    curve = np.where(changed, found * (hazard + found - 1.0), hazard)
    loss = np.where(changed, -np.log(-np.expm1(-hazard)), hazard)
    return NewtonSums(float(loss.sum()), x.T @ slope, (x * curve[:, None]).T @ x)


def solve(sums: Callable[[FloatArray], NewtonSums], start: FloatArray, ridge: FloatArray) -> FloatArray:
    """The maximum of the likelihood under a ridge: (d,) float64.

    Parameters
    ----------
    sums : function of (d,) float64
        Sums over all rows, wherever they are.
    start : (d,) float64
    ridge : (d,) float64

    Raises
    ------
    NotConvergedError
        After 100 steps of Newton.
    """
    b = start
    here = sums(b)
    loss = here.loss + 0.5 * float(ridge @ (b * b))
    for _ in range(_MAX_STEPS):
        step = np.linalg.solve(here.hessian + np.diag(ridge), here.gradient + ridge * b)
        size = 1.0
        while True:
            to = b - size * step
            there = sums(to)
            reached = there.loss + 0.5 * float(ridge @ (to * to))
            if reached <= loss + 1e-9 * abs(loss) or size < _LEAST_STEP:
                break
            size *= 0.5
        b, here, loss = to, there, reached
        if float(np.abs(size * step).max(initial=0.0)) < _TOLERANCE:
            return b
    raise NotConvergedError(
        f"factors of the hazard moved by more than {_TOLERANCE:g} after {_MAX_STEPS} steps; give fewer "
        "features or more rows"
    )


class Hazard:
    """Factors on the hazard, log-linear in features of the rows.

    Pages of a site change together, so rows of a day are not independent of each other: what weekdays, hours
    and groups do is as certain as the number of days that show it, not of rows. Their ridge is `RIDGE` days.

    Parameters
    ----------
    features : function of Rows
        To (k, d) float64, the first column 1.
    shared : int
        How many of the last columns are figures that pages have in common.
    recent_days : int, optional
        Days that the level is brought to after the fit; None: it is that of all rows.
    """

    def __init__(
        self,
        features: Features = default_features,
        shared: int = SHARED,
        recent_days: int | None = RECENT_DAYS,
    ) -> None:
        self._features, self._shared, self._recent_days = features, shared, recent_days
        self.b: FloatArray = np.zeros(0)

    def fit(self, rows: Rows, offset: FloatArray) -> None:
        """As `predictor.Predictor.fit`, from where the last fit ended; raises NotConvergedError."""
        x = self._features(rows)
        start = self.b if len(self.b) else np.zeros(x.shape[1])
        ridge = np.full(x.shape[1], RIDGE)
        ridge[0] = 1e-6
        changes_a_day = np.count_nonzero(rows.changed) / max(len(np.unique(rows.day)), 1)
        ridge[x.shape[1] - self._shared :] = RIDGE * max(changes_a_day, 1.0)
        self.b = solve(lambda b: newton_sums(x, offset, rows.changed, b), start, ridge)
        if self._recent_days is not None and len(rows):
            late = rows.day > rows.day.max() - self._recent_days
            found = np.count_nonzero(rows.changed[late]) + _RECENT_PRIOR
            for _ in range(_LEVEL_ROUNDS):  # chances are not linear in the factor
                expected = probability(offset[late], x[late] @ self.b).sum() + _RECENT_PRIOR
                self.b[0] += np.log(found / expected)

    def log_multiplier(self, rows: Rows) -> FloatArray:
        """As `predictor.Predictor.log_multiplier`."""
        result: FloatArray = self._features(rows) @ self.b
        return result


def combined() -> Hazard:
    """Frequencies of page and group in a linear model: the last baseline of Han et al. 2019."""
    return Hazard(frequency_features, 0, None)
