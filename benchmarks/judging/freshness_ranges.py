"""How often true freshness lies in the range that is said of it, over drawn worlds.

    python -m benchmarks.judging.freshness_ranges [--worlds 200]

A world has groups of pages of all sizes with change rates as the prior has them, or log-normal ones; crawls
at gaps of each page's own, from hours to weeks, for some days; and weights of a Pareto distribution. Priors
are learned from the log, the budget is 0.3 crawls a page and day, and the range is that of the plan.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.estimation.prior import estimate, fit_prior
from policies.history.evidence import Evidence, effective, forgetting_weights, from_intervals
from policies.judging.freshness_range import LEVEL, MOST_PAGES, range_sums
from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.page_block import PageBlock

BUDGET_PER_PAGE = 0.3
PERIODIC = objectives.get("periodic")


@dataclass(frozen=True)
class World:
    """What worlds are drawn from: numbers of pages and groups, rates of change per day, days of logs."""

    pages: int
    groups: int
    shape: float
    strength: float
    mean_per_day: float
    days: float
    log_normal: bool = False
    half_life_changes: float = 0.0
    looked_at: int = MOST_PAGES

    def draw(self, seed: int) -> tuple[np.ndarray, np.ndarray, Evidence, np.ndarray, np.ndarray]:
        """True change rates, groups, what the log says, weights, and numbers of changes."""
        rng = np.random.Generator(np.random.Philox(key=[seed, self.pages]))
        size = rng.pareto(1.2, self.groups) + 1.0
        size = np.maximum((size / size.sum() * self.pages).astype(int), 1)
        group = np.repeat(np.arange(self.groups), size)
        n = len(group)
        if self.log_normal:
            mean = np.exp(rng.normal(0.0, self.strength**-0.5, self.groups))
            spread = np.exp(rng.normal(-0.5 / self.shape, self.shape**-0.5, n))
        else:
            mean = self.strength / rng.gamma(self.strength, 1.0, self.groups)
            spread = rng.gamma(self.shape, 1.0 / self.shape, n)
        change = self.mean_per_day * mean[group] * spread
        gap = 3.0 * np.exp(rng.normal(0.0, 0.7, n))
        page = np.repeat(np.arange(n), np.minimum((self.days / gap).astype(int), 60))
        days = gap[page] * rng.uniform(0.7, 1.3, len(page))
        changed = rng.random(len(page)) < -np.expm1(-change[page] * days)
        weight = None
        if self.half_life_changes:
            weight = forgetting_weights(page, changed, self.half_life_changes)
        return (
            change,
            group,
            from_intervals(page, days, changed, weight=weight, n_pages=n),
            rng.pareto(1.3, n) + 0.1,
            np.bincount(page, changed, n).astype(np.int32),
        )


WORLDS = {
    "300 pages, a month": World(300, 10, 0.5, 1.5, 0.3, 30.0),
    "2,000 pages, a month": World(2000, 50, 0.5, 1.5, 0.3, 30.0),
    "2,000 pages alike, 10 days": World(2000, 50, 1.5, 3.0, 0.2, 10.0),
    "1,000 pages of one host, 10 days": World(1000, 1, 0.7, 2.0, 0.3, 10.0),
    "2,000 pages, log-normal rates": World(2000, 50, 1.0, 1.0, 0.2, 30.0, log_normal=True),
    "2,000 pages, half-life 12": World(2000, 50, 0.5, 1.5, 0.3, 30.0, half_life_changes=12.0),
    "30,000 pages, 8,192 looked at": World(30_000, 1000, 0.5, 1.5, 0.3, 30.0, looked_at=8192),
}


def one(world: World, seed: int) -> tuple[float, float, float, float]:
    """Ends of the range, freshness as it is said, and true freshness of the same plan."""
    change, group, evidence, weight, n_changes = world.draw(seed)
    prior = fit_prior(evidence, group)
    found = estimate(evidence, group, int(group.max()) + 1, prior).change_rate_per_day
    _, (plan,) = search.solve(PageBlock(found, weight), PERIODIC, BUDGET_PER_PAGE * len(group))
    rate, total = plan.crawl_rate_per_day, float(weight.sum())
    said, true = (float(weight @ PERIODIC.freshness(rate, c)) for c in (found, change))
    told = effective(evidence, n_changes, world.half_life_changes or math.inf)
    sums = range_sums(told, group, prior, PERIODIC, rate, found, weight, None, world.looked_at)
    return *sums.limits(said, total, prior), said / total, true / total


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of all worlds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worlds", type=int, default=200, help="of each kind (default: %(default)s)")
    n = parser.parse_args(argv).worlds
    print(f"| worlds | in the {LEVEL:.0%} range | below | above | half of its width | said | true |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    inside = 0
    for name, world in WORLDS.items():
        low, high, said, true = np.array([one(world, seed) for seed in range(n)]).T
        share = [float(rows.mean()) for rows in ((low <= true) & (true <= high), true < low, true > high)]
        inside += round(share[0] * n)
        error = math.sqrt(share[0] * (1.0 - share[0]) / n)
        half = float(((high - low) / 2.0).mean())
        print(
            f"| {name} | {share[0]:.3f} +- {error:.3f} | {share[1]:.3f} | {share[2]:.3f} | {half:.4f} "
            f"| {said.mean():.4f} | {true.mean():.4f} |",
            flush=True,
        )
    print(f"in all {inside / n / len(WORLDS):.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
