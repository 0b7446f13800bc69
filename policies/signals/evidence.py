"""What crawls and change-indicating signals say about each other, as a few sums a page.

A page changes unannounced at a rate `a` a day, and each signal of source `s` is true with probability
``1 - exp(-k_s)``. An interval of `tau` days between two crawls, with `n_s` signals inside, shows no change
with probability ``exp(-a tau - sum_s k_s n_s)``. Unchanged intervals enter the likelihood only through the
sums of `tau` and `n_s`. Changed ones are kept as rows: all intervals of about the same length with the same
signals make one row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.history.evidence import MINUTES_PER_DAY, bin_of
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

_ONE_POINT = 1e-12
"""Rows whose gaps have a relative variance below this are one point: the rest is rounding."""


@dataclass(frozen=True, slots=True)
class SignalEvidence:
    """Sufficient sums of `n` pages and `S` sources, weights already brought to the present.

    Attributes
    ----------
    exposure_days : (n,) float64, days
        Unchanged gaps, plus the ages of dated changes at the crawls that found them, while signals were
        watched.
    dated_changes : (n,) float64, weight
        Changes whose date is known, in intervals without signals.
    unchanged_signals : (n, S) float64, weight
        Signals in unchanged intervals.
    row_page : (k,) int64
        Page of each row, ascending.
    row_weight, row_days, row_days_squared : (k,) float64, weight, days, days squared
        For the changed intervals of a row: their weight, and the weighted sums of gap and squared gap (gap
        less age where the change has a date).
    row_signals : (k, S) float64
        Signals by source in each interval of the row.
    """

    exposure_days: FloatArray
    dated_changes: FloatArray
    unchanged_signals: FloatArray
    row_page: IntArray
    row_weight: FloatArray
    row_days: FloatArray
    row_days_squared: FloatArray
    row_signals: FloatArray

    def __post_init__(self) -> None:
        n, k = len(self.exposure_days), len(self.row_page)
        if self.unchanged_signals.ndim != 2 or self.row_signals.ndim != 2:
            raise ValueError(
                "unchanged_signals and row_signals have one column a source; give (n, S), (k, S)"
            )
        shapes = {
            "dated_changes": (self.dated_changes.shape, (n,)),
            "unchanged_signals": (self.unchanged_signals.shape, (n, self.n_sources)),
            "row_weight": (self.row_weight.shape, (k,)),
            "row_days": (self.row_days.shape, (k,)),
            "row_days_squared": (self.row_days_squared.shape, (k,)),
            "row_signals": (self.row_signals.shape, (k, self.n_sources)),
        }
        for name, (shape, wanted) in shapes.items():
            if shape != wanted:
                raise ValueError(f"signal evidence has {name} of shape {shape}; give {wanted}")

    def __len__(self) -> int:
        return len(self.exposure_days)

    @property
    def n_sources(self) -> int:
        """Number of sources `S`."""
        return int(self.unchanged_signals.shape[1])

    def check(self) -> None:
        """Raise `ValueError` if a sum is negative, infinite or NaN, or rows are not in order of pages."""
        for name in (
            "exposure_days",
            "dated_changes",
            "unchanged_signals",
            "row_weight",
            "row_days",
            "row_days_squared",
            "row_signals",
        ):
            values: FloatArray = getattr(self, name)
            if values.size and not (values.min() >= 0.0 and values.max() < np.inf):
                bad = np.argwhere(~((values >= 0.0) & (values < np.inf)))[0]
                where = ", ".join(str(int(i)) for i in bad)
                raise ValueError(
                    f"{name}[{where}] is {values[tuple(bad)]}; sums of weights must be finite and >= 0"
                )
        page = self.row_page
        if page.size and not (page[0] >= 0 and page[-1] < len(self) and (page[1:] >= page[:-1]).all()):
            raise ValueError(
                f"row_page is {page.min()}..{page.max()} for {len(self)} pages; give rows in ascending order "
                f"of page, 0..{len(self) - 1}"
            )

    def take(self, rows: IntArray | BoolArray) -> "SignalEvidence":
        """Evidence of the pages `rows`, in that order (indices, repeats allowed, or a mask)."""
        rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, dtype=np.int64)
        start = np.searchsorted(self.row_page, np.arange(len(self) + 1))
        size = np.diff(start)[rows]
        first = np.cumsum(size) - size
        at = np.arange(size.sum(), dtype=np.int64) + np.repeat(start[rows] - first, size)
        return SignalEvidence(
            self.exposure_days[rows],
            self.dated_changes[rows],
            self.unchanged_signals[rows],
            np.repeat(np.arange(len(rows), dtype=np.int64), size),
            self.row_weight[at],
            self.row_days[at],
            self.row_days_squared[at],
            self.row_signals[at],
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


def points(
    weight: FloatArray, days: FloatArray, days_squared: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Each row as two equal points that keep its weight, sum and sum of squares, or as one.

    Parameters
    ----------
    weight, days, days_squared : (k,) float64
        As of `SignalEvidence`.

    Returns
    -------
    row : (m,) int64
        Row of each point, ascending. Rows of weight 0 have none.
    weight, days : (m,) float64
    """
    row = np.flatnonzero(weight > 0.0)
    w = weight[row]
    middle = days[row] / w
    variance = days_squared[row] / w - middle * middle
    two = variance > _ONE_POINT * middle * middle
    if not two.any():
        return row, w, middle
    copies = 1 + two
    last = np.cumsum(copies) - 1
    spread = np.sqrt(np.where(two, variance, 0.0))
    tau = np.repeat(np.maximum(middle - spread, 0.0), copies)
    tau[last] = middle + spread
    return np.repeat(row, copies), np.repeat(np.where(two, 0.5 * w, w), copies), tau
