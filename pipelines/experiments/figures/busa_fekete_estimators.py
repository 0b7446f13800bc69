"""Figures 13 and 14 of Busa-Fekete et al.: precision and recall of signals estimated from crawls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.signals.mle import mle_two_param, naive_estimate
from policies.simulation.streams import generator

NAIVE, MLE = "naive", "MLE"
QUALITY: Final = (0.2, 0.95)
CHANGE_EVERY: Final = (2.0, 20.0)
CRAWLS_PER_CHANGE: Final = (0.25, 4.0)
HORIZON: Final = 100_000.0


@dataclass(frozen=True)
class Task:
    """One repetition."""

    pages: int
    repetition: int
    until: float
    seed: int


@dataclass(frozen=True)
class Part:
    """What a repetition gave.

    Attributes
    ----------
    task : Task
    crawls_per_change : (m,) float64
    change_rate : (m,) float64
    truth : (2, m) float64
        Precision and recall.
    found : dict of str to (2, m) float64
        The same as estimated.
    """

    task: Task
    crawls_per_change: FloatArray
    change_rate: FloatArray
    truth: FloatArray
    found: dict[str, FloatArray]


def tasks(pages: Sequence[int], repetitions: int, until: float, seed: int, at_once: int) -> list[Task]:
    """A task for each repetition."""
    return [Task(n, r, until, seed) for n in sorted(set(pages), reverse=True) for r in range(repetitions)]


def run(task: Task) -> Part:
    """Draw pages, changes, signals and crawls, and estimate."""
    m, until = task.pages, task.until
    rng = generator(task.seed, task.repetition, "estimators")
    precision, recall = rng.uniform(*QUALITY, (2, m))
    change = 1.0 / rng.uniform(*CHANGE_EVERY, m)
    per_change = np.exp(rng.uniform(*np.log(CRAWLS_PER_CHANGE), m))
    changed, signals, page, gap = _intervals(precision, recall, change, change * per_change, until, rng)
    fit = mle_two_param(page, gap, signals, changed, m)
    a, k = fit.unsignalled_rate_per_day, fit.signal_weight
    rate = np.bincount(page, signals, m) / np.bincount(page, gap, m)
    p = -np.expm1(-k)
    return Part(
        task,
        per_change,
        change,
        np.stack((precision, recall)),
        {
            NAIVE: np.stack(naive_estimate(page, signals, changed, m)),
            MLE: np.stack((p, p * rate / (a + p * rate))),
        },
    )


def _intervals(
    precision: FloatArray,
    recall: FloatArray,
    change: FloatArray,
    crawl: FloatArray,
    until: float,
    rng: np.random.Generator,
) -> tuple[BoolArray, IntArray, IntArray, FloatArray]:
    """Of every interval between crawls: whether it changed, its signals, its page, its length.

    Crawls are at even distances from a random first one, and intervals are between two crawls.
    """
    m = len(change)
    false = recall * change * (1.0 - precision) / precision
    first = rng.random(m)
    crawls = np.floor(until * crawl - first).astype(np.int64) + 1
    changes, false_signals = rng.poisson(change * until), rng.poisson(false * until)
    changed: list[BoolArray] = []
    signals: list[IntArray] = []
    for i in range(m):
        at = (first[i] + np.arange(max(int(crawls[i]), 0))) / crawl[i]
        times = until * rng.random(changes[i])
        told = times[rng.random(changes[i]) < recall[i]]
        heard = np.concatenate((told, until * rng.random(false_signals[i])))
        changed.append(_count(times, at) > 0)
        signals.append(_count(heard, at))
    page = np.repeat(np.arange(m), [len(x) for x in changed])
    return np.concatenate(changed), np.concatenate(signals), page, 1.0 / crawl[page]


def _count(times: FloatArray, edges: FloatArray) -> IntArray:
    """Events in (edge, next edge] for each edge but the last."""
    place = np.searchsorted(edges, times, side="left")
    return np.bincount(place, minlength=len(edges) + 1)[1 : len(edges)]
