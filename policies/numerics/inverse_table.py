"""A table of 1 / x over c = P(2, x), crawls per change at a multiplier, at half the cost of the inverse."""

from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np

from policies.numerics.special import CHUNK, P2Inverter, p2_inverse_log
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

_NODES: Final = (-974, -602, 0, 602, 974)  # of 1024: near the Chebyshev nodes of half a bin
_DEGREE: Final = len(_NODES) - 1
_SHIFT: Final = 45  # of a double's bits: 128 bins an octave
_PLACE: Final = np.int64((1 << _SHIFT) - 1)
_ONE: Final = np.int64(1023 << 52)
_MIDDLE: Final = 1.0 + 2.0**-8
_LOW_FIRST: Final = (1023 - 40) << 7  # bins of c from 2^-40
_HIGH_FIRST: Final = (1023 - 53) << 7  # bins of 1 - c from 2^-53
_END: Final = ((1023 - 1) << 7) + 1  # both end with the bin that begins at 1/2
_LEAST: Final = 2.0**-40
_JUMP: Final = _END - _LOW_FIRST - _HIGH_FIRST + _LOW_FIRST


def _interpolation() -> list[list[float]]:
    """Coefficients, lowest power first, of the polynomials that are 1 at one node and 0 at the others."""
    nodes = [Fraction(node, 1024) for node in _NODES]
    rows = []
    for j, own in enumerate(nodes):
        powers = [Fraction(1)]
        for other in nodes[:j] + nodes[j + 1 :]:
            scale = 1 / (own - other)
            up, down = [Fraction(0), *powers], [*powers, Fraction(0)]
            powers = [(a - other * b) * scale for a, b in zip(up, down, strict=True)]
        rows.append([float(power) for power in powers])
    return rows


@cache
def _coefficients() -> FloatArray:
    """(degree + 1, bins): in each bin 1/x as a polynomial in the distance from its middle.

    1/x is smooth in log c below 1/2 and in log(1 - c) above, so bins of equal relative width do for both.
    """
    nodes = np.array(_NODES) / 1024.0
    basis = _interpolation()
    parts = []
    for first in (_LOW_FIRST, _HIGH_FIRST):
        bins = np.arange(first, _END)
        left, right = (bins << _SHIFT).view(np.float64), ((bins + 1) << _SHIFT).view(np.float64)
        at = 0.5 * (left + right)[:, None] + 0.5 * (right - left)[:, None] * nodes
        y = -np.log1p(-at) if first == _LOW_FIRST else -np.log(at)
        value = 1.0 / p2_inverse_log(np.ascontiguousarray(y))
        # Added term by term: a matrix product would depend on the BLAS at hand.
        parts.append([sum(basis[j][i] * value[:, j] for j in range(_DEGREE + 1)) for i in range(_DEGREE + 1)])
    table = np.concatenate([np.array(part) for part in parts], axis=1)
    table *= (2.0**8) ** np.arange(_DEGREE + 1)[:, None]
    table.setflags(write=False)
    return np.ascontiguousarray(table)


class Reciprocal:
    """Evaluates 1/x with P(2, x) = c, chunk by chunk, in scratch that is allocated once; 2e-14 relative."""

    __slots__ = ("_bits", "_gathered", "_index", "_inverter", "_is_high", "_near", "_offset", "_table")

    def __init__(self) -> None:
        self._table = _coefficients()[::-1]  # the highest degree first
        self._near, self._gathered = np.empty((2, CHUNK))
        self._bits, self._index, self._offset = np.empty((3, CHUNK), dtype=np.int64)
        self._is_high: BoolArray = np.empty(CHUNK, dtype=np.bool_)
        self._inverter = P2Inverter()

    def scratch(self, n: int) -> FloatArray:
        """An (n,) view of scratch for callers that work on one chunk; the next call overwrites it."""
        return self._near[:n]

    def evaluate(self, c: FloatArray, out: FloatArray) -> None:
        """1/x into `out`; both (n,), n <= CHUNK, 0 < c <= 1 - 2^-53."""
        n = c.size
        near, gathered, is_high = self._near[:n], self._gathered[:n], self._is_high[:n]
        bits, index, offset = self._bits[:n], self._index[:n], self._offset[:n]
        np.greater_equal(c, 0.5, out=is_high)
        np.subtract(1.0, c, out=near)
        np.minimum(near, c, out=near)
        near_bits: IntArray = near.view(np.int64)
        np.right_shift(near_bits, _SHIFT, out=index)
        np.multiply(is_high, _JUMP, out=offset)
        np.add(index, offset, out=index)
        np.subtract(index, _LOW_FIRST, out=index)
        np.bitwise_and(near_bits, _PLACE, out=bits)
        np.bitwise_or(bits, _ONE, out=bits)
        distance = near
        tiny = np.flatnonzero(c < _LEAST) if n and float(c.min()) < _LEAST else None
        np.subtract(bits.view(np.float64), _MIDDLE, out=distance)
        first, *others = self._table
        first.take(index, out=out, mode="clip")
        for row in others:
            np.multiply(out, distance, out=out)
            row.take(index, out=gathered, mode="clip")
            np.add(out, gathered, out=out)
        if tiny is not None:
            x = np.empty(tiny.size)
            self._inverter.from_probability(c[tiny], x)
            out[tiny] = 1.0 / x
