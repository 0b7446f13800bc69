"""What differences between policies mean: intervals, paired tests, standard errors.

Policies of a repetition see the same changes and requests, so they are compared by pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import stats

from policies.numerics.typing_ import FloatArray, IntArray


@dataclass(frozen=True)
class Summary:
    """Values of one policy over repetitions.

    Attributes
    ----------
    repetitions : int
    mean, standard_error : float
        NaN for the error of a single repetition.
    median, low, high : float
        With the ends of its confidence interval, which assumes no distribution; infinite where the
        repetitions are too few to bound it.
    """

    repetitions: int
    mean: float
    standard_error: float
    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Paired:
    """Differences of one policy from another, repetition by repetition.

    Attributes
    ----------
    mean, standard_error : float
        Of the differences; NaN for the error of a single repetition.
    median : float
    wins : int
        Repetitions in which the difference is positive.
    p_value : float
        Of the Wilcoxon signed-rank test, two-sided; 1 where nothing differs.
    """

    mean: float
    standard_error: float
    median: float
    wins: int
    p_value: float


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def summary(values: FloatArray, confidence: float = 0.95) -> Summary:
    """Mean and median of repetitions with what is known of them.

    Parameters
    ----------
    values : (r,) float64
    confidence : float

    Raises
    ------
    ValueError
        Without values, or for a NaN among them.
    """
    if not len(values) or np.isnan(values).any():
        raise ValueError(
            f"{len(values)} repetitions, {np.isnan(values).sum()} of them NaN: nothing to sum up"
        )
    interval = stats.quantile_test(values, q=np.median(values), p=0.5).confidence_interval(confidence)
    low, high = (float(x) for x in (interval.low, interval.high))
    return Summary(
        len(values),
        float(values.mean()),
        _standard_error(values),
        float(np.median(values)),
        -np.inf if np.isnan(low) else low,
        np.inf if np.isnan(high) else high,
    )


def paired(values: FloatArray, against: FloatArray) -> Paired:
    """Compare two policies over the same repetitions.

    Parameters
    ----------
    values, against : (r,) float64

    Raises
    ------
    ValueError
        For different numbers of repetitions, or none.
    """
    if len(values) != len(against) or not len(values):
        raise ValueError(
            f"{len(values)} repetitions against {len(against)}: pairs need the same, at least one"
        )
    difference = values - against
    p = float(stats.wilcoxon(difference).pvalue) if difference.any() else 1.0
    return Paired(
        float(difference.mean()),
        _standard_error(difference),
        float(np.median(difference)),
        int(np.count_nonzero(difference > 0)),
        p,
    )


def against(values: Mapping[str, FloatArray], reference: str) -> dict[str, Paired]:
    """Compare every other policy with a named one.

    Raises
    ------
    ValueError
        For a name that is not there, and as `paired`.
    """
    if reference not in values:
        raise ValueError(f"policy {reference!r} is not among {', '.join(values)}")
    return {name: paired(v, values[reference]) for name, v in values.items() if name != reference}


def over_pages(
    fresh: FloatArray,
    held: FloatArray,
    weight: FloatArray | None = None,
    other: FloatArray | None = None,
    cluster: IntArray | None = None,
) -> tuple[float, float]:
    """Weighted freshness, or its difference from another policy's, with its standard error over pages.

    One run on a real history has no repetitions, but its pages are a sample: the error says by how much
    other pages of the kind would have differed. It is that of a ratio of sums (linearised).

    Parameters
    ----------
    fresh, held : (n,) float64, days
        As in `policies.simulation.metrics.weighted`.
    weight : (n,) float64, optional
    other : (n,) float64, optional
        Fresh days of another policy on the same pages.
    cluster : (n,) int64, optional
        Pages that change together, e.g. their hosts, numbered from 0; each page by itself if left out.

    Returns
    -------
    value, standard_error : float
        NaN for the error of a single cluster.

    Raises
    ------
    ValueError
        Where the weighted time is zero.
    """
    w = np.ones(len(held)) if weight is None else weight
    total = float(w @ held)
    if not total > 0:
        raise ValueError("no page with a weight was there in this time: nothing to average freshness over")
    gained = fresh if other is None else fresh - other
    value = float(w @ gained / total)
    group = np.arange(len(held)) if cluster is None else cluster
    residual = np.bincount(group, w * (gained - value * held) / total)
    kept = residual[np.bincount(group, minlength=len(residual)) > 0]
    m = len(kept)
    error = float(np.sqrt(m / (m - 1) * (kept @ kept))) if m > 1 else float("nan")
    return value, error
