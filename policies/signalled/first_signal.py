"""Pages that are crawled at their first signal, or before it: thresholds and rates in closed form.

Until the clock shows one signal's weight the first signal ends every interval, whatever it weighs. So up to
u = kappa a page is crawled as if no signal were false: with h and H of `policies.signalled.terms`

    h = (1 - e^(-r u)) / r,   1 - (1 + r) H = e^-u (1 + h),   hence   u - log1p(h) = y

where ``y = -log(1 - Lambda (a + g) / mu)``. The rate is a w with w = 1/h, which obeys

    dw/dy = -w (w - r) (w + 1) / (1 + r)
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.numerics.typing_ import FloatArray
from policies.signalled.terms import jump_minus_precision, log_excess

_REACH: Final = 0.01
"""Of y, relative, that a series covers: it is off by at most 8e-11 then (r from 1e-9 to 1e9, y to 37)."""

_MOST: Final = 30.0
_CHUNK: Final = 4096
_CANCELS: Final = 0.03  # (1 + r) u below which u - log1p(h) loses more than two digits


@dataclass(frozen=True, slots=True)
class Series:
    """Where the Taylor series of w in y are centred, one a page.

    Attributes
    ----------
    y : (n,) float64
        0 where there is none.
    w, slope : (n,) float64
        w and dw/dy there.
    """

    y: FloatArray
    w: FloatArray
    slope: FloatArray

    @classmethod
    def of(cls, r: FloatArray, y: FloatArray) -> "Series":
        """Around `y` > 0, (n,); `r` > 0."""
        u, w = solve(r, y)
        # w - r is w e^(-r u), but for rounding.
        return cls(y, w, -w * w * np.exp(-r * u) * (w + 1.0) / (1.0 + r))

    def _coefficients(self, r: FloatArray) -> tuple[FloatArray, ...]:
        w, p0, k = self.w, self.slope, -1.0 / (1.0 + r)
        # w' = P(w), a cubic; its derivatives in w.
        p1 = k * ((3.0 * w + 2.0 * (1.0 - r)) * w - r)
        p2 = k * (6.0 * w + 2.0 * (1.0 - r))
        c2 = p1 * p0 / 2.0
        c3 = (p2 * p0 + p1 * p1) * p0 / 6.0
        return w, p0, c2, c3, ((6.0 * k * p0 + 4.0 * p2 * p1) * p0 + p1 * p1 * p1) * p0 / 24.0

    def rates(self, r: FloatArray, y: FloatArray) -> FloatArray:
        """w at `y`, (k, n): by the series where they reach, else solved."""
        d = y - self.y
        found = _polynomial(self._coefficients(r), d)
        np.abs(d, out=d)
        at = np.nonzero(~(d <= _REACH * self.y))
        if at[0].size:
            found[at] = solve(r[at[1]], y[at])[1]
        return found

    def reach(self) -> FloatArray:
        """How far a multiplier may be off, relative, for `rates_near`: (n,) float64."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.y > 0.0, _REACH * np.minimum(self.y, 1.0) / np.expm1(self.y), -1.0)

    def rates_near(self, r: FloatArray, t: FloatArray) -> FloatArray:
        """w at multipliers of 1 + t times that of the series, (k, 1), all within `reach`: (k, n) float64."""
        w, c1, c2, c3, c4 = self._coefficients(r)
        # y moves by -log(1 - q t).
        q = np.expm1(self.y)
        c4 = (c4 + 1.5 * c3 + 11.0 / 12.0 * c2 + 0.25 * c1) * (q * q) * (q * q)
        c3 = (c3 + c2 + c1 / 3.0) * (q * q) * q
        return _polynomial((w, c1 * q, (c2 + 0.5 * c1) * (q * q), c3, c4), t)


def _polynomial(coefficients: tuple[FloatArray, ...], x: FloatArray) -> FloatArray:
    """The polynomial with these coefficients, lowest power first, at `x`."""
    found: FloatArray = coefficients[-1] * x
    for coefficient in coefficients[-2:0:-1]:
        found += coefficient
        found *= x
    found += coefficients[0]
    return found


def value_at_first(r: FloatArray, kappa: FloatArray) -> FloatArray:
    """Lambda (a + g) / mu up to which surely u <= kappa, (n,) float64; `r` and `kappa` > 0, or inf."""
    v = (1.0 + r) * kappa
    with np.errstate(invalid="ignore"):
        depth = kappa - np.log1p(np.expm1(-r * kappa) / -r)
        # For small v it is v^2 (1/2 - v (2 + r) / (6 (1 + r)) + ..) / (1 + r), and rounding counts.
        depth = np.where(v < 1e-5, 0.5 * v * kappa * (1.0 - v), depth)
    # A little less, and far enough below 1 that rounding does not make it 1.
    share: FloatArray = -np.expm1(-np.minimum(depth * (1.0 - 1e-9), _MOST))
    return share


def solve(r: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """u and w at `y`, (n,) float64 like `r`, > 0 and finite; 1e-14 relative.

    In ``v = (1 + r) u`` and ``z = sqrt(2 (1 + r) y)`` the curve v(z) lies between those of r = 0 and r = inf:
    ``z^2/2 + z / (1 + c z)``, with c from its series at 0, is within 10 %. Two steps of Halley's do the rest.
    """
    u, w = np.empty((2, y.size))
    for start in range(0, y.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        u[part], w[part] = _solve(r[part], y[part])
    return u, w


def _solve(r: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    total = 1.0 + r
    z = np.sqrt(2.0 * total * y)
    u = y + z / (total + (1.0 + 2.0 * r) / 6.0 * z)
    for step in range(2):
        miss = np.expm1(-r * u)
        h = miss / -r
        excess = u - np.log1p(h)
        if step:
            near = np.flatnonzero(z < _CANCELS)
            excess[near] = log_excess(h[near]) + jump_minus_precision(r[near] * u[near]) / r[near]
        excess -= y
        more = 1.0 + h
        excess *= more / (total * h)
        u -= excess / (1.0 - 0.5 * excess * (1.0 + miss) / (h * more))
    return u, -r / np.expm1(-r * u)
