"""Rows to shards: all pages of a host go to one shard.

`shard = host_hash mod num_shards`, the same on every machine, in every Python and every night.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

MAX_BUFFERED_BYTES = 256 << 20


def partition(batch: pa.RecordBatch, num_shards: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut a batch by shard; within a shard its rows are grouped by host, which compresses better.

    Parameters
    ----------
    batch : RecordBatch, n rows
        With a column `host_hash`, uint64.
    num_shards : int, below 2**17

    Yields
    ------
    (shard, RecordBatch)
        Only for shards that have rows.
    """
    if not batch.num_rows:
        return
    host_hash = batch.column("host_hash").to_numpy()
    shard = host_hash % np.uint64(num_shards)
    key = (shard << np.uint64(47)) | (host_hash >> np.uint64(17))
    whole = batch.take(pa.array(np.argsort(key))) if (key[1:] < key[:-1]).any() else batch
    at = 0
    for number, size in enumerate(np.bincount(shard.astype(np.int64), minlength=num_shards).tolist()):
        if size:
            yield number, whole.slice(at, size)
            at += size


class ShardBuffer:
    """Gathers small batches before it cuts them by shard, so that no tiny batch is shuffled.

    Parameters
    ----------
    num_shards : int
    rows_per_batch : int
        Rows to gather at least, of all kinds together.

    Batches have a `host_hash` column. Holds at most `MAX_BUFFERED_BYTES` and the batch that exceeds them.
    """

    def __init__(self, num_shards: int, rows_per_batch: int) -> None:
        self._num_shards, self._rows_per_batch = num_shards, rows_per_batch
        self._clear()

    def _clear(self) -> None:
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Take a batch; yields (shard, batch) when enough has been gathered."""
        self._held.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= self._rows_per_batch or self._bytes > MAX_BUFFERED_BYTES:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all that is held as (shard, batch)."""
        # Batches with other columns (another kind, other metadata) are cut apart from each other.
        by_schema: dict[tuple[str, ...], list[pa.RecordBatch]] = {}
        for batch in self._held:
            by_schema.setdefault(tuple(batch.schema.names), []).append(batch)
        self._clear()
        for batches in by_schema.values():
            whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            yield from partition(whole, self._num_shards)
