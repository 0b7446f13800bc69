"""Exports of Google Search Console: the ZIP of its web pages or the table of pages in it, in any language,
tables of page, date, clicks and impressions as its bulk export and tools for its API give, and answers of
the API.

The tables of a ZIP are told apart by what they hold: names of files and columns are translated.
"""

from __future__ import annotations

import csv
import json
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from transforms.batches.errors import InputError, UnreadableError
from transforms.dialects import Dialect, Source, canonical, search_console_answers
from transforms.dialects.search_console_answers import URL
from transforms.dialects.search_console_days import DAY, days_of, spread
from transforms.files.blocks import Block, How, RawBlock, Split
from transforms.files.filesystems import FileSystems
from transforms.files.unpacking import Problem, gunzip, stored
from transforms.rows.normalise import rejected_file, rejected_rows

ROW_LIMIT = 1000
"""Of rows that the web pages export: what has no row then may well have clicks."""
MAX_BYTES = 64 << 20
_ZIP = b"PK\x03\x04"
_BLANKS = dict.fromkeys(map(ord, " \u00a0\u2009\u202f'\u2019\u066c"), None)
_GROUPED = re.compile(r"\d{1,3}(?:([.,])\d{2,3}(?:\1\d{2,3})*)?")
_PERCENT = "%\u066a"
# Columns of the web pages' tables: the page, clicks, impressions, the share, the position.
_COLUMNS = 5
_PAGE, _DATE, _COUNTS = ("page", "url"), ("date", "data_date"), ("clicks", "impressions")


def _looks_like(path: str, text: bytes) -> bool:
    if text.startswith(_ZIP):
        size = int.from_bytes(text[26:28], "little")
        return text[30 : 30 + size].lower().endswith(b".csv")
    if _named(text) is not None or search_console_answers.looks_like(text):
        return True
    # The end may be cut.
    whole = text[: text.rfind(b"\n") + 1] or text
    return _is_pages(_table(whole.decode("utf-8", "replace"))[:50])


def _named(text: bytes) -> tuple[str, dict[str, str]] | None:
    """Of a table with dates: its form, and its names for our columns."""
    line = text.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    form = "csv"
    if line.startswith("{"):
        try:
            names, form = list(json.loads(line)), "jsonl"
        except (ValueError, RecursionError):
            return None
    else:
        names = [name.strip() for name in _record(line, ",")]
    page = next((n for n in _PAGE if n in names), None)
    date = next((n for n in _DATE if n in names), None)
    canonical = "url" in names and ("day" in names or "at" in names)
    if page is None or date is None or canonical or not any(n in names for n in _COUNTS):
        return None
    return form, {"url": page, "day": date}


Row = tuple[int, list[str]]


def _table(text: str) -> list[Row]:
    """Records with the number of their line; the first one that is not empty tells the separator."""
    text = text.removeprefix("\ufeff")
    head = text.lstrip().split("\n", 1)[0]
    delimiter = max(",;\t", key=head.count)
    # A table has no line ends in its values: a stray quote ends with its line.
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            rows.append((number, _record(line.rstrip("\r"), delimiter)))
    return rows


def _record(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return [line]


def _is_pages(rows: Sequence[Row]) -> bool:
    """A header and a row of a URL, two counts and a share, or a header alone with as many columns."""
    if not rows or len(rows[0][1]) < _COLUMNS or URL.match(rows[0][1][0]):
        return False
    names = rows[0][1]
    if "url" in names or any(_integer(name) is not None for name in names[1:]):
        return False
    if len(rows) == 1:
        return len(names) == _COLUMNS
    return any(
        len(record) == len(names)
        and bool(URL.match(record[0]))
        and None not in map(_integer, record[1:3])
        and any(mark in "".join(record[3:]) for mark in _PERCENT)
        for _, record in rows[1:]
    )


def _integer(text: str) -> int | None:
    """A count as people of any language write it: `1,234`, `1.234`, `1 234`, `12,34,567`."""
    text = unicodedata.normalize("NFKC", text).translate(_BLANKS)
    if text.isdecimal() and len(text) <= 18:
        return int(text)
    if len(text) > 24 or not _GROUPED.fullmatch(text) or len(re.split("[.,]", text)[-1]) != 3:
        return None
    return int(re.sub("[.,]", "", text))


def _read(source: Source) -> Iterator[Block]:
    with FileSystems.open(source.path) as f:
        head = f.read(1 << 16)
    if head.startswith(_ZIP):
        yield from _read_zip(source)
        return
    if source.gzip:
        head = next(gunzip(iter([head]), Problem()), b"")
    found = _named(head.removeprefix(b"\xef\xbb\xbf"))
    if found is not None:
        form, names = found
        split = Split(source.path, form, source.gzip, how=How(columns=tuple(names.items())))
        yield from canonical.read(split, source.kind)
        return
    problem = Problem()
    packed = stored(source.path)
    chunks = gunzip(packed, problem) if source.gzip else packed
    if search_console_answers.looks_like(head.removeprefix(b"\xef\xbb\xbf")):
        yield from search_console_answers.read(source, chunks, problem, lambda: _days(source, [])[0])
        return
    text = _bounded(chunks, source.path)
    if problem.reason:
        yield rejected_file(source.path, problem.reason, problem.sample)
    yield from _rows(source, _table(text.decode("utf-8", "replace")), [])


def _bounded(chunks: Iterator[bytes], path: str) -> bytes:
    held = bytearray()
    for chunk in chunks:
        held += chunk
        if len(held) > MAX_BYTES:
            raise InputError(
                f"{path}: more than {MAX_BYTES} bytes, which no export of Search Console's pages has. Tables "
                "with dates (page, date, clicks, impressions) may have any size"
            )
    return bytes(held)


def _read_zip(source: Source) -> Iterator[Block]:
    tables: dict[str, list[Row]] = {}
    try:
        with FileSystems.open(source.path) as f, zipfile.ZipFile(f) as archive:
            for member in archive.infolist():
                if member.filename.lower().endswith(".csv"):
                    with archive.open(member) as part:
                        text = _bounded(iter(lambda: part.read(1 << 20), b""), source.path)
                    tables[member.filename] = _table(text.decode("utf-8", "replace"))
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError) as e:
        yield rejected_file(source.path, "unreadable_file", f"{type(e).__name__}: {e}")
        return
    if not any(map(_is_pages, tables.values())):
        names = ", ".join(sorted(tables)[:3]) or "no table"
        raise UnreadableError(
            f"{source.path}: a ZIP of {names}; of ZIPs only exports of Search Console are read, with a table "
            "of pages. Unpack it and give the folder: unzip -d FOLDER FILE"
        )
    days = days_of(source.path, [[record for _, record in rows] for rows in tables.values()])
    for rows in tables.values():
        if len(rows) > 1 and any(URL.match(record[0]) for _, record in rows[1:] if record):
            yield from _rows(source, rows, days)


def _days(source: Source, chart: list[str]) -> list[str]:
    """The days on which undated clicks count: as told, those of the chart, or the one of the name."""
    given = source.options.get("requests_day", "")
    if given and not DAY.fullmatch(given):
        raise InputError(f"--requests_day={given}: expected a day, such as 2026-06-30")
    if given or chart:
        return [given] if given else chart
    for name in (PurePosixPath(source.path).name, PurePosixPath(source.path).parent.name):
        if found := DAY.findall(name):
            return [str(found[-1])]
    raise InputError(
        f"{source.path}: this export does not say of which days its clicks are. Give the whole ZIP, a name "
        "with the day in it (Pages-2026-06-30.csv), or --requests_day 2026-06-30"
    )


def _rows(source: Source, rows: list[Row], chart: list[str]) -> Iterator[Block]:
    if len(rows) < 2:
        return
    days, names = _days(source, chart), rows[0][1]
    if len(names) != _COLUMNS:
        raise InputError(
            f"{source.path}: {len(names)} columns, expected {_COLUMNS}: page, clicks, impressions, CTR, "
            "position. Export without comparing periods"
        )
    bad = [(number, record) for number, record in rows[1:] if len(record) != len(names)]
    good = [(number, record) for number, record in rows[1:] if len(record) == len(names)]
    if len(rows) - 1 == ROW_LIMIT and source.notes is not None:
        source.notes.add(f"{source.kind.name}_gsc_truncated", 1)
    if bad:
        samples = [f"{len(r)} columns, expected {len(names)}: {','.join(r)}" for _, r in bad]
        yield rejected_rows(source.path, [number for number, _ in bad], "column_count", samples)
    if not good:
        return
    columns = {"url": [record[0] for _, record in good], "day": days[-1:] * len(good)}
    for i, name in enumerate(_COUNTS, 1):
        counts = ((record[i], _integer(record[i])) for _, record in good)
        columns[name] = [text if n is None else str(n) for text, n in counts]
    batch = pa.RecordBatch.from_pydict({name: pa.array(c, pa.string()) for name, c in columns.items()})
    numbers = np.array([number for number, _ in good], np.int64)
    if len(days) > 1:
        yield from spread(source.path, source.kind, batch, numbers, days)
    else:
        yield RawBlock(batch, lambda: numbers)


DIALECT = Dialect("search_console", "requests", "exports of Google Search Console", _looks_like, _read)
