"""What the figures of Han et al. 2020 simulate: strategies, budgets, and tasks that can run anywhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policies.numerics.typing_ import FloatArray
from policies.rules import bandits
from policies.simulation import commerce
from policies.simulation.commerce import Arm, Outcome, Strategy
from policies.simulation.offers import generate

DATASETS: Final = 4
HISTORY_DAYS: Final = 60
WARM_UP_DAYS: Final = 60
SCORED_DAYS: Final = 31
FLOOR_PER_DAY: Final = 1e-3

TENTHS: Final = tuple(k / 10 for k in range(1, 10))
TIGHT: Final = tuple(k / 1000 for k in range(1, 10)) + tuple(k / 100 for k in range(1, 10))


@dataclass(frozen=True)
class Task:
    """One set of offers and the repetitions on it: what a worker runs."""

    figure: str
    pages: int
    dataset: int
    repetitions: tuple[int, ...]
    seed: int


@dataclass(frozen=True)
class Part:
    """What a task gave, by policy: (B, R, D) freshness, and (B, R) crawls."""

    task: Task
    budgets: tuple[float, ...]
    fresh: dict[str, dict[str, FloatArray]]
    crawls: dict[str, FloatArray]
    outcome: Outcome


def _single(name: str, policy: str, source: str = "") -> Strategy:
    return Strategy(name, (Arm(policy, source),))


def _kab(
    name: str,
    reward: str = "precision",
    bandit: bandits.Bandit | None = None,
    called: str = "",
    source: str = "ml",
) -> Strategy:
    return replace(commerce.kab(name, source, bandit, reward), name=called or name)


LAMBDA_ML: Final = _single("lambda_ml", "lambdacrawl-discrete", "ml")

SINGLES: Final = (
    _single("Uniform", "uniform"),
    _single("delta_h", "change-weighted", "h"),
    _single("mu_h", "click-weighted", "h"),
    _single("nu_h", "impression-weighted", "h"),
    _single("lambda_h", "lambdacrawl-discrete", "h_floor"),
    _single("lambda_h-no-floor", "lambdacrawl-discrete", "h"),
    _single("delta_ml", "change-weighted", "ml"),
    _single("mu_ml", "click-weighted", "ml"),
    _single("nu_ml", "impression-weighted", "ml"),
    LAMBDA_ML,
)

BANDITS: Final = (
    _kab("KAB5"),
    _kab("KAB5", "gain", called="KAB5-gain"),
    _kab("KAB5", "gain", bandits.Exp3IX(), called="KAB5-gain-EXP3-IX"),
    _kab("KAB5", "gain", bandits.Exp3PlusPlus(), called="KAB5-gain-EXP3++"),
)

METADATA: Final = (
    _single("lambda_meta", "lambdacrawl-discrete", "meta"),
    _kab("KAB5", called="KAB5-meta", source="meta"),
    _kab("KAB5", "gain", called="KAB5-gain-meta", source="meta"),
)

SMALLER: Final = tuple(
    _kab(name, reward, called=name + ("" if reward == "precision" else "-gain"))
    for name in bandits.KAB_ARMS
    for reward in commerce.REWARDS
)

_STRATEGIES: Final[Mapping[str, tuple[tuple[Strategy, ...], tuple[float, ...]]]] = {
    "han-table-5": ((*SINGLES, *BANDITS), TENTHS),
    "han-table-6": ((*SINGLES, *BANDITS), TENTHS),
    "han-figure-4": ((LAMBDA_ML, *BANDITS[:2], *METADATA), (*TIGHT, *TENTHS)),
    "han-figure-5": (BANDITS[:2], (0.01, 0.1)),
    "han-figure-6": ((LAMBDA_ML, *SMALLER), TENTHS),
}
NAMES: Final = tuple(_STRATEGIES)


def tasks(name: str, pages: Sequence[int], repetitions: int, seed: int = 0) -> list[Task]:
    """The parts that a figure is made of; each can run anywhere.

    Raises
    ------
    ValueError
        An unknown figure, or no repetition.
    """
    if name not in _STRATEGIES:
        raise ValueError(f"unknown figure {name!r}: choose one of {', '.join(NAMES)}")
    if repetitions < 1:
        raise ValueError(f"a figure needs at least one repetition, got {repetitions}")
    return [
        Task(name, n, d, tuple(range(d, repetitions, DATASETS)), seed)
        for n in pages
        for d in range(min(DATASETS, repetitions))
    ]


def run(
    task: Task,
    days: tuple[int, int, int] = (HISTORY_DAYS, WARM_UP_DAYS, SCORED_DAYS),
    budgets: tuple[float, ...] = (),
) -> Part:
    """Simulate the strategies of a figure on one set of offers.

    Parameters
    ----------
    task : Task
    days : tuple of int
        Days of history, warm-up and score.
    budgets : tuple of float
        Crawls per offer and day; those of the paper if empty.
    """
    strategies, of_paper = _STRATEGIES[task.figure]
    budgets = budgets or of_paper
    history, warm_up, scored = days
    # Offers of a set are the same in all figures.
    offers = generate(task.pages, history + warm_up + scored, (task.seed << 16) + task.dataset)
    sources = {
        "h": commerce.history_averages(offers),
        "h_floor": commerce.history_averages(offers, floor_per_day=FLOOR_PER_DAY),
        "ml": commerce.learned(offers),
        "meta": commerce.learned(offers, metadata_only=True),
    }
    used = {arm.source for s in strategies for arm in s.arms}
    out = commerce.simulate(
        offers,
        strategies,
        budgets,
        {name: source for name, source in sources.items() if name in used},
        first_day=history,
        warm_up_days=warm_up,
        repetitions=task.repetitions,
        seed=task.seed,
    )
    fresh = {
        s.name: {"click": out.click_freshness[i], "offer": out.offer_freshness[i]}
        for i, s in enumerate(strategies)
    }
    crawls = {s.name: out.crawls[i].astype(np.float64) for i, s in enumerate(strategies)}
    return Part(task, budgets, fresh, crawls, out)
