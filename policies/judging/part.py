"""Which pages are looked at where all are too many: groups as they weigh, and of large ones a part.

A group is whole as far as it can be, since its pages tell its mean together. Groups are drawn systematically,
with probabilities in proportion to their weight, and pages within large ones at even distances. How far sums
are off is reckoned as if each draw were on its own, around the mean of all (Cochran, Sampling Techniques,
1977, chapters 9A and 11): where the order tells nothing, systematic draws are off by no more.
"""

import math
from dataclasses import dataclass

import numpy as np

from policies.numerics.lookup import places
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray

_LARGEST_PART = 8
"""No group has more than that part of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """Pages that are looked at: groups as they weigh, and of large ones some pages.

    Attributes
    ----------
    rows : (k,) int64
    times : (k,) float64
        How many times its weight each stands for; so they add up to the weight of all.
    likelihood : (k,) float64
        How many pages of its group each is.
    groups : (k,) float64
        How many groups that of each stands for.
    """

    rows: IntArray
    times: FloatArray
    likelihood: FloatArray
    groups: FloatArray

    @classmethod
    def of(cls, group: IntArray, weight: FloatArray, most: int) -> "Part":
        """About `most` of n pages, all if there are no more.

        Parameters
        ----------
        group : (n,) int64
            Codes 0..G-1, groups in any order that does not hang on their rates, and so pages in a group.
        weight : (n,) float64
            Not all 0.
        most : int, >= 2
        """
        n, size = len(group), np.bincount(group)
        if n <= most:
            return cls(np.arange(n), np.ones(n), np.ones(n), np.ones(n))
        cap = max(_filled(size, most), most // _LARGEST_PART, 2)  # so of each group its heaviest page
        chance = _chances(sum_by(group, weight, len(size)), np.minimum(size, cap), most)
        # Systematic sampling; groups are in order of their hashes.
        chosen = (np.diff(np.floor(np.cumsum(chance) + 0.5), prepend=0.0) > 0.0)[group]
        # Of a large group the heaviest pages, and of the others some, which are in order of their hashes.
        heavy = _rank(np.lexsort((-weight, group)), size) < np.where(size > cap, cap // 2, size)[group]
        nth = _rank(np.lexsort((heavy, group)), size)
        left, quota = np.maximum(size - cap // 2, 1)[group], cap - cap // 2
        rest = chosen & ~heavy
        light = rest & (nth * quota // left != (nth + 1) * quota // left)
        rows = np.flatnonzero(light | (chosen & heavy))
        of_rest, of_light = (sum_by(group[at], weight[at], len(size)) for at in (rest, light))
        within = np.divide(of_rest, of_light, out=np.ones(len(size)), where=of_light > 0.0)[group[rows]]
        stands = 1.0 / chance[group[rows]]
        times = np.where(light[rows], within, 1.0) * stands
        times *= weight.sum() / (times * weight[rows]).sum()
        taken = np.maximum(np.bincount(group[rows], minlength=len(size)), 1)
        return cls(rows, times, (size / taken)[group[rows]], stands)

    def left_out(self, weight: FloatArray, gain: FloatArray, group: IntArray) -> float:
        """Variance of the sum of `weight` times `gain` over all pages, by which of them are looked at.

        Parameters
        ----------
        weight, gain : (k,) float64
            Of the pages that are looked at.
        group : (k,) int64
            Codes of their groups.
        """
        whole = weight * self.times
        n_groups = int(group.max()) + 1
        of_group, stands = sum_by(group, whole, n_groups), np.ones(n_groups)
        stands[group] = self.groups
        mean = sum_by(group, whole * gain, n_groups) / np.where(of_group > 0.0, of_group, 1.0)
        within = np.maximum(self.times / self.groups, 1.0)
        of_pages = (1.0 - 1.0 / within) * (whole * (gain - mean[group])) ** 2 / self.groups
        of_groups = (1.0 - 1.0 / stands) * (of_group * (mean - (whole * gain).sum() / whole.sum())) ** 2
        # The mean of few groups is drawn towards each of them.
        return math.fsum(of_pages) + math.fsum(of_groups) * n_groups / max(n_groups - 1, 1)


def _rank(order: IntArray, size: IntArray) -> IntArray:
    """Place of each row within its group, (n,), where `order` has groups of these sizes one by one."""
    rank = np.empty(len(order), np.int64)
    rank[order] = places(size)
    return rank


def _filled(sizes: IntArray, most: int) -> int:
    """Largest number of each group of which no more than `most` are in all."""
    ordered = np.sort(sizes)[::-1]
    # With a quota of the i-th size, i + 1 groups give that many, and the smaller ones all.
    smaller = ordered.sum() - np.cumsum(ordered)
    return int(np.maximum((most - smaller) // np.arange(1, len(ordered) + 1), 0).max())


def _chances(weight: FloatArray, pages: IntArray, most: int) -> FloatArray:
    """How probably each group is looked at, as its weight has it, so that `most` pages are expected."""
    if pages.sum() <= most:
        return np.ones(len(weight))
    sure = np.zeros(len(weight), np.bool_)
    while True:
        room = most - pages[sure].sum()
        chance = np.where(sure, 1.0, weight * (room / max(float(weight[~sure] @ pages[~sure]), 1e-300)))
        if not (more := (chance > 1.0) & ~sure).any():
            return chance
        sure |= more
