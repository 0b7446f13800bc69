"""CDX, the index of web archives: one capture a line, fields between blanks, named by letters in a header.

A header holds until the next one: files that were put together have several. Without a header the first
sound line tells the layout; all common ones, from 7 to 11 fields, begin with the same six. A line with
another number of fields is never read: a blank in a URL would shift all that follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv

from transforms.batches.errors import InputError
from transforms.dialects import Dialect, Source
from transforms.dialects.captures import (
    OTHER_METHOD,
    RESUME_KEY,
    Captures,
    Mask,
    Rows,
    observations,
    rows_with,
    url_of_key,
)
from transforms.dialects.text_blocks import as_text, line_blocks
from transforms.files.blocks import Block
from transforms.rows.normalise import rejected_rows

# Letters of fields that are read; of a letter that comes twice, as wget writes it, the last one.
_FIELDS = {"a": "url", "b": "at", "m": "mime", "s": "status", "k": "digest", "N": "key", "A": "plain_key"}
_FIRST = "NbamskrMSVg"
_COUNTS = "7, 9, 10 or 11"
_HEADER = re.compile(rb"[ \t,;|]?CDX(?:([ \t,;|])[A-Za-z](?:\1[A-Za-z])*)[ \t]*")
_TIME = re.compile(rb"\d{8,18}")
_URL = re.compile(rb"(?i)[a-z][a-z0-9+.-]*:")
_STATUS = re.compile(rb"-?\d{1,4}|[-=]?")
# Of a line that is to tell the layout.
_LONGEST = 1 << 16
_ZIPNUM = re.compile(rb"[^\t\n]+ \d{8,17}\t[^\t\n]+\t\d+\t\d+(?:\t\d+)?\r?")


@dataclass(frozen=True)
class _Layout:
    """Fields of a line: between what, how many, which is where."""

    delimiter: bytes
    fields: int
    at: dict[str, int]
    expected: str


def _layout(letters: str, delimiter: bytes, path: str) -> _Layout:
    at = {_FIELDS[letter]: i for i, letter in enumerate(letters) if letter in _FIELDS}
    if "at" not in at or not at.keys() & {"url", "key", "plain_key"}:
        raise InputError(
            f"{path}: the header CDX {' '.join(letters)} has no field b (time) or none of a, A and N (URL or "
            "its key). Write the index with both"
        )
    return _Layout(delimiter, len(letters), at, str(len(letters)))


def looks_like(path: str, text: bytes) -> bool:
    """Whether a file begins like a CDX file, or like the index of a ZipNum cluster, which `read` refuses."""
    if text.startswith((b"PAR1", b"Obj\x01", b"{", b"[")):
        return False
    lines = [line.rstrip(b"\r") for line in text.split(b"\n")[:20] if line.strip()][:10]
    if path.lower().removesuffix(".gz").endswith((".cdx", ".loc")) or _is_zipnum(lines[:1]):
        return True
    return any(_HEADER.fullmatch(line) or _sound(line.strip().split(b" ")) for line in lines)


def _is_zipnum(lines: list[bytes]) -> bool:
    return bool(lines) and all(_ZIPNUM.fullmatch(line) for line in lines)


def _sound(fields: list[bytes]) -> bool:
    """Whether a line of no known layout is of one of the common ones, by what its fields look like."""
    return (
        6 <= len(fields) <= 14
        and _TIME.fullmatch(fields[1]) is not None
        and _URL.match(fields[2]) is not None
        and _STATUS.fullmatch(fields[4]) is not None
    )


def _apart(before: bytes, after: bytes) -> bool:
    return _sound(before.strip().split(b" ")) and _sound(after.strip().split(b" "))


def read(source: Source) -> Iterator[Block]:
    """Read a CDX file.

    Raises
    ------
    InputError
        For a header without time or URL, and for what lies beside the files of a ZipNum cluster.
    """
    layout: _Layout | None = None
    first = True
    for item in line_blocks(source.path, source.gzip, _apart):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        block, line = item
        if first:
            first = False
            block = block.removeprefix(b"\xef\xbb\xbf")
            if source.path.lower().endswith(".loc") or _is_zipnum(block.lstrip().split(b"\n", 1)[:1]):
                raise InputError(
                    f"{source.path}: this lists the blocks of a ZipNum cluster, not captures. Give the "
                    ".cdx.gz (or cdx-*.gz) files beside it"
                )
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b" ")
        for header, part, number in _parts(block, line):
            if header:
                layout = _of_header(header, source.path)
                continue
            if layout is None:
                used, layout, problems = _find_layout(source, part, number)
                yield from problems
                number += part.count(b"\n", 0, used)
                part = part[used:]
            if layout is not None and part.strip():
                yield from _read_lines(source, layout, part, number)


def _of_header(header: bytes, path: str) -> _Layout:
    match = _HEADER.fullmatch(header)
    assert match is not None
    letters = header[header.index(b"CDX") + 3 :].rstrip(b" \t\r").split(match[1])[1:]
    return _layout(b"".join(letters).decode(), match[1], path)


def _parts(block: bytes, line: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Headers, and the lines between them with the number of the first."""
    begin, at = 0, -1
    while (at := block.find(b"CDX", at + 1)) >= 0:
        start = block.rfind(b"\n", max(0, at - 2), at) + 1 or (0 if at < 2 else -1)
        if start < 0:
            continue
        end = block.find(b"\n", at)
        end = len(block) if end < 0 else end
        header = block[start:end]
        if end - start < 200 and _HEADER.fullmatch(header):
            if begin < start:
                yield b"", block[begin:start], line
                line += block.count(b"\n", begin, start)
            yield header, b"", line
            begin, line = end + 1, line + 1
    if begin < len(block):
        yield b"", block[begin:], line


def _find_layout(source: Source, part: bytes, line: int) -> tuple[int, _Layout | None, list[Block]]:
    """The layout of the first sound line, where that line begins, and the lines before it."""
    unknown = _Layout(b" ", 0, {}, _COUNTS)
    odd: list[tuple[int, bytes]] = []
    used = 0
    for i, text in enumerate(part.split(b"\n")):
        fields = text[:_LONGEST].strip().split(b" ")
        if _sound(fields) and len(fields) == text.strip().count(b" ") + 1:
            letters = (_FIRST + "?" * 3)[: len(fields)]
            return used, _layout(letters, b" ", source.path), list(_odd_lines(source, unknown, odd))
        odd.append((line + i, text))
        used += len(text) + 1
    return len(part), None, list(_odd_lines(source, unknown, odd))


def _odd_lines(source: Source, layout: _Layout, lines: list[tuple[int, bytes]]) -> Iterator[Block]:
    """Lines with another number of fields: blank, a comment, a resume key, or rejected."""
    numbers, samples, keys = [], [], 0
    for number, raw in lines:
        text = raw.strip()
        if not text or text.startswith(b"#"):
            continue
        if RESUME_KEY.fullmatch(text):
            keys += 1
            continue
        count = raw.count(layout.delimiter) + 1
        shown = text[:400].decode("utf-8", "replace")
        numbers.append(number)
        samples.append(f"{count} columns, expected {layout.expected}: {shown}")
    source.leave_out("resume_key", keys)
    if numbers:
        yield rejected_rows(source.path, numbers, "column_count", samples)


def _read_lines(source: Source, layout: _Layout, block: bytes, line: int) -> Iterator[Block]:
    """Lines of one layout."""
    table = _parse(layout, block)
    if table is not None:
        if table.num_rows == block.count(b"\n") + (not block.endswith(b"\n")):
            yield from _observe(source, layout, table, line)
            return
    # Some line is empty or has another number of fields.
    data = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(data == 10)
    if not block.endswith(b"\n"):
        ends = np.append(ends, len(block))
    starts = np.append(0, ends[:-1] + 1)
    marks = np.flatnonzero(data == layout.delimiter[0])
    count = np.searchsorted(marks, ends) - np.searchsorted(marks, starts)
    good = (count == layout.fields - 1) & (ends > starts)
    odd = np.flatnonzero(~good & (ends > starts))
    mended: list[tuple[int, bytes]] = []
    others: list[tuple[int, bytes]] = []
    for i in odd.tolist():
        raw = block[starts[i] : ends[i]]
        text = raw.strip()
        fits = text.count(layout.delimiter) == layout.fields - 1 and not text.startswith(b"#")
        (mended if fits else others).append((line + i, text if fits else raw))
    yield from _odd_lines(source, layout, others)
    rows = np.flatnonzero(good)
    if len(rows):
        kept = block if len(rows) == len(starts) else _cut(block, starts, ends, good)
        yield from _observe(source, layout, _parse(layout, kept), line + rows)
    if mended:
        table = _parse(layout, b"\n".join(text for _, text in mended))
        yield from _observe(source, layout, table, np.array([i for i, _ in mended], np.int64))


def _cut(block: bytes, starts: Rows, ends: Rows, good: Mask) -> bytes:
    """The good lines of a block, run by run."""
    edges = np.flatnonzero(np.diff(good.astype(np.int8), prepend=0, append=0))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return b"\n".join(block[starts[a] : ends[b - 1]] for a, b in runs)


def _parse(layout: _Layout, block: bytes) -> pa.Table | None:
    """The fields that are read, as text; None where Arrow does not take the block."""
    names = [str(i) for i in range(layout.fields)]
    use = [names[i] for i in layout.at.values()]
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(block),
            pa.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
            pa.csv.ParseOptions(
                delimiter=layout.delimiter.decode("latin-1"),
                quote_char=False,
                escape_char=False,
                newlines_in_values=False,
            ),
            as_text(use),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return table.rename_columns(list(layout.at)).combine_chunks()


def _observe(source: Source, layout: _Layout, table: pa.Table | None, row: int | Rows) -> Iterator[Block]:
    assert table is not None
    columns = {name: _chunk(table, name) for name in layout.at}
    key = columns.get("key", columns.get("plain_key"))
    url = columns.get("url")
    if url is None:
        assert key is not None
        raw = key.cast(pa.large_binary()).to_pylist()
        url = pa.array([url_of_key(k.decode("utf-8", "replace")) for k in raw], pa.string())
    not_get = None if key is None else rows_with(key, OTHER_METHOD)
    yield from observations(
        source,
        Captures(
            row,
            url,
            columns["at"],
            columns.get("mime"),
            columns.get("status"),
            columns.get("digest"),
            not_get,
        ),
    )


def _chunk(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


DIALECT = Dialect(
    "cdx", "observations", "CDX files of web archives, and answers of CDX servers as text", looks_like, read
)
