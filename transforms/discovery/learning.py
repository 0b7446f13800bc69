"""From sums of shards to what is learned of all sources."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow.compute as pc
from apache_beam.pvalue import AsList, AsSingleton

from policies.discovery import prior as priors
from policies.discovery.prior import Prior
from policies.discovery.regressed import Bandit, Regression
from policies.discovery.shared import Common, common
from policies.discovery.sums import Sums
from transforms.batches.coders import ShardTables
from transforms.batches.steps import each
from transforms.discovery import tables
from transforms.discovery.sources import whole_shared

Part = tuple[int, Any]
"""What a shard tells: its number, and arrays."""


def in_order(parts: Sequence[Part]) -> list[Any]:
    """What shards tell, in their order, whoever was first."""
    return [value for _, value in sorted(parts, key=number_of)]


def number_of(part: Part) -> int:
    return part[0]


def shared_part(shard: ShardTables) -> Part:
    """Whole sums of a shard, and of first returns to its hosts."""
    hosts = shard.tables["hosts"]
    returns = np.array([pc.sum(hosts.column(n)).as_py() or 0 for n in ("new", "exposure")], np.int64)
    return shard.shard, (whole_shared([shard.tables["shared"]]), returns)


def common_of(_: Any, parts: Sequence[Part]) -> Common:
    """What all shards have in common."""
    found = in_order(parts)
    total = {name: sum(sums[name] for sums, _ in found) for name in ("came", "expected", "held", "stayed")}
    return common(**total, returns=sum(returns for _, returns in found))


def sums_of(shard: ShardTables) -> Sums:
    batch = shard.tables["sources"]
    return tables.columns_to_sums(batch, batch.column("links").to_numpy())


def mean_part(shard: ShardTables, common: Common) -> Part:
    sums = sums_of(shard)
    return shard.shard, priors.means(sums, priors.exposures(sums, priors.shares(sums, common)))


def spread_part(shard: ShardTables, common: Common, means: Sequence[Part]) -> Part:
    sums = sums_of(shard)
    exposure = priors.exposures(sums, priors.shares(sums, common))
    prior = priors.with_mean(priors.added(in_order(means)))
    return shard.shard, priors.spreads(sums, exposure, prior)


@dataclass(frozen=True)
class Learned:
    """What all shards know."""

    common: Common
    prior: Prior
    regression: Regression | None = None


def learn(
    _: Any,
    common: Common,
    means: Sequence[Part],
    spreads: Sequence[Part],
    products: Sequence[Part] | None,
    bandit: Bandit | None,
) -> Learned:
    prior = priors.with_mean(priors.added(in_order(means)))
    regression = None if products is None or bandit is None else Regression.of(in_order(products), bandit)
    return Learned(common, priors.with_spread(prior, priors.added(in_order(spreads))), regression)


def products_part(shard: ShardTables) -> Part:
    return shard.shard, tables.batch_to_products(shard.tables["shared"])


def learn_all(shards: beam.PCollection, start: beam.PCollection, bandit: Bandit | None) -> beam.PCollection:
    """One `Learned`, of all shards; with a bandit yields are regressed."""
    sums = AsList(shards | "ShareSums" >> each(shared_part).with_output_types(Part))
    shared = AsSingleton(start | "LearnCommon" >> each(common_of, sums).with_output_types(Common))
    means = AsList(shards | "AddRates" >> each(mean_part, shared).with_output_types(Part))
    spreads = AsList(shards | "AddSpreads" >> each(spread_part, shared, means).with_output_types(Part))
    products = None
    if bandit is not None:
        products = AsList(shards | "ShareProducts" >> each(products_part).with_output_types(Part))
    learned = each(learn, shared, means, spreads, products, bandit)
    return start | "LearnSources" >> learned.with_output_types(Learned)
