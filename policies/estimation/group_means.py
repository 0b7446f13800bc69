"""Means of groups of pages: what the pages of a host, a path or a category have in common.

The mean `m` of a group of n pages solves ``(k + a n) m = k m0 + a sum_i rate_i(m)``: the rates of its pages,
each of which borrows from `m`, mixed with the global mean `m0`. Going back and forth between the two sides
takes hundreds of rounds where pages are alike. So the sum and its slope are taken at points of a fixed grid,
sixteen an octave, until two neighbours enclose the root; in between the reciprocal of the sum is
interpolated, which is linear in ``1 / m`` for pages that are alike. The result depends on the exact sums at
these two points only: not on the way there, nor on where the pages lie.
"""

from dataclasses import dataclass
from math import frexp, inf

import numpy as np

from policies.estimation.estimators import Nodes, bin_nodes, rate
from policies.history.evidence import Evidence
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

OCTAVES_BELOW, OCTAVES_ABOVE = 16, 12
"""Means of groups are kept within these powers of two of the global mean."""

_PER_OCTAVE = 16
STRIDES = (4 * _PER_OCTAVE, 8, 1)
"""Grid points between those of a round, where pages are in several places: each divides the one before."""

_COARSE = 2.0**8  # limbs of a fixed-point number: units of 1/256 of the group's mean ...
_FINE = 2.0**26  # ... and 2**26 parts of that
_LARGEST = 2.0**26
_SMALLEST = 2.0**-60  # a sum below its last limb is not zero
_HALVINGS = 30


@dataclass(frozen=True, slots=True)
class Prior:
    """What a page is taken to be before its history is seen: three numbers to broadcast.

    Attributes
    ----------
    shape : float
        Shape of the gamma distribution of rates around the mean of their group.
    mean_per_day : float
        Mean of the means of groups: the rate of a page of a group never seen.
    group_strength : float
        How firmly the mean of a group is tied to the global mean, in units of that mean's shape.
    """

    shape: float
    mean_per_day: float
    group_strength: float

    def __post_init__(self) -> None:
        for name in ("shape", "mean_per_day", "group_strength"):
            value = getattr(self, name)
            if not 0.0 < value < inf:
                raise ValueError(f"prior {name} is {value}; give a positive finite number")


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Sums over the pages of groups at one mean each, in fixed point: exact, so that `merge` has no order.

    Attributes
    ----------
    limbs : (4, G) int64
        Rates and their slopes ``d rate / d log mean``, each as units of 1/256 of the group's mean and as
        2**-26 of that. A rate is cut at 2**18 times the mean. Up to 2**26 pages per group and object.
    count : (G,) int64
        Pages.
    """

    limbs: IntArray
    count: IntArray

    def merge(self, other: "GroupSums") -> "GroupSums":
        """Sums over both sets of pages; groups and means must be alike."""
        return GroupSums(self.limbs + other.limbs, self.count + other.count)

    def take(self, groups: IntArray | BoolArray) -> "GroupSums":
        """Some of the groups."""
        return GroupSums(self.limbs[:, groups], self.count[groups])

    def spread(self, at: IntArray, n_groups: int) -> "GroupSums":
        """The groups at the places `at` among `n_groups`, the others empty."""
        limbs, count = np.zeros((4, n_groups), np.int64), np.zeros(n_groups, np.int64)
        limbs[:, at], count[at] = self.limbs, self.count
        return GroupSums(limbs, count)

    def relative(self) -> tuple[FloatArray, FloatArray]:
        """Sums of rates and of slopes, in units of the group's mean: (G,) float64 each, positive."""
        value = (self.limbs[::2].astype(np.float64) + self.limbs[1::2].astype(np.float64) / _FINE) / _COARSE
        return np.maximum(value[0], _SMALLEST), np.maximum(value[1], _SMALLEST)


def group_means(evidence: Evidence, group: IntArray, n_groups: int, prior: Prior) -> FloatArray:
    """Mean change rate of each group, from all of its pages.

    Parameters
    ----------
    evidence : Evidence
        Of n pages; all pages of each group, in any order.
    group : (n,) int64
        Group of each page, 0..n_groups-1.
    n_groups : int
    prior : Prior

    Returns
    -------
    (n_groups,) float64, per day
        Within 1e-5 of the root, relative; the global mean for a group without pages. Kept within 2**-16 and
        2**12 of the power of two above the global mean. The same bits as `next_points` and `means_among` give
        for pages that are in several places.

    Raises
    ------
    ValueError
        Group codes out of range, evidence not finite.
    """
    check_groups(group, n_groups, len(evidence))
    evidence.check()
    enclosed, nodes = _Enclosed.all_of(prior, n_groups), bin_nodes(evidence)
    point = np.full(n_groups, grid_above(np.array([prior.mean_per_day]))[0])
    # One step tells where to begin, in a quarter of the time of exact sums.
    sums = sums_at(evidence, nodes, group, point, prior, steps=1)
    point = grid_above(next_mean(*sums.relative(), sums.count, grid_mean(point), prior))
    point = np.clip(point, enclosed.low + 1, enclosed.high - 1)
    open_ = np.bincount(group, minlength=n_groups) > 0
    while open_.any():
        groups = np.flatnonzero(open_)
        rows = np.flatnonzero(open_[group])
        part = evidence
        if len(rows) < len(evidence):
            part = evidence.take(rows)
            nodes = bin_nodes(part)
        code = (np.cumsum(open_) - 1)[group[rows]]
        at = point[groups]
        sums = sums_at(part, nodes, code, at, prior)
        rises = enclosed.narrow(groups, at, sums)
        # The next point is the nearer side of where the root should be.
        aim = grid_above(next_mean(*sums.relative(), sums.count, grid_mean(at), prior))
        low, high = enclosed.low[groups], enclosed.high[groups]
        point[groups] = np.clip(np.where(rises, aim, aim - 1), low + 1, high - 1)
        open_ = enclosed.high - enclosed.low > 1
    return enclosed.means()


def first_points(prior: Prior, n_groups: int) -> IntArray:
    """Grid points at which groups in several places are summed first: (P, n_groups) int64, ascending."""
    first, last = _span(prior)
    points = np.arange(first, last + 1, STRIDES[0], dtype=np.int64)
    return np.repeat(points[:, None], n_groups, axis=1)


def next_points(prior: Prior, point: IntArray, sums: list[GroupSums], stride: int) -> IntArray:
    """Grid points for the next sums of groups in several places.

    Parameters
    ----------
    prior : Prior
    point : (P, G) int64, ascending
        Points of the round before.
    sums : list of P GroupSums
        Over all places, at these points.
    stride : int
        The next of `STRIDES`.

    Returns
    -------
    (Q, G) int64, ascending
        From one of these points to the next one, of which the two enclose the root.
    """
    rises = np.stack([_above(one, at, prior) for one, at in zip(sums, point, strict=True)])
    start = np.clip(rises.sum(axis=0) - 1, 0, len(point) - 2)
    apart = STRIDES[STRIDES.index(stride) - 1]
    begin: IntArray = np.take_along_axis(point, start[None], axis=0)
    return begin + np.arange(0, apart + 1, stride, dtype=np.int64)[:, None]


def means_among(prior: Prior, point: IntArray, sums: list[GroupSums]) -> FloatArray:
    """Means of groups from `sums` at the last of `next_points`, (Q, G): (G,) float64, per day."""
    enclosed = _Enclosed.all_of(prior, point.shape[1])
    for at, one in zip(point, sums, strict=True):
        inside = np.flatnonzero((at > enclosed.low) & (at < enclosed.high))
        enclosed.narrow(inside, at[inside], one.take(inside))
    return enclosed.means()


def sums_at(
    evidence: Evidence,
    nodes: list[Nodes],
    group: IntArray,
    point: IntArray,
    prior: Prior,
    steps: int | None = None,
) -> GroupSums:
    """Rates of pages and their slopes where the mean of each group is that of a grid point, added up.

    Parameters
    ----------
    evidence : Evidence
        Of n pages.
    nodes : list of Nodes
        `policies.estimation.estimators.bin_nodes` of it.
    group : (n,) int64
        Group of each page, 0..G-1.
    point : (G,) int64
    prior : Prior
    steps : int, optional
        As of `policies.estimation.estimators.rate`: for sums that are about right.
    """
    mean = grid_mean(point)
    of_page = mean[group]
    found, information = rate(evidence, prior.shape, of_page, steps=steps, nodes=nodes)
    return sum_groups(found, slopes(found, information, prior.shape, of_page), group, mean)


def sum_groups(rate: FloatArray, slope: FloatArray, group: IntArray, mean: FloatArray) -> GroupSums:
    """Exact sums by group code (n,) of `rate` and `slope` (n,), per day, in units of the `mean` (G,)."""
    n_groups = len(mean)
    scale = (_COARSE / mean)[group]
    limbs = np.empty((4, n_groups), np.int64)
    for at, value in ((0, rate), (2, slope)):
        scaled = np.minimum(value * scale, _LARGEST)
        coarse = np.floor(scaled)
        limbs[at] = np.bincount(group, weights=coarse, minlength=n_groups)
        limbs[at + 1] = np.bincount(group, weights=np.rint((scaled - coarse) * _FINE), minlength=n_groups)
    return GroupSums(limbs, np.bincount(group, minlength=n_groups).astype(np.int64))


def slopes(rate: FloatArray, information: FloatArray, shape: float, mean: FloatArray) -> FloatArray:
    """``d rate / d log mean`` of each page: (n,) float64, per day, at most the rate."""
    return rate * np.minimum(rate * shape / (mean * information), 1.0)


def next_mean(
    total: FloatArray, slope: FloatArray, count: IntArray, mean: FloatArray, prior: Prior
) -> FloatArray:
    """Closer to the root: as if the pages of each group were alike and their changes dated.

    Such pages have rates ``c m / (b m + a)``, which meet the other side at the root of a quadratic; `b` and
    `c` are those that give `total` and `slope`. Exact in one step for pages without changes, and of second
    order for all.

    Parameters
    ----------
    total, slope : (G,) float64, positive
        Sums of rates and of slopes at `mean`, in units of it.
    count : (G,) int64
    mean : (G,) float64, positive, per day
    prior : Prior

    Returns
    -------
    (G,) float64, positive, per day
    """
    a, k = prior.shape, prior.group_strength
    b = a * np.maximum(total / slope - 1.0, 1e-15)
    c = total * (b + a)
    left, far = k + a * count, k * (prior.mean_per_day / mean)
    middle = left * a - far * b - a * c
    size = np.abs(middle) + np.sqrt(middle * middle + 4.0 * left * b * far * a)
    # The form without a difference of equals.
    return mean * np.where(middle > 0.0, 2.0 * far * a / size, size / (2.0 * left * b))


def grid_mean(point: IntArray) -> FloatArray:
    """Means at points of the grid: (n,) float64, per day."""
    mean: FloatArray = np.ldexp(
        1.0 + (point % _PER_OCTAVE) / _PER_OCTAVE, (point // _PER_OCTAVE).astype(np.int32)
    )
    return mean


def grid_above(mean: FloatArray) -> IntArray:
    """Least point of the grid with at least this mean: (n,) int64."""
    mantissa, exponent = np.frexp(mean)
    inside = np.ceil((2.0 * mantissa - 1.0) * _PER_OCTAVE).astype(np.int64)
    point: IntArray = (exponent.astype(np.int64) - 1) * _PER_OCTAVE + inside
    return point


def check_groups(group: IntArray, n_groups: int, n: int) -> None:
    """Raise `ValueError` unless there is a code 0..n_groups-1 for each of `n` pages."""
    if len(group) != n:
        raise ValueError(f"{len(group)} group codes for {n} pages; give one code per page")
    if n and not (group.min() >= 0 and group.max() < n_groups):
        raise ValueError(f"group codes are {group.min()}..{group.max()}; they must be 0..{n_groups - 1}")


def _span(prior: Prior) -> tuple[int, int]:
    middle = frexp(prior.mean_per_day)[1]
    return (middle - OCTAVES_BELOW) * _PER_OCTAVE, (middle + OCTAVES_ABOVE) * _PER_OCTAVE


def _above(sums: GroupSums, point: IntArray, prior: Prior) -> BoolArray:
    """Whether the root is above the point: (G,)."""
    total, _ = sums.relative()
    far = prior.mean_per_day / grid_mean(point)
    above: BoolArray = prior.group_strength * (far - 1.0) + prior.shape * (total - sums.count) > 0.0
    return above


@dataclass(frozen=True, slots=True)
class _Enclosed:
    """Nearest grid points below and above the roots of G groups, and the sums there."""

    prior: Prior
    low: IntArray
    high: IntArray
    below: GroupSums
    above: GroupSums

    @classmethod
    def all_of(cls, prior: Prior, n_groups: int) -> "_Enclosed":
        first, last = _span(prior)
        nothing = [GroupSums(np.zeros((4, n_groups), np.int64), np.zeros(n_groups, np.int64)) for _ in "ab"]
        return cls(prior, np.full(n_groups, first - 1), np.full(n_groups, last + 1), *nothing)

    def narrow(self, groups: IntArray, point: IntArray, sums: GroupSums) -> BoolArray:
        """Take note of `sums` at a point of each of `groups`; whether the root is above it."""
        rises = _above(sums, point, self.prior)
        for side, end, which in ((self.below, self.low, rises), (self.above, self.high, ~rises)):
            at = groups[which]
            end[at] = point[which]
            side.limbs[:, at], side.count[at] = sums.limbs[:, which], sums.count[which]
        return rises

    def means(self) -> FloatArray:
        """The roots: (G,) float64, per day."""
        first, last = _span(self.prior)
        low, high = grid_mean(np.maximum(self.low, first)), grid_mean(np.minimum(self.high, last))
        # With s = high / m, from 1 to `ratio`, and y the reciprocal of the sum in units of `high`.
        (low_sum, low_slope), (high_sum, high_slope) = self.below.relative(), self.above.relative()
        ratio = high / low
        width = ratio - 1.0
        y1, y2 = 1.0 / high_sum, ratio / low_sum
        d1, d2 = width * high_slope / high_sum**2, width * low_slope / low_sum**2
        left = self.prior.group_strength + self.prior.shape * self.above.count
        far = self.prior.group_strength * self.prior.mean_per_day / high
        start, end = np.zeros(len(high)), np.ones(len(high))
        for _ in range(_HALVINGS):
            t = 0.5 * (start + end)
            u, s = 1.0 - t, 1.0 + t * width
            y = u * u * ((1.0 + 2.0 * t) * y1 + t * d1) + t * t * ((1.0 + 2.0 * u) * y2 - u * d2)
            larger = y * (left - far * s) > self.prior.shape * s
            start, end = np.where(larger, t, start), np.where(larger, end, t)
        mean = high / (1.0 + 0.5 * (start + end) * width)
        mean = np.where(self.low < first, low, np.where(self.high > last, high, mean))
        known = self.above.count + self.below.count > 0
        return np.where(known, mean, self.prior.mean_per_day)
