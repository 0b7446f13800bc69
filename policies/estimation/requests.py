"""Request rates of pages: gamma-Poisson, with the prior learned from the pages.

Requests of a page are Poisson around its rate, rates are gamma distributed over pages: so a page without
requests in a week does not get rate 0, and one lucky click does not make a page popular.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from policies.numerics.typing_ import FloatArray

DEFAULT_SHAPE = 0.5
DEFAULT_EXPOSURE_DAYS = 10.0
SHAPE_LIMITS = (0.01, 100.0)


@dataclass(frozen=True, slots=True)
class RequestPrior:
    """Gamma distribution of request rates over pages.

    Attributes
    ----------
    shape : float
    mean_per_day : float
    """

    shape: float
    mean_per_day: float

    def __post_init__(self) -> None:
        if not (0.0 < self.shape < math.inf and 0.0 < self.mean_per_day < math.inf):
            raise ValueError(
                f"request prior has shape {self.shape} and mean {self.mean_per_day} per day; "
                "give positive finite numbers"
            )


def posterior(
    prior_shape: float, prior_rate_days: float, counts: FloatArray, exposure_days: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Gamma posterior of each rate: shape plus counts, rate plus exposure (conjugacy).

    Parameters
    ----------
    prior_shape : float
    prior_rate_days : float, days
        Inverse scale of the prior: shape over mean.
    counts : (n,) float64
        Requests of each page; weighted sums are taken as they are.
    exposure_days : (n,) float64, days
        Time over which they were counted, weighted alike.

    Returns
    -------
    shape, rate_days : (n,) float64
        Mean ``shape / rate_days`` per day, variance ``shape / rate_days**2``.

    Raises
    ------
    ValueError
        Counts or exposures negative, infinite or NaN.
    """
    counts, exposure = _checked(counts, exposure_days)
    return prior_shape + counts, prior_rate_days + exposure


def request_rate(
    prior: RequestPrior, counts: FloatArray, exposure_days: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Posterior mean and standard deviation of the request rate of each page.

    Parameters
    ----------
    prior : RequestPrior
        From `fit_request_prior`.
    counts, exposure_days : (n,) float64
        As in `posterior`.

    Returns
    -------
    request_rate_per_day, standard_error_per_day : (n,) float64, positive and finite
    """
    shape, days = posterior(prior.shape, prior.shape / prior.mean_per_day, counts, exposure_days)
    return shape / days, np.sqrt(shape) / days


def fit_request_prior(counts: FloatArray, exposure_days: FloatArray) -> RequestPrior:
    """Maximum likelihood of the negative binomial that counts follow when rates are gamma distributed.

    For each shape the mean solves its score equation, which is monotone in the log of the mean; the shape
    maximises what is left, by bounded search in its logarithm.

    Parameters
    ----------
    counts, exposure_days : (n,) float64
        Of a sample of pages, in any order; pages without exposure are left out.

    Returns
    -------
    RequestPrior
        Always finite. Shape within [0.01, 100]. Without any request: shape 0.5 and the mean of half a
        request in the exposure plus 10 days. The same bits for any order of pages.

    Raises
    ------
    ValueError
        Counts or exposures negative, infinite or NaN.
    """
    counts, exposure = _checked(counts, exposure_days)
    order = np.lexsort((exposure, counts))  # so that no sum below depends on the order of pages
    order = order[exposure[order] > 0.0]
    y, e = counts[order], exposure[order]
    total, days = float(y.sum()), float(e.sum())
    if not total > 0.0:
        return RequestPrior(DEFAULT_SHAPE, 0.5 / (days + DEFAULT_EXPOSURE_DAYS))
    log_mean = math.log(total / days)

    def score(log_shape: float) -> float:
        """Slope of the log likelihood in log shape, at the mean that is best for it."""
        r = math.exp(log_shape)
        u = e * math.exp(_log_mean_given(r, y, e, log_mean))
        # Differences first: both are small where r is large.
        terms = (digamma(y + r) - digamma(r)) - np.log1p(u / r) + (u - y) / (r + u)
        return r * float(terms.sum())

    low, high = SHAPE_LIMITS
    shape = min(max(math.exp(_falling_root(score, math.log(low), math.log(high))), low), high)
    return RequestPrior(shape, math.exp(_log_mean_given(shape, y, e, log_mean)))


def _falling_root(score: Callable[[float], float], low: float, high: float) -> float:
    """Where a score falls through 0, to 1e-9; the end that is nearer to it where that lies outside.

    By the Illinois method (Dowell and Jarratt 1971): importing scipy.optimize takes longer than all that a
    small night estimates.
    """
    at_low, at_high = score(low), score(high)
    if at_low <= 0.0 or at_high >= 0.0:
        return low if at_low <= 0.0 else high
    middle, side = high, 0
    for _ in range(100):
        last, middle = middle, (low * at_high - high * at_low) / (at_high - at_low)
        if abs(middle - last) < 1e-9:
            break
        value = score(middle)
        if value > 0.0:
            # An end that stays twice counts half, or the other would creep.
            at_high *= 0.5 if side > 0 else 1.0
            low, at_low, side = middle, value, 1
        else:
            at_low *= 0.5 if side < 0 else 1.0
            high, at_high, side = middle, value, -1
    return middle


def _log_mean_given(shape: float, y: FloatArray, e: FloatArray, start: float) -> float:
    """Root in log mean of ``sum (y - u) / (shape + u)``, u = mean * exposure."""
    # Between the smallest and largest y / e of pages; Newton with a step limit, the score is monotone.
    log_mean = start
    for _ in range(100):
        u = e * math.exp(log_mean)
        score = float(((y - u) / (shape + u)).sum())
        slope = float((u * (shape + y) / (shape + u) ** 2).sum())
        step = min(max(score / slope, -2.0), 2.0)
        log_mean += step
        if abs(step) < 1e-12:
            break
    return log_mean


def _checked(counts: FloatArray, exposure_days: FloatArray) -> tuple[FloatArray, FloatArray]:
    pair = []
    for name, values in (("counts", counts), ("exposure_days", exposure_days)):
        array = np.asarray(values, dtype=np.float64)
        if array.size and not (array.min() >= 0.0 and array.max() < np.inf):
            bad = int(np.flatnonzero(~((array >= 0.0) & (array < np.inf)))[0])
            raise ValueError(f"{name}[{bad}] is {array[bad]}; give finite numbers >= 0")
        pair.append(array)
    if len(pair[0]) != len(pair[1]):
        raise ValueError(f"{len(pair[0])} counts and {len(pair[1])} exposures; give one of each per page")
    return pair[0], pair[1]
