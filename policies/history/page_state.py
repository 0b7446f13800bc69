"""What a night carries over about its pages, and how old evidence is forgotten.

The history of a page is kept as a few sums over the intervals between its observations, see
`policies.history.evidence`. Forgetting multiplies the weight of an interval by one half for every half-life
that has passed since. The state stores *landmark* weights: an interval weighs ``2**((c - L) / H)``, where c
is the number of changes of the page when the interval ended, H the half-life and L the largest multiple of H
not above the page's present number of changes (for a half-life in days: the same with the time of the
interval's end). L depends on the data alone, not on when jobs ran, and moving it multiplies the sums by a
power of two, which is exact. So any cutting of a log into nights gives the same bits. Readers bring the
weights to the present with `evidence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.history.evidence import Evidence
from policies.numerics.sums import NEGLIGIBLE
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array, IntArray, UIntArray

NO_TIME = np.iinfo(np.int64).min
"""Stands for "never" in times."""

US_PER_DAY = 86_400_000_000

BIN_IDS = 128
"""Half-octave bins of all gaps from a minute on lie below this."""


_PAGE_COLUMNS = {
    "exposure_days": (np.float64, 0.0),
    "dated_changes": (np.float64, 0.0),
    "n_intervals": (np.int32, 0),
    "n_changes": (np.int32, 0),
    "baseline_at_us": (np.int64, NO_TIME),
    "last_success_at_us": (np.int64, NO_TIME),
    "last_attempt_at_us": (np.int64, NO_TIME),
    "digest": (np.uint64, 0),
    "digest_form": (np.uint32, 0),
    "replaced_digest": (np.uint64, 0),
    "n_returns": (np.int32, 0),
    "gone": (np.bool_, False),
    "last_modified_at_us": (np.int64, NO_TIME),
    "last_modified_seen_us": (np.int64, NO_TIME),
    "last_change_at_us": (np.int64, NO_TIME),
}
_BIN_COLUMNS = {
    "bin_id": np.int32,
    "bin_weight": np.float64,
    "bin_days": np.float64,
    "bin_days_squared": np.float64,
}


@dataclass(frozen=True, slots=True)
class PageState:
    """Folded history of n pages. Arrays are not to be changed in place.

    Attributes
    ----------
    exposure_days : (n,) float64, days, landmark-weighted
        Unchanged gaps, plus the ages of dated changes.
    dated_changes : (n,) float64, landmark-weighted
        Changes whose date is known.
    n_intervals, n_changes : (n,) int32
        Intervals between observations, and those in which the page changed; plain counts, never forgotten.
    baseline_at_us : (n,) int64, microseconds since 1970, `NO_TIME` if none
        Last visit that said whether the page had changed, or that later ones can be compared with: where the
        running interval began.
    last_success_at_us : (n,) int64, microseconds
        Last visit that got an answer about the page (2xx, 3xx, 404, 410), with or without evidence.
    last_attempt_at_us : (n,) int64, microseconds
        Last visit or failed fetch.
    digest : (n,) uint64
        Last known digest, 0 if none.
    digest_form : (n,) uint32
        Its form, 0 if not known, see `policies.history.visits.Observations`.
    replaced_digest : (n,) uint64
        The digest that the last change found by digests replaced, 0 if none.
    n_returns : (n,) int32
        Changes that brought that one back; a plain count.
    gone : (n,) bool
        The last visit found 404 or 410.
    last_modified_at_us : (n,) int64, microseconds
        Newest Last-Modified since the page was last gone.
    last_modified_seen_us : (n,) int64, microseconds
        Last visit that had one.
    last_change_at_us : (n,) int64, microseconds
        Last visit that found a change.
    bin_start : (n + 1,) int64
        Bins of page i are ``bin_start[i]:bin_start[i + 1]``, ascending in `bin_id`.
    bin_id : (m,) int32
        Half-octave bin of the gap of an undated change, below `BIN_IDS`.
    bin_weight, bin_days, bin_days_squared : (m,) float64, landmark-weighted; 1, days, days squared
    """

    exposure_days: FloatArray
    dated_changes: FloatArray
    n_intervals: Int32Array
    n_changes: Int32Array
    baseline_at_us: IntArray
    last_success_at_us: IntArray
    last_attempt_at_us: IntArray
    digest: UIntArray
    digest_form: NDArray[np.uint32]
    replaced_digest: UIntArray
    n_returns: Int32Array
    gone: BoolArray
    last_modified_at_us: IntArray
    last_modified_seen_us: IntArray
    last_change_at_us: IntArray
    bin_start: IntArray
    bin_id: Int32Array
    bin_weight: FloatArray
    bin_days: FloatArray
    bin_days_squared: FloatArray

    def __post_init__(self) -> None:
        sizes = {name: len(self.exposure_days) for name in _PAGE_COLUMNS}
        sizes |= {name: len(self.bin_id) for name in _BIN_COLUMNS}
        sizes["bin_start"] = len(self.exposure_days) + 1
        wrong = [
            f"{k} has {len(getattr(self, k))}, not {v}"
            for k, v in sizes.items()
            if len(getattr(self, k)) != v
        ]
        if wrong:
            raise ValueError(f"columns of a page state disagree in length: {'; '.join(wrong)}")
        if self.bin_start[0] != 0 or self.bin_start[-1] != len(self.bin_id):
            raise ValueError(
                f"bin_start runs from {self.bin_start[0]} to {self.bin_start[-1]}; it must run from 0 to the "
                f"number of bins, {len(self.bin_id)}"
            )

    def __len__(self) -> int:
        return len(self.exposure_days)

    @classmethod
    def empty(cls, n: int) -> PageState:
        """State of n pages that nothing is known about."""
        columns: dict[str, Any] = {k: np.full(n, v, dtype=t) for k, (t, v) in _PAGE_COLUMNS.items()}
        columns |= {k: np.zeros(0, dtype=t) for k, t in _BIN_COLUMNS.items()}
        return cls(bin_start=np.zeros(n + 1, dtype=np.int64), **columns)

    def take(self, rows: IntArray) -> PageState:
        """State of the pages `rows`, in that order; -1 stands for a page that nothing is known about.

        Parameters
        ----------
        rows : (k,) int64, each page at most once
        """
        rows = np.asarray(rows, dtype=np.int64)
        n, k = len(self), len(rows)
        if k and not (rows.min() >= -1 and rows.max() < n):
            raise ValueError(
                f"rows {rows.min()}..{rows.max()} do not fit a state of {n} pages; give -1..{n - 1}"
            )
        known = np.flatnonzero(rows >= 0)
        source = rows[known]
        columns: dict[str, Any] = {}
        for name, (dtype, value) in _PAGE_COLUMNS.items():
            old = getattr(self, name)
            if len(known) == k:
                columns[name] = old[rows]
            else:
                columns[name] = np.full(k, value, dtype=dtype)
                columns[name][known] = old[source]
        size = np.zeros(k, dtype=np.int64)
        size[known] = np.diff(self.bin_start)[source]
        start = np.zeros(k + 1, dtype=np.int64)
        np.cumsum(size, out=start[1:])
        bins = ranges(self.bin_start[source], size[known])
        columns |= {name: getattr(self, name)[bins] for name in _BIN_COLUMNS}
        return PageState(bin_start=start, **columns)

    def slice(self, low: int, high: int, last_attempt_at_us: IntArray) -> PageState:
        """Pages `low` to `high` - 1, as views, with another (n,) column of last attempts."""
        columns: dict[str, Any] = {name: getattr(self, name)[low:high] for name in _PAGE_COLUMNS}
        columns["last_attempt_at_us"] = last_attempt_at_us[low:high]
        start = self.bin_start[low : high + 1]
        columns |= {name: getattr(self, name)[start[0] : start[-1]] for name in _BIN_COLUMNS}
        return PageState(bin_start=start - start[0], **columns)

    def expand(self, codes: IntArray, n: int) -> PageState:
        """This state spread over a larger set of pages.

        Parameters
        ----------
        codes : (len(self),) int64
            Place of each page in the larger set, each at most once.
        n : int
            Size of the larger set; pages without a code come out empty.
        """
        codes = np.asarray(codes, dtype=np.int64)
        if len(codes) != len(self):
            raise ValueError(f"{len(codes)} codes for {len(self)} pages; give one each")
        if len(codes) and not (codes.min() >= 0 and codes.max() < n):
            raise ValueError(f"codes {codes.min()}..{codes.max()} do not fit {n} pages; give 0..{n - 1}")
        rows = np.full(n, -1, dtype=np.int64)
        rows[codes] = np.arange(len(codes))
        if np.count_nonzero(rows >= 0) != len(codes):
            raise ValueError(f"two of {len(codes)} pages have the same code; codes must differ")
        return self.take(rows)

    def bin_page(self) -> IntArray:
        """Page of each bin: (m,) int64."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.bin_start))

    def equals(self, other: PageState) -> bool:
        """Whether all columns agree to the bit."""
        return all(
            np.array_equal(_bits(getattr(self, f.name)), _bits(getattr(other, f.name))) for f in fields(self)
        )


def concatenate(parts: Sequence[PageState]) -> PageState:
    """The pages of all parts, one part after the other."""
    if not parts:
        return PageState.empty(0)
    if len(parts) == 1:
        return parts[0]
    names = (*_PAGE_COLUMNS, *_BIN_COLUMNS)
    columns: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
    bins = np.cumsum([0] + [len(p.bin_id) for p in parts])
    starts = [p.bin_start[:-1] + first for p, first in zip(parts, bins, strict=False)]
    return PageState(bin_start=np.concatenate([*starts, bins[-1:]]), **columns)


def _bits(values: NDArray[Any]) -> NDArray[Any]:
    return values.view(np.int64) if values.dtype == np.float64 else values


def ranges(start: IntArray, size: IntArray) -> IntArray:
    """``start[0] .. start[0] + size[0] - 1, start[1] ..``, one after the other."""
    ends = np.cumsum(size)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(start - ends + size, size)


@dataclass(frozen=True, slots=True)
class Forgetting:
    """How fast evidence loses weight. None turns a half-life off; both together multiply.

    Attributes
    ----------
    half_life_changes : int or None
        Observed changes of the page after which an interval counts half.
    half_life_days : float or None, days, at least 1
        Days after which an interval counts half.
    """

    half_life_changes: int | None = None
    half_life_days: float | None = None

    def __post_init__(self) -> None:
        changes, days = self.half_life_changes, self.half_life_days
        if changes is not None and not (changes >= 1 and changes == int(changes)):
            raise ValueError(f"half_life_changes is {changes}; give a whole number of 1 or more, or none")
        if days is not None and not 1.0 <= days <= 1e7:
            raise ValueError(f"half_life_days is {days}; give 1 to 1e7 days, or none")

    def __bool__(self) -> bool:
        return self.half_life_changes is not None or self.half_life_days is not None

    def landmarks(self, n_changes: IntArray | Int32Array, at_us: IntArray) -> IntArray:
        """Landmarks of pages as exponents of two: (k,) int64, from the arguments of `weights`."""
        exponent = np.zeros(len(n_changes), dtype=np.int64)
        if self.half_life_changes is not None:
            exponent = n_changes // np.int64(self.half_life_changes)
        if self.half_life_days is not None:
            exponent = exponent + np.where(at_us == NO_TIME, 0, at_us) // round(
                self.half_life_days * US_PER_DAY
            )
        return exponent

    def weights(self, n_changes: IntArray, at_us: IntArray) -> tuple[IntArray, FloatArray]:
        """Landmark weight of intervals as (exponent e, factor f), the weight being ``f * 2**(e - landmark)``.

        Parameters
        ----------
        n_changes : (k,) int64
            Changes of the page up to and with the interval.
        at_us : (k,) int64, microseconds
            End of the interval.

        Returns
        -------
        (k,) int64, (k,) float64 in [1, 4)
        """
        exponent = np.zeros(len(n_changes), dtype=np.int64)
        factor = np.ones(len(n_changes))
        if self.half_life_changes is not None:
            half_life = int(self.half_life_changes)
            low, high = (int(n_changes.min()), int(n_changes.max())) if len(n_changes) else (0, 0)
            if high - low < len(n_changes):  # a table of the few distinct numbers
                number = np.arange(low, high + 1)
                place: IntArray | slice = n_changes - low
            else:
                number, place = n_changes, slice(None)
            exponent = number // half_life
            factor = exp2_fraction((number - exponent * half_life) / half_life)[place]
            exponent = exponent[place]
        if self.half_life_days is not None:
            half_life = round(self.half_life_days * US_PER_DAY)
            passed = at_us // half_life
            exponent = exponent + passed
            factor = factor * exp2_fraction((at_us - passed * half_life) / half_life)
        return exponent, factor


_STEPS = 1024
_TABLE = np.exp2(np.arange(_STEPS) / _STEPS)


def exp2_fraction(x: FloatArray) -> FloatArray:
    """``2**x`` for x in [0, 1), to 2e-16: a table and a cubic, so that every lane rounds alike."""
    scaled = x * _STEPS
    step = np.minimum(scaled.astype(np.int64), _STEPS - 1)
    y = (scaled - step) * (np.log(2.0) / _STEPS)
    power: FloatArray = _TABLE[step] * (1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0 + y / 24.0))))
    return power


def _scaled(values: FloatArray, exponent: IntArray, factor: FloatArray) -> FloatArray:
    return np.ldexp(values / factor, np.maximum(exponent, -2000).astype(np.int32))


def evidence(
    state: PageState,
    half_life_changes: int | None = None,
    half_life_days: float | None = None,
    as_of_us: int | None = None,
) -> Evidence:
    """Evidence of all pages with the weights brought to the present.

    Parameters
    ----------
    state : PageState, n pages
        Folded with the same half-lives.
    half_life_changes : int, optional
    half_life_days : float, optional, days
    as_of_us : int, microseconds
        The present; needed with `half_life_days` only. Intervals that end later count in full.

    Returns
    -------
    Evidence of n pages
    """
    forgetting = Forgetting(half_life_changes, half_life_days)
    if forgetting.half_life_days is not None and as_of_us is None:
        raise ValueError("as_of_us is missing; half_life_days needs to know the present")
    exposure, dated = state.exposure_days, state.dated_changes
    start = state.bin_start
    sums = [state.bin_weight, state.bin_days, state.bin_days_squared]
    if forgetting:
        then = forgetting.landmarks(state.n_changes, state.baseline_at_us)
        present = state.baseline_at_us if as_of_us is None else np.maximum(state.baseline_at_us, as_of_us)
        exponent, factor = forgetting.weights(state.n_changes.astype(np.int64), present)
        exponent = then - exponent
        exposure, dated = _scaled(exposure, exponent, factor), _scaled(dated, exponent, factor)
        page = state.bin_page()
        sums = [_scaled(s, exponent[page], factor[page]) for s in sums]
        keep = sums[0] >= NEGLIGIBLE
        if not keep.all():
            sums = [s[keep] for s in sums]
            start = starts_of(page[keep], len(state))
    return Evidence(exposure, dated, start, sums[0], sums[1], sums[2])


def starts_of(page: IntArray, n: int) -> IntArray:
    start = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(page, minlength=n), out=start[1:])
    return start
