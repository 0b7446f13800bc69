"""Pages of a shard that can be worth most in blocks of slots, found without evaluating all in every slot.

Values only grow between crawls, so what a page is worth at the end of a block of slots bounds it inside the
block (Busa-Fekete et al., section 5.2, find when a page can next matter the same way). Blocks lie in blocks:
the longest one keeps the pages that are worth most at its end, a shorter one chooses among these, and so on
down to some hundred slots. A block remembers the highest value that it left out: a pick above that of every
block is sure. If one is not, the block that left out too much is chosen anew, four times shorter; a block of
one slot leaves out nothing that could be best.

A host that is crawled at most k times in a block needs no page worth less at its end than the k-th best page
of the host is at its beginning: such pages of crowded hosts are left out first.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.greedy.open_hosts import HostDoors
from policies.greedy.value_curves import ValueCurves
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

_SPARE: Final = 16  # pages of a block beyond one a slot
_RATIO: Final = 8  # of the lengths of blocks
_FINEST: Final = (32, 1024)  # slots of the shortest blocks
_PASSES: Final = 12  # evaluations of all pages a night that are worth their time
_SLACK: Final = 1.0 + 1e-9
_FAR_BELOW: Final = 0.5


@dataclass
class PagesNow:
    """What a night knows of n pages while it goes on. Rows lie in the order that decides ties.

    Attributes
    ----------
    last : (n,) float64
        Last attempt or slot, in days after the start of the night; below 0 before it.
    signals : (n,) float64
        Signals since then that are known.
    opens : (n,) int64
        First slot in which the page's cap lets it be crawled.
    host : (n,) int64
    """

    last: FloatArray
    signals: FloatArray
    opens: IntArray
    host: IntArray


@dataclass
class Block:
    """Slots start..end - 1, the pages that can be best in them, and the most that others are worth."""

    nominal: int
    size: int
    start: int = 0
    end: int = 0
    spare: int = 0
    bound: float = -np.inf
    rows: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))


class Blocks:
    """Blocks of one night, the longest first.

    Parameters
    ----------
    curves : ValueCurves
    now : PagesNow
        Changed by whoever crawls pages.
    known : (k,) int64
        Rows that may be crawled, ascending.
    doors : HostDoors
    days : (slots,) float64
        Moments of the slots, days after the start of the night.
    has_caps : bool
        Whether `PagesNow.opens` ever is above 0.
    """

    def __init__(
        self,
        curves: ValueCurves,
        now: PagesNow,
        known: IntArray,
        doors: HostDoors,
        days: FloatArray,
        has_caps: bool,
    ) -> None:
        self.curves, self.now, self._known, self.doors, self.days = curves, now, known, doors, days
        self._new: list[int] = []
        self.has_doors, self.has_caps = bool(doors.limited.any()), has_caps
        self.start = curves.start()
        finest = int(min(max(0.4 * known.size ** (2.0 / 3.0), _FINEST[0]), _FINEST[1]))
        longest = max(finest, min(days.size, known.size // _PASSES))
        steps = max(math.ceil(math.log(longest / finest, _RATIO) - 0.5), 0)
        ratio = (longest / finest) ** (1.0 / max(steps, 1))
        sizes = [round(finest * ratio**step) for step in range(steps, -1, -1)]
        self.all = [Block(size, size, spare=max(_SPARE, size // 4)) for size in sizes]
        self.last = self.all[-1]
        self.evaluated = 0

    def bound(self) -> float:
        """A pick above this is sure."""
        return max(0.0, *(b.bound for b in self.all)) * (1.0 + self.curves.noise)

    def fill(self, slot: int) -> None:
        """Choose the pages of the blocks that begin in a slot."""
        for level, block in enumerate(self.all):
            if slot >= block.end:
                for inner in range(level, len(self.all)):
                    self._renew(inner, slot)
                return

    def is_sure(self, row: int, value: float, slot: int) -> bool:
        """Whether nothing that blocks left out can beat a pick, (-1, -inf) if there is none.

        If not, the block that left it out ends here.
        """
        noise = 1.0 + self.curves.noise
        for block in self.all:
            if block.bound == -np.inf or value > block.bound * noise:
                continue
            if value >= block.bound and block.end == block.start + 1:
                continue
            if value == block.bound and row >= 0:
                # A page that no longer grows was kept before equal ones of higher rows.
                if self.value(np.array([row]), self.days[block.end - 1])[0] == value:
                    continue
            block.size = max(1, min(block.size, block.end - slot) // 4)
            block.spare *= 2
            block.end = self.last.end = 0
            return False
        return True

    def add(self, row: int, slot: int, lately: float) -> None:
        """A page that no block knows was crawled in a slot and may be from now on; `lately` won the slot."""
        self._new.append(row)
        for block in self.all:
            if block.end <= slot + 1:
                return
            span = float(self.days[block.end - 1] - self.now.last[row])
            most = float(self.start[row]) * span * span * _SLACK
            if most < _FAR_BELOW * lately:
                block.bound = max(block.bound, most)
                return
            block.rows = np.sort(np.append(block.rows, row))
        self.last.end = 0

    def value(self, rows: IntArray, day: float) -> FloatArray:
        """Crawl values at a moment, (m,) float64."""
        self.evaluated += rows.size
        days = np.maximum(day - self.now.last[rows], 0.0)
        return self.curves.value(rows, days, self.now.signals[rows])

    def opening(self, rows: IntArray) -> IntArray:
        """First slot in which each page may be crawled as things stand: (m,) int64."""
        opens = self.now.opens[rows] if self.has_caps else np.zeros(rows.size, np.int64)
        if self.has_doors:
            opens = np.maximum(opens, self.doors.opens[self.now.host[rows]])
        return opens

    def _renew(self, level: int, slot: int) -> None:
        """Choose the pages of a block that starts in a slot, from those of the block around it."""
        block = self.all[level]
        if level == 0:
            rows, until = self._known, self.days.size
            if self._new:
                rows = np.union1d(rows, np.array(self._new))
        else:
            outer = self.all[level - 1]
            rows, until = outer.rows, outer.end
        size = min(block.size, until - slot)
        end = slot + size
        if self.has_caps or self.has_doors:
            rows = rows[self.opening(rows) < end]
        value = self.value(rows, self.days[end - 1])
        rows, value = _keep(value > 0.0, rows, value)
        weight = None
        if self.has_doors and size > 1:
            weight, rows, value = self._thin_out(rows, value, slot, end)
        kept, block.bound = _best(value, size + block.spare, weight)
        block.rows, block.start, block.end = np.sort(rows[kept]), slot, end
        block.size = min(block.nominal, 2 * block.size)
        block.spare = max(block.spare - block.spare // 8, max(_SPARE, block.nominal // 4))

    def _thin_out(
        self, rows: IntArray, value: FloatArray, slot: int, end: int
    ) -> tuple[FloatArray | None, IntArray, FloatArray]:
        """Leave out pages that cannot get their turn at a crowded host.

        Returns for each page left how many of its host's crawls fall to it at most, its row and its value.
        """
        host = self.now.host[rows]
        limited = self.doors.limited[host]
        if not limited.any():
            return None, rows, value
        crawls = self.doors.most_crawls(host, slot, end)
        count = _count(host)
        crowded = np.flatnonzero(limited & (count > 2.0 * crawls + 4.0))
        keep = np.ones(rows.size, np.bool_)
        if crowded.size:
            now = self.value(rows[crowded], self.days[slot])
            if self.has_caps:
                now[self.now.opens[rows[crowded]] > slot] = -np.inf
            order = np.lexsort((-now, host[crowded]))
            of_host = host[crowded][order]
            first = np.flatnonzero(np.diff(of_host, prepend=-1))
            sizes = np.diff(np.append(first, of_host.size))
            at = np.minimum(first + crawls[crowded][order][first].astype(np.int64), first + sizes) - 1
            least = np.empty(crowded.size)
            least[order] = np.repeat(now[order][np.maximum(at, 0)], sizes)
            keep[crowded] = value[crowded] >= least
            keep[crowded[crawls[crowded] < 1.0]] = False
            count[crowded] = 0.0
            left = crowded[keep[crowded]]
            count[left] = _count(host[left])
        weight = np.where(limited, np.minimum(1.0, crawls / np.maximum(count, 1.0)), 1.0)
        return weight[keep], rows[keep], value[keep]


def _keep(chosen: BoolArray, rows: IntArray, value: FloatArray) -> tuple[IntArray, FloatArray]:
    return (rows, value) if chosen.all() else (rows[chosen], value[chosen])


def _count(group: IntArray) -> FloatArray:
    """How many there are of the group of each element: (m,) float64."""
    if group.size and int(group.max()) < 4 * group.size:
        found: FloatArray = np.bincount(group).astype(np.float64)[group]
        return found
    _, inverse, counts = np.unique(group, return_inverse=True, return_counts=True)
    return counts.astype(np.float64)[inverse]


def _best(value: FloatArray, most: int, weight: FloatArray | None) -> tuple[IntArray, float]:
    """Places of the highest values, equal ones by place, and the highest that was left out (-inf: none).

    As many as have a sum of weights of `most`, each 1 if `weight` is None.
    """
    if value.size <= most:
        return np.arange(value.size), -np.inf
    if weight is None:
        cut = np.partition(value, value.size - most)[value.size - most]
        above = np.flatnonzero(value > cut)
        equal = np.flatnonzero(value == cut)
        need = most - above.size
        if equal.size > need:
            return np.concatenate((above, equal[:need])), float(cut)
        kept = np.concatenate((above, equal))
        rest = value[value < cut]
        return kept, float(rest.max()) if rest.size else -np.inf
    order = np.argsort(-value, kind="stable")
    enough = int(np.searchsorted(np.cumsum(weight[order]), float(most) - 1e-9)) + 1
    if enough >= order.size:
        return order, -np.inf
    return order[:enough], float(value[order[enough]])
