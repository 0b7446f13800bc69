"""When to crawl a page whose changes are announced by noisy signals, and how often that is.

Unsignalled changes of a page come at rate `a`, signals at rate `g`; a signal is a change with probability p,
the precision. With kappa = -log(1 - p), the page's *clock*

    u = a tau + kappa n        (tau days since the last crawl, n signals since then)

is minus the log of the probability that the copy is still fresh. Best is to crawl when the clock reaches a
threshold u* at which the crawl value V(u) equals the multiplier. Between crawls psi(u) days pass on average,
of which the copy is fresh for w(u), and

    V = mu (w - e^-u psi),   dV/du = mu e^-u psi,   freshness = V/(mu psi) + e^-u

hold for every kind of page (Busa-Fekete et al., "A Scalable Crawling Algorithm Utilizing Noisy
Change-Indicating Signals", theorem 1 and lemma 4). Degenerate kinds have their own forms:

    no signals     a > 0, kappa = 0 or g = 0     V = (mu/D) P(2, u), whatever the signals
    noiseless      a > 0, kappa = inf            a signal is a change: crawl at once if it pays at all
    full recall    a = 0, kappa finite           crawl at the m-th signal, m = ceil(u / kappa)
    perfect        a = 0, kappa = inf            crawl at the first signal

With a = 0 the clock only jumps, and V(u) between two readings is the limit a -> 0: continuous in u, with the
slope above, so that a multiplier still has one threshold, and mu e^-u* is the page's net gain.
"""

from dataclasses import replace

import numpy as np

from policies.numerics import special
from policies.numerics.typing_ import FloatArray
from policies.objectives.objectives import TINY_RATE
from policies.signalled import terms as signal_terms
from policies.signalled import threshold_clock
from policies.signalled.pages import (
    FULL_RECALL,
    GENERAL,
    INERT,
    NO_SIGNALS,
    NOISELESS,
    PERFECT,
    SignalPages,
    blocks,
    closed,
    column,
    kind_at,
    kind_of,
    prices,
    scaled,
    signals_to_reach,
    useful_changes,
    value_of_first,
)


def crawl_value(
    pages: SignalPages, elapsed_days: FloatArray, signals: FloatArray, terms: int | None = None
) -> FloatArray:
    """Gain rate of crawling each page now: V(tau, n).

    Parameters
    ----------
    pages : SignalPages
    elapsed_days : (n,) float64, >= 0
        Days since the last crawl; inf or NaN if there was none.
    signals : (n,) float64, >= 0
        Signals since then. Ignored for pages without (meaningful) signals.
    terms : int, optional
        Only the first `terms` terms of the sum over signals, the paper's approximations. Their limit for
        tau -> inf is ``mu/D (1 - (nu/(D+nu))^terms)``: with few terms a page with much noise is never worth
        a crawl at a tight budget.

    Returns
    -------
    (n,) float64
        Requests served fresh per crawl, from 0 to mu/D.

    Raises
    ------
    ValueError
        Rates, days or signals out of range; terms < 1.

    Notes
    -----
    Relative error about 1e-14. O(1) for long waits on noisy signals.
    """
    pages.check()
    if terms is not None and terms < 1:
        raise ValueError(f"terms must be at least 1, got {terms!r}")
    days, counts = column(pages, elapsed_days, "elapsed_days"), column(pages, signals, "signals")
    days = np.where(np.isnan(days), np.inf, days)
    if not (np.all(days >= 0.0) and np.all(counts >= 0.0)):
        raise ValueError("elapsed_days and signals must be at least 0")
    out = np.zeros(len(pages))
    for block in blocks(len(pages)):
        out[block] = _state_value(pages.take(block), days[block], counts[block], terms)
    return out


def _state_value(pages: SignalPages, days: FloatArray, signals: FloatArray, terms: int | None) -> FloatArray:
    kind = kind_of(pages)
    mu, a = pages.request_rate_per_day, pages.unsignalled_rate_per_day
    active = kind != INERT
    best = np.where(active, mu, 0.0) / np.where(active, useful_changes(pages), 1.0)
    out = np.zeros(len(pages))
    with np.errstate(over="ignore"):
        run = np.where(a < TINY_RATE, 0.0, a) * np.where(a < TINY_RATE, 0.0, days)
    sure = (kind == NOISELESS) | (kind == PERFECT)
    is_over = sure & (signals > 0.0)
    out[is_over] = best[is_over]
    rows = np.flatnonzero(kind == NO_SIGNALS)
    out[rows] = best[rows] * special.p2(run[rows])
    rows = np.flatnonzero(kind == FULL_RECALL)
    if rows.size:
        out[rows] = mu[rows] * _full_recall_value(pages.take(rows), signals[rows], terms)
    rows = np.flatnonzero((kind == GENERAL) | ((kind == NOISELESS) & ~is_over))
    if rows.size == 0:
        return out
    r, kappa = scaled(pages.take(rows))
    n = np.where(kind[rows] == NOISELESS, 0.0, signals[rows])
    if terms is not None:
        # Beyond 1e4 the clock makes no difference to any of the terms.
        value = signal_terms.truncated(r, kappa, np.minimum(run[rows], 1e4), np.minimum(n, 1e15), terms)
        out[rows] = mu[rows] / a[rows] * value
        return out
    with np.errstate(over="ignore"):
        near = run[rows] + kappa * n < threshold_clock.NEVER_FRESH
    out[rows[~near]] = best[rows[~near]]
    part = rows[near]
    value = signal_terms.evaluate(r[near], kappa[near], run[part], n[near]).value
    out[part] = np.minimum(mu[part] / a[part] * value, best[part])
    return out


def _full_recall_value(pages: SignalPages, signals: FloatArray, terms: int | None) -> FloatArray:
    """V / mu where a = 0: (1/g) sum_{i < n} (e^(-kappa i) - e^(-kappa n)), or its first terms."""
    kappa, g = pages.signal_weight, pages.signal_rate_per_day
    count = np.minimum(signals, 1e300 if terms is None else float(terms))
    left = np.exp(-np.minimum(kappa * count, threshold_clock.NEVER_FRESH))
    more = -np.expm1(-kappa * (np.minimum(signals, 1e300) - count))
    value: FloatArray = (threshold_clock.full_recall_value(kappa, kappa * count) + count * left * more) / g
    return value


def value_at(pages: SignalPages, clock: FloatArray) -> FloatArray:
    """Crawl value V(u) at a threshold, which is the marginal value of the crawl rate there.

    Parameters
    ----------
    pages : SignalPages
    clock : (n,) float64 in [0, inf]
        Threshold u.

    Returns
    -------
    (n,) float64
        Requests per crawl: 0 at u = 0, mu/D at inf. With a = 0 it is V(m) of m signals at u = kappa m and
        interpolates in between (see the module).

    Raises
    ------
    ValueError
        Rates or clock out of range.
    """
    return pages.request_rate_per_day * _curve(pages, clock)[1]


def interval_days(pages: SignalPages, clock: FloatArray) -> FloatArray:
    """Mean days between crawls at threshold `clock`, psi(u): (n,) float64, inf at u = inf (never).

    Of pages that never change, too: their clock stands still, unless u = 0.
    """
    return _curve(pages, clock)[0]


def freshness(pages: SignalPages, clock: FloatArray) -> FloatArray:
    """Long-run probability that the copy is fresh at threshold `clock`: V/(mu psi) + e^-u, (n,) float64.

    1 for a page that never changes; 0 for one that is never crawled.
    """
    days, value = _curve(pages, clock)
    u = np.asarray(clock, dtype=np.float64)
    inside = (days > 0.0) & np.isfinite(days)
    part = np.where(inside, value, 0.0) / np.where(inside, days, 1.0)
    fresh = np.minimum(part + np.exp(-u), 1.0)
    return np.where(useful_changes(pages) >= TINY_RATE, fresh, 1.0)


def _curve(pages: SignalPages, clock: FloatArray) -> tuple[FloatArray, FloatArray]:
    """psi(u) in days, and V(u)/mu in days, whatever the request rate."""
    pages.check()
    u = column(pages, clock, "clock")
    if not np.all(u >= 0.0):
        raise ValueError("clock must be at least 0")
    days, value = np.zeros(len(pages)), np.zeros(len(pages))
    for block in blocks(len(pages)):
        days[block], value[block] = _block_curve(pages.take(block), u[block])
    return days, value


def _block_curve(pages: SignalPages, u: FloatArray) -> tuple[FloatArray, FloatArray]:
    kind = kind_of(replace(pages, request_rate_per_day=np.ones(len(pages))))
    changes = useful_changes(pages)
    days = np.where(u > 0.0, np.inf, 0.0)
    value = np.where(kind == INERT, 0.0, 1.0) / np.where(kind == INERT, 1.0, changes)
    value = np.where(u > 0.0, value, 0.0)
    open_ = (u > 0.0) & np.isfinite(u)
    a, g = pages.unsignalled_rate_per_day, pages.signal_rate_per_day
    rows = np.flatnonzero(open_ & (kind == NO_SIGNALS))
    days[rows] = u[rows] / a[rows]
    value[rows] = special.p2(u[rows]) / a[rows]
    rows = np.flatnonzero(open_ & (kind == PERFECT))
    days[rows] = 1.0 / g[rows]
    value[rows] = -np.expm1(-u[rows]) / g[rows]
    rows = np.flatnonzero(open_ & (kind == FULL_RECALL))
    if rows.size:
        kappa = pages.signal_weight[rows]
        m = signals_to_reach(kappa, u[rows])
        days[rows] = m / g[rows]
        value[rows] = threshold_clock.full_recall_between(kappa, m, u[rows]) / g[rows]
    rows = np.flatnonzero(open_ & ((kind == GENERAL) | (kind == NOISELESS)))
    if rows.size:
        r, kappa = scaled(pages.take(rows))
        terms = signal_terms.evaluate(r, kappa, u[rows], np.zeros(rows.size))
        days[rows] = terms.h / a[rows]
        value[rows] = terms.value / a[rows]
    return days, value


def threshold(pages: SignalPages, multiplier: float | FloatArray) -> FloatArray:
    """Threshold u* at which the crawl value is `multiplier`.

    Parameters
    ----------
    pages : SignalPages
    multiplier : float or (n,) float64, >= 0
        Price of a crawl, in requests.

    Returns
    -------
    (n,) float64
        inf where ``multiplier >= mu/D``: never crawl; inert pages, too. Where every change is signalled
        (a = 0) it lies between two readings of the clock, and `signals_to_reach` gives the signals. Where
        there are no false signals, crawl when the clock reaches it or at the first signal.

    Raises
    ------
    ValueError
        Rates or multiplier out of range.
    NotConvergedError
        Not known to happen.

    Notes
    -----
    Demand is a set at some multipliers. At mu/D of a page without false signals any rate from 0 to g is
    optimal, and this gives 0. At V(m) of m signals on a page with a = 0 both m and m + 1 are, and this
    gives m.
    """
    return _solve(pages, multiplier)[0]


def crawl_rate(pages: SignalPages, multiplier: float | FloatArray) -> FloatArray:
    """Crawls per day that `multiplier` buys: 1/psi(u*), 0 where u* is inf; (n,) float64.

    At multiplier 0 it is inf, but for pages with a = 0 it is g (0 for inert ones).
    """
    return _solve(pages, multiplier)[1]


def _solve(pages: SignalPages, multiplier: float | FloatArray) -> tuple[FloatArray, FloatArray]:
    pages.check()
    price = prices(pages, multiplier)
    u, rate = np.full(len(pages), np.inf), np.zeros(len(pages))
    for block in blocks(len(pages)):
        part = pages.take(block)
        kind = kind_at(kind_of(part), price[block], value_of_first(part))
        depth, u[block], rate[block] = closed(part, kind, price[block])
        rows = np.flatnonzero((kind == GENERAL) & np.isfinite(depth) & (depth > 0.0))
        if rows.size:
            r, kappa = scaled(part.take(rows))
            u[block][rows], h = threshold_clock.solution(r, kappa, depth[rows])
            rate[block][rows] = part.unsignalled_rate_per_day[rows] / h
    return u, rate
