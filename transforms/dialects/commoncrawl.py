"""Common Crawl's columnar index: Parquet files, read as canonical ones are, by other names of the columns.

Which columns a file has differs from year to year, its times are INT96 or INT64; each file goes by its own.
The subset "robotstxt" is left out. "crawldiagnostics" is not: its 304s, 404s and redirects are evidence.
The subset "warc" holds pages only; elsewhere robots.txt files are told by their URL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from transforms.dialects import Dialect, Source, canonical, parquet
from transforms.dialects.captures import robots
from transforms.files.blocks import Block, How, RawBlock, Split

NAMES = (("fetched_at", "fetch_time"), ("status", "fetch_status"), ("digest", "content_digest"))
_SUBSET = re.compile(r"(?:^|[/\\])subset=(\w+)[/\\]")


def looks_like(path: str, text: bytes) -> bool:
    """Whether a Parquet file has the index's columns and not recrawl's."""
    if not text.startswith(b"PAR1"):
        return False
    try:
        names = set(parquet.open_parquet(path).schema_arrow.names)
    except (pa.ArrowException, OSError):
        return False
    return {"url", "fetch_time", "content_digest"} <= names and "fetched_at" not in names


def read(source: Source) -> Iterator[Block]:
    """Read row groups of a file of the index.

    Raises
    ------
    InputError
        If the file has no `url` or no `fetch_time`.
    """
    folders = _SUBSET.findall(source.path)
    subset = folders[-1] if folders else ""
    if subset == "robotstxt":
        meta = parquet.open_parquet(source.path).metadata
        source.leave_out("robots_txt", sum(meta.row_group(i).num_rows for i in range(*source.groups)))
        return
    how = How(columns=NAMES)
    split = Split(source.path, "parquet", groups=source.groups, row=source.row, how=how)
    for block in canonical.read(split, source.kind):
        if not isinstance(block, RawBlock):
            yield block
            continue
        robot = None if subset == "warc" else robots(block.batch.column("url"))
        if robot is None or not robot.any():
            yield block
            continue
        kept = np.flatnonzero(~robot)
        source.leave_out("robots_txt", int(robot.sum()))
        first = block.row
        assert isinstance(first, int)
        yield RawBlock(block.batch.take(pa.array(kept)), lambda first=first, kept=kept: first + kept)  # type: ignore[misc]


DIALECT = Dialect(
    "commoncrawl", "observations", "Common Crawl's columnar index (Parquet)", looks_like, read, True
)
