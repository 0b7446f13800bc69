"""The page of highest crawl value in each slot, with the picks of a full argmax.

`policies.greedy.blocks` has the pages that can be best in some hundred slots. Here each page's value becomes
a parabola with a known error. A level is set a few pages below the best one; every page knows the first slot
in which it may be above, and only those that are take part in a slot. If no other page is closer to the best
one than their errors, that is the pick; else close pages get parabolas of fewer slots, or are evaluated
exactly.
"""

import math
from bisect import bisect_left
from typing import Final

import numpy as np

from policies.greedy.blocks import Blocks
from policies.greedy.open_hosts import NEVER
from policies.numerics.typing_ import IntArray

_FEW: Final = 12
_MANY: Final = 32  # pages above the level when it is set
_SOON: Final = 64  # slots after which a level may be set anew
_RATIO: Final = 8  # of the lengths of parabolas
_ERROR_OF_PARABOLA: Final = 0.0080188  # max |y (y - 1/2) (y - 1)| / 6
_ROUNDING: Final = 1e-14
_SLACK: Final = 1.0 + 1e-9
_CLOSE: Final = 0.1  # error of a parabola that is too much, in what pages gain in a slot

_Curve = tuple[float, float, float, float, int]  # a, b, c, error, place in the block


class Pools:
    """Picks of one night.

    Parameters
    ----------
    blocks : Blocks
    """

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._now, self._doors, self._days = blocks, blocks.now, blocks.doors, blocks.days
        self._last_block, self._start, self._noise = blocks.last, blocks.start, blocks.curves.noise
        # Views that give Python numbers: what is looked at one by one.
        self._day: list[float] = blocks.days.tolist()
        self._start_of, self._last, self._opens = self._start.data, self._now.last.data, self._now.opens.data
        self._doors_open, self._limited = self._doors.opens.data, self._doors.limited.data
        self._host = self._now.host.data
        self._has_doors, self._has_caps = blocks.has_doors, blocks.has_caps
        # Parabolas of the pages of the last block, in x from 0 at its start to 1 at its last slot.
        self._a = self._b = self._c = self._error = np.zeros(0)
        self._fit_last, self._fit_end = np.zeros(0), np.zeros(0, np.int64)
        self._origin, self._length = 0.0, 1.0
        self._rows: list[int] = []
        self._place: dict[int, int] = {}
        self._alive: list[bool] = []
        # Those that may have reached the level, and the slots in which others may do so.
        self._level, self._few, self._aimed = -np.inf, _FEW, 0
        self._active: list[_Curve] = []
        self._inside: set[int] = set()  # their places
        self._widest = self._sharp = 0.0
        self._enter: dict[int, list[int]] = {}
        self._refit_at: dict[int, int] = {}
        self._next = 0
        self._bound = -np.inf
        self._lately, self._picked = 0.0, 0  # what won last, and its place among the active

    # ---- picks

    def pick(self, slot: int) -> int:
        """The open page of highest value in a slot; ties go to the lowest row; -1 if none has a value."""
        while True:
            if slot >= self._last_block.end:
                self._fill(slot)
            if self._next <= slot:
                self._let_in(slot)
            active = self._active
            x = (self._day[slot] - self._origin) / self._length
            values = [a + x * (b + x * c) for a, b, c, _, _ in active]
            best = max(values, default=-np.inf)
            cut = best - 2.0 * self._widest
            close = [k for k, v in enumerate(values) if v >= cut]
            if len(close) > 1:
                low = max([values[k] - active[k][3] for k in close])
                close = [k for k in close if values[k] + active[k][3] >= low]
            elif close:
                low = best - active[close[0]][3]
            else:
                low = -np.inf
            if self._level > 0.0 and low < self._level:
                if slot - self._aimed < _SOON:
                    self._few = min(2 * self._few, _MANY)
                self._aim(slot)
                if not self._active:
                    self._aim(slot, 0.0)  # nothing is open
                continue
            places = [active[k][4] for k in close]
            if len(places) == 1 and low > self._bound:
                self._lately, self._picked = low, close[0]
                return self._rows[places[0]]
            if len(places) > 1 and self._sharpen(places, slot):
                continue
            row, value = self._exact(slot, places)
            if self._blocks.is_sure(row, value, slot):
                self._lately = max(value, 0.0)
                return row

    def _exact(self, slot: int, close: list[int]) -> tuple[int, float]:
        """The best of some pages of the block, and its value: (-1, -inf) if there is none."""
        if not close:
            return -1, -np.inf
        rows = np.sort(np.array([self._rows[p] for p in close]))
        exact = self._blocks.value(rows, self._day[slot])
        best = int(np.argmax(exact))
        if exact[best] <= 0.0:
            return -1, -np.inf
        return int(rows[best]), float(exact[best])

    def crawled(self, row: int, slot: int, is_new: bool) -> None:
        """A page has been crawled in a slot; `PagesNow` and the doors know of it already."""
        opens = 0
        if self._has_doors:
            host = self._host[row]
            if self._limited[host]:
                opens = self._doors_open[host]
                self._close(host, opens)
        if is_new:
            self._blocks.add(row, slot, self._lately)
            self._bound = self._blocks.bound()
            return
        p = self._place.get(row, -1)
        if p < 0:
            return
        self._alive[p] = False
        if p in self._inside:
            active = self._active
            if self._picked < len(active) and active[self._picked][4] == p:
                del active[self._picked]
                self._inside.discard(p)
            else:
                self._leave([p])
        if self._has_caps:
            opens = max(opens, int(self._now.opens[row]))
        self._expect(p, row, max(slot + 1, opens))

    def _close(self, host: int, opens: int) -> None:
        """Set pages of a host aside until it opens."""
        closed = [curve[4] for curve in self._active if self._host_of[curve[4]] == host]
        if closed:
            self._leave(closed)
            if opens < self._last_block.end:
                self._enter.setdefault(opens, []).extend(closed)

    def _leave(self, places: list[int]) -> None:
        if self._inside.isdisjoint(places):
            return
        self._active = [curve for curve in self._active if curve[4] not in places]
        self._inside.difference_update(places)

    def _expect(self, p: int, row: int, slot: int) -> None:
        """Look at a crawled page again when it may have reached the level, in a slot or later."""
        start, end = self._start_of[row], self._last_block.end
        self._refit_at.pop(p, None)
        if start <= 0.0 or slot >= end:
            return
        day = self._last[row] + math.sqrt(max(self._level, 0.0) / start) * (1.0 - 1e-9)
        if day > self._day[end - 1]:
            return
        at = max(slot, bisect_left(self._day, day, slot, end) - 1)
        if at < end:
            self._refit_at[p] = at
            self._enter.setdefault(at, []).append(~p)

    # ---- who has reached the level

    def _let_in(self, slot: int) -> None:
        """Pages whose slot has come."""
        refit = []
        for at in range(self._next, slot + 1):
            for p in self._enter.pop(at, ()):
                if p < 0:
                    if self._refit_at.get(~p) == at:
                        del self._refit_at[~p]
                        refit.append(~p)
                elif self._alive[p]:
                    self._admit(p, slot)
        self._next = slot + 1
        if refit:
            self._leave(refit)
            at_once = np.array(refit)
            self._fit(at_once, slot, self._last_block.end)
            entry = self._entry(at_once, slot)
            for p, at in zip(refit, entry.tolist(), strict=True):
                self._alive[p] = True
                if at <= slot:
                    self._admit(p, slot)
                elif at < NEVER:
                    self._enter.setdefault(at, []).append(p)
        if len(self._active) > 2 * self._few + _FEW and slot - self._aimed > _SOON:
            self._few = max(_FEW, self._few - 1)
            self._aim(slot)

    def _admit(self, p: int, slot: int) -> None:
        opens = self._doors_open[self._host_of[p]] if self._has_doors else 0
        if self._has_caps:
            opens = max(opens, self._opens[self._rows[p]])
        if p in self._inside:
            return
        if opens <= slot:
            self._inside.add(p)
            curve = float(self._a[p]), float(self._b[p]), float(self._c[p]), float(self._error[p]), p
            self._active.append(curve)
            self._widest = max(self._widest, curve[3])
        elif opens < self._last_block.end:
            self._enter.setdefault(opens, []).append(p)

    def _sharpen(self, places: list[int], slot: int) -> bool:
        """Fit those of some pages that have large errors to fewer slots; returns whether there were any."""
        end = self._last_block.end
        until = min(end, slot + max(2, (end - slot) // _RATIO))
        blurred = [p for p in places if self._error[p] > self._sharp and self._fit_end[p] >= end]
        if not blurred or until >= end:
            return False
        self._fit(np.array(blurred), slot, until)
        self._leave(blurred)
        for p in blurred:
            self._admit(p, slot)
            self._refit_at[p] = until
            self._enter.setdefault(until, []).append(~p)
        return True

    def _aim(self, slot: int, level: float | None = None) -> None:
        """Set the level so that a few open pages are above it, and find when others will be."""
        block, now = self._last_block, self._now
        rows, day = block.rows, self._day[slot]
        x = (day - self._origin) / self._length
        stale = (now.last[rows] != self._fit_last) | (self._fit_end < block.end)
        opening = self._blocks.opening(rows)
        low = self._a + x * (self._b + x * self._c) - self._error
        if level is None:
            ready = low[(opening <= slot) & ~stale & (low > 0.0)]
            level = 0.0
            if ready.size:
                few = min(self._few, ready.size)
                level = float(np.partition(ready, ready.size - few)[ready.size - few])
        self._level, self._aimed, self._next = level, slot, slot + 1
        self._active, self._enter, self._refit_at, self._widest = [], {}, {}, 0.0
        old = np.flatnonzero(stale)
        if old.size:
            span = np.maximum(day - now.last[rows[old]], 0.0)
            reached = self._start[rows[old]] * span * span * _SLACK >= level
            again = old[reached & (opening[old] <= slot) | (now.signals[rows[old]] > 0.0)]
            if again.size:
                self._fit(again, slot, block.end)
                stale[again] = False
            for p in again.tolist():
                self._alive[p] = True
            start = self._start[rows[old]]
            with np.errstate(divide="ignore"):
                back = now.last[rows[old]] + np.sqrt(level / np.where(start > 0.0, start, 1e-300))
            for p in old[stale[old] & (back <= self._day[block.end - 1])].tolist():
                self._expect(p, self._rows[p], max(slot + 1, int(opening[p])))
        some = np.flatnonzero(~stale)
        entry = np.maximum(self._entry(some, slot), opening[some])
        at_once = some[entry <= slot]
        slope = np.median(self._b[at_once] + 2.0 * x * self._c[at_once]) if at_once.size else 0.0
        self._sharp = max(_CLOSE * float(slope) / (block.end - block.start), 8.0 * self._noise * level)
        table = (self._a, self._b, self._c, self._error)
        self._active = list(zip(*(c[at_once].tolist() for c in table), at_once.tolist(), strict=True))
        self._inside = set(at_once.tolist())
        self._widest = float(self._error[at_once].max(initial=0.0))
        later = np.flatnonzero((entry > slot) & (entry < block.end))
        for p, at in zip(some[later].tolist(), entry[later].tolist(), strict=True):
            self._enter.setdefault(at, []).append(p)

    def _entry(self, at: IntArray, slot: int) -> IntArray:
        """First slot, from `slot` on, in which pages may be above the level; `NEVER`: not in this block."""
        x = (self._day[slot] - self._origin) / self._length
        a, b, c = self._a[at] + self._error[at] - self._level, self._b[at], self._c[at]
        now, end = a + x * (b + x * c), a + b + c
        slope = b + 2.0 * c * x
        with np.errstate(divide="ignore", invalid="ignore"):
            step = -2.0 * now / (slope + np.sqrt(np.maximum(slope * slope - 4.0 * c * now, 0.0)))
        day = self._origin + self._length * (x + np.where(step > 0.0, step, 0.0) * (1.0 - 1e-9))
        entry = np.maximum(np.searchsorted(self._days, day, side="left") - 1, slot)
        found: IntArray = np.where(now >= 0.0, slot, np.where(end < 0.0, NEVER, entry))
        return found

    def _fill(self, slot: int) -> None:
        self._blocks.fill(slot)
        self._bound = self._blocks.bound()
        self._fit_all(slot)
        self._aim(slot)

    # ---- parabolas

    def _fit_all(self, slot: int) -> None:
        block = self._last_block
        m = block.rows.size
        self._origin = float(self._days[slot])
        self._length = max(float(self._days[block.end - 1]) - self._origin, 1e-300)
        self._a, self._b, self._c, self._error = (np.zeros(m) for _ in range(4))
        self._fit_last, self._fit_end = np.zeros(m), np.zeros(m, np.int64)
        self._fit(np.arange(m), slot, block.end)
        self._rows = block.rows.tolist()
        self._place = {row: p for p, row in enumerate(self._rows)}
        self._host_of = self._now.host[block.rows].tolist() if self._has_doors else []
        self._alive = [True] * m

    def _fit(self, at: IntArray, slot: int, end: int) -> None:
        """Parabolas through the values of some pages of the last block at both ends and in the middle."""
        rows, now = self._last_block.rows[at], self._now
        first, last = float(self._days[slot]), float(self._days[end - 1])
        v0 = self._blocks.value(rows, first)
        self._fit_last[at], self._fit_end[at] = now.last[rows], end
        if not last > first:
            self._a[at], self._b[at], self._c[at] = v0, 0.0, 0.0
            self._error[at] = self._noise * v0
            return
        v1, v = self._blocks.value(rows, last), self._blocks.value(rows, 0.5 * (first + last))
        seen = now.last[rows]
        bend = self._blocks.curves.bend(
            rows, np.maximum(first - seen, 0.0), np.maximum(last - seen, 0.0), now.signals[rows]
        )
        error = bend * ((last - first) ** 3 * _ERROR_OF_PARABOLA) + self._noise * v1
        slope, curve = 4.0 * v - v1 - 3.0 * v0, 2.0 * (v0 + v1 - 2.0 * v)
        width, shift = (last - first) / self._length, (first - self._origin) / self._length
        c = curve / (width * width)
        b = slope / width
        self._a[at] = v0 - b * shift + c * shift * shift
        self._b[at] = b - 2.0 * c * shift
        self._c[at] = c
        self._error[at] = error + _ROUNDING * (np.abs(b) + np.abs(c) + v1)
