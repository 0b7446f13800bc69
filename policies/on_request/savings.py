"""What strategies save at the freshness of uniform crawling (Han et al. 2019, section 6.2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from policies.numerics.typing_ import FloatArray

SHARES = (0.2, 0.4, 0.6, 0.8)
"""Resources of uniform crawling whose freshness is the target."""


def needed(resources: FloatArray, freshness: FloatArray, target: FloatArray) -> FloatArray:
    """Resources at which a strategy reaches a freshness, by line between its levels: (t,) float64.

    NaN where no level reaches it.

    Parameters
    ----------
    resources, freshness : (l,) float64
        Of a strategy's levels, in any order. Freshness need not grow with every level: what counts is the
        most that so many resources have bought.
    target : (t,) float64
    """
    order = np.lexsort((-freshness, resources))
    most = np.maximum.accumulate(freshness[order])
    rising = np.append(True, np.diff(most) > 0.0)
    at = resources[order][rising]
    result: FloatArray = np.interp(target, most[rising], at)
    return np.where(target > most[-1], np.nan, result)


@dataclass(frozen=True)
class Saving:
    """Share of resources saved, the mean over periods, with its 95 % confidence interval.

    Attributes
    ----------
    mean, low, high : float
    periods : int
        In which the strategy reaches the target.
    """

    mean: float
    low: float
    high: float
    periods: int


def saving(values: FloatArray) -> Saving:
    """Of savings by period, (p,); NaN where the target was not reached, which counts as nothing saved."""
    reached = np.isfinite(values)
    filled = np.where(reached, values, 0.0)
    n = len(filled)
    half = float(stats.t.ppf(0.975, n - 1) * filled.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    mean = float(filled.mean())
    return Saving(mean, mean - half, mean + half, int(reached.sum()))


def savings_by_period(
    uniform: tuple[FloatArray, FloatArray], strategy: tuple[FloatArray, FloatArray]
) -> FloatArray:
    """Shares saved in each period at each of `SHARES`: (shares, periods) float64.

    Parameters
    ----------
    uniform, strategy : pairs of (l, p) float64
        Resources and freshness of each level and period.
    """
    out = np.empty((len(SHARES), uniform[0].shape[1]))
    for p in range(out.shape[1]):
        order = np.argsort(uniform[0][:, p])
        target = np.interp(SHARES, uniform[0][order, p], uniform[1][order, p])
        # Both by the same rule: what uniform crawling needs for its own freshness.
        base = needed(uniform[0][:, p], uniform[1][:, p], target)
        mine = needed(strategy[0][:, p], strategy[1][:, p], target)
        # Where all is fresh without any crawl nothing can be saved.
        out[:, p] = 1.0 - np.divide(mine, base, out=np.ones(len(base)), where=base > 0.0)
    return out
