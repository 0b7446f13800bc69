"""Files with recrawl's own columns: Parquet, Avro, JSON Lines and CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow as pa

from transforms.batches.kinds import Kind
from transforms.dialects.avro import read_avro
from transforms.dialects.parquet import read_parquet
from transforms.dialects.textformats import read_csv, read_jsonl
from transforms.files.blocks import Block, RawBlock, Split
from transforms.rows.normalise import HASHES

FORMS = ("parquet", "avro", "jsonl", "csv")

Reader = Callable[[Kind, Sequence[str] | None], Iterator[Block]]


def read(split: Split, kind: Kind, metadata: Sequence[str] | None = None) -> Iterator[Block]:
    """Read a split of a file of one of `FORMS`: raw blocks, and rejected rows for what cannot be read.

    Raises
    ------
    InputError
        If the columns are not those of the kind, see `columns_to_read`.
    """

    def reader(theirs: Kind, kept: Sequence[str] | None) -> Iterator[Block]:
        if split.form == "parquet":
            return read_parquet(split, theirs, kept)
        if split.form == "avro":
            return read_avro(split.path, theirs, kept)
        text = read_csv if split.form == "csv" else read_jsonl
        return text(split.path, split.gzip, theirs, kept)

    return named(split, kind, metadata, reader)


def named(split: Split, kind: Kind, metadata: Sequence[str] | None, reader: Reader) -> Iterator[Block]:
    """What `reader` yields, its columns under recrawl's names, with those that stand in names of folders."""
    named = dict(split.how.columns)
    back = {theirs: ours for ours, theirs in named.items()}
    theirs = kind.renamed(named)
    folder = _of_folders(split, theirs, metadata)
    if metadata is not None:
        metadata = [name for name in metadata if name not in folder]
    for block in reader(theirs.without(folder), metadata):
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
    if split.form not in FORMS:
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
