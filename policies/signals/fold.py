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

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.history.evidence import bin_of
from policies.history.interval_sums import Intervals, union
from policies.history.page_state import NO_TIME, US_PER_DAY, Forgetting, PageState, starts_of
from policies.numerics.lookup import rows_of
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
        last = np.append(state.last_at_us, NO_TIME)[rows_of(table, key)]
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
        night, seen_row, seen_at = block.night, block.seen_row, block.seen_at
        old_row, row = block.row_of(state.page), block.row_of(signals.page)
        previous, following = neighbours(row, signals.signalled_at_us, seen_row, seen_at)
        before = self._before.baseline_at_us[signals.page]
        if len(seen_at):
            before = np.where(previous >= 0, seen_at[np.maximum(previous, 0)], before)
        kept = counted(signals, before, last_us, self._delay_us, self._counts)
        row, following, at_us = row[kept], following[kept], signals.signalled_at_us[kept]

        old_key = _source_keys(old_row[state.source_row()], state.source)
        keys, old, new = union(old_key, _source_keys(row, signals.source[kept]))
        source_row = keys // MAX_SOURCES
        before_us = np.full(len(keys), NO_TIME)
        before_us[old] = state.last_at_us
        last_at_us = before_us.copy()
        np.maximum.at(last_at_us, new, at_us)
        pending, ended = _ended(_grown(state.pending, old, keys), source_row, new, following, block)
        slot, number, interval = ended.of(night.counts)
        # Every bit of a signature comes from one source alone.
        bits = signature_of(number.astype(np.int64), keys[slot] % MAX_SOURCES)
        signature = np.bincount(interval, bits, len(night.row)).astype(np.uint32)
        came_us = np.concatenate([before_us[ended.waiting], at_us])[ended.entry]
        source = (keys[ended.slot] % MAX_SOURCES).astype(np.int32)
        inside = block.intervals()
        self.heard.append(HeardIntervals(*inside, ended.interval, source, ended.number, came_us))

        sums, every = SumsInOrder(), np.arange(len(slot))
        for name, use in (("unchanged", every[~night.changed[interval]]), ("total", every)):
            now = slot[use], number[use], interval[use]
            sums.column(name, source_row, old, getattr(state, name), *now)
        # Hours in which sources signalled before a page's first observation are forgotten.
        hours = _grown(state.recent, old, keys)
        hours[block.opened[source_row]] = 0
        use = np.flatnonzero(~(block.opened[row] & (previous[kept] < 0)))
        recent = recent_hours(hours, before_us, last_at_us, new[use], at_us[use])
        later, pair_key, far = pairs(keys, hours, before_us, new[use], at_us[use])
        old_key = old_row[state.pair_row()] * MAX_SOURCES**2 + state.pair
        pair_keys, old, new = union(old_key, pair_key)
        pair_row, following = pair_keys // MAX_SOURCES**2, following[use[later]]
        couples: dict[str, Any] = {}
        for name, mine in (("near", ~far), ("far", far)):
            waiting = _grown(getattr(state, f"{name}_pending"), old, pair_keys)
            left, ended = _ended(waiting, pair_row, new[mine], following[mine], block)
            couples[f"{name}_pending"] = left
            sums.column(name, pair_row, old, getattr(state, name), *ended.of(night.counts))
        columns = _add(state, old_row, night, signature, sums, self._delay_us)
        couples |= {name: columns.pop(name) for name in ("near", "far")}
        some = np.any([values > 0 for values in couples.values()], axis=0)
        pair_row = pair_row[some]
        return SignalState(
            page=block.pages,
            since_us=block.since_us,
            source_start=starts_of(source_row, len(block.pages)),
            source=(keys - source_row * MAX_SOURCES).astype(np.int32),
            pending=pending,
            last_at_us=last_at_us,
            recent=recent,
            pair_start=starts_of(pair_row, len(block.pages)),
            pair=(pair_keys[some] - pair_row * MAX_SOURCES**2).astype(np.int32),
            **{name: values[some] for name, values in couples.items()},
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
        row, at_us, gap_us = self.row_of(intervals.page), intervals.at_us, intervals.gap_us
        changed = intervals.changed
        counts = before.n_changes[pages].astype(np.int64)
        count = np.cumsum(changed, dtype=np.int64)
        found = np.bincount(row, changed, len(pages)).astype(np.int64)
        count += (counts - (np.cumsum(found) - found))[row]
        exponent, factor = forgetting.weights(count, at_us)
        unit = forgetting.landmarks(counts, before.baseline_at_us[pages])
        target = forgetting.landmarks(after.n_changes[pages].astype(np.int64), last_us)
        # Tonight's observations by (row, time), and the intervals that they end (-1: a baseline).
        ended = np.append(np.arange(len(row)), np.full(len(intervals.begun_page), -1))
        seen_row = np.append(row, self.row_of(intervals.begun_page))
        seen_at = np.append(at_us, intervals.begun_us)
        order = np.lexsort((seen_at, seen_row))
        self.seen_row, self.seen_at, self.seen_interval = seen_row[order], seen_at[order], ended[order]
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


@dataclass(frozen=True, slots=True)
class _Ended:
    """Signals, or pairs of them, that belong to intervals of tonight: place, number and interval of each.

    `waiting` are the places of those from before, `entry` what has ended of them and then of tonight's.
    """

    waiting: IntArray
    entry: IntArray
    slot: IntArray
    number: IntArray
    interval: IntArray

    def of(self, counts: BoolArray) -> tuple[IntArray, FloatArray, IntArray]:
        """One sum for a place and an interval that counts, by interval: place, number, interval."""
        use = counts[self.interval]
        stride = int(self.slot.max(initial=0)) + 1
        distinct, at = np.unique(self.interval[use] * stride + self.slot[use], return_inverse=True)
        number = np.bincount(at, self.number[use], len(distinct)).astype(np.float64, copy=False)
        return distinct % stride, number, distinct // stride


def _ended(
    pending: IntArray, row: IntArray, new: IntArray, following: IntArray, block: _Block
) -> tuple[Int32Array, _Ended]:
    """What is pending at each of k places now, and what has ended.

    Parameters
    ----------
    pending, row : (k,) int64
        What was pending, and the row of each place.
    new, following : (j,) int64
        Places of tonight's, and the observations that end them, -1 if none.
    """
    seen_row, seen_interval = block.seen_row, block.seen_interval
    waiting = np.flatnonzero(pending)
    first = np.full(len(waiting), -1)
    if len(seen_row):  # what was pending ends with the first observation
        at = np.searchsorted(seen_row, row[waiting])
        first = np.where(seen_row[np.minimum(at, len(seen_row) - 1)] == row[waiting], at, -1)
    slot, ends = np.concatenate([waiting, new]), np.concatenate([first, following])
    number = np.concatenate([pending[waiting], np.ones(len(new), np.int64)])
    left = np.bincount(slot[ends < 0], number[ends < 0], len(pending)).astype(np.int32)
    entry = np.flatnonzero(ends >= 0)
    entry = entry[seen_interval[ends[entry]] >= 0]
    return left, _Ended(waiting, entry, slot[entry], number[entry], seen_interval[ends[entry]])


def _grown(column: NDArray[Any], old: IntArray | slice, keys: IntArray) -> NDArray[Any]:
    """A column of yesterday with zeros for what is new; counts as int64."""
    grown = np.zeros(len(keys), np.int64 if column.dtype == np.int32 else column.dtype)
    grown[old] = column
    return grown


def _source_keys(row: IntArray, source: Int32Array) -> IntArray:
    return row * np.int64(MAX_SOURCES) + source


def _add(
    state: SignalState,
    old_row: IntArray,
    night: Night,
    signature: NDArray[np.uint32],
    sums: SumsInOrder,
    delay_us: int,
) -> dict[str, Any]:
    """The columns of the state that are sums, with those that are in `sums` already."""
    n = len(night.unit)
    dated = night.counts & night.changed & (night.age_us > 0)
    binned = np.flatnonzero(night.counts & night.changed & (~dated | (signature > 0)))
    before_us = np.maximum(night.gap_us[binned] - night.age_us[binned], _US_PER_MINUTE)
    days = before_us / US_PER_DAY
    bin_id = np.clip(bin_of(before_us / _US_PER_MINUTE), 0, DATED - 1) + DATED * dated[binned]
    old_bin_row = old_row[state.bin_row()]
    signatures = np.unique(np.concatenate([state.signature, signature[binned]]))
    stride = len(signatures)

    def keys_of(row: IntArray, signature: NDArray[np.uint32], bins: NDArray[Any]) -> IntArray:
        keys: IntArray = (row * stride + np.searchsorted(signatures, signature)) * BIN_IDS + bins
        return keys

    keys, old_bin, new_bin = union(
        keys_of(old_bin_row, state.signature, state.bin_id),
        keys_of(night.row[binned], signature[binned], bin_id),
    )
    bin_row = keys // (BIN_IDS * stride) if stride else keys

    rows = np.arange(n)
    here = np.flatnonzero(night.counts)
    gap_days = night.gap_us / US_PER_DAY
    exposed = np.where(night.changed, night.exposure_us / US_PER_DAY, gap_days)
    # What is added is a minute at least: see NEGLIGIBLE.
    heard_us = night.gap_us - delay_us
    heard = np.where(heard_us >= _US_PER_MINUTE, heard_us, 0) / US_PER_DAY
    per_page: tuple[tuple[str, FloatArray], ...] = (
        ("exposure_days", exposed),
        ("dated_changes", 1.0 * (dated & (signature == 0))),
        ("watched_days", heard),
    )
    for name, amount in per_page:
        use = here[amount[here] > 0.0]
        sums.column(name, rows, old_row, getattr(state, name), night.row[use], amount[use], use)
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
    return columns
