"""Avro files by anyone, in bounded memory: what a header or a block claims is checked before it is believed.

The container is taken apart here, the rows of a block are decoded by fastavro in one call: in Avro an array
is a count and as many items, which is what a block is. Only columns that are wanted become Python values.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
import pyarrow as pa

from transforms.batches.errors import InputError
from transforms.batches.kinds import Kind
from transforms.batches.values import scalars
from transforms.files.blocks import BATCH_BYTES, BATCH_ROWS, Block, RawBlock
from transforms.files.filesystems import FileSystems
from transforms.rows.normalise import columns_to_read, rejected_file

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
MAX_HEADER_BYTES = 16 << 20
# Of a block, unpacked; writers end one after some 16 kB to a few MB.
MAX_BLOCK_BYTES = BATCH_BYTES
MAX_BLOCK_ROWS = BATCH_ROWS
MAX_BLOCK_VALUES = 1 << 24
AVRO_ROWS = 1 << 16
# What a packed block may ask for to be unpacked.
MAX_XZ_BYTES = 256 << 20
# Lists of lists and records in records.
MAX_DEPTH = 64
# Values that take no byte, such as nulls outside a union: a few bytes could stand for any number of them.
MAX_FREE_VALUES = 100
_CODECS = ("null", "deflate", "bzip2", "snappy", "xz", "zstandard")
_SIZES = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
_TIMES = ("timestamp-millis", "timestamp-micros", "timestamp-nanos")


class _DamagedError(ValueError):
    """What a file says of itself cannot be."""


class _CutError(ValueError):
    """The file ends early."""


def read_avro(path: str, kind: Kind, metadata: Sequence[str] | None) -> Iterator[Block]:
    """Read an Avro file: raw blocks, and one rejected row where it breaks off.

    Raises
    ------
    InputError
        If the columns are not those of the kind, or the file is packed in a way that is not known.
    """
    done = 0
    with FileSystems.open(path) as f:
        try:
            header = _Header.read(f)
        except InputError as e:
            raise InputError(f"{path}: {e}") from None
        except Exception as e:  # damaged bytes can fail in any way
            yield rejected_file(path, "unreadable_file", f"{type(e).__name__}: {e}")
            return
        wanted = columns_to_read(kind, header.columns(), path, metadata)
        records: list[dict[str, Any]] = []
        size = 0
        problem: tuple[str, str] | None = None
        reader = _Rows(header, wanted)
        while problem is None:
            try:
                found = _next_block(f, header)
                if found is None:
                    break
                read = reader.rows(*found)
            except Exception as e:
                sample = f"after {done + len(records)} rows: {type(e).__name__}: {e}"
                problem = "truncated_file" if isinstance(e, _CutError) else "unreadable_file", sample
            else:
                records += read
                size += len(found[1])
                if len(records) >= AVRO_ROWS or size >= BATCH_BYTES:
                    yield RawBlock(_from_records(records, wanted), done)
                    done += len(records)
                    records, size = [], 0
        if records:
            yield RawBlock(_from_records(records, wanted), done)
        if problem:
            yield rejected_file(path, *problem)


@dataclass(frozen=True)
class _Header:
    """What a file says of its blocks; `fields` are the columns, `least` the bytes of the shortest row."""

    fields: list[dict[str, Any]]
    named: dict[str, Any]
    codec: str
    sync: bytes
    least: int

    @classmethod
    def read(cls, f: Any) -> _Header:
        """Raises anything on damaged bytes, `InputError` on a sound file that cannot be read."""
        head = io.BytesIO(f.read(MAX_HEADER_BYTES))
        if head.read(len(MAGIC)) != MAGIC:
            raise _DamagedError("not an Avro file")
        values = fastavro.schemaless_reader(head, {"type": "map", "values": "bytes"}, None)
        sync = head.read(SYNC_BYTES)
        if len(sync) < SYNC_BYTES:
            raise _DamagedError(f"the header is cut, or longer than {MAX_HEADER_BYTES >> 20} MiB")
        f.seek(head.tell())
        schema = json.loads(values["avro.schema"])
        _check_depth(schema)
        parsed: Any = fastavro.parse_schema(_raw_times(schema))
        if not isinstance(parsed, dict) or parsed.get("type") not in ("record", "error"):
            raise _DamagedError("its rows are no records")
        sizes = _Sizes()
        least, _ = sizes.of(parsed)
        codec = values.get("avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise InputError(f"packed by {codec}, expected one of {', '.join(_CODECS)}. Write it with one")
        return cls(parsed["fields"], sizes.types, codec, sync, least)

    def columns(self) -> pa.Schema:
        """Names, with a nested type where they are nested; scalars are null, "any scalar"."""
        return pa.schema([(c["name"], self._type(c["type"])) for c in self.fields])

    def _type(self, kind: Any) -> pa.DataType:
        if isinstance(kind, list):
            return next((t for t in map(self._type, kind) if pa.types.is_nested(t)), pa.null())
        name = kind["type"] if isinstance(kind, dict) else self.named.get(kind, kind)
        if isinstance(name, dict | list):
            return self._type(name)
        if name in ("record", "error", "array", "map"):
            return pa.list_(pa.null()) if name in ("array", "map") else pa.struct([])
        return pa.null()


def _check_depth(schema: Any) -> None:
    """Refuse what is nested too deep for any walk over it, without walking into it."""
    level, depth = [schema], 0
    while level:
        if depth > 4 * MAX_DEPTH:
            raise _DamagedError(f"its schema is nested more than {MAX_DEPTH} deep")
        inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, dict | list)]
        level, depth = [v for values in inner for v in values], depth + 1


def _raw_times(schema: Any) -> Any:
    """An Avro schema whose timestamps are plain numbers: years 1 and 9999 must not stop a block."""
    if isinstance(schema, list):
        return [_raw_times(s) for s in schema]
    if isinstance(schema, dict):
        out = {
            k: _raw_times(v) if k in ("type", "fields", "items", "values") else v for k, v in schema.items()
        }
        if str(out.get("logicalType", "")).removeprefix("local-") in _TIMES:
            del out["logicalType"]
        return out
    return schema


@dataclass
class _Sizes:
    """How few bytes a value of a type has, and how many values it may have that take none.

    Raises `_DamagedError` where a type holds itself: who follows that needs a stack as deep as the data say.
    """

    types: dict[str, Any] = field(default_factory=dict)
    _known: dict[str, tuple[int, int] | None] = field(default_factory=dict)

    def of(self, kind: Any, depth: int = 0) -> tuple[int, int]:
        least, free = self._of(kind, depth)
        if free > MAX_FREE_VALUES:
            raise _DamagedError(f"its rows have more than {MAX_FREE_VALUES} values without a byte")
        return least, free

    def _of(self, kind: Any, depth: int) -> tuple[int, int]:
        if depth > MAX_DEPTH:
            raise _DamagedError(f"its schema is nested more than {MAX_DEPTH} deep")
        if isinstance(kind, list):
            found = [self.of(k, depth + 1) for k in kind if k != "null"]
            least = 0 if len(found) < len(kind) else min(least for least, _ in found)
            return 1 + least, max((free for _, free in found), default=0)
        if isinstance(kind, str):
            if kind in _SIZES:
                return _SIZES[kind], int(kind == "null")
            known = self._known[kind]
            if known is None:
                raise _DamagedError(f"a value of {kind} may hold another: it has no end")
            return known
        name = kind["type"]
        if isinstance(name, dict | list):
            return self.of(name, depth + 1)
        if name in ("array", "map"):
            least, _ = self.of(kind["items" if name == "array" else "values"], depth + 1)
            if not least and name == "array":
                raise _DamagedError("a list of values without a byte has no bound")
            return 1, 0
        if name not in ("record", "error", "enum", "fixed"):
            return self.of(name, depth + 1)
        self.types[kind["name"]] = kind
        self._known[kind["name"]] = None
        if name == "enum":
            sizes = (1, 0)
        elif name == "fixed":
            if kind["size"] < 0:
                raise _DamagedError(f"a value of {kind['size']} bytes")
            sizes = (kind["size"], int(not kind["size"]))
        else:
            inner = [self.of(c["type"], depth + 1) for c in kind["fields"]]
            sizes = (sum(least for least, _ in inner), sum(free for _, free in inner) + (not inner))
        self._known[kind["name"]] = sizes
        return sizes


def _next_block(f: Any, header: _Header) -> tuple[int, bytes] | None:
    """Rows and unpacked bytes of the next block, None at the end."""
    first = f.read(1)
    if not first:
        return None
    rows, size = _number(f, first), _number(f, f.read(1))
    if rows < 0 or size < 0:
        raise _DamagedError(f"a block of {rows:,} rows in {size:,} bytes")
    if size > 2 * MAX_BLOCK_BYTES:
        raise _DamagedError(f"a block of {size:,} bytes, more than {2 * MAX_BLOCK_BYTES:,}")
    data, sync = f.read(size), f.read(SYNC_BYTES)
    if len(data) < size or len(sync) < SYNC_BYTES:
        raise _CutError("a block is cut")
    if sync != header.sync:
        raise _DamagedError("a block does not end where it says")
    data = _unpack(header.codec, data)
    if len(data) > MAX_BLOCK_BYTES or rows > MAX_BLOCK_ROWS:
        raise _DamagedError(
            f"a block of {rows:,} rows in {len(data):,} or more bytes, limits are {MAX_BLOCK_ROWS:,} and "
            f"{MAX_BLOCK_BYTES:,}: write smaller blocks"
        )
    if rows * header.least > len(data):
        raise _DamagedError(f"a block of {rows:,} rows in {len(data):,} bytes")
    return rows, data


def _number(f: Any, first: bytes) -> int:
    """A number of the container, which begins with this byte."""
    value = shift = 0
    byte = first
    while True:
        if not byte:
            raise _CutError("a block is cut")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
        if shift > 63:
            raise _DamagedError("a number of more than 64 bits")
        byte = f.read(1)


def _unpack(codec: str, data: bytes) -> bytes:
    """What a block holds; of more than `MAX_BLOCK_BYTES` only so much that it can be seen."""
    limit = MAX_BLOCK_BYTES + 1
    if codec == "null":
        return data
    if codec == "deflate":
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        return _whole_of(unpacker.decompress(data, limit), unpacker.eof)
    if codec == "bzip2":
        return bz2.BZ2File(io.BytesIO(data)).read(limit)
    if codec == "xz":
        packed = lzma.LZMADecompressor(memlimit=MAX_XZ_BYTES)
        return _whole_of(packed.decompress(data, limit), packed.eof)
    if codec == "zstandard":
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return bytes(stream.read(limit))
    body, crc = data[:-4], data[-4:]
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size >= limit:
        return bytes(limit)
    unpacked: bytes = pa.decompress(body, size, "snappy", asbytes=True)
    if zlib.crc32(unpacked).to_bytes(4, "big") != crc:
        raise _DamagedError("a packed block has another checksum")
    return unpacked


def _whole_of(unpacked: bytes, ended: bool) -> bytes:
    if not ended and len(unpacked) <= MAX_BLOCK_BYTES:
        raise _DamagedError("a packed block is cut")
    return unpacked


class _Rows:
    """Decodes blocks into the wanted columns."""

    def __init__(self, header: _Header, wanted: Sequence[str]) -> None:
        self._wanted = wanted
        # Columns that nobody wants are passed over, whatever they hold.
        defined: set[str] = set()
        some = [
            {"name": c["name"], "type": _whole(c["type"], header.named, defined)}
            for c in header.fields
            if c["name"] in wanted
        ]
        self._written, self._read = (
            fastavro.parse_schema(
                {"type": "array", "items": {"type": "record", "name": "recrawl.Row", "fields": of}}
            )
            for of in ([{"name": c["name"], "type": c["type"]} for c in header.fields], some)
        )

    def rows(self, rows: int, data: bytes) -> list[dict[str, Any]]:
        """The rows of a block. Raises anything on damaged bytes."""
        if not rows and not data:
            return []
        if rows * len(self._wanted) > MAX_BLOCK_VALUES:
            raise _DamagedError(f"a block of {rows:,} rows with {len(self._wanted):,} columns")
        source = io.BytesIO(_count(rows) + data + b"\0")
        found: Any = fastavro.schemaless_reader(
            source, self._written, self._read, handle_unicode_errors="surrogateescape"
        )
        if source.read(1):
            raise _DamagedError(f"a block of {rows:,} rows holds more than that")
        return list(found)


def _count(rows: int) -> bytes:
    value, out = rows << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _whole(kind: Any, named: dict[str, Any], defined: set[str]) -> Any:
    """A type that can be understood without the columns before it."""
    if isinstance(kind, list):
        return [_whole(k, named, defined) for k in kind]
    if isinstance(kind, str):
        return kind if kind in defined or kind not in named else _whole(named[kind], named, defined)
    if kind.get("name") in named:
        defined.add(kind["name"])
    return (
        {**kind, "type": _whole(kind["type"], {}, set())} if isinstance(kind["type"], dict | list) else kind
    )


def _from_records(records: Sequence[dict[str, Any]], names: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [scalars([r.get(n) for r in records]) for n in names], names=list(names)
    )
