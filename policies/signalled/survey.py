"""What the survey keeps of pages with signals: bounds of their demand, and a sample to estimate it from.

With a = `unsignalled_rate_per_day`, g = `signal_rate_per_day`, kappa = `signal_weight` and F(c) = 1/x where
P(2, x) = c, the rate f at a multiplier Lambda obeys

    a F(Lambda (a + g kappa) / mu) <= f <= (a + g kappa) F(Lambda a / mu)
    f <= g + a F(Lambda a / mu), and 0 from mu / Delta on
    f >= g / 2 + a / u, and >= g, up to V(kappa), the value of a crawl at the first signal

The first line is tight where few changes are signalled, the others where most are. All follow from the mean
interval psi: u / (a + g kappa) <= psi <= min(u / a, (u + kappa) / (a + g kappa)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from policies.numerics.scrambling import fractions, scramble
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray
from policies.objectives.objectives import Objective
from policies.objectives.ratio_sums import SLACK, Histogram, RatioSums, ratio_histogram, total_demand
from policies.signalled import value as signal_value
from policies.signalled.block import SignalRows, clock_rate
from policies.signalled.pages import SignalPages, value_of_first

SAMPLE: Final = 2048
"""Kinds of pages, alike in all parameters, that are kept to estimate the demand of all."""

_ROWS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class SignalSample:
    """Kinds of pages in ascending order of a key that favours kinds with much demand.

    Attributes
    ----------
    key : (k,) float64
        A hash of the parameters, uniform in (0, 1), over the square root of mu Delta. Those of the least
        keys, of all pages, are kept: `SAMPLE` and one more, which tells how likely the others were to be.
    parameters : (k, 4) float64
        mu, a, g (per day) and kappa.
    count : (k,) int64
        Pages of the kind.
    """

    key: FloatArray
    parameters: FloatArray
    count: IntArray

    @classmethod
    def of(cls, pages: SignalPages) -> SignalSample:
        """Sample of some pages."""
        found = cls(np.empty(0), np.empty((0, 4)), np.empty(0, dtype=np.int64))
        for start in range(0, len(pages), _ROWS):
            part = pages.take(slice(start, start + _ROWS))
            key = _uniform(part) / np.sqrt(part.request_rate_per_day * part.change_rate_per_day)
            if found.key.size > SAMPLE:
                rows = np.flatnonzero(key <= found.key[-1])
                part, key = part.take(rows), key[rows]
            columns = np.stack([getattr(part, field.name) for field in fields(SignalPages)], axis=1)
            found = found.merge(cls(key, columns, np.ones(key.size, dtype=np.int64)))
        return found

    def merge(self, other: SignalSample) -> SignalSample:
        """Sample of the pages of both."""
        key = np.concatenate([self.key, other.key])
        parameters = np.concatenate([self.parameters, other.parameters])
        count = np.concatenate([self.count, other.count])
        order = np.lexsort((*parameters.T[::-1], key))
        key, parameters, count = key[order], parameters[order], count[order]
        if key.size == 0:
            return self
        differs = (key[1:] != key[:-1]) | np.any(parameters[1:] != parameters[:-1], axis=1)
        first = np.flatnonzero(np.concatenate([[True], differs]))
        count = np.add.reduceat(count, first)
        first = first[: SAMPLE + 1]
        return SignalSample(key[first], parameters[first], count[: SAMPLE + 1])

    def weights(self) -> tuple[SignalPages, FloatArray]:
        """Kinds, and how many pages each stands for (priority sampling; Duffield, Lund and Thorup, 2007)."""
        pages, count = SignalPages(*np.ascontiguousarray(self.parameters[:SAMPLE].T)), self.count[:SAMPLE]
        if self.key.size <= SAMPLE:
            return pages, count.astype(np.float64)
        worth = np.sqrt(pages.request_rate_per_day * pages.change_rate_per_day)
        return pages, count / np.minimum(1.0, worth * self.key[SAMPLE])


def _uniform(pages: SignalPages) -> FloatArray:
    """(n,) hashes of rows, of their bits, uniform in (0, 1)."""
    state: UIntArray = np.zeros(len(pages), dtype=np.uint64)
    for field in fields(SignalPages):
        state += np.ascontiguousarray(getattr(pages, field.name)).view(np.uint64)
        scramble(state)
    return fractions(state)


@dataclass(frozen=True, slots=True)
class SignalSurvey:
    """Sums over pages with signals. Surveys merge exactly and in any order.

    Attributes
    ----------
    upper, upper_steps : Histogram
        Sums by ratio that bound demand from above, smooth ones and steps: a step is there while
        multiplier * ratio < 1.
    lower, lower_steps : Histogram
        From below, over pages that no cap or host's limit may cut.
    plain : Histogram
        Sums for the demand there would be without signals.
    sample : SignalSample
    """

    upper: Histogram
    upper_steps: Histogram
    lower: Histogram
    lower_steps: Histogram
    plain: Histogram
    sample: SignalSample

    @classmethod
    def of(cls, signals: SignalRows, may_cut: BoolArray | None) -> SignalSurvey:
        """Survey of the pages of a block; `may_cut` (s,) tells which a cap or limit may cut."""
        pages = signals.pages
        mu, g = pages.request_rate_per_day, pages.signal_rate_per_day
        a, change = pages.unsignalled_rate_per_day, pages.change_rate_per_day
        clock, exact = clock_rate(pages)
        by_signals = ~exact | (pages.signal_weight >= 1.0) | (clock > 2.0 * a)
        smooth = a > 0.0
        free = np.ones(a.size, dtype=np.bool_) if may_cut is None else ~may_cut
        upper_weight = np.where(by_signals, a, clock)
        first = value_of_first(pages)
        steps = free & by_signals
        return cls(
            ratio_histogram((a / mu)[smooth], upper_weight[smooth]),
            ratio_histogram(signals.ratio[by_signals], g[by_signals]),
            ratio_histogram((clock / mu)[smooth & free], a[smooth & free]),
            ratio_histogram(1.0 / first[steps], np.where(smooth, 0.5 * g, g)[steps]),
            ratio_histogram(signals.ratio, change),
            SignalSample.of(pages),
        )

    def merge(self, other: SignalSurvey) -> SignalSurvey:
        """Survey of the pages of both."""
        names = (field.name for field in fields(SignalSurvey))
        return SignalSurvey(*(getattr(self, n).merge(getattr(other, n)) for n in names))


class SignalBounds:
    """Bounds and an estimate of the demand of pages with signals, at any multiplier."""

    def __init__(self, survey: SignalSurvey, objective: Objective) -> None:
        self._objective = objective
        self._upper, self._lower = RatioSums(survey.upper), RatioSums(survey.lower)
        self._upper_steps, self._lower_steps = RatioSums(survey.upper_steps), RatioSums(survey.lower_steps)
        self._plain = RatioSums(survey.plain)
        self._pages, self._count = survey.sample.weights()

    def upper(self, multiplier: float) -> float:
        """No less than the demand, per day."""
        steps = self._upper_steps
        total = float(steps.weight[steps.left * multiplier < 1.0].sum())
        total += total_demand(self._objective, self._upper.weight, self._upper.left, multiplier)
        return (1.0 + SLACK) * total

    def lower(self, multiplier: float) -> float:
        """No more than the demand of pages that nothing can cut, per day."""
        steps = self._lower_steps
        total = float(steps.weight[steps.right * multiplier < 1.0].sum())
        total += total_demand(self._objective, self._lower.weight, self._lower.right, multiplier)
        return (1.0 - SLACK) * total

    def plain_near(self, low: float, high: float) -> Callable[[float], float]:
        """About the demand, per day, that these pages would have without signals."""
        return self._plain.estimate_near(self._objective, low, high)

    def demand_over_plain(self, multiplier: float) -> float:
        """Demand over what it would be without signals, by the sample."""
        rates = signal_value.crawl_rate(self._pages, multiplier)
        change = self._pages.change_rate_per_day
        plain = self._objective.rate(multiplier, change, self._pages.request_rate_per_day)
        total = float((plain * self._count).sum())
        return float((rates * self._count).sum()) / total if total > 0.0 else 1.0
