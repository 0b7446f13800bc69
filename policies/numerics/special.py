"""The special functions of Poisson crawling: P(2, x), its inverse, and what follows from them.

P(2, x) = 1 - (1 + x) e^-x is the regularised lower incomplete gamma function of shape 2. A page that changes
at rate Delta and is crawled every t days has crawl value (mu / Delta) P(2, Delta t), so a multiplier fixes
its interval through the inverse (Azar et al., "Tractable near-optimal policies for crawling", section 3).
"""

from typing import Final

import numpy as np

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

CHUNK: Final = 8192
"""Rows per pass: the scratch of one chunk stays in the cache of a core."""

LARGEST_BELOW_ONE: Final = 1.0 - 2.0**-53

SURE: Final = 2.0
"""Standard errors beyond which a difference is not taken for chance."""

HALF_95: Final = 1.96
"""Standard errors from the middle of a 95 % range to its ends."""

_SERIES_BELOW: Final = 0.7
# sum_k x^k / (k+2)!, highest power first.
_P2_SERIES: Final = tuple(1.0 / float(np.prod(np.arange(1.0, k + 3.0))) for k in range(13, -1, -1))

# x / e as a polynomial in e = sqrt(2 y), fitted on [0, 1.25] and on [1.25, 9]; lowest power first.
_SPLIT: Final = 1.25
_START_END: Final = 9.0
_SMALL: Final = (
    1.2183193837302182, 0.22748344790349218, 0.008386786255758222, -0.0007314020826633842,
    4.6292789819612974e-05, -2.1287114944495052e-07, -5.205989139560672e-07, 9.799772447279657e-08,
    -1.0798230527725072e-08, 5.371752430471619e-10, 7.624189281485359e-11, -2.5384419991816188e-11,
    3.944130911392106e-12, -3.630149098619004e-13, 2.381022203708319e-15, 6.610987143932719e-15,
    -1.5012170711633824e-15, 1.9151405334709577e-16, -1.090446047220989e-17,
)  # fmt: skip
_START: Final = (
    3.1149073070678894, 1.7625613547892431, 0.06359627641726757, -0.023830464049255675,
    0.008881278397112552, -0.003227931610790903, 0.001146636346623177, -0.00038363778474678604,
    8.754480517670709e-05, -4.201609958233392e-06,
)  # fmt: skip


def p2(x: FloatArray) -> FloatArray:
    """P(2, x) = 1 - (1 + x) e^-x, to about 4e-16 relative.

    Parameters
    ----------
    x : (n,) float64, >= 0
        Expected number of changes (no unit). inf gives 1.

    Returns
    -------
    (n,) float64
    """
    x = np.asarray(x, dtype=np.float64)
    out = np.empty(x.shape)
    flat_x, flat_out = x.ravel(), out.reshape(-1)
    for start in range(0, flat_x.size, CHUNK):
        part = slice(start, start + CHUNK)
        flat_out[part] = _p2_chunk(flat_x[part])
    return out


def _p2_chunk(x: FloatArray) -> FloatArray:
    is_small = x < _SERIES_BELOW
    large = np.minimum(x, 800.0)  # e^-800 is 0 already; keeps inf * 0 away
    direct = 1.0 - (1.0 + large) * np.exp(-large)
    if not np.any(is_small):
        return direct
    small = np.minimum(x, _SERIES_BELOW)
    series = np.full(x.shape, _P2_SERIES[0])
    for coefficient in _P2_SERIES[1:]:
        series *= small
        series += coefficient
    series *= small * small * np.exp(-small)
    return np.where(is_small, series, direct)


def mean_survival(x: FloatArray) -> FloatArray:
    """(1 - e^-x) / x, the mean of e^-s over [0, x]: freshness of a page with x changes per crawl.

    Parameters
    ----------
    x : (n,) float64, >= 0
        1 at x = 0, 0 at x = inf.

    Returns
    -------
    (n,) float64
    """
    x = np.asarray(x, dtype=np.float64)
    zero = x == 0.0
    return np.where(zero, 1.0, -np.expm1(-x) / np.where(zero, 1.0, x))


class P2Inverter:
    """Inverts P(2, .) chunk by chunk in scratch that is allocated once.

    Not safe to share between threads.
    """

    __slots__ = ("_a", "_b", "_c", "_e", "_mask", "_sub", "_y", "_z")

    def __init__(self) -> None:
        self._y, self._z, self._e, self._a, self._b, self._c, self._sub = np.empty((7, CHUNK))
        self._mask: BoolArray = np.empty(CHUNK, dtype=np.bool_)

    def scratch(self, n: int) -> FloatArray:
        """An (n,) view of scratch for callers that work on one chunk; the next call overwrites it."""
        return self._y[:n]

    def from_probability(self, c: FloatArray, out: FloatArray) -> None:
        """x with P(2, x) = c into `out`; both (n,), n <= CHUNK, 0 <= c < 1."""
        y = self._y[: c.size]
        np.negative(c, out=y)
        np.log1p(y, out=y)
        np.negative(y, out=y)
        self.from_log(y, out)

    def from_log(self, y: FloatArray, out: FloatArray) -> None:
        """x with x - log1p(x) = y into `out`; both (n,), n <= CHUNK, 0 <= y < inf.

        A polynomial in e = sqrt(2 y) below e = 1.25. Above it a shorter one and a Halley step on the log
        form, which is well conditioned where P(2, x) itself is flat.
        """
        n = y.size
        e = self._e[:n]
        np.add(y, y, out=e)
        np.sqrt(e, out=e)
        is_large = self._mask[:n]
        np.greater_equal(e, _SPLIT, out=is_large)
        n_large = int(np.count_nonzero(is_large))
        if n_large == 0:
            self._small(e, out)
        elif n_large == n:
            self._large(y, e, out)
        else:
            large = np.flatnonzero(is_large)
            np.logical_not(is_large, out=is_large)
            small = np.flatnonzero(is_large)
            self._scatter(y, e, small, out, is_small=True)
            self._scatter(y, e, large, out, is_small=False)

    def _scatter(self, y: FloatArray, e: FloatArray, rows: IntArray, out: FloatArray, is_small: bool) -> None:
        part_e, part_out = self._c[: rows.size], self._sub[: rows.size]
        np.take(e, rows, out=part_e, mode="clip")
        if is_small:
            self._small(part_e, part_out)
        else:
            part_y = self._z[: rows.size]
            np.take(y, rows, out=part_y, mode="clip")
            self._large(part_y, part_e, part_out)
        out[rows] = part_out

    def _small(self, e: FloatArray, out: FloatArray) -> None:
        s, acc = self._a[: e.size], out
        np.multiply(e, 2.0 / _SPLIT, out=s)
        s -= 1.0
        _horner(_SMALL, s, acc)
        np.multiply(acc, e, out=out)

    def _large(self, y: FloatArray, e: FloatArray, out: FloatArray) -> None:
        s, work, x = self._a[: e.size], self._b[: e.size], out
        half = 0.5 * (_START_END - _SPLIT)
        np.minimum(e, _START_END, out=s)
        s -= _SPLIT + half
        s *= 1.0 / half
        _horner(_START, s, x)
        x *= e
        if float(e.max()) > _START_END:
            self._far(y, e, x)
        # Halley on g(x) = x - log1p(x) - y: g' = x/(1+x), g'' = 1/(1+x)^2, hence
        # step = g (1+x) x / (x^2 - g/2).
        np.log1p(x, out=s)
        np.subtract(x, s, out=s)
        s -= y
        np.multiply(x, x, out=work)
        np.multiply(s, 0.5, out=e)
        work -= e
        np.divide(s, work, out=s)
        np.add(x, 1.0, out=work)
        work *= x
        s *= work
        x -= s

    @staticmethod
    def _far(y: FloatArray, e: FloatArray, x: FloatArray) -> None:
        """Starts beyond the polynomial's range, which no double c < 1 reaches: two Newton steps."""
        rows = np.flatnonzero(e > _START_END)
        target = y[rows]
        guess = target + np.log1p(target + np.log1p(target))
        for _ in range(2):
            guess -= (guess - np.log1p(guess) - target) * (1.0 + guess) / guess
        x[rows] = guess


def _horner(coefficients: tuple[float, ...], s: FloatArray, acc: FloatArray) -> None:
    np.multiply(s, coefficients[-1], out=acc)
    acc += coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        acc *= s
        acc += coefficient


def p2_inverse(c: FloatArray) -> FloatArray:
    """x with P(2, x) = c.

    Parameters
    ----------
    c : (n,) float64 in [0, 1]

    Returns
    -------
    (n,) float64
        0 at c = 0, inf at c = 1; relative error about 3e-16.

    Raises
    ------
    ValueError
        A value outside [0, 1], or NaN.
    """
    c = np.asarray(c, dtype=np.float64)
    if c.size and not (0.0 <= float(c.min()) and float(c.max()) <= 1.0):
        raise ValueError(f"p2_inverse needs 0 <= c <= 1, got {float(c.min())!r} to {float(c.max())!r}")
    out = np.empty(c.shape)
    inverter = P2Inverter()
    flat_c, flat_out = c.ravel(), out.reshape(-1)
    clipped = np.empty(CHUNK)
    for start in range(0, flat_c.size, CHUNK):
        chunk = flat_c[start : start + CHUNK]
        below_one = clipped[: chunk.size]
        np.minimum(chunk, LARGEST_BELOW_ONE, out=below_one)
        inverter.from_probability(below_one, flat_out[start : start + CHUNK])
    if flat_c.size and float(flat_c.max()) == 1.0:
        out[c == 1.0] = np.inf
    return out


def p2_inverse_log(y: FloatArray) -> FloatArray:
    """x with x - log1p(x) = y, that is P(2, x) = 1 - e^-y, accurate for every y.

    Parameters
    ----------
    y : (n,) float64, >= 0
        -log(1 - c). 0 gives 0, inf gives inf.

    Returns
    -------
    (n,) float64

    Raises
    ------
    ValueError
        A negative value, or NaN.
    """
    y = np.asarray(y, dtype=np.float64)
    if y.size and not float(y.min()) >= 0.0:
        raise ValueError(f"p2_inverse_log needs y >= 0, got {float(y.min())!r}")
    out = np.empty(y.shape)
    inverter = P2Inverter()
    flat_y, flat_out = np.minimum(y.ravel(), 1e30), out.reshape(-1)
    for start in range(0, flat_y.size, CHUNK):
        inverter.from_log(flat_y[start : start + CHUNK], flat_out[start : start + CHUNK])
    if y.size and float(y.max()) > 1e30:
        out[y > 1e30] = y[y > 1e30]  # log1p(x) is far below an ulp of x
    return out
