"""The crawler of Pham, Santos and Freire 2018 (section 5.3), as Schulam and Muslea 2023 use it (3.2.2).

A ridge regression tells the yield of each source from 35 features; a bandit, UCB1, tells which share of the
budget goes to the highest of these, and the rest goes to sources that were not refreshed for longest. With a
budget of 1 no share but 1 would ever explore if shares were rounded: so they are rounded at random, to the
right mean. Features of an empty window are 0; what was never refreshed counts as a week old.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.discovery.items import Items, Seen
from policies.discovery.picking import top, uniforms
from policies.discovery.rules import HOURS_A_DAY
from policies.numerics.typing_ import FloatArray, IntArray

SHARES: Final = np.array([0.6, 0.7, 0.8, 0.9, 1.0])
DAYS_A_WEEK: Final = 7
FEATURES: Final = 4 + HOURS_A_DAY + DAYS_A_WEEK
WINDOW_HOURS: Final = 24
TRAINING_HOURS: Final = 168
REFIT_HOURS: Final = 3
_RIDGE: Final = 1.0
_TIES, _STALE, _ROUNDS = 0, 2, 3


def features(mean: FloatArray, spread: FloatArray, age_hours: FloatArray, hour: int | IntArray) -> FloatArray:
    """What yields are regressed on: (m, 35) float64.

    Parameters
    ----------
    mean, spread : (m,) float64
        Of the yields of the last 24 hours; 0 of none.
    age_hours : (m,) float64
        Since the last visit that did not fail.
    hour : int or (m,) int64
        Of the visit, since a midnight in UTC.
    """
    age, every = np.minimum(age_hours, TRAINING_HOURS), np.arange(len(mean))
    made = np.zeros((len(mean), FEATURES))
    made[:, :4] = np.stack([mean, spread, age, mean * age], axis=1)
    made[every, 4 + hour % HOURS_A_DAY] = 1.0
    made[every, 4 + HOURS_A_DAY + hour // HOURS_A_DAY % DAYS_A_WEEK] = 1.0
    return made


def weights(total: FloatArray) -> FloatArray:
    """Ridge regression of sums of products, (..., 35, 36) with yields last: (..., 35) float64."""
    ridge = _RIDGE * np.eye(FEATURES)
    found = np.linalg.solve(total[..., :FEATURES] + ridge, total[..., FEATURES:])
    return np.asarray(found[..., 0], np.float64)


def best_share(pulls: FloatArray, reward: FloatArray, rounds: float) -> IntArray:
    """Which of `SHARES` UCB1 tries next, each once at first: (...,) int64.

    Parameters
    ----------
    pulls, reward : (..., 5) float64
        How often each was tried, and what it found in all.
    rounds : float
    """
    tried = np.maximum(pulls, 1.0)
    bound = reward / tried + np.sqrt(2.0 * np.log(max(rounds, 1.0)) / tried)
    return np.asarray(np.where(pulls > 0.0, bound, np.inf).argmax(axis=-1), np.int64)


class Pham:
    """The crawler; see the module.

    Parameters
    ----------
    items : Items
    step_hours : float
    first : bool
        Whether yields of first refreshes are learned from.
    """

    def __init__(self, items: Items, step_hours: float = 1.0, first: bool = True) -> None:
        n, g = len(items), items.groups
        self._items, self._first = items, first
        self._window = max(round(WINDOW_HOURS / step_hours), 1)
        self._refit = max(round(REFIT_HOURS / step_hours), 1)
        self._recent = np.zeros((self._window, 3, n))  # by step: refreshes, yields and their squares
        self._asked = np.full(n, -1.0)
        self._start = np.searchsorted(items.group, np.arange(g))
        # Sums of products, of yields among them, in blocks of steps between two fits.
        self._blocks = np.zeros((TRAINING_HOURS // REFIT_HOURS, g, FEATURES, FEATURES + 1))
        self._weight = np.zeros((g, FEATURES))
        self._pulls, self._reward = np.zeros((g, len(SHARES))), np.zeros((g, len(SHARES)))
        self._arm = np.zeros(g, np.int64)
        self._features = np.zeros((n, FEATURES))

    def _seen(self, now_hours: float, due_hours: FloatArray) -> FloatArray:
        count, total, squares = self._recent.sum(axis=0)
        mean = total / np.maximum(count, 1.0)
        spread = np.sqrt(np.maximum(squares / np.maximum(count, 1.0) - mean**2, 0.0))
        return features(mean, spread, due_hours, int(np.ceil(now_hours) - 1))

    def _shares(self, step: int) -> IntArray:
        """Refreshes of each group that go to the highest yields: UCB1, each share once at first."""
        self._arm = best_share(self._pulls, self._reward, step)
        items = self._items
        key, seed = items.key[self._start], items.seed[self._start]
        exact = items.k * SHARES[self._arm]
        return np.asarray(np.floor(exact + uniforms(key, seed, step, _ROUNDS)), np.int64)

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        """See `Crawler`."""
        items = self._items
        self._recent[step % self._window] = 0.0
        if step % self._refit == 0:
            self._fit(step // self._refit)
        self._features = self._seen(now_hours, due_hours)
        expected = (self._features * self._weight[items.group]).sum(axis=1)
        exploited = self._shares(step)
        tie = uniforms(items.key, items.seed, step, _TIES)
        best = top(expected, tie, items.group, exploited)
        stale = -self._asked
        stale[best] = -np.inf
        tie = uniforms(items.key, items.seed, 0, _STALE)
        picked = np.sort(np.concatenate([best, top(stale, tie, items.group, items.k - exploited)]))
        self._asked[picked] = step
        return picked

    def _fit(self, block: int) -> None:
        self._weight = weights(self._blocks.sum(axis=0))
        self._block = block % len(self._blocks)
        self._blocks[self._block] = 0.0

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        """See `Crawler`."""
        every = np.arange(self._items.groups)
        group = self._items.group[seen.item]
        self._pulls[every, self._arm] += 1.0
        self._reward[every, self._arm] += np.bincount(group, seen.new, self._items.groups)
        if not self._first:
            seen = seen.take(seen.again)
            group = self._items.group[seen.item]
        new = seen.new.astype(np.float64)
        self._recent[step % self._window, :, seen.item] = np.stack([np.ones_like(new), new, new**2], axis=1)
        x = self._features[seen.item]
        products = x[:, :, None] * np.concatenate([x, new[:, None]], axis=1)[:, None, :]
        np.add.at(self._blocks[self._block], group, products)
