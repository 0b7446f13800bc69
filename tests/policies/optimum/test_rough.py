"""Pages that are not smooth between two multipliers tell, with a polynomial, the demand in between."""

import numpy as np
import pytest

from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.demand import MOST_ALIKE, Prepared, demand_units
from policies.optimum.rough import RoughDemand, rough_pages, smooth_between
from tests.policies.problems import Problem, check_optimal, random_problem
from tests.policies.signal_problems import SIGNALS, random_signal_problem

PERIODIC = objectives.get("periodic")


def demand_between(blocks, objective, budget, low, high, inner, expanded_at=0.0):
    """Demand at `inner` by a polynomial and rough pages, by asking all pages, and how many are rough."""
    width = np.log(high / low)
    nodes = [low, *(low * np.exp(width * 0.5 * (1 - np.cos(np.pi * (np.arange(5) + 0.5) / 5)))), high]
    prepared = [Prepared(block, objective, budget) for block in blocks]
    for one in prepared:
        one.expand(expanded_at)
    parts = [rough_pages(one, objective, budget, low, high) for one in prepared]
    rough = RoughDemand([part for part in parts if part is not None], objective, budget, expanded_at)

    def whole(at):
        return np.sum([demand_units(one, objective, budget, at) for one in prepared], axis=0, dtype=object)

    smooth = [int(a) - b for a, b in zip(whole(nodes), rough.units(nodes), strict=True)]
    found = np.array(rough.units(inner), dtype=object) + smooth_between(nodes, smooth, inner)
    return found, whole(inner), sum(int(part.count.sum()) for part in parts if part is not None)


@pytest.mark.parametrize("name", objectives.NAMES)
@pytest.mark.parametrize("seed", range(6))
def test_rough_pages_and_a_polynomial_tell_the_demand_of_all(name, seed):
    problem, objective = random_problem(seed, n=4000, extreme=False), objectives.get(name)
    at = search.solve(problem.block(), objective, problem.budget)[0].multiplier or 1.0
    for width in (1e-6, 1e-3, 0.02):
        low, high = at * np.exp(-0.4 * width), at * np.exp(0.6 * width)
        inner = [low * np.exp(width * part) for part in (0.1, 0.4, 0.77)]
        found, want, _ = demand_between(problem.blocks(3), objective, problem.budget, low, high, inner)
        # Each page is cut to whole units: so is what is compared.
        assert np.max(np.abs(found - want)) <= 4000 + 2e-13 * float(want.max())


@pytest.mark.parametrize("seed", range(4))
def test_with_signals_too(seed):
    problem = random_signal_problem(seed, n=2000)
    result, _ = search.solve(problem.block(), SIGNALS, problem.budget)
    at = result.expanded_at or 1.0
    for width, error in ((1e-5, 1e-12), (1e-3, 1e-11)):
        low, high = at * np.exp(-0.4 * width), at * np.exp(0.6 * width)
        inner = [low * np.exp(width * part) for part in (0.1, 0.4, 0.77)]
        blocks = problem.blocks(3)
        found, want, _ = demand_between(blocks, SIGNALS, problem.budget, low, high, inner, at)
        assert np.max(np.abs(found - want)) <= 2000 + error * float(want.max())


def test_few_pages_are_rough_where_the_bracket_is_narrow():
    rng = np.random.default_rng(5)
    n = 40_000
    change, request = rng.gamma(0.5, 1.0, n) + 1e-4, rng.pareto(1.2, n) + 0.01
    sizes, limit = np.full(400, 100), np.full(400, 11.0)
    problem = Problem(change, request, 0.1 * n, None, np.full(n, 0.5), sizes, limit)
    result, (part,) = search.solve(problem.block(), PERIODIC, problem.budget)
    assert part.totals.hosts_at_limit > 50 and part.totals.at_cap > 1000
    low, high = result.multiplier * (1 - 1e-5), result.multiplier * (1 + 1e-5)
    *_, few = demand_between([problem.block()], PERIODIC, problem.budget, low, high, [result.multiplier])
    assert few < 0.001 * n + 200  # a host that reaches its limit just there is one of 100 pages


@pytest.mark.parametrize("hosts", [1, 7])
def test_pages_alike_are_sent_once(hosts):
    """As on a first night: all pages have one rate, and demand jumps for all of them at once."""
    n = 40_000
    sizes = np.full(hosts, n // hosts)
    sizes[0] += n % hosts
    limit = np.where(np.arange(hosts) % 3 == 1, sizes * 0.05, np.inf)
    problem = Problem(np.full(n, 0.3), np.full(n, 2.0), 0.01 * n, sizes=sizes, limit=limit)
    kept = rough_pages(
        Prepared(problem.block(), PERIODIC, problem.budget), PERIODIC, problem.budget, 1.0, 10.0
    )
    assert (
        kept.count.sum() == n
        and kept.count.max() <= MOST_ALIKE
        and kept.count.size <= hosts + n // MOST_ALIKE + 1
    )
    got, want, _ = demand_between([problem.block()], PERIODIC, problem.budget, 1.0, 10.0, [2.0, 5.0, 8.0])
    assert list(got) == list(want)
    result, parts = search.solve(problem.blocks(hosts), PERIODIC, problem.budget)
    check_optimal(problem, PERIODIC, result, parts)
    assert result.rounds <= search.ROUNDS
    assert result.certificate <= 2e-10 * result.multiplier * problem.budget


@pytest.mark.parametrize("seed", range(3))
def test_a_jump_costs_no_more_than_the_certificate(seed):
    """Half of the pages alike, and a budget that ends where they starve.

    At the critical multiplier any mix is an optimum; that of both ends is bounded from above by duality.
    """
    rng = np.random.default_rng(seed)
    n = 30_000
    change = 10.0 ** rng.uniform(-2, 1, n)
    request = 10.0 ** rng.uniform(-2, 1, n)
    request[: n // 2] = 3.0 * change[: n // 2]
    above = PERIODIC.rate(3.0 * (1 - 1e-13), change, request).sum()
    below = PERIODIC.rate(3.0, change, request).sum()
    assert above > 1.05 * below
    problem = Problem(change, request, float(0.4 * above + 0.6 * below))
    result, (part,) = search.solve(problem.block(), PERIODIC, problem.budget)
    check_optimal(problem, PERIODIC, result, [part])
    assert result.multiplier == pytest.approx(3.0, rel=1e-9)
    rate = PERIODIC.rate(result.multiplier, change, request)
    bound = result.multiplier * problem.budget + float(
        np.sum(request * PERIODIC.value(rate, change) - result.multiplier * rate)
    )
    value = float(np.sum(request * PERIODIC.value(part.crawl_rate_per_day, change)))
    assert bound - value <= result.certificate + 1e-13 * bound
    assert result.certificate <= 2e-10 * result.multiplier * problem.budget
