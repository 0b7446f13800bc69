"""Which hosts may be crawled in which slot of a night, and pages that wait in order for theirs."""

from bisect import bisect_left
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.sequencing.host_shares import HostLimits

NEVER = 1 << 62


class HostDoors:
    """When hosts open next, crawl by crawl.

    A host is open in a slot if its gap has passed by the end of the slot. A limit on the crawls of the night
    is spread over it: after k crawls the host opens at the k-th of so many equal parts of the night. A host
    with more value than its limit lets through is else crawled in the first hours only.

    Parameters
    ----------
    hosts : HostLimits
    most : (h,) int64
        Crawls of the night by limits, without those by gaps.
    offset_us, latest_us : (slots,) int64
        First and last moment of each slot.
    horizon_us : int
    """

    def __init__(
        self, hosts: HostLimits, most: IntArray, offset_us: IntArray, latest_us: IntArray, horizon_us: int
    ) -> None:
        slots = offset_us.size
        self._offsets, self._latest, self._horizon_us = offset_us, latest_us, horizon_us
        self._late = latest_us.data
        self.limit, self._gap = hosts.limit, np.maximum(hosts.gap_us, 0)
        self._most = np.where(most < slots, most, 0)
        self.free_us = hosts.free_us.astype(np.int64)
        self.used = np.zeros(self.limit.size, np.int64)
        self.opens = np.searchsorted(latest_us, self.free_us, side="left").astype(np.int64)
        self.opens[(self.limit <= 0) | (self.opens >= slots)] = NEVER
        self.limited: BoolArray = (self.limit < slots) | (self._gap > 0)
        if slots:
            self.limited |= self.free_us > offset_us[0]
        # Views that give Python numbers: a crawl reads and sets them one by one.
        self._early, self._is_limited, self._limits = offset_us.data, self.limited.data, self.limit.data
        self._free: Any = self.free_us.data
        self._count: Any = self.used.data
        self._next: Any = self.opens.data
        self._gaps, self._at_most = self._gap.data, self._most.data

    def serve(self, host: int, slot: int) -> int:
        """A crawl of an open host in a slot; returns its moment, microseconds."""
        begin = self._early[slot]
        if not self._is_limited[host]:
            return begin
        due: int = max(begin, self._free[host])
        self._count[host] = used = self._count[host] + 1
        most, free = self._at_most[host], due + self._gaps[host]
        if most:
            free = max(free, used * self._horizon_us // most)
        self._free[host] = free
        opens = NEVER
        if used < self._limits[host]:
            opens = bisect_left(self._late, free, slot + 1)
        self._next[host] = opens if opens < len(self._late) else NEVER
        return due

    def most_crawls(self, host: IntArray, first: int, end: int) -> FloatArray:
        """How often each of some hosts may be crawled in the slots first..end - 1 at most: (m,) float64."""
        last = float(self._latest[end - 1])
        free = np.maximum(self.free_us[host], self._offsets[first])
        gap = self._gap[host].astype(np.float64)
        room = np.where(gap > 0.0, np.floor((last - free) / np.maximum(gap, 1.0)) + 1.0, np.inf)
        used, most = self.used[host], self._most[host]
        paced = np.where(most > 0, np.floor(last * (most / self._horizon_us)) + 2.0 - used, np.inf)
        crawls = np.minimum(np.minimum(room, paced), self.limit[host] - used)
        crawls = np.where(self.limited[host], crawls, np.inf)
        return np.clip(np.where(self.opens[host] < end, crawls, 0.0), 0.0, float(end - first))


class HostQueue:
    """Pages in order of a number each, of which the first whose host is open is next.

    Pages of closed hosts wait apart, the first of each host comes back when it opens: O(log n) a page.

    Parameters
    ----------
    key, row : (k,) int64
        Number and page; a page is not taken before the slot that `key` names if `by_slot`.
    host : (n,) int64
        Of all pages.
    doors : HostDoors
    by_slot : bool
    """

    def __init__(
        self, key: IntArray, row: IntArray, host: IntArray, doors: HostDoors, by_slot: bool = False
    ) -> None:
        self._heap = list(zip(key.tolist(), row.tolist(), strict=True))
        heapify(self._heap)
        self._host, self._by_slot = host.data, by_slot
        self._opens = doors.opens.data
        # A host that pages wait for has a wake, or one of its pages is back in the heap.
        self._waiting: dict[int, list[tuple[int, int]]] = {}
        self._wakes: list[tuple[int, int]] = []
        self._has_wake: set[int] = set()

    def push(self, key: int, row: int) -> None:
        """One more page."""
        heappush(self._heap, (key, row))

    def take(self, slot: int) -> tuple[int, int]:
        """The first page whose host is open, with its key, taken out; (0, -1) if there is none."""
        while self._wakes and self._wakes[0][0] <= slot:
            host = heappop(self._wakes)[1]
            self._has_wake.discard(host)
            if self._opens[host] <= slot:
                heappush(self._heap, heappop(self._waiting[host]))
            else:
                self._wake(host, self._opens[host])
        until = slot if self._by_slot else NEVER
        while self._heap and self._heap[0][0] <= until:
            item = heappop(self._heap)
            host = self._host[item[1]]
            if self._opens[host] <= slot:
                self._wake(host, slot)
                return item
            heappush(self._waiting.setdefault(host, []), item)
            self._wake(host, self._opens[host])
        return 0, -1

    def _wake(self, host: int, slot: int) -> None:
        """Look at a host again in a slot."""
        if slot < NEVER and host not in self._has_wake and self._waiting.get(host):
            self._has_wake.add(host)
            heappush(self._wakes, (slot, host))
