"""Where keys stand in a column that is sorted, and rows in the run that they are of."""

import numpy as np
from numpy.typing import NDArray

from policies.numerics.typing_ import IntArray


def rows_of(
    keys: NDArray[np.integer], wanted: NDArray[np.integer], order: IntArray | None = None
) -> IntArray:
    """Rows of keys, -1 for those that are not there.

    Parameters
    ----------
    keys : (n,) ints
        Sorted, or else `order` sorts them, (n,) int64.
    wanted : (m,) ints

    Returns
    -------
    (m,) int64
    """
    if not len(keys):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    if order is not None:
        at = order[at]
    return np.where(keys[at] == wanted, at, -1)


def places(size: IntArray) -> IntArray:
    """0, 1, 2, ... in each of runs of these sizes (r,), one run after the other: (sum of size,) int64."""
    return np.arange(int(size.sum())) - np.repeat(np.cumsum(size) - size, size)
