"""Clocks of a shard's hosts: carried, learned from the night's intervals, and what crawls are worth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from policies.clocks.kept import ENOUGH, MANY, Kept, joined, teaches
from policies.clocks.learning import CERTAIN
from policies.clocks.profile import AGES, NO_TIME, US_PER_DAY, WEEK_HOURS, Clocks
from policies.clocks.worth import Ahead, crawl_values
from policies.history.interval_sums import Intervals
from policies.history.page_state import PageState
from policies.history.visits import Observations
from policies.history.volatile import NOT_VOLATILE
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.batches import schemas
from transforms.kept.protocol import ShardNight, Statistic
from transforms.kept.state import list_column, microseconds, times
from transforms.shards.coding import ShardPages

_NEVER = np.iinfo(np.int64).max

SETTLING_US = 2 * US_PER_DAY
"""A page that is first seen so soon after its host is of unknown age."""

_KEPT_PER_PAGE, _KEPT_AT_LEAST, _KEPT_AT_MOST = 2, 128, 1024

EXPLORED, EXPLORED_MORE = 0.04, 0.16

_STEP = 30.0
"""Changes a day of a page whose objective stands for: one crawl a night up to a price, none above it."""


class ShardClocks(Statistic):
    """When the pages of a shard's hosts change: intervals that are kept, and the clocks learned from them."""

    STATE = (pa.field("first_seen_at", schemas.TIME),)
    PAGES = (pa.field("clock", pa.string()),)
    FOLDERS = (("state/clocks", schemas.STATE_CLOCKS),)

    def __init__(self, night: ShardNight) -> None:
        pages = self._pages = night.pages
        self._group = pages.host_code.astype(np.int64)
        self._groups = len(pages.host_start) - 1
        size = np.diff(pages.host_start)
        self._most: IntArray = np.clip(_KEPT_PER_PAGE * size, _KEPT_AT_LEAST, _KEPT_AT_MOST)
        self._kept = [_read(night.table("state_clocks"), pages)]
        self._first_us = self._first_seen(night)
        # What is seen first when its host is, was there before.
        first = np.where(self._first_us == NO_TIME, _NEVER, self._first_us)
        of_host = np.full(self._groups, _NEVER)
        np.minimum.at(of_host, self._group, first)
        appeared = (self._first_us != NO_TIME) & (self._first_us - of_host[self._group] > SETTLING_US)
        self._born_us: IntArray = np.where(appeared, self._first_us, NO_TIME)
        self.before, _ = self._learned(self._kept[0], night.before)

    def _first_seen(self, night: ShardNight) -> IntArray:
        """When each page was first fetched, or else listed; what a first night lists may be old."""
        first = np.full(len(self._pages), _NEVER)
        if night.state is not None:
            first[night.listed] = night.settings.as_of_us
        np.minimum.at(first, night.rows.page, night.rows.fetched_at_us)
        if night.state is None:
            first[night.listed] = NO_TIME
        first[first == _NEVER] = NO_TIME
        if night.state is not None:
            first[night.code] = night.carried("first_seen_at", NO_TIME)[night.code]
        return first

    def watch(self, first_page: int, intervals: Intervals) -> None:
        begin, page = intervals.at_us - intervals.gap_us, intervals.page + first_page
        rows = np.flatnonzero(teaches(begin, intervals.at_us, self._born_us[page]))
        page, hashes = page[rows], self._pages.url_hash
        group, end = self._group[page], intervals.at_us[rows]
        new = Kept.of(group, page, hashes[page], begin[rows], end, intervals.changed[rows])
        self._kept.append(new.best(self._most))

    def fold(self, night: ShardNight, rows: Observations) -> None:
        night.after = self.learn(night.after)

    def learn(self, history: PageState) -> PageState:
        """Learn from the night's intervals.

        Returns the state in the clock time of tonight: where a clock of age has just become certain, or is no
        longer, sums of its host's pages are brought from one to the other.
        """
        kept = joined(self._kept).best(self._most)
        self._kept = [kept]
        self._short = kept.short(self._groups)
        self.now, self._gain = self._learned(kept, history)
        return self._converted(history)

    def _learned(self, kept: Kept, history: PageState) -> tuple[Clocks, FloatArray]:
        hour, age, gain = kept.clocks(self._groups, self._born_us, self._rates(history))
        return Clocks(hour, age, self._group, self._born_us), gain

    def _rates(self, history: PageState) -> FloatArray:
        """Rough change rates of pages, per day."""
        page = history.bin_page()
        n = len(history)
        changes = history.dated_changes + np.bincount(page, history.bin_weight, n)
        days = history.exposure_days + np.bincount(page, history.bin_days, n)
        total, held = (np.bincount(self._group, v, self._groups) for v in (changes, days))
        mean = (total + 0.5) / np.maximum(held + 5.0, 1e-9)
        rate: FloatArray = (changes + 1.0) / (days + 1.0 / mean[self._group])
        return rate

    def _converted(self, history: PageState) -> PageState:
        was, now = self.before, self.now
        switched = (was.by_age != now.by_age)[self._group]
        rows = np.flatnonzero(switched & (history.baseline_at_us != NO_TIME))
        if not rows.size:
            return history
        until = history.baseline_at_us[rows]
        born = self._born_us[rows]
        begin = np.where((born == NO_TIME) | (born >= until), until - US_PER_DAY, born)
        factor = np.ones(len(history))
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = now.days(rows, begin, until) / was.days(rows, begin, until)
        factor[rows] = np.where(np.isfinite(ratio) & (ratio > 0.0), ratio, 1.0)
        of_bin = factor[history.bin_page()]
        return replace(
            history,
            exposure_days=history.exposure_days * factor,
            bin_days=history.bin_days * of_bin,
            bin_days_squared=history.bin_days_squared * of_bin * of_bin,
        )

    def state(self) -> dict[str, pa.Array]:
        return {"first_seen_at": times(self._first_us)}

    def files(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        (kept,) = self._kept
        columns = [
            pa.array(self._pages.url_hash[kept.page]),
            times(kept.from_us),
            times(kept.to_us),
            pa.array(kept.changed),
        ]
        yield "state/clocks", pa.RecordBatch.from_arrays(columns, schema=schemas.STATE_CLOCKS)

    def explored(self) -> FloatArray:
        """Share of the pages crawled in the second half of last night that are crawled again tonight, (g,).

        More where it seems that hours matter, nothing where enough is known.
        """
        short = self._short
        promising = (self._gain > 0.5 * CERTAIN) & (self._gain < 4.0 * CERTAIN)
        promising &= short < np.minimum(MANY, self._most // 2)
        return np.where(promising, EXPLORED_MORE, np.where(short < ENOUGH, EXPLORED, 0.0))

    def limit_volatile(self, night: ShardNight, weight_limit: FloatArray) -> None:
        """Correct what `policies.history.volatile.weight_limit` says by days of the clock; in place.

        Who changes at every visit because it is young is planned crawl by crawl, and is no candidate.
        """
        as_of_us, horizon_us = night.settings.as_of_us, night.settings.hosts.horizon_us
        rows = np.flatnonzero((weight_limit >= 0.0) & (self.now.by_hour | self.now.by_age)[self._group])
        if rows.size:
            begin = np.full(rows.size, as_of_us)
            days = self.now.days(rows, begin, begin + horizon_us)
            young = self.now.settles(rows, night.after.last_attempt_at_us[rows])
            weight_limit[rows] = np.where(
                young, NOT_VOLATILE, weight_limit[rows] * days / (horizon_us / US_PER_DAY)
            )

    def columns(self, night: ShardNight) -> dict[str, pa.Array]:
        """Of pages, where a host follows a clock: tonight's speed, and clock days since the last try."""
        if not self._follow().size:
            return {}
        as_of_us, horizon_us = night.settings.as_of_us, night.settings.hosts.horizon_us
        tried_us = np.maximum(night.after.last_attempt_at_us, night.last_slot_us)
        page = np.arange(len(self._pages))
        whole = np.full(len(page), as_of_us)
        speed = self.now.days(page, whole, whole + horizon_us) / (horizon_us / US_PER_DAY)
        known = tried_us != NO_TIME
        since = np.zeros(len(page))
        rows = np.flatnonzero(known)
        since[rows] = self.now.days(rows, np.minimum(tried_us[rows], as_of_us), whole[rows])
        return {
            "born_at": times(self._born_us),
            "clock_speed": pa.array(speed),
            "clock_since": pa.array(since),
        }

    def _follow(self) -> IntArray:
        return np.flatnonzero(self.now.by_hour | self.now.by_age)

    def tables(self, night: ShardNight) -> dict[str, pa.RecordBatch]:
        """The table "clocks": hosts that follow one."""
        follow = self._follow()
        if not follow.size:
            return {}
        as_of_us, horizon_us = night.settings.as_of_us, night.settings.hosts.horizon_us
        clocks = pa.RecordBatch.from_pydict(
            {
                "host_code": pa.array(follow.astype(np.int32)),
                "hour": _rows(self.now.hour[follow]),
                "age": _rows(self.now.age[follow]),
                "as_of_us": pa.array(np.full(follow.size, as_of_us)),
                "horizon_us": pa.array(np.full(follow.size, horizon_us)),
            }
        )
        return {"clocks": clocks}


def _rows(values: FloatArray) -> pa.Array:
    return list_column(np.arange(len(values) + 1) * values.shape[1], values.ravel())


def _read(carried: pa.Table | None, pages: ShardPages) -> Kept:
    """The rows of `schemas.STATE_CLOCKS` of pages that are there."""
    rows = schemas.STATE_CLOCKS.empty_table() if carried is None else carried
    page = pages.code(rows.column("url_hash").to_numpy())
    some = page >= 0
    page, changed = page[some], rows.column("changed").to_numpy()[some]
    begin, end = (microseconds(rows.column(f"{name}_at"))[some] for name in ("from", "to"))
    group = pages.host_code[page].astype(np.int64)
    kept = Kept.of(group, page, pages.url_hash[page], begin, end, changed)
    return kept.take(np.argsort(group, kind="stable"))


@dataclass(frozen=True)
class Tonight:
    """Clocks of the pages of an estimated shard, for the night.

    Attributes
    ----------
    clocks : Clocks
    as_of_us, horizon_us : int
    """

    clocks: Clocks
    as_of_us: int
    horizon_us: int

    @classmethod
    def of(cls, tables: dict[str, pa.RecordBatch]) -> Tonight | None:
        """From the tables of a shard; None where all clocks are flat."""
        clocks, pages = tables.get("clocks"), tables["pages"]
        if clocks is None or not clocks.num_rows:
            return None
        groups = tables["hosts"].num_rows
        host = clocks.column("host_code").to_numpy()
        hour, age = np.ones((groups, WEEK_HOURS)), np.ones((groups, AGES))
        hour[host] = clocks.column("hour").flatten().to_numpy().reshape(-1, WEEK_HOURS)
        age[host] = clocks.column("age").flatten().to_numpy().reshape(-1, AGES)
        group = pages.column("host_code").to_numpy().astype(np.int64)
        born = microseconds(pages.column("born_at"))
        at, horizon = (clocks.column(n)[0].as_py() for n in ("as_of_us", "horizon_us"))
        return cls(Clocks(hour, age, group, born), at, horizon)

    def evenly(
        self, pages: pa.RecordBatch, row: IntArray, from_us: IntArray, to_us: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Days before the night and from then on that at tonight's speed are as long, two (k,) float64.

        Parameters
        ----------
        pages : RecordBatch
        row, from_us, to_us : (k,) int64
            Rows of pages, and spans that end in the night.
        """
        night = np.full(len(row), self.as_of_us)
        speed = pages.column("clock_speed").to_numpy()[row]
        spans = ((np.minimum(from_us, night), night), (np.maximum(from_us, night), np.maximum(to_us, night)))
        before, ahead = (self.clocks.days(row, *span) / speed for span in spans)
        return before, ahead

    @property
    def ahead(self) -> Ahead:
        return Ahead.of(self.as_of_us, self.horizon_us)

    def columns(
        self,
        pages: pa.RecordBatch,
        rate: FloatArray,
        information: FloatArray,
        change_rate_per_day: FloatArray,
        weight: FloatArray,
        cap: FloatArray,
        signalled: IntArray,
    ) -> dict[str, pa.Array]:
        """What the search is told of pages, those whose clocks change with age being "by_age".

        There is no crawl rate to speak of for such a page: it asks for one crawl tonight up to the price that
        this is worth. A page that changes very often, may be crawled once, and weighs so much that it gives
        up at that price, asks for the same.

        Parameters
        ----------
        pages : RecordBatch
        rate : (n,) float64
            Changes per clock day, with `information`.
        change_rate_per_day : (n,) float64
            Changes per day tonight.
        weight, cap : (n,) float64
        signalled : (s,) int64
            Pages that signals speak for.
        """
        last = np.maximum(*(microseconds(pages.column(f"last_{name}_at")) for name in ("attempt", "slot")))
        last[signalled] = NO_TIME
        rows = np.flatnonzero((last != NO_TIME) & (rate > 0.0) & (weight > 0.0) & (cap > 0.0))
        rows = rows[self.clocks.settles(rows, last[rows])]
        since, ahead = pages.column("clock_since").to_numpy()[rows], self.ahead
        clock = ahead.clock(self.clocks, rows)
        value = crawl_values(ahead, clock, rate[rows], information[rows], since, weight[rows])
        days = self.horizon_us / US_PER_DAY
        plan_change, plan_weight, plan_cap = change_rate_per_day.copy(), weight.copy(), cap.copy()
        plan_change[rows] = _STEP / days
        plan_weight[rows] = value * plan_change[rows]
        plan_cap[rows] = np.minimum(plan_cap[rows], 1.0 / days)
        by_age = np.zeros(len(rate), np.bool_)
        by_age[rows] = True
        found = {
            "plan_change": plan_change,
            "plan_weight": plan_weight,
            "plan_cap": plan_cap,
            "by_age": by_age,
        }
        return {name: pa.array(values) for name, values in found.items()}
