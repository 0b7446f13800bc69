"""Items of Scrapy with the links of a page: JSON Lines, `url`, `links` (a list of URLs), time and status."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.dialects import Dialect, Source
from transforms.dialects.json_rows import parse
from transforms.dialects.scrapy import TIMES
from transforms.dialects.textformats import line_blocks
from transforms.files.blocks import Block, RawBlock
from transforms.files.unpacking import head_of

_TIMES = ("seen_at", *TIMES)
LINKS = ("links", "outlinks")


def looks_like(path: str, text: bytes) -> bool:
    return _names(text) is not None


def _names(text: bytes) -> tuple[str, str] | None:
    """Names of the links and of the time in the first item; None if it has none."""
    first = text.removeprefix(b"\xef\xbb\xbf").lstrip(b"[, \r\n").partition(b"\n")[0]
    try:
        record = json.loads(first.strip().removesuffix(b","))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or "url" not in record:
        return None
    links = next((name for name in LINKS if isinstance(record.get(name), list)), None)
    time = next((name for name in _TIMES if name in record), None)
    return None if links is None or time is None else (links, time)


def read(source: Source) -> Iterator[Block]:
    """A row a link; one without a target for an item that has none."""
    links, time = _names(head_of(source.path)) or (LINKS[0], _TIMES[0])
    schema = pa.schema(
        [("url", pa.string()), (links, pa.list_(pa.string())), (time, pa.string()), ("status", pa.string())]
    )
    for item in line_blocks(source.path, source.gzip):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        found = parse(*item, schema, source.path)
        if found.rejected is not None:
            yield found.rejected
        columns = {name: found.table.column(name).combine_chunks() for name in schema.names}
        lists = columns[links]
        number = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
        rows = np.repeat(np.arange(len(number)), np.maximum(number, 1))
        first = np.cumsum(np.maximum(number, 1)) - np.maximum(number, 1)
        at = np.full(len(rows), -1)
        at[np.isin(np.arange(len(rows)), first[number == 0], invert=True)] = np.arange(int(number.sum()))
        targets = pc.list_flatten(lists).take(pa.array(at, mask=at < 0))
        of = pa.array(rows)
        batch = pa.RecordBatch.from_pydict(
            {
                "source": columns["url"].take(of),
                "target": targets,
                "seen_at": columns[time].take(of),
                "status": columns["status"].take(of),
            }
        )
        numbers = found.line[rows]
        yield RawBlock(batch, lambda numbers=numbers: numbers)  # type: ignore[misc]


DIALECT = Dialect("scrapy", "links_seen", "items of Scrapy with lists of links", looks_like, read)
