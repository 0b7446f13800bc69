"""Whether a source will answer, by its last answers and failures.

That a refresh fails tells nothing of the source's yield, but that the next one may be wasted too. A source
that is alive answers a share of its asks, the usual one; after m failures in a row it is alive with

    1 / (1 + GONE (1 - usual)^-m)

by Bayes' rule: ten failures are much for one that always answered, and little for one that seldom does. One
that is gone, for F hours, is back after h more with p = h / (h + F), as things are that end at any time alike
(Gott 1993); asking now is worth what that is above h times its slope, p^2, since later it is likelier to be
back. So what is gone is asked at ever longer distances.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.discovery.items import Items
from policies.numerics.typing_ import FloatArray, IntArray

DECAY: Final = 0.5 ** (1.0 / 24.0)
"""What is kept of what earlier asks told at each ask."""
PRIOR: Final = 2.0
"""Asks, all answered, that are thought to have been before the first."""
GONE: Final = 0.001
"""Odds that a source which fails is gone, before its failures are counted."""
_MOST_USUAL: Final = 0.98
_LEAST: Final = 1e-9
_MOST_LOG: Final = 500.0


class Answers:
    """Answers of n sources.

    Attributes
    ----------
    answered, asked : (n,) float64
        Sums that decay by `DECAY` at each ask. Failures count when an answer follows them.
    failures : (n,) float64
        In a row, since the last answer.
    failed_hours, asked_hours : (n,) float64
        When the first of them came, and the last ask, hours since 1970-01-01 UTC; NaN: none.
    """

    def __init__(self, items: Items) -> None:
        n = len(items)
        self.answered, self.asked, self.failures = np.zeros(n), np.zeros(n), np.zeros(n)
        self.failed_hours, self.asked_hours = np.full(n, np.nan), np.full(n, np.nan)

    def learn(self, asked: IntArray, answered: IntArray, now_hours: float) -> None:
        """Take in which of the sources that were asked have answered: items, ascending."""
        failed = np.setdiff1d(asked, answered, assume_unique=True)
        self.failures[failed] += 1.0
        # What answers was not gone: its failures were of the usual kind.
        kept = DECAY ** (self.failures[answered] + 1.0)
        self.answered[answered] = self.answered[answered] * kept + 1.0
        self.asked[answered] = self.asked[answered] * kept + self.failures[answered] + 1.0
        self.failures[answered] = 0.0
        self.failed_hours[answered] = np.nan
        first = failed[np.isnan(self.failed_hours[failed])]
        self.failed_hours[first] = now_hours
        self.asked_hours[asked] = now_hours

    @property
    def usual(self) -> FloatArray:
        """Share of the asks that sources answer which are alive: (n,) float64."""
        return np.minimum((self.answered + PRIOR) / (self.asked + PRIOR), _MOST_USUAL)

    def _alive(self, usual: FloatArray) -> FloatArray:
        log = np.minimum(-self.failures * np.log1p(-usual), _MOST_LOG)
        return np.where(self.failures > 0.0, 1.0 / (1.0 + GONE * np.exp(log)), 1.0)

    def worth(self, now_hours: float) -> FloatArray:
        """Of asking now, over that of a source that always answers: (n,) float64."""
        usual = self.usual
        alive = self._alive(usual)
        hours, down = now_hours - self.asked_hours, self.asked_hours - self.failed_hours
        back = np.where(np.isnan(down), 1.0, hours / np.maximum(hours + down, _LEAST))
        return np.asarray(alive * usual + (1.0 - alive) * np.minimum(usual, back**2), np.float64)
