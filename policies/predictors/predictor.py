"""What a predictor is: a factor on the cumulative hazard of a change, learned from rows."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from policies.numerics.typing_ import FloatArray
from policies.predictors.rows import Rows

LARGEST_LOG_HAZARD = 3.0
"""A change within exp(-exp(3)), 2e-9, of certain; above, the logarithm of the rest would be infinite."""

LEAST_LOG_HAZARD = -25.0


class Predictor(Protocol):
    """A model of changes; its state is plain arrays, so that it can be kept."""

    def fit(self, rows: Rows, offset: FloatArray) -> None:
        """Learn from rows (k,) beside the log cumulative hazards (k,) that are known without the model."""

    def log_multiplier(self, rows: Rows) -> FloatArray:
        """Logarithm of the factor on the hazard that was the offset, (k,) float64."""


def probability(offset: FloatArray, log_multiplier: FloatArray) -> FloatArray:
    """Chance of a change where the log cumulative hazard is the sum of the two: (k,) float64, in (0, 1)."""
    log = np.clip(offset + log_multiplier, LEAST_LOG_HAZARD, LARGEST_LOG_HAZARD)
    result: FloatArray = -np.expm1(-np.exp(log))
    return result


def log_hazard(probability: FloatArray) -> FloatArray:
    """The log cumulative hazard at which a change has that chance, the inverse of `probability`."""
    p = np.clip(probability, 1e-11, 1.0 - 1e-16)
    result: FloatArray = np.log(-np.log1p(-p))
    return result
