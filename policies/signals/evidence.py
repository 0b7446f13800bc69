"""What crawls and change-indicating signals say about each other, as a few sums a page.

A page changes unannounced at a rate `a` a day, and each signal of source `s` is true with probability
``1 - exp(-k_s)``. An interval of `tau` days between two crawls, with `n_s` signals inside, shows no change
with probability ``exp(-a tau - sum_s k_s n_s)``. Unchanged intervals enter the likelihood only through the
sums of `tau` and `n_s`. Changed ones are kept as rows: all intervals of about the same length with the same
signals make one row.
"""

from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray

_ONE_POINT = 1e-12
"""Rows whose gaps have a relative variance below this are one point: the rest is rounding."""


_COLUMNS = (
    "exposure_days", "dated_changes", "unchanged_signals",
    "row_weight", "row_days", "row_days_squared", "row_signals",
)  # fmt: skip


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
        if self.unchanged_signals.ndim != 2 or self.row_signals.ndim != 2:
            raise ValueError(
                "unchanged_signals and row_signals have one column a source; give (n, S), (k, S)"
            )
        n, k, s = (len(self),), (len(self.row_page),), (self.n_sources,)
        for name, wanted in zip(_COLUMNS[1:], (n, n + s, k, k, k, k + s), strict=True):
            shape = getattr(self, name).shape
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
        for name in _COLUMNS:
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


@dataclass(frozen=True, slots=True)
class PageSignals:
    """Signals of n pages and S sources, and for how long somebody has listened.

    Attributes
    ----------
    ended, running : (n, S) float64, weight
        In intervals that a crawl has ended; in the running one, from when on somebody has listened.
    ended_days, running_days : (n,) float64, days
        Time in which those would have been heard.
    pair_page, pair_first, pair_second : (c,) int64
        Page, 0..n-1, and sources that ever signalled it together or a day apart, first < second.
    near, far : (c,) float64
        Pairs of their signals, pending ones as well: see `policies.signals.pairs`.
    """

    ended: FloatArray
    ended_days: FloatArray
    running: FloatArray
    running_days: FloatArray
    pair_page: IntArray
    pair_first: IntArray
    pair_second: IntArray
    near: FloatArray
    far: FloatArray


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
