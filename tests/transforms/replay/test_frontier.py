"""The search for the budget of a target, on curves that are known."""

from dataclasses import replace

import numpy as np
import pytest

from tests.transforms.replayed_worlds import poisson_world
from transforms.replay.backtesting import Scored, Trial, Weighting, play
from transforms.replay.frontier import MOST_RUNS, NEAR, Question, search

SCORED = Scored("uniform", 0.1, "equal", 0, 9, 9, 0.1, 0.5, 0.5, 0.5, 0.5, np.ones(1), np.ones(1))


def curve(rate: float, budget: float) -> Scored:
    """Freshness of periodic crawls of pages that are alike."""
    x = rate / budget
    return replace(SCORED, budget=budget, accuracy=float(-np.expm1(-x) / x))


def ask(*targets: float, low: float, high: float) -> Question:
    return Question("uniform", Weighting("equal"), targets, low, high)


@pytest.mark.parametrize("rate", [0.003, 0.1, 20.0])
@pytest.mark.parametrize("target", [0.05, 0.5, 0.9, 0.995])
def test_budgets_of_a_known_curve(rate: float, target: float) -> None:
    (found,) = search(ask(target, low=rate / 100, high=rate * 200), lambda b: curve(rate, b))
    assert curve(rate, found.budget).accuracy == pytest.approx(target, abs=0.0002)
    assert len(found.runs) <= MOST_RUNS
    step = curve(rate, found.budget * np.exp(0.01)).accuracy - curve(rate, found.budget).accuracy
    assert found.per_e_fold == pytest.approx(100 * step, rel=0.1)


def test_targets_share_runs_and_no_budget_far_below_is_run() -> None:
    runs: list[float] = []

    def run(budget: float) -> Scored:
        runs.append(budget)
        return curve(0.2, budget)

    found = search(ask(0.7, 0.8, 0.75, low=0.01, high=1.0), run)
    assert [a.target for a in found] == [0.8, 0.75, 0.7]
    assert all(curve(0.2, a.budget).accuracy == pytest.approx(a.target, abs=NEAR) for a in found)
    assert len(runs) == len(set(runs)) == len(found[0].runs) <= 8
    assert min(runs) > found[-1].budget / 3
    assert abs(found[1].nearest.accuracy - 0.75) <= NEAR


def test_targets_out_of_reach() -> None:
    runs: list[float] = []

    def run(budget: float) -> Scored:
        runs.append(budget)
        return curve(1.0, budget)

    assert np.isnan(search(ask(0.9, low=0.01, high=0.1), run)[0].budget)
    assert runs == [0.1]
    (found,) = search(ask(0.9, low=0.01, high=0.1), lambda b: curve(1e-5, b))
    assert found.budget == 0.01 and np.isnan(found.per_e_fold)


def test_a_step_does_not_hold_it_up() -> None:
    question = ask(0.5, low=1e-3, high=1e3)
    (found,) = search(question, lambda b: replace(SCORED, budget=b, accuracy=0.2 if b < 3.0 else 0.8))
    assert found.budget == pytest.approx(3.0, rel=0.5) and len(found.runs) <= MOST_RUNS + 1


def test_the_budget_of_a_world_of_pages_alike() -> None:
    world = poisson_world(np.full(200, 0.3), 60, seed=1)
    weighting = Weighting("equal")
    question = ask(0.8, low=0.01, high=5.0)
    (found,) = search(question, lambda b: play(world, Trial("uniform", b, (weighting,)))[0])
    # (1 - e^-x) / x = 0.8 at x = 0.4642.
    assert found.budget == pytest.approx(0.3 / 0.4642, rel=0.08)
