"""How many hosts somebody asks for: where requests decide, all others are hardly crawled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from policies.request_history import RequestState
from policies.typing_ import IntArray
from transforms.coding import ShardPages
from transforms.tally import Counts

KINDS = ("clicks", "impressions")


@dataclass(frozen=True)
class AskedHosts:
    """Hosts with a request that is not forgotten. Parts of the pages merge in any order.

    Attributes
    ----------
    clicks, impressions : int
        Hosts that lie in one shard.
    split_clicks, split_impressions : frozenset of int
        Hashes of those of which several shards have pages, so that they are counted once.
    """

    clicks: int = 0
    impressions: int = 0
    split_clicks: frozenset[int] = frozenset()
    split_impressions: frozenset[int] = frozenset()

    def merge(self, other: AskedHosts) -> AskedHosts:
        """The hosts of both."""
        return AskedHosts(
            self.clicks + other.clicks,
            self.impressions + other.impressions,
            self.split_clicks | other.split_clicks,
            self.split_impressions | other.split_impressions,
        )

    def publish(self) -> dict[str, int]:
        """As `Counts.publish`; only the kinds of requests that there are."""
        counts = Counts()
        for kind, n, split in zip(
            KINDS, (self.clicks, self.impressions), (self.split_clicks, self.split_impressions), strict=True
        ):
            if n + len(split):
                counts.add(f"hosts_with_{kind}", n + len(split))
        return counts.publish()


def asked_hosts(pages: ShardPages, requests: RequestState, split_hosts: Collection[int] = ()) -> AskedHosts:
    """The hosts of a shard's pages that are asked for; `split_hosts` are hashes."""
    host_hash = pages.host_hash[pages.host_start[:-1]]
    if not len(requests.week):
        return AskedHosts()
    apart = np.isin(host_hash, np.array(sorted(split_hosts), np.uint64))
    page, host_code = requests.page, pages.host_code

    def of(counts: IntArray) -> tuple[int, frozenset[int]]:
        found = np.zeros(len(host_hash), np.bool_)
        found[host_code[page[counts > 0]]] = True
        return int((found & ~apart).sum()), frozenset(host_hash[found & apart].tolist())

    clicks, split_clicks = of(requests.clicks)
    impressions, split_impressions = of(requests.impressions)
    return AskedHosts(clicks, impressions, split_clicks, split_impressions)


def asked_warnings(counters: dict[str, int], weight_by: str) -> list[str]:
    """A warning where requests decide and half of the hosts, or more, have none."""
    asked, hosts = counters.get(f"hosts_with_{weight_by}", 0), counters.get("hosts_known", 0)
    if not asked or 2 * asked > hosts or asked == hosts:
        return []
    return [
        f"{weight_by} are of {asked:,} of {hosts:,} hosts: pages of the other {hosts - asked:,} weigh next "
        "to nothing and are hardly crawled. Give --requests of all hosts, or --weight_by=equal"
    ]
