"""Dumps of Nutch' segments: what was fetched when, with its outlinks (`nutch readseg -dump`).

A record has a line with its number, one with its URL, and then sections in any order, each after a line with
its name: several CrawlDatums, of which one is of the fetch, and ParseData with the outlinks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import BoolArray, IntArray
from transforms.batches.errors import InputError
from transforms.dialects import Dialect, Source
from transforms.dialects.delimited_lines import line_texts, texts_of
from transforms.dialects.nutch import utc_dates
from transforms.dialects.text_blocks import MAX_RECORD_BYTES, line_blocks
from transforms.files.blocks import Block, RawBlock
from transforms.rows.normalise import rejected_rows

_BEGIN: Final = b"Recno:: "
_FIRST = re.compile(rb"\s*Recno:: \d+\r?\nURL:: ")
# Of a LinkDb: which pages link to one, and not when that was seen.
_INLINKS = re.compile(rb"\s*\S+\tInlinks:")
SECTIONS: Final = ("CrawlDatum::", "ParseData::", "Content::", "ParseText::")
_DATUM, _PARSED = 0, 1
_STATUS = r"^Status: \d+ \(fetch_(?P<name>\w+)\)"
# As a crawler that keeps a log would have seen it. What was not modified shows what it did before.
_HTTP: Final = {"success": 200, "retry": 503, "redir_temp": 302, "redir_perm": 301, "gone": 404}
UNCHANGED: Final = "notmodified"


def looks_like(path: str, text: bytes) -> bool:
    return (_FIRST.match(text) or _INLINKS.match(text)) is not None


def read(source: Source) -> Iterator[Block]:
    """A row a link of a page that was fetched; one without a target for a fetch that showed or got none.

    Raises
    ------
    InputError
        For a dump of a LinkDb, and for local times.
    """
    held, first = b"", 1
    for item in line_blocks(source.path, source.gzip):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        block, line = item
        if line == 1 and _INLINKS.match(block):
            raise InputError(
                f"{source.path}: a dump of Nutch' LinkDb, which does not say when a link was seen. Dump the "
                "segments: nutch readseg -dump SEGMENT DIR -nocontent -noparsetext"
            )
        first = first if held else line
        held += block
        end = held.rfind(b"\n" + _BEGIN) + 1
        if not end and len(held) > MAX_RECORD_BYTES:
            sample = held[:200].decode("utf-8", "replace")
            yield rejected_rows(source.path, [first], "record_too_long", [sample])
            held = b""
        if end:
            yield from _rows(source, held[:end], first)
            first, held = first + held.count(b"\n", 0, end), held[end:]
    if held:
        yield from _rows(source, held, first)


def _rows(source: Source, block: bytes, line: int) -> Iterator[Block]:
    texts, numbers = line_texts(block, line)
    begins = np.asarray(pc.starts_with(texts, _BEGIN.decode()))
    if not len(begins):
        return
    record = np.cumsum(begins) - 1
    section, named = _sections(texts, begins)
    count = int(record[-1]) + 1
    start = np.flatnonzero(begins)
    # The line after the number; what a record lacks is null.
    address = texts.take(pa.array(np.minimum(start + 1, len(record) - 1)))
    url = pc.struct_field(pc.extract_regex(address, r"^URL:: (?P<url>\S+)"), "url")
    fetch = _in(texts, section == _DATUM, _STATUS, "name")
    at = np.flatnonzero(np.asarray(fetch.is_valid()))
    outcome = np.full(count, -1)
    names = [*_HTTP, UNCHANGED]
    outcome[record[at]] = np.array([_place(n, names) for n in texts_of(fetch.take(pa.array(at)))], np.int64)
    # The time of the fetch is in the same section as its status.
    time = _in(texts, section == _DATUM, r"^Fetch time: (?P<time>.+?)\s*$", "time")
    of_fetch = np.isin(named, named[at]) & np.asarray(time.is_valid())
    when = np.full(count, np.nan)
    rows = np.flatnonzero(of_fetch)
    when[record[rows]] = utc_dates(time.take(pa.array(rows)), source.path)
    # Of a page that could not be parsed there are data, too, without links.
    result = _in(texts, section == _PARSED, r"^Status: (?P<name>\w+)\(", "name")
    said = _in(texts, section == _PARSED, r"^Outlinks: (?P<number>\d{1,9})", "number")
    rows = np.flatnonzero(np.asarray(said.is_valid()))
    number = np.full(count, -1)
    number[record[rows]] = said.take(pa.array(rows)).cast(pa.int64()).to_numpy()
    number[record[np.asarray(pc.fill_null(pc.not_equal(result, "success"), False))]] = -1
    parsed = number >= 0
    # As bytes: one that is not UTF-8 is rejected where targets are read.
    link = _in(
        texts.view(pa.binary()), section == _PARSED, r"^\s*outlink: toUrl: (?P<url>.+?) anchor:", "url"
    )
    link = link.view(pa.string())
    fetched = np.zeros(count, np.bool_)
    fetched[record[at]] = True
    links = np.bincount(record[np.asarray(link.is_valid())], minlength=count)
    has_links = links > 0
    good = fetched & np.isfinite(when) & (outcome >= 0) & np.asarray(url.is_valid())
    odd = (fetched | has_links) & ~good
    if odd.any():
        samples = texts_of(address.filter(pa.array(odd)))
        yield rejected_rows(source.path, numbers[start[odd]].tolist(), "not_nutch", samples)
    source.leave_out("never_fetched", int((~fetched & ~has_links).sum()))
    succeeded = outcome == 0
    same, unread = good & (outcome == len(_HTTP)), good & succeeded & ~parsed
    source.leave_out("not_modified", int(same.sum()))
    source.leave_out("not_parsed", int(unread.sum()))
    good &= ~same & ~unread
    lines = np.flatnonzero(np.asarray(link.is_valid()))
    lines = lines[(good & succeeded)[record[lines]]]
    none = np.flatnonzero(good & ~(succeeded & has_links))
    of = np.concatenate([record[lines], none])
    target = pa.concat_arrays([link.take(pa.array(lines)), pa.nulls(len(none), pa.string())])
    place = np.concatenate([numbers[lines], numbers[start[none]]])
    order = np.argsort(place, kind="stable")
    of, place = of[order], place[order]
    codes = np.array([*_HTTP.values(), 0])
    batch = pa.RecordBatch.from_pydict(
        {
            "source": url.take(pa.array(of)),
            "target": target.take(pa.array(order)),
            "seen_at": pa.array((when[of] * 1e6).astype(np.int64)),
            "status": pa.array(codes[outcome[of]]),
            # A dump that ends in the middle of them has fewer links than it says.
            "partial": pa.array((succeeded & (links < number))[of]),
        }
    )
    if len(place):
        yield RawBlock(batch, lambda: place)


def _sections(texts: pa.Array, begins: BoolArray) -> tuple[IntArray, IntArray]:
    """Of each line its section, an index into `SECTIONS`, -1 for none, and the line that names it."""
    name = pc.fill_null(pc.index_in(texts, pa.array(SECTIONS)), -1).to_numpy(zero_copy_only=False)
    last = np.maximum.accumulate(np.where((name >= 0) | begins, np.arange(len(name)), 0))
    return name[last].astype(np.int64), last


def _in(texts: pa.Array, rows: BoolArray, pattern: str, name: str) -> pa.Array:
    """What a pattern finds in some lines, null in others: (n,), of the type of the lines."""
    at = np.flatnonzero(rows)
    found = pc.struct_field(pc.extract_regex(texts.take(pa.array(at)), pattern), name)
    back = np.full(len(rows), -1)
    back[at] = np.arange(len(at))
    return found.take(pa.array(back, mask=back < 0))


def _place(name: str, names: list[str]) -> int:
    return names.index(name) if name in names else -1


DIALECT = Dialect("nutch", "links_seen", "outlinks of a dump of Nutch' segments", looks_like, read)
