"""Learning a clock from intervals between crawls: at what rate pages change in each bin of a cycle or of age.

An interval says whether there was a change in it, not when. Its likelihood is that of a Poisson process whose
rate is the page's times the bin's; the rates of bins are found by EM, which places the changes of an interval
by what all intervals say, shrunk to those of the bins beside them. A profile counts when it is certain: when
it would have foretold later intervals, block by block, better than one rate for all bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from policies.numerics.lookup import places
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

CERTAIN = 5.0
"""The logarithm of how much more probable the later intervals must be by the profile of the earlier ones than
without it. Chance gets there in less than one case of 100: such a ratio has the mean 1."""

LEAST_SPEED = 1e-4
"""No profile stands still: what was never seen to change there may yet."""

SHRINK = 0.3
"""Changes of the bins beside a bin that count as its own, see `fit`."""

_BLOCKS = 6
_UNEVEN = 3.0
_ROUNDS = 20
_TOLERANCE = 2e-3
_LEAST = 1e-12
_LONGEST = 16.0
_LOG_FACTORS = -30.0, 20.0


@dataclass(frozen=True)
class Spells:
    """Intervals of g groups cut by bins, sorted by group, then by time.

    Attributes
    ----------
    group : (k,) int64
    length : (k, bins) float64, days
        How much of each lies in each bin; of bins that are faster by something known, more.
    changed : (k,) bool
    rate_per_day : (k,) float64
        Rough change rates of their pages.
    """

    group: IntArray
    length: FloatArray
    changed: BoolArray
    rate_per_day: FloatArray

    def take(self, rows: IntArray) -> Spells:
        length = self.length.take(rows, axis=0)
        return Spells(self.group[rows], length, self.changed[rows], self.rate_per_day[rows])

    def of(self, group: IntArray) -> Spells:
        """The same of other groups, (k,) int64 that ascend."""
        return Spells(group, self.length, self.changed, self.rate_per_day)

    def whole(self) -> Spells:
        """The same with one bin."""
        return Spells(self.group, np.einsum("ij->i", self.length)[:, None], self.changed, self.rate_per_day)


def profiles(spells: Spells, least: FloatArray, circular: bool) -> tuple[IntArray, FloatArray, FloatArray]:
    """Groups whose bins certainly differ, the speeds of these, and by how much they foretell better.

    Parameters
    ----------
    spells : Spells
    least : (g,) float64
        The gain that is asked of each group, see `CERTAIN`.
    circular : bool
        Whether the last bin is beside the first one, as in a day.

    Returns
    -------
    (k,) int64, ascending; (k, bins) float64, mean 1; (g,) float64, see `CERTAIN`
    """
    groups = len(least)
    gains = np.zeros(groups)
    looked_at = _uneven(spells, groups) | (least < CERTAIN)
    spells = spells.take(np.flatnonzero(looked_at[spells.group]))
    if not len(spells.group):
        return np.empty(0, np.int64), np.empty((0, spells.length.shape[1])), gains
    some, code = np.unique(spells.group, return_inverse=True)
    spells = spells.of(code.astype(np.int64))
    n = len(some)
    size = np.bincount(code, minlength=n)
    block = places(size) * _BLOCKS // np.repeat(size, size)
    # All blocks at once: group g with the first b blocks known is group (b - 1) n + g.
    step = np.repeat(np.arange(1, _BLOCKS), len(code))
    rows = np.tile(np.arange(len(code)), _BLOCKS - 1)
    known, new = np.flatnonzero(block[rows] < step), np.flatnonzero(block[rows] == step)
    earlier, later = (
        spells.take(rows[part]).of((step[part] - 1) * n + code[rows[part]]) for part in (known, new)
    )
    groups = n * (_BLOCKS - 1)
    gain = _score(later, fit(earlier, groups, circular), groups)
    gain -= _score(later.whole(), fit(earlier.whole(), groups, True), groups)
    gain = gain.reshape(_BLOCKS - 1, n).sum(axis=0)
    gains[some] = gain
    sure = np.flatnonzero(gain > least[some])
    number = np.full(n, -1)
    number[sure] = np.arange(sure.size)
    mine = spells.take(np.flatnonzero(number[spells.group] >= 0))
    mine = mine.of(number[mine.group])
    return some[sure], normalised(fit(mine, sure.size, circular)), gains


def agreement(
    clock: FloatArray, plain: FloatArray, spells: tuple[IntArray, BoolArray, FloatArray], groups: int
) -> FloatArray:
    """The logarithm of how much more probable intervals are by a clock than without it, (g,).

    Parameters
    ----------
    clock, plain : (k,) float64, days
        Their lengths by the clock, and without it.
    spells : (k,) int64, bool and float64
        Groups, whether there was a change, and rough rates per day.
    """
    one = np.ones((groups, 1))
    by_clock, evenly = (
        _score(Spells(spells[0], days[:, None], *spells[1:]), one, groups) for days in (clock, plain)
    )
    return by_clock - evenly


def normalised(rates: FloatArray) -> FloatArray:
    """Rates of bins as speeds with the mean 1, (g, bins)."""
    speed = np.maximum(rates / rates.mean(axis=1, keepdims=True), LEAST_SPEED)
    result: FloatArray = speed / speed.mean(axis=1, keepdims=True)
    return result


def _of_groups(size: IntArray, weight: FloatArray) -> Any:
    """Weights of rows, (k,), sorted by group, by which a product with (k, bins) sums up each group, (g,)."""
    start, k = np.concatenate([[0], np.cumsum(size)]), len(weight)
    return csr_array((weight, np.arange(k), start), shape=(len(size), k))


def _uneven(spells: Spells, groups: int) -> BoolArray:
    """Groups of which it is worth a look whether bins differ, (g,): few of those in which none do, and all of
    those that would be certain.

    By the score of each bin at one rate for all: its squares add up to its variances where bins are alike.
    """
    length, bins = spells.length, spells.length.shape[1]
    even = spells.whole()
    days, rate = even.length[:, 0], spells.rate_per_day * fit(even, groups, True)[spells.group, 0]
    whole = np.maximum(days * rate, _LEAST)
    found = rate * (np.where(spells.changed, 1.0 / -np.expm1(-whole), 0.0) - 1.0)
    score = _of_groups(np.bincount(spells.group, minlength=groups), found) @ length
    score -= score.mean(axis=1, keepdims=True)
    square = rate * rate * (np.einsum("ij,ij->i", length, length) - days * days / bins)
    variance = np.bincount(spells.group, square / np.expm1(np.minimum(whole, 50.0)), groups)
    result: BoolArray = (score * score).sum(axis=1) > _UNEVEN * variance
    return result


def fit(spells: Spells, groups: int, circular: bool, shrink: float = SHRINK) -> FloatArray:
    """Factors of the rates in each bin: (g, bins), by EM.

    Each bin counts `shrink` changes at the rate of the bins beside it as its own.

    EM alone takes hundreds of rounds to tell neighbouring hours apart. Its steps are lengthened by scheme S3
    of Varadhan and Roland, "Simple and globally convergent methods for accelerating the convergence of any EM
    algorithm" (2008).
    """
    em = _Em.of(spells, groups, circular, shrink)
    log = em.even()
    factor = np.exp(log)
    result, rows = factor.copy(), np.arange(groups)
    for _ in range(_ROUNDS):
        once = em.step(log)
        twice = em.step(once)
        first, second = once - log, twice - 2.0 * once + log
        size, bend = ((v * v).sum(axis=1, keepdims=True) for v in (first, second))
        longer = np.clip(np.sqrt(size / np.maximum(bend, _LEAST)), 1.0, _LONGEST)
        log = em.step(np.clip(log + 2.0 * longer * first + longer * longer * second, *_LOG_FACTORS))
        before, factor = factor, np.exp(log)
        result[rows] = factor
        # A group ends when it has settled, whatever others do.
        moves = np.abs(factor - before).max(axis=1, initial=0.0) >= _TOLERANCE
        if not moves.all():
            em, log, factor, rows = em.take(moves), log[moves], factor[moves], rows[moves]
            if not len(rows):
                break
    return result


@dataclass(frozen=True)
class _Em:
    """One round of EM over the logarithms of factors, (g, bins).

    Attributes
    ----------
    exposure : (g, bins) float64
        Changes that are expected at the factor 1.
    size : (g,) int64
        Intervals with a change of each group.
    weight : sparse (g, k) float64
        What each of these counts as, to be set anew.
    length : (k, bins) float64
        What is expected of each of these in each bin.
    beside : (3, bins) int64, or None
        Bins to whose geometric mean each shrinks; None of one bin alone, which shrinks to 1.
    shrink : float
    """

    exposure: FloatArray
    size: IntArray
    weight: Any
    length: FloatArray
    beside: IntArray | None
    shrink: float

    @classmethod
    def of(cls, spells: Spells, groups: int, circular: bool, shrink: float) -> _Em:
        found = np.flatnonzero(spells.changed)
        length = spells.length.take(found, axis=0) * spells.rate_per_day[found, None]
        size, all_of = (np.bincount(g, minlength=groups) for g in (spells.group[found], spells.group))
        exposure = _of_groups(all_of, spells.rate_per_day) @ spells.length
        bins = length.shape[1]
        beside = np.arange(bins) + np.array([[-1], [0], [1]])
        near = (beside % bins if circular else np.clip(beside, 0, bins - 1)) if bins > 1 else None
        return cls(exposure, size, _of_groups(size, np.ones(len(found))), length, near, shrink)

    def even(self) -> FloatArray:
        """One factor for all bins."""
        bins = self.exposure.shape[1]
        total = np.maximum(self.exposure.sum(axis=1, keepdims=True), _LEAST)
        count = self.size[:, None]
        result: FloatArray = np.log(np.repeat((count + self.shrink) / (total + self.shrink), bins, axis=1))
        return result

    def take(self, groups: BoolArray) -> _Em:
        """Some of the groups, in their order."""
        rows, size = np.flatnonzero(np.repeat(groups, self.size)), self.size[groups]
        length, weight = self.length.take(rows, axis=0), _of_groups(size, np.ones(len(rows)))
        return _Em(self.exposure[groups], size, weight, length, self.beside, self.shrink)

    def step(self, log: FloatArray) -> FloatArray:
        factor = np.exp(log)
        clock = np.einsum("ij,ij->i", self.length, np.repeat(factor, self.size, axis=0))
        np.divide(-1.0, np.expm1(-np.maximum(clock, _LEAST)), out=self.weight.data)
        placed = self.weight @ self.length
        beside = 1.0 if self.beside is None else np.exp(log[:, self.beside].sum(axis=1) / -3.0)
        new = (placed * factor + self.shrink) / (self.exposure + self.shrink * beside)
        result: FloatArray = np.log(new)
        return result


def log_probability(expected: FloatArray, changed: BoolArray) -> FloatArray:
    """Log-probability of what intervals showed, of which so many changes are expected: (k,) float64."""
    expected = np.maximum(expected, 1e-9)
    result: FloatArray = np.where(changed, np.log(-np.expm1(-expected)), -expected)
    return result


def _score(spells: Spells, factor: FloatArray, groups: int) -> FloatArray:
    """Log-probability of what the intervals of each group showed, (g,)."""
    of_row = factor.take(spells.group, axis=0)
    clock = np.multiply(spells.length, of_row, out=of_row).sum(axis=1) * spells.rate_per_day
    logs = log_probability(clock, spells.changed)
    result: FloatArray = np.bincount(spells.group, logs, groups).astype(np.float64)
    return result
