"""The rows of shards as files: one of the same bytes for each shard and kind, in the format asked for."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transforms.batches.coders import ShardTables
from transforms.batches.steps import Step
from transforms.files.attempts import Attempt
from transforms.files.sinks import FileInfo, write_file

SUFFIX = {"parquet": ".parquet", "avro": ".avro", "jsonl": ".jsonl"}
MOST_SHARDS = 999_999
"""Up to which a night was reckoned."""

_BATCH_ROWS = 100_000


def shard_name(kind: str, shard: int, num_shards: int, suffix: str) -> str:
    """Relative path of a shard's file; names sort by shard."""
    width = max(5, len(str(num_shards - 1)))
    return f"{kind}/shard-{shard:0{width}d}-of-{num_shards:05d}{suffix}"


def _text_columns(schema: pa.Schema) -> list[str]:
    """Columns whose values repeat, for which a dictionary pays."""
    return [f.name for f in schema if pa.types.is_string(f.type) and f.name != "url"]


def _encodings(schema: pa.Schema, carried: bool) -> dict[str, str]:
    """Encodings of lists: of counts that are small for their width, less than half of the bytes; of floats
    byte by byte, as exponents are much alike and last bytes may be 0. Of what only the next night reads,
    times and counts as differences, too: a quarter to a half fewer bytes in less time. Old readers of Parquet
    do not know them.
    """
    counts = {f.name: "DELTA_BINARY_PACKED" for f in schema if f.type == pa.list_(pa.uint32())}
    fixed = [f for f in schema if pa.types.is_fixed_size_list(f.type)]
    floats = {f.name: "BYTE_STREAM_SPLIT" for f in fixed if f.type.value_type == pa.float32()}
    found = {f"{name}.list.element": how for name, how in (counts | floats).items()}
    for field in schema if carried else ():
        if pa.types.is_timestamp(field.type) or pa.types.is_signed_integer(field.type):
            found[field.name] = "DELTA_BINARY_PACKED"
    return found


def _write_parquet(batch: pa.RecordBatch, target: Any, carried: bool = False) -> None:
    schema = batch.schema.remove_metadata()
    # Files are read whole, so statistics would serve nobody. Half the time of zstd for a sixth more bytes.
    with pq.ParquetWriter(
        target,
        schema,
        compression="snappy",
        write_statistics=False,
        use_dictionary=_text_columns(schema),
        column_encoding=_encodings(schema, carried) or None,
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


_WRITERS: dict[str, Callable[..., None]] = {
    "parquet": _write_parquet,
    "avro": _write_avro,
    "jsonl": _write_jsonl,
}
_CARRIED = "state", "slots"


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
    if writer is _write_parquet:
        writer = partial(_write_parquet, carried=kind.partition("/")[0] in _CARRIED)
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
