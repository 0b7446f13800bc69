"""What a network knows when a page is asked for: features of Han et al. 2019, from the crawls that were made.

It is trained before the replay on pages that were watched every hour, and goes by what its own strategy has
found from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.predictors.network import Network
from policies.predictors.rows import WINDOWS_DAYS, Rows
from policies.simulation.histories import ChangeHistory

AHEAD_HOURS: Final = 6
"""A network tells whether a page changes in so many hours."""
US_PER_HOUR: Final = US_PER_DAY // 24
_WINDOWS: Final = tuple(int(days) for days in WINDOWS_DAYS)

Train = Callable[[Rows, bool, int], Network]
"""From rows, with or without frequencies, and a seed to weights."""


class Findings:
    """Changes that crawls of n pages have found.

    Parameters
    ----------
    group : (n,) int64
        By which changes are counted beside those of the page.
    metadata : (n, m) int64
        Values by number, from 1 on.
    first_us : (n,) int64
        Since when there is a copy.
    """

    def __init__(self, group: IntArray, metadata: IntArray, first_us: IntArray) -> None:
        n = len(group)
        self._group, self._metadata = group, metadata
        # Of today, and of each of the days before.
        self._count = np.zeros((_WINDOWS[-1] + 1, n))
        self._changed_us, self._ever = first_us.copy(), np.zeros(n, np.bool_)
        self._watched = np.zeros(n, np.bool_)
        self._night_us = 0
        self.midnight(0)

    def copy(self) -> Findings:
        """To go on from here."""
        made = object.__new__(Findings)
        made.__dict__ = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self.__dict__.items()}
        return made

    def crawled(self, page: IntArray, at_us: IntArray, changed: BoolArray) -> None:
        """Take in crawls of pages, each once."""
        self._watched[page] = True
        found = page[changed]
        self._count[0, found] += 1.0
        self._changed_us[found] = at_us[changed]
        self._ever[found] = True

    def midnight(self, at_us: int) -> None:
        """Begin a day, if that has not begun."""
        if at_us != self._night_us:
            self._count = np.concatenate([np.zeros((1, self._count.shape[1])), self._count[:-1]])
            self._night_us = at_us
        total = np.concatenate([np.zeros((1, self._count.shape[1])), np.cumsum(self._count[1:], axis=0)])
        # Of whole days, up to the one that the window begins in.
        self._whole, self._begun = total[[w - 1 for w in _WINDOWS]], self._count[list(_WINDOWS)]
        own = np.concatenate([total[list(_WINDOWS)], [(at_us - self._changed_us) / US_PER_DAY]])
        own *= self._watched
        many = np.bincount(self._group, self._watched)[self._group] - self._watched
        alone = many < 1.0
        others = np.where(alone, self._watched.sum() - self._watched, many)
        of = np.array([np.bincount(self._group, row)[self._group] for row in own])
        self._others = (np.where(alone, own.sum(axis=1, keepdims=True), of) - own) / np.maximum(others, 1.0)

    def rows(self, page: IntArray, at_us: IntArray) -> Rows:
        """What is known of pages at an instant each: k rows."""
        gone = np.clip((at_us - self._night_us) / US_PER_DAY, 0.0, 1.0)
        count = self._count[0, page] + self._whole[:, page] + (1.0 - gone) * self._begun[:, page]
        since, zero = (at_us - self._changed_us[page]) / US_PER_DAY, np.zeros(len(page))
        of = self._others[:, page]
        return Rows(
            page, np.full(len(page), AHEAD_HOURS / 24.0), count, np.maximum(since, 0.0), self._ever[page],
            of[:-1], np.maximum(of[-1], 0.0), zero, at_us // US_PER_DAY,
            at_us % US_PER_DAY // US_PER_HOUR, self._metadata[page], np.zeros(len(page), np.bool_),
        )  # fmt: skip


def watched_rows(
    findings: Findings, history: ChangeHistory, page: IntArray, from_us: int, until_us: int
) -> Rows:
    """Rows of pages that are crawled every hour, four a day of each: what a network learns from.

    Parameters
    ----------
    findings : Findings
        Gets what is found.
    history : ChangeHistory
    page : (t,) int64
        Those that are watched, as long as they are there.
    from_us, until_us : int
        Whole days.
    """
    parts, turn = [], page % AHEAD_HOURS
    ahead_us = AHEAD_HOURS * US_PER_HOUR
    for before, at in pairwise(range(from_us, until_us + 1, US_PER_HOUR)):
        there = page[history.first_us[page] <= before]
        moment = np.full(len(there), at)
        changed = history.version(there, moment) != history.version(there, moment - US_PER_HOUR)
        findings.crawled(there, moment, changed)
        hour = at // US_PER_HOUR
        if (at - from_us) % US_PER_DAY == 0:
            findings.midnight(at)
        asked = there[turn[history.first_us[page] <= before] == hour % AHEAD_HOURS]
        if at + ahead_us <= until_us and len(asked):
            moment = np.full(len(asked), at)
            rows = findings.rows(asked, moment)
            rows.changed[:] = history.version(asked, moment + ahead_us) != history.version(asked, moment)
            parts.append(rows)
    return Rows.concatenated(parts)


@dataclass(frozen=True)
class Trained:
    """A network, whether it knows frequencies, and what was found when a replay begins."""

    network: Network
    frequencies: bool
    findings: Findings

    def score(self, findings: Findings, page: IntArray, at_us: IntArray) -> FloatArray:
        """Log-odds of a change in the next six hours: (k,) float64."""
        rows = findings.rows(page, at_us)
        return self.network.log_odds(rows.numbers(self.frequencies), rows.values())
