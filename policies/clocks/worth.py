"""What a crawl at an hour of the night is worth, for pages whose clock does not run evenly.

Crawled at t, a copy is fresh until s with the probability ``exp(-lambda (C(s) - C(t)))``, C being the page's
clock. For a page whose clock slows down there is no crawl rate to speak of: what counts is what one crawl
brings. Its crawl value is

    V(t) = weight * integral over s > t of max(0, fresh when crawled at t - fresh now, at t)

until the new copy would be as stale as the old one is. With an even clock this is the crawl value
``w / lambda P2(lambda tau)`` of LambdaCrawl at the time tau since the last crawl, whose threshold is the
multiplier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.clocks.profile import AGES, NO_TIME, US_PER_DAY, US_PER_HOUR, Clocks
from policies.numerics.typing_ import FloatArray, Int32Array, IntArray

INSTANTS = 24
"""Moments of a night among which crawls are placed, one to each equal part of it."""

LONGEST_DAYS = 30.0
"""How far ahead a fresh copy of a page that has settled counts."""

HOURS = 24
_TAIL = 14
_CANDIDATES = 8
_CHUNK = 4096
_LOG_CHANGES, _GRID = (-5.0, 5.0), 31
_LEAST_GAIN = 1e-9


@dataclass(frozen=True)
class Ahead:
    """A night and what follows, in steps: `INSTANTS` of the night, then longer and longer ones.

    Attributes
    ----------
    at_us : (m + 1,) int64, UTC microseconds
        Where steps begin, and the end.
    """

    at_us: IntArray

    @classmethod
    def of(cls, as_of_us: int, horizon_us: int) -> Ahead:
        night = as_of_us + np.arange(INSTANTS + 1) * horizon_us // INSTANTS
        longest = max(LONGEST_DAYS, 4.0 * horizon_us / US_PER_DAY)
        steps = np.geomspace(horizon_us / INSTANTS, longest * US_PER_DAY - horizon_us, _TAIL)
        return cls(np.concatenate([night, as_of_us + horizon_us + np.rint(steps).astype(np.int64)]))

    def asked(self, hour: FloatArray) -> FloatArray:
        """How many times the mean requests come in each step: (g, m) float64.

        Parameters
        ----------
        hour : (g, 24) float64
            The same of the hours of the day (UTC); mean 1.
        """
        whole = np.zeros((len(hour), HOURS + 1))
        np.cumsum(hour, axis=1, out=whole[:, 1:])
        day, rest = np.divmod(self.at_us, US_PER_DAY)
        at = rest // US_PER_HOUR
        passed = whole[:, at] + hour[:, at] * ((rest - at * US_PER_HOUR) / US_PER_HOUR) + HOURS * day
        found = np.diff(passed, axis=1) / (HOURS * self.days())
        # Where requests come evenly, to the bit.
        return np.where((hour == 1.0).all(axis=1)[:, None], 1.0, found)

    def days(self) -> FloatArray:
        """Lengths of the steps, (m,)."""
        return np.diff(self.at_us) / US_PER_DAY

    def clock(self, clocks: Clocks, page: IntArray) -> FloatArray:
        """Clock days of each page in each step: (n, m) float64."""
        m, group = len(self.at_us) - 1, clocks.group[page]
        aging = clocks.by_age[group]
        # Pages that do not age have the clock of their group.
        _, first, of = np.unique(np.where(aging, -1 - page, group), return_index=True, return_inverse=True)
        low, high = (np.tile(at, len(first)) for at in (self.at_us[:-1], self.at_us[1:]))
        days = clocks.days(np.repeat(page[first], m), low, high).reshape(len(first), m)
        return days.take(of, axis=0)


def survival(changes: FloatArray, information: FloatArray) -> FloatArray:
    """Probability of no change where so many are expected, of a gamma distribution."""
    result: FloatArray = np.exp(-information * np.log1p(changes / information))
    return result


def crawl_values(
    ahead: Ahead,
    clock: FloatArray,
    rate: FloatArray,
    information: FloatArray,
    since: FloatArray,
    weight: FloatArray,
) -> FloatArray:
    """The greatest crawl value of each page in the night: (n,) float64, weight times days.

    Parameters
    ----------
    ahead : Ahead
    clock : (n, m) float64
        Of `Ahead.clock`.
    rate, information : (n,) float64
        Changes per clock day, a gamma distribution.
    since : (n,) float64
        Clock days from the last crawl to the start of the night.
    weight : (n,) float64
    """
    best = np.zeros(len(rate))
    days = ahead.days()
    marks = np.linspace(0, INSTANTS, _CANDIDATES, dtype=np.int64)
    for low in range(0, len(rate), _CHUNK):
        part = slice(low, low + _CHUNK)
        steps = clock[part] * rate[part, None]
        passed = np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps, axis=1)], axis=1)
        known = information[part]
        before = since[part] * rate[part]
        for mark in marks.tolist():
            old = survival(before + passed[:, mark], known)
            new = survival(passed[:, mark:] - passed[:, mark, None], known[:, None])
            middle = 0.5 * (new[:, 1:] + new[:, :-1])
            gain = np.maximum(middle - old[:, None], 0.0) @ days[mark:]
            best[part] = np.maximum(best[part], gain)
    result: FloatArray = best * weight
    return result


def kept_in_turn(
    ahead: Ahead,
    clock: FloatArray,
    rate: FloatArray,
    nights: FloatArray,
    asked: FloatArray | None = None,
) -> FloatArray:
    """How fresh pages are that are crawled once in so many nights, always at the same instant.

    What a crawl tonight could save by coming early is left out: it would be lost again in each later night.

    Parameters
    ----------
    ahead, clock, rate
        As in `crawl_values`; the night is one or more whole days, which all are as this one.
    nights : (n,) float64, 1 or more
    asked : (n, m) float64, optional
        Of `Ahead.asked`: by how much each step counts. All count alike by default.

    Returns
    -------
    (n, `INSTANTS`) float64, days
        Fresh days from one crawl to the next, at each instant.
    """
    steps = clock[:, :INSTANTS] * rate[:, None]
    within = _fresh_days(steps, ahead.days()[:INSTANTS])
    if asked is not None:
        within = within * asked[:, :INSTANTS]
    still, whole = np.exp(-steps), steps.sum(axis=1)
    # Of a day from an instant on; the day from the one before has its step, and lacks the same of tomorrow.
    lasting = within * -np.expm1(-whole)[:, None]
    kept = np.empty((len(steps), INSTANTS))
    after = within[:, -1]
    for a in range(INSTANTS - 2, -1, -1):
        after = within[:, a] + still[:, a] * after
    kept[:, 0] = after
    for a in range(INSTANTS - 1, 0, -1):
        after = kept[:, a] = lasting[:, a] + still[:, a] * after
    further = np.expm1(-whole * nights) / np.minimum(np.expm1(-whole), -1e-12)
    result: FloatArray = kept * np.where(whole > 1e-9, further, nights)[:, None]
    return result


def gains(ahead: Ahead, clocks: Clocks, changes: FloatArray, asked: FloatArray) -> FloatArray:
    """How many times as long one crawl a night at the best hour keeps pages fresh as one at any hour.

    With a crawl in so many nights it is as many times, see `kept_in_turn`.

    Parameters
    ----------
    ahead : Ahead
    clocks : Clocks of n pages
        Of ages nothing is asked: those that settle are planned crawl by crawl.
    changes : (n,) float64
        Changes that are expected in the night.
    asked : (g, 24) float64
        How many times the mean requests of each group come in each hour of the day.

    Returns
    -------
    (n,) float64
        1 where hours do not matter, and of nights that are no whole days.
    """
    found = np.ones(len(changes))
    uneven = clocks.by_hour | (asked != 1.0).any(axis=1)
    used = np.flatnonzero(uneven)
    if (ahead.at_us[INSTANTS] - ahead.at_us[0]) % US_PER_DAY or not used.size:
        return found
    one = np.arange(used.size)
    hours = Clocks(clocks.hour[used], np.ones((used.size, AGES)), one, np.full(used.size, NO_TIME))
    night, counts = ahead.clock(hours, one), ahead.asked(asked[used])
    night /= night[:, :INSTANTS].sum(axis=1, keepdims=True)
    log_changes, step = np.linspace(*_LOG_CHANGES, _GRID, retstep=True)
    table = np.zeros((len(uneven), _GRID))
    for k, many in enumerate(np.exp(log_changes).tolist()):
        kept = kept_in_turn(ahead, night, np.full(used.size, many), np.ones(used.size), counts)
        evenly = -np.expm1(-many) / many * ahead.days()[:INSTANTS].sum()
        table[used, k] = np.log(kept.max(axis=1) / evenly)
    rows = np.flatnonzero(uneven[clocks.group] & (changes > 0.0))
    at = (np.clip(np.log(changes[rows]), *_LOG_CHANGES) - log_changes[0]) / step
    low = np.minimum(at.astype(np.int64), _GRID - 2)
    group, part = clocks.group[rows], at - low
    log_gain = table[group, low] * (1.0 - part) + table[group, low + 1] * part
    found[rows] = np.exp(np.where(log_gain > _LEAST_GAIN, log_gain, 0.0))
    return found


def fresh_in_turn(
    ahead: Ahead,
    clock: FloatArray,
    rate: FloatArray,
    nights: FloatArray,
    asked: FloatArray,
    at_us: IntArray,
) -> FloatArray:
    """Which share of the time pages are fresh that are crawled once in so many nights, at one time of them.

    Parameters
    ----------
    ahead, clock, rate, nights, asked
        As in `kept_in_turn`.
    at_us : (n,) int64, UTC microseconds
        Of some crawl.

    Returns
    -------
    (n,) float64
    """
    kept = kept_in_turn(ahead, clock, rate, nights, asked)
    begin, horizon_us = int(ahead.at_us[0]), int(ahead.at_us[INSTANTS] - ahead.at_us[0])
    instant = (at_us - begin) % horizon_us * INSTANTS // horizon_us
    # Crawls lie within their instants, half of one late on average.
    row = np.arange(len(kept))
    middle = 0.5 * (kept[row, instant] + kept[row, (instant + 1) % INSTANTS])
    result: FloatArray = middle / (nights * (horizon_us / US_PER_DAY))
    return result


def best_instants(
    ahead: Ahead,
    clock: FloatArray,
    rate: FloatArray,
    fresh: FloatArray,
    crawls: Int32Array,
    until: IntArray,
    asked: FloatArray | None = None,
) -> tuple[IntArray, FloatArray]:
    """How fresh pages are with crawls at each instant of the night, their other crawls being placed.

    Parameters
    ----------
    ahead, clock, rate, fresh
        As in `crawl_values`.
    crawls : (n,) int32, 1 or more
        Crawls of each page in the night.
    until : (n,) int64
        Step before which the next crawl after this night is expected.
    asked : (n, m) float64, optional
        As in `kept_in_turn`.

    Returns
    -------
    page : (k,) int64
        Row of each crawl: page by page, in order of time.
    kept : (k, `INSTANTS`) float64, days
        Fresh days with this crawl at each instant.
    """
    n, m = clock.shape
    steps = clock * rate[:, None]
    still, within = np.exp(-steps), _fresh_days(steps, ahead.days())
    if asked is not None:
        within = within * asked
    # Fresh days from each step on, of a copy taken at its begin, to `until`.
    rest = np.zeros((n, m + 1))
    for j in range(m - 1, -1, -1):
        rest[:, j] = np.where(j < until, within[:, j] + still[:, j] * rest[:, j + 1], 0.0)
    rest = rest[:, :INSTANTS]
    several = np.flatnonzero(crawls > 1)
    kept = fresh[:, None] * _fresh_until(still, within, 0) + rest
    page, placed = _in_order(still[several], within[several], kept[several], rest[several], crawls[several])
    once = np.flatnonzero(crawls == 1)
    page, kept = np.concatenate([once, several[page]]), np.concatenate([kept[once], placed])
    order = np.argsort(page, kind="stable")
    return page[order], kept[order]


def _fresh_days(steps: FloatArray, days: FloatArray) -> FloatArray:
    """Fresh days in each step of a copy taken at its begin: (n, m) float64."""
    found: FloatArray = np.where(steps > 1e-9, -np.expm1(-steps) / np.maximum(steps, 1e-300), 1.0) * days
    return found


def _fresh_until(still: FloatArray, within: FloatArray, begin: int) -> FloatArray:
    """Fresh days from a step of the night to the begin of each, of a copy taken there: (n, `INSTANTS`)."""
    found = np.zeros((len(still), INSTANTS))
    last = INSTANTS - 1
    alive = np.ones((len(still), last - begin))
    np.cumprod(still[:, begin : last - 1], axis=1, out=alive[:, 1:])
    np.cumsum(alive * within[:, begin:last], axis=1, out=found[:, begin + 1 :])
    return found


def _in_order(
    still: FloatArray, within: FloatArray, first: FloatArray, rest: FloatArray, crawls: Int32Array
) -> tuple[IntArray, FloatArray]:
    """`best_instants` of pages with two crawls or more; `first` is how fresh they are with one alone."""
    n = len(first)
    if not n:
        return np.zeros(0, np.int64), first
    span = np.full((n, INSTANTS, INSTANTS), -np.inf)
    for a in range(INSTANTS - 1):
        span[:, a, a + 1 :] = _fresh_until(still, within, a)[:, a + 1 :]
    rows, tables = [], []
    # Fresh days after the j-th crawl from the last one, at each instant: from the end backwards.
    after = [rest]
    for j in range(1, int(crawls.max())):
        some = np.flatnonzero(crawls > j)
        later = span[some] if len(some) < n else span.copy()
        later += after[-1][some, None, :]
        after.append(np.full((n, INSTANTS), -np.inf))
        after[-1][some] = later.max(axis=2)
    ahead_of = first - rest
    taken = np.full(n, -1)
    for j in range(len(after)):
        some = np.flatnonzero(crawls > j)
        left = crawls[some] - 1 - j
        kept = ahead_of[some] + np.stack(after)[left, some]
        kept = np.where(np.arange(INSTANTS) > taken[some, None], kept, -np.inf)
        rows.append(some)
        tables.append(kept)
        choice = kept.argmax(axis=1)
        ahead_of = np.full((n, INSTANTS), -np.inf)
        ahead_of[some] = span[some, choice]
        taken[some] = choice
    return np.concatenate(rows), np.concatenate(tables)
