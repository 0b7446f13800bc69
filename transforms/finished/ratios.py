"""How a number of pages moved between two nights, as a histogram that adds up."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray

_OCTAVE = 32  # bins of a ratio's histogram
_OCTAVES = 20


@dataclass
class Ratios:
    """How a number moved between the nights: a histogram of log ratios, in 32nds of an octave.

    Attributes
    ----------
    bins : (1281,) int64
        Pages with both numbers above 0, by rounded log2 of after over before; the ends hold the rest.
    doubled, halved : int
        Pages with more than twice the number, or less than half of it.
    from_zero, to_zero : int
        Those of them that had none, or have none now.
    """

    bins: IntArray = field(default_factory=lambda: np.zeros(2 * _OCTAVE * _OCTAVES + 1, np.int64))
    doubled: int = 0
    halved: int = 0
    from_zero: int = 0
    to_zero: int = 0

    def add(self, before: FloatArray, after: FloatArray) -> None:
        """Count pages."""
        up, down = before > 0.0, after > 0.0
        self.from_zero += int((~up & down).sum())
        self.to_zero += int((up & ~down).sum())
        self.doubled += int((after > 2.0 * before).sum())
        self.halved += int((after < 0.5 * before).sum())
        both = up & down
        at = np.rint(_OCTAVE * np.log2(after[both] / before[both]))
        at = np.clip(at, -_OCTAVE * _OCTAVES, _OCTAVE * _OCTAVES).astype(np.int64)
        self.bins += np.bincount(at + _OCTAVE * _OCTAVES, minlength=self.bins.size)

    def merge(self, other: Ratios) -> None:
        """Add another's pages."""
        self.bins = self.bins + other.bins
        self.from_zero += other.from_zero
        self.to_zero += other.to_zero
        self.doubled += other.doubled
        self.halved += other.halved

    def quantile(self, share: float) -> float:
        """Ratio at a quantile, within 1.1 percent; NaN without pages."""
        total = int(self.bins.sum())
        if not total:
            return math.nan
        at = int(np.searchsorted(np.cumsum(self.bins), max(1, math.ceil(share * total))))
        return float(2.0 ** ((at - _OCTAVE * _OCTAVES) / _OCTAVE))
