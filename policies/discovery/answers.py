"""Whether a source will answer, by its last answers and failures.

That a refresh fails tells nothing of the source's yield, but that the next one may be wasted too. A source
that is alive answers a share of its asks, the usual one; after m failures in a row it is alive with

    1 / (1 + GONE (1 - usual)^-m)

by Bayes' rule: ten failures are much for one that always answered, and little for one that seldom does. One
that is gone, for F hours, is back after h more with p = h / (h + F), as things are that end at any time alike
(Gott 1993); what it shows is worth what that is above h times its slope, p^2, since later it is likelier to
be back. To know that it is back is worth something, too: until somebody asks, it goes unread for

    L = h - F log(1 + h / F)

expected hours, and the best distance between asks is where h times the slope of L, less L, is the price of
one: for long F at the root of F. So what is gone is asked at ever longer distances, and yet in time.

Failures before an answer count against later asks as far as they are of a source that was alive, by the same
odds: what was away for a month, and is back, answers as well as before.
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
        away = self.asked_hours[answered] - self.failed_hours[answered]
        since = now_hours - self.asked_hours[answered]
        usual = alive_failures(self.failures[answered], self.usual[answered], away, since)
        kept = DECAY ** (usual + 1.0)
        self.answered[answered] = self.answered[answered] * kept + 1.0
        self.asked[answered] = self.asked[answered] * kept + usual + 1.0
        self.failures[answered] = 0.0
        self.failed_hours[answered] = np.nan
        first = failed[np.isnan(self.failed_hours[failed])]
        self.failed_hours[first] = now_hours
        self.asked_hours[asked] = now_hours

    @property
    def usual(self) -> FloatArray:
        """Share of the asks that sources answer which are alive: (n,) float64."""
        return usual_share(self.answered, self.asked)

    def _alive(self, usual: FloatArray) -> FloatArray:
        log = np.minimum(-self.failures * np.log1p(-usual), _MOST_LOG)
        return np.where(self.failures > 0.0, 1.0 / (1.0 + GONE * np.exp(log)), 1.0)

    def worth(self, now_hours: float) -> FloatArray:
        """Of what asking now shows, over that of a source that always answers: (n,) float64."""
        usual = self.usual
        alive = self._alive(usual)
        back = np.where(self.failures > 0.0, _back(*self._hours(now_hours)), 1.0)
        return np.asarray(alive * usual + (1.0 - alive) * np.minimum(usual, back**2), np.float64)

    def unread(self, now_hours: float) -> FloatArray:
        """What knowing now whether a source is back is worth, in hours of its reading: (n,) float64."""
        usual = self.usual
        since, away = self._hours(now_hours)
        made = usual * (1.0 - self._alive(usual)) * away * (np.log1p(since / away) - _back(since, away))
        return np.where(self.failures > 0.0, made, 0.0)

    def _hours(self, now_hours: float) -> tuple[FloatArray, FloatArray]:
        """Since the last ask, and from the first failure to it."""
        away = np.where(self.failures > 0.0, self.asked_hours - self.failed_hours, 0.0)
        since = np.where(np.isnan(self.asked_hours), 0.0, now_hours - self.asked_hours)
        return since, np.maximum(away, _LEAST)


def usual_share(answered: FloatArray, asked: FloatArray) -> FloatArray:
    """Share of the asks that sources answer which are alive: (n,) float64."""
    return np.minimum((answered + PRIOR) / (asked + PRIOR), _MOST_USUAL)


def alive_failures(
    failures: FloatArray, usual: FloatArray, away_hours: FloatArray, since_hours: FloatArray
) -> FloatArray:
    """How many of the failures before an answer were of a source that was alive: expected, (m,) float64.

    Parameters
    ----------
    failures : (m,) float64
        In a row, 0 or more.
    usual : (m,) float64
        Share of asks that are answered, as was thought before.
    away_hours, since_hours : (m,) float64
        From the first failure to the last, and from that to the answer; of no failure anything.
    """
    some = failures > 0.0
    likely = np.exp(np.maximum(failures * np.log1p(-usual), -_MOST_LOG))
    gone = GONE * np.where(some, _back(since_hours, away_hours), 0.0)
    return np.where(some, failures * likely / (likely + gone), 0.0)


def _back(since_hours: FloatArray, away_hours: FloatArray) -> FloatArray:
    """Odds that what was away is back."""
    return np.asarray(since_hours / np.maximum(since_hours + away_hours, _LEAST), np.float64)
