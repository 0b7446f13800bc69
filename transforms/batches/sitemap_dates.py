"""Dates of sitemaps and feeds: what they say, and how precisely."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.history.lastmods import BAD, DAY, INSTANT, LOCAL, MONTH, NONE, YEAR, Int8Array
from policies.numerics.typing_ import IntArray
from transforms.batches.texts import Texts
from transforms.batches.times import DAY_US, END_US, read_texts

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
        As in `policies.history.lastmods`; `BAD` where the text is none of these forms, or before 1990: the
        dates of a clock that was never set.
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
