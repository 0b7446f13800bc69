"""The search for the budget of a target, on curves that are known."""

from dataclasses import replace

import numpy as np
import pytest

from tests.transforms.replayed_worlds import poisson_world
from transforms.backtesting import Scored, Trial, Weighting, play
from transforms.frontier import MOST_RUNS, NEAR, Question, search

SCORED = Scored("uniform", 0.1, "equal", 0, 9, 9, 0.1, 0.5, 0.5, 0.5, 0.5, np.ones(1), np.ones(1))


def curve(rate: float, budget: float) -> Scored:
    """Freshness of periodic crawls of pages that are alike."""
    x = rate / budget
    return replace(SCORED, budget=budget, accuracy=float(-np.expm1(-x) / x))


@pytest.mark.parametrize("rate", [0.003, 0.1, 20.0])
@pytest.mark.parametrize("target", [0.05, 0.5, 0.9, 0.995])
def test_budgets_of_a_known_curve(rate: float, target: float) -> None:
    question = Question("uniform", Weighting("equal"), target, rate / 100, rate * 200)
    found = search(question, lambda b: curve(rate, b))
    assert curve(rate, found.budget).accuracy == pytest.approx(target, abs=NEAR)
    assert len(found.runs) <= MOST_RUNS
    step = curve(rate, found.budget * np.exp(0.01)).accuracy - curve(rate, found.budget).accuracy
    assert found.per_e_fold == pytest.approx(100 * step, rel=0.8)


def test_targets_out_of_reach() -> None:
    question = Question("uniform", Weighting("equal"), 0.9, 0.01, 0.1)
    assert np.isnan(search(question, lambda b: curve(1.0, b)).budget)
    assert search(question, lambda b: curve(1e-5, b)).budget == 0.01


def test_a_step_does_not_hold_it_up() -> None:
    question = Question("uniform", Weighting("equal"), 0.5, 1e-3, 1e3)
    found = search(question, lambda b: replace(SCORED, budget=b, accuracy=0.2 if b < 3.0 else 0.8))
    assert found.budget == pytest.approx(3.0, rel=0.5) and len(found.runs) <= MOST_RUNS


def test_the_budget_of_a_world_of_pages_alike() -> None:
    world = poisson_world(np.full(200, 0.3), 60, seed=1)
    weighting = Weighting("equal")
    question = Question("uniform", weighting, 0.8, 0.01, 5.0)
    found = search(question, lambda b: play(world, Trial("uniform", b, (weighting,)))[0])
    # (1 - e^-x) / x = 0.8 at x = 0.4642.
    assert found.budget == pytest.approx(0.3 / 0.4642, rel=0.08)
