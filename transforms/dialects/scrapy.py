"""Feeds of Scrapy as many spiders write them: JSON Lines with a hash of the body or an ETag for a digest."""

from __future__ import annotations

import json
from collections.abc import Iterator

from transforms.dialects import Dialect, Source
from transforms.formats import Block, RawBlock, head_of
from transforms.textformats import read_jsonl

DIGESTS = ("body_sha1", "body_md5", "body_sha256", "body_hash", "content_hash", "checksum", "etag")
"""Names of a digest, the best first."""
TIMES = ("fetched_at", "crawled_at", "scraped_at", "timestamp")


def looks_like(path: str, text: bytes) -> bool:
    return _names(text) is not None


def _names(text: bytes) -> dict[str, str] | None:
    """Which of the names a feed has, by its first object; None if it is none, or canonical."""
    first = text.lstrip(b"[, \r\n").split(b"\n", 1)[0].strip().removesuffix(b",")
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or "url" not in record:
        return None
    time = next((name for name in TIMES if name in record), None)
    digest = next((name for name in DIGESTS if name in record), None)
    if time is None or digest is None or "digest" in record:
        return None
    return {"fetched_at": time, "digest": digest}


def read(source: Source) -> Iterator[Block]:
    """Rows of a feed, under recrawl's names."""
    names = _names(head_of(source.path)) or {}
    back = {theirs: ours for ours, theirs in names.items()}
    for block in read_jsonl(source.path, source.gzip, source.kind.renamed(names), None):
        if isinstance(block, RawBlock):
            renamed = [back.get(name, name) for name in block.batch.schema.names]
            block = RawBlock(block.batch.rename_columns(renamed), block.row)
        yield block


DIALECT = Dialect("scrapy", "observations", "feed of Scrapy, JSON Lines", looks_like, read)
