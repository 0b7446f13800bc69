"""What crawls of drawn pages show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policies.clocks.profile import NO_TIME, US_PER_DAY
from policies.dynamics.sums import Looks, Sums


def looks(changes: Sequence[np.ndarray], crawls: Sequence[np.ndarray]) -> Looks:
    """Intervals between crawls (days, ascending) of pages that change at some times (days, ascending)."""
    parts = []
    for changed_at, at in zip(changes, crawls, strict=True):
        changed = np.diff(np.searchsorted(changed_at, at)) > 0
        row = np.maximum.accumulate(np.where(changed, np.arange(len(changed)), -1))
        row = np.append(-1, row[:-1])
        begin, end = ((days * US_PER_DAY).astype(np.int64) for days in (at[:-1], at[1:]))
        last = (np.where(row >= 0, t[row], NO_TIME) for t in (begin, end))
        rate = np.full(len(changed), (changed.sum() + 0.5) / (at[-1] - at[0]))
        parts.append((begin, end, changed, rate, *last))
    columns = [np.concatenate(c) for c in zip(*parts, strict=True)]
    k = len(columns[0])
    drawn = np.random.default_rng(9).integers(0, 2**63, k).astype(np.uint64)
    return Looks(*columns, np.full(k, NO_TIME), np.zeros(k, np.bool_), drawn)


def sums(changes: Sequence[np.ndarray], crawls: Sequence[np.ndarray]) -> Sums:
    """The same as sums of one group."""
    found = looks(changes, crawls)
    return Sums.empty(1).add(found, np.zeros(len(found), np.int64))


def poisson(rng: np.random.Generator, pages: int, days: float, rate: float) -> list[np.ndarray]:
    """Times of events of each page, at any time."""
    return [np.sort(rng.uniform(0.0, days, rng.poisson(rate * days))) for _ in range(pages)]
