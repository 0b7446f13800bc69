"""Discrete policies in a slot simulator: in every slot each lane crawls one page, that of the highest value.

A *lane* is a policy on the streams of a repetition. All lanes go through the slots together, in blocks. The
argmax is exact, ties go to the page of the lowest index, yet few pages are evaluated:

* Each lane has a *level* below the crawl values that will win in the block. Values never fall between crawls,
  so only pages whose clock reaches the level by the end of the block, signals that will come included, are
  candidates; that test is a product, a sum and a comparison a page and block.
* Candidates are evaluated where a stretch without signals begins and ends. Crawl value is a convex function
  of e^-clock (see `policies.crawl_values`), so in between it lies below the chord and above the tangents.
* Where these bounds leave more than one page for a slot, those pages are evaluated exactly.
* A slot whose best candidate is below the level is done again at a lower one.

Conventions: every page is fresh and has just been crawled at time 0. A signal that arrives at the instant of
a slot or before is seen in it; the count of signals since a crawl starts after the instant of the crawl.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.crawl_values import (
    CrawlValue,
    clock_at_least,
    clock_jump,
    clock_speed,
    highest_value,
    value_and_interval,
)
from policies.signal_pages import SignalPages
from policies.simulation.streams import Instance, Streams
from policies.typing_ import BoolArray, FloatArray, Int32Array, IntArray

_LONGEST_BLOCK = 64
_CELLS = 1 << 21  # (slot, lane, candidate) triples of a block, 16 bytes each
_LARGEST_JUMP = 1e3  # of a clock, in place of inf; every threshold is below
_SLACK = 1e-11  # of bounds on values, relative; the values are good to 1e-13
_CLOCK_SLACK = 1e-8


@dataclass(frozen=True)
class Lanes:
    """One policy on all repetitions.

    Attributes
    ----------
    policy : CrawlValue
    believed : sequence of Instance
        The pages as the policy is told about them, one for each repetition.
    delay : float
        Time after a crawl in which signals do not count, if the policy discards any.
    """

    policy: CrawlValue
    believed: Sequence[Instance]
    delay: float = 0.0


def slot_times(bandwidth: float | Sequence[tuple[float, float]], until: float) -> FloatArray:
    """Instants of the slots, in (0, until]: (slots,) float64.

    Parameters
    ----------
    bandwidth : float or sequence of (start, bandwidth)
        Crawls per time unit; or steps, the first of which starts at 0. With a constant R slot j = 1, 2, ...
        is at j/R, and each step starts a count of its own.
    until : float

    Raises
    ------
    ValueError
        A bandwidth that is not above 0, or steps that do not start at 0 or are out of order.
    """
    steps = [(0.0, float(bandwidth))] if isinstance(bandwidth, int | float) else list(bandwidth)
    if not steps or steps[0][0] != 0.0:
        raise ValueError(f"the first step of the bandwidth must start at 0, got {steps[:1]!r}")
    ends = [start for start, _ in steps[1:]] + [until]
    parts = []
    for (start, rate), end in zip(steps, ends, strict=True):
        if not 0.0 < rate < np.inf:
            raise ValueError(f"a bandwidth must be above 0 and finite, got {rate!r}")
        if end < start:
            raise ValueError(f"steps of the bandwidth must be in order and end by {until!r}")
        count = int(np.floor((end - start) * rate * (1.0 + 1e-12) + 1e-9))
        parts.append(start + np.arange(1, count + 1) / rate)
    times: FloatArray = np.minimum(np.concatenate(parts), until)
    return times


def run_lanes(lanes: Sequence[Lanes], streams: Sequence[Streams], times: FloatArray) -> Int32Array:
    """Page that each policy crawls in each slot.

    Parameters
    ----------
    lanes : sequence of P Lanes
    streams : sequence of R Streams
        One for each repetition, of equal numbers of pages.
    times : (S,) float64
        Instants of the slots, rising.

    Returns
    -------
    (P, R, S) int32
        The same pages as evaluating every page in every slot and taking the first of the highest value.

    Raises
    ------
    ValueError
        Numbers of repetitions or of pages that do not agree, no page, or instants that do not rise.

    Notes
    -----
    Memory is about 200 bytes for each page of each lane and 100 MB for a block.
    """
    if not lanes or not streams:
        return np.zeros((len(lanes), len(streams), times.size), np.int32)
    m = streams[0].pages
    if m == 0:
        raise ValueError("there are no pages to crawl")
    for lane in lanes:
        if len(lane.believed) != len(streams):
            raise ValueError(f"{len(lane.believed)} instances for {len(streams)} repetitions")
        if any(len(instance) != m for instance in lane.believed):
            raise ValueError(f"all instances and streams must have the same number of pages, {m}")
    if any(stream.pages != m for stream in streams):
        raise ValueError(f"all instances and streams must have the same number of pages, {m}")
    if times.size and not (times[0] > 0.0 and np.all(np.diff(times) > 0.0)):
        raise ValueError("the instants of the slots must be above 0 and rise")
    return _Run(lanes, streams, times).run().reshape(len(lanes), len(streams), times.size)


@dataclass
class _Block:
    """Slots of one pass, and the signals in them."""

    first: int
    times: FloatArray
    keys: IntArray  # ((repetition, page) x slots + slot) of each signal, sorted
    key_times: FloatArray
    clock_end: FloatArray  # (lanes, m): clocks, had no page ever been crawled


@dataclass
class _Cells:
    """Bounds of candidates' values by slot: (slots, lanes, k); page (lanes, k), -1 where there is none."""

    page: IntArray
    high: FloatArray
    low: FloatArray


class _Run:
    def __init__(self, lanes: Sequence[Lanes], streams: Sequence[Streams], times: FloatArray) -> None:
        self.times = times
        self.policies = [lane.policy for lane in lanes]
        self.delay = np.array([x.delay if x.policy.discards else -1.0 for x in lanes])
        self.p, self.r, self.m = len(lanes), len(streams), streams[0].pages
        self.lanes = self.p * self.r
        self.rep = np.tile(np.arange(self.r), self.p)
        self.policy_of = np.repeat(np.arange(self.p), self.r)
        self.pages = [[lane.policy.pages(instance) for instance in lane.believed] for lane in lanes]
        every = [page for group in self.pages for page in group]
        self.all = SignalPages(
            *(
                np.concatenate([getattr(page, name) for page in every])
                for name in SignalPages.__dataclass_fields__
            )
        )
        shape = (self.lanes, self.m)
        self.speed = clock_speed(self.all).reshape(shape)
        self.jump = clock_jump(self.all, _LARGEST_JUMP).reshape(shape)
        self.hears: BoolArray = np.any(self.jump > 0.0, axis=1)
        self.mu = self.all.request_rate_per_day.reshape(shape)
        self.best = np.concatenate(
            [
                highest_value(page, x.terms)
                for x, group in zip(self.policies, self.pages, strict=True)
                for page in group
            ]
        ).reshape(shape)
        self.crawled = np.zeros(shape)
        self.counted = np.zeros(shape)  # signals up to the last crawl
        self.count = np.zeros((self.r, self.m))
        self.level = np.zeros(self.lanes)
        self.due = np.zeros(shape)  # threshold at the level
        self.wake = np.full(shape, -np.inf)  # reading of the uncrawled clock at which it is reached
        # Thresholds, as e^-u, at two levels around the current one.
        self.anchor = np.zeros((2, self.lanes))
        self.fresh_at = np.zeros((2, *shape))
        self.width = np.full(self.lanes, 0.5)
        self.margin = np.full(self.lanes, 0.5)
        signals = [
            (s.signal_time, np.full(s.signal_time.size, j), s.signal_page) for j, s in enumerate(streams)
        ]
        time = np.concatenate([x[0] for x in signals])
        page = np.concatenate([x[1] * self.m + x[2] for x in signals]).astype(np.int64)
        order = np.argsort(time, kind="stable")
        self.signal_time, self.signal_at = time[order], page[order]
        self.row = np.full(shape, -1, np.int64)
        self.out = np.zeros((self.lanes, times.size), np.int32)

    # ---- exact values

    def _by_terms(self, lane: IntArray) -> list[tuple[int | None, IntArray]]:
        """Rows by the number of terms that their policy uses."""
        which = self.policy_of[lane]
        groups: dict[int | None, list[int]] = {}
        for j, policy in enumerate(self.policies):
            groups.setdefault(policy.terms, []).append(j)
        if len(groups) == 1:
            return [(next(iter(groups)), np.arange(lane.size))]
        return [(terms, np.flatnonzero(np.isin(which, members))) for terms, members in groups.items()]

    def _bounds_at(
        self, lane: IntArray, page: IntArray, elapsed: FloatArray, signals: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Crawl value, and mean interval at the same clock, of pages of lanes."""
        value, interval = np.zeros(lane.size), np.zeros(lane.size)
        pages = self.all.take(lane * self.m + page)
        for terms, rows in self._by_terms(lane):
            if rows.size:
                value[rows], interval[rows] = value_and_interval(
                    pages.take(rows), elapsed[rows], signals[rows], terms
                )
        return value, interval

    def _exact(self, lane: IntArray, page: IntArray, elapsed: FloatArray, signals: FloatArray) -> FloatArray:
        value = np.zeros(lane.size)
        which = self.policy_of[lane]
        pages = self.all.take(lane * self.m + page)
        for j, policy in enumerate(self.policies):
            rows = np.flatnonzero(which == j)
            if rows.size:
                value[rows] = policy.value(pages.take(rows), elapsed[rows], signals[rows])
        return value

    # ---- levels

    def _set_level(self, lane: IntArray, level: FloatArray) -> None:
        """Lower or raise the level of lanes, and say when each of their pages reaches it."""
        self.level[lane] = level
        zero = lane[level <= 0.0]
        self.due[zero], self.wake[zero] = -np.inf, -np.inf
        lane, level = lane[level > 0.0], level[level > 0.0]
        if lane.size == 0:
            return
        outside = (level < self.anchor[0, lane]) | (level > self.anchor[1, lane])
        if outside.any():
            self._anchor(lane[outside], level[outside])
        low, high = self.anchor[0, lane, None], self.anchor[1, lane, None]
        best = self.best[lane]
        top = np.minimum(high, best)
        share = (level[:, None] - low) / np.where(top > low, top - low, 1.0)
        fresh_low, fresh_high = self.fresh_at[0, lane], self.fresh_at[1, lane]
        fresh = fresh_low + (fresh_high - fresh_low) * share
        reached = (level[:, None] <= best * (1.0 + _SLACK)) & (best > 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            u = -np.log(np.clip(fresh, 1e-320, 1.0))
        u = np.where(reached, u - _CLOCK_SLACK * (1.0 + u), np.inf)
        self.due[lane] = u
        self.wake[lane] = u + self.speed[lane] * self.crawled[lane] + self.jump[lane] * self.counted[lane]

    def _anchor(self, lane: IntArray, level: FloatArray) -> None:
        width = self.width[lane]
        rows = (lane[:, None] * self.m + np.arange(self.m)).ravel()
        pages = self.all.take(rows)
        for end, factor in ((0, 1.0 / (1.0 + width)), (1, 1.0 + width)):
            price = np.repeat(level * factor, self.m)
            u = np.empty(rows.size)
            for terms, part in self._by_terms(np.repeat(lane, self.m)):
                if part.size:
                    u[part] = clock_at_least(pages.take(part), price[part], terms)
            self.anchor[end, lane] = level * factor
            self.fresh_at[end, lane] = np.exp(-u).reshape(lane.size, self.m)

    # ---- blocks

    def _block(self, first: int, slots: int) -> _Block:
        times = self.times[first : first + slots]
        start = 0.0 if first == 0 else self.times[first - 1]
        left, right = np.searchsorted(self.signal_time, [start, times[-1]], side="right")
        if first == 0:
            left = 0
        when, at = self.signal_time[left:right], self.signal_at[left:right]
        keys = at * slots + np.searchsorted(times, when, side="left")
        order = np.argsort(keys, kind="stable")
        keys, when = keys[order], when[order]
        count = self.count + np.bincount(keys // slots, minlength=self.count.size).reshape(self.count.shape)
        clock = self.speed * times[-1]
        for j in range(self.p):
            part = slice(j * self.r, (j + 1) * self.r)
            if self.hears[part].any():
                clock[part] += self.jump[part] * count
        return _Block(first, times, keys, when, clock)

    def _discard(self, block: _Block) -> None:
        """Signals of the block that come too soon after a crawl before it: count them as seen by it."""
        at, when = block.keys // block.times.size, block.key_times
        for j in np.flatnonzero(self.delay >= 0.0):
            lane, page = j * self.r + at // self.m, at % self.m
            late = np.flatnonzero(when <= self.crawled[lane, page] + self.delay[j])
            lane, page = lane[late], page[late]
            np.add.at(self.counted, (lane, page), 1.0)
            np.add.at(self.wake, (lane, page), self.jump[lane, page])

    def _signals_by(self, block: _Block, at: IntArray, slot: int | IntArray) -> IntArray:
        """Signals of the block up to a slot, for each (repetition, page)."""
        slots = block.times.size
        upper = np.searchsorted(block.keys, at * slots + slot, side="right")
        return upper - np.searchsorted(block.keys, at * slots, side="left")

    def _since_crawl(self, block: _Block, lane: IntArray, page: IntArray, slot: int | IntArray) -> FloatArray:
        rep = self.rep[lane]
        seen = self.count[rep, page] + self._signals_by(block, rep * self.m + page, slot)
        return np.maximum(seen - self.counted[lane, page], 0.0)

    def _cells(self, block: _Block, lanes: IntArray, start: int) -> _Cells:
        """Bounds of all candidates of some lanes from slot `start` on."""
        mask = block.clock_end[lanes] >= self.wake[lanes]
        slots = block.times.size
        per_lane = mask.sum(axis=1)
        k = max(int(per_lane.max()), 1)
        row_lane, row_page = np.nonzero(mask)
        place = np.arange(row_lane.size) - np.repeat(np.cumsum(per_lane) - per_lane, per_lane)
        page = np.full((lanes.size, k), -1)
        page[row_lane, place] = row_page
        high = np.full((slots - start, lanes.size, k), -np.inf)
        low = np.full((slots - start, lanes.size, k), -np.inf)
        self._fill(block, lanes[row_lane], row_page, row_lane * k + place, start, high, low)
        return _Cells(page, high, low)

    def _fill(
        self,
        block: _Block,
        lane: IntArray,
        page: IntArray,
        cell: IntArray,
        start: int,
        high: FloatArray,
        low: FloatArray,
    ) -> None:
        """Bounds of rows (lane, page) from slot `start` on, at `cell` of each slot."""
        slots, times = block.times.size, block.times
        row, begin = self._stretches(block, lane, page, start)
        last_of_row = np.append(row[1:] != row[:-1], True) if row.size else np.zeros(0, np.bool_)
        end = np.where(last_of_row, slots - 1, np.append(begin[1:], slots) - 1)
        lane, page, cell = lane[row], page[row], cell[row]
        signals = self._since_crawl(block, lane, page, begin)
        crawled = self.crawled[lane, page]
        both = np.concatenate((times[begin], times[end])) - np.tile(crawled, 2)
        value, interval = self._bounds_at(np.tile(lane, 2), np.tile(page, 2), both, np.tile(signals, 2))
        n = row.size
        jump = self.jump[lane, page]
        speed = self.speed[lane, page]
        u0 = speed * (times[begin] - crawled) + jump * signals
        scale = self.mu[lane, page] * np.exp(-np.minimum(u0, 745.0))
        with np.errstate(invalid="ignore"):
            rise0 = np.where(scale > 0.0, scale * interval[:n], 0.0)
            rise1 = np.where(scale > 0.0, scale * interval[n:], 0.0)
        gone = -np.expm1(-speed * (times[end] - times[begin]))
        chord = (value[n:] - value[:n]) / np.where(gone > 0.0, gone, 1.0)
        length = end - begin + 1
        of = np.repeat(np.arange(n), length)
        slot = np.arange(of.size) - np.repeat(np.cumsum(length) - length, length) + begin[of]
        w = -np.expm1(-speed[of] * (times[slot] - times[begin][of]))
        upper = np.where(gone[of] > 0.0, value[:n][of] + chord[of] * w, value[n:][of])
        lower = np.maximum(value[:n][of] + rise0[of] * w, value[n:][of] - rise1[of] * (gone[of] - w))
        width = high.shape[1] * high.shape[2]
        at = (slot - start) * width + cell[of]
        high.ravel()[at] = upper * (1.0 + _SLACK)
        low.ravel()[at] = np.minimum(np.maximum(lower, 0.0), upper) * (1.0 - _SLACK)

    def _stretches(
        self, block: _Block, lane: IntArray, page: IntArray, start: int
    ) -> tuple[IntArray, IntArray]:
        """Where a stretch without signals begins: row and slot, sorted."""
        slots = block.times.size
        rows = np.arange(lane.size)
        keys = [rows * slots + start]
        slot = block.keys % slots
        late = np.flatnonzero(slot > start)
        if late.size:
            self.row[lane, page] = rows
            rep, of_page = np.divmod(block.keys[late] // slots, self.m)
            for j in range(self.p):
                if self.hears[j * self.r : (j + 1) * self.r].any():
                    row = self.row[j * self.r + rep, of_page]
                    keys.append((row * slots + slot[late])[row >= 0])
            self.row[lane, page] = -1
        row, begin = np.divmod(np.unique(np.concatenate(keys)), slots)
        return row, begin

    # ---- slots

    def run(self) -> Int32Array:
        first, size, everyone = 0, 1, np.arange(self.lanes)
        while first < self.times.size:
            size = min(size, self.times.size - first)
            block = self._block(first, size)
            while size > 1 and size * np.count_nonzero(block.clock_end >= self.wake) > _CELLS:
                size //= 2
                block = self._block(first, size)
            self._discard(block)
            won = self._serve(block, self._cells(block, everyone, 0))
            at = block.keys // size
            self.count += np.bincount(at, minlength=self.count.size).reshape(self.count.shape)
            first += size
            self._move_levels(won)
            size = min(2 * size, max(8, min(_LONGEST_BLOCK, self.m // 16)))
        return self.out

    def _move_levels(self, won: FloatArray) -> None:
        """Levels for the next block, from what won the slots of this one: (slots, lanes)."""
        least = won.min(axis=0)
        spread = np.maximum(won.max(axis=0) - least, 1e-3 * least)
        wanted = np.maximum(least - self.margin * spread, 0.0) * (1.0 - 1e-9)
        self.margin *= 0.98
        moved = np.flatnonzero((wanted < self.level) | (wanted > self.level + 0.5 * spread))
        if moved.size:
            self._set_level(moved, wanted[moved])

    def _serve(self, block: _Block, cells: _Cells) -> FloatArray:
        """Crawl a page a slot and lane; returns a lower bound of what won, (slots, lanes)."""
        slots = block.times.size
        won = np.empty((slots, self.lanes))
        everyone = np.arange(self.lanes)
        for slot in range(slots):
            while True:
                low = cells.low[slot].max(axis=1)
                failed = np.flatnonzero(low < self.level)
                if failed.size == 0:
                    break
                self._lower(block, cells, failed, low[failed], slot)
            possible = cells.high[slot] >= low[:, None]
            place = cells.high[slot].argmax(axis=1)
            contested = np.flatnonzero(possible.sum(axis=1) > 1)
            if contested.size:
                place[contested], low[contested] = self._contest(block, cells, contested, possible, slot)
            won[slot] = low
            page = cells.page[everyone, place]
            self.out[:, block.first + slot] = page
            self._crawl(block, page, slot)
            cells.high[slot + 1 :, everyone, place] = -np.inf
            cells.low[slot + 1 :, everyone, place] = -np.inf
            again = np.flatnonzero(block.clock_end[everyone, page] >= self.wake[everyone, page])
            if again.size:
                # Rarely the best again so soon: bounds that only ask for exact values.
                cells.high[slot + 1 :, again, place[again]] = self.best[again, page[again]] * (1.0 + _SLACK)
                cells.low[slot + 1 :, again, place[again]] = 0.0
        return won

    def _contest(
        self, block: _Block, cells: _Cells, lanes: IntArray, possible: BoolArray, slot: int
    ) -> tuple[IntArray, FloatArray]:
        """The place of the highest exact value, and that value, where bounds do not tell."""
        row, place = np.nonzero(possible[lanes])
        lane = lanes[row]
        page = cells.page[lane, place]
        elapsed = block.times[slot] - self.crawled[lane, page]
        values = np.full((lanes.size, possible.shape[1]), -np.inf)
        values[row, place] = self._exact(lane, page, elapsed, self._since_crawl(block, lane, page, slot))
        best = values.argmax(axis=1)
        return best, values[np.arange(lanes.size), best]

    def _crawl(self, block: _Block, page: IntArray, slot: int) -> None:
        everyone = np.arange(self.lanes)
        slots, now = block.times.size, block.times[slot]
        at = self.rep * self.m + page
        upper = np.searchsorted(block.keys, at * slots + slot, side="right")
        seen = self.count[self.rep, page] + (upper - np.searchsorted(block.keys, at * slots, side="left"))
        for j in np.flatnonzero(self.delay >= 0.0):
            part = slice(j * self.r, (j + 1) * self.r)
            seen[part] += self._late(block, at[part], upper[part], now + self.delay[j])
        self.crawled[everyone, page] = now
        self.counted[everyone, page] = seen
        self.wake[everyone, page] = (
            self.due[everyone, page] + self.speed[everyone, page] * now + self.jump[everyone, page] * seen
        )

    def _late(self, block: _Block, at: IntArray, index: IntArray, until: float) -> IntArray:
        """Signals of the block from `index` on, of the same (repetition, page), that arrive by `until`."""
        slots, found = block.times.size, np.zeros(at.size, np.int64)
        if block.keys.size == 0:
            return found
        while True:
            inside = np.minimum(index + found, block.keys.size - 1)
            more = (index + found < block.keys.size) & (block.keys[inside] // slots == at)
            more &= block.key_times[inside] <= until
            if not more.any():
                return found
            found += more

    def _lower(self, block: _Block, cells: _Cells, failed: IntArray, low: FloatArray, slot: int) -> None:
        """Lower the level of lanes whose best candidate is below it, and find their candidates again."""
        old = self.level[failed]
        self.margin[failed] = np.minimum(1.5 * self.margin[failed] + 0.02, 3.0)
        found = np.maximum(low, 0.0)
        level = np.where(np.isfinite(low), found - 0.25 * (old - found), 0.5 * old) * (1.0 - 1e-9)
        self._set_level(failed, np.maximum(level, 0.0))
        part = self._cells(block, failed, slot)
        more = part.page.shape[1] - cells.page.shape[1]
        if more > 0:
            shape = (cells.high.shape[0], self.lanes, more)
            cells.page = np.concatenate((cells.page, np.full(shape[1:], -1)), axis=1)
            cells.high = np.concatenate((cells.high, np.full(shape, -np.inf)), axis=2)
            cells.low = np.concatenate((cells.low, np.full(shape, -np.inf)), axis=2)
        k = part.page.shape[1]
        cells.page[failed] = -1
        cells.high[slot:, failed], cells.low[slot:, failed] = -np.inf, -np.inf
        cells.page[failed, :k] = part.page
        cells.high[slot:, failed, :k] = part.high
        cells.low[slot:, failed, :k] = part.low
