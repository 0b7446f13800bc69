"""The prior of change rates, learned from the pages themselves, and means of groups of pages.

Rates of pages are taken as gamma distributed around the mean of their group (host, path, metadata), with one
shape for all; the means of groups scatter around a global mean. Pages with little history borrow from their
group, small groups borrow from all pages.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, polygamma

from policies.estimation import Nodes, bin_nodes, prior_means, solve
from policies.evidence import Evidence
from policies.typing_ import FloatArray, IntArray

DEFAULT_SHAPE = 0.5
DEFAULT_STRENGTH = 2.0
DEFAULT_EXPOSURE_DAYS = 10.0
"""A sample without a change is read as half a change in its exposure plus this many days."""

SHAPE_LIMITS = (0.1, 20.0)
STRENGTH_LIMITS = (1.0, 8.0)
"""Means of groups are shrunk by the strength that their spread determines: without limits it runs off."""

LARGEST_RATE_PER_DAY = 144.0
"""Rates are cut here while the prior is learned: a few pages that are new at every fetch must not set it."""

_ROUNDS = 32
_SETTLED = 1e-3
_COARSE = 2.0**8  # limbs of a fixed-point number: units of 1/256 of the global mean ...
_FINE = 2.0**26  # ... and 2**26 parts of that
_LARGEST = 2.0**26


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
            if not 0.0 < value < math.inf:
                raise ValueError(f"prior {name} is {value}; give a positive finite number")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Change rates of n pages in G groups.

    Attributes
    ----------
    change_rate_per_day, information : (n,) float64
        As from `policies.estimation.rate`.
    group_mean_per_day : (G,) float64
    """

    change_rate_per_day: FloatArray
    information: FloatArray
    group_mean_per_day: FloatArray


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Sum of rates and count of pages per group, in fixed point: exact, so that `merge` has no order.

    `coarse` and `fine` count units of 1/256 of the global mean and 2**-26 of that; rates are cut at 2**18
    times the global mean. Up to 2**26 pages per group and object.
    """

    coarse: IntArray
    fine: IntArray
    count: IntArray

    def merge(self, other: "GroupSums") -> "GroupSums":
        """Sums over both sets of pages; the groups must be numbered alike."""
        return GroupSums(self.coarse + other.coarse, self.fine + other.fine, self.count + other.count)


def sum_groups(lam: FloatArray, group: IntArray, n_groups: int, unit_per_day: float) -> GroupSums:
    """Exact sums of the rates `lam` (n,), per day, by group code 0..n_groups-1 (n,)."""
    scaled = np.minimum(lam * (_COARSE / unit_per_day), _LARGEST)
    coarse = np.floor(scaled)
    fine = np.rint((scaled - coarse) * _FINE)
    return GroupSums(
        np.bincount(group, weights=coarse, minlength=n_groups).astype(np.int64),
        np.bincount(group, weights=fine, minlength=n_groups).astype(np.int64),
        np.bincount(group, minlength=n_groups).astype(np.int64),
    )


def means_of(sums: GroupSums, prior: Prior) -> FloatArray:
    """Mean of each group, mixed with the global mean: (G,) float64, per day. Unseen groups get the latter."""
    unit = prior.mean_per_day / _COARSE
    total = (sums.coarse.astype(np.float64) + sums.fine.astype(np.float64) / _FINE) * unit
    k, a = prior.group_strength, prior.shape
    mean: FloatArray = (k * prior.mean_per_day + a * total) / (k + a * sums.count)
    return mean


def group_means(
    evidence: Evidence, group: IntArray, n_groups: int, prior: Prior, iterations: int = 4
) -> FloatArray:
    """Mean rate of each group: (n_groups,) float64, per day. See `estimate`."""
    _check_groups(group, n_groups, len(evidence))
    evidence.check()
    return _iterate(evidence, bin_nodes(evidence), group, n_groups, prior, iterations)[0]


def estimate(
    evidence: Evidence, group: IntArray, n_groups: int, prior: Prior, iterations: int = 4
) -> Estimate:
    """Group means and change rates of all pages of whole groups, in one go.

    Parameters
    ----------
    evidence : Evidence
        Of n pages; all pages of each group, in any order.
    group : (n,) int64
        Group of each page, 0..n_groups-1.
    n_groups : int
    prior : Prior
        From `fit_prior`.
    iterations : int
        Rounds between the means of groups and the rates of their pages; rates move one Newton step a round.

    Returns
    -------
    Estimate

    Raises
    ------
    ValueError
        Group codes out of range, evidence not finite.
    NotConvergedError
        As `policies.estimation.rate`.
    """
    _check_groups(group, n_groups, len(evidence))
    evidence.check()
    chunks = bin_nodes(evidence)
    mean, start = _iterate(evidence, chunks, group, n_groups, prior, iterations)
    lam, information = _solve_all(evidence, chunks, prior.shape, mean[group], start, None)
    return Estimate(lam, information, mean)


def next_round(evidence: Evidence, group: IntArray, prior: Prior, means: Sequence[FloatArray]) -> FloatArray:
    """Rates of one round of `estimate`, for groups whose pages are in several places.

    Between rounds only the means of groups travel; the rounds before are made again, at a Newton step each.

    Parameters
    ----------
    evidence : Evidence
        Of n pages.
    group : (n,) int64
        Group of each page, an index into each of `means`.
    prior : Prior
    means : sequence of (G,) float64, per day
        Means of groups after each round so far: `means_of` the merged `sum_groups` of all pages' rates.

    Returns
    -------
    (n,) float64, per day
        To be added up by `sum_groups` for the next means.
    """
    return _replay(evidence, bin_nodes(evidence), group, prior, means)


def estimate_with(
    evidence: Evidence, group: IntArray, prior: Prior, means: Sequence[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Rates and information of pages once all rounds are made: the same bits as from `estimate`.

    Parameters are those of `next_round`, with at least one round.
    """
    chunks = bin_nodes(evidence)
    start = _replay(evidence, chunks, group, prior, means[:-1])
    return _solve_all(evidence, chunks, prior.shape, means[-1][group], start, None)


def fit_prior(evidence: Evidence, group: IntArray) -> Prior:
    """Learn the prior from a sample of pages.

    Rounds of expectation and maximisation: rates given the prior, the means of groups, the shape from the
    spread of rates around them (the gamma posterior's mean of ``lambda / m - 1 - log(lambda / m)`` set to
    its value under the prior), and the strength of groups from the spread of their means; until shape and
    mean move by less than 0.1 %, at most 32 rounds. On 2,000 simulated pages with one change each the
    shape comes out within 25 % of the truth, with ten changes each within 10 %.

    Parameters
    ----------
    evidence : Evidence
        Of n sampled pages, in any order; a few hundred do.
    group : (n,) int64
        Group of each page, any non-negative codes.

    Returns
    -------
    Prior
        Always finite. Without any change the shape is 0.5, the strength 2 and the mean half a change in the
        exposure plus 10 days (so 0.05 per day without pages or exposure). Shape and strength are clipped to
        [0.1, 20] and [1, 8]; a single group has strength 8.

    Notes
    -----
    The result has the same bits for any order of pages and any numbering of groups.
    """
    evidence.check()
    group = np.asarray(group, dtype=np.int64)
    _check_groups(group, int(group.max(initial=-1)) + 1, len(evidence))
    n = len(evidence)
    events = math.fsum(evidence.changes())
    days = math.fsum(evidence.exposure_days) + 0.5 * math.fsum(evidence.bin_days)
    if events <= 0.0:
        return Prior(DEFAULT_SHAPE, 0.5 / (days + DEFAULT_EXPOSURE_DAYS), DEFAULT_STRENGTH)
    m0 = events / days if days > 0.0 else events / DEFAULT_EXPOSURE_DAYS
    present, code = np.unique(group, return_inverse=True)
    n_groups = len(present)
    chunks = bin_nodes(evidence)
    shape, strength = DEFAULT_SHAPE, DEFAULT_STRENGTH
    mean = np.full(n_groups, m0)
    lam: FloatArray | None = None
    for _ in range(_ROUNDS):
        before = shape, m0
        # Rates of the last round are close: two steps follow the prior while it still moves.
        lam, h = _solve_all(evidence, chunks, shape, mean[code], lam, None if lam is None else 2)
        lam = np.minimum(lam, LARGEST_RATE_PER_DAY)
        m0 = math.fsum(lam) / n
        mean = means_of(sum_groups(lam, code, n_groups, m0), Prior(shape, m0, strength))
        log_ratio = np.log(lam) + digamma(h) - np.log(h) - np.log(mean)[code]
        spread = (math.fsum(lam / mean[code] - 1.0) - math.fsum(log_ratio)) / n
        shape = _shape_of_spread(spread)
        relative = mean / m0
        centre = math.fsum(relative) / n_groups
        variance = math.fsum((relative - centre) ** 2) / n_groups
        strength = 1.0 / variance if variance > 1.0 / STRENGTH_LIMITS[1] else STRENGTH_LIMITS[1]
        strength = max(strength, STRENGTH_LIMITS[0])
        if max(abs(math.log(shape / before[0])), abs(math.log(m0 / before[1]))) < _SETTLED:
            break
    return Prior(shape, m0, strength)


def _shape_of_spread(spread: float) -> float:
    """Root `a` of ``log a - digamma(a) = spread``, clipped."""
    low, high = SHAPE_LIMITS
    if not spread < math.log(low) - float(digamma(low)):
        return low
    if not spread > math.log(high) - float(digamma(high)):
        return high
    # Minka's start, then Newton in 1 / a; both converge from the left on this convex function.
    a = (3.0 - spread + math.sqrt((spread - 3.0) ** 2 + 24.0 * spread)) / (12.0 * spread)
    for _ in range(8):
        value = math.log(a) - float(digamma(a)) - spread
        a = 1.0 / (1.0 / a + value / (a * a * (1.0 / a - float(polygamma(1, a)))))
    return min(max(a, low), high)


def _iterate(
    evidence: Evidence, chunks: list[Nodes], group: IntArray, n_groups: int, prior: Prior, iterations: int
) -> tuple[FloatArray, FloatArray | None]:
    mean: FloatArray | None = None
    lam: FloatArray | None = None
    for _ in range(iterations):
        lam = _step(evidence, chunks, group, prior, lam, mean)
        mean = means_of(sum_groups(lam, group, n_groups, prior.mean_per_day), prior)
    return np.full(n_groups, prior.mean_per_day) if mean is None else mean, lam


def _replay(
    evidence: Evidence, chunks: list[Nodes], group: IntArray, prior: Prior, means: Sequence[FloatArray]
) -> FloatArray:
    lam = _step(evidence, chunks, group, prior, None, None)
    for mean in means:
        lam = _step(evidence, chunks, group, prior, lam, mean)
    return lam


def _step(
    evidence: Evidence,
    chunks: list[Nodes],
    group: IntArray,
    prior: Prior,
    lam: FloatArray | None,
    mean: FloatArray | None,
) -> FloatArray:
    """Rates of a round, from those and the means of groups of the round before; None before the first."""
    of_page = np.full(len(evidence), prior.mean_per_day) if mean is None else mean[group]
    return _solve_all(evidence, chunks, prior.shape, of_page, lam, 2 if lam is None else 1)[0]


def _solve_all(
    evidence: Evidence,
    chunks: list[Nodes],
    shape: float,
    mean: FloatArray,
    start: FloatArray | None,
    steps: int | None,
) -> tuple[FloatArray, FloatArray]:
    prior_means(shape, mean, len(evidence))
    lam, information = np.empty(len(evidence)), np.empty(len(evidence))
    for nodes in chunks:
        rows = slice(nodes.first, nodes.last)
        lam[rows], information[rows] = solve(
            nodes,
            evidence.dated_changes[rows] + shape,
            evidence.exposure_days[rows] + shape / mean[rows],
            None if start is None else start[rows],
            steps,
        )
    return lam, information


def _check_groups(group: IntArray, n_groups: int, n: int) -> None:
    if len(group) != n:
        raise ValueError(f"{len(group)} group codes for {n} pages; give one code per page")
    if n and not (group.min() >= 0 and group.max() < n_groups):
        raise ValueError(f"group codes are {group.min()}..{group.max()}; they must be 0..{n_groups - 1}")
