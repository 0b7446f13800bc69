"""Cells of simulations: what theory says of policies, common worlds, and who runs with whom."""

from dataclasses import fields, replace
from functools import cache, partial

import numpy as np
import pytest

from policies.numerics.typing_ import FloatArray
from policies.objectives.objectives import Periodic
from policies.simulation.drawn import Model, draw
from policies.simulation.experiments import Experiment, low_discrepancy_picks, simulate
from policies.simulation.statistics import paired
from policies.simulation.streams import optimal_rates, uniform_instance
from transforms.replay.backtesting import POLICIES
from transforms.replay.simulating import (
    START_US,
    TOLD,
    Cell,
    Outcome,
    Plan,
    as_world,
    cells,
    is_told,
    run_cell,
)

PLAIN, NOISY = Model(recall=None), Model()


def accuracies(plan: Plan, cell: Cell) -> dict[str, FloatArray]:
    found: dict[str, list[float]] = {}
    for outcome in run_cell(plan, cell):
        found.setdefault(outcome.policy, []).append(outcome.accuracy)
    return {policy: np.array(values) for policy, values in found.items()}


def same(a: Outcome, b: Outcome) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(Outcome))


def test_discrete_policies_reach_the_continuous_optimum() -> None:
    plan = Plan(PLAIN, 400, 0.1, 0)
    found = accuracies(plan, Cell(200, 40.0, ("GREEDY", "LDS", "BASELINE"), tuple(range(6))))
    for policy in ("GREEDY", "LDS"):
        lead = paired(found[policy] / found["BASELINE"], np.ones(6))
        assert lead.standard_error < 0.004
        assert abs(lead.mean) < 0.01


@pytest.mark.parametrize("model", [NOISY, replace(NOISY, false_signals=(0.0, 0.0)), Model("gamma", "zipf")])
def test_signals_help_who_knows_what_they_are_worth(model: Model) -> None:
    found = accuracies(
        Plan(model, 120, 0.1, 1), Cell(80, 10.0, ("GREEDY", "GREEDY-CIS", "GREEDY-NCIS"), tuple(range(5)))
    )
    for other in ("GREEDY", "GREEDY-CIS"):
        lead = paired(found["GREEDY-NCIS"], found[other])
        assert lead.mean >= -2 * lead.standard_error
    assert paired(found["GREEDY-NCIS"], found["GREEDY"]).wins == 5


def test_low_discrepancy_counts() -> None:
    """After any number of slots, every page has been crawled within 1 of rate x time."""
    instance = draw(PLAIN, 50, 10, 0, 0).instance
    rate = optimal_rates(instance, 7.0)
    picks = low_discrepancy_picks(rate, 7.0, 300)
    counts = np.cumsum(picks[:, None] == np.arange(50), axis=0)
    assert np.abs(counts - rate / 7.0 * np.arange(1, 301)[:, None]).max() < 1.0


def test_the_papers_experiment_and_this_one_are_the_same() -> None:
    experiment = Experiment(("GREEDY", "GREEDY-NCIS", "LDS", "BASELINE"), 10.0, 40.0, 10.0)
    pages = partial(uniform_instance, 60, recall=(0.25, 0.25), false_signals=(0.1, 0.6))
    result = simulate(experiment, pages, 3, range(2))
    found = accuracies(Plan(NOISY, 40, 0.25, 3), Cell(60, 10.0, tuple(experiment.policies), (0, 1)))
    assert (np.array(list(found.values())) == result.accuracy).all()


def test_it_does_not_matter_who_runs_together() -> None:
    plan, policies = Plan(NOISY, 20, 0.4, 0, requests=True), ("GREEDY", "GREEDY-NCIS-D", "LDS", "BASELINE")
    together = list(run_cell(plan, Cell(40, 8.0, policies, (0, 1, 2))))
    for outcome in together:
        (alone,) = run_cell(plan, Cell(40, 8.0, (outcome.policy,), (outcome.repetition,)))
        assert same(outcome, alone)


def test_all_cells_once() -> None:
    policies = ("recrawl", "GREEDY", "heritrix", "LDS")
    planned = list(cells(policies, (10, 1000), (5.0, 7.0), 40))
    runs = [(c.pages, c.bandwidth, p, r) for c in planned for p in c.policies for r in c.repetitions]
    assert len(runs) == len(set(runs)) == 2 * 2 * 4 * 40
    assert {c.policies for c in planned} == {("recrawl",), ("heritrix",), ("GREEDY", "LDS")}
    assert planned[0] == Cell(1000, 5.0, ("recrawl",), (0,))
    # As many as fit in memory.
    assert {len(c.repetitions) for c in cells(("GREEDY", "LDS"), (200_000,), (5.0,), 99)} == {3}


def test_a_replay_has_the_changes_and_signals_of_the_slots() -> None:
    drawn = draw(NOISY, 30, 20, 0, 0)
    world = as_world(drawn)
    day = (world.history.change_us - START_US) / 86_400e6
    assert day == pytest.approx(drawn.streams.change_time, abs=1e-11)
    assert (world.history.change_page == drawn.streams.change_page).all()
    assert len(world.signals) == drawn.streams.signal_time.size > 0
    assert world.nights().size == 20 and (world.history.first_us == START_US).all()
    offers = as_world(draw(Model("offers", "clicks"), 60, 20, 0, 0))
    assert offers.url.to_pylist() == sorted(offers.url.to_pylist()) and len(offers.hosts) > 1
    assert set(offers.metadata) == {"category", "country"} and set(offers.weights) == {
        "requests",
        "impressions",
    }


def test_equal_rates_are_as_fresh_as_theory_says() -> None:
    plan = Plan(replace(NOISY, requests="zipf"), 100, 0.1, 2)
    found = list(run_cell(plan, Cell(150, 30.0, ("uniform",), tuple(range(6)))))
    expected, equal = [], []
    for outcome in found:
        instance = draw(plan.model, 150, 100, 2, outcome.repetition).instance
        fresh = Periodic().freshness(np.full(150, 0.2), instance.change_rate)
        expected.append(instance.request_rate @ fresh / instance.request_rate.sum())
        equal.append(fresh.mean())
    for name, theory in (("accuracy", expected), ("offer_freshness", equal)):
        off = paired(np.array([getattr(o, name) for o in found]), np.array(theory))
        assert abs(off.mean) < 3 * off.standard_error < 0.03


@cache
def accuracy_of_who_knows() -> float:
    (greedy,) = run_cell(Plan(NOISY, 40, 0.4, 0), Cell(60, 12.0, ("GREEDY-NCIS",), (0,)))
    return greedy.accuracy


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", ["recrawl", "recrawl+signals", "lambdacrawl", "nutch-adaptive", "heritrix"]
)
def test_who_learns_spends_the_budget_and_learns(policy: str) -> None:
    (found,) = run_cell(Plan(NOISY, 40, 0.4, 0), Cell(60, 12.0, (policy,), (0,)))
    assert found.spent == pytest.approx(0.2, rel=0.01)
    assert found.crawls == pytest.approx(12 * 24, rel=0.01)
    assert found.found is not None and 0.3 < found.found < 1
    assert found.over_time[8:].mean() == pytest.approx(found.accuracy)
    assert found.harmonic_cost is not None and found.harmonic_cost > 1 - found.accuracy
    assert found.accuracy < accuracy_of_who_knows()


def test_drawn_requests_are_as_fresh_as_the_exact_accuracy() -> None:
    (found,) = run_cell(Plan(NOISY, 100, 0.1, 0, requests=True), Cell(100, 20.0, ("GREEDY",), (0,)))
    assert found.requests is not None and found.fresh_requests is not None
    expected = 90 * draw(NOISY, 100, 100, 0, 0).instance.request_rate.sum()
    assert abs(found.requests - expected) < 4 * np.sqrt(expected)
    share, error = found.fresh_requests / found.requests, np.sqrt(0.25 / found.requests)
    assert abs(share - found.accuracy) < 4 * error


def test_offers_for_who_groups_them() -> None:
    plan = Plan(Model("offers", "clicks", recall=None), 14, 0.4, 0)
    for policy in ("recrawl+groups", "impression-weighted", "GREEDY"):
        (found,) = run_cell(plan, Cell(60, 6.0, (policy,), (0,)))
        assert found.spent == pytest.approx(0.1, rel=0.05) and 0.3 < found.accuracy < 1


def test_names() -> None:
    assert all(is_told(name.replace("-j", "-3")) for name in TOLD)
    assert not any(is_told(name) for name in POLICIES)
    with pytest.raises(ValueError, match="no policy 'GREED'"):
        is_told("GREED")
