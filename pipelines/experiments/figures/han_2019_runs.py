"""What Tables 2 and 3 of Han et al. 2019 run: all models on one set of pages under one observability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from pipelines.experiments.figures import trained
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.predictors.frequencies import Frequency, MostRecent
from policies.predictors.hazard import Hazard, combined
from policies.predictors.predictor import Predictor, probability
from policies.predictors.scores import SUBSETS, Scores, calibration, scores
from policies.simulation.offers import generate
from policies.simulation.predicting import FULL, PARTIAL, Pages, Task, make_task, refitted
from policies.simulation.streams import generator

SEEN, UNSEEN = "seen", "unseen"
OBSERVED: Final = (PARTIAL, FULL)
DAYS: Final = 123
"""From May to August, as in the paper."""

MONDAY_US: Final = 4 * 86_400_000_000
"""The first Monday of 1970: that on which drawn offers begin."""

OURS, ONCE, ESTIMATOR = "recrawl", "recrawl (fitted once)", "estimator"
DNN_METADATA, DNN_BOTH, TREES = "DNN (metadata)", "DNN (metadata + frequency)", "gradient boosting"
COMBINED: Final = "frequency (combined)"
WINDOWS: Final = ("1 day", "1 week", "1 month")
GROUP, PAGE = "category", "page"


def frequency(of: str, window: str) -> str:
    """Name of a frequency model."""
    return f"frequency ({of}, {window})"


def most_recent(of: str) -> str:
    """Name of the model that knows the last change only."""
    return f"most recent ({of})"


BASELINES: Final = (
    *(frequency(GROUP, w) for w in WINDOWS),
    most_recent(GROUP),
    *(frequency(PAGE, w) for w in WINDOWS),
    most_recent(PAGE),
    COMBINED,
)
MODELS: Final = (*BASELINES, DNN_METADATA, DNN_BOTH, TREES, ESTIMATOR, ONCE, OURS)


@dataclass(frozen=True)
class Run:
    """One set of pages under one observability; of drawn offers, how many and which."""

    dataset: str
    observability: str
    horizon_hours: int
    seed: int
    given: Pages | None = None
    offers: int = 0


@dataclass(frozen=True)
class Cell:
    """A model on the seen or the unseen pages of a run, with calibration by tenths, (10,) each."""

    dataset: str
    observability: str
    model: str
    pages: str
    scores: Scores
    predicted: FloatArray
    found: FloatArray


def runs(
    pages: Sequence[int], repetitions: int, until: float, seed: int, at_once: int, horizon_hours: int = 6
) -> list[Run]:
    """Runs on drawn offers, the most first."""
    return [
        Run(f"offers-{n}-{r}", how, horizon_hours, seed + r, offers=n)
        for n in sorted(set(pages), reverse=True)
        for r in range(repetitions)
        for how in OBSERVED
    ]


def runs_of(given: Pages, repetitions: int, seed: int, horizon_hours: int) -> list[Run]:
    """Runs on a given history; repetitions draw crawls, and which pages are unseen, anew."""
    name = "{0}" if repetitions == 1 else "{0}-{1}"
    return [
        Run(name.format(given.name, r), how, horizon_hours, seed + r, given)
        for r in range(repetitions)
        for how in OBSERVED
    ]


def drawn(offers: int, name: str, seed: int) -> Pages:
    """Price offers with the statistics of the paper; merchants are hosts."""
    found = generate(offers, DAYS, seed)
    metadata = np.column_stack([found.category, found.country, found.merchant]) + 1
    return Pages(name, found.history(MONDAY_US), found.merchant, found.category, found.merchant, metadata)


def _models(seed: int) -> Iterator[tuple[str, Predictor, bool]]:
    """Models that are fitted once, and whether they stand on the estimator."""
    for of in (GROUP, PAGE):
        for number, window in enumerate(WINDOWS):
            yield frequency(of, window), Frequency(number, of == GROUP), False
        yield most_recent(of), MostRecent(of == GROUP), False
    yield COMBINED, combined(), False
    if trained.has_keras():
        yield DNN_METADATA, trained.Dnn(False, seed), False
        yield DNN_BOTH, trained.Dnn(True, seed), False
    if trained.has_trees():
        yield TREES, trained.Boosted(seed), False
    yield ONCE, Hazard(), True


def run(this: Run) -> list[Cell]:
    """Fit and score all models."""
    pages = this.given or drawn(this.offers, this.dataset, this.seed)
    task = make_task(pages, this.horizon_hours, this.observability, this.seed)
    return [cell for name, p in _predictions(task, this.seed) for cell in _cells(this, task, name, p)]


def _predictions(task: Task, seed: int) -> Iterator[tuple[str, FloatArray]]:
    train, test = task.train, task.test
    yield ESTIMATOR, probability(test.offset, np.zeros(len(test.rows)))
    for name, model, ours in _models(seed):
        model.fit(train.rows, train.offset if ours else train.log_days)
        yield name, probability(test.offset if ours else test.log_days, model.log_multiplier(test.rows))
    yield OURS, probability(test.offset, refitted(task, Hazard()))


def _cells(this: Run, task: Task, model: str, p: FloatArray) -> Iterator[Cell]:
    changed, seen = task.test.rows.changed, task.seen[task.test.rows.page]
    subset: IntArray = generator(this.seed, 0, "subsets").integers(0, SUBSETS, len(changed))
    kinds: tuple[tuple[str, BoolArray], ...] = ((SEEN, seen), (UNSEEN, ~seen))
    for kind, rows in kinds:
        predicted, found = calibration(p[rows], changed[rows])
        of = scores(p[rows], changed[rows], subset[rows])
        yield Cell(this.dataset, this.observability, model, kind, of, predicted, found)
