"""Crawl problems for tests, and the conditions that prove an answer optimal."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from policies.objectives.objectives import Objective
from policies.optimum import search


@dataclass(frozen=True)
class Problem:
    """Pages, constraints (None: none) and a budget; `sizes` is the number of pages of each host."""

    change: np.ndarray
    request: np.ndarray
    budget: float
    floor: np.ndarray | None = None
    cap: np.ndarray | None = None
    sizes: np.ndarray | None = None
    limit: np.ndarray | None = None

    def block(self, first: int = 0, last: int | None = None) -> search.PageBlock:
        """Hosts first:last as one block (pages first:last where there are no hosts)."""
        if self.sizes is None:
            rows, start, limit = slice(first, last), None, None
        else:
            edges = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
            last = self.sizes.size if last is None else last
            rows, start = slice(edges[first], edges[last]), edges[first : last + 1] - edges[first]
            limit = None if self.limit is None else self.limit[first:last]

        def cut(column):
            return None if column is None else column[rows]

        return search.PageBlock(
            self.change[rows], self.request[rows], cut(self.floor), cut(self.cap), start, limit
        )

    def blocks(self, shards: int) -> list[search.PageBlock]:
        """The same pages in `shards` blocks of whole hosts."""
        units = self.change.size if self.sizes is None else self.sizes.size
        edges = np.linspace(0, units, shards + 1).astype(int)
        return [self.block(a, b) for a, b in pairwise(edges)]

    def host_of(self) -> np.ndarray:
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def bounds(self, objective: Objective) -> tuple[np.ndarray, np.ndarray]:
        """Floors and caps as they apply: a floor yields to its cap and, scaled down, to its host's limit."""
        n = self.change.size
        cap = np.full(n, objective.max_rate_per_day) if self.cap is None else self.cap.copy()
        cap = np.minimum(cap, objective.max_rate_per_day)
        floor = np.zeros(n) if self.floor is None else np.minimum(self.floor, cap)
        if self.limit is not None and self.limit.size:
            total = np.bincount(self.host_of(), weights=floor, minlength=self.sizes.size)
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = np.where(total > self.limit, self.limit / total, 1.0)
            floor = floor * factor[self.host_of()]
        return floor, cap


def random_problem(seed: int, n: int | None = None, extreme: bool = True) -> Problem:
    """A problem with any mix of extremes, ties, useless pages, floors, caps and host limits."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    n = int(rng.integers(1, 40)) if n is None else n
    span = (-12.0, 6.0) if extreme and rng.random() < 0.5 else (-3.0, 2.0)
    change, request = 10.0 ** rng.uniform(*span, n), 10.0 ** rng.uniform(*span, n)
    if rng.random() < 0.3:
        request[rng.random(n) < 0.3] = 0.0
    if rng.random() < 0.2:
        change[rng.random(n) < 0.3] = 0.0
    if rng.random() < 0.3:  # pages tied in value
        tied = rng.random(n) < 0.5
        request[tied] = change[tied] * 3.0
    if rng.random() < 0.15:
        change[:], request[:] = change[0], request[0]
    total = change.sum() + 1e-12
    budget = float(total * 10.0 ** (rng.uniform(-9, 6) if rng.random() < 0.3 else rng.uniform(-3, 1)))
    budget = min(max(budget, 1e-12), 1e12)
    floor = cap = sizes = limit = None
    if rng.random() < 0.4:
        floor = np.where(rng.random(n) < 0.5, rng.random(n), 0.0)
        floor *= budget * rng.random() / (floor.sum() or 1.0)
    if rng.random() < 0.4:
        cap = np.where(rng.random(n) < 0.6, budget * 10.0 ** rng.uniform(-3, 0.5, n), np.inf)
        if rng.random() < 0.2:
            cap *= 0.01  # likely to leave budget over
    if rng.random() < 0.5:
        cuts = np.sort(rng.choice(np.arange(n + 1), size=int(rng.integers(1, min(n, 8) + 1))))
        sizes = np.diff(np.concatenate([[0], cuts, [n]]))  # some hosts may be empty
        limit = np.where(
            rng.random(sizes.size) < 0.7, budget * 10.0 ** rng.uniform(-3, 0.3, sizes.size), np.inf
        )
        if rng.random() < 0.2:
            limit[rng.integers(0, limit.size)] = 0.0
    return Problem(change, request, budget, floor, cap, sizes, limit)


def check_optimal(problem: Problem, objective: Objective, result: search.SearchResult, parts) -> None:
    """Asserts feasibility, stationarity, complementarity and the duality gap."""
    rate = np.concatenate([part.crawl_rate_per_day for part in parts])
    extra = np.concatenate([part.host_multiplier for part in parts])
    floor, cap = problem.bounds(objective)
    change, request, budget = problem.change, problem.request, problem.budget
    assert np.all(np.isfinite(rate)) and np.all(rate >= 0.0)
    assert np.all(rate >= floor * (1 - 1e-12)) and np.all(rate <= cap * (1 + 1e-12))
    multiplier = np.full(rate.size, result.multiplier)
    if problem.limit is not None:
        total = np.bincount(problem.host_of(), weights=rate, minlength=problem.sizes.size)
        assert np.all(total <= problem.limit * (1 + 1e-9))
        assert np.all(extra >= 0.0)
        binds = extra > 1e-8 * result.multiplier
        np.testing.assert_allclose(total[binds], problem.limit[binds], rtol=1e-9)
        multiplier = multiplier + extra[problem.host_of()]
    spent = float(rate.sum())
    assert abs(spent - result.allocated_per_day) <= 1e-9 * budget
    assert abs(result.allocated_per_day + result.unspent_per_day - budget) <= 1e-12 * budget
    if result.unspent_per_day > 1e-9 * budget:
        assert result.multiplier == 0.0 and result.unspent_reason
    else:
        assert abs(spent - budget) <= 1e-9 * budget
    # Stationarity and complementarity.
    slope = objective.marginal_value(rate, change, request)
    if result.status is not search.Status.ALL_AT_FLOOR:
        can_grow = rate < cap * (1 - 1e-12)
        if result.multiplier > 0.0 or problem.limit is not None:
            assert np.all(slope[can_grow] <= multiplier[can_grow] * (1 + 1e-8))
        can_shrink = rate > floor * (1 + 1e-12)
        assert np.all(slope[can_shrink] >= multiplier[can_shrink] * (1 - 1e-8))
    # Duality gap: what the rates fall short of the best possible at these multipliers. With complementarity,
    # which is checked above, no feasible rates beat that. Per page, so that large multipliers do not cancel.
    best = np.where(multiplier > 0.0, 0.0, np.minimum(cap, 1e300))
    for level in np.unique(multiplier[(multiplier > 0.0) & (multiplier < np.inf)]):
        rows = multiplier == level
        best[rows] = objective.rate(float(level), change[rows], request[rows])
    useful = objective.marginal_value(np.full(rate.size, 1e-290), change, request) > 0.0
    best = np.where(useful, np.clip(best, floor, cap), rate)

    def worth(at: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.where(useful, request * objective.value(at, change), 0.0)

    differ = ~np.isclose(best, rate, rtol=1e-12, atol=0.0) & (multiplier < np.inf)
    with np.errstate(invalid="ignore"):
        multiplier = np.minimum(multiplier, 1e300)
        short = np.where(differ, worth(best) - worth(rate) - multiplier * (best - rate), 0.0)
    scale = float(np.abs(worth(rate)[worth(rate) > -np.inf]).sum())
    if result.status is not search.Status.ALL_AT_FLOOR:
        room = np.abs(np.where(differ, worth(best), 0.0)) + np.where(differ, multiplier * (best + rate), 0.0)
        assert np.all(short >= -1e-12 * room)
        assert float(short.sum()) <= 1e-9 * scale + 1e-12 * float(room.sum())
    assert result.certificate <= 1e-9 * scale
