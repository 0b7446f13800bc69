"""Dates that sitemaps give: read, compared with those of the night before, and carried to the next one."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies import lastmods
from policies.lastmods import BAD, DAY, INSTANT, LOCAL, MONTH, NONE, YEAR, Int8Array, Lastmods
from policies.typing_ import IntArray
from transforms import schemas
from transforms.coding import ShardPages
from transforms.hashing import Texts
from transforms.tally import Counts
from transforms.times import DAY_US, END_US, read_texts

SOURCE = "sitemap"

_YEAR, _MONTH = r"^\d{4}$", r"^\d{4}-\d\d$"
_DAY = r"^(?:\d{4}-\d\d-\d\d|\d{8})$"
_MIDNIGHT = re.compile(r"T24:00(?=(?::00(?:[.,]0+)?)?(?:$|[Z+-]))")
_FAR = re.compile(r"(\d{4})(?=-)")
_FIRST_YEAR, _END_YEAR = 1990, 2101


def parse_lastmods(texts: pa.Array) -> tuple[IntArray, Int8Array]:
    """Read what sitemaps and feeds give as dates: W3C forms, mail dates, seconds since 1970.

    Parameters
    ----------
    texts : pa.Array of n strings

    Returns
    -------
    begin_us : (n,) int64, microseconds since 1970, UTC
        Where the year, month, day or instant begins. What names no zone is UTC. A year after 2100 counts as
        the end of 2100: later than any night. 0 where there is none.
    precision : (n,) int8
        As in `policies.lastmods`; `BAD` where the text is none of these forms, or before 1990: the dates of
        a clock that was never set.
    """
    if not len(texts):
        return np.zeros(0, np.int64), np.zeros(0, np.int8)
    encoded = texts.dictionary_encode()
    begin_us, precision = _distinct(pc.utf8_trim_whitespace(encoded.dictionary))
    code = encoded.indices.fill_null(len(begin_us)).to_numpy()
    return np.append(begin_us, 0)[code], np.append(precision, np.int8(NONE))[code]


def _distinct(texts: pa.Array) -> tuple[IntArray, Int8Array]:
    def matches(pattern: str) -> np.ndarray:
        return np.asarray(pc.match_substring_regex(texts, pattern))

    year, month, day = matches(_YEAR), matches(_MONTH), matches(_DAY)
    whole = pc.if_else(pa.array(year), pc.binary_join_element_wise(texts, "-01-01", ""), texts)
    whole = pc.if_else(pa.array(month), pc.binary_join_element_wise(texts, "-01", ""), whole)
    begin_us, good, local = read_texts(Texts(whole))
    rest = np.flatnonzero(~good & np.asarray(pc.match_substring_regex(whole, r"^\d{4}-")))
    if len(rest):
        begin_us[rest], good[rest], local[rest] = _unusual(whole.take(pa.array(rest)))
    precision = np.select([year, month, day, local], [YEAR, MONTH, DAY, LOCAL], INSTANT)
    precision[~good] = BAD
    precision[np.asarray(pc.equal(texts, ""))] = NONE
    return np.where(precision > BAD, begin_us, 0), precision.astype(np.int8)


def _unusual(texts: pa.Array) -> tuple[IntArray, np.ndarray, np.ndarray]:
    """Years that times of logs cannot have, and midnight as the 24th hour."""
    spelled = texts.to_pylist()
    years = np.array([int(t[:4]) for t in spelled])
    far = years >= _END_YEAR
    late = np.array([_MIDNIGHT.search(t) is not None for t in spelled], np.bool_)
    # A leap year, so that no day of a far year is missing; which one does not matter.
    near = [
        _MIDNIGHT.sub("T00:00", _FAR.sub("2096", t, count=1) if f else t)
        for t, f in zip(spelled, far, strict=True)
    ]
    begin_us, good, local = read_texts(Texts(pa.array(near)))
    begin_us = np.where(far, END_US, np.minimum(begin_us + DAY_US * late, END_US))
    return begin_us, good & (years >= _FIRST_YEAR), local


def claims_of(pages: ShardPages, rows: pa.Table | None, begin: str) -> Lastmods:
    """The arrays of a table with url_hash, times and precision; pages that the shard does not know are -1."""
    if rows is None or not rows.num_rows:
        return Lastmods.empty()
    times = rows.column(begin).cast(pa.int64()).fill_null(0).to_numpy()
    return Lastmods(
        pages.code(rows.column("url_hash").to_numpy()), times, rows.column("precision").to_numpy()
    )


def compare_lastmods(
    pages: ShardPages, rows: pa.Table | None, carried: pa.Table | None, as_of_us: int, counts: Counts
) -> tuple[Lastmods, pa.RecordBatch | None]:
    """Compare tonight's sitemaps with those of the night before.

    Parameters
    ----------
    pages : ShardPages
    rows : Table of `schemas.SITEMAPS` with url_hash, or None
    carried : Table of `schemas.STATE_LASTMODS`, or None
    as_of_us : int, microseconds
    counts : Counts
        Gets those of `policies.lastmods.compare`, if there are rows.

    Returns
    -------
    Lastmods
        To be carried.
    RecordBatch or None
        Rows of `schemas.SIGNALS` with url_hash, source `SOURCE`.
    """
    before = claims_of(pages, carried, "lastmod")
    known = before.take(before.page >= 0)
    known = known.take(np.argsort(known.page, kind="stable"))
    if rows is None:
        return known, None
    found = lastmods.compare(known, claims_of(pages, rows, "lastmod"), as_of_us)
    for name, n in found.counts.items():
        counts.add(name, n)
    if not len(found.page):
        return found.carried, None
    signals = pa.RecordBatch.from_pydict(
        {
            "url": pages.url.take(pa.array(found.page)),
            "signalled_at": pa.array(found.signalled_at_us).cast(schemas.TIME),
            "source": pa.array([SOURCE]).take(pa.array(np.zeros(len(found.page), np.int64))),
            "url_hash": pa.array(pages.url_hash[found.page]),
        }
    )
    return found.carried, signals


def lastmods_batch(pages: ShardPages, carried: Lastmods) -> pa.RecordBatch:
    """The `schemas.STATE_LASTMODS` rows of a shard."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array(pages.url_hash[carried.page]),
            pa.array(pages.host_hash[carried.page]),
            pa.array(carried.begin_us).cast(schemas.TIME),
            pa.array(carried.precision),
        ],
        schema=schemas.STATE_LASTMODS,
    )


__all__ = ["SOURCE", "compare_lastmods", "lastmods_batch", "parse_lastmods"]
