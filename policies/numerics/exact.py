"""Sums of whole units that are the same in any order."""

from typing import Final

import numpy as np

from policies.numerics.typing_ import FloatArray

LOW_BITS: Final = 48
SAFE_SUM: Final = 2.0**62
"""Below it a sum of whole numbers fits 64 bits."""


def exact_units(values: FloatArray) -> int:
    """Sum of floor(value) over `values` (in units, >= 0, below 2^90), exact for every order."""
    if float(values.sum()) < SAFE_SUM:
        return int(values.astype(np.int64).sum())
    high = np.floor(values * 2.0**-LOW_BITS)
    low = values - high * 2.0**LOW_BITS
    return (int(high.astype(np.int64).sum()) << LOW_BITS) + int(low.astype(np.int64).sum())
