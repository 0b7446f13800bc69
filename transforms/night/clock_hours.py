"""Crawls of pages that follow a clock, at the hours of the night that are best for them."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from policies.clocks import exploring
from policies.clocks.instants import keep_gaps, place, splitting, spread
from policies.clocks.moving import PROBED, PROBED_US, telling
from policies.clocks.profile import AGE_EDGES_HOURS, NO_TIME, US_PER_DAY
from policies.clocks.worth import INSTANTS, best_instants, fresh_in_turn, kept_in_turn, survival
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives.objectives import Objective
from policies.sequencing.sequencing import REASON_HOUR, Sequence
from transforms.batches.coders import ShardTables
from transforms.batches.tally import Counts
from transforms.batches.zones import summer_time
from transforms.kept.clocks import EXPLORED_KINDS
from transforms.kept.state import microseconds
from transforms.night.dividing import Night
from transforms.night.learning import is_new
from transforms.night.night_clocks import Tonight

STAYING, SPLITTING = 1.0 / 24.0, 1.0 / 72.0
"""Shares of the crawls of pages that follow a clock that learn it. The first stay where they fall; the others
split the hours in which pages are thought to change, so that these become fewer."""

STAYING_UNKNOWN = 1.0 / 6.0
"""Of pages that go by the hours of requests alone."""

TURNS_AHEAD = 3.0
"""For so many further turns a page is thought to keep the hour that it gets. To change it costs up to a day
of freshness once, and a bad hour costs a little at every turn."""

CLOCK_NAMES = ("hour", "age", "hour and age")

_MOST_CRAWLS = 12
_LEAST_WEIGHT = 1e-9
_SURELY = 1e9
_CHUNK = 2048


def page_clocks(hours: ClockHours | None, pages: int) -> dict[str, pa.Array]:
    """What each page follows, one of `CLOCK_NAMES`, its speed tonight and what its hours gain; else null."""
    if hours is None:
        return {"clock": pa.nulls(pages, pa.string())} | {
            name: pa.nulls(pages, pa.float64()) for name in ("clock_speed", "clock_gain")
        }
    codes = hours.codes()
    name = pa.array(CLOCK_NAMES).take(pa.array(codes, mask=codes < 0))
    return {
        "clock": name,
        "clock_speed": pa.array(hours.speed, mask=codes < 0),
        "clock_gain": pa.array(hours.gain, mask=hours.gain == 1.0),
    }


def count_clocks(hours: ClockHours | None, counts: Counts) -> None:
    """Count the pages of each clock."""
    number = np.zeros(3, np.int64) if hours is None else np.bincount(hours.codes() + 1, minlength=4)[1:]
    for name, n in zip(CLOCK_NAMES, number.tolist(), strict=True):
        counts.add(f"pages_clock_{name.replace(' ', '_')}", n)


def host_clocks(hours: ClockHours | None, hosts: int) -> dict[str, pa.Array]:
    """What hosts/ says of when pages change: null where it does not matter as far as is known."""
    if hours is None:
        return {}
    found = hours.tonight.profiles
    day = found.of_day
    peak = day.argmax(axis=1)
    around = (peak[:, None] + np.arange(-1, 2)) % 24
    share = np.take_along_axis(day, around, axis=1).sum(axis=1) / day.sum(axis=1)
    # Of a page that is watched for as long as bins of age are bounded.
    edges = np.array((0, *AGE_EDGES_HOURS), np.float64)
    changes = np.zeros((len(found), len(edges)))
    np.cumsum(found.age[:, :-1] * np.diff(edges), axis=1, out=changes[:, 1:])
    half = np.array([np.interp(0.5 * c[-1], c, edges) for c in changes])
    columns: dict[str, pa.Array] = {}
    for name, values, known in (
        ("peak_hour", peak.astype(np.int32), found.by_hour_of_day),
        ("peak_share", share, found.by_hour_of_day),
        ("half_age_hours", half, found.by_age),
    ):
        whole, missing = np.zeros(hosts, values.dtype), np.ones(hosts, np.bool_)
        whole[found.group], missing[found.group] = values, ~known
        columns[name] = pa.array(whole, mask=missing)
    return columns


def explored_tonight(
    pages: pa.RecordBatch,
    hosts: pa.RecordBatch,
    rate: FloatArray,
    since_days: FloatArray,
    last_us: IntArray,
    night: Night,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """A few pages that come again to learn when they change, see `exploring.kinds`.

    Returns
    -------
    (k,) int64, ascending
    (n,) float64, (n,) float64
        Rates and days since the last try by which each of them is due at some time of the night.
    """
    host = pages.column("host_code").to_numpy()
    recent = last_us > night.as_of_us - night.horizon_us // 2
    young = np.zeros(len(host), np.bool_)
    if "young" in pages.schema.names:
        young = pages.column("young").to_numpy(zero_copy_only=False) & ~is_new(pages)
    seen = (pages.column(f"n_{name}").to_numpy() for name in ("intervals", "changes"))
    part = np.full(len(host), np.inf)
    hours, *of_young = EXPLORED_KINDS
    shares = [hosts.column(name).to_numpy() for name in (hours, hours, *of_young)]
    shares[1] = exploring.OF_NIGHTLY * shares[1]
    for share_of_host, some in zip(shares, exploring.kinds(rate, recent, young, *seen), strict=True):
        share = share_of_host[host]
        chosen = np.flatnonzero((share > 0.0) & some)
        drawn = exploring.drawn_tonight(pages.column("url_hash").to_numpy()[chosen], night.as_of_us)
        of_kind = exploring.part_of_night(share[chosen], host[chosen], drawn, hosts.num_rows)
        part[chosen] = np.minimum(part[chosen], of_kind)
    rows = np.flatnonzero(part < 1.0)
    if rows.size:
        rate, since_days = rate.copy(), since_days.copy()
        rate[rows] = np.maximum(rate[rows], exploring.LEAST_RATE_PER_DAY)
        due = 1.0 / rate[rows] - part[rows] * (night.horizon_us / US_PER_DAY)
        since_days[rows] = np.maximum(since_days[rows], due)
    return rows, rate, since_days


@dataclass(frozen=True)
class ClockHours:
    """What a night's schedule needs to know of clocks.

    Attributes
    ----------
    tonight : Tonight
    rate, information : (n,) float64
        Changes per clock day.
    since : (n,) float64
        Clock days since the last try.
    turn : (n,) float64
        The same by clocks that run evenly through each day, if the night is of whole days. By them crawls
        take turns: with a batch at midnight a page might else come twice in a night and then not at all.
    speed : (n,) float64
        Clock days in a day of tonight.
    by_age : (n,) bool
        Pages that are planned crawl by crawl, see `Tonight.columns`.
    crawl_rate_per_day : (n,) float64
    gain : (n,) float64
        See `policies.clocks.worth.gains`.
    last_us : (n,) int64, UTC microseconds
        Last try or slot, `NO_TIME` if none.
    """

    tonight: Tonight
    rate: FloatArray
    information: FloatArray
    since: FloatArray
    turn: FloatArray
    speed: FloatArray
    by_age: BoolArray
    crawl_rate_per_day: FloatArray
    gain: FloatArray
    last_us: IntArray

    @classmethod
    def of(cls, estimated: ShardTables, crawl_rate_per_day: FloatArray) -> ClockHours | None:
        """Of an estimated shard; None where no host follows a clock."""
        tonight = Tonight.of(estimated.tables)
        if tonight is None:
            return None
        pages = estimated.tables["pages"]
        speed, change, information, since = (
            pages.column(n).to_numpy()
            for n in ("clock_speed", "change_rate_per_day", "information", "clock_since")
        )
        turn = since
        last = np.maximum(*(microseconds(pages.column(f"last_{n}_at")) for n in ("attempt", "slot")))
        if tonight.horizon_us % US_PER_DAY == 0:
            rows = np.flatnonzero(last != NO_TIME)
            night = np.full(len(rows), tonight.as_of_us)
            turn = np.zeros(len(since))
            turn[rows] = tonight.clocks.by_days().days(rows, np.minimum(last[rows], night), night)
        by_age = pages.column("by_age").to_numpy(zero_copy_only=False)
        gain = pages.column("clock_gain").to_numpy()
        return cls(
            tonight, change / speed, information, since, turn, speed, by_age, crawl_rate_per_day, gain, last
        )

    def codes(self) -> IntArray:
        """What each page follows, as an index into `CLOCK_NAMES`, -1 for none: (n,) int64."""
        clocks = self.tonight.clocks
        by_hour, by_age = (v[clocks.group].astype(np.int64) for v in (clocks.by_hour, clocks.by_age))
        codes: IntArray = by_hour + 2 * by_age - 1
        return codes

    def since_days(self, plain: FloatArray) -> FloatArray:
        """Days that at tonight's speed would have been as long as the time since the last try, (n,).

        Without any try it is as long as in `plain`.
        """
        found = np.where((plain > 0.0) & np.isfinite(plain), self.turn / self.speed, plain)
        due = self.crawl_rate_per_day > 0.0
        waits = 1.0 / np.where(due, self.crawl_rate_per_day, 1.0)
        return np.where(self.by_age, np.where(due, waits * (1.0 + 1e-9), plain), found)

    def correct_freshness(self, fresh: FloatArray) -> None:
        """Enter how fresh pages are tonight that are planned crawl by crawl."""
        rows = np.flatnonzero(self.by_age)
        days = self.tonight.horizon_us / US_PER_DAY
        half = 0.5 * self.speed[rows] * days * self.rate[rows]
        old = survival(self.since[rows] * self.rate[rows] + half, self.information[rows])
        new = survival(half, self.information[rows])
        share = np.minimum(self.crawl_rate_per_day[rows] * days, 1.0)
        fresh[rows] = old + share * 0.5 * (new - old)

    def freshen(
        self,
        fresh: FloatArray,
        weight: FloatArray,
        sequence: Sequence,
        last_us: IntArray,
        objective: Objective,
    ) -> float:
        """Enter how fresh pages are whose crawls have their hours; the sum of what that adds, by weight.

        Pages that are crawled about once a night, or less, are thought to keep the hour of tonight's crawl,
        or of the last one before; those that are crawled more are as fresh as the plan has it.
        """
        tonight = self.tonight
        if tonight.horizon_us % US_PER_DAY:
            return 0.0
        nightly = self.crawl_rate_per_day * (tonight.horizon_us / US_PER_DAY)
        at_us, used = last_us.copy(), sequence.page >= 0
        at_us[sequence.page[used]] = sequence.due_offset_us[used] + tonight.as_of_us
        once = (nightly > 0.0) & (nightly < 1.5) & (fresh > 0.0) & (at_us != NO_TIME) & ~self.by_age
        rows = np.flatnonzero(once & (tonight.clocks.by_hour[tonight.clocks.group] | self.by_requests))
        gained = 0.0
        for low in range(0, rows.size, _CHUNK):
            some = rows[low : low + _CHUNK]
            turns = np.maximum(1.0 / nightly[some], 1.0)
            clock = tonight.ahead.clock(tonight.clocks, some)
            found = fresh_in_turn(
                tonight.ahead, clock, self.rate[some], turns, self._asked(some), at_us[some]
            )
            gained += float((weight[some] * (found - fresh[some])).sum())
            fresh[some] = found
        often = np.flatnonzero((nightly >= 1.5) & (self.gain > 1.0))
        change = self.rate[often] * self.speed[often] / self.gain[often]
        found = objective.freshness(self.crawl_rate_per_day[often], change)
        gained += float((weight[often] * (found - fresh[often])).sum())
        fresh[often] = found
        return gained

    def place(
        self,
        sequence: Sequence,
        pages: pa.RecordBatch,
        hosts: pa.RecordBatch,
        fixed: BoolArray,
        apart: Collection[int],
        capacity: float,
    ) -> Sequence:
        """Move crawls within the night.

        Parameters
        ----------
        sequence : Sequence
        pages, hosts : RecordBatch
            Of the estimated shard.
        fixed : (n,) bool
            Pages whose crawls stay where they are.
        apart : collection of int
            Hosts whose crawls stay: other shards crawl them, too.
        capacity : float
            An hour may hold so many times its even share.
        """
        host = pages.column("host_code").to_numpy().astype(np.int64)
        gap_us = hosts.column("gap_us").to_numpy().astype(np.int64)
        last = microseconds(hosts.column("last_slot_at"))
        free_us = np.where(last == NO_TIME, 0, np.maximum(last + gap_us - self.tonight.as_of_us, 0))
        movable = ~fixed
        movable[np.isin(host, list(apart))] = False
        url_hash = pages.column("url_hash").to_numpy()
        clocks, horizon_us = self.tonight.clocks, self.tonight.horizon_us
        used = np.flatnonzero(sequence.page >= 0)
        page = sequence.page[used].astype(np.int64)
        follows = movable & ((clocks.by_hour | clocks.by_age)[clocks.group] | self.by_requests)
        count = np.bincount(page, minlength=len(movable))
        follows &= (count > 0) & (count <= _MOST_CRAWLS)
        drawn = exploring.drawn_tonight(url_hash, self.tonight.as_of_us)
        # Where no hours are known yet more stay, so that some may be found.
        by_clock = (clocks.by_hour | clocks.by_age)[clocks.group]
        follows &= drawn >= np.where(by_clock, STAYING, STAYING_UNKNOWN)
        rows = np.flatnonzero(follows)
        if not rows.size:
            return sequence
        order = np.lexsort((sequence.due_offset_us[used], page))
        mine = used[order][follows[page[order]]]  # slots of these pages, page by page, in order of time
        kept = np.concatenate([self._kept(rows[i : i + _CHUNK], count) for i in range(0, rows.size, _CHUNK)])
        first = np.searchsorted(page[order][follows[page[order]]], rows)
        share = (drawn[rows] - STAYING) / SPLITTING
        splits = np.flatnonzero((share < 1.0) & clocks.by_hour[clocks.group[rows]])
        hours = self.tonight.ahead.clock(clocks, rows[splits])
        kept[first[splits]] = 0.0
        kept[first[splits], splitting(hours, share[splits])] = _SURELY
        probes, probed_at = self._probes(rows, drawn[rows], count[rows], kept[first])
        kept[first[probes]] = 0.0
        kept[first[probes], probed_at] = _SURELY
        width = horizon_us / INSTANTS
        due = sequence.due_offset_us.copy()
        stays = np.ones(len(due), np.bool_)
        stays[mine] = False
        stays &= sequence.page >= 0
        taken = np.bincount(
            np.minimum((due[stays] / width).astype(np.int64), INSTANTS - 1), minlength=INSTANTS
        )
        most = math.ceil(capacity * len(used) / INSTANTS)
        room = np.maximum(most - taken, 0)
        if room.sum() < len(mine):
            return sequence
        weight = pages.column("weight").to_numpy()[sequence.page[mine]]
        chosen = place(kept * np.maximum(weight, _LEAST_WEIGHT)[:, None], room)
        left = chosen < 0
        chosen[left] = (due[mine[left]] / width).astype(np.int64)
        before = (due[mine] / width).astype(np.int64)
        moment = spread(chosen, weight, horizon_us, INSTANTS)
        soon = first[probes[chosen[first[probes]] == probed_at]]
        moment[soon] = np.rint(chosen[soon] * width).astype(np.int64)  # right where an hour begins
        due[mine] = moment
        due[used] = keep_gaps(host[page], due[used], gap_us, free_us, horizon_us)
        reason = sequence.reason.copy()
        reason[mine[chosen != before]] = REASON_HOUR
        sort = np.argsort(due, kind="stable")
        counters = dict(sequence.counters)
        return replace(
            sequence,
            page=sequence.page[sort],
            due_offset_us=due[sort],
            reason=reason[sort],
            counters=counters,
        )

    def _probes(
        self, rows: IntArray, drawn: FloatArray, count: IntArray, kept: FloatArray
    ) -> tuple[IntArray, IntArray]:
        """Which of some pages show tonight whether their hours have moved, and at which instants: (k,) each.

        Parameters
        ----------
        rows : (r,) int64
        drawn : (r,) float64
        count : (r,) int64
            Crawls tonight.
        kept : (r, INSTANTS) float64
            Fresh days with the first of them at each instant.
        """
        tonight, clocks = self.tonight, self.tonight.clocks
        hours = 0
        if tonight.horizon_us == US_PER_DAY:
            hours = summer_time(tonight.as_of_us, PROBED_US)
        share = (drawn - STAYING - SPLITTING) / PROBED
        by_day = clocks.by_hour_of_day[clocks.group[rows]]
        some = np.flatnonzero((share >= 0.0) & (share < 1.0) & by_day & (count == 1) & (hours != 0))
        last = (self.last_us[rows[some]] - tonight.as_of_us) % US_PER_DAY * INSTANTS // US_PER_DAY
        return some, telling(kept[some].argmax(axis=1), last, hours)

    @cached_property
    def by_requests(self) -> BoolArray:
        """Pages whose crawls go by the hours of requests, (n,)."""
        found: BoolArray = (self.tonight.asked != 1.0).any(axis=1)[self.tonight.clocks.group]
        return found

    @cached_property
    def _asked_ahead(self) -> FloatArray:
        return self.tonight.ahead.asked(self.tonight.asked)

    def _asked(self, rows: IntArray) -> FloatArray:
        """How much each step ahead counts for some pages, (k, m)."""
        return self._asked_ahead[self.tonight.clocks.group[rows]]

    def _kept(self, rows: IntArray, count: IntArray) -> FloatArray:
        """Fresh days with each crawl of some pages at each instant, page by page."""
        ahead = self.tonight.ahead
        clock = ahead.clock(self.tonight.clocks, rows)
        fresh = survival(self.since[rows] * self.rate[rows], self.information[rows])
        wait = 1.0 / np.maximum(self.crawl_rate_per_day[rows], 1e-9)
        nights = np.maximum(np.rint(wait * US_PER_DAY / self.tonight.horizon_us), 1.0) + 0.5
        end = self.tonight.as_of_us + np.minimum(nights * self.tonight.horizon_us, 1e17)
        until = np.searchsorted(ahead.at_us, end.astype(np.int64))
        until = np.where(self.by_age[rows], len(ahead.at_us) - 1, until)
        crawls = count[rows].astype(np.int32)
        asked = self._asked(rows)
        page, kept = best_instants(ahead, clock, self.rate[rows], fresh, crawls, until, asked)
        if self.tonight.horizon_us % US_PER_DAY == 0:
            once = (crawls == 1) & ~self.by_age[rows]
            turns = np.maximum(wait[once] * US_PER_DAY / self.tonight.horizon_us, 1.0)
            kept[once[page]] += TURNS_AHEAD * kept_in_turn(
                ahead, clock[once], self.rate[rows[once]], turns, asked[once]
            )
        return kept
