"""Plain likelihood estimates of the trust in one source, for comparison and for tests.

`mle_two_param` is the exact maximum of the likelihood of one page's intervals, boundary cases included;
`naive_estimate` counts intervals (Busa-Fekete et al., appendix E). What recrawl itself uses is
`policies.signals.estimation`.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from policies.estimation.estimators import mle
from policies.numerics.newton import Problem, solve
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, ByteArray, FloatArray, IntArray

INTERIOR, ZERO_WEIGHT, ZERO_RATE, NO_CHANGE, PROPORTIONAL = 0, 1, 2, 3, 4
INFINITE_WEIGHT, ALL_CHANGED, NO_SIGNALS, NO_DATA = 5, 6, 7, 8

_ROUNDING = 1e-12  # of a derivative at a boundary, relative to its terms


@dataclass(frozen=True, slots=True)
class TwoParamFit:
    """Maximum of the likelihood (or of the posterior in the parameters) of n pages.

    Attributes
    ----------
    unsignalled_rate_per_day : (n,) float64, per day
        inf if every interval changed, NaN without data.
    signal_weight : (n,) float64, dimensionless
        inf if every interval with a signal changed, NaN where the data do not determine it.
    boundary : (n,) uint8
        `INTERIOR`; `ZERO_WEIGHT`, `ZERO_RATE`: the maximum is at 0 in one parameter; `NO_CHANGE`: in both;
        `PROPORTIONAL`: signals are proportional to gaps, and all goes to the rate; `INFINITE_WEIGHT`: the
        supremum is at infinity, the rate is that of intervals without signals; `ALL_CHANGED`;
        `NO_SIGNALS`; `NO_DATA`.
    log_likelihood : (n,) float64, nats
        At the maximum, or its supremum, with the prior's terms less their constants.
    observed_information, expected_information : (n, 2, 2) float64
        Minus the second derivative in rate and weight, prior included; and Fisher information of the
        changed/unchanged flags (inf at rate 0 with intervals without signals). NaN where a parameter is not
        finite.
    rate_error, weight_error : (n,) float64
        Standard errors from the observed information, of what is inside; NaN at a boundary.
    """

    unsignalled_rate_per_day: FloatArray
    signal_weight: FloatArray
    boundary: ByteArray
    log_likelihood: FloatArray
    observed_information: FloatArray
    expected_information: FloatArray
    rate_error: FloatArray
    weight_error: FloatArray


def mle_two_param(
    page: IntArray,
    gap_days: FloatArray,
    signals: FloatArray | IntArray,
    changed: BoolArray,
    n_pages: int | None = None,
    rate_prior: tuple[float, float] = (1.0, 0.0),
    weight_prior: tuple[float, float] = (1.0, 0.0),
) -> TwoParamFit:
    """Exact maximum of the likelihood of ``P(unchanged) = exp(-(a gap + k signals))`` over ``a, k >= 0``.

    Parameters
    ----------
    page : (m,) int64
    gap_days : (m,) float64, positive and finite, days
    signals : (m,) int64 or float64, not negative
    changed : (m,) bool
    n_pages : int, optional
    rate_prior, weight_prior : (shape, rate)
        Gamma priors ``x**(shape - 1) exp(-rate x)`` of the two; (1, 0) is plain likelihood. Shapes below 1
        have a pole at 0 and no mode.

    Raises
    ------
    ValueError
        Gaps, signals or priors out of range.
    NotConvergedError
        As `policies.numerics.newton.solve`.
    """
    for shape, inverse in (rate_prior, weight_prior):
        if not (shape >= 1.0 and 0.0 <= inverse < np.inf):
            raise ValueError(
                f"prior shape {shape} and rate {inverse}; give a shape >= 1 and a finite rate >= 0, or use "
                "policies.signals.estimation, which takes any positive shape"
            )
    page, gap = np.asarray(page, dtype=np.int64), np.asarray(gap_days, dtype=np.float64)
    count, changed = np.asarray(signals, dtype=np.float64), np.asarray(changed, dtype=np.bool_)
    if count.size and not (count.min() >= 0.0 and count.max() < np.inf):
        raise ValueError(f"signals are {count.min()}..{count.max()} an interval; give finite counts >= 0")
    n = n_pages if n_pages is not None else int(page.max(initial=-1)) + 1
    (a_shape, a_rate), (k_shape, k_rate) = rate_prior, weight_prior

    def total(where: BoolArray, values: FloatArray) -> FloatArray:
        return sum_by(page[where], values[where], n)

    one, with_signal = np.ones(len(gap)), count > 0.0
    a_exposure, k_exposure = total(~changed, gap) + a_rate, total(~changed, count) + k_rate
    some = total(changed, one) > 0.0
    signalled, silent = total(changed & with_signal, one) > 0.0, total(changed & ~with_signal, one) > 0.0
    a_inside, k_inside = a_shape > 1.0, k_shape > 1.0

    # The two one-parameter problems on the axes; `mle` checks the gaps.
    rate = mle(page, gap, changed, None, a_shape, a_rate, n).change_rate_per_day
    at = np.flatnonzero(with_signal)
    weight = mle(page[at], count[at], changed[at], None, k_shape, k_rate, n).change_rate_per_day
    without = np.flatnonzero(~with_signal)
    rate_without = mle(
        page[without], gap[without], changed[without], None, a_shape, a_rate, n
    ).change_rate_per_day

    def slope(of: FloatArray, along: FloatArray, value: FloatArray) -> FloatArray:
        """``sum of / (exp(value along) - 1)`` over changed intervals where it is defined."""
        safe = np.where(np.isfinite(value) & (value > 0.0), value, 1.0)
        s = np.clip(safe[page] * along, 1e-200, 500.0)
        return total(changed & (of > 0.0), of / np.expm1(s))

    data = np.bincount(page, minlength=n) > 0
    seen = total(np.ones(len(gap), dtype=np.bool_), count) > 0.0
    known = data | (a_inside and a_rate > 0.0)
    free_k = k_shape == 1.0 and k_rate == 0.0
    zero_weight = np.zeros(n, dtype=np.bool_)
    if not k_inside:
        zero_weight = slope(count, gap, rate) <= k_exposure * (1.0 + _ROUNDING)
    zero_rate = np.zeros(n, dtype=np.bool_)
    if not a_inside:
        zero_rate = some & ~silent & (slope(gap, count, weight) <= a_exposure * (1.0 + _ROUNDING))
    a_infinite = (a_exposure == 0.0) & (some | a_inside)
    k_infinite = (k_exposure == 0.0) & (signalled | k_inside) & ~a_infinite

    code = np.full(n, INTERIOR, dtype=np.uint8)
    code[zero_rate] = ZERO_RATE
    code[zero_weight] = ZERO_WEIGHT
    code[zero_weight & _proportional(page, gap, count, n) & free_k] = PROPORTIONAL
    code[zero_weight & ~some & (not a_inside)] = NO_CHANGE
    code[k_infinite] = INFINITE_WEIGHT
    code[a_infinite] = ALL_CHANGED
    if free_k:
        code[data & ~seen & ~a_infinite] = NO_SIGNALS
    code[~known] = NO_DATA

    a, k = rate.copy(), np.zeros(n)
    a[code == ZERO_RATE], k[code == ZERO_RATE] = 0.0, weight[code == ZERO_RATE]
    a[code == NO_CHANGE] = 0.0
    a[code == INFINITE_WEIGHT], k[code == INFINITE_WEIGHT] = rate_without[code == INFINITE_WEIGHT], np.inf
    a[code == ALL_CHANGED], k[code == ALL_CHANGED] = np.inf, np.nan
    k[(code == NO_SIGNALS) | (code == NO_DATA)] = np.nan
    a[code == NO_DATA] = np.nan
    inside, gain = np.flatnonzero(code == INTERIOR), np.array([a_shape - 1.0, k_shape - 1.0])
    if inside.size:
        use = changed & (code[page] == INTERIOR)
        rows = np.flatnonzero(use)[np.argsort(page[use], kind="stable")]
        row, x = np.searchsorted(inside, page[rows]), np.stack([gap[rows], count[rows]])
        loss = np.stack([a_exposure[inside], k_exposure[inside]])
        n_changed, *sums = (sum_by(row, column, len(inside)) for column in (np.ones(len(rows)), *x))
        start = (gain[:, None] + 0.5 * n_changed + 1e-6) / (loss + 0.5 * np.stack(sums))
        gains = np.repeat(gain[:, None], len(inside), axis=1)
        (a[inside], k[inside]), *_ = solve(Problem(row, np.ones(len(rows)), x, gains, loss), start)
    s = _exponent(page, gap, count, a, np.where(np.isinf(a), 0.0, k))
    terms = np.where(changed, np.log(-np.expm1(-np.maximum(s, 1e-300))), -np.where(changed, 0.0, s))
    likelihood = sum_by(page, terms, n)
    for value, (shape, prior_rate) in ((a, rate_prior), (k, weight_prior)):
        inner = np.isfinite(value)
        term = xlogy(shape - 1.0, np.where(inner, value, 1.0)) - prior_rate * np.where(inner, value, 0.0)
        likelihood += np.where(inner, term, 0.0)
    likelihood[code == NO_DATA] = 0.0
    observed, expected = _information(page, gap, count, changed, a, k, gain)
    return TwoParamFit(a, k, code, likelihood, observed, expected, *_errors(observed, a, k))


def naive_estimate(
    page: IntArray, signals: FloatArray | IntArray, changed: BoolArray, n_pages: int | None = None
) -> tuple[FloatArray, FloatArray]:
    """Precision and recall by counting intervals between crawls: biased, for comparison.

    Precision is read as the share of intervals with a signal that changed (the paper prints changed
    intervals below the line too), recall as the share of changed intervals that have a signal. Both are
    too high where intervals are long enough to hold a change and a signal that have nothing to do with
    each other.

    Parameters
    ----------
    page : (m,) int64
    signals : (m,) int64 or float64
    changed : (m,) bool
    n_pages : int, optional

    Returns
    -------
    precision, recall : (n,) float64
        NaN where no interval has a signal, or none changed.
    """
    page, changed = np.asarray(page, dtype=np.int64), np.asarray(changed, dtype=np.bool_)
    n = n_pages if n_pages is not None else int(page.max(initial=-1)) + 1
    signalled = np.asarray(signals) > 0
    both, of_signalled, of_changed = (sum_by(page, w, n) for w in (signalled & changed, signalled, changed))
    with np.errstate(invalid="ignore"):
        return both / of_signalled, both / of_changed


def _proportional(page: IntArray, gap: FloatArray, count: FloatArray, n: int) -> BoolArray:
    ratio = count / gap
    low, high = np.full(n, np.inf), np.zeros(n)
    np.minimum.at(low, page, ratio)
    np.maximum.at(high, page, ratio)
    result: BoolArray = (high > 0.0) & (low >= high * (1.0 - _ROUNDING))
    return result


def _exponent(page: IntArray, gap: FloatArray, count: FloatArray, a: FloatArray, k: FloatArray) -> FloatArray:
    """``a gap + k signals`` of each interval; an infinite or unknown weight matters only with signals."""
    with np.errstate(invalid="ignore"):
        result: FloatArray = a[page] * gap + np.where(count > 0.0, k[page] * count, 0.0)
    return result


def _information(
    page: IntArray,
    gap: FloatArray,
    count: FloatArray,
    changed: BoolArray,
    a: FloatArray,
    k: FloatArray,
    gain: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Observed and expected information, (n, 2, 2) each."""
    finite = np.isfinite(a) & np.isfinite(k)
    inner = np.stack([np.where(finite, a, 1.0), np.where(finite, k, 1.0)])
    s = _exponent(page, gap, count, *inner)
    never = s == 0.0
    e = np.expm1(np.where(never, 1.0, np.clip(s, 1e-150, 500.0)))
    observed, expected = np.empty((2, len(a), 2, 2))
    for i, j in ((0, 0), (0, 1), (1, 1)):
        one, two = (gap, count)[i], (gap, count)[j]
        # Without signals the cross terms are 0, whatever the rest.
        product = np.where((one > 0.0) & (two > 0.0), one / e, 0.0) * two
        always = np.where(never & (product > 0.0), np.inf, product)
        curve = np.where(changed & ~never, product * (1.0 + 1.0 / e), 0.0)
        for out, values in ((observed, curve), (expected, always)):
            out[:, i, j] = out[:, j, i] = sum_by(page, values, len(a))
    for j in range(2):
        observed[:, j, j] += gain[j] / np.square(np.where(inner[j] > 0.0, inner[j], 1.0))
    observed[~finite], expected[~finite] = np.nan, np.nan
    return observed, expected


def _errors(observed: FloatArray, a: FloatArray, k: FloatArray) -> list[FloatArray]:
    """Standard errors of both parameters, (n,) each."""
    aa, ak, kk = observed[:, 0, 0], observed[:, 0, 1], observed[:, 1, 1]
    both = (a > 0.0) & (k > 0.0) & np.isfinite(a) & np.isfinite(k)
    out = []
    for mine, other, value in ((aa, kk, a), (kk, aa, k)):
        with np.errstate(invalid="ignore", divide="ignore"):
            free = np.where(both, mine - ak * ak / np.where(both, other, 1.0), mine)
            inside = (value > 0.0) & np.isfinite(value) & (free > 0.0)
            out.append(np.where(inside, 1.0 / np.sqrt(free), np.nan))
    return out
