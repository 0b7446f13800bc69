"""Solving for the threshold of a page with signals, and its expansion around a solution. Dimensionless.

Notation of `policies.signalled.terms`. A page's crawl value is ``mu H(u) / a``, with H(inf) = 1/E,
``E = 1 + r p``. In the *depth* ``x = sqrt(-2 log(1 - E H(u)))`` the threshold u(x) and log h(u(x)) are
smooth: u is proportional to x near 0 and to x^2/2 for large x. Both have Taylor series of order 4 here, from
h and its four derivatives at one point; a search takes them as steps of fifth order.
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from policies.numerics import special
from policies.numerics.errors import NotConvergedError
from policies.numerics.typing_ import FloatArray
from policies.signalled import first_signal
from policies.signalled import terms as signal_terms

NEVER_FRESH: Final = 745.0  # e^-745 is the last number above 0
_SOON: Final = 1.5  # jumps
_MAX_STEPS: Final = 200
_TOLERANCE: Final = 2e-10  # of an expansion, relative, inside its reach


@dataclass(frozen=True, slots=True)
class Point:
    """Taylor series of threshold and mean interval in the depth, one point a page.

    Attributes
    ----------
    depth : (n,) float64
        Where the series are centred.
    reach : (n,) float64, >= 0
        How far from there they hold to a few 1e-10, relative.
    u0, u1, u2, u3, u4 : (n,) float64
        Threshold, and coefficients of its series.
    h0 : (n,) float64
        h(u0).
    h1, h2, h3, h4 : (n,) float64
        Coefficients of the series of log(h(u(depth)) / h0).
    """

    depth: FloatArray
    reach: FloatArray
    u0: FloatArray
    u1: FloatArray
    u2: FloatArray
    u3: FloatArray
    u4: FloatArray
    h0: FloatArray
    h1: FloatArray
    h2: FloatArray
    h3: FloatArray
    h4: FloatArray


def _series(r: FloatArray, kappa: FloatArray, u: FloatArray) -> Point:
    """The series around thresholds `u` > 0, (n,) float64 each."""
    terms = signal_terms.evaluate(r, kappa, u, np.zeros(u.size))
    everything = 1.0 - r * np.expm1(-kappa)
    near = terms.rest > 0.5
    y = np.where(near, -np.log1p(-np.minimum(everything * terms.value, 0.6)), -np.log(terms.rest))
    x = np.sqrt(2.0 * y)
    h = terms.h
    # q = (log h)' and its derivatives.
    k2, k3, k4 = terms.d2 / h, terms.d3 / h, terms.d4 / h
    q = terms.d1 / h
    q1 = k2 - q * q
    q2 = k3 - k2 * q - 2.0 * q * q1
    q3 = k4 - 2.0 * k3 * q + k2 * q * q - k2 * q1 - 2.0 * q1 * q1 - 2.0 * q * q2
    # s = dx/du = E e^(y-u) h / x; the derivatives of log s.
    rise = everything * h * np.exp(-np.minimum(u, NEVER_FRESH)) / terms.rest  # dy/du
    s = rise / x
    w = s / x
    e1 = q - 1.0 + rise
    rise1 = rise * e1
    l1 = e1 - w
    w1 = w * (l1 - w)
    l2 = q1 + rise1 - w1
    rise2 = rise1 * e1 + rise * (q1 + rise1)
    w2 = w1 * (l1 - w) + w * (l2 - w1)
    l3 = q2 + rise2 - w2
    # G = 1/s and its derivatives in u, then those of u in x.
    g = 1.0 / s
    g1 = -g * l1
    g2 = g * (l1 * l1 - l2)
    g3 = -g * (l1 * l1 * l1 - 3.0 * l1 * l2 + l3)
    u1 = g
    u2 = g * g1
    u3 = g * (g1 * g1 + g * g2)
    u4 = g * (g1 * g1 * g1 + 4.0 * g * g1 * g2 + g * g * g3)
    h1 = q * u1
    h2 = q1 * u1 * u1 + q * u2
    h3 = q2 * u1 * u1 * u1 + 3.0 * q1 * u1 * u2 + q * u3
    h4 = q3 * u1**4 + 6.0 * q2 * u1 * u1 * u2 + q1 * (3.0 * u2 * u2 + 4.0 * u1 * u3) + q * u4
    point = Point(
        x, np.zeros(u.size), u, u1, u2 / 2.0, u3 / 6.0, u4 / 24.0, h, h1, h2 / 2.0, h3 / 6.0, h4 / 24.0
    )
    point.reach[:] = _reach(r, kappa, point, terms)
    return point


def _reach(r: FloatArray, kappa: FloatArray, point: Point, terms: signal_terms.Terms) -> FloatArray:
    """How far from its centre a series holds to `_TOLERANCE`; 0 where that is not known."""
    u = point.u0
    last = np.floor(u / kappa)  # index of the last term, that is of the last kink passed
    # The smooth part: the next coefficient guessed from the size of the others. In logs: powers are dear.
    smooth = -np.log(point.depth)
    rough = np.full(u.size, -690.0)
    log_u = np.log(u)
    for c, k in ((point.u2, 2.0), (point.u3, 3.0), (point.u4, 4.0)):
        smooth = np.maximum(smooth, (np.log(np.abs(c)) - log_u) / k)
    for c, k in ((point.h2, 2.0), (point.h3, 3.0), (point.h4, 4.0)):
        rough = np.maximum(rough, np.log(np.abs(c)) / k)
    log_h = np.log(r * point.h0) + np.log(_TOLERANCE)
    # Signals: the fifth derivative of h is r^4 times the sum of fourth differences of Poisson probabilities,
    # which stays below about 2. Far from the start h is linear.
    linear = (terms.d1 > 0.0) & (terms.d2 == 0.0) & (terms.d3 == 0.0) & (terms.d4 == 0.0)
    signals = np.where(linear, np.inf, np.exp((log_h + np.log(60.0)) / 5.0) / (r * point.u1))
    # Kinks: where the clock passes m kappa, derivative m + 1 of h jumps by r^m; those from the fifth
    # derivative on are in the bound above.
    kinks = np.full(u.size, np.inf)
    for m, factorial in ((1.0, 2.0), (2.0, 6.0), (3.0, 24.0)):
        harmless = np.exp((log_h + np.log(factorial)) / (m + 1.0)) / r
        kinks = np.minimum(kinks, np.abs(u - m * kappa) + harmless)
    kinks = np.where(linear, np.inf, _depth_within(point, kinks))
    width = np.log(_TOLERANCE) / 5.0
    reach = np.minimum(np.exp(width - rough), np.minimum(signals, kinks))
    # Between steps: h is constant from where its last term is 1 to where the next begins.
    over = r * (u - last * kappa) - last - 8.0 * np.sqrt(last) - 32.0
    flat = _depth_within(point, np.minimum(over / r, (last + 1.0) * kappa - u))
    reach = np.minimum(np.maximum(reach, flat), np.exp(width - smooth))
    return np.where(np.isfinite(reach), np.maximum(reach, 0.0), 0.0)


def _depth_within(point: Point, change: FloatArray) -> FloatArray:
    """Change of depth that moves the threshold by less than `change`."""
    depth: FloatArray = 0.999 * change / (point.u1 + np.abs(point.u2 * change / point.u1))
    return depth


def move(point: Point, depth: FloatArray) -> FloatArray:
    """Thresholds at `depth` by the series, (n,) float64."""
    d = depth - point.depth
    return point.u0 + d * (point.u1 + d * (point.u2 + d * (point.u3 + d * point.u4)))


def move_h(point: Point, depth: FloatArray) -> FloatArray:
    """h at the thresholds at `depth` by the series, (n,) float64."""
    d = depth - point.depth
    return point.h0 * np.exp(d * (point.h1 + d * (point.h2 + d * (point.h3 + d * point.h4))))


def solution(r: FloatArray, kappa: FloatArray, depth: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Thresholds at `depth` and h there, (n,) float64 each; arguments as those of `solve`."""
    point = solve(r, kappa, depth)
    clock = move(point, depth)
    # Where rounding is larger than what is left to move, the coefficients may mean nothing.
    clock = np.where(np.abs(clock - point.u0) <= 0.01 * point.u0, clock, point.u0)
    return clock, signal_terms.evaluate(r, kappa, clock, np.zeros(clock.size)).h


def solve(
    r: FloatArray, kappa: FloatArray, depth: FloatArray, start: FloatArray | None = None, loose: bool = False
) -> Point:
    """Series centred so close to the solutions of depth(u) = `depth` that `move` reaches them.

    Parameters
    ----------
    r, kappa : (n,) float64, > 0
    depth : (n,) float64, > 0 and finite
    start : (n,) float64, optional
        Thresholds close to the answer.
    loose : bool
        Stop where the solution is inside the reach, not at 1e-13.

    Returns
    -------
    Point

    Raises
    ------
    NotConvergedError
        More than 200 steps.
    """
    n = depth.size
    u = guess(r, kappa, depth) if start is None else start.copy()
    low, high = np.zeros(n), np.full(n, np.inf)
    last = np.full(n, np.inf)
    rows = np.arange(n)
    for steps in range(_MAX_STEPS):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            point = _series(r[rows], kappa[rows], u)
            step = move(point, depth[rows])
        off = np.abs(depth[rows] - point.depth)
        inside = np.minimum((0.5 if loose else 0.01) * point.reach, (1e-2 if loose else 1e-3) * depth[rows])
        done = (off <= 2e-15 * depth[rows]) | (off <= inside)
        error = depth[rows] - point.depth
        low = np.where(error > 0.0, np.maximum(low, u), low)
        high = np.where(error < 0.0, np.minimum(high, u), high)
        done |= high <= low * (1.0 + 4e-16)
        if steps == 0:
            result = point
        else:
            for field in fields(Point):
                getattr(result, field.name)[rows] = getattr(point, field.name)
        keep = ~done
        if not np.any(keep):
            return result
        size = np.abs(error)
        with np.errstate(over="ignore"):
            middle = np.where(
                np.isinf(high),
                2.0 * u,
                np.where(low > 0.0, np.sqrt(low) * np.sqrt(np.where(np.isinf(high), 1.0, high)), 0.5 * u),
            )
        # NaN and infinite steps fail here; so does a step after one that did not halve the error.
        good = (step > low) & (step < high) & (size < 0.5 * last)
        u = np.where(good, step, middle)[keep]
        rows, low, high, last = rows[keep], low[keep], high[keep], size[keep]
    raise NotConvergedError(
        f"no threshold for {rows.size} pages in {_MAX_STEPS} steps, e.g. r={float(r[rows[0]])!r}, "
        f"kappa={float(kappa[rows[0]])!r}, depth={float(depth[rows[0]])!r}: please report these numbers"
    )


def guess(r: FloatArray, kappa: FloatArray, depth: FloatArray) -> FloatArray:
    """Threshold if h were linear, as it is in the end: u - log1p(theta u) = depth^2/2.

    theta = (1 + r p)/(1 + r kappa); exact without signals (theta = 1) and, but for steps, with all changes
    signalled (theta = p/kappa). Soon after the first jump it is 2 % too low; there the threshold is better
    taken as if the first signal ended every interval.
    """
    everything, y = 1.0 - r * np.expm1(-kappa), 0.5 * depth * depth
    u = linear_threshold(everything / (1.0 + r * kappa), y, steps=3)
    share = -np.expm1(-y) * (1.0 + r) / everything
    rows = np.flatnonzero((u < _SOON * kappa) & (share < 1.0))
    first = first_signal.solve(r[rows], -np.log1p(-share[rows]))[0]
    u[rows] = np.where(first < _SOON * kappa[rows], first, u[rows])
    return u


def linear_threshold(theta: FloatArray, y: FloatArray, steps: int) -> FloatArray:
    """u with u - log1p(theta u) = y, by Newton from above (the left side is convex), 0 < theta <= 1."""
    u = special.p2_inverse_log(y)
    for _ in range(steps):
        z = theta * u
        over = (1.0 - theta) * u + signal_terms.log_excess(z) - y
        u = np.maximum(u - over * (1.0 + z) / (1.0 - theta + z), y)
    return u


def full_recall_value(kappa: FloatArray, u: FloatArray) -> FloatArray:
    """g V/mu at u = kappa n where a = 0: (1-e^-u)/(1-e^-kappa) - (u/kappa) e^-u, without cancellation."""
    p = -np.expm1(-kappa)
    return special.p2(u) / kappa - np.expm1(-u) * signal_terms.jump_minus_precision(kappa) / (kappa * p)


def full_recall_between(kappa: FloatArray, m: FloatArray, u: FloatArray) -> FloatArray:
    """g V/mu where a = 0 and kappa (m-1) <= u <= kappa m: V of m-1 signals + m (e^-(kappa (m-1)) - e^-u)."""
    base = kappa * (m - 1.0)
    left = np.exp(-np.minimum(base, NEVER_FRESH))
    return full_recall_value(kappa, base) - m * left * np.expm1(-np.maximum(u - base, 0.0))


def full_recall_threshold(kappa: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Threshold and signals m where a = 0 and ``1 - Lambda D/mu = e^-y``, y >= 0 and finite.

    At whole numbers of signals ``1 - D V/mu = e^-u (1 + u p/kappa)``; m is the first that reaches Lambda.
    """
    p = -np.expm1(-kappa)
    theta = p / kappa
    lost = signal_terms.jump_minus_precision(kappa) / kappa  # 1 - theta
    m = np.maximum(np.ceil(linear_threshold(theta, y, steps=40) / kappa * (1.0 - 1e-12)), 1.0)
    # Rounding may have put m next to the right one.
    m = np.where((m > 1.0) & (_depth_of_signals(kappa, theta, lost, m - 1.0) >= y), m - 1.0, m)
    m = np.where(_depth_of_signals(kappa, theta, lost, m) < y * (1.0 - 1e-12), m + 1.0, m)
    # In between, m e^-u = (e^-y - e^-(kappa m))/p, counted here from the lower end.
    more = np.maximum(y - _depth_of_signals(kappa, theta, lost, m - 1.0), 0.0)
    fall = (1.0 + (m - 1.0) * p) * np.expm1(-more) / (p * m)
    clock = kappa * (m - 1.0) - np.log1p(np.clip(fall, np.expm1(-np.minimum(kappa, 36.0)), 0.0))
    return np.where(y > 0.0, clock, 0.0), m


def _depth_of_signals(kappa: FloatArray, theta: FloatArray, lost: FloatArray, m: FloatArray) -> FloatArray:
    """u - log1p(theta u) at u = kappa m."""
    u = kappa * m
    return lost * u + signal_terms.log_excess(theta * u)
