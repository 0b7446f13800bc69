"""Rows to shards: all pages of a host go to one shard.

`shard = host_hash mod num_shards`, the same on every machine, in every Python and every night.
"""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

# Fewer rows per (block, shard) than this and the fixed cost of a shuffled batch shows.
MIN_ROWS_PER_SHARD = 4096
MAX_BUFFERED_BYTES = 256 << 20


def partition(batch: pa.RecordBatch, shard: np.ndarray, num_shards: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut a batch by shard, keeping the order of rows within each.

    Parameters
    ----------
    batch : RecordBatch, n rows
    shard : (n,) integers in [0, num_shards)

    Yields
    ------
    (shard, RecordBatch)
        Only for shards that have rows.
    """
    if not batch.num_rows:
        return
    first = int(shard[0])
    if num_shards == 1 or not (shard != first).any():
        yield first, batch
        return
    narrow = shard.astype(np.uint16 if num_shards <= 1 << 16 else np.uint32)
    order = np.argsort(narrow, kind="stable")  # a radix sort for 16 bits
    counts = np.bincount(narrow, minlength=num_shards)
    sorted_batch = batch.take(pa.array(order))
    at = 0
    for number in np.flatnonzero(counts):
        size = int(counts[number])
        yield int(number), sorted_batch.slice(at, size)
        at += size


class _Partition(beam.DoFn):
    """Gathers small batches of a bundle before cutting them, so that no tiny batch is shuffled."""

    def __init__(self, num_shards: int, compress: bool) -> None:
        self._num_shards = num_shards
        self._compress = compress

    def start_bundle(self) -> None:
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def process(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= MIN_ROWS_PER_SHARD * self._num_shards or self._bytes > MAX_BUFFERED_BYTES:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        window = GlobalWindow()
        for element in self._flush():
            yield WindowedValue(element, window.max_timestamp(), (window,))

    def _flush(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        # Batches with other columns (metadata of another catalogue file) are cut apart from each other.
        by_schema: dict[tuple[str, ...], list[pa.RecordBatch]] = {}
        for batch in self._held:
            by_schema.setdefault(tuple(batch.schema.names), []).append(batch)
        self._held, self._rows, self._bytes = [], 0, 0
        for batches in by_schema.values():
            whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            shard = whole.column("host_hash").to_numpy() % np.uint64(self._num_shards)
            if self._compress:
                whole = whole.replace_schema_metadata({**whole.schema.metadata, b"compress": b"1"})
            yield from partition(whole, shard, self._num_shards)


@beam.typehints.with_input_types(pa.RecordBatch)
@beam.typehints.with_output_types(tuple[int, pa.RecordBatch])
class ShardByHost(beam.PTransform):
    """Key batches by shard.

    Parameters
    ----------
    num_shards : int
    compress : bool
        Whether the shuffled batches are compressed: pays for text, i.e. for rows that carry URLs.

    Input batches have a `host_hash` column. A bundle holds at most `MAX_BUFFERED_BYTES` at a time.
    """

    def __init__(self, num_shards: int, compress: bool = True) -> None:
        super().__init__()
        self._num_shards = num_shards
        self._compress = compress

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return batches | beam.ParDo(_Partition(self._num_shards, self._compress)).with_output_types(
            tuple[int, pa.RecordBatch]
        )
