"""Slots of a host whose pages lie in several shards: one limit and one gap, however many shards crawl it.

The host's slots stand on a grid of its own, as far apart as its gap asks for. Shards take places of the grid
in proportion to the rates of their pages, interleaved as the slots of shards are, so that none of them has to
know what the others do.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray
from policies.sequencing.quotas import all_slot_ranks, shard_quotas, slot_ranks
from policies.sequencing.sequencing import Sequence


@dataclass(frozen=True, slots=True)
class HostSlots:
    """Tonight's slots of one host.

    Attributes
    ----------
    quota : (p,) int64
        Slots of each part.
    start_us, step_us : int
        Place k of the grid is ``start_us + k * step_us`` microseconds after the start of the night.
    """

    quota: IntArray
    start_us: int
    step_us: int

    @property
    def total(self) -> int:
        """Slots of all parts."""
        return int(self.quota.sum())

    def offsets_us(self, part: int) -> IntArray:
        """Slots of one part, microseconds after the start of the night, rising: (quota[part],) int64."""
        return self.start_us + slot_ranks(self.quota, part) * self.step_us

    def all_offsets_us(self) -> list[IntArray]:
        """`offsets_us` of all parts."""
        offsets = self.start_us + all_slot_ranks(self.quota) * self.step_us
        return np.split(offsets, np.cumsum(self.quota)[:-1])


def most_slots(max_slots: int, gap_us: int, free_at_us: int, horizon_us: int) -> int:
    """Slots that a host may have in a night.

    Parameters
    ----------
    max_slots : int
        By its limit.
    gap_us : int
        Least time between two crawls, microseconds.
    free_at_us : int
        First moment at which it may be crawled, microseconds after the start of the night.
    horizon_us : int
        Length of the night, microseconds.
    """
    span = horizon_us - max(free_at_us, 0)
    if span <= 0:
        return 0
    return min(max_slots, 1 + (span - 1) // gap_us) if gap_us > 0 else max_slots


def host_slots(
    rate_per_day: FloatArray, carry: FloatArray, slots: int, gap_us: int, free_at_us: int, horizon_us: int
) -> tuple[HostSlots, FloatArray]:
    """Share the slots of a host among its parts and put them on a grid.

    Parameters
    ----------
    rate_per_day : (p,) float64
        Crawl rate of the pages of each part; not all 0 where there are slots.
    carry : (p,) float64
        Slots each part was given short so far.
    slots : int
        At most `most_slots`.
    gap_us, free_at_us, horizon_us : int
        As for `most_slots`.

    Returns
    -------
    HostSlots
    carry : (p,) float64
        For the next night.
    """
    quota, owed = shard_quotas(rate_per_day, carry, slots)
    first = max(free_at_us, 0)
    span = horizon_us - first
    step = max(gap_us, span // max(slots, 1), 0)
    slack = span - 1 - max(slots - 1, 0) * step
    return HostSlots(quota, first + max(slack, 0) // 2, step), owed


def merge_sequences(parts: Many[tuple[IntArray, Sequence]], n_pages: int) -> Sequence:
    """The sequences of disjoint sets of pages of one shard as one, in order of time.

    Parameters
    ----------
    parts : sequence of (rows, Sequence)
        Rows of the shard's pages, (m,) int64, and the night of those pages.
    n_pages : int
        Pages of the shard.

    Returns
    -------
    Sequence
        Slots at one moment stay in the order of `parts`.
    """
    owed, expected = np.zeros(n_pages), np.zeros(n_pages)
    counters: dict[str, int] = {}
    for rows, part in parts:
        owed[rows], expected[rows] = part.owed, part.expected
        for name, n in part.counters.items():
            counters[name] = counters.get(name, 0) + n
    due = np.concatenate([part.due_offset_us for _, part in parts])
    page = np.concatenate(
        [np.where(part.page >= 0, _at(rows, part.page.astype(np.int64)), -1) for rows, part in parts]
    )
    reason = np.concatenate([part.reason for _, part in parts])
    order = np.argsort(due, kind="stable")
    return Sequence(page[order].astype(np.int32), due[order], owed, expected, reason[order], counters)


def _at(rows: IntArray, page: IntArray) -> IntArray:
    if not len(rows):
        return np.full(len(page), -1, np.int64)
    found: IntArray = rows[np.maximum(page, 0)]
    return found
