"""Writing: one deterministic file per shard and kind, put in place by a rename.

A bundle that is retried, or that runs twice, writes to a name of its own and renames; whoever renames last
leaves the same bytes. The manifest is written after everything else: it is the commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from transforms.batches.coders import ShardTables
from transforms.batches.steps import Step
from transforms.files.attempts import Attempt

SUFFIX = {"parquet": ".parquet", "avro": ".avro", "jsonl": ".jsonl"}
_BATCH_ROWS = 100_000
SEAL = "sha256"
_SEALED = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n}\n\Z')


@dataclass(frozen=True)
class FileInfo:
    """One file of the output.

    Attributes
    ----------
    path : str
        Relative to the output folder.
    rows, bytes : int
    sha256 : str
        Of the file's bytes, in hex.
    """

    path: str
    rows: int
    bytes: int
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class _Hashing(io.RawIOBase):
    """A write-only file that counts and hashes what passes."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._target.write(data)
        self.hash.update(data)
        self.size += len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        return len(data)


def make_folder(path: str) -> None:
    """Make a folder where the filesystem knows folders; one that is there is fine."""
    try:
        FileSystems.mkdirs(path)
    except OSError:
        if not FileSystems.exists(path) or os.path.isfile(path):
            raise


def write_file(folder: str, name: str, data: Any, rows: int, attempt: Attempt | None = None) -> FileInfo:
    """Write `folder/name` under a temporary name and rename it.

    Parameters
    ----------
    folder : str
        The output folder, on any Beam filesystem.
    name : str
        Relative path of the file.
    data : bytes or callable
        The bytes, or a function that writes them to the binary file it is given.
    rows : int
        For the manifest.
    attempt : Attempt, optional
        The try at a night that the file is of.

    Raises
    ------
    StoppedError
        Where that is not in force any more; then the file is not there, or as it was.
    """
    final = FileSystems.join(folder, *name.split("/"))
    parent, base = FileSystems.split(final)
    of = "" if attempt is None else attempt.name
    temporary = FileSystems.join(parent, f".tmp-{of}{uuid.uuid4().hex}-{base}")
    make_folder(parent)
    try:
        # Parquet is compressed by page; Beam must not guess a codec from the name.
        with FileSystems.create(temporary, compression_type="uncompressed") as target:
            sink = _Hashing(target)
            if callable(data):
                data(sink)
            else:
                sink.write(data)
        if attempt is not None:
            attempt.check()
        FileSystems.rename([temporary], [final])
    except BaseException as error:
        with contextlib.suppress(OSError):  # whoever ends a try removes its files, too
            if FileSystems.exists(temporary):
                FileSystems.delete([temporary])
        if attempt is not None and isinstance(error, OSError):
            attempt.check()  # says it better, where its file or folder was taken away
        raise
    return FileInfo(name, rows, sink.size, sink.hash.hexdigest())


def shard_name(kind: str, shard: int, num_shards: int, suffix: str) -> str:
    """Relative path of a shard's file."""
    return f"{kind}/shard-{shard:05d}-of-{num_shards:05d}{suffix}"


def _text_columns(schema: pa.Schema) -> list[str]:
    """Columns whose values repeat, for which a dictionary pays."""
    return [f.name for f in schema if pa.types.is_string(f.type) and f.name != "url"]


def _small_counts(schema: pa.Schema) -> dict[str, str]:
    """Encodings of lists of counts that are small for their width: less than half of the bytes."""
    lists = [f.name for f in schema if f.type == pa.list_(pa.uint32())]
    return {f"{name}.list.element": "DELTA_BINARY_PACKED" for name in lists}


def _write_parquet(batch: pa.RecordBatch, target: Any) -> None:
    schema = batch.schema.remove_metadata()
    # Files are read whole, so statistics would serve nobody. Half the time of zstd for a sixth more bytes.
    with pq.ParquetWriter(
        target,
        schema,
        compression="snappy",
        write_statistics=False,
        use_dictionary=_text_columns(schema),
        column_encoding=_small_counts(schema) or None,
    ) as writer:
        writer.write_table(
            pa.Table.from_batches([batch.replace_schema_metadata(None)], schema), row_group_size=1 << 20
        )


_AVRO_TYPES = {"string": "string", "double": "double", "int64": "long", "int32": "int", "bool": "boolean"}


def _avro_schema(schema: pa.Schema) -> dict[str, Any]:
    fields = []
    for field in schema:
        if pa.types.is_timestamp(field.type):
            kind: Any = {"type": "long", "logicalType": "timestamp-micros"}
        else:
            kind = _AVRO_TYPES[str(field.type)]
        fields.append({"name": field.name, "type": ["null", kind], "default": None})
    return {"type": "record", "name": "row", "fields": fields}


def _write_avro(batch: pa.RecordBatch, target: Any) -> None:
    # The sync marker is derived, not drawn, so that the same rows give the same bytes.
    marker = hashlib.md5(str(batch.schema.names).encode(), usedforsecurity=False).digest()
    schema = fastavro.parse_schema(_avro_schema(batch.schema))
    buffer = io.BytesIO()
    rows = (
        row
        for at in range(0, batch.num_rows, _BATCH_ROWS)
        for row in batch.slice(at, _BATCH_ROWS).to_pylist()
    )
    fastavro.writer(buffer, schema, rows, codec="deflate", sync_marker=marker)
    target.write(buffer.getvalue())


def _json_ready(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
    if pa.types.is_floating(column.type):  # JSON has no NaN and no infinity
        return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    return column


def _write_jsonl(batch: pa.RecordBatch, target: Any) -> None:
    for at in range(0, batch.num_rows, _BATCH_ROWS):
        part = batch.slice(at, _BATCH_ROWS)
        part = pa.RecordBatch.from_arrays([_json_ready(c) for c in part.columns], part.schema.names)
        lines = [
            json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in part.to_pylist()
        ]
        target.write("".join(lines).encode())


_WRITERS = {"parquet": _write_parquet, "avro": _write_avro, "jsonl": _write_jsonl}


def write_shard(
    folder: str,
    kind: str,
    shard: int,
    num_shards: int,
    batch: pa.RecordBatch,
    file_format: str = "parquet",
    attempt: Attempt | None = None,
) -> FileInfo:
    """Write one shard's rows of one kind. Holds no more than the batch and one row group in memory."""
    writer = _WRITERS[file_format]
    name = shard_name(kind, shard, num_shards, SUFFIX[file_format])
    return write_file(folder, name, lambda target: writer(batch, target), batch.num_rows, attempt)


class WriteShards(Step):
    """Writes the tables of shards, each to the folder of its name.

    Parameters
    ----------
    attempt : Attempt
    num_shards : int
    formats : dict of str to str
        Of folders that are not Parquet.
    """

    def __init__(self, attempt: Attempt, num_shards: int, formats: Mapping[str, str] | None = None) -> None:
        self._attempt, self._num_shards, self._formats = attempt, num_shards, formats or {}

    def process(self, tables: ShardTables) -> Iterator[FileInfo]:
        attempt = self._attempt
        for kind, batch in tables.tables.items():
            file_format = self._formats.get(kind, "parquet")
            yield write_shard(
                attempt.folder, kind, tables.shard, self._num_shards, batch, file_format, attempt
            )


def write_json(
    folder: str, name: str, value: Any, sealed: bool = False, attempt: Attempt | None = None
) -> FileInfo:
    """Write a JSON document, keys in the order given; NaN and infinities become null.

    One that is sealed has the SHA-256 of all before it as its last value, which `read_json` checks.
    """
    text = json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False)
    if sealed:
        body = text.removesuffix("\n}")
        text = f'{body},\n "{SEAL}": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}'
    return write_file(folder, name, (text + "\n").encode(), 1, attempt)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def read_json(path: str) -> Any:
    """The JSON document at `path`, or None where there is none. ValueError where it is damaged."""
    if not FileSystems.exists(path):
        return None
    with FileSystems.open(path) as source:
        data = source.read()
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("brackets within brackets without end") from None
    # One that somebody has rewritten is laid out otherwise, and no longer sealed.
    found = _SEALED.search(data)
    if found and hashlib.sha256(data[: found.start()]).hexdigest().encode() != found[1]:
        raise ValueError(f"its {SEAL} is not that of its text (who has edited it removes that line)")
    return value
