"""Rows that could not be used, written for a person to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.batches import schemas
from transforms.batches.hashing import hash_texts
from transforms.batches.steps import Step
from transforms.files.attempts import Attempt
from transforms.files.filesystems import FileSystems
from transforms.files.shard_files import write_shard
from transforms.files.sinks import FileInfo
from transforms.shards.sharding import Layout, partition

# A file whose every row is bad is spread over shards in runs of this many rows.
ROWS_PER_RUN = 1 << 16
# Reasons that are a file's, not a row's.
DAMAGES = ("truncated_file", "unreadable_file")


def damaged_sources(folder: str, files: Iterable[FileInfo]) -> list[str]:
    """Paths of input files that could not be read to their end, as the files below `rejected/` name them."""
    found: set[str] = set()
    for path in (f.path for f in files if f.path.startswith("rejected/")):
        with FileSystems.open(FileSystems.join(folder, *path.split("/"))) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=["source", "reason"]):
                whole = pc.is_in(batch.column("reason"), pa.array(DAMAGES))
                found.update(batch.column("source").filter(whole).to_pylist())
    return sorted(found)


class _Spread(Step):
    def __init__(self, num_shards: int) -> None:
        self._layout = Layout(num_shards, {})

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        run = batch.column("row").to_numpy() // ROWS_PER_RUN
        key = hash_texts(batch.column("source")) + run.astype(np.uint64)
        keyed = batch.append_column("host_hash", pa.array(key))
        for shard, part in partition(keyed, self._layout):
            yield shard, part.drop_columns(["host_hash"])


class _Write(Step):
    def __init__(self, attempt: Attempt, num_shards: int) -> None:
        self._attempt, self._num_shards = attempt, num_shards

    def process(self, element: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[FileInfo]:
        shard, batches = element
        whole = pa.concat_batches(list(batches))
        order = pc.sort_indices(whole, sort_keys=[(n, "ascending") for n in schemas.REJECTED.names])
        rows, made = whole.take(order), self._attempt
        yield write_shard(made.folder, "rejected", shard, self._num_shards, rows, attempt=made)


@beam.typehints.with_input_types(pa.RecordBatch)
@beam.typehints.with_output_types(FileInfo)
class WriteRejected(beam.PTransform):
    """Write `schemas.REJECTED` rows, sorted, to `rejected/`; a shard without any has no file."""

    def __init__(self, attempt: Attempt, num_shards: int) -> None:
        super().__init__()
        self._attempt, self._num_shards = attempt, num_shards

    def expand(self, rejected: beam.PCollection) -> beam.PCollection:
        return (
            rejected
            | "SpreadRejected"
            >> beam.ParDo(_Spread(self._num_shards)).with_output_types(tuple[int, pa.RecordBatch])
            | "GroupRejected" >> beam.GroupByKey()
            | "WriteFiles" >> beam.ParDo(_Write(self._attempt, self._num_shards)).with_output_types(FileInfo)
        )
