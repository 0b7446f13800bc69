"""Adding a night's intervals to the sums of their pages, strictly in order of time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.history.evidence import bin_of
from policies.history.page_state import BIN_IDS, US_PER_DAY, Forgetting, PageState, ranges, starts_of
from policies.numerics.sums import NEGLIGIBLE
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

_US_PER_MINUTE = 60_000_000

# Half-lives that one pass may span: sums stay far above the smallest normal number, so scaling is exact.
_SPAN = 256


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals between observations, sorted by (page, time).

    Attributes
    ----------
    page : (k,) int64
    at_us : (k,) int64, microseconds
        End of the interval.
    gap_us : (k,) int64, microseconds
        Its length, at least one minute.
    changed : (k,) bool
    age_us : (k,) int64, microseconds, or None
        Age of a dated change when it was found, 0 where the change has no date.
    exposure_us : (k,) int64, microseconds, or None where it is the age
        What a dated change adds to exposure, see `policies.history.modified_dates`.
    begun_page, begun_us : (b,) int64, microseconds, or None
        Visits that intervals begin at and none ends with, sorted by (page, time).
    clock_us : (k,) int64, microseconds, or None where it is `gap_us`
        Their lengths in clock time, see `policies.clocks.profile`; `exposure_us` is in clock time, too.
    """

    page: IntArray
    at_us: IntArray
    gap_us: IntArray
    changed: BoolArray
    age_us: IntArray | None
    exposure_us: IntArray | None = None
    begun_page: IntArray | None = None
    begun_us: IntArray | None = None
    clock_us: IntArray | None = None

    @property
    def length_us(self) -> IntArray:
        """Lengths in clock time, (k,) int64, microseconds."""
        return self.gap_us if self.clock_us is None else self.clock_us

    def take(self, rows: IntArray) -> Intervals:
        """The rows `rows`, ascending, without the visits that begin some."""
        clock_us = None if self.clock_us is None else self.clock_us[rows]
        age_us, exposure_us = (None if c is None else c[rows] for c in (self.age_us, self.exposure_us))
        gap_us, changed = self.gap_us[rows], self.changed[rows]
        page, at_us = self.page[rows], self.at_us[rows]
        return Intervals(page, at_us, gap_us, changed, age_us, exposure_us, clock_us=clock_us)


@dataclass(slots=True)
class _Sums:
    """Sums under way: per page, and per slot (page, bin)."""

    exposure: FloatArray
    dated: FloatArray
    slots: list[FloatArray]  # weight, days, days squared


def add_intervals(
    state: PageState, intervals: Intervals, baseline_at_us: IntArray, forgetting: Forgetting
) -> dict[str, Any]:
    """Columns of the state that count intervals, with `intervals` added.

    Parameters
    ----------
    state : PageState, n pages
    intervals : Intervals
    baseline_at_us : (n,) int64, microseconds
        End of the last interval, or the baseline, of each page after the night.
    forgetting : Forgetting

    Returns
    -------
    dict
        exposure_days, dated_changes, n_intervals, n_changes, bin_start, bin_id, bin_weight, bin_days,
        bin_days_squared.
    """
    n = len(state)
    page, changed, age_us = intervals.page, intervals.changed, intervals.age_us
    gap_days = intervals.length_us / US_PER_DAY
    undated = changed if age_us is None else changed & (age_us == 0)

    changes = np.bincount(page[changed], minlength=n)
    n_changes = state.n_changes + changes
    n_intervals = state.n_intervals + np.bincount(page, minlength=n)

    rows = np.flatnonzero(undated)
    bins = bin_of(intervals.length_us[rows] / _US_PER_MINUTE).astype(np.int64)
    keys, old, slot = union(state.bin_page() * BIN_IDS + state.bin_id, page[rows] * BIN_IDS + bins)
    slots = []
    for before in (state.bin_weight, state.bin_days, state.bin_days_squared):
        slots.append(np.zeros(len(keys)))
        slots[-1][old] = before
    sums = _Sums(state.exposure_days.copy(), state.dated_changes.copy(), slots)
    exposure = np.where(undated, 0.0, gap_days)
    if age_us is not None:
        dated = changed & ~undated
        dated_us = age_us if intervals.exposure_us is None else intervals.exposure_us
        np.copyto(exposure, dated_us / US_PER_DAY, where=dated)
    add = _Add(page, exposure, changed, undated, gap_days, slot)

    if not forgetting:
        add(sums, None)
    else:
        count = np.cumsum(changed, dtype=np.int64)
        count += (state.n_changes - (np.cumsum(changes) - changes))[page]
        exponent, factor = forgetting.weights(count, intervals.at_us)
        unit = forgetting.landmarks(state.n_changes, state.baseline_at_us)
        target = forgetting.landmarks(n_changes, baseline_at_us)
        if forgetting.half_life_days is not None:
            # Sums of 0 are in any unit: take that of the first interval, which is not decades away.
            first = np.flatnonzero(np.diff(page, prepend=-1))
            fresh = state.n_intervals[page[first]] == 0
            unit[page[first[fresh]]] = exponent[first[fresh]]
        none = n_intervals == 0
        target[none] = unit[none]
        _add_weighted(sums, add, keys // BIN_IDS, unit, target, exponent, factor)

    alive = sums.slots[0] > 0.0
    if not alive.all():
        keys, sums.slots = keys[alive], [s[alive] for s in sums.slots]
    key_page = keys // BIN_IDS
    return {
        "exposure_days": sums.exposure,
        "dated_changes": sums.dated,
        "n_intervals": n_intervals.astype(np.int32),
        "n_changes": n_changes.astype(np.int32),
        "bin_start": starts_of(key_page, n),
        "bin_id": (keys - key_page * BIN_IDS).astype(np.int32),
        "bin_weight": sums.slots[0],
        "bin_days": sums.slots[1],
        "bin_days_squared": sums.slots[2],
    }


@dataclass(slots=True)
class _Add:
    """Adds intervals to sums one after the other: `np.add.at` never pairs up terms as `np.sum` does."""

    page: IntArray
    exposure: FloatArray
    changed: BoolArray
    undated: BoolArray
    gap_days: FloatArray
    slot: IntArray  # of the undated rows

    def take(self, rows: IntArray) -> _Add:
        """Only the intervals `rows`, in that order."""
        slot = np.zeros(len(self.page), dtype=np.int64)
        slot[self.undated] = self.slot
        undated = self.undated[rows]
        return _Add(
            self.page[rows],
            self.exposure[rows],
            self.changed[rows],
            undated,
            self.gap_days[rows],
            slot[rows[undated]],
        )

    def parts(self, ends: IntArray) -> Iterator[_Add]:
        """Cut into runs that end before `ends`."""
        rows = np.append(0, ends)
        slots = np.append(0, np.cumsum(self.undated))[rows]
        for r, s in zip(pairwise(rows.tolist()), pairwise(slots.tolist()), strict=True):
            run, slot = slice(*r), slice(*s)
            yield _Add(
                self.page[run],
                self.exposure[run],
                self.changed[run],
                self.undated[run],
                self.gap_days[run],
                self.slot[slot],
            )

    def __call__(self, sums: _Sums, weight: FloatArray | None) -> None:
        """Add the intervals with their weights, 1 if None."""
        page, exposure, changed, undated = self.page, self.exposure, self.changed, self.undated
        gap, slot = self.gap_days, self.slot
        if weight is not None:
            exposure = exposure * weight
        np.add.at(sums.exposure, page, exposure)
        dated = np.flatnonzero(changed & ~undated)
        if len(dated):
            np.add.at(sums.dated, page[dated], 1.0 if weight is None else weight[dated])
        bins = np.flatnonzero(undated)
        days = gap[bins]
        first = np.ones(len(bins)) if weight is None else weight[bins]
        np.add.at(sums.slots[0], slot, first)
        np.add.at(sums.slots[1], slot, days if weight is None else first * days)
        np.add.at(sums.slots[2], slot, days * days if weight is None else first * (days * days))


def _add_weighted(
    sums: _Sums,
    add: _Add,
    slot_page: IntArray,
    before: IntArray,
    target: IntArray,
    exponent: IntArray,
    factor: FloatArray,
) -> None:
    """Add rows with weights ``factor * 2**(exponent - target[page])`` to sums in units of ``2**before``."""
    page = add.page
    n = len(before)
    if int((target - before).max(initial=0)) <= _SPAN or not len(page):
        shift = before - target
        _rescale(sums, slice(None), slice(None), shift, shift[slot_page])
        shift_rows = exponent - target[page]
        add(sums, np.ldexp(factor, shift_rows.astype(np.int32)))
        if shift.any():
            _drop_negligible(sums, slice(None), slice(None))
        return
    # A page that runs through very many half-lives in one night takes several passes, as over many nights.
    block = (exponent - before[page]) // _SPAN
    new_page = np.diff(page, prepend=-1) != 0
    step = np.diff(block, prepend=0) != 0
    step[new_page] = False
    turn = np.cumsum(step)
    turn -= turn[np.maximum.accumulate(np.where(new_page, np.arange(len(page)), 0))]
    order = np.argsort(turn, kind="stable")
    ends = np.cumsum(np.bincount(turn))
    exponents, factors = np.split(exponent[order], ends[:-1]), np.split(factor[order], ends[:-1])
    start, unit = starts_of(slot_page, n), before.copy()
    for part, e, f in zip(add.take(order).parts(ends), exponents, factors, strict=True):
        last = np.flatnonzero(np.diff(part.page, append=-1))
        pages = part.page[last]
        shift = unit[pages] - e[last]
        unit[pages] = e[last]
        size = start[pages + 1] - start[pages]
        slots = ranges(start[pages], size)
        _rescale(sums, pages, slots, shift, np.repeat(shift, size))
        part(sums, np.ldexp(f, (e - unit[part.page]).astype(np.int32)))
        _drop_negligible(sums, pages, slots)
    # Pages of which the last visit ended no interval.
    shift = unit - target
    _rescale(sums, slice(None), slice(None), shift, shift[slot_page])
    _drop_negligible(sums, slice(None), slice(None))


def _rescale(
    sums: _Sums, pages: IntArray | slice, slots: IntArray | slice, shift: IntArray, slot_shift: IntArray
) -> None:
    """Multiply by powers of two."""
    if shift.any():
        power = np.maximum(shift, -2000).astype(np.int32)
        sums.exposure[pages] = np.ldexp(sums.exposure[pages], power)
        sums.dated[pages] = np.ldexp(sums.dated[pages], power)
        power = np.maximum(slot_shift, -2000).astype(np.int32)
        for values in sums.slots:
            values[slots] = np.ldexp(values[slots], power)


def _drop_negligible(sums: _Sums, pages: IntArray | slice, slots: IntArray | slice) -> None:
    for values in (sums.exposure, sums.dated):
        part = values[pages]
        values[pages] = np.where(part < NEGLIGIBLE, 0.0, part)
    dead = sums.slots[0][slots] < NEGLIGIBLE
    for values in sums.slots:
        values[slots] = np.where(dead, 0.0, values[slots])


def union(old: IntArray, new: IntArray) -> tuple[IntArray, NDArray[Any] | slice, IntArray]:
    """Merge sorted distinct keys `old` with keys `new` in any order.

    Returns
    -------
    keys, place of each old key, place of each new key
    """
    if not len(new):
        return old, slice(None), np.zeros(0, dtype=np.int64)
    distinct, inverse = np.unique(new, return_inverse=True)
    if not len(old):
        return distinct, np.zeros(0, dtype=np.int64), inverse
    at = np.searchsorted(old, distinct)
    added = old[np.minimum(at, len(old) - 1)] != distinct
    place = at + np.cumsum(added) - added
    keys = np.empty(len(old) + int(np.count_nonzero(added)), dtype=np.int64)
    is_old = np.ones(len(keys), dtype=np.bool_)
    is_old[place[added]] = False
    old_place = np.flatnonzero(is_old)
    keys[old_place] = old
    keys[place[added]] = distinct[added]
    return keys, old_place, place[inverse]
