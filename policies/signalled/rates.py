"""What a crawl rate means for a page with signals: its threshold, its freshness, and the worth of more.

A rate f fixes the threshold u through 1 / psi(u) = f. Where changes are never missed (a = 0) or signals never
wrong (kappa = inf), some rates are reached only by mixing two thresholds; freshness is linear in between.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from policies.numerics.errors import NotConvergedError
from policies.numerics.typing_ import FloatArray
from policies.objectives.objectives import TINY_RATE
from policies.signalled import pages as signal_pages
from policies.signalled import terms
from policies.signalled import value as signal_value
from policies.signalled.pages import (
    FULL_RECALL,
    GENERAL,
    INERT,
    NO_SIGNALS,
    NOISELESS,
    PERFECT,
    SignalPages,
    scaled,
)

_STEPS: Final = 200
_NEVER_FRESH: Final = 745.0  # e^-745 is 0: no clock beyond tells one threshold from another
_CLOSE: Final = 1e-12  # of a clock, relative


def clock_at_rate(pages: SignalPages, rate_per_day: FloatArray) -> FloatArray:
    """Threshold at which a page is crawled `rate_per_day` times a day: (n,) float64 in [0, inf].

    inf for rate 0, for inert pages, and for pages without false signals up to the rate of their signals. A
    page that misses no change (a = 0) has the clock of the whole number of signals that gives at least the
    rate, and 0 for rates above that of its signals.

    Raises
    ------
    NotConvergedError
        Not known to happen.
    """
    rate = np.asarray(rate_per_day, dtype=np.float64)
    kind = signal_pages.kind_of(pages)
    a, g, kappa = pages.unsignalled_rate_per_day, pages.signal_rate_per_day, pages.signal_weight
    clock = np.full(rate.shape, np.inf)
    crawled = rate > 0.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        alone = a / rate
        early = -(a / g) * np.log1p(-g / rate)  # while the first signal ends every interval
    rows = np.flatnonzero(crawled & (kind == NO_SIGNALS))
    clock[rows] = alone[rows]
    rows = np.flatnonzero(crawled & (kind == PERFECT))
    clock[rows] = np.where(rate[rows] > g[rows], 0.0, np.inf)
    rows = np.flatnonzero(crawled & (kind == FULL_RECALL))
    clock[rows] = kappa[rows] * _signals_at_rate(g[rows], rate[rows])
    simple = (rate > g) & (early <= kappa) & ((kind == NOISELESS) | (kind == GENERAL))
    clock[simple] = early[simple]
    rows = np.flatnonzero(crawled & (kind == GENERAL) & ~simple)
    if rows.size:
        clock[rows] = _search(pages.take(rows), rate[rows])
    return clock


def _signals_at_rate(g: FloatArray, rate: FloatArray) -> FloatArray:
    """Most signals m with g / m >= rate: (n,) float64; 0 for rates above g."""
    with np.errstate(over="ignore"):
        return np.floor(np.minimum(g / rate, 1e300) * (1.0 + _CLOSE))


def _search(pages: SignalPages, rate: FloatArray) -> FloatArray:
    """Clock u with psi(u) = 1 / rate, by Newton's steps that a bracket keeps honest."""
    a, g, kappa = pages.unsignalled_rate_per_day, pages.signal_rate_per_day, pages.signal_weight
    # u / (a + g kappa) <= psi <= min(u / a, (u + kappa) / (a + g kappa))
    pace = a + g * kappa
    low, high = np.maximum(a / rate, pace / rate - kappa), pace / rate
    clock = np.minimum(low, np.finfo(np.float64).max)
    rows = np.flatnonzero((low < _NEVER_FRESH) & (high > low * (1.0 + _CLOSE)))
    low, high, wanted = low[rows], high[rows], a[rows] / rate[rows]
    r, kappa = scaled(pages.take(rows))
    # Many jumps from the start psi is linear.
    u = np.clip(high - 0.5 * g[rows] / pace[rows] * kappa * kappa, low, high)
    last = np.full(rows.size, np.inf)
    for _ in range(_STEPS):
        if rows.size == 0:
            return clock
        clock[rows] = u
        found = terms.evaluate(r, kappa, u, np.zeros(rows.size))
        off = found.h / wanted - 1.0
        low, high = np.where(off <= 0.0, u, low), np.where(off >= 0.0, u, high)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            step = u - off * wanted / found.d1
        # Where a page misses hardly a change psi has steps: there slopes tell nothing.
        good = (step > low) & (step < high) & (np.abs(off) < 0.5 * last)
        u, last = np.where(good, step, 0.5 * (low + high)), np.abs(off)
        open_ = (last > _CLOSE) & (high > low * (1.0 + _CLOSE))
        rows, low, high, wanted = rows[open_], low[open_], high[open_], wanted[open_]
        r, kappa, u, last = r[open_], kappa[open_], u[open_], last[open_]
    raise NotConvergedError(
        f"the clock of {rows.size} pages at given rates is not found in {_STEPS} steps, e.g. at "
        f"{float(rate[rows[0]])!r} crawls a day"
    )


def freshness_at_rate(
    pages: SignalPages, rate_per_day: FloatArray, clock: FloatArray | None = None
) -> FloatArray:
    """Long-run freshness at a crawl rate: (n,) float64 in [0, 1]. `clock` as of `clock_at_rate`, if known."""
    rate = np.asarray(rate_per_day, dtype=np.float64)
    clock = clock_at_rate(pages, rate) if clock is None else clock
    kind = signal_pages.kind_of(pages)
    mu, g = pages.request_rate_per_day, pages.signal_rate_per_day
    with np.errstate(invalid="ignore"):
        fresh = signal_value.freshness(pages, clock)
    change = pages.change_rate_per_day
    rows = np.flatnonzero((kind == GENERAL) | (kind == NO_SIGNALS))
    value = signal_value.value_at(pages.take(rows), clock[rows])
    fresh[rows] = rate[rows] * value / mu[rows] + np.exp(-clock[rows])
    linear = (kind == PERFECT) | ((kind == NOISELESS) & (rate <= g))
    fresh = np.where(linear, rate / np.where(linear, change, 1.0), fresh)
    rows = np.flatnonzero(kind == FULL_RECALL)
    if rows.size:
        fresh[rows] = _mixed_freshness(pages.take(rows), rate[rows])
    # Nobody asks for an inert page: it is fresh as a page without signals is.
    rows = np.flatnonzero((kind == INERT) & (change >= TINY_RATE))
    if rows.size:
        asked = replace(pages.take(rows), request_rate_per_day=np.ones(rows.size))
        fresh[rows] = freshness_at_rate(asked, rate[rows])
    return np.minimum(fresh, 1.0)


def _mixed_freshness(pages: SignalPages, rate: FloatArray) -> FloatArray:
    """Freshness of pages that miss no change, linear between g / (m + 1) and g / m."""
    g, kappa = pages.signal_rate_per_day, pages.signal_weight
    some = rate > 0.0
    m = _signals_at_rate(g, np.where(some, rate, 1.0))
    upper, lower = g / np.maximum(m, 1.0), g / (m + 1.0)
    at_upper = signal_value.freshness(pages, kappa * np.maximum(m, 1.0))
    at_lower = signal_value.freshness(pages, kappa * (m + 1.0))
    share = np.clip((rate - lower) / (upper - lower + (upper == lower)), 0.0, 1.0)
    fresh = np.where(m >= 1.0, share * at_upper + (1.0 - share) * at_lower, 1.0)
    return np.where(some, fresh, 0.0)


def marginal_value_at_rate(pages: SignalPages, rate_per_day: FloatArray) -> FloatArray:
    """What one more crawl per day buys, in requests: (n,) float64.

    V(u) at the rate's threshold. Where a rate lies at a step, what a rate just above it gives: 0 from the
    rate of all signals on if no change is missed.
    """
    rate = np.asarray(rate_per_day, dtype=np.float64)
    kind = signal_pages.kind_of(pages)
    g, kappa = pages.signal_rate_per_day, pages.signal_weight
    clock = clock_at_rate(pages, rate)
    rows = np.flatnonzero((kind == FULL_RECALL) & (rate > 0.0))
    with np.errstate(over="ignore"):
        signals = np.ceil(np.minimum(g[rows] / rate[rows], 1e300) * (1.0 - _CLOSE)) - 1.0
    clock[rows] = kappa[rows] * signals
    rows = np.flatnonzero((kind == PERFECT) & (rate >= g * (1.0 - _CLOSE)))
    clock[rows] = 0.0
    return signal_value.value_at(pages, clock)
