"""A web that is replayed: pages with their URLs and hosts, when they changed, and signals of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.lookup import places
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray
from policies.simulation.histories import ChangeHistory
from transforms.batches.urls import HostTable, locate


@dataclass(frozen=True)
class SignalLog:
    """Signals, in the order in which they became known.

    Attributes
    ----------
    page : (k,) int64
    seen_us : (k,) int64, ascending
        When each became known, UTC microseconds.
    at_us : (k,) int64
        The time that it has in the log.
    dated_us : (k,) int64
        The time that it tells of, e.g. the lastmod; `seen_us` where there is none.
    source : (k,) int64
        Index into `sources`.
    sources : tuple of str
    """

    page: IntArray
    seen_us: IntArray
    at_us: IntArray
    dated_us: IntArray
    source: IntArray
    sources: tuple[str, ...]

    @classmethod
    def empty(cls) -> SignalLog:
        """No signals."""
        none = np.zeros(0, np.int64)
        return cls(none, none, none, none, none, ())

    def __len__(self) -> int:
        return len(self.page)

    def take(self, rows: IntArray | BoolArray | slice) -> SignalLog:
        """Some of the signals."""
        columns = (self.page, self.seen_us, self.at_us, self.dated_us, self.source)
        return SignalLog(*(c[rows] for c in columns), self.sources)

    def between(self, after_us: int, until_us: int) -> SignalLog:
        """Signals seen later than the one instant and not later than the other."""
        return self.take(slice(*np.searchsorted(self.seen_us, [after_us, until_us], side="right")))

    def add(
        self, page: IntArray, seen_us: IntArray, source: str, dated_us: IntArray | None = None
    ) -> SignalLog:
        """With further signals of one source."""
        sources = self.sources if source in self.sources else (*self.sources, source)
        code = np.full(len(page), sources.index(source), np.int64)
        new = (page, seen_us, seen_us, seen_us if dated_us is None else dated_us, code)
        old = (self.page, self.seen_us, self.at_us, self.dated_us, self.source)
        whole = SignalLog(*(np.concatenate(c) for c in zip(old, new, strict=True)), sources)
        return whole.take(np.lexsort((whole.page, whole.seen_us)))


@dataclass(frozen=True)
class RequestLog:
    """Requests, as many as a row counts, some time in its span.

    Attributes
    ----------
    page : (k,) int64
    from_us, span_us : (k,) int64, microseconds
        An hour, or a day where the hour is not known.
    clicks : (k,) float64
    """

    page: IntArray
    from_us: IntArray
    span_us: IntArray
    clicks: FloatArray

    def of_pages(self, kept: BoolArray) -> RequestLog:
        """Of some pages only, (n,) bool, numbered anew in their old order."""
        mine, number = kept[self.page], np.cumsum(kept) - 1
        return RequestLog(number[self.page[mine]], self.from_us[mine], self.span_us[mine], self.clicks[mine])

    def instants(self, seed: int) -> tuple[IntArray, IntArray]:
        """Pages and times of all requests: evenly over their spans, from a drawn moment on."""
        count = np.rint(self.clicks).astype(np.int64)
        row = np.repeat(np.arange(len(count)), count)
        rank = places(count)
        key = np.array([seed, 0xA5C], dtype=np.uint64)
        phase = np.random.Generator(np.random.Philox(key=key)).random(len(count))
        part = (rank + phase[row]) / count[row]
        return self.page[row], self.from_us[row] + (part * self.span_us[row]).astype(np.int64)


@dataclass(frozen=True)
class World:
    """Pages, their changes and signals in a window.

    Attributes
    ----------
    history : ChangeHistory
        The first night is at its start, and it ends with the last one's day.
    url : (n,) string array, ascending
    url_hash, host_hash : (n,) uint64
    host : (n,) int64
        Index into `hosts`.
    hosts : tuple of str, ascending
    signals : SignalLog
    metadata : dict of str to (n,) string array
        Columns of the catalogue, by which pages may borrow from each other.
    weights : dict of str to (n,) float64
        What pages weigh, by name: clicks, impressions, importance.
    asked : RequestLog, optional
    """

    history: ChangeHistory
    url: pa.Array
    url_hash: UIntArray
    host_hash: UIntArray
    host: IntArray
    hosts: tuple[str, ...]
    signals: SignalLog = field(default_factory=SignalLog.empty)
    metadata: Mapping[str, pa.Array] = field(default_factory=dict)
    weights: Mapping[str, FloatArray] = field(default_factory=dict)
    asked: RequestLog | None = None

    def __len__(self) -> int:
        return len(self.url_hash)

    @property
    def start_us(self) -> int:
        """The first night's instant, UTC microseconds."""
        return self.history.start_us

    @property
    def end_us(self) -> int:
        """The end of the last night's day, UTC microseconds."""
        return self.history.end_us

    def nights(self) -> IntArray:
        """Instants of the nights."""
        return self.history.nights()

    @cached_property
    def signalled(self) -> BoolArray:
        """Pages that ever have a signal, (n,)."""
        return np.bincount(self.signals.page, minlength=len(self)) > 0

    @cached_property
    def _by_hash(self) -> IntArray:
        return np.argsort(self.url_hash)

    def page_of_hash(self, url_hash: UIntArray) -> IntArray:
        """Pages of known URL hashes."""
        return self._by_hash[np.searchsorted(self.url_hash, url_hash, sorter=self._by_hash)]

    def page_of(self, url: pa.Array) -> IntArray:
        """Pages of known URLs."""
        return pc.index_in(url, self.url).to_numpy().astype(np.int64)

    def of_pages(self, kept: BoolArray) -> World:
        """The same with some pages only, (n,) bool, and the hosts that these have."""
        codes = np.unique(self.host[kept])
        number, new_host = np.cumsum(kept) - 1, np.zeros(len(self.hosts), np.int64)
        new_host[codes] = np.arange(len(codes))
        log = self.signals.take(kept[self.signals.page])
        mask = pa.array(kept)
        return replace(
            self,
            history=self.history.of_pages(kept),
            url=self.url.filter(mask),
            url_hash=self.url_hash[kept],
            host_hash=self.host_hash[kept],
            host=new_host[self.host[kept]],
            hosts=tuple(self.hosts[c] for c in codes.tolist()),
            signals=replace(log, page=number[log.page]),
            metadata={name: column.filter(mask) for name, column in self.metadata.items()},
            weights={name: weight[kept] for name, weight in self.weights.items()},
            asked=None if self.asked is None else self.asked.of_pages(kept),
        )


def name_pages(url: pa.Array) -> tuple[UIntArray, UIntArray, IntArray, tuple[str, ...]]:
    """Hashes of URLs and hosts, (n,) each, the pages' hosts as indices, and the hosts' names."""
    located = locate(url, HostTable())
    names = located.hosts()
    hosts = tuple(sorted(set(names.values())))
    code = {h: hosts.index(name) for h, name in names.items()}
    host = np.array([code[h] for h in located.host_hash.tolist()], np.int64)
    return located.url_hash, located.host_hash, host, hosts
