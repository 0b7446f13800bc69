"""Evidence of signals for tests: from raw intervals, put together, taken apart."""

from collections.abc import Sequence

import numpy as np

from policies.history.evidence import MINUTES_PER_DAY, bin_of
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.signals.evidence import SignalEvidence


def take(of: SignalEvidence, rows: IntArray | BoolArray) -> SignalEvidence:
    """Evidence of the pages `rows`, in that order (indices, repeats allowed, or a mask)."""
    rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, dtype=np.int64)
    start = np.searchsorted(of.row_page, np.arange(len(of) + 1))
    size = np.diff(start)[rows]
    first = np.cumsum(size) - size
    at = np.arange(size.sum(), dtype=np.int64) + np.repeat(start[rows] - first, size)
    return SignalEvidence(
        of.exposure_days[rows],
        of.dated_changes[rows],
        of.unchanged_signals[rows],
        np.repeat(np.arange(len(rows), dtype=np.int64), size),
        of.row_weight[at],
        of.row_days[at],
        of.row_days_squared[at],
        of.row_signals[at],
    )


def empty(n_pages: int, n_sources: int) -> SignalEvidence:
    """Evidence of pages about whose signals nothing is known."""
    none = np.zeros(0)
    return SignalEvidence(
        np.zeros(n_pages),
        np.zeros(n_pages),
        np.zeros((n_pages, n_sources)),
        np.zeros(0, dtype=np.int64),
        none,
        none,
        none,
        np.zeros((0, n_sources)),
    )


def concatenate(parts: Sequence[SignalEvidence]) -> SignalEvidence:
    """The pages of all parts, one part after the other; all have the same sources. At least one part."""
    offset = np.cumsum([0] + [len(p) for p in parts[:-1]])
    return SignalEvidence(
        np.concatenate([p.exposure_days for p in parts]),
        np.concatenate([p.dated_changes for p in parts]),
        np.concatenate([p.unchanged_signals for p in parts]),
        np.concatenate([p.row_page + o for p, o in zip(parts, offset, strict=True)]),
        np.concatenate([p.row_weight for p in parts]),
        np.concatenate([p.row_days for p in parts]),
        np.concatenate([p.row_days_squared for p in parts]),
        np.concatenate([p.row_signals for p in parts]),
    )


def from_intervals(
    page: IntArray,
    gap_days: FloatArray,
    signals: FloatArray | IntArray,
    changed: BoolArray,
    age_days: FloatArray | None = None,
    weight: FloatArray | None = None,
    n_pages: int | None = None,
) -> SignalEvidence:
    """Evidence from raw intervals between successful crawls.

    Parameters
    ----------
    page : (k,) int64
        Page of each interval, 0..n_pages-1, in any order.
    gap_days : (k,) float64, days, positive and finite
    signals : (k, S) or (k,) int64 or float64
        Signals by source inside each interval.
    changed : (k,) bool
    age_days : (k,) float64, days, optional
        Age of the last change at the crawl that ends the interval; NaN where not known.
    weight : (k,) float64, optional
        1 if not given.
    n_pages : int, optional
        By default one more than the largest in `page`.

    Raises
    ------
    ValueError
        A gap that is not positive and finite, a page out of range.

    Notes
    -----
    A dated change in an interval without signals is exact. In one with signals it cannot be known which of
    them came after the change: the age counts as exposure, and the rest of the gap, with all signals, as
    changed.
    """
    page, gap = np.asarray(page, dtype=np.int64), np.asarray(gap_days, dtype=np.float64)
    count = np.asarray(signals, dtype=np.float64)
    count = count[:, None] if count.ndim == 1 else count
    changed = np.asarray(changed, dtype=np.bool_)
    n = n_pages if n_pages is not None else int(page.max(initial=-1)) + 1
    if page.size and not (page.min() >= 0 and page.max() < n):
        raise ValueError(f"page numbers {page.min()}..{page.max()} do not fit {n} pages; raise n_pages")
    if gap.size and not (gap.min() > 0.0 and gap.max() < np.inf):
        raise ValueError(f"gaps of {gap.min()}..{gap.max()} days; give positive finite gaps")
    w = np.ones(len(gap)) if weight is None else np.asarray(weight, dtype=np.float64)
    age = np.full(len(gap), np.nan) if age_days is None else np.asarray(age_days, dtype=np.float64)
    known = changed & (age >= 0.0) & (age <= gap)
    dated = known & (count == 0.0).all(axis=1)
    censored = changed & ~dated
    exposed = np.where(known, np.where(known, age, 0.0), np.where(changed, 0.0, gap))
    gap = np.where(known, gap - exposed, gap)

    p, g, u = page[censored], gap[censored], w[censored]
    # A dated change at the very start of its gap leaves none: the smallest bin takes it.
    bins = bin_of(np.maximum(g, 1e-9) * MINUTES_PER_DAY)
    key = np.column_stack([p, bins, known[censored], count[censored]])
    rows, slot = np.unique(key, axis=0, return_inverse=True)
    slot, m = slot.reshape(-1), len(rows)
    unchanged = [sum_by(page, np.where(changed, 0.0, w * column), n) for column in count.T]
    return SignalEvidence(
        sum_by(page, w * exposed, n),
        sum_by(page, w * dated, n),
        np.stack(unchanged, axis=1) if unchanged else np.zeros((n, 0)),
        rows[:, 0].astype(np.int64),
        sum_by(slot, u, m),
        sum_by(slot, u * g, m),
        sum_by(slot, u * g * g, m),
        np.ascontiguousarray(rows[:, 3:]),
    )
