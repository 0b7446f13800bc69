"""What a crawl schedule maximises: freshness of a page at a crawl rate, and the rate that a multiplier buys.

Every objective here has demand ``weight * f(multiplier * ratio)`` with one decreasing function f, so that the
search can bound the demand of many pages from a histogram of their ratios.

    periodic    xi/Delta (1 - e^(-Delta/xi)); crawls at equal distances (Azar et al., section 3)
    memoryless  xi/(xi + Delta); crawls at exponential distances (LambdaCrawl, Upadhyay et al. / Han et al.)
    discrete    the same in steps of time, with probabilities of a crawl and of a change per step
    harmonic    log(xi/(xi + Delta)); no page is ever starved (Kolobov et al., "Staying up to date")
    signals     periodic, but pages with change-indicating signals are crawled when those give reason to
                (Busa-Fekete et al.)
"""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Final

import numpy as np

from policies.numerics import special
from policies.numerics.inverse_table import Reciprocal
from policies.numerics.typing_ import FloatArray

TINY_RATE: Final = 1e-30
"""Change and request rates per day below this count as zero."""


class Objective(ABC):
    """Sum over pages of request rate times `value`, with what the search needs to know about it.

    All arrays are (n,) float64; change rates, request rates and crawl rates are per day.
    """

    name: ClassVar[str]
    starves: ClassVar[bool] = True
    """Whether demand is exactly zero once multiplier * ratio >= 1."""
    uses_signals: ClassVar[bool] = False
    """Whether pages with change-indicating signals are crawled by what the signals say."""

    max_rate_per_day: float = math.inf

    def weight(self, change_rate_per_day: FloatArray) -> FloatArray:
        """The factor before f, in crawls per day. May return its argument."""
        return change_rate_per_day

    def ratio(
        self, change_rate_per_day: FloatArray, request_rate_per_day: FloatArray, out: FloatArray
    ) -> None:
        """The factor inside f: 1 / (marginal value at rate 0+). inf where no crawl helps."""
        with np.errstate(divide="ignore", invalid="ignore"):
            np.divide(change_rate_per_day, request_rate_per_day, out=out)
        _drop_useless(change_rate_per_day, request_rate_per_day, out)

    @abstractmethod
    def demand(self, weight: FloatArray, c: FloatArray, scratch: Reciprocal, out: FloatArray) -> None:
        """weight * f(c) into `out` for at most `special.CHUNK` rows; c > 0, and c < 1 if `starves`."""

    @abstractmethod
    def freshness(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        """Long-run probability that the copy is fresh, in [0, 1]; 1 for a page that never changes."""

    def value(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        """What one request is worth: freshness, but for the harmonic objective."""
        return self.freshness(rate_per_day, change_rate_per_day)

    @abstractmethod
    def _slope(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        """d value / d rate for change rates > 0 and rates in [0, inf]."""

    def marginal_value(
        self, rate_per_day: FloatArray, change_rate_per_day: FloatArray, request_rate_per_day: FloatArray
    ) -> FloatArray:
        """What one more crawl per day buys, d(mu value)/d rate, in requests; 0 where no crawl helps."""
        rate, change, request = np.broadcast_arrays(rate_per_day, change_rate_per_day, request_rate_per_day)
        out = np.empty(rate.shape)
        for start in range(0, rate.shape[0], special.CHUNK):
            part = slice(start, start + special.CHUNK)
            useful = (change[part] >= TINY_RATE) & (request[part] >= TINY_RATE)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                slope = request[part] * self._slope(rate[part], np.where(useful, change[part], 1.0))
            out[part] = np.where(useful, slope, 0.0)
        return out

    def crawl_value(
        self, change_rate_per_day: FloatArray, request_rate_per_day: FloatArray, elapsed_days: FloatArray
    ) -> FloatArray:
        """Gain rate of crawling a page now: the marginal value at the rate 1 / elapsed days.

        It grows with the time since the last crawl and reaches the multiplier when the interval is over;
        for periodic crawling it is (mu / Delta) P(2, Delta t).

        Parameters
        ----------
        change_rate_per_day, request_rate_per_day : (n,) float64
        elapsed_days : (n,) float64, >= 0
            Days since the last crawl; inf or NaN if there was none.

        Returns
        -------
        (n,) float64
            Requests served fresh per crawl; 0 where no crawl helps.
        """
        elapsed = np.asarray(elapsed_days, dtype=np.float64)
        elapsed = np.where(np.isnan(elapsed), np.inf, elapsed)
        with np.errstate(divide="ignore"):
            rate = 1.0 / elapsed
        return self.marginal_value(rate, change_rate_per_day, request_rate_per_day)

    def rate(
        self, multiplier: float, change_rate_per_day: FloatArray, request_rate_per_day: FloatArray
    ) -> FloatArray:
        """Crawl rate per day at which the marginal value is `multiplier`, in [0, max_rate_per_day].

        Raises
        ------
        ValueError
            multiplier <= 0.
        """
        if not multiplier > 0.0:
            raise ValueError(f"a crawl rate needs a multiplier > 0, got {multiplier!r}")
        change = np.ascontiguousarray(change_rate_per_day, dtype=np.float64)
        request = np.ascontiguousarray(request_rate_per_day, dtype=np.float64)
        out = np.zeros(change.shape)
        scratch = Reciprocal()
        for start in range(0, change.size, special.CHUNK):
            part = slice(start, start + special.CHUNK)
            c = np.empty(change[part].shape)
            self.ratio(change[part], request[part], c)
            c *= multiplier
            active = np.flatnonzero(c < (1.0 if self.starves else np.inf))
            demand = np.empty(active.size)
            self.demand(self.weight(change[part][active]), c[active], scratch, demand)
            out[part][active] = demand
        return np.minimum(out, self.max_rate_per_day)


class Periodic(Objective):
    """Crawls at equal distances: freshness xi/Delta (1 - e^(-Delta/xi))."""

    name = "periodic"

    def demand(self, weight: FloatArray, c: FloatArray, scratch: Reciprocal, out: FloatArray) -> None:
        scratch.evaluate(c, out)
        np.multiply(out, weight, out=out)

    def freshness(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        return special.mean_survival(_changes_per_crawl(rate_per_day, change_rate_per_day))

    def _slope(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        return special.p2(change_rate_per_day / rate_per_day) / change_rate_per_day


class Signals(Periodic):
    """Periodic for pages without change-indicating signals, crawls by what they say for those with.

    All that is here concerns pages without. `policies.optimum.demand` and `policies.optimum.signalled_policy`
    know the others.
    """

    name = "signals"
    uses_signals = True


class Memoryless(Objective):
    """Crawls at exponential distances (LambdaCrawl): freshness xi/(xi + Delta)."""

    name = "memoryless"

    def demand(self, weight: FloatArray, c: FloatArray, scratch: Reciprocal, out: FloatArray) -> None:
        # 1/sqrt(c) - 1 without cancellation near c = 1.
        root = scratch.scratch(c.size)
        np.sqrt(c, out=root)
        np.subtract(1.0, c, out=out)
        np.add(root, c, out=root)
        np.divide(out, root, out=out)
        np.multiply(out, weight, out=out)

    def freshness(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        return 1.0 / (1.0 + _changes_per_crawl(rate_per_day, change_rate_per_day))

    def _slope(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        return 1.0 / (change_rate_per_day * np.square(1.0 + rate_per_day / change_rate_per_day))


class Discrete(Memoryless):
    """LambdaCrawl in steps of time: in each step the page changes, is crawled, and is read, in this order.

    A change rate becomes the probability 1 - e^(-rate * step) of a change in a step, a crawl rate the
    probability rate * step of a crawl, hence at most one crawl a step. With rho for a crawl and D for a
    change the page is fresh with probability rho / (rho + D - rho D). (The closed form printed in the paper
    misses that a probability lies in [0, 1].)
    """

    name = "discrete"

    def __init__(self, step_days: float = 1.0) -> None:
        """`step_days` is the length of a step, in days, > 0."""
        if not 0.0 < step_days < math.inf:
            raise ValueError(f"step_days must be positive and finite, got {step_days!r}")
        self.step_days = step_days
        self.max_rate_per_day = 1.0 / step_days

    def _changes(self, change_rate_per_day: FloatArray) -> FloatArray:
        # Beyond 60 changes a step the probability is 1 in double precision; the odds stay finite.
        return np.minimum(change_rate_per_day * self.step_days, 60.0)

    def weight(self, change_rate_per_day: FloatArray) -> FloatArray:
        odds: FloatArray = np.expm1(self._changes(change_rate_per_day)) / self.step_days
        return odds

    def ratio(
        self, change_rate_per_day: FloatArray, request_rate_per_day: FloatArray, out: FloatArray
    ) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            np.divide(
                -np.expm1(-self._changes(change_rate_per_day)), request_rate_per_day * self.step_days, out=out
            )
        _drop_useless(change_rate_per_day, request_rate_per_day, out)

    def freshness(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        crawled = np.minimum(np.asarray(rate_per_day) * self.step_days, 1.0)
        changes = self._changes(np.asarray(change_rate_per_day))
        changed = -np.expm1(-changes)
        bottom = crawled * np.exp(-changes) + changed
        fresh: FloatArray = np.where(changed == 0.0, 1.0, crawled / np.where(bottom == 0.0, 1.0, bottom))
        return fresh

    def _slope(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        crawled = np.minimum(rate_per_day * self.step_days, 1.0)
        changes = self._changes(change_rate_per_day)
        changed = -np.expm1(-changes)
        slope: FloatArray = self.step_days * changed / np.square(changed + np.exp(-changes) * crawled)
        return slope


class Harmonic(Objective):
    """Value log(xi/(xi + Delta)) of a request, which is -inf without crawls: every page gets some."""

    name = "harmonic"
    starves = False

    def demand(self, weight: FloatArray, c: FloatArray, scratch: Reciprocal, out: FloatArray) -> None:
        # (sqrt(1 + 4/c) - 1) / 2 = 2 / (c (1 + sqrt(1 + 4/c))), which does not cancel.
        np.divide(4.0, c, out=out)
        np.add(out, 1.0, out=out)
        np.sqrt(out, out=out)
        np.add(out, 1.0, out=out)
        np.multiply(out, c, out=out)
        np.divide(2.0, out, out=out)
        np.multiply(out, weight, out=out)

    def freshness(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        return 1.0 / (1.0 + _changes_per_crawl(rate_per_day, change_rate_per_day))

    def value(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        """Log of the freshness of memoryless crawling: 0 if the page never changes, -inf without crawls."""
        return -np.log1p(_changes_per_crawl(rate_per_day, change_rate_per_day))

    def _slope(self, rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
        return 1.0 / (rate_per_day * (1.0 + rate_per_day / change_rate_per_day))


def _drop_useless(change: FloatArray, request: FloatArray, ratio: FloatArray) -> None:
    if change.size == 0:
        return
    if float(change.min()) < TINY_RATE:
        ratio[change < TINY_RATE] = np.inf
    if float(request.min()) < TINY_RATE:
        ratio[request < TINY_RATE] = np.inf


def _changes_per_crawl(rate_per_day: FloatArray, change_rate_per_day: FloatArray) -> FloatArray:
    """Delta / xi: 0 for a page that never changes, crawled or not; inf for one that is never crawled."""
    rate = np.asarray(rate_per_day, dtype=np.float64)
    change = np.asarray(change_rate_per_day, dtype=np.float64)
    still = change < TINY_RATE
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(still, 0.0, np.where(still, 1.0, change) / rate)


_BY_NAME: Final[dict[str, type[Objective]]] = {
    objective.name: objective for objective in (Periodic, Memoryless, Discrete, Harmonic, Signals)
}
NAMES: Final = tuple(_BY_NAME)


def get(name: str) -> Objective:
    """The objective called `name`: one of `NAMES`; "discrete" has steps of one day.

    Raises
    ------
    ValueError
        An unknown name.
    """
    if name not in _BY_NAME:
        raise ValueError(f"unknown objective {name!r}: choose one of {', '.join(NAMES)}")
    return _BY_NAME[name]()
