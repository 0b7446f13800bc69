"""What the crawl history of a page says about its change rate, as a few sums.

Between two successful crawls a page either changed or did not. Unchanged gaps, and changes whose
date is known, enter the likelihood of a Poisson change process only through sums. A change whose date
is not known is censored to its gap; such gaps are counted in half-octave bins with the sums of the gap
and of its square. The summary is small, adds up over nights, and gives the rate of the raw history to
within a percent.
"""

from dataclasses import dataclass

import numpy as np

from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array, IntArray

MINUTES_PER_DAY = 1440.0

_BIN_SHIFT = 51  # the 11 exponent bits and the first mantissa bit stay
_BIN_OF_ONE = 1023 << 1


def bin_of(gap_minutes: FloatArray) -> Int32Array:
    """Half-octave bin of each gap, read off the bits of the number: no logarithm, same on every machine.

    Bin ``2 k`` holds gaps in ``[2**k, 1.5 * 2**k)`` minutes, bin ``2 k + 1`` those in
    ``[1.5 * 2**k, 2**(k + 1))``.

    Parameters
    ----------
    gap_minutes : (n,) float64, positive and finite, minutes

    Returns
    -------
    (n,) int32
    """
    bits = np.ascontiguousarray(gap_minutes, dtype=np.float64).view(np.int64)
    return ((bits >> _BIN_SHIFT) - _BIN_OF_ONE).astype(np.int32)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Sufficient sums of `n` pages, weights already brought to the present.

    Attributes
    ----------
    exposure_days : (n,) float64, days
        Unchanged gaps, plus the age of every dated change at the crawl that found it.
    dated_changes : (n,) float64, weight
        Changes whose date is known.
    bin_start : (n + 1,) int64
        Bins of page i are ``bin_start[i]:bin_start[i + 1]``.
    bin_weight, bin_days, bin_days_squared : (m,) float64, weight, days, days squared
        For the undated changed gaps in a bin: their weight, and the weighted sums of gap and squared gap.
    """

    exposure_days: FloatArray
    dated_changes: FloatArray
    bin_start: IntArray
    bin_weight: FloatArray
    bin_days: FloatArray
    bin_days_squared: FloatArray

    def __post_init__(self) -> None:
        n, m = len(self.exposure_days), len(self.bin_weight)
        if len(self.dated_changes) != n or len(self.bin_start) != n + 1:
            raise ValueError(
                f"evidence of {n} pages has {len(self.dated_changes)} dated_changes and "
                f"{len(self.bin_start)} bin_start; give {n} and {n + 1}"
            )
        if (
            len(self.bin_days) != m
            or len(self.bin_days_squared) != m
            or (self.bin_start[0] != 0 or self.bin_start[-1] != m)
        ):
            raise ValueError(
                f"evidence has {m} bin_weight, {len(self.bin_days)} bin_days, {len(self.bin_days_squared)} "
                f"bin_days_squared and bin_start {self.bin_start[0]}..{self.bin_start[-1]}; give 0..{m}"
            )

    def __len__(self) -> int:
        return len(self.exposure_days)

    def check(self) -> None:
        """Raise `ValueError` if a sum is negative, infinite or NaN."""
        for name in ("exposure_days", "dated_changes", "bin_weight", "bin_days", "bin_days_squared"):
            values: FloatArray = getattr(self, name)
            if values.size and not (values.min() >= 0.0 and values.max() < np.inf):
                bad = int(np.flatnonzero(~((values >= 0.0) & (values < np.inf)))[0])
                raise ValueError(f"{name}[{bad}] is {values[bad]}; sums of weights must be finite and >= 0")

    def changes(self) -> FloatArray:
        """Weight of all changes of each page, dated or not: (n,) float64."""
        return self.dated_changes + self._per_page(self.bin_weight)

    def changed_days(self) -> FloatArray:
        """Weighted length of the undated changed gaps of each page: (n,) float64, days."""
        return self._per_page(self.bin_days)

    def bin_page(self) -> IntArray:
        """Page of each bin: (m,) int64."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.bin_start))

    def take(self, rows: IntArray | BoolArray) -> "Evidence":
        """Evidence of the pages `rows`, in that order (indices, repeats allowed, or a mask)."""
        rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else np.asarray(rows, dtype=np.int64)
        size = np.diff(self.bin_start)[rows]
        start = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(size, out=start[1:])
        bins = np.arange(start[-1], dtype=np.int64) + np.repeat(self.bin_start[rows] - start[:-1], size)
        return Evidence(
            self.exposure_days[rows],
            self.dated_changes[rows],
            start,
            self.bin_weight[bins],
            self.bin_days[bins],
            self.bin_days_squared[bins],
        )

    def _per_page(self, values: FloatArray) -> FloatArray:
        return sum_by(self.bin_page(), values, len(self))


def empty(n_pages: int = 0) -> Evidence:
    """Evidence of pages without any history."""
    start = np.zeros(n_pages + 1, dtype=np.int64)
    return Evidence(np.zeros(n_pages), np.zeros(n_pages), start, np.zeros(0), np.zeros(0), np.zeros(0))


def from_intervals(
    page: IntArray,
    gap_days: FloatArray,
    changed: BoolArray,
    age_days: FloatArray | None = None,
    weight: FloatArray | None = None,
    n_pages: int | None = None,
) -> Evidence:
    """Evidence from raw intervals between successful crawls.

    Parameters
    ----------
    page : (k,) int64
        Page of each interval, 0..n_pages-1, in any order.
    gap_days : (k,) float64, days, positive and finite
    changed : (k,) bool
    age_days : (k,) float64, days, optional
        Age of the last change at the crawl that ends the interval; NaN where not known. An age outside
        ``[0, gap]`` is a date that cannot be true and counts as not known.
    weight : (k,) float64, optional
        Weight of each interval, e.g. from `forgetting_weights`; 1 if not given.
    n_pages : int, optional
        Number of pages; by default one more than the largest in `page`.

    Raises
    ------
    ValueError
        A gap that is not positive and finite, a page out of range.
    """
    page = np.asarray(page, dtype=np.int64)
    gap = np.asarray(gap_days, dtype=np.float64)
    changed = np.asarray(changed, dtype=np.bool_)
    n = n_pages if n_pages is not None else int(page.max(initial=-1)) + 1
    if page.size and not (page.min() >= 0 and page.max() < n):
        raise ValueError(f"page numbers {page.min()}..{page.max()} do not fit {n} pages; raise n_pages")
    if gap.size and not (gap.min() > 0.0 and gap.max() < np.inf):
        raise ValueError(f"gaps of {gap.min()}..{gap.max()} days; give positive finite gaps")
    w = np.ones(len(gap)) if weight is None else np.asarray(weight, dtype=np.float64)
    age = np.full(len(gap), np.nan) if age_days is None else np.asarray(age_days, dtype=np.float64)
    dated = changed & (age >= 0.0) & (age <= gap)
    undated = changed & ~dated
    exposed = np.where(dated, np.where(dated, age, 0.0), np.where(changed, 0.0, gap))

    p, g, u = page[undated], gap[undated], w[undated]
    # One integer key: double precision has 4,096 half octaves, from -2,044 up.
    key, slot = np.unique((p << 12) + (bin_of(g * MINUTES_PER_DAY) + 2048), return_inverse=True)
    m = len(key)
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(key >> 12, minlength=n), out=start[1:])
    return Evidence(
        sum_by(page, w * exposed, n),
        sum_by(page, w * dated, n),
        start,
        sum_by(slot, u, m),
        sum_by(slot, u * g, m),
        sum_by(slot, u * g * g, m),
    )


def forgetting_weights(page: IntArray, changed: BoolArray, half_life_changes: float) -> FloatArray:
    """Weight ``2**(-changes since / half_life_changes)`` of each interval: forgetting by evidence.

    An interval loses half of its weight with every `half_life_changes` changes that its page shows later,
    so a page forgets at the speed at which it teaches.

    Parameters
    ----------
    page : (k,) int64
        Page of each interval; the intervals of a page in order of time.
    changed : (k,) bool
    half_life_changes : float, positive; inf forgets nothing

    Returns
    -------
    (k,) float64, in (0, 1]
    """
    if not half_life_changes > 0.0:
        raise ValueError(f"half_life_changes is {half_life_changes}; give a positive number (inf: never)")
    page = np.asarray(page, dtype=np.int64)
    if page.size == 0:
        return np.zeros(0)
    order = np.argsort(page, kind="stable")
    count = np.cumsum(np.asarray(changed, dtype=np.int64)[order])
    sorted_page = page[order]
    last = np.flatnonzero(np.append(sorted_page[1:] != sorted_page[:-1], True))
    total = np.repeat(count[last], np.diff(last, prepend=-1))
    weight = np.empty(len(page))
    weight[order] = np.exp2((count - total) / half_life_changes)
    return weight


def effective(evidence: Evidence, n_changes: Int32Array, half_life_changes: float) -> Evidence:
    """Evidence that weighs what it tells if rates stay: as many intervals as their mean is worth.

    Forgotten sums weigh less than that: a mean with weights w is worth ``(sum w)^2 / sum w^2`` intervals
    (Kish, Survey Sampling, 1965), and after many changes that is twice the sum of the weights. The sum is
    what pays in estimates, as rates do not stay. What a half-life in days takes off stays off.

    Parameters
    ----------
    evidence : Evidence, n pages
        With `forgetting_weights`.
    n_changes : (n,) int32
        All changes of each page, forgotten ones too.
    half_life_changes : float, positive; inf where nothing is forgotten

    Returns
    -------
    Evidence
    """
    ratio = 2.0 ** (-1.0 / half_life_changes)
    times = (1.0 + ratio) / (1.0 + ratio ** np.maximum(n_changes, 1).astype(np.float64))
    bins = np.repeat(times, np.diff(evidence.bin_start))
    return Evidence(
        evidence.exposure_days * times,
        evidence.dated_changes * times,
        evidence.bin_start,
        evidence.bin_weight * bins,
        evidence.bin_days * bins,
        evidence.bin_days_squared * bins,
    )
