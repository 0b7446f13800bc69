"""Feeds of Scrapy as many spiders write them: JSON Lines or CSV, with a hash of the body or an ETag."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from transforms.dialects import Dialect, Source
from transforms.dialects.textformats import read_csv, read_jsonl
from transforms.files.blocks import Block, RawBlock
from transforms.files.delimiters import delimiter_of, header_of
from transforms.files.unpacking import head_of

DIGESTS = ("body_sha1", "body_md5", "body_sha256", "body_hash", "content_hash", "checksum", "etag")
"""Names of a digest, the best first."""
_BOM = b"\xef\xbb\xbf"
_NO_HEADER = re.compile(rb"[{}\[\]\0]")
TIMES = ("fetched_at", "crawled_at", "scraped_at", "timestamp")


def looks_like(path: str, text: bytes) -> bool:
    return _names(text) is not None


def _names(text: bytes) -> dict[str, str] | None:
    """Which of the names a feed has, by its first object or its header; None if it is none, or canonical."""
    text = text.removeprefix(_BOM)
    first, _, rest = text.lstrip(b"[, \r\n").partition(b"\n")
    if _is_csv(text):
        record = header_of(first, delimiter_of("", first, "url"))
    else:
        try:
            record = json.loads(first.strip().removesuffix(b","))
        except (ValueError, RecursionError):
            return None
        if not isinstance(record, dict):
            return None
    time = next((name for name in TIMES if name in record), None)
    digest = next((name for name in DIGESTS if name in record), None)
    if "url" not in record or time is None or digest is None or "digest" in record:
        return None
    if _is_csv(text) and time == "fetched_at" and not rest.strip():
        return None  # a header alone is canonical as it is
    return {"fetched_at": time, "digest": digest}


def _is_csv(text: bytes) -> bool:
    """Whether a feed is CSV; headers of names, unlike JSON, have no braces."""
    first = text.removeprefix(_BOM).lstrip(b"[, \r\n").split(b"\n", 1)[0]
    return any(mark in first for mark in (b",", b";", b"\t")) and not _NO_HEADER.search(first)


def read(source: Source) -> Iterator[Block]:
    """Rows of a feed, under recrawl's names."""
    head = head_of(source.path)
    names = _names(head) or {}
    back = {theirs: ours for ours, theirs in names.items()}
    reader = read_csv if _is_csv(head) else read_jsonl
    for block in reader(source.path, source.gzip, source.kind.renamed(names), None):
        if isinstance(block, RawBlock):
            renamed = [back.get(name, name) for name in block.batch.schema.names]
            block = RawBlock(block.batch.rename_columns(renamed), block.row)
        yield block


DIALECT = Dialect("scrapy", "observations", "feed of Scrapy, JSON Lines or CSV", looks_like, read)
