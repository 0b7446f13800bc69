"""Which pages a shard has, and the dense code of each.

Pages are sorted by (host_hash, url_hash), so a host's pages are neighbours and the order depends neither on
files nor on nights. A page is known from the state, from tonight's crawl log or from the catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from policies.numerics.errors import RecrawlError
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import IntArray, UIntArray
from transforms.batches.hashing import hash_texts
from transforms.batches.urls import locate


class HashCollisionError(RecrawlError):
    """Two URLs of one shard share a 64-bit hash."""


@dataclass(frozen=True)
class ShardPages:
    """The pages of one shard.

    Attributes
    ----------
    url, host : (n,) string arrays
    url_hash, host_hash : (n,) uint64, sorted by (host_hash, url_hash)
    host_start : (h + 1,) int64
        Pages of host j are rows ``host_start[j]:host_start[j + 1]``.
    """

    url: pa.Array
    host: pa.Array
    url_hash: UIntArray
    host_hash: UIntArray
    host_start: IntArray

    def __len__(self) -> int:
        return len(self.url_hash)

    @property
    def host_code(self) -> NDArray[np.int32]:
        """Host of each page, (n,) int32."""
        sizes = np.diff(self.host_start)
        return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)

    def code(self, url_hash: UIntArray) -> IntArray:
        """Page of each URL hash, (k,) int64; -1 where the shard has no such page."""
        distinct = pa.array(url_hash).dictionary_encode()
        values = distinct.dictionary.to_numpy()
        return _find(self.url_hash, values)[distinct.indices.to_numpy()]


def _find(hashes: UIntArray, wanted: UIntArray) -> IntArray:
    order = np.argsort(hashes)
    # A search in a sorted copy jumps about less than one by way of its order.
    return np.append(order, -1)[rows_of(hashes[order], wanted)]


def _distinct(batches: list[pa.RecordBatch]) -> tuple[pa.Array, NDArray[np.int32]]:
    """Distinct URLs over all batches, in order of their first rows, and which of them every row has."""
    urls = pa.chunked_array([b.column("url") for b in batches], pa.string()).dictionary_encode()
    if not urls.num_chunks:
        return pa.array([], pa.string()), np.zeros(0, np.int32)
    row_value = np.concatenate([c.indices.to_numpy() for c in urls.chunks])
    return urls.chunk(urls.num_chunks - 1).dictionary, row_value  # the last dictionary is the union of all


def code_pages(
    state: pa.Table | None, sightings: list[pa.RecordBatch]
) -> tuple[ShardPages, IntArray, IntArray]:
    """Gather a shard's pages.

    Parameters
    ----------
    state : Table of `schemas.STATE`, or None
    sightings : list of RecordBatch
        Crawl log and catalogue: batches with `url`.

    Returns
    -------
    pages : ShardPages
    old_code : (s,) int64
        Code of each state row, ascending when the state is sorted.
    seen_code : (k,) int64
        Code of each row of all sightings.

    Raises
    ------
    HashCollisionError
        If a known page's hash comes with another URL.
    """
    if state is None or not state.num_rows:
        old_hash = np.zeros(0, np.uint64)
        old_host_hash, old_url, old_host = old_hash, pa.array([], pa.string()), pa.array([], pa.string())
    else:
        old_hash = state.column("url_hash").to_numpy()
        old_host_hash = state.column("host_hash").to_numpy()
        old_url, old_host = _whole(state.column("url")), _whole(state.column("host"))
    url, value_of_row = _distinct([b for b in sightings if b.num_rows])
    values = hash_texts(url)
    _check_distinct(values, url)
    known = _find(old_hash, values)
    seen = known >= 0
    if seen.any():
        _same_urls(old_url.take(pa.array(known[seen])), url.filter(pa.array(seen)))
    new_url = url.filter(pa.array(~seen))
    located = locate(new_url)
    all_hash = np.concatenate([old_hash, values[~seen]])
    all_host_hash = np.concatenate([old_host_hash, located.host_hash])
    sort = np.lexsort((all_hash, all_host_hash))
    code = np.empty(len(sort), np.int64)
    code[sort] = np.arange(len(sort))
    all_url = pa.concat_arrays([old_url, new_url])
    all_host = pa.concat_arrays([old_host, located.host_texts()])
    if (sort != np.arange(len(sort))).any():  # new pages, or state of another number of shards
        all_url, all_host = all_url.take(pa.array(sort)), all_host.take(pa.array(sort))
    host_hash = all_host_hash[sort]
    starts = np.flatnonzero(host_hash[1:] != host_hash[:-1]) + 1
    host_start = np.concatenate([[0], starts, [len(sort)]]) if len(sort) else np.zeros(1)
    pages = ShardPages(all_url, all_host, all_hash[sort], host_hash, host_start.astype(np.int64))
    code_of_value = np.empty(len(values), np.int64)
    code_of_value[seen] = code[known[seen]]
    code_of_value[~seen] = code[len(old_hash) :]
    return pages, code[: len(old_hash)], code_of_value[value_of_row]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _check_distinct(url_hash: UIntArray, url: pa.Array) -> None:
    order = np.argsort(url_hash)
    same = np.flatnonzero(url_hash[order[1:]] == url_hash[order[:-1]])
    if len(same):
        _collide(*(url[int(order[same[0] + i])].as_py() for i in (0, 1)))


def _collide(one: str, other: str) -> None:
    raise HashCollisionError(
        f"{one!r} and {other!r} have the same 64-bit hash; take one of the two out of the logs"
    )


def _same_urls(old: pa.Array, new: pa.Array) -> None:
    differ = pc.not_equal(old, new)
    if pc.any(differ).as_py():
        at = pc.index(differ, True).as_py()
        _collide(old[at].as_py(), new[at].as_py())
