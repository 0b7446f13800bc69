"""What the simulated figures of Busa-Fekete et al. run: settings, and tasks that any process can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from pipelines.experiments.figures import stand_ins
from policies.numerics.typing_ import FloatArray
from policies.simulation.experiments import Experiment, simulate
from policies.simulation.slots import slot_times
from policies.simulation.streams import Delay, Instance, generator, uniform_instance

BANDWIDTH: Final = 100.0
RECALL: Final = (0.25, 0.25)
FALSE_SIGNALS: Final = (0.1, 0.6)
DELAY_SLOTS: Final = 6.0
DISCARD_SLOTS: Final = 5.0
NO_DELAY: Final = "GREEDY-NCIS (no delay)"
CORRUPTIONS: Final = (0.0, 0.1, 0.2)
STEPPED: Final = "100, 150, 100"
_WIDER: Final = 150.0


@dataclass(frozen=True)
class Variant:
    """Policies run together on the streams of a repetition.

    Attributes
    ----------
    policies : tuple of str
    called : dict of str to str
        Other names in the results.
    more : dict of str to float or str
        Values of further columns.
    bandwidth : float
        Crawls per time unit; 0: one for each 20 pages.
    raised : bool
        Whether the bandwidth is half as much again in the middle third.
    delay : {"none", "poisson"}
    corruption : float
        Share of noise in the precision and recall that policies are told.
    """

    policies: tuple[str, ...]
    called: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, float | str] = field(default_factory=dict)
    bandwidth: float = BANDWIDTH
    raised: bool = False
    delay: Delay = "none"
    corruption: float = 0.0

    def crawls(self, pages: int) -> float:
        """Bandwidth with so many pages; while it is raised, the lower one."""
        return self.bandwidth or pages / 20.0


@dataclass(frozen=True)
class Setting:
    """What a figure simulates.

    Attributes
    ----------
    variants : tuple of Variant
    pages : tuple of int
    repetitions : int
    until : float
    recall, false_signals : as `uniform_instance`
        Without recall there are no signals.
    stand_in : bool
        Whether pages are those that stand in for the data set of Kolobov et al.
    warm_up : float
        Share of the time that is not scored.
    rates : bool
        Whether crawl rates of pages are wanted.
    windows : bool
        Whether accuracy in each time unit is wanted.
    checks : bool
        Whether to score by drawn requests and from the start as well.
    """

    variants: tuple[Variant, ...]
    pages: tuple[int, ...]
    repetitions: int = 100
    until: float = 1000.0
    recall: tuple[float, float] | None = RECALL
    false_signals: tuple[float, float] | None = FALSE_SIGNALS
    stand_in: bool = False
    warm_up: float = 0.1
    rates: bool = False
    windows: bool = False
    checks: bool = False


_SIZES: Final = (100, 200, 500, 750, 1000)
_LATE: Final = Variant(
    ("GREEDY-NCIS", "GREEDY-NCIS-D", "GREEDY", "BASELINE"), more={"delay": "poisson"}, delay="poisson"
)
_CHANGING: Final = Variant(("GREEDY",), more={"schedule": STEPPED}, raised=True)
_REAL: Final = Variant(("GREEDY-CIS+", "GREEDY-NCIS"), bandwidth=0.0)

SETTINGS: Final[Mapping[str, Setting]] = {
    "busa-fekete-3": Setting(
        (Variant(("GREEDY", "LDS", "BASELINE")),), _SIZES, recall=None, false_signals=None, checks=True
    ),
    "busa-fekete-4": Setting((Variant(("GREEDY", "GREEDY-CIS", "BASELINE")),), _SIZES, false_signals=None),
    "busa-fekete-5": Setting(
        (Variant(("GREEDY", "GREEDY-CIS", "BASELINE")),), (100, 300), 10, false_signals=None, rates=True
    ),
    "busa-fekete-6": Setting(
        (Variant(("GREEDY", "GREEDY-CIS", "GREEDY-NCIS", "G-NCIS-APPROX-1", "G-NCIS-APPROX-2", "BASELINE")),),
        (*_SIZES, 10_000),
        checks=True,
    ),
    "busa-fekete-7": Setting(
        (Variant(("GREEDY", "GREEDY-CIS", "GREEDY-NCIS", "BASELINE")),), (100, 500), 10, rates=True
    ),
    "busa-fekete-8": Setting(
        tuple(
            replace(
                _REAL,
                policies=("GREEDY", *_REAL.policies) if p == 0.0 else _REAL.policies,
                more={"corruption": p},
                corruption=p,
            )
            for p in CORRUPTIONS
        ),
        (100_000,),
        10,
        200.0,
        stand_in=True,
    ),
    "busa-fekete-10": Setting(
        (Variant(("GREEDY", "LDS", "BASELINE")),),
        (100, 500),
        10,
        recall=None,
        false_signals=None,
        warm_up=0.0,
        rates=True,
    ),
    "busa-fekete-11": Setting(
        (
            _LATE,
            Variant(("GREEDY-NCIS",), {"GREEDY-NCIS": NO_DELAY}, {"delay": "none"}),
        ),
        _SIZES,
    ),
    "busa-fekete-12": Setting(
        (
            _CHANGING,
            *(
                replace(_CHANGING, more={"schedule": f"{r:g}"}, bandwidth=r, raised=False)
                for r in (BANDWIDTH, _WIDER)
            ),
        ),
        (1000,),
        until=400.0,
        recall=None,
        false_signals=None,
        windows=True,
    ),
}


@dataclass(frozen=True)
class Task:
    """Some repetitions of a figure at one number of pages."""

    figure: str
    pages: int
    repetitions: tuple[int, ...]
    until: float
    seed: int


@dataclass(frozen=True)
class Cell:
    """A policy in the repetitions of a task.

    Attributes
    ----------
    policy : str
    more : dict of str to float or str
    bandwidth : float
        Crawls per time unit on average.
    accuracy, sampled, from_start : (R,) float64
        After the warm-up; over drawn requests; from the start. NaN where not asked for.
    rate : (R, m) float64 or None
        Crawls per time unit.
    over_time : (R, k) float64 or None
        In each time unit.
    """

    policy: str
    more: Mapping[str, float | str]
    bandwidth: float
    accuracy: FloatArray
    sampled: FloatArray
    from_start: FloatArray
    rate: FloatArray | None
    over_time: FloatArray | None


@dataclass(frozen=True)
class Part:
    """What a task gave.

    Attributes
    ----------
    task : Task
    cells : list of Cell
    recall, change_rate : (R, m) float64 or None
        Of pages, where crawl rates are wanted.
    """

    task: Task
    cells: list[Cell]
    recall: FloatArray | None
    change_rate: FloatArray | None


def tasks(
    name: str, pages: Sequence[int], repetitions: int, until: float, seed: int, at_once: int
) -> list[Task]:
    """Repetitions shared out to `at_once` workers, the most pages first.

    Repetitions that run together cost less than one after the other, and come out the same.
    """
    each = -(-repetitions // at_once)
    return [
        Task(name, n, tuple(range(first, min(first + each, repetitions))), until, seed)
        for n in sorted(set(pages), reverse=True)
        for first in range(0, repetitions, each)
    ]


def pages_of(setting: Setting, pages: int, rng: np.random.Generator) -> Instance:
    """The pages of a repetition."""
    if setting.stand_in:
        return stand_ins.pages(pages, rng)
    return uniform_instance(pages, rng, setting.recall, setting.false_signals)


def run(task: Task) -> Part:
    """Simulate the repetitions of a task."""
    setting = SETTINGS[task.figure]
    make = partial(pages_of, setting, task.pages)
    cells = [cell for variant in setting.variants for cell in _variant(setting, variant, task, make)]
    if not setting.rates:
        return Part(task, cells, None, None)
    instances = [make(generator(task.seed, number, "instance")) for number in task.repetitions]
    return Part(
        task,
        cells,
        np.stack([instance.recall for instance in instances]),
        np.stack([instance.change_rate for instance in instances]),
    )


def _variant(setting: Setting, variant: Variant, task: Task, make: partial[Instance]) -> list[Cell]:
    crawls = variant.crawls(task.pages)
    bandwidth: float | list[tuple[float, float]] = crawls
    if variant.raised:
        bandwidth = [(0.0, crawls), *zip(raised_between(task.until), (_WIDER, crawls), strict=True)]
    warm_up = setting.warm_up * task.until
    edges = None
    if setting.windows:
        edges = np.arange(0.0, np.floor(task.until) + 1.0)
    elif setting.checks:
        edges = np.array([0.0, task.until])
    experiment = Experiment(
        variant.policies,
        bandwidth,
        task.until,
        warm_up,
        variant.delay,
        DELAY_SLOTS / crawls if variant.delay != "none" else 0.0,
        DISCARD_SLOTS / crawls,
        edges,
        setting.checks,
    )
    believed = partial(stand_ins.corrupted, variant.corruption) if variant.corruption else None
    found = simulate(experiment, make, task.seed, task.repetitions, believed)
    mean = slot_times(bandwidth, task.until).size / task.until
    nothing = np.full(len(task.repetitions), np.nan)
    return [
        Cell(
            variant.called.get(policy, policy),
            variant.more,
            mean,
            found.accuracy[j],
            found.sampled[j],
            found.over_time[j, :, 0] if setting.checks else nothing,
            found.crawl_rate[j] if setting.rates else None,
            found.over_time[j] if setting.windows else None,
        )
        for j, policy in enumerate(found.policies)
    ]


def raised_between(until: float) -> tuple[float, float]:
    """When the bandwidth rises and falls: 133 and 266 of 400 time units, in whole time units."""
    return float(np.floor(until * 133.0 / 400.0)), float(np.floor(until * 266.0 / 400.0))
