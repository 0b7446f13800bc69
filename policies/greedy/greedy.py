"""Tonight's crawls by crawl value: each slot goes to the page that is worth most at its moment.

The slots are those of `policies.sequencing.sequencing`, so the total rate is as constant. Crawl values grow
from a page's last crawl on, and where every slot takes the highest one, pages are crawled when their values
reach a common level: the multiplier, in the long run (GREEDY and GREEDY-NCIS of Busa-Fekete et al., "A
Scalable Crawling Algorithm Utilizing Noisy Change-Indicating Signals", section 5). In each slot goes first

1. a page never crawled, where these are behind their share of the slots (at most half, spread evenly);
2. the page with a floor that would miss its deadline, one over its floor after its last crawl;
3. the known page of highest crawl value, ties by stable hash, then by row;
4. a page never crawled;

whose host is open and that its own cap lets be crawled. Values run from the last attempt or slot, as the
windows of `policies.sequencing.sequencing` do: a page that cannot be fetched waits like one that was.

Every page is evaluated about a dozen times a night, and for each slot 20 to 40 crawl values are computed, a
million pages or not; about two dozen candidates take part in a slot. That is 10 to 25 times the time of
`policies.sequencing.sequencing`, see `benchmarks.sequencing`. Memory is about 200 bytes a page and 150 a
slot: 350 MB for a million pages and a million slots. Pages that tie to the last bits, and hosts whose gaps
close them in most slots, cost more; the picks stay the same.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.greedy.blocks import Blocks, PagesNow
from policies.greedy.open_hosts import NEVER, HostDoors, HostQueue
from policies.greedy.pools import Pools
from policies.greedy.value_curves import ValueCurves
from policies.history.page_state import US_PER_DAY
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray
from policies.sequencing.deadlines import EMPTY
from policies.sequencing.host_shares import Division, HostLimits, divide, host_limits
from policies.sequencing.sequencing import REASON_DUE, REASON_EMPTY, REASON_NEW, REASONS, Sequence, reasons
from policies.sequencing.shard_pages import ShardPages, check_night, priority_order

__all__ = ["sequence"]


def sequence(
    pages: ShardPages,
    curves: ValueCurves,
    slot_offset_us: IntArray,
    horizon_us: int,
    floor_per_day: FloatArray | None = None,
    cap_per_day: FloatArray | None = None,
) -> Sequence:
    """Put the crawls of one shard in order for one night, by crawl value.

    No host's limit or gap is ever broken, nor is a page crawled sooner than one over its cap after its last
    crawl. A slot stays empty only where no page with a crawl value may be crawled. Limits of hosts are spread
    over the night.

    Parameters
    ----------
    pages : ShardPages
        `crawl_rate_per_day` and `days_since_last` tell who was due before the night, and how new pages and
        known ones share hosts; `crawl_value` is the order of new pages. `host_whole` is not looked at.
    curves : ValueCurves
        What crawls are worth, and since when, by page.
    slot_offset_us : (B,) int64
        As for `policies.sequencing.sequencing.sequence`.
    horizon_us : int
    floor_per_day, cap_per_day : (n,) float64 or None
        Least and largest crawl rate of each page; a floor above the cap counts as the cap.

    Returns
    -------
    Sequence
        `expected` is the number of crawls, `owed` how far it is above the rate times the night.

    Raises
    ------
    ValueError
        As for `policies.sequencing.sequencing.sequence`.
    """
    offsets = np.asarray(slot_offset_us, dtype=np.int64)
    check_night(pages, offsets, horizon_us)
    n, slots = pages.crawl_rate_per_day.size, offsets.size
    latest = np.append(offsets[1:] - 1, horizon_us - 1)[:slots]
    np.maximum(latest, offsets, out=latest)
    rate = np.where(pages.is_new, 0.0, pages.crawl_rate_per_day)
    hosts = host_limits(pages, offsets, latest, horizon_us)
    new_rows = np.flatnonzero(pages.is_new)
    priority = priority_order(pages.crawl_value, pages.tie)
    new_rows = new_rows[np.argsort(priority[new_rows])]
    host_rate = sum_by(hosts.of_page, rate, hosts.limit.size)
    division = divide(slots, host_rate, hosts.limit, new_rows, hosts.of_page[new_rows])
    cap = np.full(n, np.inf) if cap_per_day is None else cap_per_day.astype(np.float64)
    cap = np.minimum(cap, curves.longest_rate_per_day)
    floor = np.zeros(n) if floor_per_day is None else np.minimum(floor_per_day, cap)
    night = _Night(pages, curves, offsets, latest, horizon_us, hosts, floor, cap)
    page, due = night.run(division, new_rows)

    with np.errstate(invalid="ignore", over="ignore"):
        debt = np.clip(np.nan_to_num(rate * pages.days_since_last, nan=0.0, posinf=1.0), 0.0, 1.0)
    reason = reasons(page, pages, debt)
    new = np.flatnonzero(reason == REASON_NEW)
    again = np.setdiff1d(new, new[np.unique(page[new], return_index=True)[1]])
    reason[again] = REASON_DUE
    counts = np.bincount(reason, minlength=len(REASONS))
    crawls = np.bincount(page[page != EMPTY], minlength=n).astype(np.float64)
    owed = crawls - rate * (horizon_us / US_PER_DAY)
    counters = {"slots": slots, "used": slots - int(counts[REASON_EMPTY])}
    counters |= {name: int(count) for name, count in zip(REASONS, counts, strict=True)}
    counters["new_waiting"] = int(np.count_nonzero(pages.is_new & (crawls == 0.0)))
    counters["never"] = int(np.count_nonzero((rate == 0.0) & ~pages.is_new))
    counters["cut_hosts"] = int(np.count_nonzero(division.cut))
    counters["moved"] = int(np.count_nonzero(due != offsets))
    counters["evaluated"] = night.evaluated
    return Sequence(page.astype(np.int32), due, owed, crawls, reason, counters)


@dataclass(frozen=True, slots=True)
class _Limits:
    """Floors and caps of pages in the order of ties, with the days of their last crawls."""

    floor: FloatArray
    cap: FloatArray
    offsets: IntArray
    latest: IntArray

    def opens(self, rows: IntArray, last: FloatArray) -> IntArray:
        """First slot in which caps let pages be crawled, `NEVER` if there is none: (m,) int64."""
        cap = self.cap[rows]
        with np.errstate(divide="ignore", over="ignore"):
            at = np.where(np.isinf(cap), -np.inf, np.ceil((last + 1.0 / cap) * US_PER_DAY))
        return self._slot(self.offsets, at)

    def deadline(self, rows: IntArray, last: FloatArray, opens: IntArray) -> IntArray:
        """Slot in which pages have to be crawled for their floors, `NEVER` if there is none: (m,) int64."""
        floor = self.floor[rows]
        with np.errstate(divide="ignore", over="ignore"):
            at = np.where(floor > 0.0, np.floor((last + 1.0 / floor) * US_PER_DAY), np.inf)
        return np.maximum(self._slot(self.latest, at), opens)

    def _slot(self, moments: IntArray, at: FloatArray) -> IntArray:
        slot = np.searchsorted(moments, np.clip(at, -1.0, 1e18).astype(np.int64), side="left")
        return np.where(slot < moments.size, slot, NEVER).astype(np.int64)


class _Night:
    """One night while it goes on. Inside, pages lie in the order that decides ties."""

    def __init__(
        self,
        pages: ShardPages,
        curves: ValueCurves,
        offsets: IntArray,
        latest: IntArray,
        horizon_us: int,
        hosts: HostLimits,
        floor: FloatArray,
        cap: FloatArray,
    ) -> None:
        self._offsets = offsets
        self._order = np.lexsort((np.arange(pages.tie.size), pages.tie))
        order, slots = self._order, offsets.size
        most = np.full(hosts.limit.size, slots)
        if pages.host_start is not None and pages.host_max_slots is not None and slots:
            most = pages.host_max_slots
        self._doors = HostDoors(hosts, most, offsets, latest, horizon_us)
        curves = curves.take(order)
        self._is_new = pages.is_new[order]
        last = np.where(self._is_new, 0.0, -curves.days)
        host = hosts.of_page[order].astype(np.int64)
        rows = np.arange(order.size)
        self._limits = _Limits(floor[order], cap[order], offsets, latest)
        opens = self._limits.opens(rows, last)
        opens[self._is_new] = 0
        self._now = PagesNow(last, curves.signals.copy(), opens, host)
        capped = np.isfinite(cap[order])
        self._capped, self._floored = capped, self._limits.floor > 0.0
        known = np.flatnonzero(~self._is_new & (cap[order] > 0.0) & (curves.highest() > 0.0))
        # Views that give Python numbers: they are read and set slot by slot.
        self._last: Any = last.data
        self._signals: Any = self._now.signals.data
        self._host: Any = host.data
        self._new: Any
        self._new, self._moment = self._is_new.data, offsets.data
        self._has_doors = bool(self._doors.limited.any())
        self._has_limits = bool(capped.any() or self._floored.any())
        days = offsets / US_PER_DAY
        self._blocks = Blocks(curves, self._now, known, self._doors, days, bool(capped.any()))
        self._pools = Pools(self._blocks)
        floored = np.flatnonzero(self._floored & ~self._is_new)
        self._deadline = np.full(order.size, NEVER)
        self._deadline[floored] = self._limits.deadline(floored, last[floored], opens[floored])
        floored = floored[self._deadline[floored] < NEVER]
        self._floors = HostQueue(self._deadline[floored], floored, host, self._doors, by_slot=True)

    @property
    def evaluated(self) -> int:
        """How many crawl values have been computed."""
        return self._blocks.evaluated

    def run(self, division: Division, new_rows: IntArray) -> tuple[IntArray, IntArray]:
        """Page and moment of each slot; `new_rows` are all new pages in order."""
        slots, host = self._offsets.size, self._now.host
        place = np.empty(self._order.size, np.int64)
        place[self._order] = np.arange(self._order.size)
        first = np.isin(new_rows, division.chosen)
        key = np.arange(new_rows.size)
        chosen = HostQueue(key[first], place[new_rows[first]], host, self._doors)
        waiting = HostQueue(key[~first], place[new_rows[~first]], host, self._doors)
        turns, taken, left = division.chosen.size, 0, new_rows.size
        page, due = np.full(slots, EMPTY), self._offsets.copy()
        has_floors = bool(self._floored.any())
        for slot in range(slots):
            row = EMPTY
            if taken < turns and (slot + 1) * turns // slots > taken:
                row = chosen.take(slot)[1]
                taken += row != EMPTY
            if row == EMPTY and has_floors:
                row = self._take_floor(slot)
            if row == EMPTY:
                row = self._pools.pick(slot)
                if row == EMPTY and left:
                    row = chosen.take(slot)[1]
                    taken += row != EMPTY
                    row = waiting.take(slot)[1] if row == EMPTY else row
                if row == EMPTY:
                    continue
            page[slot] = row
            left -= self._new[row]
            due[slot] = self._crawl(row, slot)
        page[page != EMPTY] = self._order[page[page != EMPTY]]
        return page, due

    def _take_floor(self, slot: int) -> int:
        """The open page with a floor that has waited longest for its crawl."""
        while True:
            key, row = self._floors.take(slot)
            if row == EMPTY or key == self._deadline[row]:
                return row

    def _crawl(self, row: int, slot: int) -> int:
        """Crawl a page; returns the moment, microseconds."""
        now = self._now
        due = self._moment[slot]
        if self._has_doors:
            due = self._doors.serve(self._host[row], slot)
        self._last[row] = last = due / US_PER_DAY
        self._signals[row] = 0.0
        if self._has_limits and (self._capped[row] or self._floored[row]):
            one = np.array([row])
            opens = self._limits.opens(one, np.array([last]))
            now.opens[row] = opens[0]
            if self._floored[row]:
                deadline = int(self._limits.deadline(one, np.array([last]), opens)[0])
                self._deadline[row] = deadline
                if deadline < NEVER:
                    self._floors.push(deadline, row)
        self._pools.crawled(row, slot, self._new[row])
        self._new[row] = False
        return due
