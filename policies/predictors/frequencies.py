"""What change frequencies alone predict: the baselines of Han et al. 2019, section 4.3.1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import FloatArray
from policies.predictors.rows import WINDOWS_DAYS, Rows

PRIOR_DAYS = 1.0
"""Days at the mean rate that are added to those of a window: a frequency of 0 is no probability."""


@dataclass
class Frequency:
    """Changes in a window over its length, of the page or of its group.

    Attributes
    ----------
    window : int
        Which of `WINDOWS_DAYS`.
    group : bool
    """

    window: int
    group: bool
    mean_per_day: float = 1.0

    def fit(self, rows: Rows, offset: FloatArray) -> None:
        """Only the mean rate is learned."""
        self.mean_per_day = _mean_rate(rows, offset)

    def log_multiplier(self, rows: Rows) -> FloatArray:
        """Logarithm of the frequency, per day; the offset is the logarithm of days."""
        count = (rows.group_count if self.group else rows.count)[self.window]
        days = WINDOWS_DAYS[self.window]
        result: FloatArray = np.log((count + self.mean_per_day * PRIOR_DAYS) / (days + PRIOR_DAYS))
        return result


@dataclass
class MostRecent:
    """One change in the time since the last one, of the page or, on average, of its group."""

    group: bool
    mean_per_day: float = 1.0

    def fit(self, rows: Rows, offset: FloatArray) -> None:
        """Only the mean rate is learned."""
        self.mean_per_day = _mean_rate(rows, offset)

    def log_multiplier(self, rows: Rows) -> FloatArray:
        """Logarithm of the rate, per day; the offset is the logarithm of days."""
        since = rows.group_since_days if self.group else rows.since_days
        result: FloatArray = np.log((1.0 + self.mean_per_day * PRIOR_DAYS) / (since + PRIOR_DAYS))
        return result


def _mean_rate(rows: Rows, offset: FloatArray) -> float:
    """Changed rows over the sum of hazards, at least one of a thousandth."""
    return max(float(np.count_nonzero(rows.changed)), 1e-3) / max(float(np.exp(offset).sum()), 1e-9)
