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
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.special import digamma, zeta

from policies.estimation.estimators import rate
from policies.estimation.group_means import Prior
from policies.estimation.posterior import posterior
from policies.estimation.prior import mixed_means
from policies.history.evidence import Evidence
from policies.judging.part import Part
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives.objectives import Objective

LEVEL = 0.9
_DEVIATIONS = 1.6448536269514722  # of a normal distribution: `LEVEL` lies within them
_OF_MODEL = 0.15
"""Standard deviation of what the prior adds or takes, as a share of it: rates are not quite as it says."""
_PLACES = np.linspace(-4.0, 4.0, 9)  # of the log mean of a group, in its standard deviations
_WIDEST, _PASSES = 0.4, 3  # the mode that the job takes for a mean may be far from what the mean may be
_CHUNK = 2048
_LARGEST = 600.0  # its exponential is finite
MOST_PAGES = 16_384
"""Pages that are looked at."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """What the histories say of a parameter of the prior, and what freshness gains with it.

    Attributes
    ----------
    slope, score, information : float
        Of weighted freshness, of the log likelihood, and minus its second derivative.
    noise : float
        Variance of the score by which pages are looked at.
    """

    slope: float = 0.0
    score: float = 0.0
    information: float = 0.0
    noise: float = 0.0

    def merge(self, other: "Parameter") -> "Parameter":
        """Of the pages of both."""
        return Parameter(
            self.slope + other.slope,
            self.score + other.score,
            self.information + other.information,
            self.noise + other.noise,
        )

    def moves(self, size: float) -> tuple[float, float]:
        """How far freshness is from what a better fit would say, and its variance.

        The fit of the prior is no maximum of the likelihood; this is one step towards it. No parameter is
        known worse than to within its own `size`.
        """
        information = max(self.information, size**-2)
        step = min(max(self.score / information, -0.5 * size), 0.5 * size)
        # A step that is cut cannot be off by more than its limit.
        off = min(self.noise / information**2, (0.5 * size) ** 2)
        return self.slope * step, self.slope**2 * (1.0 / information + off)


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
        more = self.more + math.fsum(shifts)
        half = _DEVIATIONS * math.sqrt(self.variance + math.fsum(variances) + (_OF_MODEL * more) ** 2)
        middle = fresh + more
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
    most: int = MOST_PAGES,
) -> RangeSums:
    """Sums of a shard's pages.

    A group of which other shards have pages counts there as another: that makes the range wider, not
    narrower. Of more than `most` pages a part is looked at, and stands for all.

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
    most : int
    """
    if not weight.any():
        return RangeSums()
    part = Part.of(group, weight, most)
    rows, some = part.rows, weight[part.rows]
    crawls = crawl_rate_per_day[rows]
    speeds = np.ones(len(weight)) if speed is None else speed
    usual, n_groups = change_rate_per_day / speeds, int(group.max()) + 1
    means = mixed_means(usual, group, n_groups, prior)
    # By how much the rates of those that are looked at are above those of their group.
    above = sum_by(group[rows], part.likelihood * usual[rows], n_groups) - sum_by(group, usual, n_groups)
    present, code = np.unique(group[rows], return_inverse=True)
    found, fresh = _Pages(
        evidence.take(rows),
        code,
        means[present],
        above[present],
        prior,
        objective,
        crawls,
        speeds[rows],
        some,
        part,
    ).sums()
    gain = fresh - objective.freshness(crawls, change_rate_per_day[rows])
    more = math.fsum(some * part.times * gain)
    variance = found.variance + part.left_out(some, gain, code)
    return RangeSums(more, variance, found.mean, found.shape, found.strength)


@dataclass(frozen=True, slots=True)
class _Sums:
    """As `RangeSums`, of the pages that are looked at."""

    variance: float
    mean: Parameter
    shape: Parameter
    strength: Parameter


class _Pages:
    """Posteriors of pages, on a grid of rates each, at any mean of their groups."""

    def __init__(
        self,
        evidence: Evidence,
        group: IntArray,
        mean_per_day: FloatArray,
        above_per_day: FloatArray,
        prior: Prior,
        objective: Objective,
        crawl_rate: FloatArray,
        speed: FloatArray,
        weight: FloatArray,
        part: Part,
    ) -> None:
        self._evidence, self._group, self._prior, self._objective = evidence, group, prior, objective
        self._crawls, self._speed = crawl_rate, speed
        self._weight, self._squared = weight * part.times, weight**2 * part.times
        self._likelihood, self._groups, self._mean = part.likelihood, len(mean_per_day), mean_per_day
        self._stands = np.ones(self._groups)
        self._stands[group] = part.groups
        # What pages say of the mean of their group, less what they say as others than the rest of it.
        self._tilt = prior.shape * above_per_day / mean_per_day
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
        """Sums of all pages, and the expected freshness of each, (n,)."""
        middle, width = np.zeros(self._groups), np.maximum(1.0 / np.sqrt(self._at_means()[0]), _WIDEST)
        for _ in range(_PASSES):
            middle, width = self._means(*self._likelihoods(middle, width)[:2])
        # The grids of pages are laid out for means that are closer now.
        self._mean = self._mean * np.exp(middle)
        self._lay_out()
        middle, width = self._means(*self._likelihoods(np.zeros(self._groups), width)[:2])
        shifts, q, evidence = self._likelihoods(middle, width)
        return self._over_means(shifts, q, evidence)

    def _likelihoods(
        self, middle: FloatArray, width: FloatArray
    ) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        """Log means of groups beside the present ones, on a grid, and how probable each is: (k, G) each.

        And what each page says of each, (k, n).
        """
        a, k, group = self._prior.shape, self._prior.group_strength, self._group
        shifts = middle + _PLACES[:, None] * width
        log_q = -k * (shifts + self._prior.mean_per_day / self._mean * np.exp(-shifts))
        log_q -= self._tilt * shifts
        of_pages = []
        for j, shift in enumerate(shifts):
            evidence = np.concatenate([q.sum(axis=1) for q, _ in self._slowed(shift)])
            log_q[j] += sum_by(group, self._likelihood * (np.log(evidence) - a * shift[group]), self._groups)
            of_pages.append(evidence)
        q = np.exp(log_q - log_q.max(axis=0))
        return shifts, q / q.sum(axis=0), of_pages

    def _slowed(self, shift: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Weights of the rates of pages where the log means of groups are off by `shift`, and freshness."""
        slower = (self._prior.shape / self._mean * np.expm1(-shift))[self._group, None]
        first = 0
        for rates, p, fresh in zip(self._rates, self._p, self._fresh, strict=True):
            rows = slice(first, first + len(rates))
            yield p * np.exp(np.minimum(-rates * slower[rows], _LARGEST)), fresh
            first += len(rates)

    @staticmethod
    def _means(shifts: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and deviation of the log mean of each group, (G,).

        The latter no narrower than the gap between two points, in which all may lie.
        """
        mean = (q * shifts).sum(axis=0)
        width = np.sqrt((q * (shifts - mean) ** 2).sum(axis=0))
        return mean, np.maximum(width, 0.25 * (shifts[1] - shifts[0]))

    def _over_means(
        self, shifts: FloatArray, q: FloatArray, evidence: list[FloatArray]
    ) -> tuple[_Sums, FloatArray]:
        """Sums over pages, over their rates and the means of their groups."""
        k, group = self._prior.group_strength, self._group
        expected, own = np.empty((len(q), len(group))), np.empty((len(q), self._groups))
        for j, shift in enumerate(shifts):
            moments = [((p * f).sum(axis=1), (p * f * f).sum(axis=1)) for p, f in self._slowed(shift)]
            first, second = (np.concatenate(part) / evidence[j] for part in zip(*moments, strict=True))
            expected[j] = first
            own[j] = sum_by(group, self._squared * np.maximum(second - first**2, 0.0), self._groups)
        fresh: FloatArray = (q[:, group] * expected).sum(axis=0)
        apart = expected - fresh
        off = np.stack([sum_by(group, row * self._weight, self._groups) for row in apart])
        far = self._prior.mean_per_day / self._mean * np.exp(-shifts)
        log_k = 1.0 + math.log(k) - float(digamma(k))
        parameters = []
        for slope, information in (
            (k - k * far, k * (q * far).sum(axis=0)),
            (log_k + np.log(far) - far, np.full(self._groups, float(zeta(2.0, k)) - 1.0 / k)),
        ):
            score = (q * slope).sum(axis=0)
            around = slope - score
            held = information - (q * around**2).sum(axis=0)
            noise = self._stands * (self._stands - 1.0) * score**2
            columns = q * off * around, self._stands * score, self._stands * held, noise
            parameters.append(Parameter(*(math.fsum(values.ravel()) for values in columns)))
        mean, strength = parameters
        # Pages are off on their own, those of a group together, and other groups like it apart from it.
        variance = math.fsum((q * (own + off**2 / self._stands)).ravel())
        return _Sums(variance, mean, self._of_shape(), strength), fresh

    def _of_shape(self) -> Parameter:
        """What is known of the shape, at the present means of groups."""
        held, by_mean, cross, columns = self._at_means()
        stands = self._stands[self._group]
        return Parameter(
            math.fsum(columns[0]) + math.fsum(by_mean * cross / held),
            math.fsum(stands * columns[1]),
            math.fsum(stands * columns[2]) - math.fsum(self._stands * cross * cross / held),
            math.fsum(stands * (stands * self._likelihood - 1.0) / self._likelihood * columns[1] ** 2),
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
            columns[4, rows] = likelihood * (score + 1.0 + math.log(a) - float(digamma(a)))
            columns[5, rows] = likelihood * (float(zeta(2.0, a)) - 1.0 / a - (p * s * s).sum(axis=1))
        held, by_mean, cross = (sum_by(self._group, column, self._groups) for column in columns[:3])
        far = self._prior.group_strength * self._prior.mean_per_day / self._mean
        return np.maximum(held, 0.0) + far, by_mean, cross, columns[3:]
