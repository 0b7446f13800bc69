"""Crawlers to compare with: at random, in turn, of the paper, and by the hours since the last refresh."""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.discovery.answers import Answers
from policies.discovery.items import Items, Seen
from policies.discovery.lifetimes import MeanLifetimes, discounted, expected_there, worth_of_now
from policies.discovery.picking import gammas, top, uniforms
from policies.numerics.typing_ import FloatArray, IntArray

HOURS_A_DAY: Final = 24
_TIES, _DRAWS = 0, 1
_FIRST = 1e12
"""Score of a source that was never asked, for rules that look at each once before they compare."""


def hour_of_day(now_hours: float) -> int:
    """The hour that ends now, UTC: 0 to 23."""
    return (int(np.ceil(now_hours)) - 1) % HOURS_A_DAY


class Uniform:
    """Sources at random."""

    def __init__(self, items: Items) -> None:
        self._items = items

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        """See `Crawler`."""
        items = self._items
        score, tie = (uniforms(items.key, items.seed, step, purpose) for purpose in (_DRAWS, _TIES))
        return top(score, tie, items.group, items.k)

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        """Nothing."""


class RoundRobin:
    """The sources that were asked longest ago; at first by lot."""

    def __init__(self, items: Items) -> None:
        self._items = items
        self._asked = np.full(len(items), -1.0)
        self._tie = uniforms(items.key, items.seed, 0, _TIES)

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        """See `Crawler`."""
        picked = top(-self._asked, self._tie, self._items.group, self._items.k)
        self._asked[picked] = step
        return picked

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        """Nothing."""


class Thompson:
    """A Poisson yield for each source and hour of the day (Schulam and Muslea 2023, Figure 1).

    Parameters
    ----------
    items : Items
    first : bool
        Whether yields of first refreshes are learned from, as in the paper.
    """

    def __init__(self, items: Items, first: bool = True) -> None:
        self._items, self._first = items, first
        self._sum = np.zeros((HOURS_A_DAY, len(items)))
        self._count = np.zeros((HOURS_A_DAY, len(items)))

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        """See `Crawler`."""
        items, hour = self._items, hour_of_day(now_hours)
        draw, tie = (uniforms(items.key, items.seed, step, purpose) for purpose in (_DRAWS, _TIES))
        return top(gammas(self._sum[hour] + 1.0, self._count[hour] + 1.0, draw), tie, items.group, items.k)

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        """See `Crawler`."""
        if not self._first:
            seen = seen.take(seen.again)
        hour = hour_of_day(now_hours)
        self._sum[hour, seen.item] += seen.new
        self._count[hour, seen.item] += 1.0


class Elapsed:
    """New links an hour and one mean lifetime a source, so the expected yield after the hours since.

    Rates have a Gamma prior whose shape is 1 and whose mean is the group's. Sources are looked at once first.

    Parameters
    ----------
    items : Items
    sampled : bool
        Draw rates as Thompson does, or take their means.
    worth_hours : float, optional
        Wait for what is not urgent: rank by `lifetimes.worth_of_now` with this discount (inf: none) in place
        of the expected yield.
    """

    def __init__(self, items: Items, sampled: bool = False, worth_hours: float | None = None) -> None:
        self._items, self._sampled, self._worth = items, sampled, worth_hours
        self._one = np.ones((len(items), 1))
        self._new, self._exposure = np.zeros(len(items)), np.zeros(len(items))
        self.lifetimes, self.answers = MeanLifetimes(items), Answers(items)

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        """See `Crawler`."""
        items = self._items
        total = (items.sums(self._new) + 1.0) / (items.sums(self._exposure) + 1.0)
        shape, rate = self._new + 1.0, self._exposure + 1.0 / total[items.group]
        per_hour = shape / rate
        if self._sampled:
            per_hour = gammas(shape, rate, uniforms(items.key, items.seed, step, _DRAWS))
        mean = self.lifetimes.mean_hours[:, None]
        if self._worth is None:
            found = expected_there(self._one, due_hours, mean)
        else:
            found = worth_of_now(self._one, due_hours, discounted(mean, self._worth))
        # One that was asked and did not answer is compared with the others.
        never = np.isnan(self.answers.asked_hours)
        score = np.where(never, _FIRST, per_hour * found * self.answers.worth(now_hours))
        picked = top(score, uniforms(items.key, items.seed, step, _TIES), items.group, items.k)
        self._picked = picked
        return picked

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        """See `Crawler`."""
        self.answers.learn(self._picked, seen.item, now_hours)
        seen = seen.take(seen.again)
        item = seen.item
        mean = self.lifetimes.mean_hours[item, None]
        self._new[item] += seen.new
        self._exposure[item] += expected_there(self._one[item], seen.hours, mean)
        self.lifetimes.learn(item, seen.held, seen.kept, seen.hours)
