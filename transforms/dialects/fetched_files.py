"""Sitemaps and feeds as sources: a list of fetches, each with the file that it got.

A sitemap does not say where and when it was fetched, so a list does: `source`, `seen_at`, `file` and
perhaps `status`, as CSV or JSON Lines. Each entry of the file is a link of its source. Paths are as seen
from the folder of the list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.batches.errors import InputError
from transforms.batches.kinds import Kind
from transforms.batches.urls import trim
from transforms.dialects import Dialect, Source
from transforms.dialects.json_rows import parse
from transforms.dialects.sitemaps import read_sitemap
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.dialects.textformats import read_csv
from transforms.dialects.wat import resolved
from transforms.files.blocks import Block, RawBlock
from transforms.files.delimiters import delimiter_of, header_of
from transforms.files.filesystems import FileSystems, local_path
from transforms.files.unpacking import heads, is_gzip
from transforms.rows.normalise import rejected_rows

NAMES = ("source", "seen_at", "file", "status")
_KIND = Kind("links_seen", pa.schema([]), (("source",), ("seen_at",), ("file",)), ("status",), key="source")
_JSON = pa.schema([(name, pa.string()) for name in NAMES])


def looks_like(path: str, text: bytes) -> bool:
    first = _unmarked(text).partition(b"\n")[0].strip().removesuffix(b",")
    names: Any = header_of(first, delimiter_of(path, first, "source"))
    if first.startswith(b"{"):
        try:
            names = json.loads(first)
        except (ValueError, RecursionError):
            return False
    names = {name.strip() for name in names}
    return {"source", "seen_at", "file"} <= names and "target" not in names


def _unmarked(text: bytes) -> bytes:
    return text.removeprefix(b"\xef\xbb\xbf").lstrip(b"[, \r\n")


def read(source: Source) -> Iterator[Block]:
    """A row an entry of each file; one without a target for a file that has none, or for a failed fetch."""
    for item in _lists(source):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        names = [n for n in NAMES if n in item.batch.schema.names]
        columns = [item.batch.column(n).cast(pa.binary()).to_pylist() for n in names]
        numbers = item.row() if callable(item.row) else item.row + np.arange(item.batch.num_rows)
        for row, number in enumerate(numbers.tolist()):
            raw = [values[row] or b"" for values in columns]
            try:
                fetch = {n: text.decode() for n, text in zip(names, raw, strict=True)}
            except UnicodeDecodeError:
                sample = raw[0].decode("utf-8", "replace")
                yield rejected_rows(source.path, [number], "bad_utf8", [sample])
            else:
                yield from _fetch(source, fetch, number)


def _lists(source: Source) -> Iterator[Block]:
    _, text = heads(source.path)
    if not _unmarked(text).startswith(b"{"):
        yield from read_csv(source.path, source.gzip, _KIND, None)
        return

    def rows(block: bytes, line: int) -> Iterator[Block]:
        found = parse(block, line, _JSON, source.path)
        if found.rejected is not None:
            yield found.rejected
        for batch in found.table.combine_chunks().to_batches():
            yield RawBlock(batch, lambda: found.line)

    yield from of_each(line_blocks(source.path, source.gzip), rows)


def _fetch(source: Source, fetch: dict[str, str], number: int) -> Iterator[Block]:
    targets: list[pa.Array] = []
    whole, clean, status = True, True, str(fetch.get("status") or 200)
    if status.startswith("2"):
        if not fetch["file"]:
            yield rejected_rows(source.path, [number], "no_file", [fetch["source"]])
            return
        folder = FileSystems.split(source.path)[0]
        path = local_path(fetch["file"])
        path = fetch["file"] if path is None else FileSystems.join(folder, path)
        try:
            packed = is_gzip(heads(path)[0])
        except (InputError, ValueError) as error:  # of no file system that is known
            yield rejected_rows(source.path, [number], "no_file", [str(error)])
            return
        for item in read_sitemap(path, packed, source.notes):
            if isinstance(item, pa.RecordBatch):
                clean = False
                # An entry without an address is one less; what breaks off lacks nobody knows how many.
                whole &= item.column("reason")[0].as_py() == "no_loc"
                yield item
            else:
                targets.append(item.batch.column("url"))
        if not clean and not targets:
            return
    target = pa.concat_arrays(targets) if targets else pa.nulls(1, pa.string())
    n = len(target)
    if targets:  # feeds have addresses from the root of their site
        target = resolved(pa.array([fetch["source"]] * n, pa.string()), trim(target))
    given = {name: pa.array([fetch.get(name)] * n, pa.string()) for name in ("source", "seen_at", "status")}
    batch = pa.RecordBatch.from_pydict(
        {
            **given,
            "target": target,
            "partial": pa.array(np.full(n, not whole)),
        }
    )
    numbers = np.full(n, number)
    yield RawBlock(batch, lambda: numbers)


DIALECT = Dialect("files", "links_seen", "fetches of sitemaps and feeds, with their files", looks_like, read)
