"""Files of any format that recrawl reads, as Parquet with its own columns, a row group at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from transforms.batches import columns, schemas
from transforms.batches.tally import Counts
from transforms.files.blocks import How, RawBlock
from transforms.files.filesystems import InputFile
from transforms.files.sinks import FileInfo, write_file
from transforms.intake.formats import plan, read
from transforms.intake.sources import NOTED
from transforms.rows.normalise import KINDS, normalise

MAX_REJECTED = 10_000
"""Rejected rows of a file that are kept; all are counted."""

Mask = NDArray[np.bool_]


@dataclass
class Converted:
    """What became of a file: rows written, counts of what was not, and rows of `schemas.REJECTED`."""

    file: FileInfo | None = None
    accepted: int = 0
    rejects: list[pa.RecordBatch] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)


def convert(file: InputFile, kind: str, how: How, folder: str, name: str) -> Converted:
    """Write `folder/name` with the accepted rows of a file; no file where it has none.

    Raises
    ------
    InputError
    """
    found, notes = Converted(), Counts()
    batches = _batches(file, kind, how, found, notes)
    first = next(batches, None)
    if first is not None:

        def write(target: object) -> None:
            with pq.ParquetWriter(target, first.schema, compression="zstd") as writer:
                writer.write_batch(first)
                for batch in batches:
                    writer.write_batch(batch.cast(first.schema))

        found.file = write_file(folder, name, write, 0)
    mark = f"{kind}_left_out_"
    found.left_out = {n.removeprefix(mark): k for n, k in notes.totals().items() if n.startswith(mark)}
    return found


def _batches(
    file: InputFile, kind: str, how: How, found: Converted, notes: Counts
) -> Iterator[pa.RecordBatch]:
    for split in plan(file, kind, how):
        for block in read(split, KINDS[kind], None, notes) if split.form != "empty" else ():
            if isinstance(block, pa.RecordBatch):
                _count(found, block)
                continue
            how = split.how
            timezone = how.timezone if split.names_no_zone else ""
            said = (how.tracking, timezone, split.comma)
            done = normalise(KINDS[kind], block.batch, split.path, block.row, None, False, *said)
            for name, n in done.counts.items():
                notes.add(f"{kind}_{name}", n)
            for other in (done.rejected, done.noted):
                if other.num_rows:
                    _count(found, other)
            if done.rows.num_rows:
                found.accepted += done.rows.num_rows
                yield _canonical(kind, done.rows, block, done.good)


def _canonical(kind: str, rows: pa.RecordBatch, block: RawBlock, good: Mask | None) -> pa.RecordBatch:
    """The rows with the columns that `--KIND` takes, by the names that it takes."""
    made: dict[str, pa.Array] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name == "digest_hash":
            made["digest"] = _digest(rows, block, good)
        elif name == "digest_form":
            continue
        elif kind == "requests" and name == "day":
            made[name] = column.cast(pa.date32())
        elif kind == "requests" and name != "url":
            made[name] = pc.multiply(column.cast(pa.float64()), schemas.COUNT_UNIT)
        else:
            made[name] = column
    return pa.RecordBatch.from_pydict(made)


def _digest(rows: pa.RecordBatch, block: RawBlock, good: Mask | None) -> pa.Array:
    """Digests as they came: they must stay comparable with those of files that are not converted."""
    at = block.batch.schema.get_field_index("digest")
    if at < 0:
        return pa.nulls(rows.num_rows, pa.string())
    raw = block.batch.column(at)
    if good is not None:
        raw = raw.filter(pa.array(good))
    if pa.types.is_dictionary(raw.type):
        raw = raw.cast(raw.type.value_type)
    if pa.types.is_null(raw.type):
        return raw.cast(pa.string())
    is_bytes = (
        pa.types.is_binary(raw.type) or pa.types.is_large_binary(raw.type) or columns.is_fixed(raw.type)
    )
    if is_bytes:
        return raw.cast(pa.binary())
    return columns.clean(columns.text(raw)[0])[0].cast(pa.string())


def _count(found: Converted, batch: pa.RecordBatch) -> None:
    reasons = batch.column("reason").to_pylist()
    for reason in reasons:
        if reason not in NOTED:
            found.rejected[reason] = found.rejected.get(reason, 0) + 1
    room = MAX_REJECTED - sum(part.num_rows for part in found.rejects)
    if room > 0:
        found.rejects.append(batch.slice(0, room))
