"""Last modifications that sitemaps claim, compared with those of the night before: which of them are signals.

A claim is a span of time: an instant, a day, a month, a year. A page's claim is carried from night to night,
and one that has moved to a newer time is a signal. The newest claim is kept: a site that answers from several
machines, of which one is behind, would otherwise signal at every turn, and a true change is newer than all
before it. Months and years say too little for a signal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policies.numerics.typing_ import BoolArray, IntArray

Int8Array = NDArray[np.int8]

NONE, BAD, YEAR, MONTH, DAY, LOCAL, INSTANT = range(7)
"""How precise a claim is; the finer, the larger.

None given, unreadable, a year, a month, a day, an instant that names no time zone, an instant.
"""
DISPOSITIONS = (
    "sitemap_unknown_pages",
    "sitemap_repeated",
    "no_lastmod",
    "bad_lastmod",
    "coarse_lastmod",
    "future_lastmod",
    "lastmod_first_seen",
    "lastmod_moved",
    "lastmod_same",
    "lastmod_back",
)
"""Counters that add up to ``sitemap_urls``. Repeated are rows of a page of which another row is newer."""
DAY_US = 86_400_000_000
# East of every meridian that keeps a clock: local times are at most this much ahead of UTC.
AHEAD_US = 14 * 3_600_000_000


@dataclass(frozen=True, slots=True)
class Lastmods:
    """What sitemaps claim of pages.

    Attributes
    ----------
    page : (k,) int64
        Code of the page; carried claims ascend and have each page once, new ones may repeat or be -1, a page
        that nobody knows.
    begin_us : (k,) int64, microseconds since 1970, UTC
        Where the span begins; 0 where there is none.
    precision : (k,) int8
        `NONE` to `INSTANT`.
    """

    page: IntArray
    begin_us: IntArray
    precision: Int8Array

    @classmethod
    def empty(cls) -> Lastmods:
        """No claims."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int8))

    def __len__(self) -> int:
        return len(self.page)

    def take(self, rows: IntArray | BoolArray) -> Lastmods:
        """Some of the claims, by index or mask."""
        return Lastmods(self.page[rows], self.begin_us[rows], self.precision[rows])

    def last_us(self) -> IntArray:
        """The latest microsecond of each span of at most a day, (k,) int64."""
        return self.begin_us + np.where(self.precision == DAY, DAY_US - 1, 0)

    def may_have_passed(self, as_of_us: int) -> BoolArray:
        """Whether some place on Earth has reached the claim, (k,) bool.

        A day, or a time without zone, may be of a place that is ahead of UTC.
        """
        ahead = np.where(self.precision == INSTANT, 0, AHEAD_US)
        return self.begin_us <= as_of_us + ahead


@dataclass(frozen=True, slots=True)
class Compared:
    """What became of a night's claims.

    Attributes
    ----------
    carried : Lastmods
        For the next night.
    page : (s,) int64, ascending
        Pages whose claim has moved: each is one signal.
    signalled_at_us : (s,) int64
        The latest time that the claim allows: the instant, the end of the day, at most the night.
    counts : dict of str to int
        ``sitemap_urls``, its `DISPOSITIONS`, and ``lastmod_no_tz``: claims without a time zone.
    """

    carried: Lastmods
    page: IntArray
    signalled_at_us: IntArray
    counts: dict[str, int]


def compare(carried: Lastmods, claims: Lastmods, as_of_us: int) -> Compared:
    """Tell which pages sitemaps call newer than the night before.

    Parameters
    ----------
    carried : Lastmods
    claims : Lastmods
        Tonight's, in any order. Where a page has several the newest usable one counts.
    as_of_us : int, microseconds
        The night. Claims later than it are left out: they are errors, or the next night's news.

    Returns
    -------
    Compared

    Raises
    ------
    ValueError
        For columns of unequal length, or carried pages that do not ascend.
    """
    _check(carried, claims)
    counts = dict.fromkeys(("sitemap_urls", *DISPOSITIONS, "lastmod_no_tz"), 0)
    counts["sitemap_urls"] = len(claims)
    counts["lastmod_no_tz"] = int(np.count_nonzero(claims.precision == LOCAL))
    known = claims.page >= 0
    counts["sitemap_unknown_pages"] = len(claims) - int(np.count_nonzero(known))
    best = _newest(claims.take(known), as_of_us)
    counts["sitemap_repeated"] = int(np.count_nonzero(known)) - len(best)

    passed = best.may_have_passed(as_of_us)
    dated = best.precision >= DAY
    coarse = (best.precision == YEAR) | (best.precision == MONTH)
    counts["no_lastmod"] = int(np.count_nonzero(best.precision == NONE))
    counts["bad_lastmod"] = int(np.count_nonzero(best.precision == BAD))
    counts["future_lastmod"] = int(np.count_nonzero((dated | coarse) & ~passed))
    counts["coarse_lastmod"] = int(np.count_nonzero(coarse & passed))
    new = best.take(dated & passed)

    row = np.searchsorted(carried.page, new.page)
    row = np.minimum(row, max(len(carried) - 1, 0))
    seen = carried.page[row] == new.page if len(carried) else np.zeros(len(new), np.bool_)
    again, old = new.take(seen), carried.take(row[seen])
    moved = again.begin_us > old.last_us()
    back = again.last_us() < old.begin_us
    # The same day, now with its hour, is no news, but the hour tells the next move.
    finer = ~moved & ~back & (again.precision > old.precision)
    counts["lastmod_first_seen"] = len(new) - len(again)
    counts["lastmod_moved"] = int(np.count_nonzero(moved))
    counts["lastmod_back"] = int(np.count_nonzero(back))
    counts["lastmod_same"] = len(again) - counts["lastmod_moved"] - counts["lastmod_back"]

    kept = moved | finer
    begin_us, precision = carried.begin_us.copy(), carried.precision.copy()
    begin_us[row[seen][kept]] = again.begin_us[kept]
    precision[row[seen][kept]] = again.precision[kept]
    first = new.take(~seen)
    page = np.concatenate([carried.page, first.page])
    order = np.argsort(page, kind="stable")
    carry = Lastmods(
        page[order],
        np.concatenate([begin_us, first.begin_us])[order],
        np.concatenate([precision, first.precision])[order],
    )
    news = again.take(moved)
    return Compared(carry, news.page, np.minimum(news.last_us(), as_of_us), counts)


def _newest(claims: Lastmods, as_of_us: int) -> Lastmods:
    """One claim a page, by page: the newest usable one, else the one that says most of why there is none."""
    rank = np.select(
        [claims.precision <= BAD, ~claims.may_have_passed(as_of_us), claims.precision < DAY],
        [claims.precision, 2, 3],
        4,
    )
    order = np.lexsort((claims.precision, claims.begin_us, rank, claims.page))
    page = claims.page[order]
    last = np.ones(len(page), np.bool_)
    last[:-1] = page[1:] != page[:-1]
    return claims.take(order[last])


def _check(carried: Lastmods, claims: Lastmods) -> None:
    for name, rows in (("carried", carried), ("claims", claims)):
        sizes = len(rows.page), len(rows.begin_us), len(rows.precision)
        if len(set(sizes)) > 1:
            raise ValueError(f"{name} has {sizes} pages, times and precisions; give one each")
    if (np.diff(carried.page) <= 0).any():
        raise ValueError("carried pages must ascend, each once; sort them")
