"""Sums of weights by ratio, exact in any order of adding: what bounds and estimates of demand are made of."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.numerics.inverse_table import Reciprocal
from policies.numerics.special import CHUNK, LARGEST_BELOW_ONE
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives.objectives import Objective

BIN_SHIFT: Final = 45
"""Of a double's bits: sign, exponent and 7 bits of the mantissa remain."""

SLACK: Final = 1e-5
"""More than the relative rounding of weights to levels."""

_PLACE_BITS: Final = 10  # further bits: the place of a ratio in its bin
_LEVEL_SHIFT: Final = 55  # of a weight's bits: levels of 8 octaves
_LEVEL_BITS: Final = 20  # a weight is kept to a multiple of 2^-20 of the least weight of its level
_MOMENT_BITS: Final = 20
_MOMENT_MASK: Final = (1 << _MOMENT_BITS) - 1
_ROWS: Final = 1 << 15  # sums of this many terms below 2^38 are exact in double precision
_CUT_KEY: Final = 1 << 40
_LEVEL_KEY: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Histogram:
    """Sparse integer sums by key, keys ascending: columns (k,) int64 of one sum each."""

    key: IntArray
    sums: IntArray  # (k, columns)

    @classmethod
    def empty(cls, columns: int) -> "Histogram":
        return cls(np.empty(0, dtype=np.int64), np.empty((0, columns), dtype=np.int64))

    def __reduce__(self) -> tuple[Callable[..., "Histogram"], tuple[bytes, int]]:
        """Compressed: surveys travel between processes."""
        columns = np.concatenate([np.diff(self.key, prepend=0)[:, None], self.sums], axis=1)
        # The numbers' first bytes, then their second ones and so on: the high ones are mostly 0.
        planes = np.ascontiguousarray(columns.T, dtype="<i8").view(np.uint8).reshape(-1, 8).T
        return _unpacked, (zlib.compress(planes.tobytes(), 1), columns.shape[1])

    def merge(self, other: "Histogram") -> "Histogram":
        key = np.concatenate([self.key, other.key])
        if key.size == 0:
            return self
        order = np.argsort(key, kind="stable")
        key = key[order]
        first = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        sums = np.add.reduceat(np.concatenate([self.sums, other.sums])[order], first, axis=0)
        if sums.shape[1] == 3:  # weight, moment high, moment low
            sums[:, 1] += sums[:, 2] >> _MOMENT_BITS
            sums[:, 2] &= _MOMENT_MASK
        return Histogram(key[first], sums)


def _unpacked(packed: bytes, columns: int) -> Histogram:
    planes = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(8, -1)
    numbers = np.ascontiguousarray(planes.T).view("<i8").reshape(columns, -1).astype(np.int64)
    return Histogram(np.cumsum(numbers[0]), np.ascontiguousarray(numbers[1:].T))


def ratio_histogram(ratio: FloatArray, weight: FloatArray, flag: BoolArray | None = None) -> Histogram:
    """Sums of weights, and of weights times places in the bin, by flag, level of weight and bin of ratio.

    Parameters
    ----------
    ratio, weight : (n,) float64, > 0 and finite
    flag : (n,) bool or None
        Sums of rows with it are kept apart.
    """
    if ratio.size == 0:
        return Histogram.empty(3)
    bits, weight_bits = ratio.view(np.int64), np.ascontiguousarray(weight).view(np.int64)
    first_bin = int(bits.min()) >> BIN_SHIFT
    bins = (int(bits.max()) >> BIN_SHIFT) - first_bin + 1
    first_level = int(weight_bits.min()) >> _LEVEL_SHIFT
    levels = (int(weight_bits.max()) >> _LEVEL_SHIFT) - first_level + 1
    scales = np.ldexp(1.0, _LEVEL_BITS + 1023 - 8 * np.arange(first_level, first_level + levels))
    size = bins * levels * (1 if flag is None else 2)
    dense = size <= 4 * ratio.size
    sums = np.zeros((3, size if dense else 0), dtype=np.int64)
    total = Histogram.empty(3)
    for start in range(0, ratio.size, _ROWS):
        rows = slice(start, start + _ROWS)
        level = (weight_bits[rows] >> _LEVEL_SHIFT) - first_level
        whole = weight[rows] * scales[0] if levels == 1 else weight[rows] * np.take(scales, level)
        np.rint(whole, out=whole)
        index = bits[rows] >> BIN_SHIFT
        index -= first_bin
        if levels > 1:
            level *= bins
            index += level
        if flag is not None:
            index += flag[rows] * (bins * levels)
        place = bits[rows] >> (BIN_SHIFT - _PLACE_BITS)
        place &= (1 << _PLACE_BITS) - 1
        if dense:
            keys = None
        else:
            keys, index = np.unique(index, return_inverse=True)
        length = size if keys is None else keys.size
        by_bin = np.bincount(index, weights=whole, minlength=length).astype(np.int64)
        whole *= place
        moment = np.bincount(index, weights=whole, minlength=length).astype(np.int64)
        part = np.stack([by_bin, moment >> _MOMENT_BITS, moment & _MOMENT_MASK])
        if keys is None:
            sums += part
        else:
            total = total.merge(Histogram(keys, part.T))
    if dense:
        keys = np.flatnonzero(sums[0])
        total = Histogram.empty(3).merge(Histogram(keys, sums[:, keys].T))
    place_of = total.key % bins + first_bin
    level_of = total.key // bins % levels + first_level
    cut_of = total.key // (bins * levels)
    return Histogram(cut_of * _CUT_KEY + level_of * _LEVEL_KEY + place_of, total.sums)


class RatioSums:
    """The bins of a `ratio_histogram`, levels added up.

    Attributes
    ----------
    weight : (k,) float64
        Sum of weights, to about 1e-6.
    left, right, mean : (k,) float64
        Edges of the bin, and the mean ratio in it.
    flag : (k,) bool
    """

    __slots__ = ("flag", "left", "mean", "right", "weight")

    def __init__(self, sums: Histogram) -> None:
        key = sums.key
        weight_sum, high, low = sums.sums.T
        level = key % _CUT_KEY // _LEVEL_KEY
        of_entry = np.ldexp(weight_sum.astype(np.float64), 8 * level - 1023 - _LEVEL_BITS)
        moment = high * float(1 << _MOMENT_BITS) + low
        place = (moment / weight_sum + 0.5) / (1 << _PLACE_BITS)
        group, entry = np.unique(key - level * _LEVEL_KEY, return_inverse=True)
        self.weight: FloatArray = np.bincount(entry, weights=of_entry).astype(np.float64)
        place = np.bincount(entry, weights=of_entry * place) / self.weight
        bin_ = group % _CUT_KEY
        self.left: FloatArray = (bin_ << BIN_SHIFT).view(np.float64)
        self.right: FloatArray = ((bin_ + 1) << BIN_SHIFT).view(np.float64)
        self.mean: FloatArray = self.left + (self.right - self.left) * place
        self.flag: BoolArray = group >= _CUT_KEY

    def estimate_near(self, objective: Objective, low: float, high: float) -> Callable[[float], float]:
        """Estimate of the demand at multipliers in [low, high]: ratios spread over their bins."""
        # Demand bends most where pages begin to starve, at multiplier * ratio = 1: 32 places there, else 2.
        bends = (self.mean * high > 0.9) & (self.left * low < 1.0) & objective.starves
        half = np.minimum(self.mean - self.left, self.right - self.mean)
        weights, ratios = [], []
        for rows, places in ((~bends, 2), (bends, 32)):
            at = (np.arange(places) + 0.5) * 2.0 / places - 1.0
            if places == 2:
                at = np.array([-1.0, 1.0]) / 3**0.5  # Gauss
            weights.append(np.repeat(self.weight[rows] / places, places))
            ratios.append((self.mean[rows, None] + half[rows, None] * at).ravel())
        weight, ratio, scratch = np.concatenate(weights), np.concatenate(ratios), Reciprocal()
        return lambda multiplier: total_demand(objective, weight, ratio, multiplier, scratch)


def total_demand(
    objective: Objective,
    weight: FloatArray,
    ratio: FloatArray,
    multiplier: float,
    scratch: Reciprocal | None = None,
) -> float:
    """Sum of weight * f(multiplier * ratio), per day; `scratch` is overwritten."""
    c = ratio * multiplier
    if objective.starves:
        keep = c < 1.0
        weight, c = weight[keep], np.minimum(c[keep], LARGEST_BELOW_ONE)
    scratch, total = scratch or Reciprocal(), 0.0
    for start in range(0, c.size, CHUNK):
        part = slice(start, start + CHUNK)
        out = np.empty(c[part].size)
        objective.demand(np.ascontiguousarray(weight[part]), c[part].copy(), scratch, out)
        total += float(out.sum())
    return total
