"""What fitted signal parameters mean, and several sources as one.

Per source, with weight `k` and rate `g`: precision ``p = 1 - exp(-k)``, true signals ``p g`` and false ones
``exp(-k) g`` a day. A page's change rate is its unsignalled rate and the true signals of all sources.
"""

from dataclasses import dataclass

import numpy as np

from policies.typing_ import FloatArray

JUNK_WEIGHT = 0.05
"""Sources below this weight do not move the clock of a page: one signal in twenty is true, or fewer."""

_MERGE_STEPS = 40


@dataclass(frozen=True, slots=True)
class Trust:
    """Quality of signals of n pages and S sources, each with its standard error (NaN if not asked for).

    Attributes
    ----------
    precision, precision_error : (n, S) float64
        Share of signals that mean a change.
    recall, recall_error : (n, S) float64
        Share of changes that the source signals; 0 where the page never changes.
    false_rate_per_day, false_rate_error : (n, S) float64, per day
    change_rate_per_day, change_rate_error : (n,) float64, per day
    """

    precision: FloatArray
    precision_error: FloatArray
    recall: FloatArray
    recall_error: FloatArray
    false_rate_per_day: FloatArray
    false_rate_error: FloatArray
    change_rate_per_day: FloatArray
    change_rate_error: FloatArray


def summarise(
    unsignalled_rate_per_day: FloatArray,
    signal_weight: FloatArray,
    signal_rate_per_day: FloatArray,
    covariance: FloatArray | None = None,
    signals_seen: FloatArray | None = None,
) -> Trust:
    """Precision, recall, false signals and change rate, with standard errors by the delta method.

    Parameters
    ----------
    unsignalled_rate_per_day : (n,) float64, not negative and finite, per day
    signal_weight : (n, S) float64, not negative; inf where no signal is false
    signal_rate_per_day : (n, S) float64, not negative and finite, per day
    covariance : (n, 1 + S, 1 + S) float64, optional
        Of the logarithms of unsignalled rate and weights: `policies.signal_estimation.PageFit.covariance`.
    signals_seen : (n, S) float64, optional
        Weight of the signals behind each rate, whose relative variance is one over it. By default rates are
        taken as known.

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
    precision, wrong = -np.expm1(-k), np.exp(-k)
    true = precision * g
    change = a.copy()
    for j in range(s):
        change = change + true[:, j]
    some = change > 0.0
    recall = np.where(some[:, None], true / np.where(some, change, 1.0)[:, None], 0.0)
    false = wrong * g
    if covariance is None:
        unknown = np.full((n, s), np.nan)
        return Trust(precision, unknown, recall, unknown, false, unknown, change, np.full(n, np.nan))

    # Derivatives in log a, log k_s and log g_s, in this order.
    slope = np.where(k < np.inf, np.where(k < np.inf, k, 0.0) * wrong, 0.0)
    relative = np.zeros((n, s)) if signals_seen is None else 1.0 / np.maximum(signals_seen, 1e-300)
    total = np.zeros((1 + 2 * s, n))
    total[0] = a
    total[1 : 1 + s], total[1 + s :] = (g * slope).T, true.T
    errors = [np.empty((n, s)) for _ in range(3)]
    for j in range(s):
        by = np.zeros((3, 1 + 2 * s, n))
        by[0, 1 + j] = slope[:, j]
        by[1] = -recall[:, j] * total
        by[1, 1 + j] += total[1 + j]
        by[1, 1 + s + j] += true[:, j]
        by[1] /= np.where(some, change, 1.0)
        by[2, 1 + j], by[2, 1 + s + j] = -g[:, j] * slope[:, j], false[:, j]
        for out, derivative in zip(errors, by, strict=True):
            out[:, j] = _error(derivative, covariance, relative)
    return Trust(
        precision,
        errors[0],
        recall,
        errors[1],
        false,
        errors[2],
        change,
        _error(total, covariance, relative),
    )


def merge_sources(
    unsignalled_rate_per_day: FloatArray, signal_weight: FloatArray, signal_rate_per_day: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Several sources of each page as one, for the mathematics of one source.

    Sources of weight below 0.05 are left out; what they signal counts as unsignalled. The others become one
    with the same true signals a day, ``sum g p``, and the same mean speed of the page's clock, ``sum g k``.

    Parameters
    ----------
    unsignalled_rate_per_day : (n,) float64, not negative and finite, per day
    signal_weight : (n, S) float64, not negative; inf where no signal is false
    signal_rate_per_day : (n, S) float64, not negative and finite, per day

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
    true = -np.expm1(-k) * g
    a = a.copy()
    count = np.zeros(n, dtype=np.int64)
    sum_true, sum_clock, rate, weight = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    for j in range(s):
        keep = (k[:, j] >= JUNK_WEIGHT) & (g[:, j] > 0.0)
        a += np.where(keep, 0.0, true[:, j])
        sum_true += np.where(keep, true[:, j], 0.0)
        sum_clock[keep] += g[keep, j] * k[keep, j]
        rate, weight = np.where(keep, g[:, j], rate), np.where(keep, k[:, j], weight)
        count += keep
    many = np.flatnonzero(count > 1)
    if many.size:
        weight[many] = _weight_of(sum_clock[many] / sum_true[many])
        rate[many] = sum_true[many] / -np.expm1(-weight[many])
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
