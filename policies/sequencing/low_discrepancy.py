"""Low-discrepancy sequences: given rates become a schedule of slots, each page's crawls spread evenly.

Azar et al., "Tractable near-optimal policies for crawling", algorithm 3, as the chairman assignment problem
of Tijdeman: the k-th crawl of a page with share p has the window [(k-1)/p, k/p) and the earliest deadline
goes first. It is one night of `policies.sequencing.sequencing` in which nobody owes anything.
"""

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray
from policies.sequencing.deadlines import EMPTY, earliest_deadline_first
from policies.sequencing.windows import jobs, repeated

__all__ = ["EMPTY", "low_discrepancy"]

_TOLERANCE = 1e-9


def low_discrepancy(share: FloatArray, slots: int) -> IntArray:
    """Page of each slot.

    Parameters
    ----------
    share : (m,) float64 in [0, 1]
        Crawls per slot of each page; they add up to at most 1.
    slots : int

    Returns
    -------
    (slots,) int64
        After T slots each page has been crawled more than ``share T - 1`` and at most ``share T + 1 - share``
        times. `EMPTY` (-1) where no page's window is open, if the shares add up to less than 1.

    Raises
    ------
    ValueError
        A share outside [0, 1] or NaN, a sum above 1, or slots < 0.
    """
    p = np.asarray(share, dtype=np.float64)
    if not np.all((p >= 0.0) & (p <= 1.0)):
        bad = p[~((p >= 0.0) & (p <= 1.0))][0]
        raise ValueError(
            f"a share of the slots is {bad!r}; give numbers from 0 to 1, one crawl a slot at most"
        )
    if p.sum() > 1.0 + _TOLERANCE:
        raise ValueError(f"the shares add up to {p.sum()!r} crawls a slot; scale them to at most 1")
    if slots < 0:
        raise ValueError(f"slots must be at least 0, got {slots}")
    rows = np.flatnonzero(p * slots > 0.0)
    if rows.size == 0 or slots == 0:
        return np.full(slots, EMPTY, np.int64)
    with np.errstate(over="ignore"):
        rows = rows[np.isfinite(1.0 / p[rows])]
    windows = repeated(1.0 / p[rows], p[rows], float(slots))
    todo = jobs(windows, np.arange(rows.size), rows.size, None, np.array([slots]))
    served = earliest_deadline_first(todo, np.array([slots]))
    return np.where(served >= 0, rows[served], EMPTY)
