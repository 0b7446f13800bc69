"""Crawls that are made to learn when pages change: which, and how many."""

from __future__ import annotations

import numpy as np

from policies.clocks.kept import ENOUGH, MANY, Kept
from policies.clocks.learning import CERTAIN
from policies.clocks.profile import NO_TIME, US_PER_DAY
from policies.numerics.scrambling import fractions, scramble
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

YOUNG_US = 3 * US_PER_DAY
"""How long pages are young, of which some are crawled more to learn how they age."""

EXPLORED, EXPLORED_MORE, EXPLORED_YOUNG = 0.08, 0.16, 0.25
OF_NIGHTLY = 4.0
"""So many times the share of pages that are crawled about once a night: it is no crawl more."""

NEARLY_ALL = 0.9

WAITS_DAYS = 1.5, 5.0
"""Of pages that would wait so long: others come again anyway, or hours cannot matter to them."""

SHORTEST_DAYS = 0.4
"""Pages that are crawled more often come at many hours anyway."""

KNOWN_INTERVALS = 3

MOST_OF_A_HOST = 10.0
"""Crawls of a host, kind and night."""

LEAST_RATE_PER_DAY = 0.01
"""Of pages that are given up, for as long as it is not known that they settle."""


def drawn_tonight(url_hash: UIntArray, as_of_us: int) -> FloatArray:
    """A number in (0, 1) of each page and night, (n,)."""
    drawn = url_hash ^ np.uint64(as_of_us & (2**63 - 1))
    scramble(drawn)
    return fractions(drawn)


def promising(gain: FloatArray) -> BoolArray:
    """Whether it seems that hours matter, and is not known, (g,); `gain` as of `Kept.profiles`."""
    found: BoolArray = (gain > 0.5 * CERTAIN) & (gain < 4.0 * CERTAIN)
    return found


def shares(gain: FloatArray, short: IntArray, most: IntArray) -> FloatArray:
    """Share of the pages crawled in the second half of last night that are crawled again tonight, (g,).

    More where it seems that hours matter, nothing where enough is known.

    Parameters
    ----------
    gain : (g,) float64
        As of `Kept.profiles`.
    short, most : (g,) int64
        Short intervals that are kept, and how many intervals may be.
    """
    few = promising(gain) & (short < np.minimum(MANY, most // 2))
    return np.where(few, EXPLORED_MORE, np.where(short < ENOUGH, EXPLORED, 0.0))


def shares_of_young(kept: Kept, born_us: IntArray, groups: int) -> tuple[FloatArray, FloatArray]:
    """Shares of the young pages that are crawled again tonight, (g,) both, until some have told how pages
    of their group change at that age: of those that were seen once; and of those that were seen twice,
    where nearly all have changed by then, so that only a third look tells when they settle.

    Parameters
    ----------
    kept : Kept
    born_us : (n,) int64
        When pages came, `NO_TIME` where that is not known.
    groups : int
    """
    born = born_us[kept.page]
    tells = (born != NO_TIME) & (kept.to_us - born <= YOUNG_US)
    known, changed = (
        np.bincount(kept.group[rows], minlength=groups) for rows in (tells, tells & kept.changed)
    )
    few = known < ENOUGH
    again = few & (changed > NEARLY_ALL * known)
    return np.where(few, EXPLORED_YOUNG, 0.0), np.where(again, EXPLORED_YOUNG, 0.0)


def kinds(
    rate_per_day: FloatArray, recent: BoolArray, young: BoolArray, intervals: IntArray, changes: IntArray
) -> tuple[BoolArray, BoolArray, BoolArray, BoolArray]:
    """Pages of which a share is crawled again within a day: short intervals tell the hours of changes.

    Of pages that were seen to change, and to stay as they were: before, a short interval would rather teach
    how often pages change, and those that are always found changed would count for more than they are. And
    of pages that have just come: how they change in their first hours is seen then or never.

    Parameters
    ----------
    rate_per_day : (n,) float64
        Crawls that are planned.
    recent, young : (n,) bool
        Crawled in the second half of last night; young and crawled before.
    intervals, changes : (n,) int64

    Returns
    -------
    Four times (n,) bool
        Pages that teach hours by a crawl more; those that are crawled about once a night, always at one hour,
        and come at another one; young ones that were seen once and twice.
    """
    least, most = WAITS_DAYS
    waits = rate_per_day * least < 1.0
    known = (changes > 0) & (intervals >= KNOWN_INTERVALS)
    young = young & waits
    nightly = (rate_per_day * least >= 1.0) & (rate_per_day * SHORTEST_DAYS < 1.0)
    return (
        waits & (rate_per_day * most >= 1.0) & recent & known,
        nightly & recent & known,
        young & (intervals == 0),
        young & (intervals == 1),
    )


def part_of_night(share: FloatArray, host: IntArray, drawn: FloatArray, hosts: int) -> FloatArray:
    """At which part of the night pages of one kind are crawled to learn, 1 or more: not tonight, (k,).

    Parameters
    ----------
    share : (k,) float64
        Positive.
    host : (k,) int64
    drawn : (k,) float64
        See `drawn_tonight`.
    hosts : int
    """
    of_host = np.bincount(host, minlength=hosts)[host]
    part: FloatArray = drawn / np.minimum(share, MOST_OF_A_HOST / of_host)
    return part
