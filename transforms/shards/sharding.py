"""Rows to shards: all pages of a host go to one shard, those of a giant host to several.

`shard = host_hash mod num_shards`, the same on every machine, in every Python and every night. A giant host
would make one shard many times larger than the others; its pages are spread by their own hash over shards
that follow its home shard at equal distances. `Layout` says which hosts those are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.numerics.typing_ import BoolArray, IntArray, UIntArray

MAX_BUFFERED_BYTES = 256 << 20
# A host is giant from this share of a mean shard on; what was split stays so down to a quarter of that.
GIANT_SHARE = 0.5
_KEEPS = 0.25
# Parts for every mean shard that a giant host would fill: each part is then an eighth of a shard.
PARTS_PER_SHARD = 8


@dataclass(frozen=True)
class Layout:
    """Where pages lie.

    Attributes
    ----------
    num_shards : int, below 2**17
    parts : dict of int to int
        Hash of each giant host, and the number of shards it is spread over: 2 or more, at most num_shards.
    """

    num_shards: int
    parts: Mapping[int, int]

    def home(self, host_hash: UIntArray) -> IntArray:
        """First shard of each host, (n,) int64."""
        return (host_hash % np.uint64(self.num_shards)).astype(np.int64)

    def shards_of(self, host_hash: int) -> list[int]:
        """All shards of one host, its home first."""
        parts = self.parts.get(host_hash, 1)
        step = self.num_shards // parts
        return [(host_hash + i * step) % self.num_shards for i in range(parts)]

    def shard(self, host_hash: UIntArray, url_hash: UIntArray) -> IntArray:
        """Shard of each page, (n,) int64."""
        shard = self.home(host_hash)
        if self.parts:
            giants = np.fromiter(sorted(self.parts), np.uint64, len(self.parts))
            at = np.minimum(np.searchsorted(giants, host_hash), len(giants) - 1)
            rows = np.flatnonzero(giants[at] == host_hash)
            parts = np.array([self.parts[int(g)] for g in giants], np.uint64)[at[rows]]
            # The low bits of the hash order a host's pages elsewhere; the high ones choose the part.
            part = (url_hash[rows] >> np.uint64(32)) % parts
            step = np.uint64(self.num_shards) // parts
            spread = (shard[rows].astype(np.uint64) + part * step) % np.uint64(self.num_shards)
            shard[rows] = spread.astype(np.int64)
        return shard

    def as_json(self) -> dict[str, int]:
        """The giant hosts as the manifest has them."""
        return {f"{h:016x}": n for h, n in sorted(self.parts.items())}

    @staticmethod
    def parts_from_json(split: Mapping[str, int]) -> dict[int, int]:
        """The inverse of `as_json`."""
        return {int(h, 16): int(n) for h, n in split.items()}


def choose_parts(
    pages: Mapping[int, float], total: float, num_shards: int, above: float, before: Mapping[int, int]
) -> dict[int, int]:
    """Decide which hosts are split, and how far.

    Parameters
    ----------
    pages : dict of int to float
        Size of each large host, by its hash: pages, or anything in proportion.
    total : float
        Size of all hosts.
    num_shards : int
    above : float
        Hosts up to this size stay whole: splitting a small host gains nothing.
    before : dict of int to int
        Yesterday's parts with the same `num_shards`. A host keeps them while they fit: moving a host means to
        read the whole state of all shards anew.

    Returns
    -------
    dict of int to int
    """
    chosen: dict[int, int] = {}
    for host, size in sorted(pages.items()):
        fill = size * num_shards / total if total > 0 else 0.0
        old = before.get(host, 0)
        keeps = _KEEPS if old else 1.0
        if fill <= GIANT_SHARE * keeps or size <= above * keeps:
            continue
        wanted = 2
        while wanted < PARTS_PER_SHARD * fill:
            wanted *= 2
        parts = old if wanted / 2 <= old <= wanted * 4 else wanted
        if min(parts, num_shards) > 1:
            chosen[host] = min(parts, num_shards)
    return chosen


def partition(batch: pa.RecordBatch, layout: Layout) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Cut a batch by shard; within a shard its rows are grouped by host, which compresses better.

    Parameters
    ----------
    batch : RecordBatch, n rows
        With a column `host_hash`, uint64, and, where its rows are pages, `url_hash`. Rows without pages say
        something of a host: every shard of a giant host gets them, and all shards those of groups of hosts.
    layout : Layout

    Yields
    ------
    (shard, RecordBatch)
        Only for shards that have rows.
    """
    if not batch.num_rows:
        return
    host_hash = batch.column("host_hash").to_numpy()
    if "url_hash" in batch.schema.names:
        shard = layout.shard(host_hash, batch.column("url_hash").to_numpy())
    elif layout.parts or _grouped(batch).any():
        every, grouped = range(layout.num_shards), _grouped(batch).tolist()
        rows = [
            (row, s)
            for row, h in enumerate(host_hash.tolist())
            for s in (every if grouped[row] else layout.shards_of(h))
        ]
        at, shard = np.array(rows, np.int64).T
        batch = batch.take(pa.array(at))
        host_hash = host_hash[at]
    else:
        shard = layout.home(host_hash)
    key = (shard.astype(np.uint64) << np.uint64(47)) | (host_hash >> np.uint64(17))
    whole = batch.take(pa.array(np.argsort(key))) if (key[1:] < key[:-1]).any() else batch
    at_row = 0
    for number, size in enumerate(np.bincount(shard, minlength=layout.num_shards).tolist()):
        if size:
            yield number, whole.slice(at_row, size)
            at_row += size


def _grouped(batch: pa.RecordBatch) -> BoolArray:
    """Rows that say something of a group of hosts, wherever these are: (n,) bool."""
    if "group" not in batch.schema.names:
        return np.zeros(batch.num_rows, np.bool_)
    return batch.column("group").is_valid().to_numpy(zero_copy_only=False)


class ShardBuffer:
    """Gathers small batches before it cuts them by shard, so that no tiny batch is shuffled.

    Parameters
    ----------
    layout : Layout
    rows_per_batch : int
        Rows to gather at least, of all kinds together.

    Batches have a `host_hash` column. Holds at most `MAX_BUFFERED_BYTES` and the batch that exceeds them.
    """

    def __init__(self, layout: Layout, rows_per_batch: int) -> None:
        self._layout, self._rows_per_batch = layout, rows_per_batch
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
            yield from partition(whole, self._layout)
