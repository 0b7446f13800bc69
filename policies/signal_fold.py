"""Folding change-indicating signals, and the intervals they fall into, into the state of their pages.

`SignalFold` sees tonight's signals first, watches the intervals that `policies.history.fold` finds, and then
adds both to a `SignalState`. What becomes of a signal is said at `policies.signal_counts.DISPOSITIONS`. Those
that count belong to the interval that the page's next observation ends, and are pending until then. What was
pending when the first observation of a page came in is dropped: it says nothing about an interval.

The first timely signal of a host begins its era, for all its pages and all sources. Of a host that is split
over shards, every shard's part has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.evidence import bin_of
from policies.interval_sums import Intervals, union
from policies.page_state import NEGLIGIBLE, NO_TIME, US_PER_DAY, Forgetting, PageState, starts_of
from policies.signal_counts import DISPOSITIONS, Signals, counted, neighbours
from policies.signal_state import BIN_IDS, DATED, MAX_SOURCES, SignalState, signature_of
from policies.typing_ import BoolArray, FloatArray, Int32Array, IntArray

_US_PER_MINUTE = 60_000_000
_NEVER = np.iinfo(np.int64).max

# Half-lives that one pass may span: sums stay far above the smallest normal number, so scaling is exact.
_SPAN = 256


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
        self._watched: list[Intervals] = []

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
        if len(rows):
            age = np.zeros(len(rows), np.int64) if intervals.age_us is None else intervals.age_us[rows]
            self._watched.append(
                Intervals(
                    page[rows], intervals.at_us[rows], intervals.gap_us[rows], intervals.changed[rows], age
                )
            )

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
        pages = np.flatnonzero(self._since != _NEVER)
        row_of = np.full(len(history), -1)
        row_of[pages] = np.arange(len(pages))
        night = self._night(pages, row_of, history, forgetting)
        old_row = row_of[self._state.page]
        seen_row, seen_at, seen_interval = self._observations(pages, row_of, history, night)

        row = row_of[self._signals.page]
        at_us, source = self._signals.signalled_at_us, self._signals.source
        previous, following = neighbours(row, at_us, seen_row, seen_at)
        before = self._before.baseline_at_us[self._signals.page]
        if len(seen_at):
            before = np.where(previous >= 0, seen_at[np.maximum(previous, 0)], before)
        kept = counted(self._signals, before, self._last_us, self._delay_us, self._counts)
        key = _source_keys(row[kept], source[kept])
        table = _Sources(self._state, old_row, key, at_us[kept])

        # Signals of yesterday that are still pending belong to the first observation of their page.
        waiting = np.flatnonzero(table.pending)
        first = np.full(len(waiting), -1)
        if len(seen_row):
            found = np.searchsorted(seen_row, table.keys[waiting] // MAX_SOURCES)
            there = seen_row[np.minimum(found, len(seen_row) - 1)] == table.keys[waiting] // MAX_SOURCES
            first = np.where(there, found, -1)
        slot = np.concatenate([waiting, table.new])
        number = np.concatenate([table.pending[waiting], np.ones(len(kept), np.int64)])
        ends = np.concatenate([first, following[kept]])
        pending = np.bincount(slot[ends < 0], number[ends < 0], len(table.keys)).astype(np.int32)
        slot, number, ends = slot[ends >= 0], number[ends >= 0], seen_interval[ends[ends >= 0]]
        inside = _Inside(slot[ends >= 0], number[ends >= 0], ends[ends >= 0], night, table.keys)
        columns = _add(self._state, old_row, night, inside, table, self._delay_us)
        source_row = table.keys // MAX_SOURCES
        state = SignalState(
            page=pages,
            since_us=self._since[pages],
            source_start=starts_of(source_row, len(pages)),
            source=(table.keys - source_row * MAX_SOURCES).astype(np.int32),
            pending=pending,
            last_at_us=table.last_at_us,
            **columns,
        )
        return state, self._counts

    def _night(self, pages: IntArray, row_of: IntArray, history: PageState, forgetting: Forgetting) -> _Night:
        none = np.zeros(0, np.int64)
        parts = self._watched or [Intervals(none, none, none, np.zeros(0, np.bool_), none)]
        page, at_us, gap_us, changed = (
            np.concatenate([getattr(p, name) for p in parts])
            for name in ("page", "at_us", "gap_us", "changed")
        )
        age_us = np.concatenate([p.age_us for p in self._watched] or [np.zeros(0, np.int64)])
        row = row_of[page]
        before = self._before
        counts = before.n_changes[pages].astype(np.int64)
        count = np.cumsum(changed)
        found = np.bincount(row, changed, len(pages)).astype(np.int64)
        count += (counts - (np.cumsum(found) - found))[row]
        exponent, factor = forgetting.weights(count, at_us)
        unit = forgetting.landmarks(counts, before.baseline_at_us[pages])
        target = forgetting.landmarks(
            history.n_changes[pages].astype(np.int64), history.baseline_at_us[pages]
        )
        idle = np.bincount(row, minlength=len(pages)) == 0
        target[idle] = unit[idle]
        counts_here = at_us - gap_us >= self._since[page]
        return _Night(row, at_us, gap_us, changed, age_us, counts_here, exponent, factor, unit, target)

    def _observations(
        self, pages: IntArray, row_of: IntArray, history: PageState, night: _Night
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Row, time and ended interval (-1: a baseline) of tonight's observations, by (row, time)."""
        opened = (self._before.baseline_at_us[pages] == NO_TIME) & (history.baseline_at_us[pages] != NO_TIME)
        rows = np.flatnonzero(opened)
        place = np.searchsorted(night.row, rows)
        at_us = history.baseline_at_us[pages[rows]]
        if len(night.row):
            first = np.minimum(place, len(night.row) - 1)
            at_us = np.where(night.row[first] == rows, night.at_us[first] - night.gap_us[first], at_us)
        return (
            np.insert(night.row, place, rows),
            np.insert(night.at_us, place, at_us),
            np.insert(np.arange(len(night.row)), place, -1),
        )


@dataclass(slots=True)
class _Night:
    """Tonight's k intervals of the m pages, sorted by (row, time).

    `counts` tells which began in the era of signals; weights are ``factor * 2**(exponent - target[row])``;
    `unit` is the landmark of the sums so far.
    """

    row: IntArray
    at_us: IntArray
    gap_us: IntArray
    changed: BoolArray
    age_us: IntArray
    counts: BoolArray
    exponent: IntArray
    factor: FloatArray
    unit: IntArray
    target: IntArray


def _source_keys(row: IntArray, source: Int32Array) -> IntArray:
    return row * np.int64(MAX_SOURCES) + source


class _Sources:
    """The table of (row, source): keys, where yesterday's and tonight's are, and what is plain in it."""

    def __init__(self, state: SignalState, old_row: IntArray, key: IntArray, at_us: IntArray) -> None:
        old_key = _source_keys(old_row[state.source_row()], state.source)
        self.keys, self.old, self.new = union(old_key, key)
        self.pending = self.grow(state.pending, np.int64)
        self.last_at_us = np.full(len(self.keys), NO_TIME)
        self.last_at_us[self.old] = state.last_at_us
        np.maximum.at(self.last_at_us, self.new, at_us)

    def grow(self, column: NDArray[Any], dtype: Any) -> NDArray[Any]:
        """A column of yesterday with zeros for what is new."""
        grown = np.zeros(len(self.keys), dtype=dtype)
        grown[self.old] = column
        return grown


class _Inside:
    """Signals inside tonight's intervals that count, one entry for each interval and source."""

    def __init__(
        self, slot: IntArray, number: IntArray, interval: IntArray, night: _Night, keys: IntArray
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
    state: SignalState, old_row: IntArray, night: _Night, inside: _Inside, table: _Sources, delay_us: int
) -> dict[str, Any]:
    """The columns of the state that are sums."""
    n, n_sources = len(night.unit), len(table.keys)
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

    sums = _Sums()
    rows, source_row = np.arange(n), table.keys // MAX_SOURCES
    here = np.flatnonzero(night.counts)
    gap_days = night.gap_us / US_PER_DAY
    exposed = np.where(night.changed, night.age_us / US_PER_DAY, gap_days)
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
    for name, use in (("n_unchanged", ~inside.changed), ("n_changed", inside.changed)):
        more = np.bincount(inside.slot[use], inside.number[use], n_sources)
        columns[name] = table.grow(getattr(state, name), np.int32) + more.astype(np.int32)
    return columns


class _Sums:
    """Sums of all columns in one array, so that one loop adds to all of them in order of time."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._values: list[FloatArray] = []
        self._owner: list[IntArray] = []
        self._gate: list[IntArray] = []
        self._index: list[IntArray] = []
        self._amount: list[FloatArray] = []
        self._interval: list[IntArray] = []
        self._size = 0

    def column(
        self,
        name: str,
        owner: IntArray,
        old: NDArray[Any] | slice,
        values: FloatArray,
        slot: IntArray,
        amount: FloatArray,
        interval: IntArray,
        gate: IntArray | None = None,
    ) -> IntArray:
        """Enter a column.

        Parameters
        ----------
        name : str
        owner : (k,) int64
            Row of each sum.
        old, values
            Place of yesterday's sums, and those.
        slot, amount, interval : (j,)
            What is added to which sum, and the interval it comes from, ascending.
        gate : (k,) int64, optional
            Places of the sums that decide whether these are negligible; by default each for itself.

        Returns
        -------
        (k,) int64
            Places of the sums.
        """
        place = self._size + np.arange(len(owner))
        grown = np.zeros(len(owner))
        grown[old] = values
        self._names.append(name)
        self._values.append(grown)
        self._owner.append(owner)
        self._gate.append(place if gate is None else gate)
        self._index.append(place[slot])
        self._amount.append(amount)
        self._interval.append(interval)
        self._size += len(owner)
        return place

    def add(self, night: _Night) -> dict[str, FloatArray]:
        """All sums in units of ``2**target``."""
        values, amount = np.concatenate(self._values), np.concatenate(self._amount)
        owner, gate, index, interval = (
            np.concatenate(c) for c in (self._owner, self._gate, self._index, self._interval)
        )
        row = night.row[interval]
        unit = night.unit.copy()
        # Sums of 0 are in any unit: take that of the first interval, which is not decades away.
        new = np.bincount(owner, values > 0.0, len(unit)) == 0
        unit[new] = night.target[new]
        here = np.flatnonzero(night.counts)
        head = here[np.flatnonzero(np.diff(night.row[here], prepend=-1))]
        head = head[new[night.row[head]]]
        unit[night.row[head]] = night.exponent[head]
        steps = [np.arange(len(index))]
        if len(unit) and int((night.target - unit).max()) > _SPAN:
            # A page that runs through very many half-lives in one night takes several passes, as over many
            # nights.
            turn = (night.exponent[interval] - unit[row]) // _SPAN
            order = np.argsort(turn, kind="stable")
            steps = np.split(order, np.flatnonzero(np.diff(turn[order])) + 1)
        for i, step in enumerate(steps):
            last = i == len(steps) - 1
            to = night.target.copy()
            if not last:
                to = unit.copy()
                np.maximum.at(to, row[step], night.exponent[interval[step]])
            shift = unit - to
            values = np.ldexp(values, np.maximum(shift, -2000).astype(np.int32)[owner])
            power = night.exponent[interval[step]] - to[row[step]]
            weight = np.ldexp(night.factor[interval[step]], np.maximum(power, -2000).astype(np.int32))
            np.add.at(values, index[step], amount[step] * weight)
            if shift.any():
                values[values[gate] < NEGLIGIBLE] = 0.0
            unit = to
        ends = np.cumsum([len(v) for v in self._values])[:-1]
        return dict(zip(self._names, np.split(values, ends), strict=True))
