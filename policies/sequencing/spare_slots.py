"""A second look at the slots that stayed empty, for pages that may use them after all.

Gaps between the crawls of a host, and rounding, can leave a slot for which no open window had a free host.
Such slots are few; each goes to the page with the earliest next deadline whose host is free then and below
its limit.
"""

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray


def fill_empty(
    empty: IntArray,
    earliest_us: IntArray,
    latest_us: IntArray,
    rows: IntArray,
    deadline: FloatArray,
    interval: FloatArray,
    priority: IntArray,
    host: IntArray,
    host_gap_us: IntArray,
    host_free_us: IntArray,
    host_left: IntArray,
    used_host: IntArray,
    used_due_us: IntArray,
) -> tuple[IntArray, IntArray, IntArray]:
    """Choose pages for empty slots.

    Parameters
    ----------
    empty : (e,) int64
        The empty slots, increasing.
    earliest_us, latest_us : (slots,) int64
        First and last moment of each slot.
    rows : (c,) int64
        Candidates: rows of pages.
    deadline, interval : (c,) float64
        Next deadline of each candidate, in slots, and the distance to the ones after; infinite for one crawl
        only.
    priority : (c,) int64
        Order among equal deadlines, lower first.
    host : (c,) int64
        Host of each candidate.
    host_gap_us, host_free_us, host_left : (h,) int64
        Gap, first moment tonight, and number of further crawls allowed for each host.
    used_host, used_due_us : (u,) int64
        Hosts and moments of the crawls that are already scheduled.

    Returns
    -------
    slot, row, due_us : (f,) int64
        Slots that could be filled, with page and moment.
    """
    order = np.lexsort((priority, deadline))
    of_host = host[order]
    first = np.zeros(order.size, np.bool_)
    first[np.unique(of_host, return_index=True)[1]] = True
    order = order[first | (np.arange(order.size) < 20 * empty.size + 1000)]
    queue: dict[int, list[tuple[float, int, int]]] = {}
    for j, item in zip(
        host[order].tolist(),
        zip(deadline[order].tolist(), priority[order].tolist(), order.tolist(), strict=True),
        strict=True,
    ):
        queue.setdefault(j, []).append(item)
    taken = _moments(used_host, used_due_us, [j for j in queue if host_gap_us[j] > 0])
    ready = [(items[0][:2], j) for j, items in queue.items() if host_left[j] > 0]
    heapify(ready)
    left = {j: int(host_left[j]) for j in queue}
    sleeping: list[tuple[int, int]] = []
    found: list[tuple[int, int, int]] = []
    for slot in empty.tolist():
        while sleeping and sleeping[0][0] <= slot:
            j = heappop(sleeping)[1]
            heappush(ready, (queue[j][0][:2], j))
        while ready:
            j = heappop(ready)[1]
            gap = int(host_gap_us[j])
            moment = max(int(earliest_us[slot]), int(host_free_us[j]))
            wait_until = -1
            if gap > 0:
                moment, wait_until = _fit(taken.get(j, []), moment, int(latest_us[slot]), gap)
            elif moment > latest_us[slot]:
                wait_until = moment
            if wait_until >= 0:
                heappush(sleeping, (max(slot + 1, int(np.searchsorted(latest_us, wait_until))), j))
                continue
            due, _, candidate = heappop(queue[j])
            found.append((slot, int(rows[candidate]), moment))
            left[j] -= 1
            if gap > 0:
                insort(taken.setdefault(j, []), moment)
            if np.isfinite(interval[candidate]):
                heappush(queue[j], (due + float(interval[candidate]), int(priority[candidate]), candidate))
            if left[j] > 0 and queue[j]:
                heappush(ready, (queue[j][0][:2], j))
            break
    table = np.array(found, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _moments(host: IntArray, due_us: IntArray, wanted: list[int]) -> dict[int, list[int]]:
    """Moments at which each of the wanted hosts is crawled, in order."""
    keep = np.isin(host, np.array(wanted, dtype=np.int64))
    order = np.lexsort((due_us[keep], host[keep]))
    moments = due_us[keep][order]
    hosts, starts = np.unique(host[keep][order], return_index=True)
    ends = np.append(starts, moments.size)[1:]
    spans = zip(hosts.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return {j: moments[a:b].tolist() for j, a, b in spans}


def _fit(taken: list[int], moment: int, latest: int, gap: int) -> tuple[int, int]:
    """Find the first moment from `moment` to `latest` that is a gap away from all taken ones.

    Returns the moment and -1, or, when there is none, the moment to try again from.
    """
    place = bisect_left(taken, moment)
    if place > 0:
        moment = max(moment, taken[place - 1] + gap)
    if place < len(taken) and moment > taken[place] - gap:
        return moment, taken[place] + gap
    if moment > latest:
        return moment, moment
    return moment, -1
