"""Earliest deadline first: which open window each slot serves.

These are the loops over slots that NumPy cannot run at once. They work on plain integers: the lower the rank
of a job, the more urgent.
"""

from bisect import bisect_right
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from itertools import islice

import numpy as np

from policies.numerics.typing_ import BoolArray, IntArray
from policies.sequencing.windows import Jobs

EMPTY = -1

_NEVER = 1 << 62


def earliest_deadline_first(jobs: Jobs, group_slots: IntArray) -> IntArray:
    """Serve groups of jobs, each on its own stretch of the timeline.

    Parameters
    ----------
    jobs : Jobs
    group_slots : (g,) int64
        Slots of each group.

    Returns
    -------
    row : (slots,) int64
        Row served in each slot of the timeline, or -1 where no window is open.
    """
    ranks = iter(jobs.rank.tolist())
    opening = iter(jobs.opening.tolist())
    out: list[int] = []
    for slots in group_slots.tolist():
        _serve(ranks, opening, slots, out)
    return _rows(jobs, out)


def _rows(jobs: Jobs, ranks: list[int]) -> IntArray:
    served = np.array(ranks, dtype=np.int64)
    if jobs.row.size == 0:
        return served
    return np.where(served >= 0, jobs.row[served], EMPTY)


def _serve(ranks: Iterator[int], opening: Iterator[int], slots: int, out: list[int]) -> None:
    """Append the rank served in each of the next slots to `out`."""
    if slots == 0:
        return
    put, pull = out.append, ranks.__next__
    # Windows open from the start are sorted already: they wait in a queue of their own, not in the heap.
    at_start = iter(list(islice(ranks, next(opening))))
    head = next(at_start, _NEVER)
    put(head if head < _NEVER else EMPTY)
    head = next(at_start, _NEVER)
    heap: list[int] = []
    for number in islice(opening, slots - 1):
        if number == 1:
            rank = pull()
            if heap and heap[0] < rank:
                if heap[0] < head:
                    put(heapreplace(heap, rank))
                    continue
            elif rank < head:
                put(rank)
                continue
            heappush(heap, rank)
            put(head)
            head = next(at_start, _NEVER)
            continue
        for rank in islice(ranks, number):
            heappush(heap, rank)
        if heap and heap[0] < head:
            put(heappop(heap))
        elif head < _NEVER:
            put(head)
            head = next(at_start, _NEVER)
        else:
            put(EMPTY)


def earliest_deadline_first_polite(
    jobs: Jobs,
    host: IntArray,
    offset_us: IntArray,
    horizon_us: int,
    host_gap_us: IntArray,
    host_free_us: IntArray,
    host_slots: IntArray,
    sooner_us: IntArray,
    host_sooner: BoolArray,
) -> tuple[IntArray, IntArray, int]:
    """Serve one group of jobs and keep each host's gap and limit.

    A slot may be served at any moment from its offset until that of the next one; the first that suits the
    host is taken. A job whose host is not free by then waits with others of its host; the most urgent comes
    back in the slot in which the host is free again.

    Parameters
    ----------
    jobs : Jobs
        Of a single group.
    host : (n,) int64
        Host of each row.
    offset_us : (slots,) int64
        First moment of each slot, not decreasing.
    horizon_us : int
        End of the last slot.
    host_gap_us : (h,) int64
        Least time between two crawls of a host.
    host_free_us : (h,) int64
        Moment from which a host may be crawled tonight.
    host_slots : (h,) int64
        Most crawls of a host tonight.
    sooner_us : (slots,) int64
        First moment of each slot for hosts without slack, at most its offset.
    host_sooner : (h,) bool
        Hosts without slack: they are crawled as soon as they are free, from `sooner_us` on.

    Returns
    -------
    row : (slots,) int64
        Row served in each slot, or -1.
    due_us : (slots,) int64
        Moment of each slot.
    waits : int
        How often a job had to wait for its host.
    """
    ranks = iter(jobs.rank.tolist())
    opening = jobs.opening.tolist()
    # Views of flat numbers, not lists of objects: these are read at random, and every miss costs.
    host_of = host[jobs.row].astype(np.int32).data
    gap = host_gap_us.astype(np.int64).data
    free = host_free_us.astype(np.int64).data
    limited = np.flatnonzero(np.bincount(host[jobs.row], minlength=host_slots.size) > host_slots)
    left = dict(zip(limited.tolist(), host_slots[limited].tolist(), strict=True))
    for j, allowed in left.items():
        if allowed == 0:
            free[j] = _NEVER
    hurried = set(np.flatnonzero(host_sooner).tolist())
    offsets = offset_us.tolist()
    waiting: dict[int, list[int]] = {}
    wakes: dict[int, list[int]] = {}
    asleep: set[int] = set()
    out: list[int] = []
    moved: list[tuple[int, int]] = []
    waits = 0

    def sleep(j: int, slot: int) -> None:
        """Let the most urgent waiting job of host j come back when the host is free."""
        asleep.add(j)
        if free[j] < horizon_us:
            back = max(slot, bisect_right(offsets, free[j], slot) - 1)
            wakes.setdefault(back if back > slot else slot + 1, []).append(j)

    at_start = iter(list(islice(ranks, opening[0])))
    head = next(at_start, _NEVER)
    opening[0] = 0
    heap: list[int] = []
    put, pull = out.append, ranks.__next__
    for slot, (number, begin, end) in enumerate(
        zip(opening, offsets, [*offsets[1:], horizon_us], strict=True)
    ):
        if number == 1:
            heappush(heap, pull())
        elif number:
            for rank in islice(ranks, number):
                heappush(heap, rank)
        if slot in wakes:
            for j in wakes.pop(slot):
                asleep.discard(j)
                heappush(heap, heappop(waiting[j]))
        while True:
            if heap and heap[0] < head:
                rank = heappop(heap)
            elif head < _NEVER:
                rank = head
                head = next(at_start, _NEVER)
            else:
                put(EMPTY)
                break
            j = host_of[rank]
            moment = free[j]
            if moment <= begin:
                free[j] = begin + gap[j]
                if hurried and j in hurried and moment > sooner_us[slot]:
                    moved.append((slot, moment))
                    free[j] = moment + gap[j]
            elif moment < end:
                moved.append((slot, moment))
                free[j] = moment + gap[j]
            else:
                waits += 1
                heappush(waiting.setdefault(j, []), rank)
                if j not in asleep:
                    sleep(j, slot)
                continue
            put(rank)
            if left and j in left:
                left[j] -= 1
                if left[j] == 0:
                    free[j] = _NEVER
            if j in waiting and j not in asleep and waiting[j]:
                sleep(j, slot)
            break
    due = offset_us.copy()
    if moved:
        at, moments = np.array(moved, dtype=np.int64).T
        due[at] = moments
    return _rows(jobs, out), due, waits
