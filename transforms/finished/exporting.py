"""Writing a night's schedule in the format of a crawler: merged, cut into files, accounted for.

Memory: that of merging, and the text of one batch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.files.filesystems import FileSystems
from transforms.files.sinks import FileInfo, write_file
from transforms.finished.export_formats import (
    BULK_FILE,
    FORMATS,
    HOUR_US,
    PART_PAGES,
    Format,
    Wishes,
    hours,
    refused,
)
from transforms.finished.merging import merged
from transforms.finished.nights import Night

_OWN = re.compile(
    "|".join(
        re.escape(file).replace(r"\{hour\}", r"[0-9T-]{13}").replace(r"\{part\}", r"\d{5,}")
        for file in (BULK_FILE, *(f.file for f in FORMATS.values()))
    )
)
SAMPLES = 20


@dataclass
class Exported:
    """What was written.

    Attributes
    ----------
    rows : int
        Crawls of the schedule that were looked at: of formats with one entry a page, its pages.
    crawls : int
        Of the schedule, all: where an entry is a page, more than `rows` by those that the format cannot say.
    written : int
    rejected : Counter of str
        Rows that the format cannot hold, by reason.
    samples : list of (str, str)
        Reason and URL of the first of them.
    files : list of FileInfo
    """

    rows: int = 0
    crawls: int = 0
    written: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    samples: list[tuple[str, str]] = field(default_factory=list)
    files: list[FileInfo] = field(default_factory=list)


def export(night: Night, name: str, folder: str, wishes: Wishes) -> Exported:
    """Write the schedule of a night; files of an earlier export in the folder go.

    Parameters
    ----------
    night : Night
    name : str
        Of the format, one of `FORMATS`.
    folder : str
        On any Beam file system.
    wishes : Wishes

    Raises
    ------
    NightError
        The schedule cannot be read.
    """
    to = FORMATS[name]
    if wishes.bulk:
        to = replace(to, file=BULK_FILE)
    found = Exported(crawls=sum(rows for _, _, rows in night.files("schedule")))
    for file, pieces in groupby(_pieces(night, to, wishes, found), key=lambda piece: piece[0]):
        written = _File(to.header, pieces)
        info = write_file(folder, file, written.write, 0)
        found.files.append(replace(info, rows=written.rows))
    _clear(folder, {file.path for file in found.files})
    return found


class _File:
    """The pieces of one file, written once."""

    def __init__(self, header: bytes, pieces: Iterator[tuple[str, bytes, int]]) -> None:
        self._header, self._pieces = header, pieces
        self.rows = 0

    def write(self, out: Any) -> None:
        out.write(self._header)
        for _, text, rows in self._pieces:
            out.write(text)
            self.rows += rows


def strangers(folder: str) -> list[str]:
    """Names in a folder that no export has written: a crawler may read all that is there."""
    return [name for name in _names(folder) if not _OWN.fullmatch(name)]


def _clear(folder: str, keep: set[str]) -> None:
    """Remove what an earlier export has left: hours of another night must not stand beside new ones."""
    old = [name for name in _names(folder) if _OWN.fullmatch(name) and name not in keep]
    FileSystems.delete([FileSystems.join(folder, name) for name in old])


def _names(folder: str) -> list[str]:
    found = FileSystems.match(FileSystems.join(folder, "*"))
    return sorted({file.path.rstrip("/").rpartition("/")[2] for file in found})


def _pieces(night: Night, to: Format, wishes: Wishes, found: Exported) -> Iterator[tuple[str, bytes, int]]:
    """Pieces of text in the order of the files, each with its file and rows."""
    first_hour = None
    for table in merged(night, to.first_only):
        found.rows += len(table)
        table = _kept(table, to, found)
        if not len(table):
            continue
        at = hours(table)
        first_hour = int(at[0]) if first_hour is None else first_hour
        wishes = replace(wishes, first_hour=first_hour)
        part = (found.written + np.arange(len(table))) // PART_PAGES
        cuts = at if "{hour}" in to.file else part if "{part}" in to.file else np.zeros_like(part)
        starts = np.flatnonzero(np.diff(cuts, prepend=cuts[0] - 1))
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(table)], strict=True):
            file = to.file.format(hour=_hour(int(at[start])), part=f"{part[start]:05d}")
            yield file, to.text(table.slice(start, stop - start), wishes), stop - start
        found.written += len(table)
    if first_hour is None and "{" not in to.file:
        yield to.file, b"", 0


def _kept(table: pa.Table, to: Format, found: Exported) -> pa.Table:
    """Rows that the format can hold; the others are counted."""
    keep = np.ones(len(table), np.bool_)
    for reason, bad in refused(table, to).items():
        if bad.any():
            keep &= ~bad
            found.rejected[reason] += int(bad.sum())
            room = max(SAMPLES - len(found.samples), 0)
            urls = table["url"].filter(pa.array(bad)).slice(0, room).to_pylist()
            found.samples += [(reason, url) for url in urls]
    table = table if keep.all() else table.filter(pa.array(keep))
    return table.set_column(
        table.schema.get_field_index("url"), "url", pc.cast(table["url"], pa.large_string())
    )


def _hour(hour: int) -> str:
    return datetime.fromtimestamp(hour * HOUR_US // 1_000_000, UTC).strftime("%Y-%m-%dT%H")
