"""Links of Heritrix' crawl.log: what was found where, by the field `via` and the path of discovery.

A line whose path ends in L is a link from the page before it to this URL, and where it ends in M, from a
sitemap. Of a link the log has no time of its own; it was seen when that page was fetched, the last time
before. Heritrix asks for no URL twice that it has in its frontier, so the log has the links that were new to
it, and says nothing of how long others stay.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import IntArray, UIntArray
from transforms.batches import columns, times
from transforms.batches.hashing import hash_texts
from transforms.dialects import Dialect, Source
from transforms.dialects.crawl_log import looks_like, odd_rows, whole_fields
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.files.blocks import Block, RawBlock

_LOGGED, _STATUS, _URI, _PATH, _VIA, _STARTED = 0, 1, 3, 4, 5, 8
_USED = [_LOGGED, _STATUS, _URI, _PATH, _VIA, _STARTED]


class _Fetches:
    """When each URL was fetched last, 16 bytes each."""

    def __init__(self) -> None:
        self._hash, self._at = np.zeros(0, np.uint64), np.zeros(0, np.int64)

    def before(self, url: UIntArray, at_us: IntArray, via: UIntArray, until_us: IntArray) -> IntArray:
        """Take in fetches, and tell when others were fetched last by some instants; -1 for never."""
        old, new = len(self._hash), len(url)
        key = np.concatenate([self._hash, url, via])
        at = np.concatenate([self._at, at_us, until_us])
        asks = np.arange(len(key)) >= old + new
        order = np.lexsort((asks, at, key))
        key, at, asks = key[order], at[order], asks[order]
        last = np.maximum.accumulate(np.where(asks, -1, np.arange(len(key))))
        found = np.where((last >= 0) & (key[last] == key), at[last], -1)
        made = np.empty(len(order), np.int64)
        made[order] = found
        fetched = ~asks
        key, at = key[fetched], at[fetched]
        ends = np.append(key[1:] != key[:-1], True) if len(key) else np.zeros(0, np.bool_)
        self._hash, self._at = key[ends], at[ends]
        return made[old + new :]


def read(source: Source) -> Iterator[Block]:
    """A row for each fetch, and one for each link to what was fetched."""
    fetches = _Fetches()

    def rows(block: bytes, line: int) -> Iterator[Block]:
        fields = whole_fields(block, line, _USED)
        if fields.wrong:
            yield odd_rows(source.path, fields)
        if len(fields.line):
            yield from _rows(source, fetches, fields.table.combine_chunks().columns, fields.line)

    return of_each(line_blocks(source.path, source.gzip), rows)


def _rows(source: Source, fetches: _Fetches, given: list[pa.Array], line: np.ndarray) -> Iterator[Block]:
    logged, status, uri, path, via, started = (
        c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in given
    )
    web = np.asarray(pc.match_substring_regex(uri, r"^https?:", ignore_case=True))
    source.leave_out("not_http", int((~web).sum()))
    begun = pc.struct_field(pc.extract_regex(started, r"^(?P<at>\d{12,17})"), "at")
    seen_at = times.parse_times(pc.if_else(pc.is_null(begun), logged, begun))[0]
    at_us = pc.fill_null(seen_at.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    code = pc.fill_null(columns.status(status)[0], 0).to_numpy(zero_copy_only=False)
    good = web & (code >= 200) & (code < 300) & (at_us >= 0)
    # Where sitemaps are is told by robots.txt, which is no page.
    robots = np.asarray(pc.match_substring_regex(via, r"^[^?#]*//[^/?#]*/robots\.txt$"))
    links = np.asarray(pc.match_substring_regex(path, r"[LM]$")) & np.asarray(pc.not_equal(via, "-"))
    links &= web & ~robots
    found = np.flatnonzero(links)
    url_hash = hash_texts(uri)
    rows = pa.array(found)
    when = fetches.before(url_hash[good], at_us[good], hash_texts(via.take(rows)), at_us[found])
    known = when >= 0
    source.leave_out("page_not_in_log", int((~known).sum()))
    rows, when = rows.filter(pa.array(known)), when[known]
    every = pa.array(np.flatnonzero(web))
    yield RawBlock(
        _batch(uri.take(every), None, seen_at.take(every), status.take(every)), _numbers(line[web])
    )
    at = pa.array(when).cast(seen_at.type)
    yield RawBlock(_batch(via.take(rows), uri.take(rows), at, None), _numbers(line[found[known]]))


def _numbers(line: np.ndarray):  # type: ignore[no-untyped-def]
    return lambda: line


def _batch(
    source: pa.Array, target: pa.Array | None, seen_at: pa.Array, status: pa.Array | None
) -> pa.RecordBatch:
    n = len(source)
    made = {
        "source": source,
        "target": pa.nulls(n, pa.string()) if target is None else target,
        "seen_at": seen_at,
        "status": pa.array(["200"] * n) if status is None else status,
        "partial": pa.array(np.ones(n, np.bool_)),
    }
    return pa.RecordBatch.from_pydict(made)


DIALECT = Dialect("heritrix", "links_seen", "crawl.log of Heritrix: links by via", looks_like, read)
