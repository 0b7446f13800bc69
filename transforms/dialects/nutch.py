"""Dumps of Nutch' CrawlDb, as CSV or JSON: the state of each page, which a night folds like one fetch of it.

A dump says when a page is due next; its last fetch was one interval before that. A page that was not fetched
between two dumps gives the same row twice, which the fold counts once: two nights' dumps are an observation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches.errors import InputError
from transforms.batches.zones import zone_of
from transforms.dialects import Dialect, Source
from transforms.dialects.delimited_lines import line_texts, pages_of, texts_of
from transforms.dialects.json_rows import parse
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.files.blocks import Block, RawBlock
from transforms.files.unpacking import head_of
from transforms.rows.normalise import rejected_rows

HEAD = b"Url,Status code,Status name,Fetch Time,Modified Time,Retries since fetch,Retry interval seconds,"
# What `readdb -dump` writes if nothing else is asked for: each page in many lines, a blank one behind it.
_TEXT = re.compile(rb"\s*\S+\tVersion: \d+\r?\nStatus: \d+ \(")
_JSON_MARKS = (b'"statusCode"', b'"retryIntervalSeconds"', b'"fetchTime"')
UNFETCHED, FETCHED, GONE, MOVED_FOR_NOW, MOVED, NOT_MODIFIED, DUPLICATE, ORPHAN, UNPARSED = range(1, 10)
# As a crawler that keeps a log would have seen it; 0: never, or no longer.
_HTTP: Final = {
    UNFETCHED: 0,
    ORPHAN: 0,
    FETCHED: 200,
    GONE: 404,
    MOVED_FOR_NOW: 302,
    MOVED: 301,
    NOT_MODIFIED: 200,
    DUPLICATE: 200,
    UNPARSED: 200,
}
_DATE = r"\w{3} \w{3} \d\d \d\d:\d\d:\d\d \S+ \d{4}"
# Nothing is escaped: a URL may have quotes and commas, so it ends where all that follows fits.
_ROW = (
    rf'^"(?P<url>.*)",(?P<code>\d+),"\w+",(?P<due>{_DATE}),(?P<modified>{_DATE}),(?P<retries>-?\d+),'
    r'(?P<interval>[0-9.E+-]+),[0-9.E+-]+,[^,]*,"(?P<signature>[^",]*)"'
)
_NAMES = ("url", "code", "due", "modified", "interval", "signature")
_ZONES = {"UTC": "UTC", "GMT": "UTC", "Z": "UTC"}
_MONTHS = {n: i for i, n in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}
_JSON = pa.schema(
    [
        (n, pa.string())
        for n in ("url", "statusCode", "fetchTime", "modifiedTime", "retryIntervalSeconds", "signature")
    ]
)


def looks_like(path: str, text: bytes) -> bool:
    if text.lstrip(b"\r\n").startswith(HEAD) or _TEXT.match(text):
        return True
    first = text.lstrip(b"[ \r\n").split(b"\n", 1)[0]
    return first.startswith(b"{") and all(mark in first for mark in _JSON_MARKS)


def read(source: Source) -> Iterator[Block]:
    """Rows of a dump, one for each page that was ever fetched.

    Options: `observations_timezone`, since the dates have the abbreviation of a local zone;
    `nutch_sync_delta_rate` for crawls by AdaptiveFetchSchedule with sync_delta, which brings the due time
    forward by this share of the page's age.

    Raises
    ------
    InputError
        For an option that cannot be, a local time without `observations_timezone`, or a dump as text.
    """
    zone, rate = _zone(source), _rate(source)
    yield from of_each(_records(source), lambda table, line: _rows(source, table, line, zone, rate))


def read_pages(source: Source) -> Iterator[Block]:
    """All URLs of a dump, also those that were never fetched.

    Raises
    ------
    InputError
        For a dump as text.
    """
    return of_each(_records(source), lambda table, line: pages_of(table["url"], line))


def _records(source: Source) -> Iterator[tuple[pa.Table, NDArray[np.int64]] | pa.RecordBatch]:
    """Tables of what a dump has of its pages, with each row's line, and rejected rows."""
    _refuse_text(source.path)
    yield from of_each(line_blocks(source.path, source.gzip), partial(_read_block, source))


def _read_block(
    source: Source, block: bytes, line: int
) -> Iterator[tuple[pa.Table, NDArray[np.int64]] | pa.RecordBatch]:
    if line == 1:
        block = block.removeprefix(b"\xef\xbb\xbf")
    if block.lstrip(b"\xef\xbb\xbf[ \r\n").startswith(b"{"):
        records = parse(block, line, _JSON, source.path)
        if records.rejected is not None:
            yield records.rejected
        columns = dict(zip(_NAMES, records.table.columns, strict=True))
        yield pa.table(columns), records.line
    else:
        yield from _read_csv(source, block, line)


def _refuse_text(path: str) -> None:
    if _TEXT.match(head_of(path)):
        raise InputError(
            f"{path}: a dump of Nutch as text, expected JSON. Dump again: nutch readdb CRAWLDB -dump DIR "
            "-format json"
        )


def _read_csv(
    source: Source, block: bytes, line: int
) -> Iterator[tuple[pa.Table, NDArray[np.int64]] | pa.RecordBatch]:
    texts, numbers = line_texts(block, line)
    # Every part of a dump has a header, and metadata may have line breaks, whose rest is no row.
    found = pc.extract_regex(texts, _ROW)
    good = np.asarray(found.is_valid())
    # Behind a header that lost its line end there would be pages.
    header = np.asarray(
        pc.and_(pc.starts_with(texts, HEAD.decode()), pc.invert(pc.match_substring(texts, '"')))
    )
    begins = np.asarray(pc.match_substring_regex(texts, r'^"\w+:'))
    source.leave_out("rest_of_metadata", int((~good & ~header & ~begins).sum()))
    bad = np.flatnonzero(~good & ~header & begins)
    if len(bad):
        samples = texts_of(texts.take(pa.array(bad)))
        yield rejected_rows(source.path, numbers[bad].tolist(), "not_nutch", samples)
    rows = found.filter(pa.array(good))
    yield pa.table({n: pc.struct_field(rows, n) for n in _NAMES}), numbers[good]


def _rows(
    source: Source, table: pa.Table, numbers: NDArray[np.int64], zone: ZoneInfo | None, rate: float
) -> Iterator[Block]:
    codes = texts_of(table["code"])
    status = np.array([_HTTP.get(int(c), -1) if c.isascii() and c.isdigit() else -1 for c in codes], np.int64)
    source.leave_out("never_fetched", int((status == 0).sum()))
    keep = np.flatnonzero(status != 0)
    table, status, numbers = table.take(pa.array(keep)), status[keep], numbers[keep]
    code = table["code"]
    same, lost = (np.asarray(pc.equal(code, str(one))) for one in (NOT_MODIFIED, GONE))
    due_s, modified_s = (_dates(table[name], zone, source.path) for name in ("due", "modified"))
    interval = pc.if_else(_is_number(table["interval"]), table["interval"], None)
    fetched_s = due_s - pc.cast(interval, pa.float64()).to_numpy()
    if rate:
        aged = modified_s > 0.0
        fetched_s[aged] = (fetched_s[aged] - rate * modified_s[aged]) / (1.0 - rate)
    # What is no such time is rejected where times are read, or here where it is none at all.
    bad = ~(np.abs(fetched_s) < 1e11) | (status < 0)
    if bad.any():
        rows = np.flatnonzero(bad)
        some = table.take(pa.array(rows))
        samples = [" | ".join(texts) for texts in zip(*map(texts_of, some.columns), strict=True)]
        yield rejected_rows(source.path, numbers[rows].tolist(), "not_nutch", samples)
    good = np.flatnonzero(~bad)
    if not len(good):
        return
    some = table.take(pa.array(good)).combine_chunks()
    signature = some["signature"]
    batch = pa.table(
        {
            "url": some["url"],
            "fetched_at": pa.array(np.round(fetched_s[good] * 1e6).astype(np.int64)),
            "status": pa.array(status[good]),
            # That of a page gone is of the content that it had.
            "digest": pc.if_else(pc.or_(pc.equal(signature, "null"), pa.array(lost[good])), None, signature),
            # It has the content of this signature still: a visit with a digest to compare, or to begin with.
            "not_modified": pa.array(same[good]),
        }
    )
    lines = numbers[good]
    for part in batch.combine_chunks().to_batches():
        yield RawBlock(part, lambda lines=lines: lines)  # type: ignore[misc]


def _is_number(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.match_substring_regex(texts, r"^\d+(\.\d*)?([eE][+-]?\d+)?$")


def _dates(texts: pa.ChunkedArray, zone: ZoneInfo | None, path: str) -> NDArray[np.float64]:
    """Seconds since 1970 of `java.util.Date` texts, NaN where one is none; each distinct text once."""
    encoded = texts.combine_chunks().dictionary_encode() if isinstance(texts, pa.ChunkedArray) else texts
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    values = np.array([_date(t, zone, path) for t in texts_of(encoded.dictionary)] + [np.nan])
    return values[encoded.indices.fill_null(len(values) - 1).to_numpy()]


def utc_dates(texts: pa.Array, path: str) -> NDArray[np.float64]:
    """Seconds since 1970 of dates that must be UTC, NaN where one is none.

    Raises
    ------
    InputError
        For a date of another zone.
    """
    for text in texts_of(texts.unique()):
        parts = text.split()
        if len(parts) == 6 and parts[1] in _MONTHS and parts[4] not in _ZONES:
            raise InputError(f"{path}: {text!r} is a local time; dump again with TZ=UTC in the environment")
    return _dates(pa.chunked_array([texts]), None, path)


@lru_cache(1 << 16)
def _date(text: str, zone: ZoneInfo | None, path: str) -> float:
    parts = text.split()
    if len(parts) != 6 or parts[1] not in _MONTHS:
        return float("nan")
    try:
        hour, minute, second = map(int, parts[3].split(":"))
        civil = (int(parts[5]), _MONTHS[parts[1]], int(parts[2]), hour, minute, second)
        if parts[4] in _ZONES:
            return datetime(*civil, tzinfo=UTC).timestamp()
        if zone is None:
            raise InputError(
                f"{path}: {text!r} is a local time; say whose, e.g. --observations_timezone=Europe/Berlin"
            )
        # The hour that comes twice in autumn: the abbreviation tells which.
        for fold in (0, 1):
            moment = datetime(*civil, tzinfo=zone, fold=fold)
            if moment.tzname() == parts[4]:
                return moment.timestamp()
        raise InputError(
            f"{path}: {text!r}: {zone.key} has no {parts[4]} then; give another --observations_timezone"
        )
    except (ValueError, OverflowError):
        return float("nan")


def _zone(source: Source) -> ZoneInfo | None:
    name = source.options.get("observations_timezone")
    return zone_of(name) if name else None


def _rate(source: Source) -> float:
    text = source.options.get("nutch_sync_delta_rate") or "0"
    if not re.fullmatch(r"0(\.\d+)?", text):
        raise InputError(f"--nutch_sync_delta_rate={text}: give a number from 0 to below 1; Nutch has 0.3")
    return float(text)


DIALECT = Dialect("nutch", "observations", "dump of Nutch' CrawlDb, CSV or JSON", looks_like, read)
PAGES = Dialect("nutch", "pages", "all URLs of a dump of Nutch' CrawlDb", looks_like, read_pages)
