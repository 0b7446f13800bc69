"""The schedule of a night in order of time: its shards, each in that order, merged.

Memory: at most about twice `MERGED_ROWS` rows of all shards at a time (or `LEAST_ROWS` of each shard, or
1 MiB of its text where the schedule is JSON Lines), and one bit for every row where only first crawls are
wanted.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transforms.batches import schemas
from transforms.finished.nights import Night, NightError, stream

MERGED_ROWS = 1 << 17
LEAST_ROWS = 256
_OTHER_FILES = 128
_SCHEDULE = schemas.SCHEDULE.remove_metadata()


class _Shard:
    """What of a shard is read and not yet merged."""

    def __init__(self, path: str, batches: Iterator[pa.RecordBatch], first: NDArray[np.uint8] | None) -> None:
        self._path = path
        self._batches = batches
        self._first = first  # bits of the rows to keep; None: all
        self._read = 0
        self._last = np.iinfo(np.int64).min
        self.rows: pa.Table | None = None
        self.due = np.empty(0, np.int64)

    def fill(self) -> bool:
        """Read on until there are rows; False at the end."""
        while not len(self.due):
            batch = next(self._batches, None)
            if batch is None:
                return False
            table = pa.Table.from_batches([batch])
            due = table["due_at"].cast(pa.int64()).to_numpy()
            if len(due) and (due[0] < self._last or np.any(np.diff(due) < 0)):
                raise NightError(
                    f"{self._path}: not in order of due_at, as recrawl writes it. Restore the file, or run "
                    "that night again"
                )
            self._last = due[-1] if len(due) else self._last
            self._read += len(due)
            if self._first is not None:
                keep = _bits(self._first, self._read - len(due), self._read)
                table, due = table.filter(pa.array(keep)), due[keep]
            self.rows, self.due = table, due
        return True

    def take(self, n: int) -> pa.Table:
        """The next n rows."""
        assert self.rows is not None
        taken, self.rows = self.rows.slice(0, n), self.rows.slice(n)
        self.due = self.due[n:]
        return taken


def merged(night: Night, first_only: bool = False) -> Iterator[pa.Table]:
    """The schedule in order of `due_at`, then of shard, then of the shard's file.

    Parameters
    ----------
    night : Night
    first_only : bool
        Only the first crawl of each page.

    Yields
    ------
    Table
        Rows with the columns of schedule/; some, never none.

    Raises
    ------
    NightError
        A file is missing, damaged, or not in order of time; or there are more than the system lets be open.
    """
    files = night.files("schedule")
    _open_at_once(night.folder, len(files))
    rows = max(MERGED_ROWS // max(len(files), 1), LEAST_ROWS)
    shards = [
        _Shard(path, stream(path, _SCHEDULE, rows), first_crawls(path, rows) if first_only else None)
        for _, path, _ in files
    ]
    shards = [shard for shard in shards if shard.fill()]
    while shards:
        # Whichever shard's rows end first: what is not yet read of any shard comes after them.
        edge = min(range(len(shards)), key=lambda i: (shards[i].due[-1], i))
        until = shards[edge].due[-1]
        parts = []
        for i, shard in enumerate(shards):
            n = int(np.searchsorted(shard.due, until, "right" if i <= edge else "left"))
            if n:
                parts.append(shard.take(n))
        table = pa.concat_tables(parts)
        due = table["due_at"].cast(pa.int64()).to_numpy()
        yield table.take(pa.array(np.argsort(due, kind="stable"))) if len(parts) > 1 else table
        shards = [shard for shard in shards if shard.fill()]


def _open_at_once(folder: str, files: int) -> None:
    """All shards are open while they are merged: ask the system for that many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise NightError(
            f"{folder}: {files} files of schedule/ are read side by side, and the system lets a process open "
            f"{hard} at a time. Allow more (ulimit -n {wanted}), or run nights with a smaller --num_shards"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def first_crawls(path: str, batch_rows: int) -> NDArray[np.uint8]:
    """Bits that say which rows of a shard are the first of their page.

    All rows of a page are in one shard. Holds the URLs of one shard.
    """
    urls = pa.schema([_SCHEDULE.field("url")])
    read = [batch.column(0).cast(pa.large_string()) for batch in stream(path, urls, batch_rows)]
    codes = pa.chunked_array(read, pa.large_string()).combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.zeros(len(codes), np.bool_)
    first[np.unique(codes, return_index=True)[1]] = True
    return np.packbits(first)


def _bits(packed: NDArray[np.uint8], start: int, stop: int) -> NDArray[np.bool_]:
    found = np.unpackbits(packed[start >> 3 : (stop + 7) >> 3])
    return found[start & 7 : (start & 7) + stop - start].astype(np.bool_)
