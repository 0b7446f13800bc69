"""Folding change-indicating signals, and the intervals they fall into, into the state of their pages.

`SignalFold` sees tonight's signals first, watches the intervals that `policies.history.history.fold` finds,
and then adds both to a `SignalState`. What becomes of a signal is said at
`policies.signals.counts.DISPOSITIONS`. Those that count belong to the interval that the page's next
observation ends, and are pending until then. What was pending when the first observation of a page came in is
dropped: it says nothing about an interval.

The first timely signal of a host begins its era, for all its pages and all sources. Of a host that is split
over shards, every shard's part has its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.history.evidence import bin_of
from policies.history.interval_sums import Intervals, union
from policies.history.page_state import NO_TIME, US_PER_DAY, Forgetting, PageState, starts_of
from policies.numerics.sums import Night, SumsInOrder
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array, IntArray
from policies.signals.counts import DISPOSITIONS, Signals, counted, neighbours
from policies.signals.forecast import HeardIntervals
from policies.signals.pairs import pairs, recent_hours
from policies.signals.state import BIN_IDS, DATED, MAX_SOURCES, SignalState, concatenate, signature_of

_US_PER_MINUTE = 60_000_000
_NEVER = np.iinfo(np.int64).max


class SignalFold:
    """One night of signals.

    Parameters
    ----------
    state : SignalState
        Yesterday's, with the codes of tonight's pages.
    signals : Signals
    history : PageState, n pages
        Yesterday's, before the night's observations.
    host_code : (n,) int32
        Host of each page, 0..h-1.
    as_of_us : int, microseconds
        Later signals are ignored.
    delay_us : int, microseconds
        Signals less than this after an observation are discarded.

    Raises
    ------
    ValueError
        Signals that do not fit the pages or sources.

    Examples
    --------
    ::

        news = SignalFold(signal_state, signals, history, host_code, as_of_us)
        history, _ = fold(history, observations, as_of_us, watch=news)
        signal_state, counts = news.finish(history, forgetting)
    """

    def __init__(
        self,
        state: SignalState,
        signals: Signals,
        history: PageState,
        host_code: Int32Array,
        as_of_us: int,
        delay_us: int = 0,
    ) -> None:
        signals.check(len(history), MAX_SOURCES)
        self._state, self._before, self._delay_us = state, history, delay_us
        self._counts = dict.fromkeys(("signals", *DISPOSITIONS), 0)
        self._counts["signals"] = len(signals)
        self._timely(signals, as_of_us)
        self._any = len(self._signals) > 0 or len(state) > 0
        if self._any:
            self._begin_eras(host_code)
        self._watched: list[tuple[int, Intervals]] = []
        self._n_pages = len(history)
        self.heard: list[HeardIntervals] = []
        """Tonight's intervals of pages in the era, and the signals in each; after `finish`."""

    def listens(self) -> BoolArray:
        """Pages in the era of signals, which are those of `heard`: (n,) bool."""
        return self._since != _NEVER if self._any else np.zeros(self._n_pages, np.bool_)

    def _timely(self, signals: Signals, as_of_us: int) -> None:
        state, page, at_us = self._state, signals.page, signals.signalled_at_us
        table = _source_keys(state.page[state.source_row()], state.source)
        key = _source_keys(page, signals.source)
        last = np.full(len(signals), NO_TIME)
        if len(table):
            place = np.minimum(np.searchsorted(table, key), len(table) - 1)
            last = np.where(table[place] == key, state.last_at_us[place], NO_TIME)
        after = at_us > as_of_us
        late = ~after & ((at_us <= self._before.last_success_at_us[page]) | (at_us < last))
        timely = ~(after | late)
        self._counts["signals_after_as_of"] += int(np.count_nonzero(after))
        self._counts["signals_late"] += int(np.count_nonzero(late))
        self._signals, self._last_us = signals.take(timely), last[timely]

    def _begin_eras(self, host_code: Int32Array) -> None:
        n_hosts = int(host_code.max(initial=-1)) + 1
        since = np.full(n_hosts, _NEVER)
        np.minimum.at(since, host_code[self._state.page], self._state.since_us)
        new = since[host_code[self._signals.page]] == _NEVER
        first = self._signals.take(new)
        np.minimum.at(since, host_code[first.page], first.signalled_at_us)
        self._since = since[host_code]
        self._since[self._state.page] = self._state.since_us

    def __call__(self, first_page: int, intervals: Intervals) -> None:
        """Watch intervals of the pages from `first_page` on; their codes count from there."""
        if not self._any:
            return
        page = intervals.page + first_page
        rows = np.flatnonzero(self._since[page] != _NEVER)
        begun_page, begun_us = intervals.begun_page, intervals.begun_us
        assert begun_page is not None and begun_us is not None
        begun = np.flatnonzero(self._since[begun_page + first_page] != _NEVER)
        watched = replace(intervals, page=page).take(rows)
        watched = replace(watched, begun_page=begun_page[begun] + first_page, begun_us=begun_us[begun])
        self._watched.append((first_page, watched))

    def finish(self, history: PageState, forgetting: Forgetting) -> tuple[SignalState, dict[str, int]]:
        """Today's state, and the counters: ``signals`` and its `DISPOSITIONS`.

        Parameters
        ----------
        history : PageState, n pages
            After the night's observations.
        forgetting : Forgetting
            The half-lives of `history`.
        """
        if not self._any:
            return self._state, self._counts
        order = np.argsort(self._signals.page, kind="stable")
        signals, last_us = self._signals.take(order), self._last_us[order]
        ends = [*(low for low, _ in self._watched[1:]), len(history)]
        parts = []
        for (low, intervals), high in zip(self._watched, ends, strict=True):
            pages = low + np.flatnonzero(self._since[low:high] != _NEVER)
            news = slice(*np.searchsorted(signals.page, (low, high)))
            if len(pages):
                block = _Block(pages, self._since[pages], intervals, self._before, history, forgetting)
                parts.append(
                    self._fold(
                        block,
                        self._state.take(np.arange(*np.searchsorted(self._state.page, (low, high)))),
                        signals.take(news),
                        last_us[news],
                    )
                )
        return concatenate(parts), self._counts

    def _fold(self, block: _Block, state: SignalState, signals: Signals, last_us: IntArray) -> SignalState:
        """Fold a run of pages."""
        night, (seen_row, seen_at, seen_interval) = block.night, block.observations()
        old_row, row = block.row_of(state.page), block.row_of(signals.page)
        previous, following = neighbours(row, signals.signalled_at_us, seen_row, seen_at)
        before = self._before.baseline_at_us[signals.page]
        if len(seen_at):
            before = np.where(previous >= 0, seen_at[np.maximum(previous, 0)], before)
        kept = counted(signals, before, last_us, self._delay_us, self._counts)
        key = _source_keys(row[kept], signals.source[kept])
        table = _Sources(state, old_row, key, signals.signalled_at_us[kept])
        table.open(block.opened, block.opened[row[kept]] & (previous[kept] < 0))

        waiting = np.flatnonzero(table.pending)
        first = _first_seen(table.keys[waiting] // MAX_SOURCES, seen_row)
        slot = np.concatenate([waiting, table.new])
        number = np.concatenate([table.pending[waiting], np.ones(len(kept), np.int64)])
        ends = np.concatenate([first, following[kept]])
        last_us = np.concatenate([table.before_us[waiting], signals.signalled_at_us[kept]])
        pending = np.bincount(slot[ends < 0], number[ends < 0], len(table.keys)).astype(np.int32)
        use = np.flatnonzero(ends >= 0)
        use = use[seen_interval[ends[use]] >= 0]
        slot, number, ends = slot[use], number[use], seen_interval[ends[use]]
        couples = _Couples(state, old_row, table)
        couples.end(following[kept], seen_row, seen_interval)
        source = (table.keys[slot] % MAX_SOURCES).astype(np.int32)
        self.heard.append(HeardIntervals(*block.intervals(), ends, source, number, last_us[use]))
        inside = _Inside(slot, number, ends, night, table.keys)
        columns = _add(state, old_row, night, inside, table, couples, self._delay_us)
        source_row = table.keys // MAX_SOURCES
        return SignalState(
            page=block.pages,
            since_us=block.since_us,
            source_start=starts_of(source_row, len(block.pages)),
            source=(table.keys - source_row * MAX_SOURCES).astype(np.int32),
            pending=pending,
            last_at_us=table.last_at_us,
            recent=table.recent(),
            **columns,
        )


class _Block:
    """A run of m pages in the era of signals, and their intervals tonight."""

    def __init__(
        self,
        pages: IntArray,
        since_us: IntArray,
        intervals: Intervals,
        before: PageState,
        after: PageState,
        forgetting: Forgetting,
    ) -> None:
        self.pages, self.since_us = pages, since_us
        self._row = np.full(int(pages[-1] - pages[0]) + 1, -1)
        self._row[pages - pages[0]] = np.arange(len(pages))
        last_us = after.baseline_at_us[pages]
        self.opened = (before.baseline_at_us[pages] == NO_TIME) & (last_us != NO_TIME)
        assert intervals.begun_page is not None and intervals.begun_us is not None
        self._begun_row, self._begun_us = self.row_of(intervals.begun_page), intervals.begun_us
        row, at_us, gap_us = self.row_of(intervals.page), intervals.at_us, intervals.gap_us
        changed = intervals.changed
        counts = before.n_changes[pages].astype(np.int64)
        count = np.cumsum(changed, dtype=np.int64)
        found = np.bincount(row, changed, len(pages)).astype(np.int64)
        count += (counts - (np.cumsum(found) - found))[row]
        exponent, factor = forgetting.weights(count, at_us)
        unit = forgetting.landmarks(counts, before.baseline_at_us[pages])
        target = forgetting.landmarks(after.n_changes[pages].astype(np.int64), last_us)
        in_era = at_us - gap_us >= since_us[row]
        age_us = np.zeros(len(row), np.int64) if intervals.age_us is None else intervals.age_us
        dated_us = age_us if intervals.exposure_us is None else intervals.exposure_us
        self.night = Night(
            row, at_us, gap_us, changed, age_us, dated_us, in_era, exponent, factor, unit, target
        )

    def row_of(self, page: IntArray) -> IntArray:
        """Row of each page of the run."""
        row: IntArray = self._row[page - self.pages[0]]
        return row

    def intervals(self) -> tuple[Intervals, IntArray]:
        """Tonight's intervals, and how much of each had passed before the era, microseconds."""
        night = self.night
        before_us = np.clip(self.since_us[night.row] - (night.at_us - night.gap_us), 0, night.gap_us)
        page = self.pages[night.row]
        return Intervals(page, night.at_us, night.gap_us, night.changed, night.age_us), before_us

    def observations(self) -> tuple[IntArray, IntArray, IntArray]:
        """Row, time and ended interval (-1: a baseline) of tonight's observations, by (row, time)."""
        night = self.night
        row, at_us = np.append(night.row, self._begun_row), np.append(night.at_us, self._begun_us)
        ended = np.append(np.arange(len(night.row)), np.full(len(self._begun_row), -1))
        order = np.lexsort((at_us, row))
        return row[order], at_us[order], ended[order]


def _first_seen(row: IntArray, seen_row: IntArray) -> IntArray:
    """The first of tonight's observations of each row, -1 if none: what is pending belongs to it."""
    if not len(seen_row):
        return np.full(len(row), -1)
    found = np.searchsorted(seen_row, row)
    return np.where(seen_row[np.minimum(found, len(seen_row) - 1)] == row, found, -1)


def _source_keys(row: IntArray, source: Int32Array) -> IntArray:
    return row * np.int64(MAX_SOURCES) + source


class _Sources:
    """The table of (row, source): keys, where yesterday's and tonight's are, and what is plain in it."""

    def __init__(self, state: SignalState, old_row: IntArray, key: IntArray, at_us: IntArray) -> None:
        old_key = _source_keys(old_row[state.source_row()], state.source)
        self.keys, self.old, self.new = union(old_key, key)
        self.pending = self.grow(state.pending, np.int64)
        self.before_us = np.full(len(self.keys), NO_TIME)
        self.before_us[self.old] = state.last_at_us
        self.last_at_us = self.before_us.copy()
        self.at_us = at_us
        np.maximum.at(self.last_at_us, self.new, at_us)
        self.recent_before = self.grow(state.recent, np.uint64)
        self.paired = np.arange(len(key))

    def open(self, opened: BoolArray, early: BoolArray) -> None:
        """Forget the hours of signals before a page's first observation, by (m,) rows and for tonight's."""
        self.recent_before[opened[self.keys // MAX_SOURCES]] = 0
        self.paired = np.flatnonzero(~early)

    def recent(self) -> NDArray[np.uint64]:
        """Hours in which sources signalled, of today."""
        new, at_us = self.new[self.paired], self.at_us[self.paired]
        return recent_hours(self.recent_before, self.before_us, self.last_at_us, new, at_us)

    def grow(self, column: NDArray[Any], dtype: Any) -> NDArray[Any]:
        """A column of yesterday with zeros for what is new."""
        grown = np.zeros(len(self.keys), dtype=dtype)
        grown[self.old] = column
        return grown


class _Couples:
    """Pairs of signals of two sources, by the interval that they end in; sources by (row, first, second)."""

    def __init__(self, state: SignalState, old_row: IntArray, table: _Sources) -> None:
        use = table.paired
        later, key, self._far = pairs(
            table.keys, table.recent_before, table.before_us, table.new[use], table.at_us[use]
        )
        self._later = use[later]
        old_key = old_row[state.pair_row()] * MAX_SOURCES**2 + state.pair
        self.keys, self.old, self._new = union(old_key, key)
        self._pending = [state.near_pending, state.far_pending]
        self.row = self.keys // MAX_SOURCES**2
        self.pending: list[Int32Array] = []
        self.ended: list[tuple[IntArray, FloatArray, IntArray]] = []

    def end(self, following: IntArray, seen_row: IntArray, seen_interval: IntArray) -> None:
        """Find what is pending now, and what ends in which interval: place, number, interval of each."""
        n = len(self.keys)
        first = _first_seen(self.row, seen_row)
        for far, before in enumerate(self._pending):
            waiting = np.zeros(n, np.int64)
            waiting[self.old] = before
            old, new = np.flatnonzero(waiting), np.flatnonzero(self._far == far)
            slot = np.concatenate([old, self._new[new]])
            number = np.concatenate([waiting[old], np.ones(len(new), np.int64)])
            ends = np.concatenate([first[old], following[self._later[new]]])
            self.pending.append(np.bincount(slot[ends < 0], number[ends < 0], n).astype(np.int32))
            use = np.flatnonzero(ends >= 0)
            use = use[seen_interval[ends[use]] >= 0]
            # One sum an interval, by how many nights they came does not matter.
            distinct, entry = np.unique(seen_interval[ends[use]] * n + slot[use], return_inverse=True)
            total = np.bincount(entry, number[use], len(distinct)).astype(np.float64)
            interval = distinct // max(n, 1)
            self.ended.append((distinct - interval * n, total, interval))

    def columns(self, state: SignalState, night: Night, sums: SumsInOrder) -> None:
        """Enter what ended in intervals that count."""
        for name, (slot, number, interval) in zip(("near", "far"), self.ended, strict=True):
            use = np.flatnonzero(night.counts[interval])
            old = getattr(state, name)
            sums.column(name, self.row, self.old, old, slot[use], number[use], interval[use])

    def finish(self, n_rows: int, near: FloatArray, far: FloatArray) -> dict[str, Any]:
        """The columns of the state; sources that have no pairs left are left out."""
        some = (near > 0.0) | (far > 0.0) | (self.pending[0] > 0) | (self.pending[1] > 0)
        row = self.row[some]
        return {
            "pair_start": starts_of(row, n_rows),
            "pair": (self.keys[some] - row * MAX_SOURCES**2).astype(np.int32),
            "near_pending": self.pending[0][some],
            "far_pending": self.pending[1][some],
            "near": near[some],
            "far": far[some],
        }


class _Inside:
    """Signals inside tonight's intervals that count, one entry for each interval and source."""

    def __init__(
        self, slot: IntArray, number: IntArray, interval: IntArray, night: Night, keys: IntArray
    ) -> None:
        use = night.counts[interval]
        slot, number, interval = slot[use], number[use], interval[use]
        source = keys[slot] % MAX_SOURCES
        distinct, first, entry = np.unique(
            interval * MAX_SOURCES + source, return_index=True, return_inverse=True
        )
        self.slot = slot[first]
        self.number = np.bincount(entry, number, len(distinct)).astype(np.int64)
        self.interval = distinct // MAX_SOURCES
        self.changed = night.changed[self.interval]
        # Every bit of the sum comes from one source alone.
        bits = signature_of(self.number, distinct % MAX_SOURCES)
        self.signature = np.bincount(self.interval, bits, len(night.row)).astype(np.uint32)


def _add(
    state: SignalState,
    old_row: IntArray,
    night: Night,
    inside: _Inside,
    table: _Sources,
    couples: _Couples,
    delay_us: int,
) -> dict[str, Any]:
    """The columns of the state that are sums."""
    n = len(night.unit)
    dated = night.counts & night.changed & (night.age_us > 0)
    binned = np.flatnonzero(night.counts & night.changed & (~dated | (inside.signature > 0)))
    before_us = np.maximum(night.gap_us[binned] - night.age_us[binned], _US_PER_MINUTE)
    days = before_us / US_PER_DAY
    bin_id = np.clip(bin_of(before_us / _US_PER_MINUTE), 0, DATED - 1) + DATED * dated[binned]
    old_bin_row = old_row[state.bin_row()]
    signatures = np.unique(np.concatenate([state.signature, inside.signature[binned]]))
    stride = len(signatures)

    def keys_of(row: IntArray, signature: NDArray[np.uint32], bins: NDArray[Any]) -> IntArray:
        keys: IntArray = (row * stride + np.searchsorted(signatures, signature)) * BIN_IDS + bins
        return keys

    keys, old_bin, new_bin = union(
        keys_of(old_bin_row, state.signature, state.bin_id),
        keys_of(night.row[binned], inside.signature[binned], bin_id),
    )
    bin_row = keys // (BIN_IDS * stride) if stride else keys

    sums = SumsInOrder()
    rows, source_row = np.arange(n), table.keys // MAX_SOURCES
    here = np.flatnonzero(night.counts)
    gap_days = night.gap_us / US_PER_DAY
    exposed = np.where(night.changed, night.exposure_us / US_PER_DAY, gap_days)
    # What is added is a minute at least: see NEGLIGIBLE.
    heard_us = night.gap_us - delay_us
    heard = np.where(heard_us >= _US_PER_MINUTE, heard_us, 0) / US_PER_DAY
    per_page: tuple[tuple[str, FloatArray], ...] = (
        ("exposure_days", exposed),
        ("dated_changes", 1.0 * (dated & (inside.signature == 0))),
        ("watched_days", heard),
    )
    for name, amount in per_page:
        use = here[amount[here] > 0.0]
        sums.column(name, rows, old_row, getattr(state, name), night.row[use], amount[use], use)
    every = np.arange(len(inside.slot))
    for name, use in (("unchanged", every[~inside.changed]), ("total", every)):
        number = inside.number[use].astype(np.float64)
        sums.column(
            name, source_row, table.old, getattr(state, name), inside.slot[use], number, inside.interval[use]
        )
    couples.columns(state, night, sums)
    gate = None
    for name, amount in (
        ("bin_weight", np.ones(len(days))),
        ("bin_days", days),
        ("bin_days_squared", days * days),
    ):
        place = sums.column(name, bin_row, old_bin, getattr(state, name), new_bin, amount, binned, gate)
        gate = place if gate is None else gate
    columns: dict[str, Any] = sums.add(night)

    alive = columns["bin_weight"] > 0.0
    columns |= {name: columns[name][alive] for name in ("bin_weight", "bin_days", "bin_days_squared")}
    keys, bin_row = keys[alive], bin_row[alive]
    columns["bin_start"] = starts_of(bin_row, n)
    columns["bin_id"] = (keys % BIN_IDS).astype(np.int32)
    columns["signature"] = (
        signatures[keys // BIN_IDS - bin_row * stride] if stride else np.zeros(0, np.uint32)
    )
    return columns | couples.finish(n, columns["near"], columns["far"])
