"""Sums of Poisson probabilities behind the crawl value of a page with signals, in dimensionless form.

A page's clock ``u`` runs at speed 1 and jumps by `kappa` at every signal; there are `r` signals per unit of
the clock's own running. With ``y_i = r (u - kappa i)``, over the terms with y_i > 0:

    h(u) = (1/r) sum_i P(i+1, y_i)              mean running time until the clock reaches u
    H(u) = int_0^u e^-s h(s) ds = (1/r) sum_i e^(-kappa i) T_i,
           T_i = (1+1/r)^-(i+1) P(i+1, (1+1/r) y_i) - e^-(u - kappa i) P(i+1, y_i)  > 0
    h' = sum_i pois(i; y_i);   each further derivative is r times the backward difference of pois in i

P is the regularised lower incomplete gamma function. h is the renewal function of the jumps with a drift:
h' = 1 - r (h(u) - h(u - kappa)), which gives a second form of H that needs one recurrence over the Poisson
probabilities only (`_direct`), and for u many jumps long a form without any sum (`_renewal`).
(Busa-Fekete et al., "A Scalable Crawling Algorithm Utilizing Noisy Change-Indicating Signals", theorem 1.)
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln

from policies.numerics import special
from policies.numerics.lookup import places
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray

CHUNK: Final = 4096
"""Pages per pass: about twenty arrays of one chunk stay in the second-level cache."""

MOST_DIRECT: Final = 24
"""Terms up to which the triangular recurrence is used; its cost is quadratic in them."""

_PAIRS_DIRECT: Final = 16384  # (page, term) pairs per pass of the triangular recurrence
_PAIRS: Final = 32768  # (page, term) pairs per pass of the long sums
_TINY_X: Final = 0.5  # (1 + r) u below which H is the difference of nearly equal numbers
_TINY_TERMS: Final = 14  # 0.5^15 / 15! is below 1e-16
_FORGOTTEN: Final = 46.0  # e^-46 = 1e-20: what is left of the start in the renewal form
_REMEMBERED: Final = 2.0  # jumps within which nothing is forgotten that counts
_LARGEST_Y: Final = 700.0  # e^-700 is still a normal number, and P(i+1, 700) = 1 for i <= MOST_DIRECT
_NEVER_FRESH: Final = 745.0  # e^-745 is the last number above 0


@dataclass(frozen=True, slots=True)
class Terms:
    """h and H at one clock reading a page, with derivatives of h.

    Attributes
    ----------
    h, value : (n,) float64
        h(u) and H(u).
    rest : (n,) float64
        1 - H(u)/H(inf), with full relative precision where it is small.
    d1, d2, d3, d4 : (n,) float64
        The first four derivatives of h in u.
    """

    h: FloatArray
    value: FloatArray
    rest: FloatArray
    d1: FloatArray
    d2: FloatArray
    d3: FloatArray
    d4: FloatArray


def evaluate(r: FloatArray, kappa: FloatArray, run: FloatArray, signals: FloatArray) -> Terms:
    """h, H and derivatives where the clock ran for `run` and jumped `signals` times.

    Parameters
    ----------
    r : (n,) float64, > 0 and finite
        Signal rate over unsignalled change rate.
    kappa : (n,) float64, > 0 and finite
        Jump of the clock at a signal. Cap an infinite one at 1e18 where `signals` is 0.
    run : (n,) float64, >= 0 and finite
        Unsignalled rate times time since the crawl.
    signals : (n,) float64, >= 0
        Signals since the crawl. ``u = run + kappa signals``; both are taken, since their sum loses `run`.

    Returns
    -------
    Terms

    Notes
    -----
    The result of a page depends on that page alone, to the bit. Relative error about 1e-15, a few 1e-13
    where thousands of terms count.
    """
    n = r.size
    out = Terms(*(np.zeros(n) for _ in fields(Terms)))
    jumps = signals + run / kappa  # u in jumps
    u = run + kappa * signals
    is_tiny = (1.0 + r) * u < _TINY_X
    is_renewal = ~is_tiny & (jumps > _REMEMBERED)
    rows = np.flatnonzero(is_renewal)
    is_renewal[rows] = jumps[rows] * _forgetting(r[rows] * kappa[rows]) > _FORGOTTEN
    count = np.where(is_tiny, np.minimum(jumps, _TINY_TERMS - 1.0), jumps)
    count = np.floor(np.where(is_renewal, 0.0, count)) + 1.0
    is_long = ~is_renewal & (count > MOST_DIRECT)
    # Pages of like numbers of terms together: a pass costs what its longest page costs.
    key = np.where(is_renewal, 200, np.where(is_long, 201, np.where(is_tiny, 100, 0) + np.minimum(count, 99)))
    key = key.astype(np.uint8)
    order = np.argsort(key, kind="stable")
    ends = np.searchsorted(key[order], np.array([100, 200, 201], dtype=np.uint8))
    bounds = [0, *(int(end) for end in ends), n]
    pairs = np.concatenate([[0.0], np.cumsum(count[order])])
    for kind, first, last in zip(("direct", "tiny", "renewal", "long"), bounds, bounds[1:], strict=False):
        start = first
        while start < last:
            enough = int(np.searchsorted(pairs, pairs[start] + _PAIRS_DIRECT))
            stop = min(max(enough, start + 1), start + CHUNK, last)
            # Descending number of terms: the pages that have a term are a prefix.
            rows, start = order[start:stop][::-1], stop
            part = r[rows], kappa[rows], run[rows], signals[rows]
            if kind == "renewal":
                result = _renewal(part[0], part[1], u[rows])
            elif kind == "long":
                result = _long(*part, u[rows])
            else:
                result = _direct(*part, count[rows].astype(np.int64), u[rows], kind == "tiny")
            for field in fields(Terms):
                getattr(out, field.name)[rows] = getattr(result, field.name)
    return out


def _direct(
    r: FloatArray,
    kappa: FloatArray,
    run: FloatArray,
    signals: FloatArray,
    count: IntArray,
    u: FloatArray,
    is_tiny: bool,
) -> Terms:
    """Few terms; `count` descends.

    From the equation of h: ``(1+r) H(u) = 1 - e^-u - e^-u h(u) + r e^-kappa H(u - kappa)``. Unrolled, H is a
    sum over the terms' clocks u_l = u - kappa l of
    ``q^l (1 - e^-u_l) - (e^-u / r) sum_{j<=l} s^(l-j) P(j+1, y_l)``, with q = e^-kappa r/(1+r), s = r/(1+r):
    everything comes from running P(., y_l) up from P(1, y_l). ``int_u^inf`` obeys the same equation.
    """
    n = r.size
    # Pairs of page and term, later terms first: those that have a step of the recurrence left are a prefix.
    sizes = np.searchsorted(-count, -np.arange(int(count[0]) if n else 0), side="left")[::-1]
    ends = np.cumsum(sizes)
    row = places(sizes)
    term = np.repeat(np.arange(sizes.size - 1.0, -1.0, -1.0), sizes)
    s = (r / (1.0 + r))[row]
    clock = np.maximum(run[row] + kappa[row] * (signals[row] - term), 0.0)
    y = np.minimum(r[row] * clock, _LARGEST_Y)
    pois = np.exp(-y)
    below = -np.expm1(-y)  # P(1, y), with full relative precision
    inner, power_s = below.copy(), np.ones(row.size)
    for j, end in enumerate(ends[-2::-1], 1):
        pois[:end] *= y[:end]
        pois[:end] *= 1.0 / j
        below[:end] -= pois[:end]
        inner[:end] *= s[:end]
        inner[:end] += below[:end]
        power_s[:end] *= s[:end]

    def total(values: FloatArray) -> FloatArray:
        # Added strictly in order: a page's sum does not depend on its neighbours.
        return sum_by(row, values, n)

    discount = np.exp(-kappa[row] * term)
    d1, d2, d3, d4 = (total(column) for column in _differences(term, y, pois))
    h = total(below) / r
    everything = 1.0 - r * np.expm1(-kappa)
    if is_tiny:
        first = pois * y / (term + 1.0)  # pois(i+1; y)
        value = total(discount * first * _small_term(term, clock, y)) / r
        rest = 1.0 - everything * value
    else:
        left = np.exp(-np.minimum(u, _NEVER_FRESH))
        stale = total(inner) * left / r
        value = (total(-discount * power_s * np.expm1(-clock)) - stale) / (1.0 + r)
        # The same for the integral from u to infinity, where all has the same sign.
        beyond = (r / (1.0 + r) * np.exp(-kappa)) ** count
        rest = everything * (left * total(power_s) + stale) / (1.0 + r) + beyond
    return Terms(h, value, rest, d1, r * d2, r * r * d3, r * r * r * d4)


def _differences(i: FloatArray, y: FloatArray, pois: FloatArray) -> tuple[FloatArray, ...]:
    """pois(i; y), given, and its first three backward differences in i."""
    safe = np.maximum(y, 1e-300 * np.maximum(i, 1.0))  # the quotients stay finite; below it pois is 0
    p1 = pois * (i / safe)
    p2 = p1 * ((i - 1.0) / safe)
    p3 = p2 * ((i - 2.0) / safe)
    return pois, p1 - pois, p2 - 2.0 * p1 + pois, p3 - 3.0 * (p2 - p1) - pois


def _small_term(i: float | FloatArray, clock: FloatArray, y: FloatArray) -> FloatArray:
    """T_i / pois(i+1; y) as a power series, for x = clock + y <= i + 12.

    ``e^-clock sum_k ((clock + y)^k - y^k) / ((i+2) .. (i+k+1))``; the differences by recurrence, without
    cancellation.
    """
    x = clock + y
    difference = clock / (i + 2.0)
    power = y / (i + 2.0)
    total = difference.copy()
    for k in range(1, 400):
        step = 1.0 / (i + (k + 2.0))
        difference = (difference * x + power * clock) * step
        power = power * y * step
        total += difference
        # All pages go on until all are done: what is added after that does not change a bit. The ratio of
        # terms is below 1 from k = 10 on.
        if k >= 11 and not np.any(difference > 2e-17 * total):
            break
    return np.exp(-clock) * total


def _renewal(r: FloatArray, kappa: FloatArray, u: FloatArray) -> Terms:
    """Many jumps: the start is forgotten but for a constant.

    ``h = (u + r kappa^2 / (2 (1+b))) / (1+b)`` with b = r kappa, up to e^-_FORGOTTEN.
    """
    b = r * kappa
    slope = 1.0 / (1.0 + b)
    jump = b * kappa * slope
    h = (u + 0.5 * jump) * slope
    lost = jump_minus_precision(kappa)  # kappa - p
    # K = r/(B D) ((kappa-p) r kappa^2/(2B) - (kappa^2/2 - kappa + p)), B = 1+b, D = 1 + r p; both parts are
    # of third order in kappa.
    third = _third_order(kappa)
    everything = 1.0 - r * np.expm1(-kappa)
    constant = r * slope / everything * (0.5 * lost * jump - third)
    value = special.p2(u) * slope - 0.5 * jump * slope * np.expm1(-u) + constant
    left = np.exp(-np.minimum(u, _NEVER_FRESH))
    rest = everything * slope * left * (1.0 + u + 0.5 * jump)
    zero = np.zeros(r.size)
    return Terms(h, value, rest, slope, zero, zero, zero)


def _long(r: FloatArray, kappa: FloatArray, run: FloatArray, signals: FloatArray, u: FloatArray) -> Terms:
    """Many terms: those with P(i+1, y_i) = 1 summed in closed form, the others by pairs (page, term)."""
    n = r.size
    jumps = signals + run / kappa
    b = r * kappa
    crossing = b * jumps / (1.0 + b)  # the term with y_i = i
    width = 9.0 * np.sqrt(crossing)
    full = np.clip(np.floor(crossing - (40.0 + width) / (1.0 + b)) + 1.0, 0.0, None)
    last = np.minimum(np.floor(jumps), np.ceil(crossing + (20.0 + width) / (1.0 + b)))
    pairs = np.maximum(last - full + 1.0, 0.0).astype(np.int64)
    sums = np.zeros((7, n))
    ends = np.cumsum(pairs)
    start = 0
    while start < n:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _PAIRS, side="right")))
        rows = np.repeat(np.arange(start, stop), pairs[start:stop])
        first = np.repeat(ends[start:stop] - pairs[start:stop] - before, pairs[start:stop])
        i = full[rows] + (np.arange(rows.size) - first)
        clock = np.maximum(run[rows] + kappa[rows] * (signals[rows] - i), 0.0)
        t, below, *differences = _pair(i, r[rows], clock)
        discount = np.exp(-np.minimum(kappa[rows] * i, _NEVER_FRESH))
        tail = np.exp(-(i + 1.0) * np.log1p(1.0 / r[rows])) * gammaincc(i + 1.0, (1.0 + r[rows]) * clock)
        columns = (below, discount * t, *differences, discount * tail)
        for total, column in zip(sums, columns, strict=True):
            # bincount adds strictly in order: a page's sum does not depend on its neighbours.
            total[start:stop] = np.bincount(rows - start, column, minlength=stop - start)
        start = stop
    h = (full + sums[0]) / r
    value = (_full_terms(r, kappa, u, full) + sums[1]) / r
    everything = 1.0 - r * np.expm1(-kappa)
    beyond = np.exp(-np.minimum((kappa + np.log1p(1.0 / r)) * (last + 1.0), _NEVER_FRESH))
    tail = everything * (np.exp(-np.minimum(u, _NEVER_FRESH)) * h + sums[6] / r) + beyond
    rest = np.where(u > 1.0, tail, 1.0 - everything * value)
    return Terms(h, value, rest, sums[2], r * sums[3], r * r * sums[4], r * r * r * sums[5])


def _full_terms(r: FloatArray, kappa: FloatArray, u: FloatArray, full: FloatArray) -> FloatArray:
    """sum_{i < full} e^(-kappa i) T_i where both P are 1, hence e^-u (e^(u - l - (kappa+l) i) - 1).

    l = log1p(1/r). For small u as ``full (expm1(c) S + (S - 1))`` with the middle exponent c and
    S = sinh(full z) / (full sinh z), z = (kappa + l)/2.
    """
    shift = np.log1p(1.0 / r)
    step = kappa + shift
    many = np.maximum(full, 1.0)
    far = np.exp(-shift) * np.expm1(-np.minimum(step * many, _NEVER_FRESH)) / np.expm1(-step)
    far -= many * np.exp(-np.minimum(u, _NEVER_FRESH))
    is_far = u > 1.0
    z = np.where(is_far, 0.0, 0.5 * step)
    middle = np.where(is_far, 0.0, u - shift - 0.5 * step * (many - 1.0))
    bump = (_sinh_excess(many * z) - _sinh_excess(z)) / (1.0 + _sinh_excess(z))
    near = np.exp(-np.where(is_far, 0.0, u)) * many * (np.expm1(middle) * (1.0 + bump) + bump)
    return np.where(full >= 1.0, np.where(is_far, far, near), 0.0)


def _sinh_excess(x: FloatArray) -> FloatArray:
    """sinh(x)/x - 1 for 0 <= x <= 2, to a few 1e-16 relative."""
    square = x * x
    total = np.zeros(x.shape)
    for k in range(11, 0, -1):
        total = square / ((2.0 * k) * (2.0 * k + 1.0)) * (1.0 + total)
    return total


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)


def _pair(i: FloatArray, r: FloatArray, clock: FloatArray) -> tuple[FloatArray, ...]:
    """T_i, P(i+1, y_i), pois(i; y_i) and its first three differences for pairs of page and term.

    T as a power series for small x, by its definition where that does not cancel, else with the difference
    of the two P as an integral of length <= 0.5.
    """
    y = r * clock
    x = clock + y
    below = gammainc(i + 1.0, y)
    pois = poisson(i, y)
    t = np.empty(i.size)
    # The series takes about 9 sqrt(i) terms. For large i the others lose next to nothing even below x = i.
    is_small = (x <= i + 12.0) & (i < 200.0)
    is_far = ~is_small & (clock > 0.5)
    rows = np.flatnonzero(is_small)
    t[rows] = poisson(i[rows] + 1.0, y[rows]) * _small_term(i[rows], clock[rows], y[rows])
    rows = np.flatnonzero(is_far)
    t[rows] = np.exp(-(i[rows] + 1.0) * np.log1p(1.0 / r[rows])) * gammainc(i[rows] + 1.0, x[rows])
    t[rows] -= np.exp(-np.minimum(clock[rows], _NEVER_FRESH)) * below[rows]
    rows = np.flatnonzero(~is_small & ~is_far)
    a, low, index = clock[rows], y[rows], i[rows]
    middle = np.zeros(rows.size)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        middle += weight * poisson(index, low + 0.5 * a * (1.0 + node))
    lift = a - (index + 1.0) * np.log1p(1.0 / r[rows])
    t[rows] = np.exp(-a) * (gammainc(index + 1.0, x[rows]) * np.expm1(lift) + 0.5 * a * middle)
    return t, below, *_differences(i, y, pois)


def poisson(i: FloatArray, y: FloatArray) -> FloatArray:
    """pois(i; y) = e^-y y^i / i!, (n,) float64 for whole i >= 0 and y >= 0.

    From i = 16 on with Stirling's series and the deviance (Loader, "Fast and accurate computation of
    binomial probabilities"), since log i! has an absolute error that grows with i.
    """
    safe = np.maximum(y, 1e-300)
    small = np.minimum(i, 16.0)
    direct = small * np.log(safe) - safe - gammaln(small + 1.0)
    n = np.maximum(i, 16.0)
    over = np.maximum((safe - n) / n, -1.0 + 1e-12)  # below it the probability is 0 to double precision
    square = 1.0 / (n * n)
    stirling = (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - square / 1680.0) * square) * square) / n
    deviance = n * (over - np.log1p(over)) + 0.5 * np.log(2.0 * np.pi * n) + stirling
    probability: FloatArray = np.exp(-np.minimum(np.where(i < 16.0, -direct, deviance), _NEVER_FRESH + 5.0))
    return probability


def truncated(
    r: FloatArray, kappa: FloatArray, run: FloatArray, signals: FloatArray, terms: int
) -> FloatArray:
    """The first `terms` terms of H: (1/r) sum_{i < terms} e^(-kappa i) T_i, (n,) float64."""
    total = np.zeros(r.size)
    for i in range(terms):
        clock = run + kappa * (signals - i)
        rows = np.flatnonzero(clock > 0.0)
        if rows.size == 0:
            break
        t = _pair(np.full(rows.size, float(i)), r[rows], clock[rows])[0]
        total[rows] += np.exp(-np.minimum(kappa[rows] * i, _NEVER_FRESH)) * t
    return total / r


def jump_minus_precision(kappa: FloatArray) -> FloatArray:
    """kappa - p = kappa - 1 + e^-kappa >= 0, relative error a few 1e-16."""
    x = np.minimum(kappa, 1.0)
    series = np.zeros(x.shape)
    for k in range(19, 1, -1):
        series = (1.0 - series) * x / k
    series *= x
    return np.where(kappa < 1.0, series, kappa + np.expm1(-kappa))


def log_excess(z: FloatArray) -> FloatArray:
    """z - log1p(z), without cancellation for small z >= 0."""
    small = np.minimum(z, 0.05)
    series = np.zeros(z.shape)
    for k in range(12, 1, -1):
        series = small * (1.0 / k - series)
    return np.where(z < 0.05, small * series, z - np.log1p(z))


def _third_order(kappa: FloatArray) -> FloatArray:
    """kappa^2/2 - kappa + p > 0, of third order in kappa."""
    x = np.minimum(kappa, 1.0)
    series = np.zeros(x.shape)
    for k in range(20, 2, -1):
        series = (1.0 - series) * x / k
    series *= 0.5 * x * x
    return np.where(kappa < 1.0, series, (0.5 * kappa - 1.0) * kappa - np.expm1(-kappa))


def _forgetting_table() -> tuple[FloatArray, FloatArray]:
    """log b, and how fast h comes to its asymptote per jump: b - Re z, with z e^z = b e^b, z next to b."""
    log_b = np.linspace(np.log(1e-9), np.log(1e7), 400)
    b = np.exp(log_b)
    target = b + log_b + 2j * np.pi
    z = np.where(b > 3.0, b + 2j * np.pi * b / (1.0 + b), target - np.log(target))
    for _ in range(60):
        z = z - (z + np.log(z) - target) * z / (1.0 + z)
    return log_b, b - z.real


_LOG_B, _RATE = _forgetting_table()


def _forgetting(b: FloatArray) -> FloatArray:
    """Decay rate of the start's influence on h per jump; it falls with b, and is 0 beyond b = 1e7."""
    return np.interp(np.log(b), _LOG_B, _RATE, right=0.0)
