"""One shard, one night: yesterday's state and tonight's rows become today's state and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.history import history, page_state, request_history, volatile
from policies.history.alternating import set_aside
from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME, PageState
from policies.history.request_history import NO_DAY, RequestState
from policies.judging.calibration import Judge
from policies.judging.recalibration import calm_days
from policies.numerics.typing_ import BoolArray, Int32Array, IntArray, UIntArray
from policies.signals.counts import Signals
from policies.signals.fold import SignalFold
from policies.signals.state import bring_to_present
from transforms.batches import schemas
from transforms.batches.coders import KEPT, ShardTables
from transforms.batches.steps import Step
from transforms.batches.tally import Counts
from transforms.intake.log_ages import up_to_night
from transforms.intake.reading import all_batches
from transforms.kept.fold_settings import FoldSettings
from transforms.kept.judging import forecast_of, judged_of
from transforms.kept.lastmods import compare_lastmods, lastmods_batch
from transforms.kept.recalibrating import ShardFactors
from transforms.kept.requested_hosts import Urls, asked_hosts, least_urls
from transforms.kept.signal_forecasts import signal_forecast_of
from transforms.kept.signals import read_signals, signal_tables, signals_batch
from transforms.kept.silence import ShardSilence
from transforms.kept.soft_404 import soft_404_columns
from transforms.kept.state import microseconds, read_state, state_batch, times
from transforms.night.sampling import Overview, pages_per_giant, sample_shard
from transforms.shards.catalogue import DAY_US, join_catalogue, join_hosts, named_hosts
from transforms.shards.coding import code_pages
from transforms.shards.sharding import Layout


class FoldHistory(Step):
    """Folds one shard. Holds the shard's rows and state in memory, about 100 bytes a row.

    Input: (shard, all batches of the shard: observations, requests, signals, sitemaps, pages, hosts, state,
    slots).

    Outputs
    -------
    "tables" : ShardTables
        "pages" (`schemas.PAGES_TABLE` and metadata), "bins", "hosts"; where hosts sent signals those of
        `transforms.kept.signals.signal_tables`.
    "files" : ShardTables
        To be written, by folder.
    "overview" : Overview
    "counts" : dict of str to int
    """

    OUTPUTS: ClassVar = {
        "tables": ShardTables,
        "files": ShardTables,
        "overview": Overview,
        "counts": dict[str, int],
    }

    def __init__(self, settings: FoldSettings) -> None:
        self._settings = settings

    def process(self, element: tuple[int, Iterable[pa.RecordBatch]], metadata: list[str]) -> Iterator[Any]:
        shard, batches = element
        fold = ShardFold(self._settings, batches)
        yield fold.tables(shard, metadata)
        for folder, batch in fold.files():
            yield beam.pvalue.TaggedOutput("files", ShardTables(shard, {folder: batch}))
        yield beam.pvalue.TaggedOutput("overview", fold.overview())
        yield beam.pvalue.TaggedOutput("counts", fold.counts.publish())


def observations_of(seen_code: IntArray, batches: list[pa.RecordBatch]) -> history.Observations:
    """The rows of a shard as arrays, `seen_code` being their pages; columns that no row has are left out."""
    if not batches:
        none = np.zeros(0, np.int64)
        return history.Observations(none, none)

    def gather(name: str) -> pa.ChunkedArray:
        return pa.chunked_array([b.column(name) for b in batches])

    def optional(name: str, fill: Any, kind: Any) -> np.ndarray | None:
        column = gather(name)
        if column.null_count == len(column):
            return None
        return column.cast(kind).fill_null(fill).to_numpy()

    not_modified, modified = optional("not_modified", 0, pa.int8()), gather("last_modified")
    return history.Observations(
        seen_code[: sum(b.num_rows for b in batches)],
        gather("fetched_at").cast(pa.int64()).to_numpy(),
        status=optional("status", history.STATUS_NONE, pa.int16()),
        digest=optional("digest_hash", 0, pa.uint64()),
        changed=optional("changed", -1, pa.int8()),
        not_modified=None if not_modified is None else not_modified.astype(np.bool_),
        last_modified_us=None if modified.null_count == len(modified) else microseconds(modified),
        digest_form=optional("digest_form", 0, pa.uint32()),
    )


def _rows_by_day(day: IntArray) -> dict[int, int]:
    if not len(day):
        return {}
    first = int(day.min())
    counts = np.bincount(day - first)
    return {first + int(at): int(counts[at]) for at in np.flatnonzero(counts)}


class ShardFold:
    """The work of `FoldHistory`, without Beam."""

    def __init__(self, settings: FoldSettings, batches: Iterable[pa.RecordBatch]) -> None:
        self._settings = settings
        self.counts = Counts()
        by_kind: dict[str, list[pa.RecordBatch]] = {}
        for batch in all_batches(batches):
            if batch.num_rows:
                by_kind.setdefault(schemas.kind_of(batch), []).append(batch)
        self._by_kind = by_kind
        old = self._table("state")
        observations = self._seen_so_far()
        listed = [*by_kind.get("pages", []), *(by_kind.get("sitemaps", []) if settings.sitemap_pages else [])]
        self.pages, old_code, seen_code = code_pages(old, [*observations, *listed])
        self._compare_lastmods()
        self._read_state(old, old_code)
        self._read_slots()
        rows = observations_of(seen_code, observations)
        self._known_from = self._first_days(rows, old_code, seen_code[len(rows) :])
        self._fold_observations(rows)
        del observations
        by_kind.pop("observations", None)
        self._fold_requests()

    def _seen_so_far(self) -> list[pa.RecordBatch]:
        """Observations up to the night; a page that only later ones name is not known yet."""
        kept = []
        for batch in self._by_kind.get("observations", []):
            at = batch.column("fetched_at")
            if pc.max(at).value > self._settings.as_of_us:
                batch = batch.filter(up_to_night(at, self._settings.as_of_us, self.counts))
            kept.append(batch)
        return kept

    def _compare_lastmods(self) -> None:
        """Add to the signals the pages whose lastmod has moved."""
        rows, carried = self._table("sitemaps"), self._table("state_lastmods")
        as_of_us = self._settings.as_of_us
        self._lastmods, moved = compare_lastmods(self.pages, rows, carried, as_of_us, self.counts)
        self._by_kind.pop("sitemaps", None)
        if moved is not None:
            self._by_kind.setdefault("signals", []).append(moved)

    def _first_days(self, rows: history.Observations, old_code: IntArray, listed_code: IntArray) -> IntArray:
        """Day since which each page is known: from the state or the catalogue, ever; else from tonight's log.

        What was asked or signalled before that would have met an unknown page, had the job run every night.
        """
        # One more than pages: code -1, a page that nobody knows, finds the last.
        first = np.full(len(self.pages) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, rows.page, rows.fetched_at_us // DAY_US)
        first[old_code] = first[listed_code] = np.iinfo(np.int64).min
        return first

    def _table(self, kind: str) -> pa.Table | None:
        batches = self._by_kind.get(kind)
        if not batches:
            return None
        tables = [pa.Table.from_batches([b.replace_schema_metadata(None)]) for b in batches]
        return pa.concat_tables(tables, promote_options="default")

    def _read_state(self, old: pa.Table | None, old_code: IntArray) -> None:
        n = len(self.pages)
        fresh = self._table("signals")
        new = [] if fresh is None else fresh.column("source").unique().to_pylist()
        carried = read_signals(self._table("state_signals"), self.pages, new)
        self._signal_state, self._sources, self._source_code = carried
        self._silence = ShardSilence(self.pages, self._settings.night_before_us)
        self._first_seen: Int32Array = np.full(n, NO_DAY, np.int32)
        if old is None:
            self._history, self._requests = PageState.empty(n), RequestState.empty(n)
            return
        batch = old.combine_chunks().to_batches()[0]
        order = np.argsort(old_code, kind="stable")
        if (order != np.arange(len(order))).any():  # last night had another number of shards
            batch, old_code = batch.take(pa.array(order)), old_code[order]
        past, requests, first_seen = read_state(batch)
        self._silence.read_state(batch, old_code)
        if len(old_code) == n:
            self._history, self._requests, self._first_seen = past, requests, first_seen
        else:
            self._history = past.expand(old_code, n)
            self._requests = requests.spread(old_code, n)
            self._first_seen[old_code] = first_seen

    def _read_slots(self) -> None:
        """What the night before scheduled, and what it thought of those pages."""
        slots, n = self._table("slots_pages"), len(self.pages)
        code = None if slots is None else self.pages.code(slots.column("url_hash").to_numpy())
        self._last_slot = np.full(n, NO_TIME, np.int64)
        if slots is not None:
            at = microseconds(slots.column("last_slot_at"))
            use = (code >= 0) & (at <= self._settings.as_of_us)
            np.maximum.at(self._last_slot, code[use], at[use])
            self._silence.read_slots(slots, code, self._last_slot)
        forecast = forecast_of(slots, code, self._history, self._settings.forgetting, self._settings.as_of_us)
        hosts, factors = self._table("slots_hosts"), self._settings.clock_factors
        self._factors = ShardFactors(slots, code, hosts, self.pages, forecast, factors)
        self._judge = Judge(self._factors.forecast, self.pages.host_code)
        self._signal_forecast = signal_forecast_of(slots, code, n, self._source_code)

    def _watch(self, first_page: int, intervals: Intervals) -> None:
        now = self._signal_forecast.others(first_page, intervals)
        self._judge(first_page, now)
        self._factors(first_page, now)
        self._news(first_page, intervals)

    def _watch_signalled(self) -> None:
        """Pages with signals: what was expected of them is known when the night's signals are counted."""
        for heard in self._news.heard:
            intervals, clocks = self._signal_forecast.clocks(heard)
            self._factors(0, intervals, clocks)
            if len(intervals.page):
                clocks = self._signal_forecast.clocks(heard, self._factors.of(heard.intervals.page))[1]
            self._judge(0, intervals, clocks)

    def _see(self, page: IntArray, day: IntArray) -> None:
        """Note the first day on which a page was seen in a log."""
        first = np.full(len(self.pages), np.iinfo(np.int32).max, np.int64)
        np.minimum.at(first, page, day)
        first = np.where(self._first_seen != NO_DAY, np.minimum(first, self._first_seen), first)
        self._first_seen = np.where(first == np.iinfo(np.int32).max, NO_DAY, first).astype(np.int32)

    def _fold_observations(self, rows: history.Observations) -> None:
        settings, forgetting = self._settings, self._settings.forgetting
        before = self._history
        known_until = before.last_success_at_us
        self._news = self._signal_fold()
        self._signal_forecast = self._signal_forecast.only(self._news.listens())
        self._history, counts = history.fold(
            self._history,
            rows,
            settings.as_of_us,
            half_life_changes=forgetting.half_life_changes,
            half_life_days=forgetting.half_life_days,
            watch=self._watch,
        )
        self._silence.fold(before, self._history, rows, settings.as_of_us)
        self._signal_state, signal_counts = self._news.finish(self._history, forgetting)
        self._watch_signalled()
        for name, n in (counts | signal_counts).items():
            self.counts.add(name, n)
        self._rows_by_day = _rows_by_day(rows.fetched_at_us // DAY_US)
        seen = rows.fetched_at_us > known_until[rows.page]  # late rows change nothing
        self._see(rows.page[seen], rows.fetched_at_us[seen] // DAY_US)

    def _signal_fold(self) -> SignalFold:
        table = self._table("signals")
        page, at_us, source = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32)
        if table is not None:
            page, at_us, source = self._known_signals(table)
        return SignalFold(
            self._signal_state,
            Signals(page, at_us, source),
            self._history,
            self.pages.host_code,
            self._settings.as_of_us,
            self._settings.signal_delay_us,
        )

    def _known_signals(self, table: pa.Table) -> tuple[IntArray, IntArray, Int32Array]:
        """Page, time and source of the signals of pages that were known by then."""
        page = self.pages.code(table.column("url_hash").to_numpy())
        at_us = microseconds(table.column("signalled_at"))
        known = at_us // DAY_US >= self._known_from[page]
        later = int((~known & (at_us > self._settings.as_of_us)).sum())
        self.counts.add("signals", later)
        self.counts.add("signals_after_as_of", later)
        early = int((~known & (page >= 0)).sum())  # none of them is later than the night
        self.counts.add("signals_before_known", early)
        self.counts.add("signals_unmatched", int((~known).sum()) - later - early)
        named = table.column("source").combine_chunks().dictionary_encode()
        codes = np.array([self._source_code[n] for n in named.dictionary.to_pylist()], np.int32)
        return page[known], at_us[known], codes[named.indices.to_numpy()][known]

    def _fold_requests(self) -> None:
        table = self._table("requests")
        settings, clock = self._settings, self._settings.clock
        oldest = request_history.oldest_week(clock.as_of_day, clock.half_life_days)
        page = day = clicks = impressions = np.zeros(0, np.int64)
        self._unknown: Urls = ()
        if table is not None:
            page = self.pages.code(table.column("url_hash").to_numpy())
            day = table.column("day").to_numpy().astype(np.int64)
            clicks, impressions = table.column("clicks").to_numpy(), table.column("impressions").to_numpy()
            # A day counts when it is over: else its rest would come after the night, as late as a repeat.
            # Whether a page is known by then is not decided before, so those rows have no other count.
            over = (day + 1) * DAY_US <= settings.as_of_us
            known = day >= self._known_from[page]
            early = known & over
            late = early.copy()
            late[early] = day[early] <= self._requests.last_day[page[early]]
            old = early & ~late & (day // 7 < oldest)
            for name, count in (("clicks", clicks), ("impressions", impressions)):
                # Whole ones, row by row: the same however pages are cut into shards.
                whole = np.rint(count * schemas.COUNT_UNIT).astype(np.int64)
                self.counts.add(f"requests_{name}", int(whole[over].sum()))
                self.counts.add(f"requests_{name}_joined", int(whole[early].sum()))
            unknown = over & (page < 0)
            self._unknown = least_urls(table, unknown)
            self.counts.add("requests_unmatched", int(unknown.sum()))
            self.counts.add("requests_before_known", int((over & ~known & (page >= 0)).sum()))
            self.counts.add("requests_after_as_of", int((~over).sum()))
            self.counts.add("requests_late", int(late.sum()))
            self.counts.add("requests_too_old", int(old.sum()))
            use = early & ~late & ~old
            self.counts.add("requests_folded", int(use.sum()))
            page, day, clicks, impressions = page[use], day[use], clicks[use], impressions[use]
            self._see(page, day)
        self._requests = request_history.fold_requests(self._requests, page, day, clicks, impressions, oldest)

    def state(self) -> pa.RecordBatch:
        """Tomorrow's `schemas.STATE`."""
        failing = self._silence.failing_since_us
        return state_batch(self.pages, self._history, self._requests, self._first_seen, failing)

    def signals(self) -> pa.RecordBatch:
        """Tomorrow's `schemas.STATE_SIGNALS`."""
        return signals_batch(self.pages, self._signal_state, self._sources)

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """What is carried to tomorrow, by folder; one after the other, so that no two take memory."""
        yield "state", self.state()
        yield "state/signals", self.signals()
        if self._settings.with_lastmods:
            yield "state/lastmods", lastmods_batch(self.pages, self._lastmods)

    def tables(self, shard: int, metadata: list[str]) -> ShardTables:
        """What the rest of the night needs."""
        settings, pages = self._settings, self.pages
        evidence = page_state.evidence(
            self._history,
            settings.forgetting.half_life_changes,
            settings.forgetting.half_life_days,
            settings.as_of_us,
        )
        evidence, back_and_forth = set_aside(self._history, evidence)
        clock = settings.clock
        clicks, impressions = request_history.weighted_counts(
            self._requests, clock.as_of_day, clock.half_life_days, schemas.COUNT_UNIT
        )
        limits = self._table("hosts")
        if limits is not None:
            listed_hash = named_hosts(limits)
            unknown = ~np.isin(listed_hash, pages.host_hash) & self._is_home(listed_hash, shard)
            self.counts.add("hosts_unmatched", int(unknown.sum()))
        listed, duplicates = join_catalogue(pages, self._table("pages"), metadata, settings.group_columns)
        self.counts.add("catalogue_duplicates", duplicates)
        hosts = join_hosts(
            pages,
            limits,
            self._table("slots_hosts"),
            self._history.last_attempt_at_us,
            settings.hosts,
            settings.as_of_us,
            NO_TIME,
        ).append_column("forecast_gain", pa.array(self._factors.gains()))
        columns = {
            "url": pages.url,
            "url_hash": pa.array(pages.url_hash),
            "host_code": pa.array(pages.host_code),
            "exposure_days": pa.array(evidence.exposure_days),
            "dated_changes": pa.array(evidence.dated_changes),
            "n_bins": pa.array(np.diff(evidence.bin_start).astype(np.int32)),
            "n_intervals": pa.array(self._history.n_intervals),
            "n_changes": pa.array(self._history.n_changes),
            "last_crawl_at": times(self._history.last_success_at_us),
            "last_attempt_at": times(self._history.last_attempt_at_us),
            "last_slot_at": times(self._last_slot),
            "first_seen_day": pa.array(self._first_seen),
            "clicks": pa.array(clicks),
            "impressions": pa.array(impressions),
            "calm_days": pa.array(calm_days(self._history)),
            **listed,
        }
        volatile_weight = volatile.weight_limit(
            self._history.n_intervals, self._history.n_changes, evidence, settings.multiplier
        )
        if (volatile_weight >= 0.0).any():
            columns["volatile_weight"] = pa.array(volatile_weight)
        if back_and_forth.any():
            columns["alternating"] = pa.array(back_and_forth)
        columns |= self._silence.columns()
        columns |= soft_404_columns(pages, self._history, settings.lower_soft_404)
        names = [*schemas.PAGES_TABLE.names, *(n for n in columns if n not in schemas.PAGES_TABLE.names)]
        bins = pa.RecordBatch.from_arrays(
            [pa.array(evidence.bin_weight), pa.array(evidence.bin_days), pa.array(evidence.bin_days_squared)],
            schema=schemas.BINS_TABLE,
        ).replace_schema_metadata(KEPT)
        self.counts.add("pages_known", len(pages))
        at_home = self._is_home(hosts.column("host_hash").to_numpy(), shard)
        self.counts.add("hosts_known", int(at_home.sum()))
        self._tables = ShardTables(
            shard,
            {
                "pages": pa.RecordBatch.from_pydict({n: columns[n] for n in names}, metadata=KEPT),
                "bins": bins,
                "hosts": hosts,
                **self._signal_tables(),
            },
        )
        return self._tables

    def _signal_tables(self) -> dict[str, pa.RecordBatch]:
        settings = self._settings
        sums = bring_to_present(
            self._signal_state,
            self._history,
            settings.forgetting,
            settings.as_of_us,
            settings.signal_delay_us,
        )
        return signal_tables(sums, self._sources)

    def _is_home(self, host_hash: UIntArray, shard: int) -> BoolArray:
        """Whether this shard counts a host: of a host that is split only one does."""
        return Layout(self._settings.num_shards, {}).home(host_hash) == shard

    def overview(self) -> Overview:
        """The shard's part of what is learned from all pages; after `tables`."""
        requests = self._requests
        first = requests.first_day[requests.first_day != NO_DAY]
        giants = self._settings.split_hosts
        return Overview(
            *sample_shard(self._tables, giants),
            pages_per_giant(len(giants)),
            self._rows_by_day,
            (int(first.min()), int(requests.last_day.max())) if len(first) else (NO_DAY, NO_DAY),
            bool((requests.clicks > 0).any()),
            bool((requests.impressions > 0).any()),
            judged_of(self._judge, self.pages, giants, self._factors.sums),
            "volatile_weight" in self._tables.tables["pages"].schema.names,
            asked_hosts(self.pages, requests, giants, self._unknown),
            self._silence.heard(self._history),
        )
