"""Pages that stand in a log under several spellings of one URL: http and https, a slash at the end, case."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.batches.hashing import hash_texts
from transforms.batches.tally import counted

KEPT = 1 << 16
"""Pages of which all spellings are kept; of more the number is estimated from as many, drawn by hash."""
_SCHEMA = pa.schema([("plain", pa.uint64()), ("url_hash", pa.uint64()), ("url", pa.large_string())])
_SCHEME = r"^[a-z]+://"


class Twins:
    """Pages by their URL without scheme, case and slash at the end, and how many spellings each has."""

    def __init__(self) -> None:
        self._kept = _SCHEMA.empty_table()
        self._below = np.uint64(2**64 - 1)

    def add(self, url: pa.Array, url_hash: pa.Array) -> None:
        """Take URLs, (n,) text, and their hashes, (n,) uint64; nulls and repeats count for nothing."""
        if not (new := self._new(url_hash)).any():
            return
        url, url_hash = url.filter(pa.array(new)), url_hash.filter(pa.array(new))
        plain = pc.ascii_rtrim(pc.ascii_lower(url), characters="/")
        key = pa.array(hash_texts(pc.replace_substring_regex(plain, _SCHEME, "")))
        self._take(pa.table([key, url_hash, url.cast(pa.large_string())], schema=_SCHEMA))

    def merge(self, other: Twins) -> None:
        """Take those of another."""
        fewer, self._below = other._below < self._below, min(self._below, other._below)
        if (new := self._new(other._kept["url_hash"])).any() or fewer:
            self._take(other._kept.filter(pa.array(new)))

    def _new(self, url_hash: pa.Array) -> NDArray[np.bool_]:
        """Which of some hashes are not kept, (n,): most of a log are visits of pages that are known."""
        kept, asked = self._kept["url_hash"].to_numpy(), url_hash.to_numpy()
        if not len(kept):
            return np.ones(len(asked), np.bool_)
        return kept[np.minimum(np.searchsorted(kept, asked), len(kept) - 1)] != asked

    def _take(self, more: pa.Table) -> None:
        table = pa.concat_tables([self._kept, more])
        table = table.filter(pc.less_equal(table["plain"], pa.scalar(self._below, pa.uint64())))
        # In the order of the hash of the URL.
        _, first = np.unique(table["url_hash"].to_numpy(), return_index=True)
        table = table.take(pa.array(first))
        plain = np.unique(table["plain"].to_numpy())
        if len(plain) > KEPT:
            self._below = plain[KEPT - 1]
            table = table.filter(pc.less_equal(table["plain"], pa.scalar(self._below, pa.uint64())))
        self._kept = table.combine_chunks()

    def _twins(self) -> pa.Table:
        """Pages with several spellings, each with the first and the last of them in order."""
        found = self._kept.group_by("plain").aggregate([("url", "count"), ("url", "min"), ("url", "max")])
        return found.filter(pc.greater(found["url_count"], 1)).sort_by("plain")

    def __len__(self) -> int:
        """How many pages have several spellings."""
        return round(self._twins().num_rows * 2.0**64 / (float(self._below) + 1.0))

    def sites(self) -> list[str]:
        """Schemes and hosts of the URLs, the ones of most URLs first."""
        found = pc.extract_regex(self._kept["url"], r"^(?P<site>https?://[^/?#]+)").combine_chunks()
        counts = pc.value_counts(pc.struct_field(found, "site").drop_null())
        return [c["values"] for c in sorted(counts.to_pylist(), key=lambda c: (-c["counts"], c["values"]))]

    def said(self) -> str:
        """How many pages stand under several URLs, an example, and what to do; empty if none does."""
        if not (n := len(self)):
            return ""
        one, other = (self._twins()[f"url_{end}"][0].as_py() for end in ("min", "max"))
        pages = f"{counted(n, 'page')} {'seems' if n == 1 else 'seem'} to stand under several URLs"
        return (
            f"{pages} that differ by http and https, case or a slash at the end, such as {one} and {other}. "
            "Each is a page of its own to a night: log one of them, or stop the others (max_rate_per_day 0 "
            "in --pages)"
        )
