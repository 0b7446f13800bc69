"""What a night carries over about change-indicating signals.

Kept apart from `policies.history.page_state`, since most pages have no signals. Rows are pages of hosts that
ever sent a signal, from their first one on (`since_us`): an interval that began before says nothing about
signals, because nobody may have been there to send any. An interval that began later and holds none does.

Signals enter the likelihood of `policies.signals.evidence` by their number in each interval. Unchanged
intervals enter through sums; changed ones with like gaps and the same signals share a row. Sums have the
landmark weights of `policies.history.page_state`, so that any cutting of a log into nights gives the same
bits.

A page costs 72 bytes, each of its sources 40, each of its rows 36, and each two of its sources that ever came
together 28; a shard has at most `MAX_SOURCES` sources, see `choose_sources`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.history.page_state import NO_TIME, US_PER_DAY, Forgetting, PageState, ranges, starts_of
from policies.numerics.sums import NEGLIGIBLE
from policies.numerics.typing_ import FloatArray, Int32Array, IntArray

MAX_SOURCES = 8
OTHER = "other"
"""Sources beyond `MAX_SOURCES` are taken for one of this name."""

COUNT_BITS = 4
MAX_COUNT = (1 << COUNT_BITS) - 1
"""Signals of one source in a changed interval are told apart up to this number."""

DATED = 128
"""``bin_id = half-octave bin of the gap, plus DATED where the change has a date``."""
BIN_IDS = 2 * DATED

RECENT_HOURS = 64
"""Clock hours up to its last signal for which is known in which of them a source signalled a page."""

_PAGE_COLUMNS = {
    "page": np.int64,
    "since_us": np.int64,
    "exposure_days": np.float64,
    "dated_changes": np.float64,
    "watched_days": np.float64,
}
_SOURCE_COLUMNS = {
    "source": np.int32,
    "pending": np.int32,
    "unchanged": np.float64,
    "total": np.float64,
    "last_at_us": np.int64,
    "recent": np.uint64,
}
_BIN_COLUMNS = {
    "bin_id": np.int32,
    "signature": np.uint32,
    "bin_weight": np.float64,
    "bin_days": np.float64,
    "bin_days_squared": np.float64,
}
_PAIR_COLUMNS = {
    "pair": np.int32,
    "near_pending": np.int32,
    "far_pending": np.int32,
    "near": np.float64,
    "far": np.float64,
}
_GROUPS = (("source_start", _SOURCE_COLUMNS), ("bin_start", _BIN_COLUMNS), ("pair_start", _PAIR_COLUMNS))


@dataclass(frozen=True, slots=True)
class SignalState:
    """Folded signals of m pages. Arrays are not to be changed in place.

    Attributes
    ----------
    page : (m,) int64, ascending
        Code of each page, as in the `PageState` beside it.
    since_us : (m,) int64, microseconds since 1970
        Intervals that began at or after this count below.
    exposure_days : (m,) float64, days, landmark-weighted
        Unchanged gaps, plus the ages of dated changes.
    dated_changes : (m,) float64, landmark-weighted
        Changes whose date is known, in intervals without signals.
    watched_days : (m,) float64, days, landmark-weighted
        Gaps without the delay after a visit in which signals are discarded.
    source_start : (m + 1,) int64
        Sources of row i are ``source_start[i]:source_start[i + 1]``, ascending in `source`.
    source : (k,) int32
        Code of a source that signalled the page, below `MAX_SOURCES`.
    pending : (k,) int32
        Signals since the last observation.
    unchanged, total : (k,) float64, landmark-weighted
        Signals in unchanged intervals, and in all.
    last_at_us : (k,) int64, microseconds
        The last signal counted.
    recent : (k,) uint64
        Bit i is set if a signal was counted i clock hours before the last one's.
    bin_start : (m + 1,) int64
        Changed intervals of row i, ascending in (`signature`, `bin_id`). Dated changes without signals are
        not among them.
    bin_id : (b,) int32
        Half-octave bin of the time before the change: of the gap, less the age of a dated change, at least a
        minute. Plus `DATED`.
    signature : (b,) uint32
        Signals in the interval, `COUNT_BITS` bits a source, up to `MAX_COUNT` of each.
    bin_weight, bin_days, bin_days_squared : (b,) float64, landmark-weighted; 1, days, days squared
    pair_start : (m + 1,) int64
        Pairs of sources of row i that ever signalled together or a day apart, ascending in `pair`.
    pair : (c,) int32
        ``MAX_SOURCES * first + second``, codes of sources, first < second.
    near_pending, far_pending : (c,) int32
        Pairs of signals since the last observation, see `policies.signals.pairs`.
    near, far : (c,) float64, landmark-weighted
        Pairs of signals in ended intervals.
    """

    page: IntArray
    since_us: IntArray
    exposure_days: FloatArray
    dated_changes: FloatArray
    watched_days: FloatArray
    source_start: IntArray
    source: Int32Array
    pending: Int32Array
    unchanged: FloatArray
    total: FloatArray
    last_at_us: IntArray
    recent: NDArray[np.uint64]
    bin_start: IntArray
    bin_id: Int32Array
    signature: NDArray[np.uint32]
    bin_weight: FloatArray
    bin_days: FloatArray
    bin_days_squared: FloatArray
    pair_start: IntArray
    pair: Int32Array
    near_pending: Int32Array
    far_pending: Int32Array
    near: FloatArray
    far: FloatArray

    def __post_init__(self) -> None:
        tables: list[dict[str, Any]] = [_PAGE_COLUMNS, *(group for _, group in _GROUPS)]
        size = {name: len(getattr(self, name)) for group in tables for name in group}
        wrong = [
            f"{name} has {size[name]}, not {size[next(iter(group))]}"
            for group in tables
            for name in group
            if size[name] != size[next(iter(group))]
        ]
        if wrong:
            raise ValueError(f"columns of a signal state disagree in length: {'; '.join(wrong)}")
        for name, group in _GROUPS:
            start, last = getattr(self, name), len(getattr(self, next(iter(group))))
            if len(start) != len(self.page) + 1 or start[0] != 0 or start[-1] != last:
                raise ValueError(f"{name} must have {len(self.page) + 1} numbers, from 0 to {last}: {start}")
        if len(self.source) and not (self.source.min() >= 0 and self.source.max() < MAX_SOURCES):
            raise ValueError(
                f"sources {self.source.min()}..{self.source.max()} do not fit; give codes of 0 to "
                f"{MAX_SOURCES - 1}, see choose_sources"
            )

    def __len__(self) -> int:
        return len(self.page)

    @classmethod
    def empty(cls) -> SignalState:
        """No pages."""
        names = _PAGE_COLUMNS | _SOURCE_COLUMNS | _BIN_COLUMNS | _PAIR_COLUMNS
        columns: dict[str, Any] = {k: np.zeros(0, dtype=t) for k, t in names.items()}
        start = np.zeros(1, dtype=np.int64)
        return cls(source_start=start, bin_start=start, pair_start=start, **columns)

    def source_row(self) -> IntArray:
        """Row of each source: (k,) int64."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.source_start))

    def bin_row(self) -> IntArray:
        """Row of each bin: (b,) int64."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.bin_start))

    def pair_row(self) -> IntArray:
        """Row of each pair of sources: (c,) int64."""
        return np.repeat(np.arange(len(self), dtype=np.int64), np.diff(self.pair_start))

    def take(self, rows: IntArray) -> SignalState:
        """The rows `rows`, in that order."""
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in _PAGE_COLUMNS}
        for name, group in _GROUPS:
            old = getattr(self, name)
            size = np.diff(old)[rows]
            start = np.zeros(len(rows) + 1, dtype=np.int64)
            np.cumsum(size, out=start[1:])
            inside = ranges(old[:-1][rows], size)
            columns[name] = start
            columns |= {column: getattr(self, column)[inside] for column in group}
        return SignalState(**columns)

    def regrouped(self) -> SignalState:
        """This state with rows of one page and source made one, and so changed intervals that look alike.

        Which sources came together is forgotten.
        """
        columns: dict[str, Any] = {name: getattr(self, name) for name in _PAGE_COLUMNS}
        columns |= {name: np.zeros(0, dtype) for name, dtype in _PAIR_COLUMNS.items()}
        columns["pair_start"] = np.zeros(len(self) + 1, np.int64)
        for start, row, keys, group in (
            ("source_start", self.source_row(), ("source",), _SOURCE_COLUMNS),
            ("bin_start", self.bin_row(), ("signature", "bin_id"), _BIN_COLUMNS),
        ):
            key = np.column_stack([row, *(getattr(self, name).astype(np.int64) for name in keys)])
            distinct, slot = np.unique(key, axis=0, return_inverse=True)
            slot, n = slot.reshape(-1), len(distinct)
            columns[start] = starts_of(distinct[:, 0], len(self))
            for name, dtype in group.items():
                columns[name] = np.bincount(slot, getattr(self, name), n).astype(dtype)
            columns |= {name: distinct[:, 1 + j].astype(group[name]) for j, name in enumerate(keys)}
            if start == "source_start":
                columns["recent"], columns["last_at_us"] = np.zeros(n, np.uint64), np.full(n, NO_TIME)
                np.maximum.at(columns["last_at_us"], slot, self.last_at_us)
        return SignalState(**columns)

    def equals(self, other: SignalState) -> bool:
        """Whether all columns agree to the bit."""
        return all(
            getattr(self, f.name).dtype == getattr(other, f.name).dtype
            and getattr(self, f.name).tobytes() == getattr(other, f.name).tobytes()
            for f in fields(self)
        )


def concatenate(parts: Sequence[SignalState]) -> SignalState:
    """The rows of all parts, one part after the other; pages keep their codes."""
    if not parts:
        return SignalState.empty()
    names = (*_PAGE_COLUMNS, *_SOURCE_COLUMNS, *_BIN_COLUMNS, *_PAIR_COLUMNS)
    columns: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in parts]) for name in names}
    for name, _ in _GROUPS:
        firsts = np.cumsum([0] + [getattr(p, name)[-1] for p in parts])
        starts = [getattr(p, name)[:-1] + first for p, first in zip(parts, firsts, strict=False)]
        columns[name] = np.concatenate([*starts, firsts[-1:]])
    return SignalState(**columns)


def counts_of(signature: NDArray[np.uint32], source: int | IntArray) -> IntArray:
    """Signals of a source, by its code, in intervals with these signatures: int64."""
    shift = np.asarray(source, dtype=np.uint32) * np.uint32(COUNT_BITS)
    return ((signature >> shift) & np.uint32(MAX_COUNT)).astype(np.int64)


def signature_of(count: IntArray, source: int | IntArray) -> NDArray[np.uint32]:
    """Signature of intervals with signals of one source alone; signatures of several sources add up."""
    shift = np.asarray(source, dtype=np.uint32) * np.uint32(COUNT_BITS)
    return np.minimum(count, MAX_COUNT).astype(np.uint32) << shift


def choose_sources(carried: Iterable[str], new: Iterable[str]) -> tuple[list[str], dict[str, int]]:
    """The sources that a shard tells apart, and the code of every name.

    Parameters
    ----------
    carried : iterable of str
        Names in the state.
    new : iterable of str
        Names in tonight's signals.

    Returns
    -------
    names : list of str, sorted, at most `MAX_SOURCES`
    code : dict of str to int
        Place in `names`, of all names given. Where there are more than fit, those in the state go before new
        ones, each in order, and what does not fit is `OTHER`: which sources that are then depends on the
        nights and shards.
    """
    old = set(carried)
    fresh = set(new) - old
    everyone = old | fresh
    if len(everyone) <= MAX_SOURCES:
        kept = everyone
    else:
        ranked = [*sorted(old - {OTHER}), *sorted(fresh - {OTHER})]
        kept = {OTHER, *ranked[: MAX_SOURCES - 1]}
    names = sorted(kept)
    place = {name: i for i, name in enumerate(names)}
    return names, {name: place.get(name, place.get(OTHER, 0)) for name in everyone}


def bring_to_present(
    state: SignalState, history: PageState, forgetting: Forgetting, as_of_us: int, delay_us: int = 0
) -> tuple[SignalState, FloatArray]:
    """The state with weights of the present, as `policies.history.page_state.evidence` has them.

    Parameters
    ----------
    state : SignalState, m pages
    history : PageState
        The pages' own state, folded with the same `forgetting`.
    forgetting : Forgetting
    as_of_us : int, microseconds
    delay_us : int, microseconds
        Time after a visit in which signals are discarded.

    Returns
    -------
    SignalState
    running_days : (m,) float64, days
        Watched time of the running interval, from the begin of the era of signals on if that is later; 0
        where no interval runs.
    """
    changes = history.n_changes[state.page].astype(np.int64)
    began = history.baseline_at_us[state.page]
    listening = np.maximum(np.maximum(began, -(1 << 62)) + delay_us, state.since_us)
    running = np.where(began != NO_TIME, as_of_us - listening, 0)
    if forgetting:
        exponent, factor = forgetting.weights(changes, np.maximum(began, as_of_us))
        exponent = np.maximum(forgetting.landmarks(changes, began) - exponent, -2000).astype(np.int32)
        columns: dict[str, Any] = {}
        for names, row in (
            (("exposure_days", "dated_changes", "watched_days"), np.arange(len(state))),
            (("unchanged", "total"), state.source_row()),
            (("bin_weight", "bin_days", "bin_days_squared"), state.bin_row()),
            (("near", "far"), state.pair_row()),
        ):
            columns |= {n: np.ldexp(getattr(state, n) / factor[row], exponent[row]) for n in names}
        keep = columns["bin_weight"] >= NEGLIGIBLE
        columns["bin_start"] = starts_of(state.bin_row()[keep], len(state))
        columns |= {n: columns.get(n, getattr(state, n))[keep] for n in _BIN_COLUMNS}
        state = replace(state, **columns)
    return state, np.maximum(running, 0) / US_PER_DAY
