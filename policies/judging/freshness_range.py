"""How sure expected freshness is: its posterior over the change rates of all pages.

Expected freshness is said at the estimated rates. What the rates may be besides, once the histories are seen,
gives it a mean and a variance: each page's own, and what pages share, which does not shrink with their
number. Shared are the mean of a group, over which the posteriors of its pages are integrated on a grid, and
of all pages the mean of these means and the shape of the prior. What freshness gains with one of the latter
is the covariance, over a page's posterior, of freshness with the slope of the log prior; how far it may be
off follows from the observed information (Louis, Finding the observed information matrix when using the EM
algorithm, section 3).
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import digamma, zeta

from policies.estimation.estimators import rate
from policies.estimation.group_means import Prior, group_means
from policies.estimation.posterior import posterior
from policies.history.evidence import Evidence
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives.objectives import Objective

LEVEL = 0.9
_DEVIATIONS = 1.6448536269514722  # of a normal distribution: `LEVEL` lies within them
_PLACES = np.linspace(-4.0, 4.0, 11)  # of the log mean of a group, in its standard deviations
_WIDEST, _PASSES = 0.4, 3  # the mode that the job takes for a mean may be far from what the mean may be
_CHUNK = 2048
_LARGEST = 600.0  # its exponential is finite
MOST_PAGES = 4096
"""Pages of a shard that are looked at."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """What the histories say of a parameter of the prior, and what freshness gains with it.

    Attributes
    ----------
    slope, score, information : float
        Of weighted freshness, of the log likelihood, and minus its second derivative.
    """

    slope: float = 0.0
    score: float = 0.0
    information: float = 0.0

    def merge(self, other: "Parameter") -> "Parameter":
        """Of the pages of both."""
        return Parameter(
            self.slope + other.slope, self.score + other.score, self.information + other.information
        )

    def scaled(self, slope: float, pages: float) -> "Parameter":
        """Of as many pages, and of as much weight."""
        return Parameter(self.slope * slope, self.score * pages, self.information * pages)

    def moves(self, size: float) -> tuple[float, float]:
        """How far freshness is from what a better fit would say, and its variance.

        The fit of the prior is no maximum of the likelihood; this is one step towards it. No parameter is
        known worse than to within its own `size`.
        """
        information = max(self.information, size**-2)
        step = min(max(self.score / information, -0.5 * size), 0.5 * size)
        return self.slope * step, self.slope**2 / information


@dataclass(frozen=True, slots=True)
class RangeSums:
    """Sums over pages from which the range follows. Freshness is weighted.

    Attributes
    ----------
    more : float
        What freshness is expected to be beyond that at the estimated rates.
    variance : float
        By what each page and each group may be, and by the choice of pages.
    mean, shape, strength : Parameter
        The log of the global mean, the shape of the prior, and how firmly groups are tied to it.
    """

    more: float = 0.0
    variance: float = 0.0
    mean: Parameter = field(default_factory=Parameter)
    shape: Parameter = field(default_factory=Parameter)
    strength: Parameter = field(default_factory=Parameter)

    def merge(self, other: "RangeSums") -> "RangeSums":
        """Those of the pages of both."""
        return RangeSums(
            self.more + other.more,
            self.variance + other.variance,
            self.mean.merge(other.mean),
            self.shape.merge(other.shape),
            self.strength.merge(other.strength),
        )

    def limits(self, fresh: float, weight: float, prior: Prior) -> tuple[float, float]:
        """Between which expected freshness is by odds of 9 to 1.

        Parameters
        ----------
        fresh, weight : float
            Sums over pages: of weight times freshness at the estimated rates, and of weight.
        prior : Prior
        """
        sizes = ((self.mean, 1.0), (self.shape, prior.shape), (self.strength, prior.group_strength))
        shifts, variances = zip(*(parameter.moves(size) for parameter, size in sizes), strict=True)
        half = _DEVIATIONS * math.sqrt(self.variance + math.fsum(variances))
        middle = fresh + self.more + math.fsum(shifts)
        return float(max(0.0, (middle - half) / weight)), float(min(1.0, (middle + half) / weight))


def range_sums(
    evidence: Evidence,
    group: IntArray,
    prior: Prior,
    objective: Objective,
    crawl_rate_per_day: FloatArray,
    change_rate_per_day: FloatArray,
    weight: FloatArray,
    speed: FloatArray | None = None,
) -> RangeSums:
    """Sums of a shard's pages.

    A group of which other shards have pages counts there as another: that makes the range wider, not
    narrower. Of more than `MOST_PAGES` pages a part is looked at, and stands for all.

    Parameters
    ----------
    evidence : Evidence
        Of n pages.
    group : (n,) int64
        Codes 0..G-1.
    prior : Prior
    objective : Objective
    crawl_rate_per_day : (n,) float64
    change_rate_per_day : (n,) float64
        Those at which freshness is said.
    weight : (n,) float64
        0 of pages of which no freshness is claimed.
    speed : (n,) float64, optional
        How many times its usual rate a page changes while the plan is in force.
    """
    rows, likelihood = _chosen(group)
    if not rows.size or not weight[rows].any():
        return RangeSums()
    some, code = weight[rows], np.unique(group[rows], return_inverse=True)[1]
    usual = np.ones(len(rows)) if speed is None else speed[rows]
    crawls = crawl_rate_per_day[rows]
    pages = _Pages(evidence.take(rows), code, prior, objective, crawls, usual, some, likelihood)
    found, by_page = pages.sums()
    said = objective.freshness(crawls, change_rate_per_day[rows])
    gains = by_page - some * said
    scale = float(weight.sum() / some.sum())
    of_pages = float(weight @ weight / (some @ some))
    by_group, by_chosen = (np.bincount(g, weights=w) for g, w in ((group, weight), (code, some)))
    of_groups = float(by_group @ by_group / (by_chosen @ by_chosen))
    more, all_pages = math.fsum(gains), len(weight) / len(rows)
    left_out = (1.0 - 1.0 / all_pages) * scale**2 * math.fsum((gains - some * (more / some.sum())) ** 2)
    mean, shape, strength = (p.scaled(scale, all_pages) for p in (found.mean, found.shape, found.strength))
    variance = of_pages * found.own + of_groups * found.of_groups + left_out
    return RangeSums(scale * more, variance, mean, shape, strength)


def _chosen(group: IntArray) -> tuple[IntArray, FloatArray]:
    """Rows that are looked at, and for how many of their group each stands in the likelihood: (k,) each.

    Whole groups, but of large ones a part.
    """
    n = len(group)
    if n <= MOST_PAGES:
        return np.arange(n), np.ones(n)
    size = np.bincount(group)
    part = np.minimum(size, MOST_PAGES // 4)
    # Groups are in order of their hashes, and so are pages in them: the first ones are any.
    order = np.argsort(group, kind="stable")
    rank = np.arange(n) - np.repeat(np.cumsum(size) - size, size)
    enough = np.cumsum(part) <= MOST_PAGES
    rows = order[(rank < part[group[order]]) & enough[group[order]]]
    return rows, (size / np.maximum(part, 1))[group[rows]]


@dataclass(frozen=True, slots=True)
class _Sums:
    """As `RangeSums`, of the pages that are looked at."""

    own: float
    of_groups: float
    mean: Parameter
    shape: Parameter
    strength: Parameter


class _Pages:
    """Posteriors of pages, on a grid of rates each, at any mean of their groups."""

    def __init__(
        self,
        evidence: Evidence,
        group: IntArray,
        prior: Prior,
        objective: Objective,
        crawl_rate: FloatArray,
        speed: FloatArray,
        weight: FloatArray,
        likelihood: FloatArray,
    ) -> None:
        self._evidence, self._group, self._prior, self._objective = evidence, group, prior, objective
        self._crawls, self._speed, self._weight = crawl_rate, speed, weight
        self._likelihood, self._groups = likelihood, int(group.max()) + 1
        self._mean = group_means(evidence, group, self._groups, prior)
        self._lay_out()

    def _lay_out(self) -> None:
        """Make the grids of rates for the present means of groups."""
        mean, n = self._mean[self._group], len(self._group)
        found, information = rate(self._evidence, self._prior.shape, mean)
        self._rates, self._p, self._fresh = [], [], []
        for first in range(0, n, _CHUNK):
            rows = np.arange(first, min(first + _CHUNK, n))
            of = posterior(self._evidence.take(rows), found[rows], information[rows])
            rates, p = of.rate_per_day, of.probability.copy()
            # What lies left of the first point falls off like a power of the rate.
            ratio = p[:, 1] / np.maximum(p[:, 0], 1e-300)
            p[:, 0] += p[:, 0] / np.maximum(ratio - 1.0, 1e-9)
            p /= p.sum(axis=1, keepdims=True)
            crawls = np.repeat(self._crawls[rows], rates.shape[1])
            changes = (rates * self._speed[rows, None]).ravel()
            self._rates.append(rates)
            self._p.append(p)
            self._fresh.append(self._objective.freshness(crawls, changes).reshape(rates.shape))

    def sums(self) -> tuple[_Sums, FloatArray]:
        """Sums of all pages, and the expected weight of each that is fresh, (n,)."""
        middle, width = np.zeros(self._groups), np.maximum(1.0 / np.sqrt(self._at_means()[0]), _WIDEST)
        for _ in range(_PASSES):
            middle, width, _ = self._over_means(middle, width)
        # The grids of pages are laid out for means that are closer now.
        self._mean = self._mean * np.exp(middle)
        self._lay_out()
        middle, width, _ = self._over_means(np.zeros(self._groups), width)
        _, _, ((own, of_groups, *others), by_page) = self._over_means(middle, width)
        mean, strength = Parameter(*others[:3]), Parameter(*others[3:])
        return _Sums(own, of_groups, mean, self._of_shape(), strength), by_page

    def _over_means(
        self, middle: FloatArray, width: FloatArray
    ) -> tuple[FloatArray, FloatArray, tuple[list[float], FloatArray]]:
        """Mean and deviation of the log mean of each group, beside the present one, on a grid of `width`.

        Further the variances by pages and by groups, slope, score and information of the log of the global
        mean and of the strength, and the expected weight of each page that is fresh.
        """
        a, k, group, weight = self._prior.shape, self._prior.group_strength, self._group, self._weight
        shifts = middle + _PLACES[:, None] * width
        log_q = -k * (shifts + self._prior.mean_per_day / self._mean * np.exp(-shifts))
        expected, own = np.empty((len(_PLACES), len(group))), np.empty((len(_PLACES), self._groups))
        for j, shift in enumerate(shifts):
            slower = a / self._mean * np.expm1(-shift)
            evidence, second = np.empty(len(group)), np.empty(len(group))
            for i, (rates, p, fresh) in enumerate(zip(self._rates, self._p, self._fresh, strict=True)):
                rows = slice(i * _CHUNK, i * _CHUNK + len(rates))
                q = p * np.exp(np.minimum(-rates * slower[group[rows], None], _LARGEST))
                evidence[rows] = q.sum(axis=1)
                q *= fresh
                expected[j, rows] = q.sum(axis=1) / evidence[rows]
                q *= fresh
                second[rows] = q.sum(axis=1) / evidence[rows]
            log_q[j] += sum_by(group, self._likelihood * (np.log(evidence) - a * shift[group]), self._groups)
            expected[j] *= weight
            own[j] = sum_by(group, np.maximum(weight**2 * second - expected[j] ** 2, 0.0), self._groups)
        q = np.exp(log_q - log_q.max(axis=0))
        q /= q.sum(axis=0)
        mean = (q * shifts).sum(axis=0)
        by_page: FloatArray = (q[:, group] * expected).sum(axis=0)
        off = np.stack([sum_by(group, row, self._groups) for row in expected - by_page])
        far = self._prior.mean_per_day / self._mean * np.exp(-shifts)
        found = [q * own, q * off**2]
        log_k = 1.0 + math.log(k) - float(digamma(k))
        for slope, information in (
            (k - k * far, k * (q * far).sum(axis=0)),
            (log_k + np.log(far) - far, np.full(self._groups, float(zeta(2.0, k)) - 1.0 / k)),
        ):
            score = (q * slope).sum(axis=0)
            apart = slope - score
            found += [q * off * apart, score, information - (q * apart**2).sum(axis=0)]
        # No narrower than the gap between two points, in which all may lie.
        width = np.maximum(np.sqrt((q * (shifts - mean) ** 2).sum(axis=0)), 0.25 * (shifts[1] - shifts[0]))
        return mean, width, ([math.fsum(values.ravel()) for values in found], by_page)

    def _of_shape(self) -> Parameter:
        """What is known of the shape, at the present means of groups."""
        held, by_mean, cross, columns = self._at_means()
        slope, score, information = (math.fsum(column) for column in columns)
        return Parameter(
            slope + math.fsum(by_mean * cross / held), score, information - math.fsum(cross * cross / held)
        )

    def _at_means(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """By group, at the present means, the information on its log mean, the slope of freshness in it, and
        its cross information with the shape; slope, score and information of the shape by page, (3, n).
        """
        a, n = self._prior.shape, len(self._group)
        columns = np.empty((6, n))
        for i, (rates, p, fresh) in enumerate(zip(self._rates, self._p, self._fresh, strict=True)):
            rows = slice(i * _CHUNK, i * _CHUNK + len(rates))
            relative = rates / self._mean[self._group[rows], None]
            log = np.log(relative) - relative
            weight, likelihood = self._weight[rows], self._likelihood[rows]
            size, score = (p * relative).sum(axis=1), (p * log).sum(axis=1)
            f, r, s = (v - (p * v).sum(axis=1, keepdims=True) for v in (fresh, relative, log))
            columns[0, rows] = likelihood * (a * size - a * a * (p * r * r).sum(axis=1))
            columns[1, rows] = weight * a * (p * f * r).sum(axis=1)
            columns[2, rows] = likelihood * (size - 1.0 + a * (p * r * s).sum(axis=1))
            columns[3, rows] = weight * (p * f * s).sum(axis=1)
            columns[4, rows] = score + 1.0 + math.log(a) - float(digamma(a))
            columns[5, rows] = float(zeta(2.0, a)) - 1.0 / a - (p * s * s).sum(axis=1)
        held, by_mean, cross = (sum_by(self._group, column, self._groups) for column in columns[:3])
        far = self._prior.group_strength * self._prior.mean_per_day / self._mean
        return np.maximum(held, 0.0) + far, by_mean, cross, columns[3:]
