"""Numbers that look drawn and are made of counters: no generator, so that any of them can be had alone."""

from __future__ import annotations

import numpy as np

from policies.numerics.typing_ import FloatArray, UIntArray


def scramble(state: UIntArray) -> None:
    """One step of SplitMix64 (Steele, Lea and Flood, 2014) in place: a well mixed bijection of 64 bits."""
    state += np.uint64(0x9E3779B97F4A7C15)
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)


def fractions(state: UIntArray) -> FloatArray:
    """The upper 53 bits of each as a number in (0, 1), neither end among them."""
    return ((state >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
