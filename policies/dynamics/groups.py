"""How groups of pages differ in their change rates, and whether an outside number goes with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from policies.numerics.typing_ import FloatArray, IntArray

LEAST_GROUPS = 5
LEAST_PAGES = 10
"""Of a group that is compared with an outside number."""

_NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Correlation:
    """Of groups' rates and a number of each.

    Attributes
    ----------
    groups : int
    pearson, low, high : float
        With the limits of a 95 % confidence interval (Fisher's z).
    spearman : float
        Of ranks.
    """

    groups: int
    pearson: float
    low: float
    high: float
    spearman: float


def correlation(rate_per_day: FloatArray, value: FloatArray, pages: IntArray) -> Correlation | None:
    """Correlate the mean rates of groups with an outside number; None for too few groups.

    Parameters
    ----------
    rate_per_day, value : (g,) float64, NaN where not known
    pages : (g,) int64
    """
    some = np.isfinite(rate_per_day) & np.isfinite(value) & (pages >= LEAST_PAGES)
    rate, value = rate_per_day[some], value[some]
    n = len(rate)
    if n < LEAST_GROUPS or not (np.ptp(rate) > 0.0 and np.ptp(value) > 0.0):
        return None
    pearson = float(np.corrcoef(rate, value)[0, 1])
    spearman = float(np.corrcoef(rankdata(rate), rankdata(value))[0, 1])
    half = _NORMAL_95 / np.sqrt(n - 3)
    low, high = np.tanh(np.arctanh(np.clip(pearson, -1 + 1e-12, 1 - 1e-12)) + np.array([-half, half]))
    return Correlation(n, pearson, float(low), float(high), spearman)


def share_between(pages: IntArray, total: FloatArray, squares: FloatArray) -> float:
    """Which share of the variance of pages lies between their groups: the intraclass correlation.

    One-way analysis of variance with groups of unequal sizes; NaN where there are no two groups or no group
    of two.

    Parameters
    ----------
    pages : (g,) int64
    total, squares : (g,) float64
        Sums over the pages of each group of a value and of its square.
    """
    n, g = float(pages.sum()), len(pages)
    if g < 2 or n <= g:
        return float("nan")
    of_groups = float((total * total / pages).sum())
    within = max(float(squares.sum()) - of_groups, 0.0) / (n - g)
    between = (of_groups - float(total.sum()) ** 2 / n) / (g - 1)
    size = (n - float((pages.astype(np.float64) ** 2).sum()) / n) / (g - 1)
    spread = between + (size - 1.0) * within
    return (between - within) / spread if spread > 0.0 else float("nan")
