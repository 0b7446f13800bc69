"""What floors are said to cost bounds what they do cost, and is close where they are few."""

from dataclasses import replace

import numpy as np
import pytest

from policies.numerics.errors import InfeasibleError
from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.floors import floor_cost
from tests.policies.problems import Problem, random_problem


def _value(problem: Problem, objective) -> tuple[float, list]:
    result, found = search.solve(problem.block(), objective, problem.budget)
    fresh = objective.value(found[0].crawl_rate_per_day, problem.change)
    return float(problem.request @ fresh), (result, found[0])


def _gap(problem: Problem, name: str) -> tuple[float, float]:
    """The bound, and what freeing pages from their floors gains."""
    objective = objectives.get(name)
    kept, (result, found) = _value(problem, objective)
    bound = floor_cost(problem.block(), objective, found, result.multiplier).value_per_day
    return bound, _value(replace(problem, floor=None), objective)[0] - kept


@pytest.mark.parametrize("name", ["periodic", "memoryless", "discrete"])
def test_it_is_a_bound(name):
    seen = 0
    for seed in range(120):
        problem = random_problem(seed, extreme=False)
        rng = np.random.Generator(np.random.Philox(key=[seed, 1]))
        if problem.cap is not None or problem.change.size < 2:
            continue
        share = problem.budget * rng.uniform(0.0, 0.9) / problem.change.size
        try:
            bound, gained = _gap(replace(problem, floor=np.full(problem.change.size, share)), name)
        except InfeasibleError:
            continue
        seen += bound > 0.0
        assert bound >= gained - 1e-6 * problem.request.sum(), seed
    assert seen > 30


def test_a_low_floor_costs_what_is_said():
    """Of 2,000 pages of which two in three starve: one crawl in 100 days of each."""
    rng = np.random.Generator(np.random.Philox(key=5))
    change, request = rng.gamma(0.5, 2.0, 2000), rng.pareto(1.1, 2000)
    problem = Problem(change, request, 300.0, np.full(2000, 0.01))
    bound, gained = _gap(problem, "periodic")
    assert 0.0 < gained <= bound < 1.05 * gained


def test_no_floor_costs_nothing_nor_does_one_below_what_pages_get():
    objective = objectives.get("periodic")
    problem = Problem(np.ones(4), np.ones(4), 4.0, np.full(4, 0.5))
    result, (found,) = search.solve(problem.block(), objective, problem.budget)
    assert floor_cost(problem.block(), objective, found, result.multiplier).crawls_per_day == 0.0
