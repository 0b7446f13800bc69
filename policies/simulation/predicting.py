"""The prediction task of Han et al. 2019, section 4: will a page change within the next K hours?

Rows are pages at times an interval apart, at an hour of their own for each page. Features are of what a
crawler had found by then: under *full* observability an hourly one, under *partial* one that comes at uneven
intervals, each page at a mean of its own. Labels are of the true history. Time is cut into training,
validation and test with an interval between them, and a quarter of the pages is never trained on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from policies.clocks.learning import Spells, fit, normalised, profiles
from policies.clocks.profile import US_PER_HOUR
from policies.estimation.prior import Prior, estimate, fit_prior
from policies.history.history import fold
from policies.history.page_state import US_PER_DAY, PageState, evidence
from policies.history.visits import Observations
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.predictors.predictor import Predictor
from policies.predictors.rows import HOURS, WINDOWS_DAYS, Rows
from policies.simulation.histories import ChangeHistory
from policies.simulation.streams import generator

FULL, PARTIAL = "full", "partial"
HALF_LIFE_CHANGES: Final = 12
UNSEEN_SHARE: Final = 0.25
GAPS_DAYS: Final = (0.5, 8.0)
"""Mean intervals between partial crawls: each page has one, drawn evenly in logarithm."""

WARM_UP_DAYS: Final = 30
MOST_WARM_UP, TRAIN_SHARE, VALIDATION_SHARE = 0.25, 0.68, 0.05
REFIT_DAYS, LEARN_DAYS = 7, 60
MOST_ROWS, MOST_LEARNED = 200_000, 80_000
_HOUR_CERTAIN: Final = 5.0


@dataclass(frozen=True)
class Pages:
    """n pages, when they change, and what is known of them beside that.

    Attributes
    ----------
    name : str
    history : ChangeHistory
    host, group, borrowing : (n,) int64
        Pages of a host may share hours, changes are counted by group (the paper's category), and rates are
        borrowed from pages with the same number of `borrowing`.
    metadata : (n, m) int64
        Values of catalogue columns by number, from 1 on.
    """

    name: str
    history: ChangeHistory
    host: IntArray
    group: IntArray
    borrowing: IntArray
    metadata: IntArray


@dataclass(frozen=True)
class Part:
    """Rows of a part of the time.

    Attributes
    ----------
    rows : Rows
    at_us : (k,) int64, UTC microseconds
    offset : (k,) float64
        Log cumulative hazard of the estimator.
    """

    rows: Rows
    at_us: IntArray
    offset: FloatArray

    def take(self, kept: BoolArray | IntArray) -> Part:
        """Some of the rows."""
        return Part(self.rows.take(kept), self.at_us[kept], self.offset[kept])

    def joined(self, other: Part) -> Part:
        """The rows of both."""
        at_us, offset = (np.concatenate([getattr(self, n), getattr(other, n)]) for n in ("at_us", "offset"))
        return Part(self.rows.joined(other.rows), at_us, offset)

    @property
    def log_days(self) -> FloatArray:
        """The offset of models that stand alone."""
        result: FloatArray = np.log(self.rows.days)
        return result


@dataclass(frozen=True)
class Task:
    """Training and validation are of pages that are seen, the test is of all.

    Attributes
    ----------
    train, validation, test : Part
    seen : (n,) bool
    """

    train: Part
    validation: Part
    test: Part
    seen: BoolArray


def make_task(pages: Pages, horizon_hours: int, observability: str, seed: int) -> Task:
    """The rows of a task.

    Parameters
    ----------
    pages : Pages
    horizon_hours : int
        The paper's K.
    observability : {"full", "partial"}
    seed : int
        Of crawls, hours and of which pages are never trained on.
    """
    n = len(pages.history)
    seen = generator(seed, 0, "unseen pages").random(n) >= UNSEEN_SHARE
    horizon_us = horizon_hours * US_PER_HOUR
    start, end = pages.history.start_us, pages.history.end_us
    whole = end - start
    begin = start + min(WARM_UP_DAYS * US_PER_DAY, int(MOST_WARM_UP * whole))
    cuts = [
        begin,
        *(start + int(share * whole) for share in (TRAIN_SHARE, TRAIN_SHARE + VALIDATION_SHARE)),
        end,
    ]
    seen_by = _Known(pages, _crawls(pages.history, observability, seed), seen, begin)
    parts = []
    for number, (low, high) in enumerate(pairwise(cuts)):
        page, at = _times(
            pages.history, low, high - 2 * horizon_us, horizon_us, seed, number, seen, number < 2
        )
        parts.append(_part(seen_by, page, at, horizon_us))
    return _with_hours(Task(parts[0], parts[1], parts[2], seen), pages.host, horizon_hours)


def refitted(task: Task, model: Predictor) -> FloatArray:
    """Log multipliers of the test rows by a model that is fitted anew each week, as a nightly job would.

    It learns from the rows of pages that are seen whose outcome was known by then, of the last 60 days.
    """
    every = task.train.joined(task.validation).joined(task.test)
    trained = task.seen[every.rows.page]
    over = every.at_us + (every.rows.days * US_PER_DAY).astype(np.int64)
    week = (task.test.at_us - task.test.at_us.min(initial=0)) // (REFIT_DAYS * US_PER_DAY)
    found = np.empty(len(week))
    for number in np.unique(week):
        rows = week == number
        now = task.test.at_us[rows].min()
        rest = np.flatnonzero(trained & (over <= now) & (every.at_us > now - LEARN_DAYS * US_PER_DAY))
        known = every.take(rest[:: 1 + len(rest) // MOST_LEARNED])
        model.fit(known.rows, known.offset)
        found[rows] = model.log_multiplier(task.test.rows.take(rows))
    return found


def _times(
    history: ChangeHistory,
    low: int,
    high: int,
    step: int,
    seed: int,
    number: int,
    seen: BoolArray,
    only: bool,
) -> tuple[IntArray, IntArray]:
    """Pages and times of rows from `low` to `high`, at most `MOST_ROWS`; of pages that are `seen` `only`."""
    n = len(history)
    offset = generator(seed, 0, "hours").integers(0, max(step, US_PER_DAY) // US_PER_HOUR, n) * US_PER_HOUR
    page = np.flatnonzero(seen) if only else np.arange(n)
    at = low + offset[page] + np.arange(max((high - low) // step, 1))[:, None] * step
    rows = np.broadcast_to(page, at.shape).ravel()
    at = at.ravel()
    kept = (at >= history.first_us[rows]) & (at < high)
    rows, at = rows[kept], at[kept]
    if len(rows) > MOST_ROWS:
        some = generator(seed, number, "rows").random(len(rows)) < MOST_ROWS / len(rows)
        rows, at = rows[some], at[some]
    return rows, at


def _crawls(history: ChangeHistory, observability: str, seed: int) -> tuple[IntArray, IntArray]:
    """Crawls up to the end: pages and times, sorted by both."""
    n, begin, end = len(history), history.start_us, history.end_us
    first = np.maximum(history.first_us, begin)
    if observability == FULL:
        # Hourly crawls that find no change between two that do add nothing to those at midnights.
        hour = -(-history.change_us // US_PER_HOUR) * US_PER_HOUR
        nights = np.arange(begin, end, US_PER_DAY)
        page = np.concatenate([history.change_page, history.change_page, np.tile(np.arange(n), len(nights))])
        at = np.concatenate([hour, hour - US_PER_HOUR, np.repeat(nights, n)])
    elif observability == PARTIAL:
        rng = generator(seed, 0, "crawls")
        low, high = np.log(GAPS_DAYS)
        gap = np.exp(rng.uniform(low, high, n))
        count = np.ceil((end - first) / US_PER_DAY / gap * 1.25).astype(np.int64) + 8
        page = np.repeat(np.arange(n), count)
        step = (gap[page] * rng.uniform(0.5, 1.5, len(page)) * US_PER_DAY).astype(np.int64)
        total = np.cumsum(step)
        before = np.concatenate([[0], total])[np.concatenate([[0], np.cumsum(count)[:-1]])]
        at = first[page] + total - before[page]
    else:
        raise ValueError(f"observability {observability!r}: give {FULL} or {PARTIAL}")
    kept = (at >= first[page]) & (at < end)
    both = np.unique(np.column_stack([page[kept], at[kept]]), axis=0)
    return both[:, 0], both[:, 1]


class _Known:
    """What a crawler had found by a time: changes, and the estimates of each midnight."""

    def __init__(
        self, pages: Pages, crawls: tuple[IntArray, IntArray], seen: BoolArray, begin_us: int
    ) -> None:
        self.pages = pages
        page, at = crawls
        true = pages.history
        version = true.version(page, at)
        same = np.diff(page, prepend=-1) == 0
        changed = same & (np.diff(version, prepend=-1) != 0)
        self._first = np.maximum(true.first_us, true.start_us)
        self.found = ChangeHistory.from_events(
            true.start_us, true.end_us, self._first, page[changed], at[changed]
        )
        self.begin_day = (begin_us - true.start_us) // US_PER_DAY
        self._estimate(page, at, version, seen)

    def _estimate(self, page: IntArray, at: IntArray, version: IntArray, seen: BoolArray) -> None:
        """Rates at each midnight from the first row on: `rate` and `information`, (days, n)."""
        pages, start, end = self.pages, self.pages.history.start_us, self.pages.history.end_us
        n, group = len(seen), pages.borrowing
        groups = int(group.max(initial=0)) + 1
        order = np.lexsort((page, at))
        page, at, version = page[order], at[order], version[order]
        nights = np.arange(start, end, US_PER_DAY)
        cut = np.searchsorted(at, nights, side="right")
        state, prior = PageState.empty(n), Prior(0.5, 0.05, 2.0)
        rates, informations = [], []
        last = 0
        for day, night in enumerate(nights.tolist()):
            rows = slice(last, int(cut[day]))
            last = rows.stop
            digest = (version[rows] + 1).astype(np.uint64)
            status = np.full(rows.stop - rows.start, 200, np.int16)
            state, _ = fold(
                state,
                Observations(page[rows], at[rows], status, digest),
                night,
                half_life_changes=HALF_LIFE_CHANGES,
            )
            if day < self.begin_day:
                continue
            known = evidence(state, HALF_LIFE_CHANGES)
            if (day - self.begin_day) % REFIT_DAYS == 0:
                sample = np.flatnonzero(seen & (self._first <= night))
                prior = fit_prior(known.take(sample), group[sample])
            found = estimate(known, group, groups, prior)
            rates.append(found.change_rate_per_day)
            informations.append(found.information)
        self.rate, self.information = np.array(rates), np.array(informations)

    @cached_property
    def _daily(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sums of groups at each midnight: counts (3, days, g), days since a change and pages (days, g)."""
        n, start = len(self.pages.history), self.pages.history.start_us
        days = len(self.rate)
        groups = int(self.pages.group.max(initial=0)) + 1
        night = start + (self.begin_day + np.arange(days)) * US_PER_DAY
        page, at = np.tile(np.arange(n), days), np.repeat(night, n)
        there = self._first[page] <= at
        page, at = page[there], at[there]
        code = (at - start) // US_PER_DAY - self.begin_day
        key = code * groups + self.pages.group[page]
        count, since, _ = self.of_page(page, at)
        shape = (days, groups)
        counts = np.stack([sum_by(key, c, days * groups).reshape(shape) for c in count])
        total = sum_by(key, since, days * groups).reshape(shape)
        size = np.bincount(key, minlength=days * groups).reshape(shape).astype(np.float64)
        return counts, total, size

    def of_page(self, page: IntArray, at: IntArray) -> tuple[FloatArray, FloatArray, BoolArray]:
        """Changes in the windows (3, k), days since the last one (k,), and whether there was one (k,)."""
        here = self.found.position(page, at)
        count = np.stack(
            [here - self.found.position(page, at - int(days * US_PER_DAY)) for days in WINDOWS_DAYS]
        ).astype(np.float64)
        last = self.found.last_change(page, at)
        ever = last > self._first[page]
        return count, (at - last) / US_PER_DAY, ever

    def of_group(self, page: IntArray, at: IntArray) -> tuple[FloatArray, FloatArray]:
        """Means over the other pages of the group at the midnight before, (3, k) and (k,).

        Where there is no other page, those over all other pages.
        """
        counts, since, size = self._daily
        day = self.day(at)
        night = self.pages.history.start_us + (day + self.begin_day) * US_PER_DAY
        group = self.pages.group[page]
        own, own_since, _ = self.of_page(page, night)
        there = self._first[page] <= night
        own, own_since = own * there, np.where(there, own_since, 0.0)
        others = size[day, group] - there
        alone = others < 1.0
        of = np.where(alone, size.sum(axis=1)[day] - there, others)
        of = np.maximum(of, 1.0)
        mean = [
            (np.where(alone, c.sum(axis=1)[day], c[day, group]) - o) / of
            for c, o in zip(counts, own, strict=True)
        ]
        mean_since = (np.where(alone, since.sum(axis=1)[day], since[day, group]) - own_since) / of
        return np.maximum(np.stack(mean), 0.0), np.maximum(mean_since, 0.0)

    def day(self, at: IntArray) -> IntArray:
        """Index of the last midnight of the estimates."""
        found = (at - self.pages.history.start_us) // US_PER_DAY - self.begin_day
        return np.clip(found, 0, len(self.rate) - 1)


def _part(known: _Known, page: IntArray, at: IntArray, horizon_us: int) -> Part:
    pages = known.pages
    count, since, ever = known.of_page(page, at)
    group_count, group_since = known.of_group(page, at)
    day = known.day(at)
    rate, information = known.rate[day, page], known.information[day, page]
    days = np.full(len(page), horizon_us / US_PER_DAY)
    truth = pages.history
    changed = truth.position(page, at + horizon_us) > truth.position(page, at)
    rows = Rows(
        page,
        days,
        count,
        since,
        ever,
        group_count,
        group_since,
        np.log(rate),
        at // US_PER_DAY,
        at % US_PER_DAY // US_PER_HOUR,
        pages.metadata[page],
        changed,
    )
    return Part(rows, at, _log_hazard(rate, information, days))


def _log_hazard(rate: FloatArray, information: FloatArray, days: FloatArray) -> FloatArray:
    """``log(h log1p(r days / h))``: of no change with the chance `estimators.predict_unchanged`."""
    result: FloatArray = np.log(information * np.log1p(rate * days / information))
    return result


def _with_hours(task: Task, host: IntArray, horizon_hours: int) -> Task:
    """The task with offsets in the clock time of hosts whose hours certainly differ, or of all pages."""
    if horizon_hours % HOURS == 0:
        return task
    groups = int(host.max(initial=0)) + 1
    train = task.train
    order = np.argsort(host[train.rows.page], kind="stable")
    rate = np.exp(train.rows.log_rate)
    lengths = _lengths(train.rows, horizon_hours)

    def spells(group: IntArray) -> Spells:
        return Spells(group[order], lengths[order], train.rows.changed[order], rate[order])

    speed = np.repeat(normalised(fit(spells(np.zeros(len(order), np.int64)), 1, True)), groups, axis=0)
    certain, own, _ = profiles(spells(host[train.rows.page]), np.full(groups, _HOUR_CERTAIN), circular=True)
    speed[certain] = own

    def moved(part: Part) -> Part:
        by_clock = (_lengths(part.rows, horizon_hours) * speed[host[part.rows.page]]).sum(axis=1)
        return replace(part, offset=part.offset + np.log(by_clock / part.rows.days))

    return Task(moved(train), moved(task.validation), moved(task.test), task.seen)


def _lengths(rows: Rows, horizon_hours: int) -> FloatArray:
    """Days of the interval in each hour of the day: (k, 24)."""
    first = np.arange(HOURS) - rows.hour[:, None]
    return (first % HOURS < horizon_hours) / HOURS
