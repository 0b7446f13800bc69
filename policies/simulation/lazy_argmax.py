"""The highest crawl value of every slot and lane, without evaluating every page.

Slots go by in blocks. Values never fall between crawls, so only pages whose clock reaches the level of their
lane by the end of a block, signals that will come included, are candidates in it. Lanes do not wait for each
other: each goes on as long as bounds tell which candidate is best. Those that stop are helped together:

* the best candidate is below the level: the level is lowered and the candidates are found again;
* a candidate was crawled in the block and may be a candidate again: its values are found;
* bounds leave more than one candidate: those are evaluated exactly.
"""

from dataclasses import dataclass

import numpy as np

from policies.greedy.crawl_values import CrawlValue
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array, IntArray
from policies.signalled.pages import SignalPages
from policies.simulation.candidates import SLACK, UNKNOWN, Stretches, Table, fill
from policies.simulation.levels import LARGEST_JUMP, Levels, terms_of
from policies.simulation.streams import Streams

_LONGEST_BLOCK = 32
_SPARE = 16  # candidates that a table has room for beyond those at first
_CELLS = 1 << 21  # (lane, slot, candidate) triples of a block


@dataclass
class _Block:
    """Slots of one pass, and the signals in them."""

    first: int
    times: FloatArray
    keys: IntArray  # ((repetition, page) x slots + slot) of each signal, sorted
    key_times: FloatArray  # when each arrives; in order only if a policy discards signals
    clock_end: FloatArray  # (lanes, m): clocks, had no page ever been crawled


class LazyArgmax:
    """Lanes of P policies on R repetitions, all repetitions of the first policy first."""

    def __init__(
        self,
        policies: list[CrawlValue],
        delays: list[float],
        pages: list[SignalPages],
        streams: list[Streams],
        times: FloatArray,
    ) -> None:
        self.times, self.policies = times, policies
        self.p, self.r, self.m = len(policies), len(streams), streams[0].pages
        self.n = self.p * self.r
        self.delay = np.array(
            [d if policy.discards else -1.0 for policy, d in zip(policies, delays, strict=True)]
        )
        self.rep = np.tile(np.arange(self.r), self.p)
        self.policy_of = np.repeat(np.arange(self.p), self.r)
        self.pages = SignalPages(
            *(
                np.concatenate([getattr(page, name) for page in pages])
                for name in SignalPages.__dataclass_fields__
            )
        )
        self.levels = Levels(self.pages, terms_of(policies, self.r), self.m)
        self.hears: BoolArray = np.any(self.levels.jump > 0.0, axis=1)
        shape = (self.n, self.m)
        self.crawled = np.zeros(shape)
        self.counted = np.zeros(shape)  # signals up to the last crawl
        self.count = np.zeros((self.r, self.m))
        time = np.concatenate([s.signal_time for s in streams])
        at = np.concatenate([j * self.m + s.signal_page.astype(np.int64) for j, s in enumerate(streams)])
        if not self.hears.any():
            time, at = time[:0], at[:0]
        order = np.argsort(time, kind="stable")
        self.signal_time, self.signal_at = time[order], at[order]
        self.row = np.full(shape, -1, np.int32)
        self.out = np.zeros((self.n, times.size), np.int32)

    def run(self) -> Int32Array:
        """Page of each slot, (lanes, slots)."""
        first, size, everyone = 0, 1, np.arange(self.n)
        longest = max(8, min(_LONGEST_BLOCK, self.m // 16))
        while first < self.times.size:
            size = min(size, self.times.size - first)
            block = self._block(first, size)
            while size > 1 and size * self._find(block, everyone)[0].size > _CELLS:
                size //= 2
                block = self._block(first, size)
            self._discard(block)
            least = self._serve(block, self._candidates(block, everyone, np.zeros(self.n, np.int64)))
            at = block.keys // size
            self.count += np.bincount(at, minlength=self.count.size).reshape(self.count.shape)
            self.levels.follow(least, self._clock_at_crawl)
            first += size
            size = min(2 * size, longest)
        return self.out

    # ---- signals

    def _block(self, first: int, slots: int) -> _Block:
        times = self.times[first : first + slots]
        left = (
            0 if first == 0 else int(np.searchsorted(self.signal_time, self.times[first - 1], side="right"))
        )
        right = int(np.searchsorted(self.signal_time, times[-1], side="right"))
        when = self.signal_time[left:right]
        keys = self.signal_at[left:right] * slots + np.searchsorted(times, when, side="left")
        if (self.delay >= 0.0).any():
            order = np.argsort(keys, kind="stable")
            keys, when = keys[order], when[order]
        else:
            keys.sort()  # the times do not matter, and this is faster
        count = self.count + np.bincount(keys // slots, minlength=self.count.size).reshape(self.count.shape)
        clock = self.levels.speed * times[-1]
        for j in range(self.p):
            part = slice(j * self.r, (j + 1) * self.r)
            if self.hears[part].any():
                clock[part] += self.levels.jump[part] * count
        return _Block(first, times, keys, when, clock)

    def _discard(self, block: _Block) -> None:
        """Signals of the block that come too soon after a crawl before it: count them as seen by it."""
        at, when = block.keys // block.times.size, block.key_times
        for j in np.flatnonzero(self.delay >= 0.0):
            lane, page = j * self.r + at // self.m, at % self.m
            late = np.flatnonzero(when <= self.crawled[lane, page] + self.delay[j])
            lane, page = lane[late], page[late]
            np.add.at(self.counted, (lane, page), 1.0)
            np.add.at(self.levels.wake, (lane, page), self.levels.jump[lane, page])

    def _late(self, block: _Block, at: IntArray, index: IntArray, until: FloatArray) -> IntArray:
        """Signals of the block from `index` on, of the same (repetition, page), that arrive by `until`."""
        slots, found = block.times.size, np.zeros(at.size, np.int64)
        if block.keys.size == 0:
            return found
        while True:
            inside = np.minimum(index + found, block.keys.size - 1)
            more = (index + found < block.keys.size) & (block.keys[inside] // slots == at)
            more = more & (block.key_times[inside] <= until)
            if not np.any(more):
                return found
            found += more

    def _since_crawl(self, block: _Block, lane: IntArray, page: IntArray, slot: IntArray) -> FloatArray:
        """Signals since the last crawl that are seen in a slot."""
        rep = self.rep[lane]
        key = (rep * self.m + page) * block.times.size
        upper = np.searchsorted(block.keys, key + slot, side="right")
        seen = self.count[rep, page] + (upper - np.searchsorted(block.keys, key, side="left"))
        return np.maximum(seen - self.counted[lane, page], 0.0)

    def _clock_at_crawl(self, lane: IntArray) -> FloatArray:
        clock = self.levels.speed[lane] * self.crawled[lane]
        clock += self.levels.jump[lane] * self.counted[lane]
        return clock

    # ---- candidates

    def _find(self, block: _Block, lanes: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Pages that may reach the level of some lanes: position of the lane, page, clock at the level."""
        if lanes.size == self.n:
            lane, page = np.nonzero(block.clock_end >= self.levels.wake)
        else:
            lane, page = np.nonzero(block.clock_end[lanes] >= self.levels.wake[lanes])
        of = lanes[lane]
        due = self.levels.due(of, page)
        clock = self.levels.speed[of, page] * self.crawled[of, page]
        clock += self.levels.jump[of, page] * self.counted[of, page]
        kept = np.flatnonzero(block.clock_end[of, page] >= due + clock)
        return lane[kept], page[kept], due[kept]

    def _candidates(
        self, block: _Block, lanes: IntArray, start: IntArray, table: Table | None = None
    ) -> Table:
        """All candidates of some lanes, of each lane from its slot `start` on; others stay as in `table`."""
        lane, page, due = self._find(block, lanes)
        per_lane = np.bincount(lane, minlength=lanes.size)
        place = np.arange(lane.size) - np.repeat(np.cumsum(per_lane) - per_lane, per_lane)
        k = max(int(per_lane.max()), 1)
        if table is None:
            table = Table.empty(self.n, block.times.size, k + _SPARE)
        else:
            if k > table.page.shape[1]:
                table = table.widened(k + _SPARE)
            table.page[lanes] = -1
            table.below[lanes] = -np.inf
            table.above[lanes] = -np.inf
            table.value[lanes] = 0.0
        table.page[lanes[lane], place] = page
        table.due[lanes[lane], place] = due
        self._fill(block, table, lanes[lane], page, place, start[lane])
        return table

    def _fill(
        self, block: _Block, table: Table, lane: IntArray, page: IntArray, place: IntArray, start: IntArray
    ) -> None:
        """Find the values of candidates from a slot on."""
        if lane.size == 0:
            return
        slots, rows = block.times.size, np.arange(lane.size)
        keys = [rows * slots + start]
        slot = block.keys % slots
        self.row[lane, page] = rows
        rep, of_page = np.divmod(block.keys // slots, self.m)
        for j in range(self.p):
            if self.hears[j * self.r : (j + 1) * self.r].any():
                row = self.row[j * self.r + rep, of_page]
                inside = np.flatnonzero(row >= 0)
                inside = inside[slot[inside] > start[row[inside]]]
                keys.append(row[inside].astype(np.int64) * slots + slot[inside])
        self.row[lane, page] = -1
        key = np.sort(np.concatenate(keys))
        row, begin = np.divmod(key[np.append(True, key[1:] != key[:-1])], slots)
        is_last = np.append(row[1:] != row[:-1], True)
        end = np.where(is_last, slots - 1, np.append(begin[1:], slots) - 1)
        lane, page = lane[row], page[row]
        signals = self._since_crawl(block, lane, page, begin)
        found = Stretches(row, lane, page, begin, end, signals)
        fill(table, self.pages, self.levels, found, place, self.crawled[lane, page], block.times)

    # ---- slots

    def _serve(self, block: _Block, table: Table) -> FloatArray:
        """Crawl a page a slot and lane; returns the least value, up to its error, that won: (lanes,)."""
        slots = block.times.size
        slot = np.zeros(self.n, np.int64)
        least = np.full(self.n, np.inf)
        going, stopped = np.arange(self.n), np.zeros(0, np.int64)
        while going.size or stopped.size:
            if going.size <= stopped.size:
                table = self._help(block, table, stopped, slot, least)
                going = np.concatenate((going, stopped))
                going, stopped = going[slot[going] < slots], stopped[:0]
                continue
            value = table.value[going, slot[going]]
            low = np.max(value + table.below[going], axis=1)
            above = value + table.above[going]
            place = above.argmax(axis=1)
            sure = np.count_nonzero(above >= low[:, None], axis=1) == 1
            sure &= (low >= self.levels.level[going]) & (low < UNKNOWN)
            stopped = np.concatenate((stopped, going[~sure]))
            going, place, low = going[sure], place[sure], low[sure]
            self._crawl(block, table, going, place, slot[going])
            least[going] = np.minimum(least[going], low)
            slot[going] += 1
            going = going[slot[going] < slots]
        return least

    def _help(self, block: _Block, table: Table, lanes: IntArray, slot: IntArray, least: FloatArray) -> Table:
        """See to lanes at whose slot the bounds do not tell what is best."""
        value = table.value[lanes, slot[lanes]]
        low = np.max(value + table.below[lanes], axis=1)
        is_unknown = low >= UNKNOWN
        # At level 0 all pages are candidates, and bounds below it mean no more than that they are wide.
        level = self.levels.level[lanes]
        failed = np.flatnonzero(~is_unknown & (low < level) & (level > 0.0))
        if failed.size:
            rows = lanes[failed]
            self.levels.lower(rows, low[failed], self._clock_at_crawl)
            table = self._candidates(block, rows, slot[rows], table)
        if is_unknown.any():
            row, place = np.nonzero((value >= UNKNOWN) & (table.above[lanes] > -np.inf)[:, : value.shape[1]])
            lane = lanes[row]
            self._fill(block, table, lane, table.page[lane, place], place, slot[lane])
        rest = ~is_unknown
        rest[failed] = False
        if rest.any():
            self._contest(block, table, lanes[rest], slot, least)
        return table

    def _contest(
        self, block: _Block, table: Table, lanes: IntArray, slot: IntArray, least: FloatArray
    ) -> None:
        """Crawl the page of the highest exact value where bounds do not tell."""
        value = table.value[lanes, slot[lanes]]
        low = np.max(value + table.below[lanes], axis=1)
        row, place = np.nonzero(value + table.above[lanes] >= low[:, None])
        lane = lanes[row]
        page = table.page[lane, place]
        elapsed = block.times[slot[lane]] - self.crawled[lane, page]
        signals = self._since_crawl(block, lane, page, slot[lane])
        exact = np.full(value.shape, -np.inf)
        exact[row, place] = self._exact(lane, page, elapsed, signals)
        best = exact.argmax(axis=1)
        self._crawl(block, table, lanes, best, slot[lanes])
        least[lanes] = np.minimum(least[lanes], np.maximum(low, 0.0))
        slot[lanes] += 1

    def _exact(self, lane: IntArray, page: IntArray, elapsed: FloatArray, signals: FloatArray) -> FloatArray:
        value = np.zeros(lane.size)
        which = self.policy_of[lane]
        pages = self.pages.take(lane * self.m + page)
        for j in np.flatnonzero(np.bincount(which)):
            rows = np.flatnonzero(which == j)
            value[rows] = self.policies[j].value(pages.take(rows), elapsed[rows], signals[rows])
        return value

    def _crawl(self, block: _Block, table: Table, lane: IntArray, place: IntArray, slot: IntArray) -> None:
        """Lanes crawl a candidate each."""
        if lane.size == 0:
            return
        page = table.page[lane, place]
        now, slots = block.times[slot], block.times.size
        self.out[lane, block.first + slot] = page
        rep = self.rep[lane]
        key = (rep * self.m + page) * slots
        upper = np.searchsorted(block.keys, key + slot, side="right")
        seen = self.count[rep, page] + (upper - np.searchsorted(block.keys, key, side="left"))
        if (self.delay >= 0.0).any():
            rows = np.flatnonzero(self.delay[self.policy_of[lane]] >= 0.0)
            until = now[rows] + self.delay[self.policy_of[lane[rows]]]
            seen[rows] += self._late(block, key[rows] // slots, upper[rows], until)
        self.crawled[lane, page] = now
        self.counted[lane, page] = seen
        table.below[lane, place] = -np.inf
        table.above[lane, place] = -np.inf
        levels = self.levels
        speed, jump = levels.speed[lane, page], levels.jump[lane, page]
        clock = speed * now + jump * seen
        levels.wake_of(lane, page, clock)
        again = np.flatnonzero(block.clock_end[lane, page] >= table.due[lane, place] + clock)
        if again.size:
            self._expect(block, table, lane[again], page[again], place[again], slot[again])

    def _expect(
        self, block: _Block, table: Table, lane: IntArray, page: IntArray, place: IntArray, slot: IntArray
    ) -> None:
        """Pages just crawled reach the level again in this block: from then on their value is to be found."""
        slots = block.times.size
        later = np.arange(slots)
        row = np.repeat(np.arange(lane.size), slots)
        every = np.tile(later, lane.size)
        rep = self.rep[lane]
        key = ((rep * self.m + page) * slots)[row]
        upper = np.searchsorted(block.keys, key + every, side="right")
        seen = self.count[rep, page][row] + (upper - np.searchsorted(block.keys, key, side="left"))
        levels = self.levels
        clock = levels.speed[lane, page][row] * (block.times[every] - block.times[slot][row])
        clock += levels.jump[lane, page][row] * (seen - self.counted[lane, page][row])
        reached = (clock >= table.due[lane, place][row]) & (every > slot[row])
        reached = reached.reshape(lane.size, slots)
        # After a signal that is no false one, nothing is left to find.
        sure = clock.reshape(lane.size, slots) >= LARGEST_JUMP
        best = np.broadcast_to(levels.best[lane, page][:, None], reached.shape)
        table.value[lane, :, place] = np.where(reached, np.where(sure, best, UNKNOWN), -UNKNOWN)
        some = reached.any(axis=1)
        table.below[lane[some], place[some]] = -SLACK * best[some, 0]
        table.above[lane[some], place[some]] = SLACK * best[some, 0]
