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

_LOG_CHANGES = np.log(1e-9), np.log(1e6)
"""Between which numbers of changes that are to be expected an age is looked for."""

_HALVINGS = 12
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
    multiplier: float | FloatArray,
) -> FloatArray:
    """Age of the copy from which a crawl at a request is worth the multiplier: (n,), inf where it never is.

    Parameters
    ----------
    request_rate_per_day, change_rate_per_day, information : (n,) float64
    multiplier : float or (n,) float64
        Requests that one more crawl gains elsewhere.
    """
    rate = np.maximum(change_rate_per_day, _LEAST_RATE)
    price = np.broadcast_to(multiplier, rate.shape)
    found = np.full(len(rate), np.inf)
    # No copy is worth more than all requests until the next change.
    rows = np.flatnonzero(request_rate_per_day > price * rate)
    asked, rate, shape, price = (v[rows] for v in (request_rate_per_day, rate, information, price))
    low, high = (np.full(len(rows), end) for end in _LOG_CHANGES)
    worth_low, worth_high = (crawl_value(asked, rate, shape, np.exp(x) / rate) - price for x in (low, high))
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        worth = crawl_value(asked, rate, shape, np.exp(middle) / rate) - price
        above = worth >= 0.0
        high, worth_high = np.where(above, middle, high), np.where(above, worth, worth_high)
        low, worth_low = np.where(above, low, middle), np.where(above, worth_low, worth)
    some = worth_high >= 0.0
    part = np.clip(worth_low[some] / np.minimum(worth_low[some] - worth_high[some], -1e-300), 0.0, 1.0)
    found[rows[some]] = np.exp(low[some] + part * (high[some] - low[some])) / rate[some]
    return found
