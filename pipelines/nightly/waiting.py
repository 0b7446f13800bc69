"""What waits between two stages of a night: in memory up to a limit, then in files."""

from __future__ import annotations

import mmap
import os
import tempfile
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa

from transforms.batches.coders import RecordBatchCoder, ShardTablesCoder
from transforms.batches.shard_tables import ShardTables

IN_MEMORY_BYTES = 2 << 30
"""Of all that waits in a night, one after the other."""

_TABLES, _BATCH = ShardTablesCoder(), RecordBatchCoder()


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
        self._room, self._lock, self._end = room, Lock(), 0
        self._file: Any = None

    def tables(self, value: ShardTables) -> ShardTables | Waiting:
        """Tables, or where they are; not compressed, so that they are read in place."""
        size = _TABLES.estimate_size(value)
        return value if self._room.takes(size) else self._put(_TABLES.encode_plain(value)) or value

    def batch(self, value: pa.RecordBatch) -> bytes | Waiting:
        """A batch as bytes, a quarter of what it is, or where these are."""
        data = _BATCH.encode(value)
        return data if self._room.takes(len(data)) else self._put(data) or data

    def _put(self, data: bytes) -> Waiting | None:
        size, unit = len(data), mmap.ALLOCATIONGRANULARITY
        with self._lock:
            start = self._end
            self._end += -(-size // unit) * unit
            try:
                self._file = self._file or tempfile.TemporaryFile(buffering=0)
            except OSError:
                return None
        view, written = memoryview(data), 0
        try:
            while written < size:
                written += os.pwrite(self._file.fileno(), view[written:], start + written)
        except OSError:
            return None
        return Waiting(self._file, start, size)


class Waiting(NamedTuple):
    """Where bytes of a file are."""

    file: Any
    start: int
    size: int

    def read(self) -> mmap.mmap:
        """The bytes: pages of the file."""
        return mmap.mmap(self.file.fileno(), self.size, access=mmap.ACCESS_READ, offset=self.start)


def taken(value: Any) -> Any:
    """An element, wherever it waited."""
    return _TABLES.decode(value.read()) if isinstance(value, Waiting) else value


def batch_of(data: bytes | Waiting) -> pa.RecordBatch:
    """The inverse of `Shelf.batch`."""
    return _BATCH.decode(data.read() if isinstance(data, Waiting) else data)
