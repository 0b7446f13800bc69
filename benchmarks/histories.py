"""A real history of changes and sitemap dates as arrays, as the workshop's `replay.py` reads it."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.simulation.histories import ChangeHistory
from policies.typing_ import BoolArray, IntArray, UIntArray
from transforms.urls import HostTable, locate

US_PER_DAY = 86_400_000_000
_SECOND = 1_000_000
_PAGE = np.int64(1) << np.int64(46)  # 814 days of microseconds: a page and a time in one sortable number
_NEVER = np.iinfo(np.int64).max
SAME_POLL_US = 3600 * _SECOND


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
class World:
    """Pages, their changes and signals in a window.

    Attributes
    ----------
    start_us, end_us : int
        The first night's instant and the end of the last one's day, UTC microseconds.
    url : (n,) string array, ascending
    url_hash, host_hash : (n,) uint64
    host : (n,) int64
        Index into `hosts`.
    hosts : tuple of str
    first_us : (n,) int64
        When each page appears.
    change_page, change_us : (c,) int64
        Changes, sorted by page, then time.
    change_seen_us : (c,) int64
        When the history's poll saw each of them.
    change_version : (c,) int64
        What each change led to: equal numbers of a page are equal contents. 0 is the first version.
    poll_us : (p,) int64
        When contents and sitemaps were both looked at.
    signals : SignalLog
    """

    start_us: int
    end_us: int
    url: pa.Array
    url_hash: UIntArray
    host_hash: UIntArray
    host: IntArray
    hosts: tuple[str, ...]
    first_us: IntArray
    change_page: IntArray
    change_us: IntArray
    change_seen_us: IntArray
    change_version: IntArray
    poll_us: IntArray
    signals: SignalLog

    def __len__(self) -> int:
        return len(self.url_hash)

    def nights(self) -> IntArray:
        """Instants of the nights."""
        return np.arange(self.start_us, self.end_us - US_PER_DAY + 1, US_PER_DAY)

    def _key(self, page: IntArray, at_us: IntArray) -> IntArray:
        """Sorts by page, then time; times before the window's year count as its start."""
        return page * _PAGE + np.clip(at_us - self.start_us + _PAGE // 2, 0, _PAGE - 1)

    @cached_property
    def history(self) -> ChangeHistory:
        """The changes alone."""
        return ChangeHistory(
            self.start_us, self.end_us, self.first_us, self.change_page, self.change_us, self.change_version
        )

    def version(self, page: IntArray, at_us: IntArray) -> IntArray:
        """What crawls find, (k,) int64."""
        return self.history.version(page, at_us)

    def next_change(self, page: IntArray, at_us: IntArray) -> IntArray:
        """First change after each instant, UTC microseconds; the largest number where there is none."""
        return self.history.next_change(page, at_us)

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

    def true_quality(self) -> dict[str, tuple[float, float]]:
        """Precision and recall of each host's signals: what moved at one and the same poll belongs together.

        Only polls count at which contents and sitemaps were both looked at.
        """
        pages = self.signalled
        signal = pages[self.signals.page] & self._polled(self.signals.seen_us)
        at_poll = _up_to(self.poll_us, self.change_seen_us)
        change = pages[self.change_page] & (at_poll >= 0)
        polls = len(self.poll_us) + 1
        signals = np.unique(self.signals.page[signal] * polls + self._poll(self.signals.seen_us[signal]))
        changes = np.unique(self.change_page[change] * polls + at_poll[change])
        both = np.intersect1d(signals, changes)
        n, found, there = (
            np.bincount(self.host[keys // polls], minlength=len(self.hosts))
            for keys in (both, signals, changes)
        )
        return {
            host: (float(n[i] / found[i]), float(n[i] / there[i]))
            for i, host in enumerate(self.hosts)
            if found[i] and there[i]
        }

    def _poll(self, at_us: IntArray) -> IntArray:
        return np.searchsorted(self.poll_us, at_us - SAME_POLL_US)

    def _polled(self, at_us: IntArray) -> BoolArray:
        near = np.append(self.poll_us, _NEVER)[self._poll(at_us)]
        return np.abs(near - at_us) <= SAME_POLL_US

    def of_hosts(self, hosts: Sequence[str]) -> World:
        """The same with the pages of some hosts only."""
        codes = [self.hosts.index(h) for h in sorted(hosts)]
        kept = np.isin(self.host, codes)
        number, new_host = np.cumsum(kept) - 1, np.zeros(len(self.hosts), np.int64)
        new_host[codes] = np.arange(len(codes))
        change, heard = kept[self.change_page], kept[self.signals.page]
        log = self.signals.take(heard)
        return replace(
            self,
            url=self.url.filter(pa.array(kept)),
            url_hash=self.url_hash[kept],
            host_hash=self.host_hash[kept],
            host=new_host[self.host[kept]],
            hosts=tuple(self.hosts[c] for c in codes),
            first_us=self.first_us[kept],
            change_page=number[self.change_page[change]],
            change_us=self.change_us[change],
            change_seen_us=self.change_seen_us[change],
            change_version=self.change_version[change],
            signals=replace(log, page=number[log.page]),
        )

    def spread(self, seed: int, poll_us: IntArray) -> World:
        """The same with every change at a random time between the poll that saw it and the one before.

        Polled histories have all changes of a day at one time of the day, which no site does.
        """
        rng = np.random.Generator(np.random.Philox(key=seed))
        at = np.searchsorted(poll_us, self.change_us) - 1
        before = np.where(at >= 0, poll_us[at], self.change_us)
        back = rng.random(len(before)) * (self.change_us - before)
        # Not before the page itself.
        moved = np.maximum(self.change_us - back.astype(np.int64), self.first_us[self.change_page] + 1)
        return replace(self, change_us=np.minimum(moved, self.change_us))

    def dated(self, seed: int, poll_us: IntArray) -> World:
        """The same with signals at the times they tell of, as a night dates them that reads sitemaps.

        So are the changes that were found at the same poll, where that time is since the poll before; others
        are spread.
        """
        log, spread = self.signals, self.spread(seed, poll_us)
        at = np.searchsorted(poll_us, self.change_us) - 1
        before = np.where(at >= 0, poll_us[at], self.change_us)
        before = np.maximum(before, self.first_us[self.change_page])
        key = self._key(log.page, log.seen_us)
        order = np.argsort(key, kind="stable")
        after = np.searchsorted(key[order], self._key(self.change_page, self.change_us - SAME_POLL_US))
        near = np.append(order, len(order))[after]
        page, seen, told = (np.append(c, -1)[near] for c in (log.page, log.seen_us, log.dated_us))
        same = (page == self.change_page) & (np.abs(seen - self.change_us) <= SAME_POLL_US)
        told_of = same & (told > before) & (told <= self.change_us)
        change_us = np.where(told_of, told, spread.change_us)
        signals = replace(log, at_us=np.minimum(log.dated_us, log.seen_us))
        return replace(self, change_us=change_us, signals=signals)

    def flooded(self, host: str, pings: int, night: int, source: str, seed: int = 0) -> World:
        """The same with pings for pages of a host that do not change, in the day up to a night."""
        until = int(self.nights()[night])
        after = until - US_PER_DAY
        mine = np.flatnonzero((self.host == self.hosts.index(host)) & (self.first_us <= after))
        moved = self.change_page[(self.change_us > after) & (self.change_us <= until)]
        quiet = np.setdiff1d(mine, moved)
        if not len(quiet):
            raise ValueError(f"every page of {host} changes in the day before night {night}; take another")
        rng = np.random.Generator(np.random.Philox(key=seed))
        at = until - (rng.random(pings) * US_PER_DAY).astype(np.int64)
        return replace(self, signals=self.signals.add(quiet[rng.integers(0, len(quiet), pings)], at, source))

    def with_junk(self, host: str, rate_per_day: float, source: str, seed: int = 0) -> World:
        """The same with false signals for all pages of a host, at random."""
        rng = np.random.Generator(np.random.Philox(key=seed))
        mine = np.flatnonzero(self.host == self.hosts.index(host))
        begin = np.maximum(self.first_us[mine], self.start_us)
        days = np.maximum(self.end_us - begin, 0) / US_PER_DAY
        page = np.repeat(mine, rng.poisson(days * rate_per_day))
        begin = np.maximum(self.first_us[page], self.start_us)
        at = begin + (rng.random(len(page)) * (self.end_us - begin)).astype(np.int64)
        return replace(self, signals=self.signals.add(page, at, source))


def _up_to(poll_us: IntArray, at_us: IntArray) -> IntArray:
    """Number of the poll at or next after each instant, within a day and a half; -1 where there is none."""
    at = np.searchsorted(poll_us, at_us - SAME_POLL_US)
    near = np.append(poll_us, _NEVER)[at]
    return np.where(near - at_us <= 3 * US_PER_DAY // 2, at, -1)


def _read(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def _url(page_id: str) -> str:
    host, _, rest = page_id.partition("/")
    return f"https://{host}/{quote(rest, safe='/#?=&%.-_~')}"


def read_world(folder: Path, start_us: int, end_us: int) -> World:
    """Read a history with sitemap dates.

    Parameters
    ----------
    folder : Path
        With events.tsv.gz, lastmod.tsv.gz and polls.tsv.gz.
    start_us, end_us : int
        The window, UTC microseconds.

    Raises
    ------
    FileNotFoundError
    ValueError
        A window longer than a year, or without a night.
    """
    if not US_PER_DAY <= end_us - start_us <= 366 * US_PER_DAY:
        days = (end_us - start_us) / US_PER_DAY
        raise ValueError(f"a window of {days:g} days: give one of 1 to 366 days")
    events: dict[str, list[tuple[int, str]]] = {}
    for row in _read(folder / "events.tsv.gz"):
        at = int(row["event_time"]) * _SECOND
        if at < end_us:
            events.setdefault(_url(row["page_id"]), []).append((at, row["digest"]))
    urls = sorted(events)
    number = {url: i for i, url in enumerate(urls)}
    first = np.array([min(events[u])[0] for u in urls], np.int64)
    page, when, version = [], [], []
    for i, url in enumerate(urls):
        ordered = sorted(events[url])
        codes: dict[str, int] = {ordered[0][1]: 0}
        for at, digest in ordered[1:]:
            page.append(i)
            when.append(at)
            version.append(codes.setdefault(digest, len(codes)))
    seen_us, dated_us, signal_page, known = [], [], [], set()
    for row in _read(folder / "lastmod.tsv.gz"):  # by page, then time
        seen = int(row["seen_time"]) * _SECOND
        # The first sight of a date is no signal, each later move is one.
        url = _url(row["page_id"])
        if row["lastmod"] and url in known and url in number and start_us <= seen < end_us:
            signal_page.append(number[url])
            seen_us.append(seen)
            dated_us.append(int(float(row["lastmod_unix"]) * _SECOND) if row["lastmod_unix"] else seen)
        if row["lastmod"]:
            known.add(url)
    located = locate(pa.array(urls, pa.string()), HostTable())
    names = located.hosts()
    hosts = tuple(sorted(names.values()))
    return World(
        start_us,
        end_us,
        pa.array(urls, pa.string()),
        located.url_hash,
        located.host_hash,
        np.array([hosts.index(names[h]) for h in located.host_hash.tolist()], np.int64),
        hosts,
        first,
        np.array(page, np.int64),
        np.array(when, np.int64),
        np.array(when, np.int64),
        np.array(version, np.int64),
        np.intersect1d(*(read_polls(folder, what) for what in ("content", "sitemap"))),
        SignalLog.empty().add(
            np.array(signal_page, np.int64),
            np.array(seen_us, np.int64),
            "sitemap",
            np.array(dated_us, np.int64),
        ),
    )


def read_polls(folder: Path, what: str) -> IntArray:
    """When contents ("content") or sitemaps ("sitemap") were looked at, UTC microseconds, ascending."""
    rows = _read(folder / "polls.tsv.gz")
    return np.unique([int(r["poll_time"]) * _SECOND for r in rows if r["what"] == what]).astype(np.int64)
