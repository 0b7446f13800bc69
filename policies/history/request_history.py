"""How often each page was asked for, by week: integer counts that add up in any order.

Whole weeks cancel the day-of-week pattern. Counts stay integers, so that thirty nights give the same state
as one, to the bit; forgetting is a weight by age that is applied when the state is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.numerics.typing_ import FloatArray, Int32Array, IntArray

NO_DAY = int(np.iinfo(np.int32).min)
# Weeks older than this many half-lives hold less than 1.6 % of the weight and are dropped.
KEEP_HALF_LIVES = 6
_EPOCH_SHIFT = 1 << 20  # weeks are shifted to be positive inside the sort key


@dataclass(frozen=True, slots=True)
class RequestState:
    """Requests of n pages, in m (page, week) cells sorted by page, then week.

    Attributes
    ----------
    start : (n + 1,) int64
        Page i owns cells ``start[i]:start[i + 1]``.
    week : (m,) int32
        Weeks since 1970-01-01.
    clicks, impressions : (m,) int64
        Fixed-point counts, in any unit.
    first_day, last_day : (n,) int32
        First and last day with a row in the log, days since 1970-01-01; `NO_DAY` for none.
    """

    start: IntArray
    week: Int32Array
    clicks: IntArray
    impressions: IntArray
    first_day: Int32Array
    last_day: Int32Array

    @staticmethod
    def empty(n: int) -> RequestState:
        """The state of n pages that nobody asked for yet."""
        none = np.full(n, NO_DAY, np.int32)
        cells = np.zeros(0, np.int64)
        return RequestState(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), cells, cells, none, none.copy())

    @property
    def page(self) -> IntArray:
        """Page of each cell, (m,) int64."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def spread(self, code: IntArray, n: int) -> RequestState:
        """The same pages inside a larger set of n; page i becomes page ``code[i]``, codes ascending."""
        sizes = np.zeros(n, np.int64)
        sizes[code] = np.diff(self.start)
        first, last = np.full(n, NO_DAY, np.int32), np.full(n, NO_DAY, np.int32)
        first[code], last[code] = self.first_day, self.last_day
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        return replace(self, start=start, first_day=first, last_day=last)


def oldest_week(as_of_day: int, half_life_days: float) -> int:
    """The first week that is still kept on a day."""
    return as_of_day // 7 - int(np.ceil(KEEP_HALF_LIVES * half_life_days / 7))


def fold_requests(
    state: RequestState, page: IntArray, day: IntArray, clicks: IntArray, impressions: IntArray, oldest: int
) -> RequestState:
    """Add request rows to the state.

    Parameters
    ----------
    state : RequestState of n pages
    page : (r,) int64
        Page of each row; rows in any order, repeated (page, day) add up.
    day : (r,) int64, days since 1970-01-01
    clicks, impressions : (r,) int64, fixed point
    oldest : int
        Weeks before this are dropped, see `oldest_week`.
    """
    n = len(state.start) - 1
    all_page = np.concatenate([state.page, page])
    all_week = np.concatenate([state.week.astype(np.int64), day // 7])
    all_clicks = np.concatenate([state.clicks, clicks])
    all_impressions = np.concatenate([state.impressions, impressions])
    keep = all_week >= oldest
    if not keep.all():
        all_page, all_week = all_page[keep], all_week[keep]
        all_clicks, all_impressions = all_clicks[keep], all_impressions[keep]
    key = all_page * (2 * _EPOCH_SHIFT) + (all_week + _EPOCH_SHIFT)
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    first_day, last_day = state.first_day.copy(), state.last_day.copy()
    if len(page):
        early = np.full(n, np.iinfo(np.int64).max)
        late = np.full(n, NO_DAY, np.int64)
        np.minimum.at(early, page, day)
        np.maximum.at(late, page, day)
        seen = late != NO_DAY
        known = seen & (first_day != NO_DAY)
        first_day[seen] = np.where(known[seen], np.minimum(first_day[seen], early[seen]), early[seen])
        last_day = np.maximum(last_day, late).astype(np.int32)
    cells_page = key[first] // (2 * _EPOCH_SHIFT)
    return RequestState(
        start=np.concatenate([[0], np.cumsum(np.bincount(cells_page, minlength=n))]).astype(np.int64),
        week=(key[first] % (2 * _EPOCH_SHIFT) - _EPOCH_SHIFT).astype(np.int32),
        clicks=np.add.reduceat(all_clicks[order], first) if len(first) else np.zeros(0, np.int64),
        impressions=np.add.reduceat(all_impressions[order], first) if len(first) else np.zeros(0, np.int64),
        first_day=first_day,
        last_day=last_day,
    )


def week_weight(week: IntArray | Int32Array, as_of_day: int, half_life_days: float) -> FloatArray:
    """Weight of each week by its age at `as_of_day`: a half per half-life."""
    return np.asarray(np.exp2((np.minimum(week, as_of_day // 7) - as_of_day // 7) * (7.0 / half_life_days)))


def weighted_counts(
    state: RequestState, as_of_day: int, half_life_days: float, unit: float
) -> tuple[FloatArray, FloatArray]:
    """Clicks and impressions of each page, older weeks counting less.

    Returns
    -------
    clicks, impressions : (n,) float64, weighted counts
    """
    n = len(state.start) - 1
    weight = week_weight(state.week, as_of_day, half_life_days) * unit
    page = state.page
    clicks: FloatArray = np.bincount(page, state.clicks * weight, minlength=n).astype(np.float64)
    impressions: FloatArray = np.bincount(page, state.impressions * weight, minlength=n).astype(np.float64)
    return clicks, impressions


def exposure_days(
    first_day: Int32Array, from_day: int, to_day: int, as_of_day: int, half_life_days: float
) -> FloatArray:
    """Weighted days in which a page could have been asked for.

    Parameters
    ----------
    first_day : (n,) int32
        The day a page was first seen in any log. A page never seen, `NO_DAY`, has no exposure: nothing
        says that it could have been asked for.
    from_day, to_day : int
        First and last day of the request log, over all pages.

    Returns
    -------
    (n,) float64, weighted days; of a page that was seen at least one day's weight
    """
    low = max(from_day, oldest_week(as_of_day, half_life_days) * 7)
    days = np.arange(low, max(to_day, low) + 1)
    # after[k]: weight of the days low + k .. to_day
    after = np.cumsum(week_weight(days // 7, as_of_day, half_life_days)[::-1])[::-1]
    exposed = after[np.clip(first_day.astype(np.int64) - low, 0, len(days) - 1)]
    return np.where(first_day == NO_DAY, 0.0, exposed)


def spread_counts(count: IntArray, start: IntArray, n_days: int) -> IntArray:
    """Counts of many days as counts of each: whole, as even as they can be, and as evenly apart.

    Parameters
    ----------
    count : (n,) int64, not negative
    start : (n,) int64, 0 to n_days - 1
        The day from which each is dealt out. Small counts would all meet on the same days otherwise.
    n_days : int

    Returns
    -------
    (n, n_days) int64
        Each row adds up to its count; its days differ by one at most.
    """
    k = (np.arange(n_days) - start[:, None]) % n_days
    rest = (count % n_days)[:, None]
    dealt: IntArray = (count // n_days)[:, None] + rest * (k + 1) // n_days - rest * k // n_days
    return dealt
