"""One shard, one night: yesterday's state and tonight's rows become today's state and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.history import history, page_state
from policies.history.alternating import set_aside
from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME, PageState
from policies.judging.host_factors import COLUMNS as FORECAST_COLUMNS
from policies.numerics.typing_ import BoolArray, IntArray, UIntArray
from transforms.batches import schemas
from transforms.batches.coders import ShardTables
from transforms.batches.counters import published
from transforms.batches.shard_tables import KEPT
from transforms.batches.steps import Step
from transforms.batches.tally import Counts
from transforms.intake.log_ages import up_to_night
from transforms.intake.reading import all_batches, united
from transforms.kept import statistics
from transforms.kept.clocks import EXPLORED_KINDS, ShardClocks
from transforms.kept.fold_settings import FoldSettings
from transforms.kept.predictions import ShardPredictions
from transforms.kept.protocol import ShardNight
from transforms.kept.state import history_columns, microseconds, read_history, times
from transforms.night.refreshes import join_refreshes, with_floors
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
        "pages" (evidence, metadata as "meta.<name>", columns of statistics), "bins", "hosts", and those of
        statistics.
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

    def process(
        self, element: tuple[int, Iterable[pa.RecordBatch]], metadata: list[list[str]]
    ) -> Iterator[Any]:
        shard, batches = element
        fold = ShardFold(self._settings, batches)
        yield fold.tables(shard, united(metadata))
        for folder, batch in fold.files():
            yield beam.pvalue.TaggedOutput("files", ShardTables(shard, {folder: batch}))
        yield beam.pvalue.TaggedOutput("overview", fold.overview())
        yield beam.pvalue.TaggedOutput("counts", published(fold.counts.totals()))


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
        self.counts = Counts()
        by_kind: dict[str, list[pa.RecordBatch]] = {}
        for batch in all_batches(batches):
            if batch.num_rows:
                by_kind.setdefault(schemas.kind_of(batch), []).append(batch)
        self._night = night = ShardNight(settings, self.counts, by_kind)
        old = night.table("state")
        observations = self._seen_so_far(by_kind.pop("observations", []), settings.as_of_us)
        listed = [*by_kind.get("pages", []), *by_kind.get("refreshes", [])]
        listed += by_kind.get("sitemaps", []) if settings.sitemap_pages else []
        self.pages, old_code, seen_code = code_pages(old, [*observations, *listed])
        night.pages, rows = self.pages, observations_of(seen_code, observations)
        night.rows, night.listed = rows, seen_code[len(rows) :]
        del observations
        # Known from the state or the catalogue, ever; else from tonight's log: what was asked or signalled
        # before that would have met an unknown page, had the job run every night.
        night.known_from_day = np.full(len(self.pages) + 1, np.iinfo(np.int64).max)
        np.minimum.at(night.known_from_day, rows.page, rows.fetched_at_us // DAY_US)
        night.known_from_day[old_code] = night.known_from_day[night.listed] = np.iinfo(np.int64).min
        self._read(old, old_code)
        for kind in statistics.STATISTICS:
            night.kept[kind] = kind(night)
        night.state = night.slots = None  # each has what it needs of them
        night.after, counts = history.fold(
            night.before,
            rows,
            settings.as_of_us,
            half_life_changes=settings.forgetting.half_life_changes,
            half_life_days=settings.forgetting.half_life_days,
            watch=self._watch,
            clock=night.kept[ShardClocks].before,
        )
        for name, n in counts.items():
            self.counts.add(name, n)
        for one in night.kept.values():
            one.fold(night, rows)
        self._rows_by_day = _rows_by_day(rows.fetched_at_us // DAY_US)

    def _seen_so_far(self, observations: list[pa.RecordBatch], as_of_us: int) -> list[pa.RecordBatch]:
        """Observations up to the night; a page that only later ones name is not known yet."""
        kept = []
        for batch in observations:
            at = batch.column("fetched_at")
            if pc.max(at).value > as_of_us:
                batch = batch.filter(up_to_night(at, as_of_us, self.counts))
            kept.append(batch)
        return kept

    def _read(self, old: pa.Table | None, code: IntArray) -> None:
        """What the night before left of the pages."""
        night, n = self._night, len(self.pages)
        night.before, night.code, night.last_slot_us = PageState.empty(n), code, np.full(n, NO_TIME, np.int64)
        if old is not None:
            state = old.combine_chunks().to_batches()[0]
            order = np.argsort(code, kind="stable")
            if (order != np.arange(len(order))).any():  # last night had another number of shards
                state, night.code = state.take(pa.array(order)), code[order]
            night.state, before = state, read_history(state)
            night.before = before if len(code) == n else before.expand(night.code, n)
        night.slots = night.table("slots_pages")
        if night.slots is not None:
            night.slot_code = self.pages.code(night.slots.column("url_hash").to_numpy())
            at = microseconds(night.slots.column("last_slot_at"))
            use = (night.slot_code >= 0) & (at <= night.settings.as_of_us)
            np.maximum.at(night.last_slot_us, night.slot_code[use], at[use])

    def _watch(self, first_page: int, intervals: Intervals) -> None:
        for one in self._night.kept.values():
            one.watch(first_page, intervals)

    def state(self) -> pa.RecordBatch:
        """Tomorrow's rows of `statistics.state_schema`."""
        columns = history_columns(self.pages, self._night.after)
        for one in self._night.kept.values():
            columns |= one.state()
        schema = statistics.state_schema()
        return pa.RecordBatch.from_arrays([columns[n] for n in schema.names], schema=schema)

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """What is carried to tomorrow, by folder; one after the other, so that no two take memory."""
        yield "state", self.state()
        for one in self._night.kept.values():
            yield from one.files()

    def tables(self, shard: int, metadata: list[str]) -> ShardTables:
        """What the rest of the night needs."""
        night, settings, pages = self._night, self._night.settings, self.pages
        evidence = page_state.evidence(
            night.after,
            settings.forgetting.half_life_changes,
            settings.forgetting.half_life_days,
            settings.as_of_us,
        )
        night.evidence, night.alternating = evidence, _ = set_aside(night.after, evidence)
        limits = night.table("hosts")
        if limits is not None:
            listed_hash = named_hosts(limits)
            unknown = ~np.isin(listed_hash, pages.host_hash) & self._is_home(listed_hash, shard)
            self.counts.add("hosts_unmatched", int(unknown.sum()))
        listed, duplicates = join_catalogue(
            pages, night.table("pages"), metadata, settings.group_columns, settings.page_limits_per_day
        )
        self.counts.add("catalogue_duplicates", duplicates)
        hosts = join_hosts(
            pages,
            limits,
            night.table("slots_hosts"),
            night.after.last_attempt_at_us,
            settings.hosts,
            settings.as_of_us,
            NO_TIME,
        )
        for name, values in zip(FORECAST_COLUMNS, night.kept[ShardPredictions].hosts.columns(), strict=True):
            hosts = hosts.append_column(name, pa.array(values))
        clocks = night.kept[ShardClocks]
        for name, share in zip(EXPLORED_KINDS, (clocks.explored(), *clocks.explored_young()), strict=True):
            hosts = hosts.append_column(name, pa.array(share))
        listed["group_hash"] = clocks.grouped(listed["group_hash"])
        refreshes = None
        if (rows := night.table("refreshes")) is not None:
            cap = listed["cap_per_day"].to_numpy()
            refreshes = join_refreshes(pages, rows, hosts, cap, settings, self.counts)
            listed = with_floors(listed, refreshes, settings.hosts.horizon_us / DAY_US)
        columns = {
            "url": pages.url,
            "url_hash": pa.array(pages.url_hash),
            "host_code": pa.array(pages.host_code),
            "exposure_days": pa.array(evidence.exposure_days),
            "dated_changes": pa.array(evidence.dated_changes),
            "n_bins": pa.array(np.diff(evidence.bin_start).astype(np.int32)),
            "n_intervals": pa.array(night.after.n_intervals),
            "n_changes": pa.array(night.after.n_changes),
            "last_crawl_at": times(night.after.last_success_at_us),
            "last_attempt_at": times(night.after.last_attempt_at_us),
            "last_slot_at": times(night.last_slot_us),
            **listed,
        }
        more: dict[str, pa.RecordBatch] = {}
        if refreshes is not None:
            more["refreshes"] = refreshes
        for one in night.kept.values():
            columns |= one.columns(night)
            more |= one.tables(night)
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
                "pages": pa.RecordBatch.from_pydict(columns, metadata=KEPT),
                "bins": bins,
                "hosts": hosts,
                **more,
            },
        )
        return self._tables

    def _is_home(self, host_hash: UIntArray, shard: int) -> BoolArray:
        """Whether this shard counts a host: of a host that is split only one does."""
        return Layout(self._night.settings.num_shards, {}).home(host_hash) == shard

    def overview(self) -> Overview:
        """The shard's part of what is learned from all pages; after `tables`."""
        night, giants = self._night, self._night.settings.split_hosts
        return Overview(
            *sample_shard(self._tables, giants),
            pages_per_giant(len(giants)),
            self._rows_by_day,
            "volatile_weight" in self._tables.tables["pages"].schema.names,
            {kind: sums for kind, one in night.kept.items() if (sums := one.sums()) is not None},
        )
