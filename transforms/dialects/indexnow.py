"""IndexNow as a receiver logs it: what sites pushed, as JSON Lines, to rows of signals.

A line is what one request said and when it came: `received_at`, and either `url` (of a GET) or `host` and
`urlList` (of a POST). The key that proves a site's identity is never repeated: rejected rows go to people and
places that the log does not go to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.batches.urls import canonical_host
from transforms.batches.values import scalars
from transforms.files.blocks import Block, RawBlock
from transforms.rows.normalise import rejected_rows

MAX_URLS = 10_000  # of one request, by the protocol
SOURCE = "indexnow"

NO_URLS = "no_urls"
"""Reason of a request that lists nothing: noted, not rejected, since no row is lost."""

_MARKS = (b'"urlList"', b'"received_at"')
# The key as a field, in the name of the file that proves it, or as a part of a request.
_KEY = re.compile(r"""(key(?:Location)?["']?\s*(?:[:=]|%3[dD])\s*["']?)[^"'&\s,}]*""", re.IGNORECASE)
_KEY_FILE = re.compile(r"/[A-Za-z0-9-]{8,128}\.txt")


def is_indexnow(block: bytes) -> bool:
    """Whether some line of a block is of a receiver's log."""
    return any(mark in block for mark in _MARKS)


def hide_keys(text: str) -> str:
    """A text without the keys in it."""
    return _KEY_FILE.sub("/(key).txt", _KEY.sub(r"\1(key)", text))


def without_keys(rejected: pa.RecordBatch) -> pa.RecordBatch:
    """Rejected rows without keys in their samples."""
    samples = rejected.column("sample")
    suspect = pc.or_(
        pc.match_substring(samples, "key", ignore_case=True),
        pc.match_substring_regex(samples, _KEY_FILE.pattern),
    )
    if not pc.any(suspect).as_py():
        return rejected
    at = rejected.schema.get_field_index("sample")
    hidden = pa.array([None if s is None else hide_keys(s) for s in samples.to_pylist()], pa.string())
    return rejected.set_column(at, rejected.schema.field("sample"), hidden)


def _named_host(text: str) -> str | None:
    """What a request says its host is; some senders give its URL."""
    text = text.strip()
    return canonical_host(text if "://" in text else f"http://{text}")


class _Rows:
    """Rows of signals, and rejected ones, while a block is read."""

    def __init__(self) -> None:
        self.url: list[Any] = []
        self.at: list[Any] = []
        self.source: list[Any] = []
        self.lines: list[int] = []
        self.rejected: dict[str, tuple[list[int], list[str]]] = {}
        self._hosts: dict[str, str | None] = {}

    def _host(self, url: str) -> str | None:
        """As `canonical_host`; a start of a URL that was seen before is not parsed again."""
        end = url.find("/", 8)
        start = url[:end] if 0 < end < 300 else ""
        found = self._hosts.get(start)
        if found is None:
            found = canonical_host(url.strip())
            # Whatever the start says, the rest cannot change, unless it has no host: https:///a.test/
            if start and canonical_host(start) is not None and len(self._hosts) < 1 << 16:
                self._hosts[start] = found
        return found

    def reject(self, line: int, reason: str, sample: str) -> None:
        lines, samples = self.rejected.setdefault(reason, ([], []))
        lines.append(line)
        samples.append(sample)

    def add(self, line: int, record: dict[str, Any]) -> None:
        received = record.get("received_at")
        at = record.get("signalled_at") if received is None else received
        source = record.get("source") or (None if received is None else SOURCE)
        listed = record.get("urlList")
        if listed == [] and record.get("url") is None:
            self.reject(line, NO_URLS, f"a request of {record.get('host')} with an empty urlList")
            return
        single = listed is None or listed == []
        urls = [record.get("url")] if single else listed if isinstance(listed, list) else [listed]
        if len(urls) > MAX_URLS:
            sample = f"{len(urls)} URLs of {record.get('host')} in one request, more than {MAX_URLS}"
            self.reject(line, "too_many_urls", sample)
            return
        host = record.get("host")
        own = _named_host(host) if isinstance(host, str) else None
        for url in urls:
            # A host that cannot be read has no URLs; one that is not named may be any.
            if isinstance(host, str) and isinstance(url, str) and self._host(url) not in (own, None):
                self.reject(line, "other_host", f"{url} | host={host}")
                continue
            self.url.append(url if isinstance(url, str) else None)
            self.at.append(at)
            self.source.append(source)
            self.lines.append(line)


def read_block(path: str, block: bytes, line: int) -> Iterator[Block]:
    """Rows of a block of JSON Lines in which some line is of a receiver's log.

    Parameters
    ----------
    path : str
    block : bytes
        Whole lines.
    line : int
        Number of the first.

    Yields
    ------
    RawBlock
        Columns url, signalled_at, source. Lines that are signals already pass as they are.
    RecordBatch of `schemas.REJECTED`
        Reasons bad_json, other_host, too_many_urls; and no_urls, a note.
    """
    rows = _Rows()
    for i, raw in enumerate(block.split(b"\n")):
        text = raw.strip().removesuffix(b",")
        if text in (b"", b"[", b"]"):
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError):
            record = None
        for one in record if isinstance(record, list) and record else [record]:
            if isinstance(one, dict):
                rows.add(line + i, one)
            else:  # a cut line may begin in the middle of a key
                sample = f"{len(text)} bytes that are no JSON object; not shown: they may hold a key"
                rows.reject(line + i, "bad_json", sample)
    for reason, (lines, samples) in rows.rejected.items():
        yield rejected_rows(path, lines, reason, samples)
    if rows.url:
        columns = [scalars(values) for values in (rows.url, rows.at, rows.source)]
        batch = pa.RecordBatch.from_arrays(columns, names=["url", "signalled_at", "source"])
        numbers = np.array(rows.lines, np.int64)
        yield RawBlock(batch, lambda: numbers)
