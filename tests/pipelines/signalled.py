"""Hosts whose pages change and are announced, well or badly, and a crawler that follows the schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.pipelines.jobs import DAY_US, Night, at, nightly, seen

Row = dict[str, Any]
ORIGIN_US = int(np.datetime64(at(0)[:-1]).astype("datetime64[us]").astype(np.int64))
DAYS = 40


@dataclass(frozen=True)
class Host:
    """Pages of a host: their number, mean changes a day, and how its signals are.

    `precision` of 0 with a `recall` of 0 sends no signals; `false_per_day` adds signals that mean nothing.
    """

    pages: int
    changes_per_day: float = 0.2
    precision: float = 1.0
    recall: float = 0.0
    false_per_day: float = 0.0
    source: str = "ping"


class World:
    """Changes and signals of `DAYS` days, drawn beforehand. Times are days since 2026-06-01.

    Attributes
    ----------
    changes : dict of str to (k,) float64
        Times at which each URL changed.
    signals : dict of str to list of (day, source)
    """

    def __init__(self, hosts: Mapping[str, Host], seed: int = 1) -> None:
        self._rng = np.random.Generator(np.random.Philox(key=seed))
        self.changes: dict[str, np.ndarray] = {}
        self.signals: dict[str, list[tuple[float, str]]] = {}
        for name, host in hosts.items():
            for i in range(host.pages):
                self._draw(f"https://{name}/{i}", host)

    def _draw(self, url: str, host: Host) -> None:
        rng = self._rng
        rate = host.changes_per_day * rng.gamma(2.0, 0.5)
        changes = np.sort(rng.random(rng.poisson(rate * DAYS)) * DAYS)
        told = changes[rng.random(len(changes)) < host.recall]
        false = host.false_per_day + rate * host.recall * (1.0 / host.precision - 1.0)
        wrong = rng.random(rng.poisson(false * DAYS)) * DAYS
        self.changes[url] = changes
        self.signals[url] = [(float(t), host.source) for t in np.sort([*told, *wrong])]

    def fetch(self, url: str, day: float) -> Row:
        """What a crawl at that time finds."""
        return seen(url, at(day), f"v{np.searchsorted(self.changes[url], day)}")

    def first_log(self, until: float, crawls_per_day: float) -> list[Row]:
        """Crawls at random times, at least two of every page."""
        rows = []
        for url in self.changes:
            n = 2 + self._rng.poisson(crawls_per_day * until)
            rows += [self.fetch(url, float(d)) for d in np.sort(self._rng.random(n)) * until]
        return rows

    def announced(self, after: float, until: float) -> list[Row]:
        """Signals with after < time <= until."""
        return [
            ping(url, day, source)
            for url, all_ in self.signals.items()
            for day, source in all_
            if after < day <= until
        ]

    def follow(self, night: Night) -> list[Row]:
        """The log of a crawler that does what a night has scheduled."""
        return [
            self.fetch(row["url"], (row["due_at"].timestamp() * 1e6 - ORIGIN_US) / DAY_US)
            for row in night.rows("schedule")
        ]


def ping(url: str, day: float, source: str = "ping") -> Row:
    return {"url": url, "signalled_at": at(day), "source": source}


def after(folder: Path, name: str, before: Night | None, day: float, log: list[Row], **options: Any) -> Night:
    """A night that follows another one."""
    more = {"state": before.folder / "state", "flags": ["--allow_shrink"]} if before else {}
    night = nightly(folder, name, observations=log, as_of=at(day), **(more | options))
    assert night.code == 0, night.complaints
    return night


def crawls_per_page(night: Night, without: str = "") -> Counter[str]:
    """Slots of each URL, those of one host left out."""
    return Counter(row["url"] for row in night.rows("schedule") if row["host"] != without)


def moved(a: Counter[str], b: Counter[str]) -> int:
    """Crawls of `a` that other pages have in `b`, or nobody."""
    return max((a - b).total(), (b - a).total())


def trust(night: Night, host: str, source: str = "ping") -> Row:
    """The one row that `hosts/` has of a host and source."""
    (row,) = [r for r in night.rows("hosts") if r["host"] == host and r["source"] == source]
    return row
