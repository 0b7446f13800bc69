"""What waits between two stages of a night: in memory up to a limit, then in files."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import ipc

from transforms.batches.coders import RecordBatchCoder, from_ipc
from transforms.batches.shard_tables import ShardTables

IN_MEMORY_BYTES = 64 << 20
"""Of all that waits in a night, one after the other."""

_BATCH = RecordBatchCoder()
_ALIGNED = 64


class Room:
    """What of `IN_MEMORY_BYTES` is left; threads share it."""

    def __init__(self) -> None:
        self._lock, self._left = Lock(), IN_MEMORY_BYTES

    def takes(self, size: int) -> bool:
        """Whether so many bytes may wait in memory."""
        with self._lock:
            self._left -= size
            return self._left >= 0


class Shelf:
    """Where values of one kind wait.

    The file has no name, so that it ends with the process at the latest, and lies in the folder for temporary
    files. Where it cannot be written, for want of room, values stay in memory.
    """

    def __init__(self, room: Room) -> None:
        self._room, self._lock, self._full = room, Lock(), False
        self._file = self._sink = None

    def tables(self, value: ShardTables) -> ShardTables | Waiting:
        """Tables, or where they are; not compressed, so that they are read in place."""
        size = sum(batch.nbytes for batch in value.tables.values())
        return value if self._room.takes(size) else self._put(lambda: self._write(value)) or value

    def batch(self, value: pa.RecordBatch) -> bytes | Waiting:
        """A batch as bytes, a quarter of what it is, or where these are."""
        data = _BATCH.encode(value)
        return data if self._room.takes(len(data)) else self._put(lambda: self._sink.write(data)) or data

    def _put(self, write: Callable[[], Any]) -> Waiting | None:
        with self._lock:
            try:
                if self._file is None and not self._full:
                    self._file, self._sink = _unnamed()
                if self._full:
                    return None
                start = self._at_multiple_of(mmap.ALLOCATIONGRANULARITY)
                made = write()
                self._sink.flush()
                return Waiting(self._file, start, self._sink.tell() - start, made)
            except OSError:
                self._full = True
                return None

    def _write(self, value: ShardTables) -> Places:
        start, places = self._sink.tell(), []
        for name, batch in value.tables.items():
            at = self._at_multiple_of(_ALIGNED)
            with ipc.new_stream(self._sink, batch.schema) as writer:
                writer.write_batch(batch)
            places.append((name, at - start, self._sink.tell() - at))
        return Places(value.shard, places)

    def _at_multiple_of(self, unit: int) -> int:
        at: int = self._sink.tell()
        self._sink.write(b"\0" * (-at % unit))
        return at + -at % unit


def _unnamed() -> tuple[Any, pa.NativeFile]:
    """A new file to read from, and the same to write to: Arrow writes arrays without a copy."""
    number, path = tempfile.mkstemp(prefix="recrawl-")
    try:
        return os.fdopen(number, "rb"), pa.OSFile(path, "wb")
    finally:
        os.unlink(path)


class Places(NamedTuple):
    """Where tables of a shard are among some bytes: name, first byte and size of each."""

    shard: int
    of_tables: list[tuple[str, int, int]]


class Waiting(NamedTuple):
    """Where bytes of a file are, and what they are."""

    file: Any
    start: int
    size: int
    made: Any

    def read(self) -> mmap.mmap:
        """The bytes: pages of the file."""
        return mmap.mmap(self.file.fileno(), self.size, access=mmap.ACCESS_READ, offset=self.start)


def taken(value: Any) -> Any:
    """An element, wherever it waited."""
    if not isinstance(value, Waiting):
        return value
    whole = pa.py_buffer(value.read())
    found = {name: from_ipc(whole.slice(at, size)) for name, at, size in value.made.of_tables}
    return ShardTables(value.made.shard, found)


def batch_of(data: bytes | Waiting) -> pa.RecordBatch:
    """The inverse of `Shelf.batch`."""
    return _BATCH.decode(data.read() if isinstance(data, Waiting) else data)
