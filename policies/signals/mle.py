"""Plain likelihood estimates of the trust in one source, for comparison and for tests.

`mle_two_param` is the exact maximum of the likelihood of one page's intervals, boundary cases included;
`naive_estimate` counts intervals (Busa-Fekete et al., appendix E). What recrawl itself uses is
`policies.signals.estimation`.
"""

import numpy as np

from policies.estimation.estimators import mle
from policies.numerics.newton import Problem, solve
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

_ROUNDING = 1e-12  # of a derivative at a boundary, relative to its terms


def mle_two_param(
    page: IntArray,
    gap_days: FloatArray,
    signals: FloatArray | IntArray,
    changed: BoolArray,
    n_pages: int | None = None,
    rate_prior: tuple[float, float] = (1.0, 0.0),
    weight_prior: tuple[float, float] = (1.0, 0.0),
) -> tuple[FloatArray, FloatArray]:
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

    Returns
    -------
    unsignalled_rate_per_day : (n,) float64, per day
        inf if every interval changed, NaN without data. Where signals are proportional to gaps all goes to
        the rate.
    signal_weight : (n,) float64, dimensionless
        inf if every interval with a signal changed, NaN where the data do not determine it.

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
    a_inside, k_inside = a_shape > 1.0, k_shape > 1.0

    def total(where: BoolArray, values: FloatArray) -> FloatArray:
        return sum_by(page[where], values[where], n)

    def some(where: BoolArray) -> BoolArray:
        return np.bincount(page[where], minlength=n) > 0

    def alone(rows: BoolArray, exposure: FloatArray, shape: float, rate: float) -> FloatArray:
        """The maximum over one parameter, the other being 0; `mle` checks the gaps."""
        of = page[rows], exposure[rows], changed[rows]
        return mle(*of, None, shape, rate, n).change_rate_per_day

    def slope(of: FloatArray, along: FloatArray, value: FloatArray) -> FloatArray:
        """``sum of / (exp(value along) - 1)`` over changed intervals where it is defined."""
        safe = np.where(np.isfinite(value) & (value > 0.0), value, 1.0)
        s = np.clip(safe[page] * along, 1e-200, 500.0)
        return total(changed & (of > 0.0), of / np.expm1(s))

    every, told = np.ones(len(gap), dtype=np.bool_), count > 0.0
    a_exposure, k_exposure = total(~changed, gap) + a_rate, total(~changed, count) + k_rate
    rate, weight = alone(every, gap, a_shape, a_rate), alone(told, count, k_shape, k_rate)
    zero_rate = zero_weight = np.zeros(n, dtype=np.bool_)
    if not k_inside:
        zero_weight = slope(count, gap, rate) <= k_exposure * (1.0 + _ROUNDING)
    if not a_inside:
        zero_rate = some(changed) & ~some(changed & ~told)
        zero_rate &= slope(gap, count, weight) <= a_exposure * (1.0 + _ROUNDING)
    a_infinite = (a_exposure == 0.0) & (some(changed) | a_inside)
    k_infinite = (k_exposure == 0.0) & (some(changed & told) | k_inside) & ~a_infinite
    known = some(every) | (a_inside and a_rate > 0.0)
    nowhere = ~known | (~some(told) if k_shape == 1.0 and k_rate == 0.0 else False)

    a, k = rate.copy(), np.zeros(n)
    a[zero_rate], k[zero_rate] = 0.0, weight[zero_rate]
    a[zero_weight], k[zero_weight] = rate[zero_weight], 0.0
    if not a_inside:
        a[zero_weight & ~some(changed)] = 0.0
    a[k_infinite], k[k_infinite] = alone(~told, gap, a_shape, a_rate)[k_infinite], np.inf
    a[a_infinite], k[a_infinite | nowhere], a[~known] = np.inf, np.nan, np.nan
    inside = np.flatnonzero(~(zero_rate | zero_weight | a_infinite | k_infinite | nowhere))
    if inside.size:
        rows = np.flatnonzero(changed & np.isin(page, inside))
        rows = rows[np.argsort(page[rows], kind="stable")]
        row, x = np.searchsorted(inside, page[rows]), np.stack([gap[rows], count[rows]])
        gain = np.array([a_shape - 1.0, k_shape - 1.0])
        loss = np.stack([a_exposure[inside], k_exposure[inside]])
        n_changed, *sums = (sum_by(row, column, len(inside)) for column in (np.ones(len(rows)), *x))
        start = (gain[:, None] + 0.5 * n_changed + 1e-6) / (loss + 0.5 * np.stack(sums))
        gains = np.repeat(gain[:, None], len(inside), axis=1)
        (a[inside], k[inside]), *_ = solve(Problem(row, np.ones(len(rows)), x, gains, loss), start)
    return a, k


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
