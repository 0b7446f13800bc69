"""Figures 10 and 11 of Han et al. 2019: what is made of the runs."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.experiments.figures import get, names, trained
from pipelines.experiments.figures import han_on_request as figures
from pipelines.experiments.figures.han_on_request import Part, Task
from policies.on_request.strategies import RULES


def test_uniform_crawling_over_time_is_made_of_all_requests(monkeypatch):
    monkeypatch.setattr(figures, "SHOWN", (0.0, 0.1, 1.0))
    task = Task(figures.FIGURE_10, 25, 0, 3, "uniform")
    part, again = figures.run(task), figures.run(task)
    assert (part.resources == again.resources).all() and (part.steps == again.steps).all()
    assert part.resources.shape == (3, 2, 10) and part.steps.shape == (3, 54 * 4)
    resources = part.resources.mean(axis=(1, 2))
    assert resources[0] == 0.0 and resources[-1] == 1.0 and (np.diff(resources) > 0.0).all()
    assert part.steps[-1].mean() > part.steps[0].mean()
    made = figures.make_10([part])
    assert (
        len(made.columns["policy"]) == 3 * 2 * 10 and {"level", "accuracy", "offers"} <= made.columns.keys()
    )
    assert [len(panel.series) for panel in made.pictures[0].panels] == [3]


def _part(policy: str, repetition: int, efficiency: float) -> Part:
    """Freshness 1 - exp(-3 efficiency R) at resources R: the same freshness for R / efficiency."""
    levels = len(RULES[policy].levels)
    resources = np.broadcast_to(np.linspace(0.0, 1.0, levels)[:, None, None], (levels, 2, 10)).copy()
    share = np.array([efficiency, 0.5 * (1.0 + efficiency)])[:, None]
    noise = 1.0 + 0.01 * np.sin(np.arange(10) + repetition)
    freshness = 1.0 - np.exp(-3.0 * share * resources) * noise
    return Part(Task(figures.FIGURE_11, 100, repetition, 0, policy), resources, freshness, np.zeros(0))


def test_savings_are_those_that_the_curves_have():
    efficiency = {"uniform": 1.0, "frequency": 1.3, "metadata": 1.1, "recrawl": 1.5, "value": 3.0}
    parts = [_part(name, r, e) for name, e in efficiency.items() for r in range(2)]
    found = figures.savings(parts)
    for name, e in efficiency.items():
        if name != "uniform":
            for kind, ratio in (("seen", e), ("unseen", 0.5 * (1.0 + e))):
                means = [s.mean for s in found[name, kind]]
                assert means == pytest.approx([1.0 - 1.0 / ratio] * 4, abs=0.06), (name, kind)
                assert all(s.low <= s.mean <= s.high and s.periods == 20 for s in found[name, kind])
    made = figures.make_11(parts)
    assert [claim.holds for claim in made.claims] == [True] * 5
    assert len(made.more["savings"]["saved"]) == 4 * 2 * 4
    slow = figures.make_11(
        [_part(name, r, 1.05 if name == "value" else e) for name, e in efficiency.items() for r in range(2)]
    )
    assert [claim.holds for claim in slow.claims][:2] == [False, False]


@pytest.mark.parametrize("keras", [False, True])
def test_the_figures_are_listed_and_tasks_are_one_a_strategy(keras, monkeypatch):
    """Networks are played where they can be trained."""
    monkeypatch.setattr(trained, "has_keras", lambda: keras)
    assert {figures.FIGURE_10, figures.FIGURE_11} <= set(names())
    tasks = get(figures.FIGURE_11).tasks([50, 100], 2, 0.0, 1, 1)
    assert len(tasks) == 2 * 2 * (len(RULES) - 2 * (not keras)) and tasks[0].pages == 100
    assert len(get(figures.FIGURE_10).tasks([50], 3, 0.0, 1, 1)) == 3
