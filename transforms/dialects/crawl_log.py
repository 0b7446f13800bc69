"""Heritrix' crawl.log: a line a fetch, fields padded with blanks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.dialects import Dialect, Source
from transforms.dialects.delimited_lines import Fields, split_fields
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.files.blocks import Block, RawBlock
from transforms.rows.normalise import rejected_rows

FIELDS = 12
_LOGGED, _STATUS, _URI, _PATH, _THREAD, _STARTED, _DIGEST, _NOTES = 0, 1, 3, 4, 7, 8, 9, 11
_USED = [_LOGGED, _STATUS, _URI, _PATH, _STARTED, _DIGEST, _NOTES]
_FIRST = re.compile(
    rb"\s*\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?\s+-?\d+\s+(\d+|-)\s+[a-z][a-z0-9+.-]*:\S+\s+(-|(\d+\+)?[A-Z.]*)\s+\S+\s+\S+\s+#\d+\s",
)
# Of pages that a crawler fetches for itself: robots.txt and host names, the last step of whose path is P.
_OWN = r"P\.?$"
_BLANKS = bytes.maketrans(b"\t\r", b"  ")
_UNCHANGED = r"(?:^|,)(?:duplicate:|warcRevisit:)"


def looks_like(path: str, text: bytes) -> bool:
    return _FIRST.match(text) is not None


def read(source: Source) -> Iterator[Block]:
    """Rows of a crawl.log.

    The time is that at which the fetch began, which may be long before the line was written. What another
    fetch was needed for, and what is not http, is left out; a fetch that failed is a row, and says nothing.
    """

    def rows(block: bytes, line: int) -> Iterator[Block]:
        fields = whole_fields(block, line, _USED)
        yield from _rows(source, fields)
        if fields.wrong:
            yield odd_rows(source.path, fields)

    return of_each(line_blocks(source.path, source.gzip), rows)


def whole_fields(block: bytes, line: int, use: list[int]) -> Fields:
    """Fields of the lines of a block, in order.

    A thirteenth one is JSON, may have blanks, and is cut off. Before Heritrix wrote a dash the twelfth was
    empty where there is nothing to note.
    """
    fields = split_fields(_packed(block), line, " ", FIELDS, use)
    others = [(number, _mended(text)) for number, text in fields.wrong]
    mended = [(number, text) for number, text in others if text]
    if not mended:
        return fields
    texts = "\n".join(text for _, text in mended)
    more = split_fields(texts.encode("utf-8", "surrogateescape"), 0, " ", FIELDS, use)
    numbers = np.append(fields.line, np.array([number for number, _ in mended], np.int64)[more.line])
    order = np.argsort(numbers, kind="stable")
    table = pa.concat_tables([fields.table, more.table]).take(pa.array(order))
    return Fields(table, numbers[order], [(n, text) for n, text in fields.wrong if not _mended(text)])


def odd_rows(path: str, fields: Fields) -> pa.RecordBatch:
    """The lines that have another number of fields, as rejected rows."""
    return rejected_rows(
        path,
        [number for number, _ in fields.wrong],
        "column_count",
        [f"{len(text.split(' '))} fields, expected {FIELDS}: {text}" for _, text in fields.wrong],
    )


def _packed(block: bytes) -> bytes:
    """Lines with one blank between their fields, none around them."""
    block = block.translate(_BLANKS)
    # As many at a time as most fields are padded with; a pattern takes thirty times as long.
    for many in (16, 4, 2):
        block = block.replace(b" " * many, b" ")
    while b"  " in block:
        block = block.replace(b"  ", b" ")
    return block.replace(b" \n", b"\n").replace(b"\n ", b"\n").strip(b" ")


def _mended(text: str) -> str:
    """A line of all fields and no more, made of one with JSON behind them or none to note; else nothing."""
    fields = text.split(" ", FIELDS)
    if len(fields) == FIELDS - 1 and fields[_THREAD].startswith("#"):
        return f"{text} -"
    more = len(fields) > FIELDS and fields[FIELDS].startswith("{")
    return " ".join(fields[:FIELDS]) if more else ""


def _rows(source: Source, fields: Fields) -> Iterator[Block]:
    if not len(fields.line):
        return
    logged, status, uri, path, started, digest, notes = fields.table.combine_chunks().columns
    own = np.asarray(pc.match_substring_regex(path, _OWN))
    web = np.asarray(pc.match_substring_regex(uri, r"^https?:", ignore_case=True))
    source.leave_out("prerequisite", int(own.sum()))
    source.leave_out("not_http", int((~own & ~web).sum()))
    keep = pa.array(~own & web)
    begun = pc.struct_field(pc.extract_regex(started, r"^(?P<at>\d{12,17})"), "at")
    none = pc.equal(digest, "-")
    columns = {
        "url": uri,
        "fetched_at": pc.if_else(pc.is_null(begun), logged, begun),
        "status": status,
        "digest": pc.if_else(none, None, digest),
        "not_modified": pc.match_substring_regex(notes, _UNCHANGED),
    }
    table = pa.table(columns).filter(keep).combine_chunks()
    numbers = fields.line[np.asarray(keep)]
    row = 0
    for batch in table.to_batches():
        part = numbers[row : row + batch.num_rows]
        row += batch.num_rows
        yield RawBlock(batch, lambda part=part: part)  # type: ignore[misc]


DIALECT = Dialect("heritrix", "observations", "crawl.log of Heritrix", looks_like, read)
