"""What a shard tells the manifest of its night."""

from __future__ import annotations

from dataclasses import dataclass, field

from policies.judging.freshness_range import RangeSums
from policies.optimum.floors import FloorCost
from transforms.kept.silence import SilenceSums
from transforms.night.trust_report import TrustSums


@dataclass(frozen=True)
class ShardReport:
    """Sums of one shard for the manifest. Floats of shards are added in the order of shards.

    `crawled_weight` and `crawled_fresh_weight` are of pages with a crawl rate above 0.
    `large_hosts` has hash, name and pages of the largest hosts of the shard and of all parts of split ones.
    `fresh_weight_by_hours` is what there is more because crawls have their hours.
    `new_value` is what crawls of the pages that were never crawled are worth, one of each.
    `spread` is what the freshness may be besides.
    `floors` is what pages at their floors cost.
    `fresh_weight_without` is what there would be without signals; None where they are not used.
    """

    shard: int
    weight: float
    crawled_weight: float
    fresh_weight: float
    crawled_fresh_weight: float
    uniform_fresh_weight: float
    hosts_at_limit: tuple[tuple[float, str], ...]
    counts: dict[str, int] = field(default_factory=dict)
    large_hosts: tuple[tuple[int, str, int], ...] = ()
    fresh_weight_without: float | None = None
    trust: TrustSums = field(default_factory=TrustSums)
    silence: SilenceSums = field(default_factory=SilenceSums)
    fresh_weight_by_hours: float = 0.0
    new_value: float = 0.0
    floors: FloorCost = field(default_factory=FloorCost)
    spread: RangeSums = field(default_factory=RangeSums)
