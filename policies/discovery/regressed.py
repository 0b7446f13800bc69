"""The crawler of Pham et al. 2018 for a job on state: see `pham` for the same from hour to hour.

Yields are regressed on what was known before each visit, of the visits of the last 168 hours, by whole days.
A run plans its whole horizon: the share that UCB1 picks goes where the highest yields are predicted, at one
price for all sources and hours, and the rest to sources that were not asked for longest. Then visits since
tell the share's reward, so one is tried a run; a job that runs every hour tries one an hour, as the paper
does. Of a day, one visit an hour of each source is kept for the mean and the spread of its yields.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policies.discovery.drawing import Drawn, steps_of
from policies.discovery.hours import HOURS
from policies.discovery.names import LEAST_PRICE
from policies.discovery.pham import (
    FEATURES,
    SHARES,
    TRAINING_HOURS,
    WINDOW_HOURS,
    best_share,
    features,
    weights,
)
from policies.discovery.pricing import MOST_PRICE, Chosen
from policies.discovery.sums import NEVER_S, Visits
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

_SOURCE: Final = 1 << 34
"""More than any instant, in seconds: a source and an instant are one number."""
_TRAINING_DAYS: Final = TRAINING_HOURS // HOURS
_SMALL: Final = 1e-6
STALEST_HOURS: Final = 1e5
"""Age of what was never asked; beyond it thresholds are none, and prices rise instead."""


@dataclass(frozen=True)
class Recent:
    """Visits that did not fail of a day, sorted by source and time.

    Attributes
    ----------
    source, at_s, new : (r,) int64
    """

    source: IntArray
    at_s: IntArray
    new: IntArray

    @classmethod
    def none(cls) -> Recent:
        return cls(*np.zeros((3, 0), np.int64))

    def last_of_hours(self, since_s: int) -> Recent:
        """Those after an instant, of each source and hour the last one: the paper has one an hour."""
        keep = self.at_s > since_s
        keep[:-1] &= (np.diff(self.source) != 0) | (np.diff(self.at_s // 3600) != 0)
        return Recent(self.source[keep], self.at_s[keep], self.new[keep])

    def moments(self, source: IntArray, at_s: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation of yields in the 24 hours before visits: (m,) float64 each."""
        key = self.source * _SOURCE + self.at_s
        sums = np.cumsum(
            np.concatenate([np.zeros((2, 1), np.int64), [self.new, self.new**2]], axis=1), axis=1
        )
        end = source * _SOURCE + at_s
        first, last = np.searchsorted(key, end - 3600 * WINDOW_HOURS, "right"), np.searchsorted(key, end)
        count = np.maximum(last - first, 1).astype(np.float64)
        mean, squares = (sums[:, last] - sums[:, first]) / count
        return mean, np.sqrt(np.maximum(squares - mean**2, 0.0))


@dataclass(frozen=True)
class Products:
    """Sums of products of features, yields among them, by day: what a shard knows.

    Attributes
    ----------
    day : (b,) int64
        Since 1970-01-01 UTC, ascending.
    total : (b, 35, 36) float64
    found, visits : int
        New links, and the visits that found them, of the run.
    """

    day: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    total: FloatArray = field(default_factory=lambda: np.zeros((0, FEATURES, FEATURES + 1)))
    found: int = 0
    visits: int = 0

    def learn(
        self, recent: Recent, visits: Visits, seen_s: IntArray, as_of_s: int
    ) -> tuple[Products, Recent]:
        """Take in visits; also returns those of the last day.

        Parameters
        ----------
        recent : Recent
            Of the run before.
        visits : Visits
        seen_s : (n,) int64
            The last visit of each source before these, `NEVER_S` of none.
        as_of_s : int
            Of the run.
        """
        source, at, new = (x[visits.ok] for x in (visits.source, visits.at_s, visits.new))
        joined = Recent(
            *(np.concatenate(x) for x in ((recent.source, source), (recent.at_s, at), (recent.new, new)))
        )
        order = np.lexsort((joined.at_s, joined.source))
        joined = Recent(joined.source[order], joined.at_s[order], joined.new[order])
        again = np.append(False, np.diff(source) == 0)[: len(source)]
        before = np.where(again, np.append(NEVER_S, at[:-1])[: len(at)], seen_s[source])
        age = np.where(before == NEVER_S, np.inf, (at - before) / 3600.0)
        x = features(*joined.moments(source, at), age, at // 3600)
        y = np.concatenate([x, new[:, None]], axis=1)
        day = at // 86_400
        kept = np.union1d(self.day, day)
        kept = kept[kept > as_of_s // 86_400 - _TRAINING_DAYS]
        total = np.zeros((len(kept), FEATURES, FEATURES + 1))
        old = np.isin(self.day, kept)
        total[np.searchsorted(kept, self.day[old])] = self.total[old]
        for place, number in enumerate(kept.tolist()):
            some = day == number
            # Not by a library of matrices: that may round by the number of its threads.
            total[place] += np.einsum("mi,mj->ij", x[some], y[some], optimize=False)
        made = Products(kept, total, int(new.sum()), len(new))
        return made, joined.last_of_hours(as_of_s - 3600 * WINDOW_HOURS)


@dataclass(frozen=True)
class Bandit:
    """UCB1 over `pham.SHARES`, each once at first.

    Attributes
    ----------
    pulls, reward : tuple of float
        Runs with each share after which something was visited, and the sum of their links found a visit.
    arm : int
        The share in force; -1 before the first run.
    """

    pulls: tuple[float, ...] = (0.0,) * len(SHARES)
    reward: tuple[float, ...] = (0.0,) * len(SHARES)
    arm: int = -1

    def after(self, found: int, visits: int) -> Bandit:
        """With what visits since have found; and the share for the next run."""
        pulls, reward = np.array(self.pulls), np.array(self.reward)
        if self.arm >= 0 and visits:
            pulls[self.arm] += 1.0
            reward[self.arm] += found / visits
        arm = int(best_share(pulls, reward, pulls.sum()))
        return Bandit(tuple(pulls.tolist()), tuple(reward.tolist()), arm)

    @property
    def share(self) -> float:
        """Of the refreshes, that follows predictions."""
        return float(SHARES[self.arm])


@dataclass(frozen=True)
class Regression:
    """What all shards tell.

    Attributes
    ----------
    weight : (35,) float64
    bandit : Bandit
    price : float, optional
        Predicted new links from which sources are refreshed whatever their age; None while it is searched.
    """

    weight: FloatArray
    bandit: Bandit
    price: float | None = None

    @classmethod
    def of(cls, parts: Sequence[Products], bandit: Bandit) -> Regression:
        """From all shards in their order."""
        total = np.zeros((FEATURES, FEATURES + 1))
        for part in parts:
            total += part.total.sum(axis=0)
        return cls(
            weights(total),
            bandit.after(sum(p.found for p in parts), sum(p.visits for p in parts)),
        )


@dataclass(frozen=True)
class Regressed(Drawn):
    """n sources that are refreshed where their predicted yield, or their age, reaches a threshold.

    Ages of which it depends follow from the refreshes that are planned before. The score of a step is without
    what grows with age.

    Attributes
    ----------
    slope : (n,) float64
        New links for each hour since the last visit.
    seen_hours, asked_hours : (n,) float64
        Ages at the beginning; inf: never.
    price : float, optional
        As in `Regression`: where it is given, ages are what is searched, and otherwise prices.
    """

    slope: FloatArray
    seen_hours: FloatArray
    asked_hours: FloatArray
    price: float | None = None

    @classmethod
    def predicted(
        cls,
        moments: tuple[FloatArray, FloatArray],
        ages_hours: tuple[FloatArray, FloatArray],
        regression: Regression,
        key: UIntArray,
        ends_hours: tuple[float, float],
        step_hours: float,
        at_least: FloatArray,
    ) -> Regressed:
        """For all steps between two instants.

        Parameters
        ----------
        moments : ((n,) float64, (n,) float64)
            Of `Recent.moments` at the beginning.
        ages_hours : ((n,) float64, (n,) float64)
            `seen_hours` and `asked_hours`.
        regression : Regression
        key, ends_hours, step_hours, at_least
            As of `Drawn.of`.
        """
        begin, end = ends_hours
        _, steps, due = steps_of(key, ends_hours, step_hours)
        weight, none = regression.weight, np.zeros(len(key))
        score = np.empty((len(key), steps))
        for step in range(steps):
            at = due + step * step_hours
            at_s = np.floor(3600.0 * (begin + at)).astype(np.int64)
            may = (at >= np.maximum(at_least, 0.0)) & (at < end - begin)
            base = (features(moments[0], moments[1], none, at_s // 3600) * weight).sum(axis=1)
            score[:, step] = np.where(may, base, -np.inf)
        at_s = np.full(len(key), int(3600.0 * begin))
        now = (features(moments[0], moments[1], ages_hours[0], at_s // 3600) * weight).sum(axis=1)
        slope = weight[2] + weight[3] * moments[0]
        made = score, due, step_hours, end - begin, np.maximum(now, 0.0)
        return cls(*made, slope, *ages_hours, regression.price)

    def take(self, rows: IntArray) -> Regressed:
        """Some of them."""
        some = self.score[rows], self.due[rows], self.step_hours, self.span, self.worth_now[rows]
        ages = self.slope[rows], self.seen_hours[rows], self.asked_hours[rows]
        return Regressed(*some, *ages, self.price)

    def _planned(self, at: FloatArray) -> tuple[BoolArray, FloatArray]:
        """At prices or ages: where refreshes are, and what they are predicted to find; (n, steps)."""
        if self.price is None:
            price, stalest = at, np.full(len(self), np.inf)
        else:
            # A host that is at its limit by predictions alone has a higher price.
            beyond = np.log(np.maximum(at / STALEST_HOURS, 1.0)) / math.log(MOST_PRICE / STALEST_HOURS)
            price, stalest = self.price * (MOST_PRICE / self.price) ** beyond, at
        chosen, found = np.zeros(self.score.shape, np.bool_), np.zeros(self.score.shape)
        seen, asked = self.seen_hours.copy(), np.minimum(self.asked_hours, STALEST_HOURS)
        for step in range(self.score.shape[1]):
            after = self.due + step * self.step_hours
            age = np.minimum(seen + after, TRAINING_HOURS)
            links = self.score[:, step] + self.slope * age
            # What predictions are below 0 is in their order, too: a budget is used up.
            value = np.where(links > _SMALL, links, _SMALL * np.exp(np.maximum(links - _SMALL, -8.0)))
            may = self.score[:, step] > -np.inf
            now = may & ((value >= price) | (np.minimum(asked + after, STALEST_HOURS) >= stalest))
            chosen[:, step], found[:, step] = now, np.maximum(links, LEAST_PRICE)
            seen[now] = asked[now] = -after[now]
        return chosen, found

    def asked(self, price: FloatArray) -> IntArray:
        """Refreshes at prices or ages, (n,) float64: (n,) int64."""
        return np.asarray(self._planned(price)[0].sum(axis=1), np.int64)

    def steps(self, chosen: Chosen) -> tuple[BoolArray, FloatArray]:
        """The first refreshes of each source, as many as were chosen, and what each is predicted to find."""
        planned, found = self._planned(chosen.at)
        return planned & (np.cumsum(planned, axis=1) <= chosen.count[:, None]), found
