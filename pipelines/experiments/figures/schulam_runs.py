"""Runs for the figures of Schulam and Muslea 2023: crawlers on drawn domains, and on given sections."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.discovery import drawn, metrics
from policies.discovery.presences import US_PER_HOUR, Presences
from policies.numerics.typing_ import FloatArray
from transforms.dialects import CANONICAL
from transforms.files.blocks import How
from transforms.intake.sources import ROWS, plan_files, read_split
from transforms.replay.discovering import ORACLE, play
from transforms.replay.link_histories import LinkSettings, build
from transforms.rows.normalise import REPLAYED

BUDGETS: Final = (5, 10, 20)
GIVEN_BUDGETS: Final = (1, 2, 5)
POLICIES: Final = (
    ORACLE,
    "thompson",
    "pham",
    "thompson-skip-first",
    "pham-skip-first",
    "round-robin",
    "recrawl",
)
SHARED: Final = "RECRAWL_SHARED"
_FOLDER: Final = ("data", "discovery", "news_de_sections")
_COLUMNS: Final = {
    "links": ("source=source_id", "target=link_url", "appeared_at=add_time", "gone_at=remove_time"),
    "snapshots": ("source=source_id", "seen_at=time"),
}
_GIVEN_WARM_UP_HOURS: Final = 24.0
_GIVEN_SEEDS: Final = 6
_POINTS: Final = 100
_PARTS_OF_WARM_UP: Final = 7  # the first of seven weeks


@dataclass(frozen=True)
class Task:
    """One drawn domain, or the given sections where `pages` is 0."""

    pages: int
    repetition: int
    hours: int
    seed: int


@dataclass(frozen=True)
class Part:
    """What came of a task.

    Attributes
    ----------
    task : Task
    domains : tuple of str
    budgets : tuple of int
    policies : tuple of str
    values : (policies, budgets, domains, 5) float64
        Coverage, overhead, HTD-P90, share found within 3 h, and the Oracle's way to count coverage with
        targets of the warm-up among all; means over seeds.
    hours : (t,) float64
    regret : (policies, budgets, domains, t) float64
        Percent.
    """

    task: Task
    domains: tuple[str, ...]
    budgets: tuple[int, ...]
    policies: tuple[str, ...]
    values: FloatArray
    hours: FloatArray
    regret: FloatArray


def given_folder() -> str | None:
    """Where the given sections are, if they are."""
    root = os.environ.get(SHARED)
    folder = os.path.join(root, *_FOLDER) if root else ""
    return folder if os.path.isdir(folder) else None


def tasks(pages: Sequence[int], repetitions: int, until: float, seed: int, at_once: int) -> list[Task]:
    """The largest first; the given sections last."""
    found = [Task(m, r, round(until), seed) for m in sorted(pages, reverse=True) for r in range(repetitions)]
    return found + ([Task(0, 0, 0, seed)] if given_folder() else [])


def run(task: Task) -> Part:
    """Play all crawlers."""
    if task.pages == 0:
        return _given(task)
    history = drawn.draw(task.seed, task.repetition, task.pages, task.hours)
    warm_up = task.hours / _PARTS_OF_WARM_UP
    return _played(task, history, ("drawn",), BUDGETS, [task.seed * 1_000_003 + task.repetition], warm_up)


def _given(task: Task) -> Part:
    folder = given_folder()
    assert folder is not None
    batches = []
    for kind, columns in _COLUMNS.items():
        pairs = tuple((ours, theirs) for ours, _, theirs in (c.partition("=") for c in columns))
        for split in plan_files(os.path.join(folder, f"{kind}.tsv.gz"), kind, True, How(CANONICAL, pairs)):
            batches += [batch for tag, batch in read_split(split, REPLAYED[kind]) if tag == ROWS]
    warm_up_us = round(_GIVEN_WARM_UP_HOURS * US_PER_HOUR)
    made = build(batches, LinkSettings(None, None, US_PER_HOUR, warm_up_us, True, False))
    seeds = [task.seed + i for i in range(_GIVEN_SEEDS)]
    part = _played(task, made.whole, made.domains, GIVEN_BUDGETS, seeds, _GIVEN_WARM_UP_HOURS)
    kept = [i for i, n in enumerate(made.sources_of) if n > 1]  # in others there is no choice
    names = tuple(made.domains[i] for i in kept)
    values, regret = part.values[:, :, kept], part.regret[:, :, kept]
    return Part(task, names, part.budgets, part.policies, values, part.hours, regret)


def _played(
    task: Task,
    history: Presences,
    domains: tuple[str, ...],
    budgets: tuple[int, ...],
    seeds: Sequence[int],
    warm_up_hours: float,
) -> Part:
    begin = int(np.ceil(warm_up_hours))
    steps = np.unique(np.linspace(begin, history.steps - 1, _POINTS).round().astype(np.int64))
    first = history.first_step()
    there = np.bincount(history.target_domain[first < history.steps], minlength=history.domains)
    values, regret, best = [], [], None
    for policy in POLICIES:
        judged = play(history, policy, budgets, seeds, warm_up_hours)
        best = judged.found if best is None else best
        total = judged.found[:, :, -1] / there
        numbers = [judged.coverage, judged.overhead, judged.htd_p90, judged.within[1], total]
        behind = metrics.regret(judged.found, best)[:, :, steps]
        by_budget = (len(budgets), len(seeds), history.domains, -1)
        values.append(np.stack(numbers, axis=-1).reshape(by_budget).mean(axis=1))
        regret.append(behind.reshape(by_budget).mean(axis=1))
    hours = (steps + 1 - begin).astype(np.float64)
    return Part(task, domains, budgets, POLICIES, np.stack(values), hours, np.stack(regret))
