"""What a crawl is worth when a page is asked for, and the age of its copy from which it is worth its price.

Requests of a page come at the rate `mu`, changes at the rate `lambda`, both by Poisson processes. Freshness
is that of the copy which a request meets, before any crawl that it triggers. Crawled at the first request
after the age `tau`, the copy serves ``mu tau + 1`` requests on average, of which

    A = mu / lambda (1 - exp(-lambda tau)) + exp(-lambda tau) mu / (lambda + mu)

meet it fresh, in the time ``L = tau + 1 / mu``. Freshness is ``A / L`` and costs ``1 / L`` crawls; the ratio
of their derivatives by `tau` is what one more crawl gains,

    V(tau) = A - A' L = mu / lambda (1 - exp(-x) - x exp(-x) mu / (mu + lambda)),   x = lambda tau.

It grows with `tau`, so a multiplier is an age. With many requests it is the crawl value of LambdaCrawl,
``mu / lambda P2(x)`` (Azar et al. 2018); with few, the probability of a change since the crawl times the
requests that come before the next one.
"""

from __future__ import annotations

import numpy as np

from policies.numerics.typing_ import FloatArray

_STEPS = 60
_LONGEST = 1e6
_LEAST_RATE = 1e-12


def crawl_value(
    request_rate_per_day: FloatArray,
    change_rate_per_day: FloatArray,
    information: FloatArray,
    since_days: FloatArray,
) -> FloatArray:
    """Requests that a crawl at a request keeps fresh, net of what a later one would: (n,) float64.

    The change rate is gamma distributed: ``exp(-x)`` and ``x exp(-x)`` are their means over it.

    Parameters
    ----------
    request_rate_per_day, change_rate_per_day : (n,) float64
    information : (n,) float64
        Shape of the change rate's distribution, see `policies.estimation.estimators.rate`.
    since_days : (n,) float64
        Age of the copy.
    """
    rate = np.maximum(change_rate_per_day, _LEAST_RATE)
    x = rate * since_days
    log = np.log1p(x / information)
    unchanged, soon = np.exp(-information * log), x * np.exp(-(information + 1.0) * log)
    share = request_rate_per_day / (request_rate_per_day + rate)
    value: FloatArray = request_rate_per_day / rate * (1.0 - unchanged - soon * share)
    return value


def worth_from_days(
    request_rate_per_day: FloatArray,
    change_rate_per_day: FloatArray,
    information: FloatArray,
    multiplier: float,
) -> FloatArray:
    """Age of the copy from which a crawl at a request is worth the multiplier: (n,), inf where it never is.

    Parameters
    ----------
    request_rate_per_day, change_rate_per_day, information : (n,) float64
    multiplier : float
        Requests that one more crawl gains elsewhere.
    """
    known = request_rate_per_day, change_rate_per_day, information
    high = np.full(len(change_rate_per_day), _LONGEST)
    never = crawl_value(*known, high) < multiplier
    low = np.zeros(len(high))
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        enough = crawl_value(*known, middle) >= multiplier
        high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    return np.where(never, np.inf, high)
