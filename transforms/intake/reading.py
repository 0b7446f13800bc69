"""All inputs of a night to batches by shard, in one step.

Files of every kind, and of the previous night, are read by the same transform: a Flatten of large collections
before a GroupByKey would write and read every batch once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from transforms.batches import schemas
from transforms.batches.counters import published
from transforms.batches.hashing import hash_texts, stable_hash
from transforms.batches.packing import pack_times, unpack_times
from transforms.batches.shard_tables import SHUFFLED
from transforms.batches.steps import Given, Step, Ungroup, outputs
from transforms.batches.tally import Counts
from transforms.batches.urls import HostTable
from transforms.files.blocks import How, Split
from transforms.files.delimiters import DELIMITERS
from transforms.intake.sources import NOTED, ROWS, check_inputs, plan_files, read_split, slices
from transforms.kept.carrying import Previous, PreviousFile, read_previous_file, shard_of_file
from transforms.rows.normalise import REPLAYED
from transforms.shards.catalogue import metadata_columns
from transforms.shards.sharding import Layout, ShardBuffer

# Kinds whose rows are pages by their URL; the previous night's rows and hosts have no URL to hash.
ROW_KINDS = ("observations", "requests", "signals", "sitemaps", "pages", "changes", "refreshes")
# Formats that count the same visits, each in its way.
COUNTED_BY = {"access_log": "web_log", "w3c": "web_log", "search_console": "search_console"}


@dataclass(frozen=True)
class Input:
    """One input of the job: its kind, its patterns, whether they must match something, and how it is read."""

    kind: str
    patterns: str
    required: bool
    how: How = field(default_factory=How)


@dataclass(frozen=True)
class Task:
    """Something to read: a split of an input, a file of the previous run, or nothing but the shards."""

    kind: str = ""
    split: Split | None = None
    previous: Any = None


class _Plan(Step):
    """From inputs to tasks, each under a stable key, so that workers share them the same way."""

    OUTPUTS: ClassVar = {"tasks": tuple[int, Task], "counts": dict[str, int]}

    def process(self, element: Input | Task) -> Iterator[Any]:
        if isinstance(element, Task):
            yield stable_hash(repr(element.previous)) >> 1, element
            return
        splits = plan_files(element.patterns, element.kind, element.required, element.how)
        counts = Counts()
        counts.add(f"{element.kind}_files", len({s.path for s in splits}))
        counts.add(f"{element.kind}_files_empty", sum(s.form == "empty" for s in splits))
        for mark in {s.delimiter for s in splits} - {"", ","}:
            apart = f"{element.kind}_tables_by_{DELIMITERS[mark]}"
            counts.add(apart, sum(s.delimiter == mark for s in splits))
        yield beam.pvalue.TaggedOutput("counts", published(counts.totals()))
        for split in splits:
            if split.form != "empty":
                yield stable_hash(f"{split.path}:{split.groups}") >> 1, Task(element.kind, split)


def spread_tasks(
    pipeline: beam.Pipeline, elements: Iterable[Input | Task]
) -> tuple[beam.PCollection, beam.PCollection]:
    """What there is to read, spread over workers, and counts of files: Task, and dict of str to int."""
    planned = outputs(pipeline | "NameInputs" >> Given(list(elements)), "PlanReads", _Plan())
    tasks = (
        planned["tasks"]
        | "SpreadReads" >> beam.GroupByKey()
        | "TakeReads" >> beam.ParDo(Ungroup()).with_output_types(Task)
    )
    return tasks, planned["counts"]


class _Read(Step):
    """Reads tasks. Small batches of a bundle are gathered before they are cut by shard."""

    OUTPUTS: ClassVar = {
        "rows": tuple[int, pa.RecordBatch],
        "rejected": pa.RecordBatch,
        "counts": dict[str, int],
        "metadata": list[str],
    }

    def __init__(self, layout: Layout, keeps_layout: bool, rows_per_batch: int) -> None:
        self._layout, self._keeps_layout, self._rows_per_batch = layout, keeps_layout, rows_per_batch

    def setup(self) -> None:
        self._table = HostTable()

    def start_bundle(self) -> None:
        self._buffer = ShardBuffer(self._layout, self._rows_per_batch)

    def process(self, task: Task) -> Iterator[Any]:
        if task.split is not None:
            yield from self._read_split(task.kind, task.split)
        elif task.previous is not None:
            yield from self._read_previous(PreviousFile(*task.previous))
        else:  # every shard has a file, whether or not it has pages
            yield beam.pvalue.TaggedOutput(ReadInputs.METADATA, [])
            for shard in range(self._layout.num_shards):
                yield shard, pa.RecordBatch.from_pylist([], schemas.HOSTS)

    def _read_previous(self, file: PreviousFile) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._keeps_layout:
            reference = pa.RecordBatch.from_pylist([file._asdict()], schemas.PREVIOUS_FILE)
            yield shard_of_file(file.path), reference
            return
        for batch in read_previous_file(file):
            for shard, part in self._buffer.add(batch):
                yield shard, packed(part)

    def _read_split(self, kind: str, split: Split) -> Iterator[Any]:
        counts = Counts()
        names: set[str] = set()
        for tag, batch in read_split(split, REPLAYED[kind], None, self._table, notes=counts):
            if tag != ROWS:
                count_rejected(counts, kind, batch)
                yield beam.pvalue.TaggedOutput(ReadInputs.REJECTED, batch)
                continue
            counts.add(f"{kind}_accepted", batch.num_rows)
            if kind == "requests":
                by = COUNTED_BY.get(split.form)
                for name in ("clicks", "impressions"):
                    whole = int(np.rint(batch.column(name).to_numpy() * schemas.COUNT_UNIT).sum())
                    counts.add(f"requests_read_{name}", whole)
                    if by and name == "clicks":
                        counts.add(f"requests_{by}_clicks", whole)
            if kind == "pages":
                names |= set(metadata_columns(batch))
            for part in slices(batch, self._rows_per_batch):
                for shard, cut in self._buffer.add(part):
                    yield shard, packed(cut)
        yield beam.pvalue.TaggedOutput(ReadInputs.COUNTS, published(counts.totals()))
        if kind == "pages":
            yield beam.pvalue.TaggedOutput(ReadInputs.METADATA, sorted(names))

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for shard, part in self._buffer.flush():
            yield WindowedValue((shard, packed(part)), window.max_timestamp(), (window,))


def packed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """As it travels: compressed, and without the hashes that the shard finds again from the URLs.

    Hashes do not compress; a seventh of all bytes is more than the 0.1 us a row that hashing again costs.
    """
    if schemas.kind_of(batch) in ROW_KINDS:
        batch = pack_times(batch.drop_columns(["url_hash", "host_hash"]))
    return batch.replace_schema_metadata({**(batch.schema.metadata or {}), **SHUFFLED})


def all_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a shard as they were before they travelled; files that are only named are read."""
    for batch in batches:
        if schemas.kind_of(batch) == "previous_file":
            for row in batch.to_pylist():
                yield from read_previous_file(PreviousFile(**row))
        else:
            yield unpacked(batch)


def unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch as it was before it travelled, but for `host_hash`; observations do without any hash."""
    kind = schemas.kind_of(batch)
    if kind not in ROW_KINDS or "url_hash" in batch.schema.names:
        return batch
    batch = unpack_times(batch)
    if kind == "observations":  # their distinct URLs are hashed once
        return batch
    return batch.append_column("url_hash", pa.array(hash_texts(batch.column("url"))))


def count_rejected(counts: Counts, kind: str, batch: pa.RecordBatch) -> None:
    """Count a batch of rejected rows, by reason."""
    for entry in pc.value_counts(batch.column("reason")).to_pylist():
        reason, n = entry["values"], entry["counts"]
        if reason in NOTED:  # no row is lost. Who compares dates counts them all; rejected/ shows some
            counts.add(f"{kind}_noted_{reason}", n)
        elif reason.endswith("_file"):  # not a row: the rest of a file
            counts.add(f"{kind}_files_{reason.removesuffix('_file')}", n)
        else:
            counts.add(f"{kind}_rejected", n)
            counts.add(f"{kind}_rejected_{reason}", n)


def check_all(inputs: Iterable[Input]) -> None:
    """Look at the first files of all inputs, each of which has to be there.

    Raises
    ------
    InputError
    """
    for found in inputs:
        if found.kind == "changes":
            plan_files(found.patterns, found.kind, True)
        else:
            check_inputs(found.kind, found.patterns, True, how=found.how)


class ReadInputs(beam.PTransform):
    """Read everything that a night reads.

    Parameters
    ----------
    inputs : list of Input
    previous : Previous
    layout : Layout
    rows_per_batch : int
        Rows to gather before they are cut by shard.

    Returns
    -------
    dict of PCollection
        `ROWS`: (shard, RecordBatch), kinds told apart by `schemas.kind_of`; at least one batch a shard.
        `REJECTED`: RecordBatch of `schemas.REJECTED`. `COUNTS`: dict of str to int, accepted and rejected
        rows by kind. `METADATA`: lists of str, metadata columns of catalogue files, see `united`.

    A bundle holds `sharding.MAX_BUFFERED_BYTES` and one block of a file.
    """

    ROWS, REJECTED, COUNTS, METADATA = "rows", "rejected", "counts", "metadata"

    def __init__(
        self, inputs: Iterable[Input], previous: Previous, layout: Layout, rows_per_batch: int
    ) -> None:
        super().__init__()
        self._elements: list[Input | Task] = [*inputs, Task(), *(Task(previous=f) for f in previous.files)]
        self._read = _Read(layout, previous.layout == layout, rows_per_batch)

    def expand(self, pipeline: beam.Pipeline) -> dict[str, beam.PCollection]:
        tasks, planned = spread_tasks(pipeline, self._elements)
        read = outputs(tasks, "ReadFiles", self._read)
        counts = (planned, read[self.COUNTS]) | "GatherReadCounts" >> beam.Flatten()
        return read | {self.COUNTS: counts}


def united(columns: Iterable[list[str]]) -> list[str]:
    """All names of `ReadInputs.METADATA`, sorted."""
    return sorted({name for names in columns for name in names})
