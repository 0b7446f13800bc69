"""What the rate of a page may be once its history is seen, as a few weighted rates.

Where no changed gap is undated the posterior is a gamma distribution. A page that changed at every long visit
is far from one: its rate may be anything above one change a gap, and how much above is the prior's word
alone. So the posterior, times any function of the rate, is integrated over the logarithm of the rate by the
trapezoidal rule, which converges exponentially there: the integrand is analytic in a strip and falls off at
both ends.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.estimation.estimators import bin_nodes, changed_gaps
from policies.history.evidence import Evidence
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray

_STEPS_BELOW, _STEPS_ABOVE = 25, 9
_WIDEST_STEP = 0.55  # the strip is pi / 2 wide, less where many changed gaps make an edge
_DEVIATIONS = 1.3
_SMALLEST_X = 1e-200
_ROWS = 512  # their places stay in the cache
_SMALLEST_EVENTS = 0.01  # the shape of a prior is above


@dataclass(frozen=True, slots=True)
class Posterior:
    """Rates that each of n pages may have, and how probable they are.

    Attributes
    ----------
    rate_per_day, probability : (n, 35) float64
        Probabilities of a page add up to 1.
    """

    rate_per_day: FloatArray
    probability: FloatArray

    def unchanged(self, days: FloatArray) -> FloatArray:
        """Probability of no change for `days` (n,): (n,) float64, within 0.002."""
        return self._mean(lambda x: np.exp(x, out=x), days)

    def changed(self, days: FloatArray) -> FloatArray:
        """Probability of a change within `days` (n,): (n,) float64, exact where it is small."""
        return self._mean(lambda x: np.negative(np.expm1(x, out=x), out=x), days)

    def fresh(self, days: FloatArray) -> FloatArray:
        """Expected share of `days` (n,) before the first change: (n,) float64."""

        def share(x: FloatArray) -> FloatArray:
            x = np.minimum(x, -_SMALLEST_X, out=x)
            return np.divide(np.expm1(x), x, out=x)

        return self._mean(share, days)

    def mean_per_day(self) -> FloatArray:
        """Mean rate: (n,) float64, per day."""
        mean: FloatArray = (self.probability * self.rate_per_day).sum(axis=1)
        return mean

    def dated(self, age_days: FloatArray) -> "Posterior":
        """Once a change is seen that was the last one, `age_days` (n,) ago."""
        weight = self.probability * self.rate_per_day * np.exp(-self.rate_per_day * age_days[:, None])
        total = weight.sum(axis=1, keepdims=True)
        return Posterior(self.rate_per_day, np.where(total > 0.0, weight / total, self.probability))

    def take(self, rows: IntArray) -> "Posterior":
        """Some of the pages."""
        return Posterior(self.rate_per_day[rows], self.probability[rows])

    def _mean(self, of: Callable[[FloatArray], FloatArray], days: FloatArray) -> FloatArray:
        """Mean of a function of minus the expected changes, which it may write over."""
        mean = np.empty(len(days))
        for first in range(0, len(days), _ROWS):
            rows = slice(first, first + _ROWS)
            x = self.rate_per_day[rows] * -days[rows, None]
            mean[rows] = np.multiply(self.probability[rows], of(x), out=x).sum(axis=1)
        return mean


def posterior(evidence: Evidence, change_rate_per_day: FloatArray, information: FloatArray) -> Posterior:
    """Posterior of the rates of pages that have an undated changed gap.

    Its prior need not be known: together with the evidence the mode and the information there say what the
    prior has added.

    Parameters
    ----------
    evidence : Evidence
        Of n pages. Without such a gap the posterior is a gamma distribution, of which the left end is cut off
        here where its shape is small.
    change_rate_per_day, information : (n,) float64
        From `policies.estimation.estimators.rate` of this evidence. Where they are of other evidence, so that
        nothing is left for the prior, the posterior is the gamma distribution that they stand for.

    Raises
    ------
    ValueError
        Evidence out of range.
    """
    evidence.check()
    step = np.minimum(_WIDEST_STEP, _DEVIATIONS / np.sqrt(information))
    places = np.arange(-_STEPS_BELOW, _STEPS_ABOVE + 1)
    rates = change_rate_per_day[:, None] * np.exp(step[:, None] * places)
    log = np.empty_like(rates)
    for nodes in bin_nodes(evidence):
        rows = slice(nodes.first, nodes.last)
        mode, size = change_rate_per_day[rows], nodes.last - nodes.first
        at = nodes.page[nodes.row]
        expected, curvature = changed_gaps(at, nodes.weight, nodes.days, mode)
        by_time = information[rows] - curvature
        events = by_time - expected
        known = events > _SMALLEST_EVENTS
        events, by_time = (
            np.where(known, events, information[rows]),
            np.where(known, by_time, information[rows]),
        )
        weight = np.where(known[at], nodes.weight, 0.0)
        for k, place in enumerate(places):
            x = np.maximum(rates[rows, k][at] * nodes.days, _SMALLEST_X)
            found = sum_by(at, weight * np.log(-np.expm1(-x)), size)
            log[rows, k] = events * (step[rows] * place) - by_time * (rates[rows, k] / mode) + found
    weight = np.exp(log - log.max(axis=1, keepdims=True))
    return Posterior(rates, weight / weight.sum(axis=1, keepdims=True))
