"""Files of links seen to what travels: visits by the shard of their source, targets by their own.

Of a batch a target travels once, with who showed it first; a visit travels with the hashes of its links. So
what is shuffled is a few bytes a link.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from policies.numerics.typing_ import IntArray
from transforms.batches import schemas
from transforms.batches.counters import published
from transforms.batches.kinds import REPLAYED
from transforms.batches.shard_tables import SHUFFLED
from transforms.batches.steps import Step, outputs
from transforms.batches.tally import Counts
from transforms.batches.urls import HostTable
from transforms.discovery import tables
from transforms.discovery.previous import PreviousFile
from transforms.files.blocks import Split
from transforms.intake.reading import Input, Task, count_rejected, spread_tasks
from transforms.intake.sources import ROWS, read_split
from transforms.shards.sharding import Layout, ShardBuffer


class _Read(Step):
    OUTPUTS: ClassVar = {
        "sources": tuple[int, pa.RecordBatch],
        "targets": tuple[int, pa.RecordBatch],
        "rejected": pa.RecordBatch,
        "counts": dict[str, int],
    }

    def __init__(self, num_shards: int, as_of_us: int, off_site: bool, rows_per_batch: int) -> None:
        self._num_shards, self._as_of_us, self._off_site = num_shards, as_of_us, off_site
        self._rows = rows_per_batch

    def setup(self) -> None:
        self._table = HostTable()

    def start_bundle(self) -> None:
        self._buffer = ShardBuffer(Layout(self._num_shards, {}), self._rows)

    def process(self, task: Task) -> Iterator[Any]:
        if task.previous is not None:
            yield _sent(task.previous.shard, task.previous.reference())
        elif task.split is None:
            for shard in range(self._num_shards):
                for schema in (tables.VISITS, tables.FOUND):
                    yield _sent(shard, pa.RecordBatch.from_pylist([], schema))
        else:
            yield from self._read_split(task.kind, task.split)

    def _read_split(self, kind: str, split: Split) -> Iterator[Any]:
        counts = Counts()
        for tag, batch in read_split(split, REPLAYED[kind], None, self._table, notes=counts):
            if tag != ROWS:
                count_rejected(counts, kind, batch)
                yield beam.pvalue.TaggedOutput("rejected", batch)
                continue
            counts.add(f"{kind}_accepted", batch.num_rows)
            for made in self._made(kind, batch, counts):
                for shard, part in self._buffer.add(made):
                    yield _sent(shard, part)
        yield beam.pvalue.TaggedOutput("counts", published(counts.totals()))

    def _made(self, kind: str, batch: pa.RecordBatch, counts: Counts) -> Iterator[pa.RecordBatch]:
        if kind == "sources":
            yield batch.select(tables.LISTED.names).cast(tables.LISTED)
        elif kind == "hosts":
            yield batch
        else:
            yield from link_batches(batch, self._as_of_us, self._off_site, counts)

    def finish_bundle(self) -> Iterator[Any]:
        window = GlobalWindow()
        for shard, part in self._buffer.flush():
            value = _sent(shard, part)
            wrapped = value if not isinstance(value, beam.pvalue.TaggedOutput) else value.value
            done = WindowedValue(wrapped, window.max_timestamp(), (window,))
            yield done if wrapped is value else beam.pvalue.TaggedOutput(value.tag, done)


def _sent(shard: int, batch: pa.RecordBatch) -> Any:
    """A batch on its way to the shard of sources or of targets."""
    kind = schemas.kind_of(batch)
    of_targets = kind == "found" or kind == "previous_target"
    batch = batch.replace_schema_metadata({**(batch.schema.metadata or {}), **SHUFFLED})
    return beam.pvalue.TaggedOutput("targets", (shard, batch)) if of_targets else (shard, batch)


def link_batches(
    batch: pa.RecordBatch, as_of_us: int, off_site: bool, counts: Counts
) -> Iterator[pa.RecordBatch]:
    """Visits and found targets of a batch of rows.

    Parameters
    ----------
    batch : RecordBatch of `schemas.LINKS_SEEN` with keys
    as_of_us : int
        Later rows are left for the next night.
    off_site : bool
        Whether links to other sites are targets.
    counts : Counts
    """
    same = batch.column("ok").null_count
    counts.add("links_not_modified", same)
    if same:  # such a fetch does not say what was there
        batch = batch.filter(batch.column("ok").is_valid())
    at_us = batch.column("seen_at").cast(pa.int64()).to_numpy()
    later = at_us > as_of_us
    counts.add("links_after_as_of", int(later.sum()))
    if later.any():
        batch = batch.filter(pa.array(~later))
        at_us = at_us[~later]
    if not batch.num_rows:
        return
    at_s = at_us // 1_000_000
    ok = batch.column("ok").to_numpy(zero_copy_only=False)
    none = batch.column("target").is_null().to_numpy(zero_copy_only=False)
    off = batch.column("off_site").to_numpy(zero_copy_only=False)
    counts.add("links_failed", int((~ok).sum()))
    counts.add("links_none", int((none & ok).sum()))
    counts.add("links_off_site", int((off & ok).sum()))
    shows = ok & ~none & (~off | off_site)
    counts.add("links_shown", int(shows.sum()))
    source_hash = batch.column("url_hash").to_numpy()
    yield _visits(batch, source_hash, at_s, ok, shows)
    if shows.any():
        yield _found(batch, source_hash, at_s, np.flatnonzero(shows))


def _visits(
    batch: pa.RecordBatch, source_hash: np.ndarray, at_s: np.ndarray, ok: np.ndarray, shows: np.ndarray
) -> pa.RecordBatch:
    changes = (source_hash[1:] != source_hash[:-1]) | (at_s[1:] != at_s[:-1])
    if changes.sum() > batch.num_rows // 4:  # rows of a fetch do not stand together
        order = np.lexsort((at_s, source_hash))
        batch, at_s, ok, shows = batch.take(pa.array(order)), at_s[order], ok[order], shows[order]
        source_hash = source_hash[order]
        changes = (source_hash[1:] != source_hash[:-1]) | (at_s[1:] != at_s[:-1])
    first = np.append(0, np.flatnonzero(changes) + 1)
    partial = batch.column("partial").to_numpy(zero_copy_only=False)
    number = np.add.reduceat(shows.astype(np.int64), first)
    targets = batch.column("target_hash").filter(pa.array(shows))
    offsets = pa.array(np.append(0, np.cumsum(number)).astype(np.int32))
    rows = pa.array(first)
    return pa.RecordBatch.from_arrays(
        [
            batch.column("source").take(rows).cast(pa.string()),
            pa.array(source_hash[first]),
            batch.column("host_hash").take(rows),
            pa.array(at_s[first]),
            pa.array(np.logical_or.reduceat(ok, first)),
            pa.array(np.zeros(len(first), np.int64)),
            pa.array(np.logical_or.reduceat(partial, first)),
            pa.ListArray.from_arrays(offsets, targets),
        ],
        schema=tables.VISITS,
    )


def _found(
    batch: pa.RecordBatch, source_hash: np.ndarray, at_s: np.ndarray, rows: np.ndarray
) -> pa.RecordBatch:
    targets = batch.column("target")
    code, n = targets.indices.to_numpy(zero_copy_only=False)[rows].astype(np.int64), len(targets.dictionary)
    first = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(first, code, at_s[rows])
    early = rows[at_s[rows] == first[code]]
    some = pa.array(early)
    found = pa.RecordBatch.from_arrays(
        [
            targets.take(some).cast(pa.string()),
            batch.column("target_hash").take(some),
            pa.array(at_s[early]),
            pa.array(source_hash[early]),
            batch.column("host_hash").take(some),
        ],
        schema=tables.FOUND,
    )
    # As they stand: texts are copied much faster in the order of memory, and the shard sorts them anyway.
    return found.take(pa.array(np.sort(_first_rows(found))))


def first_finders(found: pa.RecordBatch) -> pa.RecordBatch:
    """Of each target who showed it first, and of several the one of the least hash: sorted by target.

    Of spellings of a URL the last one counts, so that https goes before http.
    """
    return found.take(pa.array(_first_rows(found)))


def _first_rows(found: pa.RecordBatch) -> IntArray:
    target, source = found.column("host_hash").to_numpy(), found.column("source_hash").to_numpy()
    order = np.argsort(target)
    twice = target[order][1:] == target[order][:-1]
    if twice.any():  # few are shown by several, and only those are compared
        place = np.flatnonzero(np.append(twice, False) | np.append(False, twice))
        some = order[place]
        at = found.column("at_s").to_numpy()[some]
        order[place] = some[np.lexsort((source[some], at, target[some]))]
    same = (target[order][1:] == target[order][:-1]) & (source[order][1:] == source[order][:-1])
    if same.any():  # the spelling is decided among those of one finder
        at = found.column("at_s").to_numpy()[order]
        same &= at[1:] == at[:-1]
        if same.any():
            spelled = pc.rank(found.column("url"), sort_keys="descending", tiebreaker="dense").to_numpy()
            order = np.lexsort((spelled, source, found.column("at_s").to_numpy(), target))
    ordered = target[order]
    first = np.append(True, ordered[1:] != ordered[:-1]) if len(order) else np.zeros(0, np.bool_)
    rows: IntArray = order[first]
    return rows


class ReadLinks(beam.PTransform):
    """Read all inputs, and name the files of the state to the shards that they are of.

    Parameters
    ----------
    inputs : sequence of Input
        Kinds "links_seen", "sources" and "hosts".
    previous : sequence of PreviousFile
    num_shards, as_of_us, rows_per_batch : int
    off_site : bool

    Returns
    -------
    dict of PCollection
        "sources", "targets": (shard, RecordBatch), at least one a shard. "rejected", "counts".
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        previous: Iterable[PreviousFile],
        num_shards: int,
        as_of_us: int,
        off_site: bool,
        rows_per_batch: int,
    ) -> None:
        super().__init__()
        self._elements: list[Input | Task] = [*inputs, Task(), *(Task(previous=f) for f in previous)]
        self._read = _Read(num_shards, as_of_us, off_site, rows_per_batch)

    def expand(self, pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        tasks, planned = spread_tasks(pipeline, self._elements)
        read = outputs(tasks, "ReadFiles", self._read)
        counts = (planned, read["counts"]) | "GatherReadCounts" >> beam.Flatten()
        return read | {"counts": counts}
