"""Profiles of hours, weekdays and waits from `Sums`, each with its standard errors.

Ways to see them. *corrected*: the rates of change at which the intervals are most probable, wherever in an
interval its change was (`clocks.learning`). *found*: by the crawls that found the changes, as logs look, and
as Han et al. count, whose hourly crawls made it nearly right ("Predictive Crawling for Commercial Web
Content", 2019, section 3.2). *last-modified*, *sitemap*, *listed*: by dates.

Errors are those of other days with the same pages: how much 16 sets of days differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from policies.clocks.learning import SHRINK, Spells, fit
from policies.clocks.profile import US_PER_HOUR
from policies.dynamics.lengths import WAIT_EDGES_HOURS, week_lengths_days
from policies.dynamics.sums import LISTED, SETS, SITEMAP, UNIT, Looks, Sums, set_of, waits_of
from policies.numerics.special import SURE
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

CORRECTED, FOUND, LAST_MODIFIED, BY_SITEMAP, BY_LIST = (
    "corrected", "found", "last-modified", "sitemap", "listed",
)  # fmt: skip
LEAST_CHANGES = 20
"""Fewer give no profile."""

LEAST_TOLD = 1e-3
"""Intervals that tell less of the hour than this part of what instants would tell nothing: crawls of a page
that are whole days apart."""

_HOURS, _DAYS = 24, 7
_TURNS = 2
_LEAST = 1e-6
_SHRINKS = (SHRINK, 3.0, 30.0, 300.0)
_FOLDS = 4
_TIE = 0.5


@dataclass(frozen=True)
class Profile:
    """How changes are shared out among bins.

    Attributes
    ----------
    estimate : str
    share, error : (bins,) float64
        Parts of 1, and their standard errors; NaN where intervals cannot tell.
    changes : int
        That it is made of.
    told : float
        What intervals tell of the bins, as a part of what instants would; 1 for dates.
    """

    estimate: str
    share: FloatArray
    error: FloatArray
    changes: int
    told: float = 1.0


@dataclass(frozen=True)
class Week:
    """Profiles of the hours of the day and of the weekdays, by one estimate."""

    hours: Profile
    weekdays: Profile


def weeks(sums: Sums, group: int) -> Iterator[Week]:
    """All estimates of a group that have at least `LEAST_CHANGES`.

    Parameters
    ----------
    sums : Sums
    group : int
    """
    found = sums.found[group]
    if sums.changed[group] >= LEAST_CHANGES:
        yield _corrected(sums, group)
    if found.sum() >= LEAST_CHANGES:
        yield _counted(FOUND, found, np.full(found.shape, 1.0))
    dated = sums.dated[group]
    if dated.sum() >= LEAST_CHANGES:
        yield _counted(LAST_MODIFIED, dated, sums.dated_expected[group] * UNIT)
    for name, who in ((BY_SITEMAP, SITEMAP), (BY_LIST, LISTED)):
        told = sums.told[who, group]
        if told.sum() >= LEAST_CHANGES:
            yield _counted(name, told, np.full(told.shape, 1.0))


def _counted(name: str, counts: IntArray, exposed: FloatArray) -> Week:
    """From changes with an hour, over the time in which they could come."""

    def shares(axis: int) -> Profile:
        def of(kept: BoolArray) -> FloatArray:
            parts = (v[kept].sum(axis=0).reshape(_DAYS, _HOURS).sum(axis=axis) for v in (counts, exposed))
            many, time = parts
            return _normalised(np.divide(many, time, out=np.zeros(len(time)), where=time > 0))

        return Profile(name, *_jackknife(of), int(counts.sum()))

    return Week(shares(0), shares(1))


def _corrected(sums: Sums, group: int) -> Week:
    kept, changes = sums.of_hours.of(group), int(sums.changed[group])
    still = (sums.expected[group] * (UNIT * len(kept) / changes)).reshape(SETS, _DAYS, _HOURS)
    length = week_lengths_days(kept.from_us, kept.to_us).reshape(-1, _DAYS, _HOURS)
    speed = np.ones(_DAYS)
    for _ in range(_TURNS):
        hours = _Cut.of(kept, length.transpose(0, 2, 1) @ speed, still.transpose(0, 2, 1) @ speed)
        speed = _normalised(hours.speed) * _HOURS
        weekdays = _Cut.of(kept, length @ speed, still @ speed)
        speed = _normalised(weekdays.speed) * _DAYS
    return Week(*(cut.profile(changes) for cut in (hours, weekdays)))


@dataclass(frozen=True)
class _Cut:
    """Changed intervals, and all unchanged ones together, cut by bins.

    How much neighbouring bins are smoothed is chosen by how well other days are foretold: as much as is no
    more than half a nat worse than the best. Bins that no crawl comes between are told apart by nothing else.
    """

    length: FloatArray
    rate: FloatArray
    day: IntArray
    still: FloatArray
    circular: bool = True
    shrink: float = SHRINK
    speed: FloatArray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, kept: Looks, length: FloatArray, still: FloatArray, rates: bool = True) -> _Cut:
        """Cut into (k, bins) and (`SETS`, bins); waits are not at the `rates` of pages, and not circular."""
        rate = kept.rate_per_day if rates else np.ones(len(kept))
        plain = cls(length, rate, set_of(kept.to_us), still, rates)
        found = []
        for shrink in _SHRINKS:
            one = replace(plain, shrink=shrink)
            folds = (np.arange(SETS) % _FOLDS == fold for fold in range(_FOLDS))
            found.append(sum(one._score(fold, one.factor(~fold)) for fold in folds))
        scores = np.array(found)
        fine = np.flatnonzero(scores >= scores.max() - _TIE)
        best = replace(plain, shrink=_SHRINKS[int(fine[-1])])
        return replace(best, speed=best.factor(np.ones(SETS, np.bool_)))

    def factor(self, sets: BoolArray) -> FloatArray:
        """Of each bin, fitted to some sets of days."""
        mine = sets[self.day]
        k = int(mine.sum())
        spells = Spells(
            np.zeros(k + 1, np.int64),
            np.concatenate([self.length[mine], self.still[sets].sum(axis=0)[None]]),
            np.append(np.ones(k, np.bool_), False),
            np.append(self.rate[mine], 1.0),
        )
        found: FloatArray = fit(spells, 1, self.circular, shrink=self.shrink)[0]
        return found

    def profile(self, changes: int) -> Profile:
        """Not known where the intervals tell nothing."""
        share = _normalised(self.speed)
        error = self.errors(np.diag(share) - np.outer(share, share))
        told = _told(self.length)
        blind = np.nan if told < LEAST_TOLD else 1.0
        return Profile(CORRECTED, share * blind, error * blind, changes, told)

    def errors(self, slope: FloatArray) -> FloatArray:
        """Standard errors of figures, (m,), by their derivatives by the logarithms of factors, (m, bins).

        The covariance of the estimating equations between sets of days, or, where it is more, that of
        intervals which are independent (a sandwich; Huber, 1967), at a tenth of the smoothing: what
        intervals hardly tell apart is uncertain, and smooth by choice alone.
        """
        speed, bins = self.speed, len(self.speed)
        placed = self.length * (self.rate[:, None] * speed)
        clock = np.clip(placed.sum(axis=1), 1e-9, 500.0)
        odds = 1.0 / np.expm1(clock)
        still = self.still * speed
        scores = -still
        np.add.at(scores, self.day, placed * odds[:, None])
        scores -= scores.mean(axis=0)
        between = scores.T @ scores * (SETS / (SETS - 1))
        told = (placed * (odds * (1.0 + odds))[:, None]).T @ placed
        told += np.diag(np.maximum(still.sum(axis=0) - odds @ placed, 0.0))
        beside = np.arange(bins) + np.array([[-1], [0], [1]])
        beside = beside % bins if self.circular else np.clip(beside, 0, bins - 1)
        smooth = np.eye(bins)
        for column in beside:
            smooth[np.arange(bins), column] -= 1.0 / 3.0
        inverse = slope @ np.linalg.pinv(
            told + 0.1 * self.shrink * smooth + _LEAST * np.eye(bins), rcond=1e-12
        )
        variance = (((inverse @ v) * inverse).sum(axis=1) for v in (between, told))
        found: FloatArray = np.sqrt(np.maximum(*variance))
        return found

    def _score(self, sets: BoolArray, factor: FloatArray) -> float:
        """Log-probability of what the intervals of some sets show."""
        mine = sets[self.day]
        clock = np.maximum((self.length[mine] @ factor) * self.rate[mine], 1e-9)
        return float(np.log(-np.expm1(-clock)).sum() - self.still[sets].sum(axis=0) @ factor)


def _told(length: FloatArray) -> float:
    """What changed intervals tell of the bins: how far apart the bins are that they lie in."""
    placed = length / np.maximum(length.sum(axis=1, keepdims=True), _LEAST)
    mean = placed.mean(axis=0)
    return float(((placed - mean) ** 2).sum() / max(len(placed) * (mean * (1.0 - mean)).sum(), _LEAST))


def _normalised(values: FloatArray) -> FloatArray:
    total = values.sum()
    result: FloatArray = values / total if total > 0 else np.full(len(values), 1.0 / len(values))
    return result


def _jackknife(of: Callable[[BoolArray], FloatArray]) -> tuple[FloatArray, FloatArray]:
    """A figure from all sets of days, and its standard errors by leaving out each in turn."""
    without = np.array([of(np.arange(SETS) != left) for left in range(SETS)])
    spread = ((without - without.mean(axis=0)) ** 2).sum(axis=0)
    return of(np.ones(SETS, np.bool_)), np.sqrt(spread * (SETS - 1) / SETS)


@dataclass(frozen=True)
class Waits:
    """Waits from a change to the page's next one.

    Attributes
    ----------
    estimate : str
    edges_hours : (bins + 1,) float64
        From 0 to infinity; the last bin is what comes later than anything that was watched.
    share, error : (bins,) float64
    peak : (bins,) bool
        Whether waits are denser there than on both sides, beyond errors.
    changes : int
    resolution_hours : float
        Half of the changes were found after as long without a crawl: shorter waits are hardly told apart.
    """

    estimate: str
    edges_hours: FloatArray
    share: FloatArray
    error: FloatArray
    peak: BoolArray
    changes: int
    resolution_hours: float

    @property
    def per_hour(self) -> FloatArray:
        """Share of waits for each hour of the bin, (bins,)."""
        with np.errstate(invalid="ignore"):
            result: FloatArray = self.share / np.diff(self.edges_hours)
        return result


def waits(sums: Sums, group: int) -> Iterator[Waits]:
    """The waits of a group, if there are `LEAST_CHANGES`.

    *corrected* counts waits that are not over, and those that began before the page was last crawled only
    from then on: the rate of change at each time since the last change is that at which the intervals are
    most probable. *found* counts the time between crawls that found changes.
    """
    n = int(sums.waits[group].sum())
    if n < LEAST_CHANGES:
        return
    edges = np.concatenate([[0.0], WAIT_EDGES_HOURS, [np.inf]])
    kept = sums.of_waits.of(group)
    length, still = waits_of(kept), sums.waited[group] * (UNIT * len(kept) / n)
    last = int(np.flatnonzero(length.sum(axis=0) + still.sum(axis=0) > 0.0)[-1]) + 1
    cut = _Cut.of(kept, length[:, :last], still[:, :last], rates=False)
    width = np.diff(edges)[: last - 1] / 24.0

    passing = np.append(cut.speed[:-1] * width, 0.0)
    alive = np.exp(-(np.cumsum(passing) - passing))
    share = np.append(-np.diff(alive), alive[-1])
    # How many are left at the begin of each bin by the logarithm of each factor, and so how many leave in it.
    left = -alive[:, None] * np.tri(last, k=-1) * passing
    error = cut.errors(np.vstack([left[:-1] - left[1:], left[-1:]]))
    bounds = np.append(edges[:last], np.inf)
    finest = float(np.median(kept.to_us - kept.from_us) / US_PER_HOUR)
    yield Waits(CORRECTED, bounds, share, error, _peaks(share, error, bounds), n, finest)
    counts = sums.waits[group].astype(np.float64)
    counts = np.append(counts[: last - 1], counts[last - 1 :].sum())
    share, error = counts / n, np.sqrt(counts) / n
    yield Waits(FOUND, bounds, share, error, _peaks(share, error, bounds), n, finest)


def _peaks(share: FloatArray, error: FloatArray, edges: FloatArray) -> BoolArray:
    """Bins above what the two beside them would have between them, by more than errors."""
    with np.errstate(invalid="ignore"):
        width = np.diff(edges)
        density, wrong = share / width, error / width
    found = np.zeros(len(share), np.bool_)
    if len(share) > 4:
        left, right = density[1:-3], density[3:-1]
        middle = density[2:-2]
        beside = np.sqrt(np.maximum(left, 0.0) * np.maximum(right, 0.0))
        unsure = np.sqrt(wrong[2:-2] ** 2 + 0.25 * (wrong[1:-3] ** 2 + wrong[3:-1] ** 2))
        found[2:-2] = (middle > np.maximum(left, right)) & (middle - beside > SURE * unsure)
    return found
