"""Arrow IPC coders. Importing this module registers them.

Without them Beam pickles record batches, and a slice of ten rows drags the whole parent batch along.
A registered coder is used only where the type hint survives to the edge, so every transform here is hinted.
"""

from __future__ import annotations

import struct
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.ipc as ipc

from transforms.batches.shard_tables import ShardTables as ShardTables

_OPTIONS = {
    b"zstd": ipc.IpcWriteOptions(compression=pa.Codec("zstd", -1)),
    b"lz4": ipc.IpcWriteOptions(compression=pa.Codec("lz4")),
    None: ipc.IpcWriteOptions(),
}


def to_ipc(batch: pa.RecordBatch) -> pa.Buffer:
    """One batch as an Arrow IPC stream; compressed as the schema's metadata asks."""
    options = _OPTIONS[(batch.schema.metadata or {}).get(b"compress")]
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def from_ipc(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """The batch of `to_ipc`, without a copy where it was not compressed."""
    with ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_next_batch()


class RecordBatchCoder(beam.coders.Coder):
    """One record batch as one Arrow IPC stream."""

    def encode(self, value: pa.RecordBatch) -> bytes:
        return to_ipc(value).to_pybytes()

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        return from_ipc(encoded)

    def estimate_size(self, value: pa.RecordBatch) -> int:
        return int(value.nbytes) + 512

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return pa.RecordBatch


class ShardTablesCoder(beam.coders.Coder):
    """A `ShardTables` as length-prefixed Arrow IPC streams."""

    def encode(self, value: ShardTables) -> bytes:
        parts: list[Any] = [struct.pack("<II", value.shard, len(value.tables))]
        for name, batch in value.tables.items():
            data = to_ipc(batch)
            # Streams start at multiples of 8, so that arrays are read in place.
            head = name.encode()
            pad = -(len(head) + 16) % 8
            parts += [struct.pack("<QQ", len(head) + pad, data.size), head + b"\0" * pad, data]
            parts.append(b"\0" * (-data.size % 8))
        return b"".join(parts)

    def decode(self, encoded: bytes) -> ShardTables:
        shard, count = struct.unpack_from("<II", encoded)
        whole, at, tables = pa.py_buffer(encoded), 8, {}
        for _ in range(count):
            head, size = struct.unpack_from("<QQ", encoded, at)
            at += 16
            name = encoded[at : at + head].rstrip(b"\0").decode()
            at += head
            tables[name] = from_ipc(whole.slice(at, size))
            at += size + -size % 8
        return ShardTables(shard, tables)

    def estimate_size(self, value: ShardTables) -> int:
        return sum(int(b.nbytes) + 512 for b in value.tables.values())

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> Any:
        return ShardTables


beam.coders.registry.register_coder(pa.RecordBatch, RecordBatchCoder)
beam.coders.registry.register_coder(ShardTables, ShardTablesCoder)
