"""Crawl problems with change signals for tests, and the conditions that prove an answer optimal."""

from dataclasses import dataclass, replace

import numpy as np

from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.search import SignalBlock
from policies.signalled import value as signal_value
from policies.signalled.pages import SignalPages
from policies.signalled.rates import freshness_at_rate, marginal_value_at_rate
from tests.policies.problems import Problem

SIGNALS = objectives.get("signals")
PERIODIC = objectives.get("periodic")


@dataclass(frozen=True)
class SignalProblem:
    """A problem whose pages at `row` have signals; `pages` are those."""

    plain: Problem
    row: np.ndarray
    pages: SignalPages

    @property
    def budget(self) -> float:
        return self.plain.budget

    def _with_signals(self, block: search.PageBlock, first: int) -> search.PageBlock:
        a, b = np.searchsorted(self.row, [first, first + len(block)])
        if a == b:
            return block
        pages = self.pages.take(slice(a, b))
        signals = SignalBlock(
            self.row[a:b] - first,
            pages.unsignalled_rate_per_day,
            pages.signal_rate_per_day,
            pages.signal_weight,
        )
        return replace(block, signals=signals)

    def block(self) -> search.PageBlock:
        return self._with_signals(self.plain.block(), 0)

    def blocks(self, shards: int) -> list[search.PageBlock]:
        parts = self.plain.blocks(shards)
        first = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        return [self._with_signals(part, int(at)) for part, at in zip(parts, first[:-1], strict=True)]

    def value(self, rate: np.ndarray, uses_signals: bool = True) -> np.ndarray:
        """Requests served fresh, per page and day."""
        fresh = PERIODIC.freshness(rate, self.plain.change)
        if uses_signals:
            fresh[self.row] = freshness_at_rate(self.pages, rate[self.row])
        return self.plain.request * fresh


def random_pages(rng: np.random.Generator, request: np.ndarray, change: np.ndarray) -> SignalPages:
    """Signals of every kind and quality for pages of these rates; a few have none at all."""
    n = request.size
    recall = rng.beta(0.3, 0.3, n)
    recall[rng.random(n) < 0.15] = 1.0
    recall[rng.random(n) < 0.05] = 0.0
    noise = change * 10.0 ** rng.uniform(-3, 1.5, n)
    noise[rng.random(n) < 0.15] = 0.0
    return SignalPages.from_rates(request, change, recall, noise)


def random_signal_problem(
    seed: int, n: int | None = None, constrained: bool = True, share: float | None = None
) -> SignalProblem:
    """Mixed pages with and without signals; half of the problems have floors, caps and host limits."""
    rng = np.random.Generator(np.random.Philox(key=[seed, 1]))
    n = int(rng.integers(1, 40)) if n is None else n
    change, request = 10.0 ** rng.uniform(-3, 2, n), 10.0 ** rng.uniform(-3, 2, n)
    if rng.random() < 0.3:
        request[rng.random(n) < 0.3] = 0.0
    if rng.random() < 0.2:
        change[rng.random(n) < 0.3] = 0.0
    if rng.random() < 0.2:  # pages tied in value
        tied = rng.random(n) < 0.5
        request[tied] = change[tied] * 3.0
    budget = float(
        (change.sum() + 1e-9) * 10.0 ** (rng.uniform(-9, 4) if rng.random() < 0.2 else rng.uniform(-3, 1))
    )
    share = float(rng.random()) if share is None else share
    row = np.flatnonzero(rng.random(n) < share)
    pages = random_pages(rng, request[row], change[row])
    if row.size > 3 and rng.random() < 0.2:  # many alike
        pages = pages.take(np.zeros(row.size, dtype=np.int64))
        request[row], change[row] = request[row[0]], change[row[0]]
    floor = cap = sizes = limit = None
    if constrained and rng.random() < 0.5:
        if rng.random() < 0.5:
            floor = np.where(rng.random(n) < 0.5, rng.random(n), 0.0)
            floor *= budget * rng.random() / max(floor.sum(), 1e-300)
        if rng.random() < 0.5:
            cap = np.where(rng.random(n) < 0.6, budget * 10.0 ** rng.uniform(-3, 0.5, n), np.inf)
        if rng.random() < 0.6:
            cuts = np.sort(rng.choice(np.arange(n + 1), size=int(rng.integers(1, min(n, 8) + 1))))
            sizes = np.diff(np.concatenate([[0], cuts, [n]]))
            limit = budget * 10.0 ** rng.uniform(-3, 0.3, sizes.size)
            limit[rng.random(sizes.size) < 0.3] = np.inf
    change = change.copy()
    change[row] = pages.change_rate_per_day
    return SignalProblem(Problem(change, request, budget, floor, cap, sizes, limit), row, pages)


def most_of(problem: SignalProblem) -> np.ndarray:
    """Rates beyond which no crawl helps."""
    most = np.full(problem.plain.change.size, np.inf)
    bounded = problem.pages.unsignalled_rate_per_day == 0.0
    most[problem.row[bounded]] = problem.pages.signal_rate_per_day[bounded]
    return most


def slopes(problem: SignalProblem, rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Value of one more crawl a day, and of the last one: the marginal value, but at steps.

    Where hardly a change goes without a signal the rate hardly tells the threshold: it takes steps that are
    as good as upright in double precision.
    """
    plain = problem.plain
    more = PERIODIC.marginal_value(rate, plain.change, plain.request)
    last = more.copy()
    of_signals = rate[problem.row]
    more[problem.row] = marginal_value_at_rate(problem.pages, of_signals * (1.0 + 1e-9))
    last[problem.row] = marginal_value_at_rate(problem.pages, of_signals * (1.0 - 1e-9))
    return more, last


def check_signals_optimal(problem: SignalProblem, result: search.SearchResult, parts, tolerance=1e-6) -> None:
    """Asserts feasibility, the conditions of Theorem 1, complementarity, and the dual bound."""
    plain = problem.plain
    rate = np.concatenate([part.crawl_rate_per_day for part in parts])
    extra = np.concatenate([part.host_multiplier for part in parts])
    floor, cap = plain.bounds(SIGNALS)
    assert np.all(np.isfinite(rate)) and np.all(rate >= 0.0)
    assert np.all(rate >= floor * (1 - 1e-12)) and np.all(rate <= cap * (1 + 1e-12))
    multiplier = np.full(rate.size, result.multiplier)
    if plain.limit is not None:
        total = np.bincount(plain.host_of(), weights=rate, minlength=plain.sizes.size)
        assert np.all(total <= plain.limit * (1 + 1e-9))
        binds = extra > 1e-8 * result.multiplier
        np.testing.assert_allclose(total[binds], plain.limit[binds], rtol=1e-9)
        multiplier = multiplier + extra[plain.host_of()]
    spent = float(rate.sum())
    assert abs(spent - result.allocated_per_day) <= 1e-9 * plain.budget
    assert abs(result.allocated_per_day + result.unspent_per_day - plain.budget) <= 1e-12 * plain.budget
    if result.status is search.Status.ALL_AT_FLOOR:
        return
    more, last = slopes(problem, rate)
    most = most_of(problem)
    if result.unspent_per_day > 1e-9 * plain.budget:
        assert result.multiplier == 0.0 and result.unspent_reason
    can_grow = rate < np.minimum(cap, most) * (1 - 1e-9)
    can_shrink = rate > floor * (1 + 1e-9)
    if result.multiplier > 0.0 or plain.limit is not None:
        assert np.all(more[can_grow] <= multiplier[can_grow] * (1 + tolerance))
    assert np.all(last[can_shrink] >= multiplier[can_shrink] * (1 - tolerance))
    if result.multiplier > 0.0 and floor.max() == 0.0 and np.all(np.isinf(cap)) and plain.limit is None:
        bound = result.multiplier * plain.budget + best_net_gain(problem, result.multiplier)
        value = float(problem.value(rate).sum())
        assert value <= bound * (1 + 1e-9)
        assert value >= bound * (1 - 1e-6) - 1e-12 * result.multiplier * plain.budget


def best_net_gain(problem: SignalProblem, multiplier: float) -> float:
    """Sum over pages of the largest value less cost at a price of a crawl: mu e^-u*."""
    plain = problem.plain
    rate = PERIODIC.rate(multiplier, plain.change, plain.request)
    gain = plain.request * PERIODIC.freshness(rate, plain.change) - multiplier * rate
    u = signal_value.threshold(problem.pages, multiplier)
    change = problem.pages.change_rate_per_day
    gain[problem.row] = problem.pages.request_rate_per_day * np.where(change > 0.0, np.exp(-u), 1.0)
    return float(gain.sum())
