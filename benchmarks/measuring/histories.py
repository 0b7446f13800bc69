"""A real history of changes and sitemap dates as arrays, as the workshop's `replay.py` reads it."""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from policies.numerics.typing_ import BoolArray, IntArray
from policies.simulation.histories import ChangeHistory
from transforms.replay.worlds import SignalLog, World, name_pages

US_PER_DAY = 86_400_000_000
_SECOND = 1_000_000
_NEVER = np.iinfo(np.int64).max
SAME_POLL_US = 3600 * _SECOND


@dataclass(frozen=True)
class PolledWorld(World):
    """A history that was polled.

    Attributes
    ----------
    change_seen_us : (c,) int64
        When the history's poll saw each change.
    poll_us : (p,) int64
        When contents and sitemaps were both looked at.
    """

    change_seen_us: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    poll_us: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def true_quality(self) -> dict[str, tuple[float, float]]:
        """Precision and recall of each host's signals: what moved at one and the same poll belongs together.

        Only polls count at which contents and sitemaps were both looked at.
        """
        pages = self.signalled
        signal = pages[self.signals.page] & self._polled(self.signals.seen_us)
        at_poll = _up_to(self.poll_us, self.change_seen_us)
        change = pages[self.history.change_page] & (at_poll >= 0)
        polls = len(self.poll_us) + 1
        signals = np.unique(self.signals.page[signal] * polls + self._poll(self.signals.seen_us[signal]))
        changes = np.unique(self.history.change_page[change] * polls + at_poll[change])
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

    def of_pages(self, kept: BoolArray) -> PolledWorld:
        """The same with some pages only."""
        fewer = super().of_pages(kept)
        assert isinstance(fewer, PolledWorld)
        return replace(fewer, change_seen_us=self.change_seen_us[kept[self.history.change_page]])

    def of_hosts(self, hosts: Sequence[str]) -> PolledWorld:
        """The same with the pages of some hosts only."""
        return self.of_pages(np.isin(self.host, [self.hosts.index(h) for h in hosts]))

    def spread(self, seed: int, poll_us: IntArray) -> PolledWorld:
        """The same with every change at a random time between the poll that saw it and the one before.

        Polled histories have all changes of a day at one time of the day, which no site does.
        """
        rng = np.random.Generator(np.random.Philox(key=seed))
        return replace(self, history=self.history.spread(rng, self._poll_before(poll_us)))

    def _poll_before(self, poll_us: IntArray) -> IntArray:
        at = np.searchsorted(poll_us, self.history.change_us) - 1
        return np.where(at >= 0, poll_us[at], self.history.change_us)

    def dated(self, seed: int, poll_us: IntArray) -> PolledWorld:
        """The same with signals at the times they tell of, as a night dates them that reads sitemaps.

        So are the changes that were found at the same poll, where that time is since the poll before; others
        are spread.
        """
        log, spread, history = self.signals, self.spread(seed, poll_us), self.history
        change_page, change_us = history.change_page, history.change_us
        before = np.maximum(self._poll_before(poll_us), history.first_us[change_page])
        order = np.lexsort((log.seen_us, log.page))
        instants = np.unique(log.seen_us)
        wide = np.int64(len(instants) + 1)
        key = log.page[order] * wide + np.searchsorted(instants, log.seen_us[order])
        after = np.searchsorted(key, change_page * wide + np.searchsorted(instants, change_us - SAME_POLL_US))
        near = np.append(order, len(order))[after]
        page, seen, told = (np.append(c, -1)[near] for c in (log.page, log.seen_us, log.dated_us))
        same = (page == change_page) & (np.abs(seen - change_us) <= SAME_POLL_US)
        told_of = same & (told > before) & (told <= change_us)
        moved = np.where(told_of, told, spread.history.change_us)
        signals = replace(log, at_us=np.minimum(log.dated_us, log.seen_us))
        return replace(self, history=replace(history, change_us=moved), signals=signals)

    def flooded(self, host: str, pings: int, night: int, source: str, seed: int = 0) -> PolledWorld:
        """The same with pings for pages of a host that do not change, in the day up to a night."""
        until = int(self.nights()[night])
        after = until - US_PER_DAY
        mine = np.flatnonzero((self.host == self.hosts.index(host)) & (self.history.first_us <= after))
        moved = self.history.change_page[(self.history.change_us > after) & (self.history.change_us <= until)]
        quiet = np.setdiff1d(mine, moved)
        if not len(quiet):
            raise ValueError(f"every page of {host} changes in the day before night {night}; take another")
        rng = np.random.Generator(np.random.Philox(key=seed))
        at = until - (rng.random(pings) * US_PER_DAY).astype(np.int64)
        return replace(self, signals=self.signals.add(quiet[rng.integers(0, len(quiet), pings)], at, source))

    def told_twice(self, source: str, seed: int = 5) -> PolledWorld:
        """The same with a second source: four of five signals again, soon, one in eleven false."""
        rng = np.random.Generator(np.random.Philox(key=seed))
        log = self.signals
        again = np.flatnonzero(rng.random(len(log)) >= 0.2)
        late = log.at_us[again] + (rng.exponential(0.3, len(again)) * 3.6e9).astype(np.int64)
        pages, n = np.unique(log.page), int(0.1 * len(again))
        page = np.append(log.page[again], pages[rng.integers(0, len(pages), n)])
        false = self.start_us + (rng.random(n) * (self.end_us - self.start_us)).astype(np.int64)
        at = np.append(late, false)
        inside = at < self.end_us
        return replace(self, signals=log.add(page[inside], at[inside], source))

    def with_junk(self, host: str, rate_per_day: float, source: str, seed: int = 0) -> PolledWorld:
        """The same with false signals for all pages of a host, at random."""
        rng = np.random.Generator(np.random.Philox(key=seed))
        mine = np.flatnonzero(self.host == self.hosts.index(host))
        begin = np.maximum(self.history.first_us[mine], self.start_us)
        days = np.maximum(self.end_us - begin, 0) / US_PER_DAY
        page = np.repeat(mine, rng.poisson(days * rate_per_day))
        begin = np.maximum(self.history.first_us[page], self.start_us)
        at = begin + (rng.random(len(page)) * (self.end_us - begin)).astype(np.int64)
        return replace(self, signals=self.signals.add(page, at, source))


def _up_to(poll_us: IntArray, at_us: IntArray) -> IntArray:
    """Number of the poll at or next after each instant, within a day and a half; -1 where there is none."""
    at = np.searchsorted(poll_us, at_us - SAME_POLL_US)
    near = np.append(poll_us, _NEVER)[at]
    return np.where(near - at_us <= 3 * US_PER_DAY // 2, at, -1)


def shared_folder() -> Path:
    """Where the histories and `tools/replay.py` are, or would be."""
    return Path(os.environ.get("RECRAWL_SHARED", Path(__file__).resolve().parents[3] / "shared"))


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Rows of a gzipped table, by column."""
    with gzip.open(path, "rt", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def url_of(page_id: str) -> str:
    """The URL of a page."""
    host, _, rest = page_id.partition("/")
    return f"https://{host}/{quote(rest, safe='/#?=&%.-_~')}"


def read_world(folder: Path, start_us: int, end_us: int) -> PolledWorld:
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
        A window without a night.
    """
    if end_us - start_us < US_PER_DAY:
        raise ValueError(f"a window of {(end_us - start_us) / US_PER_DAY:g} days: give one of a day or more")
    events: dict[str, list[tuple[int, str]]] = {}
    for row in read_rows(folder / "events.tsv.gz"):
        at = int(row["event_time"]) * _SECOND
        if at < end_us:
            events.setdefault(url_of(row["page_id"]), []).append((at, row["digest"]))
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
    for row in read_rows(folder / "lastmod.tsv.gz"):  # by page, then time
        seen = int(row["seen_time"]) * _SECOND
        # The first sight of a date is no signal, each later move is one.
        url = url_of(row["page_id"])
        if row["lastmod"] and url in known and url in number and start_us <= seen < end_us:
            signal_page.append(number[url])
            seen_us.append(seen)
            dated_us.append(int(float(row["lastmod_unix"]) * _SECOND) if row["lastmod_unix"] else seen)
        if row["lastmod"]:
            known.add(url)
    url = pa.array(urls, pa.string())
    when_us = np.array(when, np.int64)
    signals = SignalLog.empty().add(
        np.array(signal_page, np.int64), np.array(seen_us, np.int64), "sitemap", np.array(dated_us, np.int64)
    )
    return PolledWorld(
        ChangeHistory(
            start_us, end_us, first, np.array(page, np.int64), when_us, np.array(version, np.int64)
        ),
        url,
        *name_pages(url),
        signals=signals,
        change_seen_us=when_us,
        poll_us=np.intersect1d(*(read_polls(folder, what) for what in ("content", "sitemap"))),
    )


def read_polls(folder: Path, what: str) -> IntArray:
    """When contents ("content") or sitemaps ("sitemap") were looked at, UTC microseconds, ascending."""
    rows = read_rows(folder / "polls.tsv.gz")
    return np.unique([int(r["poll_time"]) * _SECOND for r in rows if r["what"] == what]).astype(np.int64)
