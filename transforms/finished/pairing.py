"""Which shards of two nights hold the same pages, so that they can be compared some at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from transforms.batches.hashing import hash_texts, stable_hash
from transforms.finished.nights import Night

MAX_ROWS = 1_000_000  # pages of a night that are held at once, unless one whole host has more


@dataclass(frozen=True)
class Part:
    """Shards of both nights that hold the same hosts; of `of` parts of these hosts the one numbered `at`.

    Attributes
    ----------
    before, after : tuple of int
    at, of : int
        Of all hosts, the share of hosts; of a single host, the share of its pages.
    host_hash : int or None
        The one host to look at.
    without : frozenset of int
        Hashes of hosts to leave out, which have parts of their own.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    at: int = 0
    of: int = 1
    host_hash: int | None = None
    without: frozenset[int] = frozenset()


def parts_of(before: Night, after: Night, host: str | None = None) -> Iterator[Part]:
    """Cut two nights into parts that hold whole hosts, all of them or the one with `host`.

    Shards are hash classes of hosts: with as many shards on both nights each is a part, else those that agree
    modulo the greatest common divisor. A part of more than `MAX_ROWS` pages is read several times, a share of
    its hosts at a time. A host that one of the nights has in several shards comes by itself.
    """
    layouts = before.layout, after.layout
    if host is not None:
        code = stable_hash(host)
        yield Part(*(tuple(layout.shards_of(code)) for layout in layouts), host_hash=code)
        return
    split = frozenset(layouts[0].parts) | frozenset(layouts[1].parts)
    for code in sorted(split):
        of = max(1, -(-max(_pages_of(night, code) for night in (before, after)) // MAX_ROWS))
        for at in range(of):
            yield Part(*(tuple(layout.shards_of(code)) for layout in layouts), at, of, code)
    counts = before.num_shards, after.num_shards
    step = math.gcd(*counts)
    for first in range(step):
        shards = [tuple(range(first, count, step)) for count in counts]
        rows = max(night.rows("pages", some) for night, some in zip((before, after), shards, strict=True))
        of = max(1, -(-rows // MAX_ROWS))
        for at in range(of):
            yield Part(shards[0], shards[1], at, of, None, split)


def _pages_of(night: Night, host_hash: int) -> int:
    """Pages of a split host by the manifest."""
    large = night.manifest.get("large_hosts", [])
    return sum(h["pages"] for h in large if int(h["host_hash"], 16) == host_hash)


def share(table: pa.Table, part: Part) -> pa.Table:
    """The rows of one host, or of a part's share of hosts."""
    if part.host_hash is None and part.of == 1 and not part.without:
        return table
    code = hash_texts(table.column("host").combine_chunks().dictionary_encode())
    if part.host_hash is not None:
        table = table.filter(pa.array(code == np.uint64(part.host_hash)))
        if part.of > 1:
            page = hash_texts(table.column("url").combine_chunks())
            table = table.filter(pa.array(page % np.uint64(part.of) == part.at))
        return table
    mine = (code >> np.uint64(20)) % np.uint64(part.of) == part.at
    return table.filter(pa.array(mine & ~np.isin(code, np.array(sorted(part.without), np.uint64))))
