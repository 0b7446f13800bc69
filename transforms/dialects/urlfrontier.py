"""Dumps of URLFrontier, a line a URL. It keeps no fetches: these are what a crawler put into the metadata."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.dialects import Dialect, Source
from transforms.dialects.delimited_lines import pages_of
from transforms.dialects.json_rows import parse
from transforms.dialects.stormcrawler import METADATA, NO_STATUS, first_of, rows_of_state
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.files.blocks import Block
from transforms.rows.normalise import rejected_rows

_STATES = ("known", "discovered")
_BARE = re.compile(rb"\s*https?://\S+\s*$")
_AND_A_NUMBER = re.compile(rb".*[;,]\d+(?:\.\d+)?\s*(?:[;,].*)?$")
_VALUES = pa.struct([("values", pa.list_(pa.string()))])
_INFO = pa.struct([("url", pa.string()), ("metadata", pa.struct([(n, _VALUES) for n in METADATA]))])
_SCHEMA = pa.schema(
    [
        (
            "known",
            pa.struct(
                [
                    ("info", _INFO),
                    ("refetchableFromDate", pa.string()),
                    ("refetchable_from_date", pa.string()),
                ]
            ),
        ),
        ("discovered", pa.struct([("info", _INFO)])),
    ]
)


def looks_like(path: str, text: bytes) -> bool:
    lines = (line for line in text.split(b"\n") if line.strip() and not _BARE.match(line))
    first = next(lines, b"")
    try:
        item = json.loads(first)
    except (ValueError, RecursionError):  # cut, or none
        first = first.replace(b" ", b"")
        return (b'{"known":{' in first or b'"discovered":{' in first) and b'"info":{' in first
    states = [item.get(name) for name in _STATES] if isinstance(item, dict) else []
    return any(isinstance(state, dict) and "info" in state for state in states)


def _looks_like_pages(path: str, text: bytes) -> bool:
    """Also a list of bare URLs, which the client takes as well; not URLs and times as it lists them."""
    if looks_like(path, text):
        return True
    lines = [line for line in text.split(b"\n") if line.strip()]
    if len(lines) > 1 and not text.endswith(b"\n"):
        del lines[-1]  # cut, perhaps
    return bool(lines) and all(map(_BARE.match, lines)) and not all(map(_AND_A_NUMBER.match, lines))


def read(source: Source) -> Iterator[Block]:
    """Rows of URLs whose metadata say when they were fetched: those of StormCrawler, if it persists them.

    A line that is a bare URL is one that was never fetched.
    """
    return of_each(line_blocks(source.path, source.gzip), partial(_rows, source))


def read_pages(source: Source) -> Iterator[Block]:
    """All URLs of a dump, also those that were never fetched."""
    return of_each(line_blocks(source.path, source.gzip), partial(_pages, source))


def _pages(source: Source, block: bytes, line: int) -> Iterator[Block]:
    records = parse(block, line, _SCHEMA, source.path)
    lines = block.split(b"\n")
    url = pc.coalesce(*(pc.struct_field(records.table[n].combine_chunks(), ["info", "url"]) for n in _STATES))
    there = np.asarray(url.is_valid())
    if not there.all():
        yield _refused(source, lines, line, records.line[~there])
    urls, numbers = url.drop_null(), records.line[there]
    if records.rejected is not None:
        others = records.rejected.column("row").to_numpy()
        # Its samples are cut, a URL must not be.
        texts = [lines[n - line].strip() for n in others.tolist()]
        bare = np.array([_BARE.match(text) is not None for text in texts], np.bool_)
        if not bare.all():
            yield records.rejected.filter(pa.array(~bare))
        more = [text.decode("utf-8", "replace") for text, is_url in zip(texts, bare, strict=True) if is_url]
        urls = pa.concat_arrays([urls, pa.array(more, pa.string())])
        numbers = np.append(numbers, others[bare])
    order = np.argsort(numbers, kind="stable")
    yield from pages_of(urls.take(pa.array(order)), numbers[order])


def _refused(source: Source, lines: list[bytes], line: int, numbers: NDArray[np.int64]) -> pa.RecordBatch:
    """Rejected rows of a block whose first line has the number `line`."""
    samples = [lines[n - line].decode("utf-8", "replace") for n in numbers.tolist()]
    return rejected_rows(source.path, numbers.tolist(), "not_urlfrontier", samples)


def _rows(source: Source, block: bytes, line: int) -> Iterator[Block]:
    records = parse(block, line, _SCHEMA, source.path)
    if records.rejected is not None:
        bare = np.asarray(pc.match_substring_regex(records.rejected.column("sample"), r"^https?://\S+$"))
        source.leave_out("never_fetched", int(bare.sum()))
        if not bare.all():
            yield records.rejected.filter(pa.array(~bare))
    if not len(records.line):
        return
    known, found = (records.table[n].combine_chunks() for n in _STATES)
    info = pc.struct_field(known, "info")
    there = np.asarray(pc.struct_field(info, "url").is_valid())
    new = np.asarray(pc.struct_field(found, ["info", "url"]).is_valid()) & ~there
    source.leave_out("never_fetched", int(new.sum()))
    other = np.flatnonzero(~there & ~new)
    if len(other):
        yield _refused(source, block.split(b"\n"), line, records.line[other])
    kept = pc.struct_field(info, "metadata")
    metadata = {n: first_of(pc.struct_field(pc.struct_field(kept, n), "values")) for n in METADATA}
    due = pc.coalesce(
        pc.struct_field(known, "refetchableFromDate"), pc.struct_field(known, "refetchable_from_date")
    )
    # 0 is how URLFrontier says that a page is never due.
    due = pc.if_else(pc.equal(due, "0"), None, due)
    status = pa.repeat(NO_STATUS, len(there))
    url = pc.struct_field(info, "url")
    yield from rows_of_state(source, url, status, due, metadata, records.line, there)


DIALECT = Dialect("urlfrontier", "observations", "dump of URLFrontier, JSON Lines", looks_like, read)
PAGES = Dialect("urlfrontier", "pages", "all URLs of a dump of URLFrontier", _looks_like_pages, read_pages)
SOURCES = replace(PAGES, kind="sources")
