"""Readers of files: Parquet here, Avro in `avro`, text in `textformats`. They yield raw blocks.

A block is a record batch with the columns as the file has them, and the numbers of its rows. What cannot
be read becomes rejected rows between the blocks; what can never be right is an `InputError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError
from numpy.typing import NDArray

from transforms import dialects
from transforms.inputs import (
    InputError,
    InputFile,
    check_file,
    check_lines,
    check_text,
    is_gzip,
    local_path,
    open_file,
    sniff,
)
from transforms.members import Holes, without_holes
from transforms.normalise import HASHES, Kind, columns_to_read, rejected_file, rejected_rows
from transforms.tally import Counts

# About one batch of these sizes at a time: large enough for vectorised passes, small enough for memory.
BATCH_ROWS = 1 << 20
BATCH_BYTES = 64 << 20
# Rows that are decoded at once: fewer cost calls, more cost cache misses and fresh memory.
READ_ROWS = 1 << 18
AVRO_ROWS = 1 << 16
HEAD_BYTES = 1 << 16
# Formats that have one object a line, of those that may begin like JSON.
# Formats whose times are of UTC by no definition.
OF_ANY_ZONE = ("parquet", "avro", "jsonl", "csv", "scrapy", "access_log")
JSON_LINES = ("jsonl", "scrapy", "nutch", "stormcrawler", "urlfrontier")


@dataclass(frozen=True, slots=True)
class RawBlock:
    """Rows as a file has them. `row`: the number of the first, or a function that returns all numbers."""

    batch: pa.RecordBatch
    row: int | Callable[[], NDArray[np.int64]]


def without_headers(block: RawBlock, path: str) -> Iterator[Block]:
    """A block of CSV without rows that name its columns, as where a feed was appended to; these are noted."""
    names, columns = block.batch.schema.names, block.batch.columns
    same = np.flatnonzero(pc.fill_null(pc.equal(pc.ascii_trim_whitespace(columns[-1]), names[-1]), False))
    if len(same):
        some = pa.RecordBatch.from_arrays([c.take(pa.array(same)) for c in columns], names=names).to_pylist()
        headers = [all(str(v).strip("\ufeff \t\r") == name for name, v in row.items()) for row in some]
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


@dataclass(frozen=True, slots=True)
class How:
    """How the files of an input are to be read.

    Attributes
    ----------
    form : str
        A name of `transforms.dialects.names`: "auto" looks at the file.
    columns : tuple of (str, str)
        Of recrawl's columns those that these files name otherwise, with their name there.
    options : tuple of (str, str)
        For the dialect.
    """

    form: str = "auto"
    columns: tuple[tuple[str, str], ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @property
    def tracking(self) -> str:
        """Of requests further parameters that are no part of a page, comma-separated."""
        return dict(self.options).get("tracking_parameters", "")

    @property
    def timezone(self) -> str:
        """Of times that name none; UTC if empty."""
        return next((value for name, value in self.options if name.endswith("_timezone")), "")


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file that is read in one go.

    Attributes
    ----------
    form : str
        parquet, avro, jsonl, csv, sitemap, or the name of a dialect; empty where the file is; broken where
        nothing can be read.
    groups : tuple of int
        For Parquet the first row group and the one after the last.
    row : int
        Number of the first row of the first row group.
    problem : tuple of str
        Reason and sample of a broken file.
    how : How
    """

    path: str
    form: str
    gzip: bool = False
    groups: tuple[int, int] = (0, 0)
    row: int = 0
    problem: tuple[str, str] = ("", "")
    how: How = field(default_factory=lambda: How())

    @property
    def names_no_zone(self) -> bool:
        """Whether the format leaves it open of which zone its times are."""
        return self.form in OF_ANY_ZONE


Block = RawBlock | pa.RecordBatch


def plan(file: InputFile, kind: str = "", how: How | None = None) -> list[Split]:
    """Look at the beginning (and the footer) of a file and cut it into splits.

    Sitemaps are of a kind, not of a format: whatever such a file holds, it is read as one.
    """
    how = how or How()
    if file.size == 0:
        check_file(file.path)
        return [Split(file.path, "empty")]
    head, text = _heads(file.path)
    if not head:
        return [Split(file.path, "empty")]
    packed = is_gzip(head)
    if kind == "sitemaps":
        return [Split(file.path, "sitemap", packed)]
    if kind != "hosts":  # robots.txt files are others', of which one may be of no use
        check_text(file.path, text)
    form: str | None = how.form
    if form == dialects.AUTO:
        form = dialects.detect(kind, file.path, text)
    if form is None or form == dialects.CANONICAL:
        try:
            form = sniff(file.path, head, text)
        except InputError:
            if not text:  # nothing, or nothing but NULs: any reader of lines says so
                return [Split(file.path, "jsonl", packed, how=how)]
            for other in sorted({k for k, _ in dialects.dialects()} - {kind, ""}):
                if found := dialects.detect(other, file.path, text):
                    raise InputError(f"{file.path}: this is {found}; give it to --{other}") from None
            raise
    if form in JSON_LINES:
        check_lines(file.path, text)
    dialect = dialects.dialects().get((kind, form))
    if form == "parquet" or (dialect is not None and dialect.by_groups):
        splits = _plan_parquet(file.path)
        return [replace(s, form=form if s.form == "parquet" else s.form, how=how) for s in splits]
    return [Split(file.path, form, packed, how=how)]


def _heads(path: str) -> tuple[bytes, bytes]:
    """The first bytes of a file as they are stored, and unpacked, without the NULs of a log that was cut."""
    from transforms.textformats import Problem, gunzip, stored

    try:
        with open_file(path) as f:
            head: bytes = f.read(HEAD_BYTES)
        raw = _unpack(head) if is_gzip(head) else head
        text = raw.lstrip(b"\0")
        if len(text) < len(raw):
            chunks = gunzip(stored(path), Problem()) if is_gzip(head) else stored(path)
            text = b""
            for chunk in without_holes(chunks, Holes()):
                text += chunk
                if len(text) >= HEAD_BYTES:
                    break
    except (OSError, BeamIOError) as e:
        raise InputError(f"{path}: cannot be opened: {e}") from None
    return head, text[:HEAD_BYTES]


def head_of(path: str) -> bytes:
    """The first bytes of a file, unpacked."""
    return _heads(path)[1]


def _unpack(head: bytes) -> bytes:
    import zlib

    text = b""
    while head and len(text) < HEAD_BYTES:
        unpacker = zlib.decompressobj(31)
        try:
            text += unpacker.decompress(head, HEAD_BYTES)
        except zlib.error:
            break
        head = unpacker.unused_data.lstrip(b"\0")
    return text


def open_parquet(path: str) -> pq.ParquetFile:
    """A Parquet file of any file system, with times that no year makes wrap."""
    local = local_path(path)
    # INT96 has nanoseconds, which cannot hold the years 1 and 9999: they would wrap to plausible ones.
    options = {"coerce_int96_timestamp_unit": "us"}
    if local is not None:
        return pq.ParquetFile(local, memory_map=True, **options)
    return pq.ParquetFile(open_file(path), pre_buffer=True, **options)


def _plan_parquet(path: str) -> list[Split]:
    try:
        meta = open_parquet(path).metadata
    except (pa.ArrowException, OSError) as e:
        with open_file(path) as f:
            f.seek(0, 2)
            f.seek(max(0, f.tell() - 4))
            whole = f.read(4) == b"PAR1"
        return [Split(path, "broken", problem=("unreadable_file" if whole else "truncated_file", str(e)))]
    splits, start, row, rows, size = [], 0, 0, 0, 0
    for i in range(meta.num_row_groups):
        group = meta.row_group(i)
        if rows and (rows + group.num_rows > BATCH_ROWS or size + group.total_byte_size > 4 * BATCH_BYTES):
            splits.append(Split(path, "parquet", groups=(start, i), row=row))
            start, row, rows, size = i, row + rows, 0, 0
        rows += group.num_rows
        size += group.total_byte_size
    if rows:
        splits.append(Split(path, "parquet", groups=(start, meta.num_row_groups), row=row))
    # Without rows the columns are still checked.
    splits = splits or [Split(path, "parquet")]
    if missing := _unlisted(meta):
        splits.append(Split(path, "broken", problem=("unreadable_file", missing)))
    return splits


def _unlisted(meta: pq.FileMetaData) -> str:
    """What is wrong with a footer that lists other rows than it says there are; empty where it is sound.

    A footer that has the same lower number in all places cannot be told from one of a smaller file: only the
    headers of the pages tell more, which pyarrow does not show. Who writes so might leave them out as well.
    """
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    listed = sum(group.num_rows for group in groups)
    if listed != meta.num_rows:
        return f"its row groups have {listed:,} rows, the footer says {meta.num_rows:,}"
    flat = [j for j in range(meta.num_columns) if not meta.schema.column(j).max_repetition_level]
    for i, group in enumerate(groups):
        for j in flat:
            values, name = group.column(j).num_values, group.column(j).path_in_schema
            if values != group.num_rows:
                return f"column {name} has {values:,} values in row group {i} of {group.num_rows:,} rows"
    return ""


def read(
    split: Split, kind: Kind, metadata: Sequence[str] | None = None, notes: Counts | None = None
) -> Iterator[Block]:
    """Read a split: raw blocks, and batches of `schemas.REJECTED` for what cannot be read.

    `notes` gets what a sitemap says beyond its rows, see `sitemaps.read_sitemap`.

    Raises
    ------
    InputError
        If the columns are not those of the kind, see `columns_to_read`.
    """
    named = dict(split.how.columns)
    back = {theirs: ours for ours, theirs in named.items()}
    theirs = kind.renamed(named)
    folder = _of_folders(split, theirs, metadata)
    if metadata is not None:
        metadata = [name for name in metadata if name not in folder]
    for block in _read(split, theirs.without(folder), metadata, notes):
        if isinstance(block, RawBlock):
            batch = block.batch
            for name, value in folder.items():
                same = next((group for group in theirs.required if name in group), (name,))
                if not any(column in batch.schema.names for column in same):
                    batch = batch.append_column(name, pa.repeat(value, batch.num_rows))
            if back:
                batch = batch.rename_columns([back.get(n, n) for n in batch.schema.names])
            block = RawBlock(batch, block.row)
        yield block


def _of_folders(split: Split, kind: Kind, metadata: Sequence[str] | None) -> dict[str, pa.Scalar]:
    """Columns that stand in the names of folders, as Hive has them: status=503/."""
    if split.form not in ("parquet", "avro", "jsonl", "csv"):
        return {}
    parts = (part.partition("=") for part in PurePosixPath(split.path).parts[:-1])
    there = {name: unquote(value) for name, _, value in parts if name and value}
    if there.get("day", "").isdecimal() and {"year", "month"} <= there.keys():
        there["day"] = f"{there['year']}-{there['month']:0>2}-{there['day']:0>2}"
    own = {kind.key, *(f.name for f in HASHES)}
    return {
        name: pa.scalar(None if value == "__HIVE_DEFAULT_PARTITION__" else value, pa.string())
        for name, value in there.items()
        if name not in own
        and (name in kind.known or (kind.name == "pages" and (metadata is None or name in metadata)))
    }


def _read(split: Split, kind: Kind, metadata: Sequence[str] | None, notes: Counts | None) -> Iterator[Block]:
    if split.form == "broken":
        yield rejected_file(split.path, *split.problem)
    elif split.form == "parquet":
        yield from _read_parquet(split, kind, metadata)
    elif split.form == "avro":
        from transforms.avro import read_avro

        yield from read_avro(split.path, kind, metadata)
    elif split.form in ("csv", "jsonl"):
        from transforms.textformats import read_csv, read_jsonl

        reader = read_csv if split.form == "csv" else read_jsonl
        yield from reader(split.path, split.gzip, kind, metadata)
    elif split.form == "sitemap":
        from transforms.sitemaps import read_sitemap

        yield from read_sitemap(split.path, split.gzip, notes)
    elif split.form != "empty":
        options = dict(split.how.options)
        source = dialects.Source(split.path, split.gzip, kind, options, notes, split.groups, split.row)
        yield from dialects.dialects()[kind.name, split.form].read(source)


def _read_parquet(split: Split, kind: Kind, metadata: Sequence[str] | None) -> Iterator[Block]:
    file = open_parquet(split.path)
    wanted = columns_to_read(kind, file.schema_arrow, split.path, metadata)
    row = split.row
    for groups, n in _runs(file, split.groups):
        if len(groups) > 1:
            try:
                yield from _cut(file.read_row_groups(groups, columns=wanted), row)
                row += n
                continue
            except (pa.ArrowException, OSError):
                # One by one, to lose only what is damaged.
                pass
        for i in groups:
            group = file.metadata.row_group(i)
            size, done = group.num_rows, 0
            # Rows may be huge: the size is that of the encoded columns, so an estimate from below.
            step = max(1, min(READ_ROWS, size * BATCH_BYTES // max(1, group.total_byte_size)))
            try:
                for batch in file.iter_batches(step, row_groups=[i], columns=wanted):
                    yield RawBlock(batch, row + done)
                    done += batch.num_rows
            except (pa.ArrowException, OSError) as e:
                lost = f"rows {row + done} to {row + size - 1} (row group {i}): {e}"
                yield rejected_file(split.path, "unreadable_file", lost)
            row += size


def _runs(file: pq.ParquetFile, groups: tuple[int, int]) -> Iterator[tuple[list[int], int]]:
    """Row groups to read at once, and their rows: small ones together."""
    run: list[int] = []
    rows = size = 0
    for i in range(*groups):
        group = file.metadata.row_group(i)
        if run and (rows + group.num_rows > READ_ROWS or size + group.total_byte_size > BATCH_BYTES):
            yield run, rows
            run, rows, size = [], 0, 0
        run.append(i)
        rows += group.num_rows
        size += group.total_byte_size
    if rows:
        yield run, rows


def _cut(table: pa.Table, row: int) -> Iterator[RawBlock]:
    # A column of more than 2 GiB of text comes in chunks; batches end where a chunk does.
    for batch in table.combine_chunks().to_batches():
        yield RawBlock(batch, row)
        row += batch.num_rows


def scalars(values: Sequence[Any]) -> pa.Array:
    """A column of Python values: of their type if they share one, else their texts."""
    kinds = {type(v) for v in values} - {type(None)}
    try:
        if len(kinds) <= 1 and kinds <= {str, bytes, bool, float}:
            return pa.array(values)
        if kinds == {int}:
            return pa.array(values, pa.int64())
        if kinds == {int, float}:
            return pa.array(values, pa.float64())
        if len(kinds) == 1 and not kinds & {list, dict, tuple, int}:
            return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError):
        pass
    return pa.array([text_of(v) for v in values], pa.binary()).view(pa.string())


# As a text, a number like 12.345 may be taken for one with its thousands set apart.
_GROUPED = re.compile(r"-?\d{1,3}\.\d{3}")


def text_of(value: Any) -> bytes | None:
    """A value as bytes of UTF-8, but for those that are not."""
    # Scrapy's item loaders wrap a value into a list of one.
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    # Exports of MongoDB name the types of values, such as {"$date": {"$numberLong": "1780272000000"}}.
    while isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        (value,) = value.values()
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float) and _GROUPED.fullmatch(repr(value)):
        return f"{value!r}0".encode()
    text = (
        value if isinstance(value, str) else value.isoformat() if hasattr(value, "isoformat") else str(value)
    )
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def is_utf8(text: bytes | str) -> bool:
    """Whether bytes are UTF-8, or a text can be written as such."""
    try:
        return text.isascii() or bool(text.decode() if isinstance(text, bytes) else text.encode())
    except UnicodeError:
        return False


__all__ = ["Block", "InputError", "RawBlock", "Split", "is_utf8", "plan", "read", "scalars"]
