"""Readers of CSV and JSON Lines, plain or gzipped, in blocks of whole records and bounded memory.

A block is parsed by Arrow in one call. Only where that fails, or where a row is rejected and its line must
be told, does Python look at single lines. CSV columns are read as text and JSON columns by the types of
their first record, so nothing depends on where a block begins.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from transforms.batches.errors import InputError
from transforms.batches.values import is_utf8, scalars
from transforms.dialects.indexnow import is_indexnow, read_block
from transforms.dialects.json_records import (
    MAX_BRACKETS,
    TooWideError,
    check_width,
    most_brackets,
    other_names,
    read_records,
    type_of,
    unwrapped,
)
from transforms.dialects.text_blocks import as_text, blocks, last_line_end, last_record_end
from transforms.files.blocks import Block, RawBlock
from transforms.files.delimiters import as_known, delimiter_of
from transforms.rows.normalise import Kind, columns_to_read, rejected_file, rejected_rows

# A block is bounded already; a URL of a megabyte must be rejected as such, not as a defect of the file.
csv.field_size_limit(1 << 30)

_BOM = b"\xef\xbb\xbf"

Lines = NDArray[np.int64]


# --- CSV ---------------------------------------------------------------------------------------------


def read_csv(path: str, gzip: bool, kind: Kind, metadata: Sequence[str] | None) -> Iterator[Block]:
    """Read a table: the first record names the columns, and tells what sets them apart."""
    header: list[str] | None = None
    wanted: list[str] = []
    for item in blocks(path, gzip, last_record_end):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        block, line = item
        if header is None:
            block = block.removeprefix(_BOM)
            if block.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise InputError(f"{path}: UTF-16 text, expected UTF-8. Convert the file")
            delimiter = delimiter_of(path, block, kind.key)
            header, block, line = _header(block, line, delimiter)
            if header is None:
                continue
            header = as_known(header, kind.known)
            schema = pa.schema([(name, pa.string()) for name in header])
            wanted = columns_to_read(kind, schema, path, metadata)
        for made in _parse_csv(path, block, line, header, wanted, delimiter) if block.strip() else ():
            yield from without_headers(made, path) if isinstance(made, RawBlock) else (made,)


def _header(block: bytes, line: int, delimiter: str) -> tuple[list[str] | None, bytes, int]:
    """The names of the columns, the rest of the block, and the line where it begins."""
    used = 0

    def lines() -> Iterator[str]:
        nonlocal used
        for raw in _lines(block):
            used += len(raw)
            yield raw.decode("utf-8", "replace")

    reader = csv.reader(lines(), delimiter=delimiter)
    for record in reader:
        if record:
            return [name.strip() for name in record], block[used:], line + reader.line_num
    return None, b"", line + reader.line_num


def _lines(block: bytes) -> list[bytes]:
    """Lines as Arrow sees them: a lone carriage return ends one, too."""
    return block.splitlines(keepends=True)


def _parse_csv(
    path: str, block: bytes, line: int, header: list[str], wanted: list[str], delimiter: str
) -> Iterator[Block]:
    wrong: list[tuple[int | None, str]] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        wrong.append(
            (row.number, f"{row.actual_columns} columns, expected {row.expected_columns}: {row.text}")
        )
        return "skip"

    # Arrow cannot hand over a row that is not UTF-8; without a handler it stops there.
    handler = skip if is_utf8(block) else None
    # Names may occur twice in columns that nobody reads: numbers do not.
    names = [str(i) for i in range(len(header))]
    use = [names[header.index(name)] for name in wanted]
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(block),
            pa.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
            pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=handler),
            as_text(use),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        yield from _parse_csv_slowly(path, block, line, header, wanted, delimiter)
        return
    if any(number is None for number, _ in wrong):
        yield from _parse_csv_slowly(path, block, line, header, wanted, delimiter)
        return
    table = table.rename_columns(wanted)
    if wrong:
        lines = _csv_lines(block, line, delimiter)
        bad = np.array([number for number, _ in wrong], np.int64) - 1
        if len(lines) != table.num_rows + len(wrong) or bad.max() >= len(lines):
            yield from _parse_csv_slowly(path, block, line, header, wanted, delimiter)
            return
        yield rejected_rows(path, lines[bad].tolist(), "column_count", [sample for _, sample in wrong])
        rows: int | Callable[[], Lines] = _constant(np.delete(lines, bad))
    elif b'"' not in block and block.count(b"\n") + (not block.endswith(b"\n")) == table.num_rows:
        rows = line
    else:
        rows = _lazy_csv_lines(block, line, delimiter, table.num_rows)
    for batch in table.combine_chunks().to_batches():
        yield RawBlock(batch, rows)


def _constant(lines: Lines) -> Callable[[], Lines]:
    return lambda: lines


def _lazy_csv_lines(block: bytes, line: int, delimiter: str, rows: int) -> Callable[[], Lines]:
    def find() -> Lines:
        lines = _csv_lines(block, line, delimiter)
        # Readers may disagree about stray quotes; then the line is that of the block.
        return lines if len(lines) == rows else np.full(rows, line, np.int64)

    return find


def _csv_lines(block: bytes, line: int, delimiter: str) -> Lines:
    """The number of the first line of every record that is not empty."""
    reader = csv.reader((raw.decode("latin-1") for raw in _lines(block)), delimiter=delimiter)
    out, before = [], 0
    try:
        for record in reader:
            if record:
                out.append(line + before)
            before = reader.line_num
    except csv.Error:
        # A field of more than 128 KiB, which Arrow takes: no numbers then.
        return np.empty(0, np.int64)
    return np.array(out, np.int64)


def _parse_csv_slowly(
    path: str, block: bytes, line: int, header: list[str], wanted: list[str], delimiter: str
) -> Iterator[Block]:
    """Record by record, for a block that Arrow refuses."""
    lines = (raw.decode("utf-8", "surrogateescape") for raw in _lines(block))
    reader = csv.reader(lines, delimiter=delimiter)
    use = [header.index(name) for name in wanted]
    good: list[list[str]] = []
    numbers: list[int] = []
    bad: list[int] = []
    samples: list[str] = []
    before = 0
    while True:
        start, before = line + before, reader.line_num
        start = line + before
        try:
            record = next(reader)
        except StopIteration:
            break
        except csv.Error as e:
            bad.append(start)
            samples.append(f"{e}")
            continue
        if not record:
            continue
        if len(record) != len(header):
            bad.append(start)
            samples.append(f"{len(record)} columns, expected {len(header)}: {delimiter.join(record)}")
        else:
            good.append([record[i] for i in use])
            numbers.append(start)
    if bad:
        yield rejected_rows(path, bad, "column_count", samples)
    if good:
        arrays = [scalars([record[i] for record in good]) for i in range(len(use))]
        batch = pa.RecordBatch.from_arrays(arrays, names=wanted)
        yield RawBlock(batch, _constant(np.array(numbers, np.int64)))


# --- JSON Lines --------------------------------------------------------------------------------------


def read_jsonl(path: str, gzip: bool, kind: Kind, metadata: Sequence[str] | None) -> Iterator[Block]:
    """Read JSON Lines: one object a line. Lone brackets and commas at line ends, as of an array, are fine."""
    seen: dict[str, None] = {}
    for item in blocks(path, gzip, last_line_end):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        block, line = item
        block = block.removeprefix(_BOM) if line == 1 else block
        if not block.strip():
            continue
        if kind.name == "signals" and is_indexnow(block):
            yield from read_block(path, block, line)
            continue
        try:
            parsed = _parse_jsonl(block, line, kind, metadata)
            if parsed is None:
                table, rows, rejected = _parse_jsonl_slowly(path, block, line, kind, metadata)
                if rejected is not None:
                    yield rejected
            else:
                table, rows = parsed
        except TooWideError as e:
            yield rejected_file(path, "unreadable_file", f"from line {line}: {e}")
            return
        if not table.num_rows:
            continue
        if not seen:
            _check_first(block, table, kind, path, metadata)
        elif kind.name == "pages":
            # A record may leave out what others have.
            seen |= dict.fromkeys(table.schema.names)
        # A later block may lack a column that all of its records leave out: they have nothing there.
        needed = {*seen, *(c for group in kind.required for c in group), *(metadata or ())}
        absent = sorted(needed.difference(table.schema.names))
        nothing = [pa.nulls(table.num_rows)] * len(absent)
        table = pa.table([*table.columns, *nothing], [*table.schema.names, *absent])
        wanted = columns_to_read(kind, table.schema, path, metadata)
        seen = seen or dict.fromkeys(wanted)
        for batch in table.select(wanted).combine_chunks().to_batches():
            yield RawBlock(batch, rows)


def _check_first(
    block: bytes, table: pa.Table, kind: Kind, path: str, metadata: Sequence[str] | None
) -> None:
    """Refuse a file whose first block has not one value of a required column, naming what it has."""
    schema = table.schema
    try:
        record = json.loads(block.lstrip().split(b"\n", 1)[0])
        have = set(schema.names)
        more = [pa.field(name, pa.null()) for name in record.keys() if name not in have]
        schema = pa.schema([*schema, *more])
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    columns_to_read(kind, schema, path, metadata)


def _parse_jsonl(
    block: bytes, line: int, kind: Kind, metadata: Sequence[str] | None
) -> tuple[pa.Table, int | Callable[[], Lines]] | None:
    """Parse by Arrow, None where that does not work out to one row a line."""
    try:
        record = json.loads(block.lstrip().split(b"\n", 1)[0])
    except (ValueError, RecursionError):
        return None
    # Arrow takes a line "null" for a record without values.
    if not isinstance(record, dict) or b"\nnull" in block:
        return None
    types = {name: pa.string() for name in kind.known}
    for name, value in record.items():
        types[name] = type_of(value)
    for name in kind.known:
        if name in _FRACTIONS and types[name] == pa.int64():
            types[name] = pa.float64()
    everything = kind.name == "pages" and metadata is None
    if everything and most_brackets(block) > MAX_BRACKETS:
        return None
    for name in metadata or ():
        types.setdefault(name, pa.string())
    if not everything:
        keep = {*kind.known, *(metadata or ())}
        types = {name: of for name, of in types.items() if name in keep}
    try:
        if everything:
            # Without a type, Arrow would read some texts as times, depending on the block.
            types |= dict.fromkeys(other_names(block, types), pa.string())
        table = unwrapped(read_records(block, types))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    columns = zip(table.schema.names, table.columns, strict=True)
    table = table.select([n for n, column in columns if n in record or column.null_count < len(table)])
    if block.count(b"\n") + (not block.endswith(b"\n")) == table.num_rows:
        return table, line
    lines = [i for i, text in enumerate(block.split(b"\n")) if text.strip()]
    if len(lines) != table.num_rows:
        return None
    return table, _constant(line + np.array(lines, np.int64))


_FRACTIONS = {"clicks", "impressions", "importance", "min_rate_per_day", "max_rate_per_day"}
_FRACTIONS |= {"max_per_day", "min_gap_seconds"}


def _parse_jsonl_slowly(
    path: str, block: bytes, line: int, kind: Kind, metadata: Sequence[str] | None
) -> tuple[pa.Table, Callable[[], Lines], pa.RecordBatch | None]:
    """Line by line, for a block with a broken line or with values of several types in a column."""
    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    bad: list[int] = []
    samples: list[str] = []
    for i, raw in enumerate(block.split(b"\n")):
        text = raw.decode("utf-8", "surrogateescape").strip().removesuffix(",")
        if text in ("", "[", "]"):
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        # A whole array on one line is as many records, not one bad line.
        found = record if isinstance(record, list) and record else [record]
        for one in found:
            if isinstance(one, dict):
                records.append(one)
                numbers.append(line + i)
            else:
                bad.append(line + i)
                samples.append(text)
    # Arrow has no name of bytes that are not UTF-8, nor has recrawl: nobody can ask for such a column.
    names = [name for name in dict.fromkeys(n for record in records for n in record) if is_utf8(name)]
    if kind.name != "pages" or metadata is not None:
        keep = {*kind.known, *(metadata or ())}
        names = [name for name in names if name in keep]
    check_width(len(records), len(names))
    columns = {name: scalars([record.get(name) for record in records]) for name in names}
    rejected = rejected_rows(path, bad, "bad_json", samples) if bad else None
    return pa.table(columns), _constant(np.array(numbers, np.int64)), rejected


def without_headers(block: RawBlock, path: str) -> Iterator[Block]:
    """A block of CSV without rows that name its columns, as where a feed was appended to; these are noted."""
    names, columns = block.batch.schema.names, block.batch.columns
    last = pc.ascii_lower(pc.ascii_trim_whitespace(columns[-1]))
    same = np.flatnonzero(pc.fill_null(pc.equal(last, names[-1].lower()), False))
    if len(same):
        some = pa.RecordBatch.from_arrays([c.take(pa.array(same)) for c in columns], names=names).to_pylist()
        headers = [
            all(str(v).strip("\ufeff \t\r").lower() == name.lower() for name, v in row.items())
            for row in some
        ]
        same = same[np.array(headers, np.bool_)]
    if not len(same):
        yield block
        return
    row = block.row
    numbers = row() if callable(row) else row + np.arange(block.batch.num_rows)
    keep = np.ones(len(numbers), np.bool_)
    keep[same] = False
    yield rejected_rows(path, numbers[same].tolist(), "repeated_header", [", ".join(names)] * len(same))
    yield RawBlock(block.batch.filter(pa.array(keep)), lambda: numbers[keep])
