"""Status documents of StormCrawler: the state of each page, which a night folds like one fetch of it.

A page that was not fetched between two dumps gives the same row twice, which the fold counts once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches.times import parse_times
from transforms.dialects import Dialect, Source
from transforms.dialects.delimited_lines import pages_of, texts_of
from transforms.dialects.json_rows import Records, parse
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.files.blocks import Block, RawBlock
from transforms.rows.normalise import rejected_rows

DISCOVERED, FETCH_ERROR, ERROR, REDIRECTION = "DISCOVERED", "FETCH_ERROR", "ERROR", "REDIRECTION"
STATUSES = (DISCOVERED, "FETCHED", FETCH_ERROR, ERROR, REDIRECTION)
NO_STATUS = ""
_MARKS = re.compile(rb'"status"\s*:\s*"(?:' + "|".join(STATUSES).encode() + rb')"')
_MORE_MARKS = re.compile(rb'"(?:nextFetchDate|_source)"\s*:|"metadata"\s*:\s*\{')
_LISTS = pa.list_(pa.string())
PLANNED = ("recrawl%2Ereason", "recrawl.reason")
"""What `recrawl export` sets and a fetch removes: until then the due date is recrawl's own."""
# Always kept, and gone with the next fetch that works: all that tells of one where there is no status, as in
# URLFrontier.
_FAILURES = ("fetch%2Eerror%2Ecount", "fetch.error.count")
METADATA = (
    "fetch%2EstatusCode",
    "fetch.statusCode",
    "signature",
    "lastProcessedDate",
    "fetchInterval",
    *_FAILURES,
    *PLANNED,
)
_METADATA = pa.struct([(name, _LISTS) for name in METADATA])
_DOCUMENT = [
    ("url", pa.string()),
    ("status", pa.string()),
    ("nextFetchDate", pa.string()),
    ("metadata", _METADATA),
]
_SCHEMA = pa.schema([*_DOCUMENT, ("_source", pa.struct(_DOCUMENT))])
_MINUTE_US = 60_000_000
# A fetch that got no answer of HTTP: says nothing, as in a crawl log.
_NO_ANSWER = 599


def looks_like(path: str, text: bytes) -> bool:
    """A log with recrawl's columns may have these words, too."""
    own = b'"url"' not in text or b'"fetched_at"' in text
    return text.lstrip(b"[ \r\n").startswith(b"{") and _MARKS.search(text) is not None and not own


def _looks_like_pages(path: str, text: bytes) -> bool:
    """A list of pages may well have a column of that status, but not what else documents have."""
    return looks_like(path, text) and _MORE_MARKS.search(text) is not None


def read(source: Source) -> Iterator[Block]:
    """Rows of a dump of the status index: bare documents, with `_source`, or a whole answer with hits.

    A page was fetched at `lastProcessedDate` (where the metadata persists it), else one `fetchInterval`, in
    minutes, before `nextFetchDate`; without these it is left out, as where recrawl has set that date.
    """

    def rows(
        column: Column, first: Column, known: NDArray[np.bool_], line: NDArray[np.int64]
    ) -> Iterator[Block]:
        metadata = {n: first(n) for n in METADATA}
        due = column("nextFetchDate")
        return rows_of_state(source, column("url"), column("status"), due, metadata, line, known)

    return of_each(_documents(source), rows)


def read_pages(source: Source) -> Iterator[Block]:
    """All URLs of a dump of the status index, also those that were never fetched."""
    return of_each(
        _documents(source),
        lambda column, _, known, line: pages_of(column("url").filter(pa.array(known)), line[known]),
    )


Column = Callable[[str], pa.Array]


def _documents(
    source: Source,
) -> Iterator[tuple[Column, Column, NDArray[np.bool_], NDArray[np.int64]] | pa.RecordBatch]:
    """Documents of a dump, and rejected rows.

    Of documents two functions that give a field, and the first value of a field of the metadata, by its name;
    which documents are sound; and each one's line.
    """

    def read(block: bytes, line: int) -> Iterator[Any]:
        records = parse(_without_hits(block), line, _SCHEMA, source.path)
        if records.rejected is not None:
            yield records.rejected
        if len(records.line):
            yield from _checked(source, records, block, line)

    return of_each(line_blocks(source.path, source.gzip), read)


def _without_hits(block: bytes) -> bytes:
    """Answers of a search on one line as their documents."""
    if b'"hits"' not in block:
        return block
    lines = []
    for raw in block.split(b"\n"):
        try:
            hits = json.loads(raw)["hits"]["hits"] if b'"hits"' in raw else None
        except (ValueError, KeyError, TypeError, RecursionError):
            hits = None
        # The last answer of a scroll has none.
        lines.append(raw if hits is None else b"" if hits == [] else json.dumps(hits).encode())
    return b"\n".join(lines)


def _checked(
    source: Source, records: Records, block: bytes, begin: int
) -> Iterator[tuple[Column, Column, NDArray[np.bool_], NDArray[np.int64]] | pa.RecordBatch]:
    bare, wrapped = records.table, records.table["_source"].combine_chunks()
    inside = pa.array(np.asarray(wrapped.is_valid()))

    def column(name: str) -> pa.Array:
        return pc.if_else(inside, pc.struct_field(wrapped, name), bare[name].combine_chunks())

    def first(name: str) -> pa.Array:
        return pc.if_else(inside, _first(wrapped, name), _first(bare, name))

    known = np.asarray(pc.is_in(column("status"), pa.array(STATUSES))) & np.asarray(column("url").is_valid())
    if not known.all():
        numbers, lines = records.line[~known].tolist(), block.split(b"\n")
        samples = [lines[number - begin].decode("utf-8", "replace") for number in numbers]
        yield rejected_rows(source.path, numbers, "not_stormcrawler", samples)
    yield column, first, known, records.line


def _first(holder: pa.Table | pa.Array, name: str) -> pa.Array:
    """The first value of a list of the metadata."""
    if isinstance(holder, pa.Table):
        holder = holder["metadata"].combine_chunks()
    else:
        holder = pc.struct_field(holder, "metadata")
    return first_of(pc.struct_field(holder, name))


def first_of(lists: pa.Array) -> pa.Array:
    """First values of lists, null where a list is empty or none."""
    none = pc.fill_null(pc.equal(pc.list_value_length(lists), 0), True)
    begin = np.asarray(lists.offsets)[: len(lists)]
    return lists.values.take(pa.array(begin, mask=np.asarray(none)))


def rows_of_state(
    source: Source,
    url: pa.Array,
    status: pa.Array,
    next_fetch: pa.Array,
    metadata: dict[str, pa.Array],
    line: NDArray[np.int64],
    known: NDArray[np.bool_],
) -> Iterator[Block]:
    """Rows of pages by what a store says of them (`NO_STATUS`: nothing); `known` are those that are sound."""
    new = known & np.asarray(pc.equal(status, DISCOVERED).fill_null(False))
    source.leave_out("never_fetched", int(new.sum()))
    due, bad_due = parse_times(next_fetch)
    due = due.cast(pa.int64())
    minutes = pc.cast(
        pc.if_else(_is_number(metadata["fetchInterval"]), metadata["fetchInterval"], None), "double"
    )
    before = pc.cast(pc.round(pc.multiply(minutes, float(_MINUTE_US))), pa.int64(), safe=False)
    planned = pc.or_(*(metadata[name].is_valid() for name in PLANNED))
    before = pc.if_else(planned, None, before)
    seen, bad_seen = parse_times(metadata["lastProcessedDate"])
    at = pc.coalesce(seen.cast(pa.int64()), pc.subtract(due, before))
    timed = np.asarray(at.is_valid())
    bad = np.zeros(len(known), np.bool_)
    for mask, needs in ((bad_seen, True), (bad_due, np.asarray(before.is_valid()))):
        bad |= False if mask is None else known & ~new & ~timed & mask & needs
    if bad.any():
        some = pa.array(np.flatnonzero(bad))
        shown = zip(
            *(texts_of(c.take(some)) for c in (url, metadata["lastProcessedDate"], next_fetch)), strict=True
        )
        samples = [f"{u} | lastProcessedDate={s} | nextFetchDate={n}" for u, s, n in shown]
        yield rejected_rows(source.path, line[bad].tolist(), "bad_timestamp", samples)
    source.leave_out("no_fetch_time", int((known & ~new & ~timed & ~bad).sum()))
    keep = pa.array(known & ~new & timed)
    failed = pc.or_(
        pc.is_in(status, pa.array([FETCH_ERROR, ERROR])),
        pc.and_(pc.equal(status, NO_STATUS), pc.or_(*(metadata[name].is_valid() for name in _FAILURES))),
    )
    moved = pc.equal(status, REDIRECTION)
    usual = pc.if_else(failed, str(_NO_ANSWER), pc.if_else(moved, "301", "200"))
    code = pc.coalesce(metadata["fetch%2EstatusCode"], metadata["fetch.statusCode"], usual)
    # A fetch without an answer leaves the code of the one before.
    left = pc.and_(failed, pc.invert(pc.match_substring_regex(code, r"^[45]\d\d$")))
    code = pc.if_else(left, str(_NO_ANSWER), code)
    same = pc.equal(code, "304")
    table = pa.table(
        {
            "url": url,
            "fetched_at": at,
            # It has the content of this signature still: a visit with a digest to compare, or to begin with.
            "status": pc.if_else(same, None, code),
            # That of a page that is gone or has moved is of the content that it had.
            "digest": pc.if_else(
                pc.or_(moved, pc.is_in(code, pa.array(["404", "410"]))), None, metadata["signature"]
            ),
            "not_modified": same,
        }
    ).filter(keep)
    numbers = line[np.asarray(keep)]
    for batch in table.combine_chunks().to_batches():
        yield RawBlock(batch, lambda numbers=numbers: numbers)  # type: ignore[misc]


def _is_number(texts: pa.Array) -> pa.Array:
    return pc.match_substring_regex(texts, r"^\d{1,9}(\.\d*)?$")


DIALECT = Dialect("stormcrawler", "observations", "status documents of StormCrawler", looks_like, read)
PAGES = Dialect("stormcrawler", "pages", "all URLs of a status index", _looks_like_pages, read_pages)
