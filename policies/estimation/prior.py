"""The prior of change rates, learned from the pages themselves; see `policies.estimation.group_means.Prior`.

Pages with little history borrow from their group (host, path, metadata), small groups borrow from all pages.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, zeta

from policies.estimation.estimators import bin_nodes, rate
from policies.estimation.group_means import (
    Prior,
    check_groups,
    group_means,
    next_mean,
    slopes,
    sum_groups,
)
from policies.history.evidence import Evidence
from policies.numerics.typing_ import FloatArray, IntArray

__all__ = ["Estimate", "Prior", "estimate", "fit_prior", "mixed_means"]

DEFAULT_SHAPE = 0.5
DEFAULT_STRENGTH = 2.0
DEFAULT_EXPOSURE_DAYS = 10.0
"""A sample without a change is read as half a change in its exposure plus this many days."""

SHAPE_LIMITS = (0.1, 20.0)
STRENGTH_LIMITS = (0.3, 8.0)
"""Above, the strength would creep upwards for hundreds of rounds that change no rate."""

LARGEST_RATE_PER_DAY = 144.0
"""Rates are cut here while the prior is learned: a few pages that are new at every fetch must not set it."""

_ROUNDS = 100
_SETTLED = 1e-3


@dataclass(frozen=True, slots=True)
class Estimate:
    """Change rates of n pages in G groups.

    Attributes
    ----------
    change_rate_per_day, information : (n,) float64
        As from `policies.estimation.estimators.rate`.
    group_mean_per_day : (G,) float64
    """

    change_rate_per_day: FloatArray
    information: FloatArray
    group_mean_per_day: FloatArray


def estimate(evidence: Evidence, group: IntArray, n_groups: int, prior: Prior) -> Estimate:
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

    Raises
    ------
    ValueError
        Group codes out of range, evidence not finite.
    NotConvergedError
        As `policies.estimation.estimators.rate`.
    """
    mean = group_means(evidence, group, n_groups, prior)
    found, information = rate(evidence, prior.shape, mean[group])
    return Estimate(found, information, mean)


def mixed_means(rate: FloatArray, group: IntArray, n_groups: int, prior: Prior) -> FloatArray:
    """Mean of the rates (n,) of each group, mixed with the global mean: (n_groups,) float64, per day.

    The same bits for any order of pages.
    """
    sums = sum_groups(rate, np.zeros(len(rate)), group, np.full(n_groups, prior.mean_per_day))
    k, a = prior.group_strength, prior.shape
    mean: FloatArray = prior.mean_per_day * (k + a * sums.relative()[0]) / (k + a * sums.count)
    return mean


def fit_prior(evidence: Evidence, group: IntArray) -> Prior:
    """Learn the prior from a sample of pages.

    Rounds of expectation and maximisation: rates given the prior; the means of groups; the shape from the
    spread of rates around them, which is the posterior's mean of ``lambda / m - 1 - log(lambda / m)``, over
    what the rate and, to second order, what the mean of the group may be; and the strength of groups from
    ``m0 / m`` in the same way. Without the second order, groups of few pages pass for pages that are alike.
    Until shape and mean move by less than 0.1 %, strength and means of groups by less than 1 %, at most 100
    rounds. On 2,000 simulated pages with one change each the shape comes out within 25 % of the truth, with
    ten changes each within 10 %.

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
        [0.1, 20] and [0.3, 8].

    Notes
    -----
    The result has the same bits for any order of pages and any numbering of groups.
    """
    evidence.check()
    group = np.asarray(group, dtype=np.int64)
    check_groups(group, int(group.max(initial=-1)) + 1, len(evidence))
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
        before = shape, m0, strength, mean
        # Rates of the last round are close: two steps follow the prior while it still moves.
        lam, h = rate(evidence, shape, mean[code], lam, None if lam is None else 2, chunks)
        lam = np.minimum(lam, LARGEST_RATE_PER_DAY)
        m0 = math.fsum(lam) / n
        relative = lam / mean[code]
        slope = slopes(lam, h, shape, mean[code])
        sums = sum_groups(lam, slope, code, mean)
        total, total_slope = sums.relative()
        far = m0 / mean
        of_group = shape * (total - total_slope) + strength * far  # information on the logarithm of the mean
        loose = 0.5 * (1.0 - slope / lam) ** 2 * relative / of_group[code]
        spread = _spread(relative, h) + math.fsum(loose) / n
        mean = next_mean(total, total_slope, sums.count, mean, Prior(shape, m0, strength))
        shape = _shape_of_spread(spread, SHAPE_LIMITS)
        strength = _shape_of_spread(_spread(far, of_group), STRENGTH_LIMITS)
        quick = max(abs(math.log(shape / before[0])), abs(math.log(m0 / before[1])))
        slow = max(abs(math.log(strength / before[2])), float(np.abs(np.log(mean / before[3])).max()))
        if quick < _SETTLED and slow < 10.0 * _SETTLED:
            break
    return Prior(shape, m0, strength)


def _spread(value: FloatArray, information: FloatArray) -> float:
    """Mean of ``v - 1 - log v`` where v has a gamma distribution of shape `information` around `value`."""
    log = np.log(value) + digamma(information) - np.log(information)
    return (math.fsum(value - 1.0) - math.fsum(log)) / len(value)


def _shape_of_spread(spread: float, limits: tuple[float, float]) -> float:
    """Root `a` of ``log a - digamma(a) = spread``, clipped."""
    low, high = limits
    if not spread < math.log(low) - float(digamma(low)):
        return low
    if not spread > math.log(high) - float(digamma(high)):
        return high
    # Minka's start, then Newton in 1 / a; both converge from the left on this convex function.
    a = (3.0 - spread + math.sqrt((spread - 3.0) ** 2 + 24.0 * spread)) / (12.0 * spread)
    for _ in range(8):
        value = math.log(a) - float(digamma(a)) - spread
        trigamma = float(zeta(2.0, a))  # what `polygamma` says, without its ten arrays
        before, a = a, 1.0 / (1.0 / a + value / (a * a * (1.0 / a - trigamma)))
        if a == before:
            break
    return min(max(a, low), high)
