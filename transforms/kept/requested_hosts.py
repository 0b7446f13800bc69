"""How many hosts somebody asks for: where requests decide, all others are hardly crawled. And of which URLs
nobody knows the page.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.history.request_history import NO_DAY, RequestState
from policies.numerics.typing_ import BoolArray, IntArray
from transforms.batches.tally import Counts
from transforms.shards.coding import ShardPages

KINDS = ("clicks", "impressions")
Urls = tuple[tuple[int, str], ...]
"""Hashes and URLs, in order of the hashes."""
MAX_URLS, MAX_CHARACTERS = 3, 200
FEW_UNKNOWN = 0.05
"""Of the rows of requests, up to which no URL of them is shown."""


@dataclass(frozen=True)
class AskedHosts:
    """Hosts with a request that is not forgotten. Parts of the pages merge in any order.

    Attributes
    ----------
    clicks, impressions : int
        Hosts that lie in one shard.
    split_clicks, split_impressions : frozenset of int
        Hashes of those of which several shards have pages, so that they are counted once.
    unknown : tuple of (int, str)
        Of URLs that are asked for and that no page has, those of the least hashes.
    days : (int, int)
        First and last day of requests of pages, days since 1970-01-01; `NO_DAY` without any.
    """

    clicks: int = 0
    impressions: int = 0
    split_clicks: frozenset[int] = frozenset()
    split_impressions: frozenset[int] = frozenset()
    unknown: Urls = ()
    days: tuple[int, int] = (NO_DAY, NO_DAY)

    def has(self, kind: str) -> bool:
        """Whether any page has requests of a kind."""
        return bool(getattr(self, kind) or getattr(self, f"split_{kind}"))

    def merge(self, other: AskedHosts) -> AskedHosts:
        """The hosts of both."""
        days = [d for d in (self.days, other.days) if d[0] != NO_DAY] or [self.days]
        return AskedHosts(
            self.clicks + other.clicks,
            self.impressions + other.impressions,
            self.split_clicks | other.split_clicks,
            self.split_impressions | other.split_impressions,
            tuple(sorted({*self.unknown, *other.unknown})[:MAX_URLS]),
            (min(d[0] for d in days), max(d[1] for d in days)),
        )

    def totals(self) -> dict[str, int]:
        """As `Counts.totals`; only the kinds of requests that there are."""
        counts = Counts()
        for kind, n, split in zip(
            KINDS, (self.clicks, self.impressions), (self.split_clicks, self.split_impressions), strict=True
        ):
            if n + len(split):
                counts.add(f"hosts_with_{kind}", n + len(split))
        return counts.totals()


def least_urls(table: pa.Table, where: BoolArray) -> Urls:
    """Of the rows of a table some with the least hashes of their URLs: the same, however rows are cut.

    Parameters
    ----------
    table : pa.Table of n rows
        `url` and `url_hash`.
    where : bool (n,)
        Rows to choose from.

    Returns
    -------
    tuple of (int, str)
        At most `MAX_URLS`, each URL once, its first `MAX_CHARACTERS`.
    """
    found: list[tuple[int, str]] = []
    rows = np.flatnonzero(where)
    hashes = table.column("url_hash").to_numpy()[rows]
    while len(rows) and len(found) < MAX_URLS:
        least = hashes.argmin()
        url = table.column("url")[int(rows[least])].as_py()[:MAX_CHARACTERS]
        found.append((int(hashes[least]), "".join(c if c.isprintable() else "?" for c in url)))
        others = hashes != hashes[least]
        rows, hashes = rows[others], hashes[others]
    return tuple(found)


def unknown_pages(counters: dict[str, int], asked: AskedHosts) -> list[str]:
    """Some of the URLs that are asked for and that no page has; none where few rows are of such."""
    rows = counters.get("requests_accepted", 0) - counters.get("requests_after_as_of", 0)
    few = counters.get("requests_unmatched", 0) <= FEW_UNKNOWN * rows
    return [] if few else [url for _, url in asked.unknown]


def asked_hosts(
    pages: ShardPages, requests: RequestState, split_hosts: Collection[int] = (), unknown: Urls = ()
) -> AskedHosts:
    """The hosts of a shard's pages that are asked for; `split_hosts` are hashes."""
    host_hash = pages.host_hash[pages.host_start[:-1]]
    first = requests.first_day[requests.first_day != NO_DAY]
    days = (int(first.min()), int(requests.last_day.max())) if len(first) else (NO_DAY, NO_DAY)
    apart = np.isin(host_hash, np.array(sorted(split_hosts), np.uint64))
    page, host_code = requests.page, pages.host_code

    def of(counts: IntArray) -> tuple[int, frozenset[int]]:
        found = np.zeros(len(host_hash), np.bool_)
        found[host_code[page[counts > 0]]] = True
        return int((found & ~apart).sum()), frozenset(host_hash[found & apart].tolist())

    clicks, split_clicks = of(requests.clicks)
    impressions, split_impressions = of(requests.impressions)
    return AskedHosts(clicks, impressions, split_clicks, split_impressions, unknown, days)


def asked_warnings(counters: dict[str, int], weight_by: str) -> list[str]:
    """A warning where requests decide and half of the hosts, or more, have none."""
    asked, hosts = counters.get(f"hosts_with_{weight_by}", 0), counters.get("hosts_known", 0)
    if not asked or 2 * asked > hosts or asked == hosts:
        return []
    return [
        f"{weight_by} are of {asked:,} of {hosts:,} hosts: pages of the other {hosts - asked:,} weigh next "
        "to nothing and are hardly crawled. Give --requests of all hosts, or --weight_by=equal"
    ]


def lost_warnings(counters: dict[str, int], max_rejected_fraction: float) -> list[str]:
    """Few rejected rows of requests that have much of what the others count."""
    rejected = counters.get("requests_rejected", 0)
    rows = rejected + counters.get("requests_accepted", 0)
    for name in ("clicks", "impressions"):
        lost = counters.get(f"requests_lost_{name}", 0)
        share = lost / max(1, lost + counters.get(f"requests_read_{name}", 0))
        if share > max(max_rejected_fraction, 2 * rejected / max(1, rows)):
            return [
                f"{rejected:,} of {rows:,} rows of --requests were rejected, and with them about {share:.0%} "
                f"of the {name}: they are the greatest, and their pages get too few crawls. See rejected/"
            ]
    return []
