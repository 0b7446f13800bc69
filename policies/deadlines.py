"""Earliest deadline first: which open window each slot serves.

These are the loops over slots that NumPy cannot run at once. They work on plain integers: the lower the rank
of a job, the more urgent.
"""

from heapq import heappop, heappush, heappushpop

import numpy as np

from policies.typing_ import IntArray
from policies.windows import Jobs

EMPTY = -1

_NEVER = 1 << 62


def earliest_deadline_first(jobs: Jobs, group_slots: IntArray, fill: bool) -> IntArray:
    """Serve groups of jobs, each on its own stretch of the timeline.

    Parameters
    ----------
    jobs : Jobs
    group_slots : (g,) int64
        Slots of each group.
    fill : bool
        Whether a slot with no open window takes the next window of its group before it opens. Needed only
        against rounding errors where the shares of a group add up to 1.

    Returns
    -------
    row : (slots,) int64
        Row served in each slot of the timeline, or -1.
    """
    ranks = jobs.rank.tolist()
    opened = jobs.opened.tolist()
    out: list[int] = []
    slot = 0
    for slots in group_slots.tolist():
        _serve(ranks, opened, slot, slot + slots, fill, out)
        slot += slots
    served = np.array(out, dtype=np.int64)
    rows: IntArray = np.full(served.size, EMPTY, np.int64)
    used = served >= 0
    rows[used] = jobs.row[served[used]]
    return rows


def _serve(ranks: list[int], opened: list[int], begin: int, end: int, fill: bool, out: list[int]) -> None:
    """Append the rank served in each of the slots begin..end-1 to `out`."""
    if begin == end:
        return
    put = out.append
    heap: list[int] = []
    # Windows open from the start are sorted already: they wait in this list, not in the heap.
    at_start = ranks[opened[begin] : opened[begin + 1]]
    at_start.append(_NEVER)
    head = at_start[0]
    taken = 0
    done = opened[begin + 1]
    for until in opened[begin + 1 : end + 1]:
        if done + 1 == until:
            rank = ranks[done]
            done = until
            if heap:
                rank = heappushpop(heap, rank)
            if rank < head:
                put(rank)
            elif head < _NEVER:
                heappush(heap, rank)
                put(head)
                taken += 1
                head = at_start[taken]
            continue
        while done < until:
            heappush(heap, ranks[done])
            done += 1
        if heap and heap[0] < head:
            put(heappop(heap))
        elif head < _NEVER:
            put(head)
            taken += 1
            head = at_start[taken]
        elif fill and done < opened[end]:
            put(ranks[done])
            done += 1
        else:
            put(EMPTY)


def earliest_deadline_first_polite(
    jobs: Jobs,
    host: IntArray,
    earliest_us: IntArray,
    latest_us: IntArray,
    host_gap_us: IntArray,
    host_free_us: IntArray,
    host_slots: IntArray,
) -> tuple[IntArray, IntArray, int]:
    """Serve one group of jobs and keep each host's gap and limit.

    A slot may be served at any moment from `earliest_us` to `latest_us`; the first one that suits the host is
    taken. A job whose host is not free by then waits with others of its host; the most urgent comes back in
    the slot in which the host is free again.

    Parameters
    ----------
    jobs : Jobs
        Of a single group.
    host : (n,) int64
        Host of each row.
    earliest_us, latest_us : (slots,) int64
        First and last moment of each slot, not decreasing.
    host_gap_us : (h,) int64
        Least time between two crawls of a host.
    host_free_us : (h,) int64
        Moment from which a host may be crawled tonight.
    host_slots : (h,) int64
        Most crawls of a host tonight.

    Returns
    -------
    row : (slots,) int64
        Row served in each slot, or -1.
    due_us : (slots,) int64
        Moment of each slot.
    waits : int
        How often a job had to wait for its host.
    """
    slots = earliest_us.size
    ranks, opened = jobs.rank.tolist(), jobs.opened.tolist()
    host_of = host[jobs.row].tolist()
    limited = np.flatnonzero(np.bincount(host[jobs.row], minlength=host_slots.size) > host_slots)
    left = dict(zip(limited.tolist(), host_slots[limited].tolist(), strict=True))
    gap, free = host_gap_us.tolist(), host_free_us.tolist()
    for j, allowed in left.items():
        if allowed == 0:
            free[j] = _NEVER
    first, last, due = earliest_us.tolist(), latest_us.tolist(), earliest_us.tolist()
    waiting: dict[int, list[int]] = {}
    wakes: dict[int, list[int]] = {}
    asleep: set[int] = set()
    out: list[int] = [EMPTY] * slots
    waits = 0

    def sleep(j: int, slot: int) -> None:
        """Let the most urgent waiting job of host j come back when the host is free."""
        asleep.add(j)
        back = int(np.searchsorted(latest_us, free[j])) if free[j] <= last[-1] else slots
        wakes.setdefault(max(back, slot + 1), []).append(j)

    at_start = ranks[: opened[1]] if slots else []
    at_start.append(_NEVER)
    head, taken = at_start[0], 0
    heap: list[int] = []
    done = opened[1] if slots else 0
    for slot in range(slots):
        until = opened[slot + 1]
        while done < until:
            heappush(heap, ranks[done])
            done += 1
        if slot in wakes:
            for j in wakes.pop(slot):
                asleep.discard(j)
                heappush(heap, heappop(waiting[j]))
        end = last[slot]
        while True:
            if heap and heap[0] < head:
                rank = heappop(heap)
            elif head < _NEVER:
                rank = head
                taken += 1
                head = at_start[taken]
            else:
                break
            j = host_of[rank]
            moment = free[j]
            if moment <= end:
                if moment > first[slot]:
                    due[slot] = moment
                else:
                    moment = first[slot]
                free[j] = moment + gap[j]
                if j in left:
                    left[j] -= 1
                    if left[j] == 0:
                        free[j] = _NEVER
                out[slot] = rank
                if j not in asleep and waiting.get(j):
                    sleep(j, slot)
                break
            waits += 1
            heappush(waiting.setdefault(j, []), rank)
            if j not in asleep:
                sleep(j, slot)
    served = np.array(out, dtype=np.int64)
    rows: IntArray = np.full(slots, EMPTY, np.int64)
    used = served >= 0
    rows[used] = jobs.row[served[used]]
    return rows, np.array(due, dtype=np.int64), waits
