"""Items of Scrapy with the links of a page: JSON Lines, `url`, `links` (a list of URLs), time and status."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.batches.urls import trim
from transforms.dialects import Dialect, Source
from transforms.dialects.json_rows import parse
from transforms.dialects.scrapy import TIMES
from transforms.dialects.text_blocks import line_blocks
from transforms.dialects.wat import resolved
from transforms.files.blocks import Block, RawBlock

_TIMES = ("seen_at", *TIMES)
LINKS = ("links", "outlinks")
_MOST = 100
"""Items that are looked at for one with links: fetches that failed may have none."""
_LISTED = re.compile(rb'"(?:out)?links"\s*:\s*\[')
_PERHAPS = re.compile(rb'"(?:out)?links"\s*:\s*\[[^\]{]*\{')
_OBJECT = re.compile(rb'"(?:out)?links"\s*:\s*\[\s*(?:"(?:[^"\\]|\\.)*"\s*,\s*)*\{')


def looks_like(path: str, text: bytes) -> bool:
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n", _MOST)[:_MOST]:
        item = line.lstrip(b"[, \r")
        if not item:
            continue
        try:
            record, _ = json.JSONDecoder().raw_decode(item.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            # An item of many links is longer than what is looked at.
            return item.startswith(b"{") and text.endswith(line) and _LISTED.search(item) is not None
        if not isinstance(record, dict) or "url" not in record:
            return False
        if any(isinstance(record.get(name), list) for name in LINKS):
            return any(name in record for name in _TIMES)
    return False


def read(source: Source) -> Iterator[Block]:
    """A row a link; one without a target for an item that has none. Links are as pages have them."""
    for item in line_blocks(source.path, source.gzip):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        schema = _schema(item[0])
        found = parse(*item, schema, source.path)
        if found.rejected is not None:
            yield found.rejected
        columns = {name: found.table.column(name).combine_chunks() for name in schema.names}
        lists = pc.coalesce(*(columns[n] for n in LINKS))
        number = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(number)), np.maximum(number, 1))
        first = np.cumsum(np.maximum(number, 1)) - np.maximum(number, 1)
        at = np.full(len(rows), -1)
        at[np.isin(np.arange(len(rows)), first[number == 0], invert=True)] = np.arange(int(number.sum()))
        targets, of = pc.list_flatten(lists), pa.array(rows)
        if pa.types.is_struct(targets.type):
            targets = pc.struct_field(targets, "url")
        targets = trim(targets.take(pa.array(at, mask=at < 0)))
        # A mark within the page leads to itself, as does nothing.
        none = pc.match_substring_regex(targets, "^(?:#|$)")
        targets = resolved(columns["url"].take(of), pc.if_else(none, None, targets))
        batch = pa.RecordBatch.from_pydict(
            {
                "source": columns["url"].take(of),
                "target": targets,
                "seen_at": pc.coalesce(*(columns[n] for n in _TIMES)).take(of),
                "status": columns["status"].take(of),
            }
        )
        numbers = found.line[rows]
        yield RawBlock(batch, lambda numbers=numbers: numbers)  # type: ignore[misc]


def _schema(block: bytes) -> pa.Schema:
    """Links are texts, or objects where any of the block is one, as Scrapy's own `Link` is written."""
    texts: pa.DataType = pa.string()
    nested = block.count(b"{") > block.count(b"\n") + 1  # each look is ten times as dear as the one before
    nested = nested and _PERHAPS.search(block) is not None and _OBJECT.search(block) is not None
    link = pa.struct([("url", texts)]) if nested else texts
    return pa.schema([(n, texts) for n in ("url", "status", *_TIMES)] + [(n, pa.list_(link)) for n in LINKS])


DIALECT = Dialect("scrapy", "links_seen", "items of Scrapy with lists of links", looks_like, read)
