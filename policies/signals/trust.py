"""What fitted signal parameters mean, and several sources as one.

Per source, with weight `k` and rate `g`: precision ``p = 1 - exp(-k)``, true signals ``p g`` and false ones
``(1 - p) g`` a day; the precision is higher where other sources tell the same changes, see
`policies.signals.bundles`. A page's change rate is its unsignalled rate and the changes told by any source.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.numerics.columns import take
from policies.numerics.typing_ import FloatArray
from policies.signals.bundles import Bundles, told

JUNK_WEIGHT = 0.05
"""Sources below this weight do not move the clock of a page: one signal in twenty is true, or fewer."""

_MERGE_STEPS = 40
_STEP = 1e-20  # of a derivative in the imaginary direction: exact to rounding
_LARGEST_WEIGHT = 700.0  # a signal is false once in 1e304


@dataclass(frozen=True, slots=True)
class Trust:
    """Quality of signals of n pages and S sources, each with its standard error (NaN if not asked for).

    Attributes
    ----------
    precision, precision_error : (n, S) float64
        Share of signals that mean a change.
    recall, recall_error : (n, S) float64
        Share of changes that the source signals; 0 where the page never changes.
    change_rate_per_day, change_rate_error : (n,) float64, per day
    """

    precision: FloatArray
    precision_error: FloatArray
    recall: FloatArray
    recall_error: FloatArray
    change_rate_per_day: FloatArray
    change_rate_error: FloatArray


def summarise(
    unsignalled_rate_per_day: FloatArray,
    signal_weight: FloatArray,
    signal_rate_per_day: FloatArray,
    covariance: FloatArray | None = None,
    signals_seen: FloatArray | None = None,
    bundles: Bundles | None = None,
) -> Trust:
    """Precision, recall and change rate, with standard errors by the delta method.

    Parameters
    ----------
    unsignalled_rate_per_day : (n,) float64, not negative and finite, per day
    signal_weight : (n, S) float64, not negative; inf where no signal is false
    signal_rate_per_day : (n, S) float64, not negative and finite, per day
    covariance : (n, 1 + S, 1 + S) float64, optional
        Of the logarithms of unsignalled rate and weights: `policies.signals.estimation.PageFit.covariance`.
    signals_seen : (n, S) float64, optional
        Weight of the signals behind each rate, whose relative variance is one over it. By default rates are
        taken as known.
    bundles : Bundles, optional
        Of n pages: sources that tell the same changes. By default each tells its own.

    Returns
    -------
    Trust

    Raises
    ------
    ValueError
        Numbers out of range.
    """
    a, k, g = unsignalled_rate_per_day, signal_weight, signal_rate_per_day
    _check(a, k, g)
    n, s = k.shape
    values = _qualities(a, k, g, bundles)
    errors = np.full(values.shape, np.nan)
    if covariance is not None:
        # Derivatives in log a, log k and log g, in this order: imaginary parts, a tiny imaginary step away.
        slopes = np.empty((len(values), 1 + 2 * s, n))
        for i in range(1 + 2 * s):
            rate, weight, sent = (v.astype(np.complex128) for v in (a, np.minimum(k, _LARGEST_WEIGHT), g))
            moved = rate if i == 0 else weight[:, i - 1] if i <= s else sent[:, i - 1 - s]
            moved *= 1.0 + _STEP * 1j
            slopes[:, i] = _qualities(rate, weight, sent, bundles).imag / _STEP
        relative = np.zeros((n, s)) if signals_seen is None else 1.0 / np.maximum(signals_seen, 1e-300)
        errors = np.stack([_error(slope, covariance, relative) for slope in slopes])
    columns = [v[j * s : (j + 1) * s].T for j in range(2) for v in (values, errors)]
    return Trust(*columns, *(v[-1] for v in (values, errors)))


def _qualities(a: NDArray[Any], k: NDArray[Any], g: NDArray[Any], bundles: Bundles | None) -> NDArray[Any]:
    """Precision and recall of all sources, and the change rate: (2 S + 1, n)."""
    found = told(k, g, bundles)
    change = a + found.true_per_day
    recall = found.precision * g / np.where(change.real > 0.0, change, 1.0)[:, None]
    return np.concatenate([found.precision.T, recall.T, change[None]])


def merge_sources(
    unsignalled_rate_per_day: FloatArray,
    signal_weight: FloatArray,
    signal_rate_per_day: FloatArray,
    bundles: Bundles | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Several sources of each page as one, for the mathematics of one source.

    Sources of weight below 0.05 are left out; what they alone signal counts as unsignalled. The others become
    one that tells as many changes a day and has the same mean speed of the page's clock, ``sum g k``. Two
    that tell the same changes and nothing else become one with as many signals as each and both weights.

    Parameters
    ----------
    unsignalled_rate_per_day : (n,) float64, not negative and finite, per day
    signal_weight : (n, S) float64, not negative; inf where no signal is false
    signal_rate_per_day : (n, S) float64, not negative and finite, per day
    bundles : Bundles, optional
        Of n pages: sources that tell the same changes. By default each tells its own.

    Returns
    -------
    unsignalled_rate_per_day, signal_rate_per_day, signal_weight : (n,) float64
        The change rate ``a + p g`` is that of all sources. Rate and weight are 0 without a source that
        counts; a single one keeps its numbers to the bit. A weight of inf makes the merged weight inf.

    Raises
    ------
    ValueError
        Numbers out of range.
    """
    a, k, g = unsignalled_rate_per_day, signal_weight, signal_rate_per_day
    _check(a, k, g)
    n, s = k.shape
    counts = (k >= JUNK_WEIGHT) & (g > 0.0)
    # A source that is left out may still join others that tell the same changes.
    kept = told(np.where(counts, k, 0.0), g, bundles).true_per_day
    a = a + told(k, np.where(counts, 0.0, g)).true_per_day
    if bundles is not None:  # what it tells together with those is told by those
        some = np.flatnonzero((~counts & (g > 0.0)).any(axis=1) & (bundles.share > 0.0).any(axis=1))
        every = told(k[some], g[some], take(bundles, some)).true_per_day
        a[some] = unsignalled_rate_per_day[some] + np.maximum(every - kept[some], 0.0)
    count = np.zeros(n, dtype=np.int64)
    sum_clock, rate, weight = np.zeros(n), np.zeros(n), np.zeros(n)
    for j in range(s):
        keep = counts[:, j]
        sum_clock[keep] += g[keep, j] * k[keep, j]
        rate, weight = np.where(keep, g[:, j], rate), np.where(keep, k[:, j], weight)
        count += keep
    many = np.flatnonzero(count > 1)
    if many.size:
        weight[many] = _weight_of(sum_clock[many] / kept[many])
        rate[many] = kept[many] / -np.expm1(-weight[many])
    return a, rate, weight


def _weight_of(ratio: FloatArray) -> FloatArray:
    """Root of ``k / (1 - exp(-k)) = ratio``, ratio > 1."""
    finite = ratio < np.inf
    r = np.where(finite, ratio, 2.0)
    # The root is below both; Newton on a convex function comes down to it without crossing.
    k = np.minimum(r, 2.0 * (r - 1.0))
    for _ in range(_MERGE_STEPS):
        wrong = np.exp(-k)
        step = (k + r * np.expm1(-k)) / (1.0 - r * wrong)
        k = np.where(step > 0.0, k - step, k)
    return np.where(finite, k, np.inf)


def _error(derivative: FloatArray, covariance: FloatArray, relative: FloatArray) -> FloatArray:
    """Standard deviation of a function with this gradient, (n,)."""
    n, d = len(covariance), covariance.shape[1]
    variance = np.zeros(n)
    for i in range(d):
        for j in range(d):
            variance += derivative[i] * derivative[j] * covariance[:, i, j]
    for j in range(d - 1):
        variance += derivative[d + j] ** 2 * relative[:, j]
    return np.sqrt(np.maximum(variance, 0.0))


def _check(a: FloatArray, k: FloatArray, g: FloatArray) -> None:
    if k.ndim != 2 or g.shape != k.shape or a.shape != k.shape[:1]:
        raise ValueError(
            f"unsignalled rates, weights and signal rates have shapes {a.shape}, {k.shape}, {g.shape}; give "
            "(n,), (n, S), (n, S)"
        )
    for name, values, largest in (
        ("unsignalled rate", a, np.finfo(np.float64).max),
        ("signal weight", k, np.inf),
        ("signal rate", g, np.finfo(np.float64).max),
    ):
        if values.size and not (values.min() >= 0.0 and values.max() <= largest):
            raise ValueError(
                f"{name}s are {values.min()}..{values.max()}; give numbers >= 0"
                + ("" if largest == np.inf else ", finite")
            )
