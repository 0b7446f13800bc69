"""Sums of the sources of a shard, carried from night to night."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.discovery.drawing import HourlyYields
from policies.discovery.links import Shown, follow, sources_only
from policies.discovery.names import OWN_STATE, PHAM, THOMPSON
from policies.discovery.pricing import MOST_REFRESHES
from policies.discovery.regressed import Products, Recent
from policies.discovery.shared import Shared
from policies.discovery.sums import NEVER_S, Sums
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import BoolArray, IntArray, UIntArray
from policies.sequencing.host_shares import host_slot_limits
from transforms.batches import schemas
from transforms.batches.coders import ShardTables
from transforms.batches.counters import published
from transforms.batches.hashing import hash_prefixes
from transforms.batches.steps import Step
from transforms.batches.tally import Counts
from transforms.batches.urls import HostTable, locate
from transforms.discovery import tables
from transforms.discovery.previous import read_references
from transforms.discovery.visiting import RawVisits, merged, read_shown, shown_batch
from transforms.rows.link_rows import page_texts
from transforms.shards.catalogue import HostDefaults, limits_of_night, shared_limits, slots_before


@dataclass(frozen=True)
class Limits:
    """Of hosts that are not listed, and what is planned.

    Attributes
    ----------
    as_of_us : int
    hosts : HostDefaults
        With the horizon.
    only_listed : bool
        Whether sources are those of a list, and no others.
    forget_days : float
        After which sources that nobody lists and no visit has seen are forgotten.
    policy : str
        Of `policies.discovery.pricing.POLICIES`.
    host_share : float
        Of the slots of a limited host, rounded up, that refreshes may take.
    """

    as_of_us: int
    hosts: HostDefaults
    only_listed: bool
    forget_days: float
    policy: str
    host_share: float = 1.0


class FoldSources(Step):
    """(shard, batches of visits, listed sources, limits and files of the state) to sums.

    Outputs
    -------
    tables : ShardTables
        "sources" (`tables.STATE_SOURCES` with "links"), "hosts" (`tables.HOSTS`) and "shared", of the shard.
    files : ShardTables
        The state of sources, and `targets`.
    counts : dict of str to int
    """

    OUTPUTS: ClassVar = {"tables": ShardTables, "files": ShardTables, "counts": dict[str, int]}

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def setup(self) -> None:
        self._table = HostTable()

    def process(self, element: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[Any]:
        shard, batches = element[0], list(element[1])
        state = read_references(batches)
        of = {
            name: [b for b in batches if schemas.kind_of(b) == name]
            for name in ("visits", "listed", "hosts", "new_targets")
        }
        del batches
        counts = Counts()
        known = _Known.of_state(state["state/sources"], self._table)
        shown = read_shown(state["state/shown"])
        listed = tables.gathered(of["listed"], tables.LISTED)
        visits = merged(tables.gathered(of["visits"], tables.VISITS))
        targets = self._targets(tables.gathered(of["new_targets"], tables.NEW_TARGETS), visits, known)
        known, shown = self._remembered(known, shown, listed, visits, counts)
        visits = self._counting(visits, known, listed, counts)
        known = known.joined(listed, visits, self._limits.only_listed)
        n = len(known.url_hash)
        policy = self._limits.policy
        links = shown.counts(known.url_hash)[0]
        sums = tables.columns_to_sums(known.batch, links, policy not in OWN_STATE)
        host_hash, host = np.unique(known.host_hash, return_inverse=True)
        shared = Shared(len(host_hash))
        _load(shared, host_hash, state["state/shared"], state["state/hosts"])
        row = known.rows_of(visits.source_hash)
        done, shown = follow(visits, row, shown, n)
        yields, recent, products = None, None, None
        if policy == PHAM:
            before = tables.columns_to_recent(known.batch), done, sums.seen_s.copy()
            was = tables.batch_to_products(state["state/shared"])
            products, recent = was.learn(*before, self._limits.as_of_us // 1_000_000)
        sums.learn(done, shared, host)
        if policy == THOMPSON:
            yields = tables.columns_to_yields(known.batch)
            yields.learn(done)
        counts.add("sources_known", n)
        counts.add("visits", len(row))
        counts.add("visits_failed", int((~visits.ok).sum()))
        batch = _source_batch(known, sums, yields, recent)
        shared_batch = _shared_batch(shared, products)
        rows = (shared.host_new > 0) | (shared.host_exposure > 0)
        files = {
            "targets": targets,
            "state/sources": tables.without_other_policies(batch),
            "state/shown": shown_batch(shown),
            "state/shared": shared_batch,
            "state/hosts": pa.RecordBatch.from_arrays(
                [
                    pa.array(host_hash[rows]),
                    pa.array(shared.host_new[rows]),
                    pa.array(shared.host_exposure[rows]),
                ],
                schema=tables.STATE_HOSTS,
            ),
        }
        slots = state["slots"]
        slots = slots.filter(pa.array(np.isin(slots.column("host_hash").to_numpy(), host_hash)))
        hosts = self._hosts(host_hash, known, shared, tables.gathered(of["hosts"], _LIMITS), slots)
        yield beam.pvalue.TaggedOutput("counts", published(counts.totals()))
        yield beam.pvalue.TaggedOutput("files", ShardTables(shard, files))
        made = {"sources": batch.append_column("links", pa.array(sums.links)), "hosts": hosts}
        yield ShardTables(shard, {**made, "shared": shared_batch, "slots": slots})

    def _targets(self, new: pa.RecordBatch, visits: RawVisits, known: _Known) -> pa.RecordBatch:
        """The targets that visits of sources of the shard were the first to show.

        What the first look at a source shows may be of any age; what a later one does has come since.
        """
        new = new.sort_by("target_hash")
        # Of spellings of a source the last one counts, as everywhere.
        spelled = pc.rank(visits.url, sort_keys="descending", tiebreaker="dense").to_numpy()
        order = np.lexsort((spelled, visits.source_hash))
        source = order[np.searchsorted(visits.source_hash[order], new.column("source_hash").to_numpy())]
        at = pc.multiply(new.column("at_s"), 1_000_000).cast(schemas.TIME)
        hosts = locate(new.column("url"), self._table, hash_prefixes).host_texts()
        looked = known.url_hash[known.seen_s != NEVER_S]
        good = np.flatnonzero(visits.ok)
        first, place = np.unique(visits.source_hash[good], return_index=True)
        of, at_s = new.column("source_hash").to_numpy(), new.column("at_s").to_numpy()
        since = visits.at_s[good][place][np.searchsorted(first, of)]
        published = pc.if_else(pa.array(np.isin(of, looked) | (at_s > since)), at, None)
        found_by = visits.url.take(pa.array(source))
        return pa.RecordBatch.from_arrays(
            [new.column("url"), hosts, found_by, at, published], schema=tables.TARGETS_OUT
        )

    def _remembered(
        self, known: _Known, shown: Shown, listed: pa.RecordBatch, visits: RawVisits, counts: Counts
    ) -> tuple[_Known, Shown]:
        """Without sources that nobody lists and that were last seen long ago, and without their links."""
        named = np.concatenate([listed.column("url_hash").to_numpy(), visits.source_hash])
        least_s = self._limits.as_of_us / 1e6 - 86_400.0 * self._limits.forget_days
        kept = (known.seen_s >= least_s) | np.isin(known.url_hash, named)
        if not self._limits.only_listed:
            kept |= known.batch.column("listed").to_numpy(zero_copy_only=False)
        counts.add("sources_forgotten", int((~kept).sum()))
        if kept.all():
            return known, shown
        known = known.filter(kept)
        links = np.isin(shown.source_hash, known.url_hash)
        return known, Shown(shown.source_hash[links], shown.target_hash[links], shown.came[links])

    def _counting(
        self, visits: RawVisits, known: _Known, listed: pa.RecordBatch, counts: Counts
    ) -> RawVisits:
        at = known.rows_of(visits.source_hash)
        last = np.where(at >= 0, np.append(known.last_s, NEVER_S)[at], NEVER_S)
        named = np.isin(visits.source_hash, listed.column("url_hash").to_numpy())
        if self._limits.only_listed:
            some = named | (at >= 0)
            counts.add("visits_of_no_source", int((~some).sum()))
            visits = visits.take(some)
            last, at, named = (x[some] for x in (last, at, named))
        keep, late = sources_only(visits, last, named | (at >= 0))
        counts.add("visits_late", int(late.sum()))
        counts.add("visits_of_no_source", int((~keep & ~late).sum()))
        return visits.take(keep)

    def _hosts(
        self, host_hash: UIntArray, known: _Known, shared: Shared, rows: pa.RecordBatch, slots: pa.RecordBatch
    ) -> pa.RecordBatch:
        limits, h = self._limits, len(host_hash)
        horizon_us, as_of_us = limits.hosts.horizon_us, limits.as_of_us
        names = pa.array([self._table.host(x) for x in host_hash.tolist()], pa.string())
        *least, unit_hash = shared_limits(names, host_hash, pa.Table.from_batches([rows]), limits.hosts)
        _, gap_us, most = limits_of_night(*least, horizon_us)
        free = np.full(h, as_of_us)
        place = np.searchsorted(host_hash, slots.column("host_hash").to_numpy())
        last = slots.column("last_slot_at").cast(pa.int64()).to_numpy()
        np.maximum.at(free, place, slots_before(last, gap_us[place], as_of_us) + gap_us[place])
        most = host_slot_limits(most, gap_us, free - as_of_us, 0, horizon_us - 1, horizon_us)
        most = np.ceil(limits.host_share * np.minimum(most, MOST_REFRESHES)).astype(np.int64)
        columns = [names, host_hash, np.unique(known.host_hash, return_counts=True)[1], most, gap_us, free]
        columns += [shared.host_new, shared.host_exposure]
        columns += [np.zeros(h, np.uint64) if unit_hash is None else unit_hash]
        return pa.RecordBatch.from_arrays([pa.array(c) for c in columns], schema=tables.HOSTS)


_LIMITS = pa.schema([*schemas.HOSTS, pa.field("host_hash", pa.uint64())], metadata=schemas.HOSTS.metadata)


@dataclass(frozen=True)
class _Known:
    """Sources of a shard, sorted by the hashes of host and URL, and their rows of the state."""

    batch: pa.RecordBatch
    url_hash: UIntArray
    host_hash: UIntArray
    seen_s: IntArray
    last_s: IntArray
    table: HostTable

    @classmethod
    def of_state(cls, batch: pa.RecordBatch, table: HostTable) -> _Known:
        host = locate(batch.column("url"), table, hash_prefixes).host_hash
        last = [
            batch.column(n).cast(pa.int64()).fill_null(NEVER_S).to_numpy(zero_copy_only=False)
            for n in ("seen_s", "asked_s")
        ]
        return cls(batch, page_texts(batch.column("url"))[1], host, last[0], np.maximum(*last), table)

    def filter(self, kept: BoolArray) -> _Known:
        """Some of them."""
        batch, arrays = self.batch.filter(pa.array(kept)), (self.url_hash, self.host_hash)
        return _Known(batch, *(a[kept] for a in (*arrays, self.seen_s, self.last_s)), self.table)

    def rows_of(self, url_hash: UIntArray) -> IntArray:
        """Rows of sources, -1 for those that are not there."""
        return rows_of(self.url_hash, url_hash, np.argsort(self.url_hash))

    def joined(self, listed: pa.RecordBatch, visits: RawVisits, only_listed: bool) -> _Known:
        """With sources that are new tonight, and lists and spellings as they are now."""
        more = [
            (
                listed.column("url"),
                listed.column("url_hash").to_numpy(),
                listed.column("host_hash").to_numpy(),
            ),
            (visits.url, visits.source_hash, visits.host_hash),
        ]
        url = pa.concat_arrays([self.batch.column("url"), *(m[0] for m in more)])
        url_hash = np.concatenate([self.url_hash, *(m[1] for m in more)])
        host_hash = np.concatenate([self.host_hash, *(m[2] for m in more)])
        # The last spelling of a URL counts: https goes before http, whatever the order of files.
        spelled = pc.rank(url, sort_keys="descending", tiebreaker="dense").to_numpy()
        order = np.lexsort((spelled, url_hash, host_hash))
        first = np.append(True, np.diff(url_hash[order]) != 0) if len(order) else np.zeros(0, np.bool_)
        chosen = order[first]
        found = url_hash[chosen]
        old = self.rows_of(found)
        named = np.isin(found, listed.column("url_hash").to_numpy())
        if not only_listed and self.batch.num_rows:
            was = self.batch.column("listed").to_numpy(zero_copy_only=False)
            named |= (old >= 0) & np.append(was, False)[old]
        empty = tables.sums_to_columns(Sums(1)) | tables.yields_to_columns(None, 1)
        empty |= tables.recent_to_columns(None, np.array([NEVER_S]))
        blank = {"url": pa.array([""]), "listed": pa.array([False]), **empty}
        rows = pa.concat_batches(
            [
                self.batch.replace_schema_metadata(None),
                pa.RecordBatch.from_pydict(blank, tables.STATE_SOURCES.remove_metadata()),
            ]
        ).take(pa.array(np.where(old >= 0, old, self.batch.num_rows)))
        batch = rows.set_column(0, "url", url.take(pa.array(chosen)))
        batch = batch.set_column(1, "listed", pa.array(named))
        names = locate(batch.column("url"), self.table, hash_prefixes)
        assert (names.host_hash == host_hash[chosen]).all()
        never = np.full(len(found), NEVER_S)
        return _Known(batch, found, host_hash[chosen], never, never, self.table)


def _source_batch(
    known: _Known, sums: Sums, yields: HourlyYields | None, recent: Recent | None
) -> pa.RecordBatch:
    columns = {
        "url": known.batch.column("url"),
        "listed": known.batch.column("listed"),
        **tables.sums_to_columns(sums),
        **tables.yields_to_columns(yields, len(sums)),
        **tables.recent_to_columns(recent, sums.seen_s),
    }
    return pa.RecordBatch.from_arrays(
        [columns[n] for n in tables.STATE_SOURCES.names], schema=tables.STATE_SOURCES
    )


def _shared_batch(shared: Shared, products: Products | None) -> pa.RecordBatch:
    row = {name: getattr(shared, name).ravel().tolist() for name in Shared.NAMES}
    row |= tables.products_to_row(products)
    return pa.RecordBatch.from_pylist([row], tables.STATE_SHARED)


def _load(shared: Shared, host_hash: UIntArray, sums: pa.RecordBatch, hosts: pa.RecordBatch) -> None:
    for row in sums.to_pylist():
        for name in Shared.NAMES:
            getattr(shared, name)[...] += np.array(row[name], np.int64).reshape(getattr(shared, name).shape)
    hosts = hosts.filter(pa.array(np.isin(hosts.column("host_hash").to_numpy(), host_hash)))
    at = np.searchsorted(host_hash, hosts.column("host_hash").to_numpy())
    shared.host_new[at] += hosts.column("new").to_numpy()
    shared.host_exposure[at] += hosts.column("exposure").to_numpy()


def whole_shared(batches: Iterable[pa.RecordBatch]) -> dict[str, IntArray]:
    """The sums of all shards, by name."""
    total = Shared(0)
    for batch in batches:
        _load(total, np.zeros(0, np.uint64), batch, pa.RecordBatch.from_pylist([], tables.STATE_HOSTS))
    return {name: getattr(total, name) for name in Shared.NAMES}


def listed_only(batch: pa.RecordBatch, only_listed: bool) -> BoolArray:
    """Sources that are planned: (n,) bool."""
    if only_listed:
        return np.asarray(batch.column("listed").to_numpy(zero_copy_only=False), np.bool_)
    return np.ones(batch.num_rows, np.bool_)
