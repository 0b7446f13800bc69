"""A text file in blocks of whole lines, or of whole records, in bounded memory.

What has no place in a block is a rejected row among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from transforms.files import unpacking
from transforms.files.unpacking import (
    Apart,
    Holes,
    Problem,
    gunzip,
    line_ends,
    members,
    stored,
    without_holes,
)
from transforms.rows.normalise import rejected_file, rejected_rows

# A record longer than this is cut at a line end; a line longer than this is rejected.
MAX_RECORD_BYTES = 32 << 20


def _line_ends(data: bytes) -> int:
    """As `bytes.count`, faster."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == 10))


def last_line_end(data: bytes, force: bool) -> int:
    """Bytes up to the end of the last whole line."""
    return data.rfind(b"\n") + 1


def last_record_end(data: bytes, force: bool) -> int:
    """The end of the last record: a line end with an even number of quotes before it."""
    at = data.rfind(b"\n")
    if force or at < 0 or b'"' not in data:
        return at + 1
    quotes = data.count(b'"', 0, at)
    while at >= 0 and quotes % 2:
        before = data.rfind(b"\n", 0, at)
        quotes -= data.count(b'"', max(before, 0), at)
        at = before
    return at + 1


def line_blocks(
    path: str, gzip: bool, apart: Apart | None = None
) -> Iterator[tuple[bytes, int] | pa.RecordBatch]:
    """Blocks of whole lines with the number of their first line; rejected rows for what has none.

    Memory is bounded by `MAX_RECORD_BYTES`, whatever the file holds. `apart` tells where gzip members whose
    last line has no end must not run into each other.
    """
    # What a reader makes of half a chunk fits into memory that the process has already.
    return blocks(path, gzip, last_line_end, apart, unpacking.CHUNK_BYTES // 2)


def of_each(items: Iterable[Any], read: Callable[..., Iterator[Any]]) -> Iterator[Any]:
    """What `read` makes of each item, such as a block and its first line's number; rejected rows pass."""
    for item in items:
        if isinstance(item, pa.RecordBatch):
            yield item
        else:
            yield from read(*item)


def blocks(
    path: str,
    gzip: bool,
    last_end: Callable[[bytes, bool], int],
    apart: Apart | None = None,
    size: int = 0,
) -> Iterator[tuple[bytes, int] | pa.RecordBatch]:
    """Blocks of whole records with the number of their first line; rejected rows for what has none."""
    problem = Problem()
    size = size or unpacking.CHUNK_BYTES
    held, line, skipping = b"", 1, False
    chunks = stored(path) if gzip else stored(path, size)
    if gzip:
        chunks = line_ends(members(chunks, problem), apart) if apart else gunzip(chunks, problem)
    holes = Holes()
    for chunk in without_holes(chunks, holes):
        if skipping:
            end = chunk.find(b"\n") + 1
            if not end:
                continue
            chunk, skipping, line = chunk[end:], False, line + 1
        end = chunk.rfind(b"\n") + 1
        if end and last_end is last_line_end and len(held) + len(chunk) >= size:
            # As below, with one copy less of most bytes.
            block = b"".join((held, memoryview(chunk)[:end]))
            yield block, line
            line, held = line + _line_ends(block), chunk[end:]
            continue
        held += chunk
        if len(held) < size:
            continue
        end = last_end(held, False)
        if not end and len(held) > MAX_RECORD_BYTES:
            # A stray quote seems to hold everything together.
            end = last_end(held, True)
            if not end:
                what = f"over {MAX_RECORD_BYTES >> 20} MiB (JSON: jq -c '.[]' or '.hits.hits[]'): "
                sample = what + held[:200].decode("utf-8", "replace")
                yield rejected_rows(path, [line], "line_too_long", [sample])
                held, skipping = b"", True
        if end:
            yield held[:end], line
            line += held.count(b"\n", 0, end)
            held = held[end:]
    if problem.reason:
        end = last_end(held, False) or last_end(held, True)
        if end:
            yield held[:end], line
            line, held = line + held.count(b"\n", 0, end), held[end:]
    if problem.reason:
        # What follows the last line end may be cut anywhere, even where the rest looks whole.
        sample = f"line {line}: {problem.sample}; {held[:100].decode('utf-8', 'replace')}"
        yield rejected_file(path, problem.reason, sample)
    elif held:
        yield held, line
    if holes.size:
        sample = f"{holes.size:,} NUL bytes at the beginning of lines are left out"
        yield rejected_rows(path, [-1], "nul_bytes", [sample])


def as_text(columns: Sequence[str]) -> pa.csv.ConvertOptions:
    """Only these columns, as they are written, even where they are not UTF-8."""
    return pa.csv.ConvertOptions(
        check_utf8=False,
        include_columns=columns,
        column_types=dict.fromkeys(columns, pa.string()),
        strings_can_be_null=False,
    )
