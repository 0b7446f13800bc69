"""What the manifest says of how good the plan of a night is."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from policies.estimation.prior import Prior
from policies.history.evidence import effective
from policies.judging.freshness_range import LEVEL, MOST_PAGES, RangeSums, range_sums
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives import objectives
from policies.optimum.allocation import LIMIT_NAMES
from policies.optimum.floors import FloorCost
from transforms.batches.coders import ShardTables
from transforms.night.dividing import Night
from transforms.night.sampling import evidence_of
from transforms.night.shard_report import ShardReport

BOUNDS = (*LIMIT_NAMES, "volatile", "silent", "new")
"""What `limit` in pages/ says."""
_ROUNDING = 1e-6
"""Of expected freshness: the search ends a little before the optimum."""


LEAST_PAGES = 1024
"""Of each shard, that the range is made of."""


def spread_of(
    estimated: ShardTables,
    prior: Prior,
    night: Night,
    crawl_rate_per_day: FloatArray,
    weight: FloatArray,
) -> RangeSums:
    """What a shard tells of the range of expected freshness. Signals are left out: they would narrow it."""
    pages = estimated.tables["pages"]
    change, speed = pages.column("change_rate_per_day").to_numpy(), None
    if "clock_gain" in pages.schema.names:
        # As the plan takes them: freshness is said by it.
        gain = pages.column("clock_gain").to_numpy()
        change, speed = change / gain, pages.column("clock_speed").to_numpy() / gain
    evidence = evidence_of(pages, estimated.tables["bins"])
    return range_sums(
        effective(evidence, pages.column("n_changes").to_numpy(), night.half_life_changes),
        np.unique(pages.column("group_hash").to_numpy(), return_inverse=True)[1],
        prior,
        objectives.get(night.objective),
        crawl_rate_per_day,
        change,
        weight,
        speed,
        max(MOST_PAGES // night.num_shards, LEAST_PAGES),
    )


def range_of(
    reports: list[ShardReport], weight: float, prior: Prior, counters: dict[str, int]
) -> dict[str, float] | None:
    """Between which expected freshness is, and by what odds; None where it is a guess."""
    if weight <= 0.0 or not counters.get("pages_seen_twice", 0):
        return None
    spread = functools.reduce(RangeSums.merge, (r.spread for r in reports), RangeSums())
    low, high = spread.limits(math.fsum(r.fresh_weight for r in reports), weight, prior)
    return {"level": LEVEL, "low": low, "high": high}


def bounds(limit: IntArray, volatile: BoolArray, silent: BoolArray, new: BoolArray) -> IntArray:
    """What bounds each page's rate, as a place in `BOUNDS`: (n,). Of several caps it is the lowest."""
    bound, at_cap = limit.astype(np.int64), limit == BOUNDS.index("cap")
    bound[silent & at_cap] = BOUNDS.index("silent")
    bound[volatile & at_cap] = BOUNDS.index("volatile")
    bound[new] = BOUNDS.index("new")
    return bound


def starved_of(reports: list[ShardReport], weight: float, counters: dict[str, int]) -> dict[str, Any]:
    """Pages that are asked for and get no crawl: how many, their share of requests, and what bounds them."""
    by_limit = {name: n for name in BOUNDS if (n := counters.get(f"pages_starved_{name}"))}
    lost = math.fsum(r.weight - r.crawled_weight for r in reports)
    share = lost / weight if weight > 0.0 else None
    return {"pages": sum(by_limit.values()), "weight_share": share, "by_limit": by_limit}


def floors_of(reports: list[ShardReport], weight: float, objective: str) -> dict[str, Any]:
    """What floors cost; in points of freshness only where that is what is maximised."""
    cost = functools.reduce(FloorCost.merge, (r.floors for r in reports), FloorCost())
    in_points = weight > 0.0 and objective != "harmonic"
    return {
        "pages": cost.pages,
        "crawls_per_day": cost.crawls_per_day,
        "freshness_at_most": cost.value_per_day / weight if in_points else None,
    }


def plan_warnings(manifest: dict[str, Any]) -> list[str]:
    """What to say of a plan that is worse than none, which only limits or another aim can make of it."""
    fresh, equal = manifest["expected_freshness"], manifest["expected_freshness_uniform"]
    if fresh is None or fresh >= equal - _ROUNDING:
        return []
    counters = manifest["counters"]
    bounds = {
        "cap": "a cap (max_rate_per_day, --page_max_per_day, or volatile or silent)",
        "floor": "a floor (min_rate_per_day, --page_min_per_day)",
    }
    held = [f"{n:,} by {what}" for name, what in bounds.items() if (n := counters.get(f"pages_limit_{name}"))]
    if (objective := manifest["search"]["objective"]) not in ("periodic", "signals"):
        held.append(f"and --objective={objective} has another aim")
    return [
        f"expected freshness is {fresh:.4f}, below the {equal:.4f} of one rate for all pages, within the "
        f"limits of hosts. Pages are held from the rates that would be best: {', '.join(held)}. The column "
        "limit of pages/ names them; look at those with the largest weight"
    ]
