"""Signals of a shard between arrays, files and the tables of a night."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME, ranges
from policies.history.visits import Observations
from policies.numerics.typing_ import FloatArray, IntArray
from policies.signals.counts import Signals
from policies.signals.evidence import PageSignals, SignalEvidence
from policies.signals.fold import SignalFold
from policies.signals.state import (
    MAX_SOURCES,
    SignalState,
    bring_to_present,
    choose_sources,
    counts_of,
    signature_of,
)
from transforms.batches import schemas
from transforms.batches.shard_tables import KEPT, ShardTables
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.state import list_column, list_start, microseconds, times
from transforms.shards.catalogue import DAY_US
from transforms.shards.coding import ShardPages

_BY_SOURCE = ("pending", "unchanged", "total")
_BY_BIN = ("bin_id", "bin_weight", "bin_days", "bin_days_squared")
_BY_PAIR = ("near_pending", "far_pending", "near", "far")


def signals_batch(pages: ShardPages, state: SignalState, sources: Sequence[str]) -> pa.RecordBatch:
    """The `schemas.STATE_SIGNALS` rows of a shard: names, not codes, which other shards do not share."""
    per_page, per_bin = np.diff(state.source_start), np.diff(state.bin_start)
    # Signals of each bin: one number for every source of its page, in order.
    bin_row = state.bin_row()
    slots = ranges(state.source_start[bin_row], per_page[bin_row])
    count = counts_of(np.repeat(state.signature, per_page[bin_row]), state.source[slots])
    count_start = np.zeros(len(state) + 1, np.int64)
    np.cumsum(per_page * per_bin, out=count_start[1:])

    def by_source(values: Any) -> pa.Array:
        return list_column(state.source_start, values)

    def by_pair(values: Any) -> pa.Array:
        return list_column(state.pair_start, values)

    row = state.pair_row() * MAX_SOURCES
    places = state.source_row() * MAX_SOURCES + state.source
    in_page = [
        np.searchsorted(places, row + code) - state.source_start[row // MAX_SOURCES]
        for code in np.divmod(state.pair, MAX_SOURCES)
    ]
    columns = {
        "url_hash": pa.array(pages.url_hash[state.page]),
        "host_hash": pa.array(pages.host_hash[state.page]),
        "since": times(state.since_us),
        "exposure_days": pa.array(state.exposure_days),
        "dated_changes": pa.array(state.dated_changes),
        "watched_days": pa.array(state.watched_days),
        "source": by_source(pa.array(list(sources), pa.string()).take(pa.array(state.source))),
        **{name: by_source(getattr(state, name)) for name in _BY_SOURCE},
        "last_signal_at": by_source(times(state.last_at_us)),
        "recent_hours": by_source(state.recent),
        **{name: list_column(state.bin_start, getattr(state, name)) for name in _BY_BIN},
        "bin_signals": list_column(count_start, count.astype(np.uint8)),
        "pair_first": by_pair(in_page[0].astype(np.int8)),
        "pair_second": by_pair(in_page[1].astype(np.int8)),
        **{name: by_pair(getattr(state, name)) for name in _BY_PAIR},
    }
    names = schemas.STATE_SIGNALS.names
    return pa.RecordBatch.from_arrays([columns[n] for n in names], schema=schemas.STATE_SIGNALS)


def read_signals(
    carried: pa.Table | None, pages: ShardPages, new: Sequence[str]
) -> tuple[SignalState, list[str], dict[str, int]]:
    """The arrays of a shard's signal state.

    Parameters
    ----------
    carried : Table of `schemas.STATE_SIGNALS`, or None
    pages : ShardPages
    new : sequence of str
        Sources of tonight's signals.

    Returns
    -------
    SignalState
    sources : list of str
        Name of each code.
    code : dict of str to int
        Code of every source, see `policies.signals.state.choose_sources`.
    """
    if carried is None or not carried.num_rows:
        return SignalState.empty(), *choose_sources((), new)
    batch = carried.combine_chunks().to_batches()[0]
    page = pages.code(batch.column("url_hash").to_numpy())
    if (page < 0).any():  # nothing else is known of such a page
        batch, page = batch.filter(pa.array(page >= 0)), page[page >= 0]
    named = batch.column("source").flatten().dictionary_encode()
    names = named.dictionary.to_pylist()
    sources, code = choose_sources(names, new)
    codes = np.array([code[name] for name in names], np.int32)
    start = list_start(batch.column("source"))
    source = codes[named.indices.to_numpy()]
    bin_start = list_start(batch.column("bin_id"))

    def flat(name: str) -> Any:
        return batch.column(name).flatten().to_numpy()

    per_page, per_bin = np.diff(start), np.diff(bin_start)
    bin_row = np.repeat(np.arange(len(page)), per_bin)
    slots = ranges(start[bin_row], per_page[bin_row])
    place = np.repeat(np.arange(len(bin_row)), per_page[bin_row])
    # Where several names became one source, its signals in an interval are those of all.
    count = np.bincount(place * MAX_SOURCES + source[slots], flat("bin_signals"), len(bin_row) * MAX_SOURCES)
    bits = signature_of(count.astype(np.int64).reshape(-1, MAX_SOURCES), np.arange(MAX_SOURCES))
    signature = bits.sum(axis=1, dtype=np.uint32)
    pair_start = list_start(batch.column("pair_first"))
    begin = np.repeat(start[:-1], np.diff(pair_start))
    one, two = (source[begin + flat(name)] for name in ("pair_first", "pair_second"))
    state = SignalState(
        page=page,
        since_us=microseconds(batch.column("since")),
        exposure_days=batch.column("exposure_days").to_numpy(),
        dated_changes=batch.column("dated_changes").to_numpy(),
        watched_days=batch.column("watched_days").to_numpy(),
        source_start=start,
        source=source,
        last_at_us=microseconds(batch.column("last_signal_at").flatten()),
        recent=flat("recent_hours"),
        bin_start=bin_start,
        signature=signature,
        pair_start=pair_start,
        pair=(one * MAX_SOURCES + two).astype(np.int32),
        **{name: flat(name) for name in (*_BY_SOURCE, *_BY_BIN, *_BY_PAIR)},
    )
    order = np.argsort(page, kind="stable")
    if (order != np.arange(len(order))).any():  # last night had another number of shards
        state = state.take(order)
    return (state.regrouped() if len(set(codes.tolist())) < len(codes) else state), sources, code


def signal_tables(
    state: SignalState, running_days: FloatArray, sources: Sequence[str]
) -> dict[str, pa.RecordBatch]:
    """The tables of a shard's signals, from what `bring_to_present` gives; none where it has none."""
    if not len(state):
        return {}
    first, second = np.divmod(state.pair, MAX_SOURCES)
    tables: dict[str, tuple[pa.Schema, IntArray | None, list[Any]]] = {
        "signal_pages": (
            schemas.SIGNAL_PAGES_TABLE,
            np.arange(len(state)),
            [state.exposure_days, state.dated_changes, state.watched_days, running_days],
        ),
        "signal_sources": (
            schemas.SIGNAL_SOURCES_TABLE,
            state.source_row(),
            [
                state.source.astype(np.int8),
                state.pending,
                state.unchanged,
                state.total,
                times(state.last_at_us),
            ],
        ),
        "signal_bins": (
            schemas.SIGNAL_BINS_TABLE,
            state.bin_row(),
            [state.signature, state.bin_weight, state.bin_days, state.bin_days_squared],
        ),
        "signal_pairs": (
            schemas.SIGNAL_PAIRS_TABLE,
            state.pair_row(),
            [
                first.astype(np.int8),
                second.astype(np.int8),
                state.near + state.near_pending,
                state.far + state.far_pending,
            ],
        ),
        "sources": (schemas.SOURCES_TABLE, None, [pa.array(list(sources), pa.string())]),
    }
    made = {}
    for name, (schema, row, columns) in tables.items():
        if row is not None:
            columns = [state.page[row].astype(np.int32), *columns]
        arrays = [c if isinstance(c, pa.Array) else pa.array(c) for c in columns]
        made[name] = pa.RecordBatch.from_arrays(arrays, schema=schema).replace_schema_metadata(KEPT)
    return made


class ShardNews(Statistic):
    """Signals by page and source, see `policies.signals.fold`.

    Attributes
    ----------
    source_code : dict of str to int
        Codes of tonight's sources.
    news : SignalFold
    """

    PAGES = (
        pa.field("signal_rate_per_day", pa.float64()),
        pa.field("signal_precision", pa.float64()),
        pa.field("signal_recall", pa.float64()),
        pa.field("signals_since_crawl", pa.int64()),
    )
    FOLDERS = (("state/signals", schemas.STATE_SIGNALS),)

    def __init__(self, night: ShardNight) -> None:
        self._pages, settings = night.pages, night.settings
        fresh = night.table("signals")
        new = [] if fresh is None else fresh.column("source").unique().to_pylist()
        carried = read_signals(night.table("state_signals"), night.pages, new)
        self._state, self._sources, self.source_code = carried
        none = np.zeros(0, np.int64)
        tonight = Signals(none, none, np.zeros(0, np.int32)) if fresh is None else self._known(fresh, night)
        self.news = SignalFold(
            self._state,
            tonight,
            night.before,
            night.pages.host_code,
            settings.as_of_us,
            settings.signal_delay_us,
        )

    def _known(self, table: pa.Table, night: ShardNight) -> Signals:
        """Signals of pages that were known by then."""
        page: IntArray = night.pages.code(table.column("url_hash").to_numpy())
        at_us, counts = microseconds(table.column("signalled_at")), night.counts
        known = at_us // DAY_US >= night.known_from_day[page]
        later = int((~known & (at_us > night.settings.as_of_us)).sum())
        counts.add("signals", later)
        counts.add("signals_after_as_of", later)
        early = int((~known & (page >= 0)).sum())  # none of them is later than the night
        counts.add("signals_before_known", early)
        counts.add("signals_unmatched", int((~known).sum()) - later - early)
        named = table.column("source").combine_chunks().dictionary_encode()
        codes = np.array([self.source_code[n] for n in named.dictionary.to_pylist()], np.int32)
        return Signals(page[known], at_us[known], codes[named.indices.to_numpy()][known])

    def watch(self, first_page: int, intervals: Intervals) -> None:
        self.news(first_page, intervals)

    def fold(self, night: ShardNight, rows: Observations) -> None:
        self._state, counts = self.news.finish(night.after, night.settings.forgetting)
        for name, n in counts.items():
            night.counts.add(name, n)

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        yield "state/signals", signals_batch(self._pages, self._state, self._sources)

    def tables(self, night: ShardNight) -> dict[str, pa.RecordBatch]:
        settings = night.settings
        now = bring_to_present(
            self._state, night.after, settings.forgetting, settings.as_of_us, settings.signal_delay_us
        )
        return signal_tables(*now, self._sources)


@dataclass(frozen=True)
class ShardSignals:
    """What a shard knows of signals: m pages of hosts that ever sent one, S sources.

    Attributes
    ----------
    row : (m,) int64, ascending
        Rows of the "pages" table.
    sources : list of S str, sorted
    evidence : SignalEvidence of m pages
        Of ended intervals.
    pending : (m, S) float64
        Signals since the last observation.
    heard : PageSignals of m pages
    last_at_us : (m, S) int64, microseconds, `NO_TIME` if none
        The last signal counted.
    """

    row: IntArray
    sources: list[str]
    evidence: SignalEvidence
    pending: FloatArray
    heard: PageSignals
    last_at_us: IntArray

    def __len__(self) -> int:
        return len(self.row)


def signal_evidence_of(tables: ShardTables) -> ShardSignals | None:
    """The signals of a shard, from the tables of `signal_tables`; None where it has none."""
    named = tables.tables
    if "signal_pages" not in named:
        return None
    pages, by_source, bins = named["signal_pages"], named["signal_sources"], named["signal_bins"]
    pairs = named["signal_pairs"]
    sources = named["sources"].column("name").to_pylist()
    row = pages.column("row").to_numpy().astype(np.int64)
    at = np.searchsorted(row, by_source.column("row").to_numpy()), by_source.column("source").to_numpy()

    def dense(values: Any, fill: Any = 0.0) -> Any:
        full = np.full((len(row), len(sources)), fill)
        full[at] = values
        return full

    pending = dense(by_source.column("pending").to_numpy())
    running = pages.column("running_days").to_numpy()
    signature = bins.column("signature").to_numpy()
    evidence = SignalEvidence(
        exposure_days=pages.column("exposure_days").to_numpy(),
        dated_changes=pages.column("dated_changes").to_numpy(),
        unchanged_signals=dense(by_source.column("unchanged").to_numpy()),
        row_page=np.searchsorted(row, bins.column("row").to_numpy()),
        row_weight=bins.column("weight").to_numpy(),
        row_days=bins.column("days").to_numpy(),
        row_days_squared=bins.column("days_squared").to_numpy(),
        row_signals=np.stack([counts_of(signature, s) for s in range(len(sources))], axis=1).astype(float),
    )
    heard = PageSignals(
        ended=dense(by_source.column("total").to_numpy()),
        ended_days=pages.column("watched_days").to_numpy(),
        # A running interval of no length is one that nobody listened to: its signals are no rate.
        running=np.where((running > 0.0)[:, None], pending, 0.0),
        running_days=running,
        pair_page=np.searchsorted(row, pairs.column("row").to_numpy()),
        pair_first=pairs.column("first").to_numpy().astype(np.int64),
        pair_second=pairs.column("second").to_numpy().astype(np.int64),
        near=pairs.column("near").to_numpy(),
        far=pairs.column("far").to_numpy(),
    )
    last_at_us = dense(microseconds(by_source.column("last_signal_at")), NO_TIME)
    return ShardSignals(row, sources, evidence, pending, heard, last_at_us)
