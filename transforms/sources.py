"""Read a job's inputs: any mix of Parquet, Avro, JSON Lines and CSV files to batches of one schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from transforms.counters import count
from transforms.formats import BATCH_BYTES, BATCH_ROWS, Split, plan, read
from transforms.hashing import stable_hash
from transforms.inputs import match_files
from transforms.normalise import KINDS, Kind, normalise
from transforms.urls import HostTable

ROWS, REJECTED = "rows", "rejected"
# Smaller batches of a bundle are joined to about this size; larger ones pass as they are.
SMALL_ROWS = 1 << 16
PLAN_THREADS = 16


def read_split(
    split: Split,
    kind: Kind,
    metadata: Sequence[str] | None = None,
    table: HostTable | None = None,
    hashes: bool = True,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read a split to normalised batches: pairs of "rows" or "rejected" and a batch. No Beam needed.

    Raises
    ------
    InputError
        If the file lacks a column, or a row of hosts cannot be read.
    """
    for block in read(split, kind, metadata):
        if isinstance(block, pa.RecordBatch):
            yield REJECTED, block
            continue
        done = normalise(kind, block.batch, split.path, block.row, table, hashes)
        if done.rejected.num_rows:
            yield REJECTED, done.rejected
        for part in slices(done.rows):
            yield ROWS, part


def slices(
    batch: pa.RecordBatch, rows: int = BATCH_ROWS, size: int = BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """A batch in parts of at most `rows` rows and about `size` bytes; they share its buffers."""
    if not batch.num_rows:
        return
    parts = max(-(-batch.num_rows // rows), min(batch.num_rows, -(-batch.nbytes // size)))
    step = -(-batch.num_rows // parts)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def plan_files(patterns: str, kind: str, required: bool = True) -> list[Split]:
    """All splits of an input, in the order of their names.

    Raises
    ------
    InputError
        If a required pattern matches nothing, or a file is of no known format.
    """
    files = match_files(patterns, kind, required)
    with ThreadPoolExecutor(PLAN_THREADS) as pool:
        return [split for splits in pool.map(plan, files) for split in splits]


def check_inputs(
    kind: str,
    patterns: str,
    required: bool = True,
    metadata_columns: Sequence[str] | None = None,
    files: int = 3,
) -> None:
    """Look at the columns of the first few files (of hosts at all rows), to stop a job before it starts.

    Raises
    ------
    InputError
        As `ReadRows` does while it runs.
    """
    found = match_files(patterns, kind, required)
    if kind == "hosts":
        # A short list, of which every row must be readable.
        for split in (s for file in found for s in plan(file)):
            for _ in read_split(split, KINDS[kind]):
                pass
    for file in found[:files]:
        for split in plan(file)[:1]:
            next(read(split, KINDS[kind], metadata_columns), None)


class _Plan(beam.DoFn):
    """From patterns to splits, each keyed by a stable hash so that workers share them the same way."""

    def __init__(self, kind: str, required: bool) -> None:
        self._kind, self._required = kind, required

    def process(self, patterns: str) -> Iterable[tuple[int, Split]]:
        splits = plan_files(patterns, self._kind, self._required)
        paths = {s.path: s.form for s in splits}
        count(f"files_read/{self._kind}", len(paths))
        count(f"files_empty/{self._kind}", sum(form == "empty" for form in paths.values()))
        for s in splits:
            if s.form != "empty":
                yield stable_hash(f"{s.path}:{s.groups}") >> 1, s


class _Read(beam.DoFn):
    """Reads splits. Small batches of a bundle are joined: each costs a fixed time and space later on."""

    def __init__(self, kind: str, metadata: tuple[str, ...] | None, hashes: bool) -> None:
        self._kind, self._metadata, self._hashes = kind, metadata, hashes

    def setup(self) -> None:
        self._table = HostTable()

    def start_bundle(self) -> None:
        self._small: list[pa.RecordBatch] = []

    def process(self, split: Split) -> Iterator[pa.RecordBatch | beam.pvalue.TaggedOutput]:
        name = self._kind
        for tag, batch in read_split(split, KINDS[name], self._metadata, self._table, self._hashes):
            if tag == REJECTED:
                self._count_rejected(batch)
                yield beam.pvalue.TaggedOutput(REJECTED, batch)
                continue
            count(f"rows_read/{name}", batch.num_rows)
            count(f"rows_accepted/{name}", batch.num_rows)
            if batch.num_rows >= SMALL_ROWS:
                yield batch
                continue
            if self._small and not self._small[0].schema.equals(batch.schema):
                yield from self._flush()
            self._small.append(batch)
            if sum(b.num_rows for b in self._small) >= SMALL_ROWS:
                yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for batch in self._flush():
            yield WindowedValue(batch, window.max_timestamp(), (window,))

    def _flush(self) -> Iterator[pa.RecordBatch]:
        small, self._small = self._small, []
        if small:
            yield from slices(small[0] if len(small) == 1 else pa.concat_batches(small))

    def _count_rejected(self, batch: pa.RecordBatch) -> None:
        for entry in batch.column("reason").value_counts().to_pylist():
            reason, n = entry["values"], entry["counts"]
            if reason in ("truncated_file", "unreadable_file"):
                count(f"files_rejected/{reason}", n)
            else:
                count(f"rows_rejected/{reason}", n)
                count(f"rows_read/{self._kind}", n)


class ReadRows(beam.PTransform):
    """Read one kind of input.

    Parameters
    ----------
    kind : str
        observations, requests, signals, pages or hosts.
    patterns : str
        A comma-separated list of globs, folders and paths, on any file system that Beam knows.
    required : bool
        Whether a glob that matches nothing is an error.
    metadata_columns : sequence of str, optional
        For pages: the further columns to keep; all that each file has if None.
    hashes : bool
        Whether the columns `url_hash` and `host_hash` (hosts: `host_hash`) follow those of the schema.

    Returns
    -------
    dict of PCollection[pa.RecordBatch]
        `rows`: the columns of the kind's schema in `schemas`. Batches have at most about a million rows or
        64 MB. `rejected`: `schemas.REJECTED`; `row` counts from 0 in Parquet and Avro files, it is the line
        number, from 1, in text files, and -1 for a file that could not be read to its end.

    Raises
    ------
    InputError
        While the pipeline runs: no file matches, a column is missing or of a useless type, a row of hosts
        cannot be read. `inputs.input_error_message` finds the sentence in whatever the runner raises.

    Counters: `rows_read/<kind>` = `rows_accepted/<kind>` + rejected rows; `rows_rejected/<reason>`,
    `files_read/<kind>`, `files_empty/<kind>`, `files_rejected/<reason>`.
    """

    def __init__(
        self,
        kind: str,
        patterns: str,
        required: bool = True,
        metadata_columns: Sequence[str] | None = None,
        hashes: bool = True,
    ) -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"kind is {kind!r}, expected one of {', '.join(KINDS)}")
        self._kind, self._patterns, self._required = kind, patterns, required
        self._metadata = None if metadata_columns is None else tuple(metadata_columns)
        self._hashes = hashes

    def expand(self, begin: beam.pvalue.PBegin) -> dict[str, beam.PCollection]:
        read_rows = beam.ParDo(_Read(self._kind, self._metadata, self._hashes))
        outputs = (
            begin
            | "Patterns" >> beam.Create([self._patterns])
            | "PlanSplits"
            >> beam.ParDo(_Plan(self._kind, self._required)).with_output_types(tuple[int, Split])
            | "SpreadSplits" >> beam.GroupByKey()
            | "TakeSplits" >> beam.FlatMapTuple(lambda _, splits: splits).with_output_types(Split)
            | "ReadSplits" >> read_rows.with_outputs(REJECTED, main=ROWS).with_output_types(pa.RecordBatch)
        )
        outputs[ROWS].element_type = pa.RecordBatch
        outputs[REJECTED].element_type = pa.RecordBatch
        return {ROWS: outputs[ROWS], REJECTED: outputs[REJECTED]}
