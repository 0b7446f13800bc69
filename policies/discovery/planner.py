"""Recrawl's own crawler: the price of not refreshing a source now, from all that is known of it.

    index = (rate + a little) x worth of now (lifetimes, elapsed time by the clock of the day) x answers

Where links stay long and are worth something late, sources are waited for; where they go or lose their worth
within hours, it comes down to where most new ones are now. Which of both it is follows from what is learned
and from `worth_hours`, and needs no switch. Sources that were never seen come by the same index, with what
others of their group tell of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.discovery.answers import Answers
from policies.discovery.hours import DayHours
from policies.discovery.items import Items, Seen
from policies.discovery.lifetimes import CLASS_HOURS, Lifetimes, discounted, expected_there, worth_of_now
from policies.discovery.picking import top, uniforms
from policies.discovery.yields import Rates
from policies.numerics.typing_ import FloatArray, IntArray

WORTH_HOURS: Final = 8.0
LASTING: Final = 0.3
"""What a link is worth that is found with a delay: LASTING + (1 - LASTING) exp(-delay / WORTH_HOURS)."""
OPTIMISM: Final = 0.3
"""Standard deviations that rates are thought above their mean: who is little known is looked at."""
HALF_LIFE_HOURS: Final = 60 * 24.0
"""After which what was seen counts half."""
FIT_EVERY: Final = 3
"""Steps between fits of priors."""


class Planner:
    """The crawler; see the module."""

    def __init__(self, items: Items, worth_hours: float = WORTH_HOURS, lasting: float = LASTING) -> None:
        self._items = items
        self._lasting, self._class_hours = lasting, discounted(CLASS_HOURS, worth_hours)
        self._fit_hours = np.nan
        self._every = np.arange(len(items))
        self._before_hours = np.full(len(items), np.inf)
        self.lifetimes, self.rates = Lifetimes(items), Rates(items)
        self.day, self.answers = DayHours(items), Answers(items)

    def index(self, now_hours: float, due_hours: FloatArray) -> FloatArray:
        """Expected worth, new links, of a refresh now: (n,) float64."""
        elapsed = self.day.elapsed(self._every, now_hours, due_hours)
        shape, rate = self.rates.posterior()
        per_hour = (shape + OPTIMISM * np.sqrt(shape)) / rate
        soon, late = (
            worth_of_now(self.lifetimes.share, elapsed, hours) for hours in (self._class_hours, CLASS_HOURS)
        )
        worth = soon + self._lasting * (late - soon)
        found = worth * self.answers.worth(now_hours) + self._gain * self.answers.unread(now_hours)
        return np.asarray(per_hour * found, np.float64)

    @property
    def _gain(self) -> FloatArray:
        """What an hour of reading a source is worth beyond its refreshes, at even shares of the budget."""
        items, share = self._items, self.lifetimes.share
        even = (items.sums(np.ones(len(items))) / np.maximum(items.k, 1))[items.group, None]
        soon, late = ((share * np.exp(-even / h)).sum(axis=1) for h in (self._class_hours, CLASS_HOURS))
        return np.asarray(soon + self._lasting * (late - soon), np.float64)

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        """See `Crawler`."""
        items = self._items
        tie = uniforms(items.key, items.seed, step, 0)
        picked = top(self.index(now_hours, due_hours), tie, items.group, items.k)
        self._picked = picked
        return picked

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        """See `Crawler`."""
        self.answers.learn(self._picked, seen.item, now_hours)
        self.rates.links[seen.item] = seen.links
        seen = seen.take(seen.again)
        item = seen.item
        elapsed = self.day.elapsed(item, now_hours, seen.hours)
        exposure = expected_there(self.lifetimes.share[item], elapsed)
        self.rates.learn(item, seen.credit, exposure)
        shape, rate = self.rates.posterior()
        self.day.learn(item, now_hours, seen.hours, seen.credit, (shape / rate)[item])
        self.lifetimes.learn(item, seen.held, seen.kept, self._before_hours[item], elapsed)
        self._before_hours[item] = elapsed
        if step % FIT_EVERY == 0:
            self._forget(now_hours)
            self.day.fit()
            self.rates.fit_prior()

    def _forget(self, now_hours: float) -> None:
        """Let all sums decay by the hours since this was last done."""
        if not np.isnan(self._fit_hours):
            kept = 0.5 ** ((now_hours - self._fit_hours) / HALF_LIFE_HOURS)
            for sums in (
                self.rates.new,
                self.rates.exposure_hours,
                self.lifetimes.count,
                self.day.seen,
                self.day.expected,
            ):
                sums *= kept
        self._fit_hours = now_hours
