"""Yesterday judged: what was predicted for the crawls that happened since, against what they found.

A crawl that ends an interval of `t` days of a page with estimated rate `r` and information `h` was predicted
to find a change with probability ``p = 1 - (1 + r t / h) ** -h``: the gamma posterior of the rate integrated
over ``1 - exp(-rate t)``, see `policies.estimation.estimators.predict_unchanged`. Not ``1 - exp(-r t)``: that
promises too many changes where little is known, and pages are picked for crawling by what is thought of them.
The posterior is what it is whatever was picked, so `p` holds on the pages of a schedule, too. Where changes
are undated it is no gamma distribution, and the integral is that of `policies.estimation.posterior`.

The copy taken at the start of an interval is fresh until the first change. Unchanged: fresh all the time.
Where a change was found, when the first one came is not known, even if the last one is dated; then the share
counts that is expected of the same posterior, given what the crawl found. Together these shares have the mean
that was predicted if the predictions hold. What no model can move stands beside it: at least the unchanged
intervals were fresh, at most also the changed ones, up to their last change where it is dated.

All sums are exact integers, so they merge in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from policies.estimation.forecast import PROBABILITY_UNIT, Clocks, Forecast
from policies.history.interval_sums import Intervals
from policies.history.page_state import US_PER_DAY
from policies.numerics.exact import exact_units
from policies.numerics.special import CHUNK
from policies.numerics.typing_ import FloatArray, Int32Array, IntArray

BINS = 10
"""Of equal width in the predicted probability."""

FACTORS = (0.5, 0.8, 1.25, 2.0)
"""What would have been predicted had all rates been so many times as high is summed, too."""

EXPOSURE_UNIT = 2.0**-40
"""Days, or days times weight; single terms are cut at 2**84 of them."""

_MOST = 2.0**84
_SQUARE_UNIT = 2.0**-20


@dataclass(frozen=True, slots=True)
class FreshSums:
    """Time that copies were held, and were fresh, in units of `EXPOSURE_UNIT`.

    Attributes
    ----------
    held : int
    predicted, found : int
        Fresh time that was predicted for the intervals, and that they had; see the module.
    least, most : int
        Bounds of the latter that hold for any process of changes.
    """

    held: int = 0
    predicted: int = 0
    found: int = 0
    least: int = 0
    most: int = 0

    def merge(self, other: FreshSums) -> FreshSums:
        """Sums over the intervals of both."""
        return FreshSums(*(getattr(self, n) + getattr(other, n) for n in FreshSums.__dataclass_fields__))

    def share(self, name: str) -> float | None:
        """`predicted`, `found`, `least` or `most` as a share of the time held; None without any."""
        units: int = getattr(self, name)
        return units / self.held if self.held else None


@dataclass(frozen=True, slots=True)
class JudgedSums:
    """Sums over judged crawls. They merge exactly and in any order.

    Attributes
    ----------
    not_scheduled : int
        Crawls that could be compared, of pages without a forecast; not in any other sum.
    bin_crawls, bin_found : tuple of `BINS` int
        Crawls, and those that found a change, by predicted probability.
    bin_predicted : tuple of `BINS` int
        Sum of the predicted probabilities, units of `PROBABILITY_UNIT`.
    predicted_at : tuple of `len(FACTORS)` int
        Sums of the probabilities at other rates, units of `PROBABILITY_UNIT`.
    variance, brier : int
        Sums of ``p (1 - p)`` and of ``(found - p)**2``, units of `PROBABILITY_UNIT`.
    hosts : int
        Hosts with a judged crawl.
    products : tuple of 6 int
        Sums over hosts of ``f f``, ``f e``, ``f d``, ``e e``, ``e d`` and ``d d`` for f changes found on the
        host, e predicted, and d more that would have been predicted at twice the rates; units of 2**-20.
    time, requests : FreshSums
        Every page counts alike; every page counts by its weight.
    """

    not_scheduled: int = 0
    bin_crawls: tuple[int, ...] = (0,) * BINS
    bin_predicted: tuple[int, ...] = (0,) * BINS
    bin_found: tuple[int, ...] = (0,) * BINS
    predicted_at: tuple[int, ...] = (0,) * len(FACTORS)
    variance: int = 0
    brier: int = 0
    hosts: int = 0
    products: tuple[int, ...] = (0,) * 6
    time: FreshSums = FreshSums()
    requests: FreshSums = FreshSums()

    def merge(self, other: JudgedSums) -> JudgedSums:
        """Sums over the crawls of both; a host with crawls in both counts as two."""
        return JudgedSums(*(_add(getattr(self, n), getattr(other, n)) for n in self.__dataclass_fields__))

    @property
    def crawls(self) -> int:
        """Judged crawls."""
        return sum(self.bin_crawls)

    def tally(self) -> Tally:
        """What the comparison of changes found and predicted needs."""
        return Tally(
            self.crawls,
            sum(self.bin_found),
            sum(self.bin_predicted) * PROBABILITY_UNIT,
            tuple(units * PROBABILITY_UNIT for units in self.predicted_at),
            self.variance * PROBABILITY_UNIT,
            self.hosts,
            tuple(units * _SQUARE_UNIT for units in self.products),
        )


def _ages_days(intervals: Intervals, rows: IntArray) -> FloatArray | None:
    """Ages of dated changes in clock days, as if the clock had run evenly in the interval."""
    if intervals.age_us is None:
        return None
    share = intervals.age_us[rows] / intervals.gap_us[rows]
    result: FloatArray = share * (intervals.length_us[rows] / US_PER_DAY)
    return result


def _add(one: Any, other: Any) -> Any:
    if isinstance(one, FreshSums):
        return one.merge(other)
    if isinstance(one, tuple):
        return tuple(a + b for a, b in zip(one, other, strict=True))
    return one + other


@dataclass(frozen=True, slots=True)
class HostSums:
    """Judged crawls of a host, changes found, and those predicted: tonight's, and at twice the rates.

    The last two in units of `PROBABILITY_UNIT`.
    """

    crawls: int
    found: int
    predicted: int
    twice: int

    def merge(self, other: HostSums) -> HostSums:
        """Sums over the crawls of both."""
        return HostSums(
            self.crawls + other.crawls,
            self.found + other.found,
            self.predicted + other.predicted,
            self.twice + other.twice,
        )


class Judge:
    """Compares intervals with a forecast, a run of pages at a time.

    Parameters
    ----------
    forecast : Forecast of n pages
    host_code : (n,) int32, ascending
        Host of each page, 0..h-1.
    """

    def __init__(self, forecast: Forecast, host_code: Int32Array) -> None:
        self._forecast, self._host_code = forecast, host_code
        hosts = int(host_code[-1]) + 1 if len(host_code) else 0
        self._host_crawls = np.zeros(hosts, dtype=np.int64)
        self._host_found = np.zeros(hosts, dtype=np.int64)
        self._host_predicted = np.zeros(hosts, dtype=np.int64)
        self._host_twice = np.zeros(hosts, dtype=np.int64)
        self._sums = JudgedSums()

    def __call__(self, first_page: int, intervals: Intervals, clocks: Clocks | None = None) -> None:
        """Judge intervals of the pages from `first_page` on; their codes count from there.

        With `clocks` by what these expected of each interval, not by the rates of the pages.
        """
        row = self._forecast.row[intervals.page + first_page]
        known = np.flatnonzero(row >= 0 if clocks is None else (row >= 0) & clocks.known)
        self._sums = self._sums.merge(JudgedSums(not_scheduled=len(row) - len(known)))
        for start in range(0, len(known), CHUNK):
            rows = known[start : start + CHUNK]
            self._judge(
                self._host_code[intervals.page[rows] + first_page],
                row[rows],
                intervals.length_us[rows] / US_PER_DAY,
                intervals.changed[rows].astype(np.float64),
                _ages_days(intervals, rows),
                None if clocks is None else clocks.take(rows),
            )

    def _judge(
        self,
        host: Int32Array,
        row: Int32Array,
        days: FloatArray,
        changed: FloatArray,
        age_days: FloatArray | None,
        clocks: Clocks | None,
    ) -> None:
        weight, forecast, at = self._forecast.weight[row], self._forecast, row
        if clocks is not None:
            at = np.arange(len(row), dtype=np.int32)
            forecast = clocks.forecast
        told = forecast.told(at)
        unchanged = np.exp(told.log_unchanged(days))
        p = 1.0 - unchanged
        units = np.rint(p * (1.0 / PROBABILITY_UNIT))
        place = np.minimum((p * BINS).astype(np.int64), BINS - 1)
        first = int(host[0])
        near = host - first
        there = slice(first, int(host[-1]) + 1)
        self._host_crawls[there] += np.bincount(near)
        # Sums of a chunk stay below 2**53: exact, in floating point too.
        self._host_found[there] += np.bincount(near, changed).astype(np.int64)
        self._host_predicted[there] += np.bincount(near, units).astype(np.int64)

        others = [
            np.rint(-np.expm1(told.log_unchanged(factor * days)) * (1.0 / PROBABILITY_UNIT))
            for factor in FACTORS
        ]
        self._host_twice[there] += np.bincount(near, others[FACTORS.index(2.0)]).astype(np.int64)
        if clocks is None:
            fresh = told.fresh(days)
            found = told.fresh_if_changed(days, unchanged, fresh, age_days)
        else:
            fresh, found = clocks.fresh, clocks.fresh_if_changed
        found = 1.0 - changed * (1.0 - found)
        most = np.ones(len(days))
        if age_days is not None:
            most -= changed * (age_days / days)
        time = _fresh_sums(days, fresh, found, 1.0 - changed, most)
        requests = _fresh_sums(days * weight, fresh, found, 1.0 - changed, most)
        self._sums = self._sums.merge(
            JudgedSums(
                bin_crawls=_ints(np.bincount(place, minlength=BINS)),
                bin_predicted=_ints(np.bincount(place, units, BINS)),
                bin_found=_ints(np.bincount(place, changed, BINS)),
                predicted_at=tuple(exact_units(q) for q in others),
                variance=exact_units(np.rint(p * unchanged * (1.0 / PROBABILITY_UNIT))),
                brier=exact_units(np.rint((changed - p) ** 2 * (1.0 / PROBABILITY_UNIT))),
                time=time,
                requests=requests,
            )
        )

    def sums(self, apart: IntArray | None = None) -> JudgedSums:
        """Sums over all intervals so far, the sums over hosts without those of the codes `apart`."""
        sums = self._by_host()
        if apart is not None:
            sums = np.delete(sums, apart, axis=1)
        return self._sums.merge(sums_over_hosts(sums))

    def host(self, code: int) -> HostSums:
        """Sums of one host."""
        return HostSums(*(int(v) for v in self._by_host()[:, code]))

    def _by_host(self) -> IntArray:
        return np.stack([self._host_crawls, self._host_found, self._host_predicted, self._host_twice])

    def furthest(self, k: int, apart: IntArray | None = None) -> list[int]:
        """Codes of the `k` hosts whose changes found are furthest from those predicted, without `apart`."""
        off = np.abs(self._host_found / PROBABILITY_UNIT - self._host_predicted)
        off[self._host_crawls == 0] = -1.0
        if apart is not None:
            off[apart] = -1.0
        order = np.argsort(-off, kind="stable")[:k]
        return [int(j) for j in order if off[j] >= 0.0]


def sums_over_hosts(sums: IntArray) -> JudgedSums:
    """The number of hosts and the sums of products over hosts, of the rows of `HostSums`: (4, h) int64."""
    total = JudgedSums(hosts=int(np.count_nonzero(sums[0])))
    for start in range(0, sums.shape[1], CHUNK):
        part = sums[:, start : start + CHUNK]
        found, predicted = part[1].astype(np.float64), part[2] * PROBABILITY_UNIT
        more = part[3] * PROBABILITY_UNIT - predicted
        pairs = combinations_with_replacement((found, predicted, more), 2)
        total = total.merge(JudgedSums(products=tuple(_product(a, b) for a, b in pairs)))
    return total


def _product(one: FloatArray, other: FloatArray) -> int:
    return exact_units(np.rint(one * np.maximum(other, 0.0) * (1.0 / _SQUARE_UNIT)))


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(v) for v in values)


def _fresh_sums(
    held: FloatArray, predicted: FloatArray, found: FloatArray, least: FloatArray, most: FloatArray
) -> FreshSums:
    units = np.minimum(held * (1.0 / EXPOSURE_UNIT), _MOST)
    shares = (predicted, found, least, most)
    return FreshSums(exact_units(units), *(exact_units(units * share) for share in shares))


@dataclass(frozen=True, slots=True)
class Tally:
    """Changes found and predicted over some crawls, see `JudgedSums`; changes and squared changes."""

    crawls: int = 0
    found: int = 0
    predicted: float = 0.0
    predicted_at: tuple[float, ...] = (0.0,) * len(FACTORS)
    variance: float = 0.0
    hosts: int = 0
    products: tuple[float, ...] = (0.0,) * 6

    def merge(self, other: Tally) -> Tally:
        """Both; hosts of one night and of another count apart."""
        return Tally(*(_add(getattr(self, n), getattr(other, n)) for n in Tally.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Calibration:
    """How changes found compare with those predicted.

    Attributes
    ----------
    ratio : float
        Found over predicted.
    ratio_stderr : float
    z : float
        Found minus predicted in standard errors of it.
    overdispersion : float
        Variance between hosts over that of independent crawls; at least 1.
    rate_factor : float
        The factor on all rates with which as much would have been predicted as was found: between the
        `FACTORS` by interpolation, beyond the last one that one. It is further from 1 than `ratio`, since a
        crawl finds several changes as one: where most crawls find a change, few more can.
    """

    ratio: float
    ratio_stderr: float
    z: float
    overdispersion: float
    rate_factor: float


def calibrate(tally: Tally) -> Calibration | None:
    """Compare; None where no change was predicted.

    Changes of one host come together. So the variance is that between hosts, as in a ratio estimator over
    clusters (Cochran, Sampling Techniques, 1977, section 6.3), where it is greater than that of independent
    crawls. It is taken around what all hosts share: fewer changes in proportion to those predicted, or more
    in proportion to those that higher rates would add. So it is none on a site with one host: there what is
    off in one night for all pages at once cannot be told from rates that are off.
    """
    if not tally.predicted > 0.0:
        return None
    ratio = tally.found / tally.predicted
    ff, fe, fd, ee, ed, dd = tally.products
    off, twice = tally.found - tally.predicted, tally.predicted_at[FACTORS.index(2.0)]
    if off > 0.0 and twice > tally.predicted:
        share = off / (twice - tally.predicted)
        between = ff - 2.0 * fe + ee - 2.0 * share * (fd - ed) + share**2 * dd
    else:
        between = ff - 2.0 * ratio * fe + ratio**2 * ee
    if tally.hosts > 1:
        between *= tally.hosts / (tally.hosts - 1)
    variance = max(tally.variance, between, 1e-12)
    error = variance**0.5
    over = variance / tally.variance if tally.variance > 0.0 else 1.0
    known = sorted([(0.0, 0.0), (1.0, tally.predicted), *zip(FACTORS, tally.predicted_at, strict=True)])
    changes = np.array([c for _, c in known] + [tally.found]) / tally.crawls
    events = -np.log1p(-np.minimum(changes, 1.0 - 1e-9))  # in proportion to rates, if all are one
    factor = float(np.interp(events[-1], events[:-1], [f for f, _ in known]))
    return Calibration(ratio, error / tally.predicted, (tally.found - tally.predicted) / error, over, factor)


@dataclass(frozen=True, slots=True)
class Bound:
    """Where calibration ends: every part must be exceeded.

    Attributes
    ----------
    z : float
        Standard errors.
    rate_factor : float
        One of `FACTORS`: more changes than at rates so many times as high, or fewer than at so many times
        lower.
    crawls, changes : int
        Least number of judged crawls, and of changes found or predicted, whichever is greater.
    """

    z: float
    rate_factor: float
    crawls: int = 100
    changes: int = 20


def drifted(tally: Tally, bound: Bound) -> bool:
    """Whether what was found is beyond the bound."""
    found = calibrate(tally)
    if found is None or tally.crawls < bound.crawls or max(tally.found, tally.predicted) < bound.changes:
        return False
    low, high = (tally.predicted_at[FACTORS.index(f)] for f in (1.0 / bound.rate_factor, bound.rate_factor))
    return abs(found.z) > bound.z and not low <= tally.found <= high
