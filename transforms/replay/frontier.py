"""The budget that a policy needs for a target freshness: a search over runs of `backtesting`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from transforms.batches.steps import Step
from transforms.replay.backtesting import Scored, Trial, Weighting, play
from transforms.replay.replaying import Replayed

NEAR = 0.002
"""Difference from the target that ends a search; of a target near 1, a tenth of what is left."""

MOST_RUNS = 12
"""For a target."""

_NARROW = 0.01
_EDGE = 0.1
_LEAST, _MOST = 1e-6, 1.0 - 1e-6
_SLOPES = 0.3, 2.0  # of logit freshness in log budget: near 1 for periodic crawls of pages that are alike
_BEYOND = 1.2  # a step down goes past where the target is expected, for a bracket is worth more than a hit
_NEARBY = 0.5  # in log budget: runs further off say little of the slope
_FLATTEST = 0.1


@dataclass(frozen=True)
class Question:
    """How much a policy needs.

    Attributes
    ----------
    policy : str
    weighting : Weighting
    targets : tuple of float
        Freshness, in (0, 1).
    low, high : float
        Budgets to look between, crawls per page and day.
    """

    policy: str
    weighting: Weighting
    targets: tuple[float, ...]
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """What came of a target of a `Question`.

    Attributes
    ----------
    question : Question
    target : float
    budget : float
        Crawls per page and day; NaN where even `Question.high` is not enough, `Question.low` where that is
        more than enough.
    per_e_fold : float
        Freshness gained where the budget grows by a factor of e, around the target; NaN where not found.
    runs : tuple of Scored
        All of the question, by budget.
    """

    question: Question
    target: float
    budget: float
    per_e_fold: float
    runs: tuple[Scored, ...]

    @property
    def nearest(self) -> Scored:
        """The run whose freshness is nearest to the target."""
        return min(self.runs, key=lambda run: abs(run.accuracy - self.target))


def search(question: Question, run: Callable[[float], Scored]) -> list[Answer]:
    """Find the budgets: from above down to a bracket, then false position, in log budget and logit freshness.

    No budget is run that is far below the target's, and targets share their runs.

    Parameters
    ----------
    question : Question
    run : callable
        The run at a budget.

    Returns
    -------
    list of Answer
        By target, the highest first.
    """
    done: dict[float, Scored] = {}
    found = [(target, *_find(question, target, done, run)) for target in sorted(question.targets)[::-1]]
    runs = tuple(done[budget] for budget in sorted(done))
    return [Answer(question, target, budget, slope, runs) for target, budget, slope in found]


def _find(
    question: Question, target: float, done: dict[float, Scored], run: Callable[[float], Scored]
) -> tuple[float, float]:
    """Budget and slope; what is run is added to `done`."""

    def off(budget: float) -> float:
        return _logit(done[budget].accuracy) - _logit(target)

    low, high = question.low, question.high
    if high not in done:
        done[high] = run(high)
    if off(high) < 0:
        return float("nan"), float("nan")
    for turn in range(MOST_RUNS):
        above = min(b for b in done if off(b) >= 0)
        below = max((b for b in done if b < above), default=None)
        if min(abs(d.accuracy - target) for d in done.values()) <= min(NEAR, 0.1 * (1.0 - target)):
            break
        if below is None:
            if above <= low:
                return low, float("nan")
            step = min(_BEYOND * off(above) / _steepness(done, above), 2.0 + turn)
            budget = max(above * float(np.exp(-max(step, _EDGE))), low)
        elif np.log(above / below) < _NARROW:
            break
        else:
            part = off(below) / (off(below) - off(above))
            # Every third turn halves what is left, so that a bent curve does not creep.
            part = 0.5 if turn % 3 == 2 else float(np.clip(part, _EDGE, 1.0 - _EDGE))
            budget = float(below * (above / below) ** part)
        done[budget] = run(budget)
    nearest = min(done, key=lambda b: abs(done[b].accuracy - target))
    if len(done) == 1:  # a slope needs two
        beside = max(high * float(np.exp(-_NEARBY)), low)
        done[beside] = run(beside)
    slope = _slope(done, nearest)
    budget = nearest * float(np.exp(-off(nearest) / slope))
    above = min(b for b in done if off(b) >= 0)
    below = max((b for b in done if b < above), default=max(above * float(np.exp(-_NEARBY)), low))
    budget = min(max(budget, below), above)
    return budget, slope * target * (1.0 - target)


def _steepness(done: dict[float, Scored], lowest: float) -> float:
    """Logit freshness per log budget between the lowest budget and the next, as far as that is likely."""
    others = [b for b in done if b > lowest]
    if not others:
        return 1.0
    rise = _logit(done[min(others)].accuracy) - _logit(done[lowest].accuracy)
    return float(np.clip(rise / np.log(min(others) / lowest), *_SLOPES))


def _slope(done: dict[float, Scored], budget: float) -> float:
    """Of a line through logit freshness in log budget, by least squares, most by the runs nearby."""
    x = np.log(np.array(list(done)) / budget)
    y = np.array([_logit(d.accuracy) for d in done.values()])
    weight = 1.0 / (1.0 + (x / _NEARBY) ** 4)
    x = x - np.average(x, weights=weight)
    spread = float(weight @ (x * x))
    return max(float(weight @ (x * y)) / spread, _FLATTEST) if spread > 0 else 1.0


def _logit(share: float) -> float:
    inside = min(max(share, _LEAST), _MOST)
    return float(np.log(inside / (1.0 - inside)))


class FindBudgets(Step):
    """Answers questions on the world, a side input. Input: `Question`; output: `Answer`, one a target."""

    def __init__(self, warm_up: float) -> None:
        self._warm_up = warm_up

    def process(self, question: Question, replayed: Replayed) -> Iterator[Answer]:
        def run(budget: float) -> Scored:
            trial = Trial(question.policy, budget, (question.weighting,))
            return play(replayed.world, trial, self._warm_up)[0]

        yield from search(question, run)
