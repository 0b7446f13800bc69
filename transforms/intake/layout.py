"""How many shards there are and which hosts are giant, decided before the job starts.

By the previous night where there is one, else by the sizes of files and a look at the logs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from transforms import dialects
from transforms.batches.urls import HostTable
from transforms.files.blocks import RawBlock, Split
from transforms.files.filesystems import InputFile
from transforms.files.inputs import match_files
from transforms.intake.formats import plan, read
from transforms.intake.reading import Input
from transforms.kept.carrying import Previous
from transforms.rows.normalise import KINDS, normalise
from transforms.shards.sharding import Layout, choose_parts

SAMPLED_FILES = 16
SAMPLED_ROWS = 8192  # of each file
# Bytes of an input for each page, about: on a first night a crawl log has many rows a page, a catalogue one.
# A host taken for smaller than it is waits for the second night; one split for nothing stays so.
_BYTES_PER_PAGE = {"observations": 512, "pages": 16}
# Of a catalogue that is the dump of a store.
_BYTES_OF_STATE = 512
# Bytes of a short row, packed and not: few files have more rows than these say.
_BYTES_PER_ROW, _BYTES_PER_LINE = 16, 128
_PACKED = (".gz", ".parquet", ".pq", ".avro", ".zip")
_NEW_PAGES = ("observations", "pages", "sitemaps")
SMALL_ROWS = 1 << 18
"""Pages of a night that one shard holds in a few seconds' work."""
MOST_OF_MANY = 16
"""Shards up to which more of them spread the work of one machine; beyond, of `PAGES_PER_SHARD` each."""
PAGES_PER_SHARD = 1 << 20


def most_rows(files: Iterable[InputFile]) -> float:
    """Rows of files at most, about, by their sizes: the same wherever they are read."""
    return math.fsum(
        file.size / (_BYTES_PER_ROW if file.path.lower().endswith(_PACKED) else _BYTES_PER_LINE)
        for file in files
    )


def is_small(inputs: Iterable[Input], known: int) -> bool:
    """Whether a job is so small that to spread its work costs more than it gains; `known` rows are kept."""
    files = (file for found in inputs for file in match_files(found.patterns, found.kind, found.required))
    return most_rows(files) + known <= SMALL_ROWS


def choose_layout(inputs: Iterable[Input], previous: Previous, num_shards: int | None, above: int) -> Layout:
    """Where pages lie tonight.

    Parameters
    ----------
    inputs : iterable of Input
    previous : Previous
        Its manifest counted the pages of large hosts.
    num_shards : int or None
        By default that of the previous night; more where there are, or may be, too many pages for it.
    above : int
        Pages of a host above which it is split.

    Returns
    -------
    Layout

    Raises
    ------
    InputError
        As reading the inputs does.

    Notes
    -----
    Without a previous night some rows of at most `SAMPLED_FILES` files are looked at, each file weighing by
    its size. That is an estimate, which the second night corrects; the same files give the same layout.
    """
    manifest = previous.manifest or {}
    decided = "large_hosts" in manifest
    listed = [
        (found, match_files(found.patterns, found.kind, found.required))
        for found in inputs
        if found.kind in _NEW_PAGES and not (decided and num_shards)
    ]
    sizes = [(f, files, _pages(f, files, above)) for f, files in listed if f.kind in _BYTES_PER_PAGE]
    if num_shards is None:
        rows = most_rows(file for _, files in listed for file in files)
        num_shards = _enough(rows, max((size for *_, size in sizes), default=0.0), previous)
    if decided:
        large = {int(h["host_hash"], 16): float(h["pages"]) for h in manifest["large_hosts"]}
        last = previous.layout
        before = last.parts if last is not None and last.num_shards == num_shards else {}
        return Layout(num_shards, choose_parts(large, previous.pages_known, num_shards, above, before))
    share: Counter[int] = Counter()
    most = 0.0
    for found, files, size in sizes:
        if num_shards > 1 and size > above:
            most = max(most, size)
            for host, part in _host_shares(files, found).items():
                share[host] = max(share[host], part)
    hosts = {host: part * most for host, part in share.items()}
    return Layout(num_shards, choose_parts(hosts, most, num_shards, above, {}))


def _enough(rows: float, pages: float, previous: Previous) -> int:
    """Shards for about `pages`, at most as many as `rows`, and for all that the previous night had."""
    known = previous.pages_known

    def twos(n: float, of_each: int) -> int:
        return 1 << max(0, math.ceil(n / of_each) - 1).bit_length()

    few = min(twos(max(rows, known), SMALL_ROWS), MOST_OF_MANY)
    return max(few, min(twos(max(pages, known), PAGES_PER_SHARD), 1 << 16), previous.num_shards or 1)


def _pages(found: Input, files: list[InputFile], above: int) -> float:
    """About how many pages an input has."""
    size = sum(f.size for f in files) / _BYTES_PER_PAGE[found.kind]
    return size * _catalogue_share(files, found) if size > above and found.kind == "pages" else size


def _sampled(files: list[InputFile]) -> list[InputFile]:
    at = np.linspace(0, len(files) - 1, min(len(files), SAMPLED_FILES)).round().astype(int)
    return [files[i] for i in at.tolist()]


def _catalogue_share(files: list[InputFile], found: Input) -> float:
    """Pages in files of which some are dumps of stores, as a share of those if none was."""
    some = _sampled(files)
    known = dialects.dialects()
    size = sum(f.size for f in some)
    dumped = sum(f.size for f in some if (found.kind, plan(f, found.kind, found.how)[0].form) in known)
    return 1.0 - dumped / size * (1.0 - _BYTES_PER_PAGE[found.kind] / _BYTES_OF_STATE) if size else 1.0


def _host_shares(files: list[InputFile], found: Input) -> Counter[int]:
    """Share of the pages that each host has, from a sample."""
    shares: Counter[int] = Counter()
    table = HostTable()
    weight = 0
    for file in _sampled(files):
        splits = plan(file, found.kind, found.how)
        batch = _some_rows(splits[len(splits) // 2], found.kind, table)
        if batch is None or not batch.num_rows:
            continue
        weight += file.size
        # A page that has many rows is still one page, and cannot be split.
        pages, first = np.unique(batch.column("url_hash").to_numpy(), return_index=True)
        hosts, counts = np.unique(batch.column("host_hash").to_numpy()[first], return_counts=True)
        for host, n in zip(hosts.tolist(), counts.tolist(), strict=True):
            shares[host] += file.size * n / len(pages)
    return Counter({host: part / weight for host, part in shares.items()})


def _some_rows(split: Split, kind: str, table: HostTable) -> pa.RecordBatch | None:
    """Rows spread over the first block of a split."""
    if split.form == "empty":
        return None
    block = next((b for b in read(split, KINDS[kind], ()) if isinstance(b, RawBlock)), None)
    if block is None:
        return None
    n = block.batch.num_rows
    rows = pa.array(np.arange(0, n, max(1, n // SAMPLED_ROWS)))
    return normalise(KINDS[kind], block.batch.take(rows), split.path, 0, table).rows
