"""Reader of Parquet: a file is cut at its row groups, and what is damaged costs its row group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.batches.kinds import Kind
from transforms.files.blocks import BATCH_BYTES, BATCH_ROWS, READ_ROWS, Block, RawBlock, Split
from transforms.files.filesystems import FileSystems, local_path
from transforms.rows.normalise import columns_to_read, rejected_file


def open_parquet(path: str, repeated: Sequence[str] = ()) -> pq.ParquetFile:
    """A Parquet file of any file system, with times that no year makes wrap.

    Columns of texts that are repeated may be named: they are read as dictionaries.
    """
    local = local_path(path)
    # INT96 has nanoseconds, which cannot hold the years 1 and 9999: they would wrap to plausible ones.
    options: dict[str, Any] = {"read_dictionary": list(repeated), "coerce_int96_timestamp_unit": "us"}
    if local is not None:
        return pq.ParquetFile(local, memory_map=True, **options)
    return pq.ParquetFile(FileSystems.open(path), pre_buffer=True, **options)


def plan_parquet(path: str) -> list[Split]:
    try:
        meta = open_parquet(path).metadata
    except (pa.ArrowException, OSError) as e:
        with FileSystems.open(path) as f:
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


def read_parquet(split: Split, kind: Kind, metadata: Sequence[str] | None) -> Iterator[Block]:
    file = open_parquet(split.path, [kind.key] if kind.repeats else ())
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
