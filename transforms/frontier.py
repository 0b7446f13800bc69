"""The budget that a policy needs for a target freshness: a search over runs of `transforms.backtesting`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from transforms.backtesting import Scored, Trial, Weighting, play
from transforms.replaying import Replayed

NEAR = 0.002
"""Difference from the target that ends a search."""

MOST_RUNS = 12
_NARROW = 0.01
_EDGE = 0.1
_LEAST, _MOST = 1e-6, 1.0 - 1e-6


@dataclass(frozen=True)
class Question:
    """How much a policy needs.

    Attributes
    ----------
    policy : str
    weighting : Weighting
    target : float
        Freshness, in (0, 1).
    low, high : float
        Budgets to look between, crawls per page and day.
    """

    policy: str
    weighting: Weighting
    target: float
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """What came of a `Question`.

    Attributes
    ----------
    question : Question
    budget : float
        Crawls per page and day; NaN where even `Question.high` is not enough, `Question.low` where that is
        more than enough.
    per_e_fold : float
        Freshness gained where the budget grows by a factor of e, around the target; NaN where not found.
    runs : tuple of Scored
        By budget.
    """

    question: Question
    budget: float
    per_e_fold: float
    runs: tuple[Scored, ...]


def search(question: Question, run: Callable[[float], Scored]) -> Answer:
    """Find the budget: false position in log budget and logit freshness, a bisection where that is slow.

    Parameters
    ----------
    question : Question
    run : callable
        The run at a budget.
    """
    target = question.target
    done: dict[float, Scored] = {}

    def off(budget: float) -> float:
        done[budget] = run(budget)
        return _logit(done[budget].accuracy) - _logit(target)

    def answer(budget: float, slope: float) -> Answer:
        return Answer(question, budget, slope, tuple(done[b] for b in sorted(done)))

    low, high = question.low, question.high
    at_high = off(high)
    if at_high < 0:
        return answer(float("nan"), float("nan"))
    at_low = off(low)
    if at_low >= 0:
        return answer(low, float("nan"))
    for turn in range(MOST_RUNS - 2):
        if np.log(high / low) < _NARROW:
            break
        part = -at_low / (at_high - at_low)
        # Every third turn halves what is left, so that a bent curve does not creep.
        part = 0.5 if turn % 3 == 2 else float(np.clip(part, _EDGE, 1.0 - _EDGE))
        budget = float(low * (high / low) ** part)
        found = off(budget)
        if found < 0:
            low, at_low = budget, found
        else:
            high, at_high = budget, found
        if abs(done[budget].accuracy - target) <= NEAR:
            break
    share = -at_low / (at_high - at_low)
    width = float(np.log(high / low))
    slope = (done[high].accuracy - done[low].accuracy) / width
    return answer(float(low * np.exp(share * width)), float(slope))


def _logit(share: float) -> float:
    inside = min(max(share, _LEAST), _MOST)
    return float(np.log(inside / (1.0 - inside)))


class FindBudgets(beam.DoFn):
    """Answers questions on the world, a side input. Input: `Question`; output: `Answer`."""

    def __init__(self, warm_up: float) -> None:
        self._warm_up = warm_up

    def process(self, question: Question, replayed: Replayed) -> Iterator[Answer]:
        def run(budget: float) -> Scored:
            trial = Trial(question.policy, budget, (question.weighting,))
            return play(replayed.world, trial, self._warm_up)[0]

        yield search(question, run)
