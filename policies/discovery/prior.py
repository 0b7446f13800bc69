"""Rates of new links with what other sources tell, where these are in several batches.

As `yields.Rates` with one group: sums over batches of what its prior is made of. A source that is on no list
is thought, before it shows what it brings, to be like others when somebody returned to them for the first
time. The mean of all would be that of sources which are refreshed often because they bring much; pages that
brought links by the thousand, as those of a calendar do, bring few at a second look, and so are their next
ones thought to do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.discovery.answers import Answers
from policies.discovery.items import Items
from policies.discovery.lifetimes import PRIOR_LINKS
from policies.discovery.picking import gammas, uniforms
from policies.discovery.planner import OPTIMISM
from policies.discovery.shared import UNIT, Common
from policies.discovery.sums import NEVER_S, Sums
from policies.discovery.yields import shape_of
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

RETURNS = 3.0
"""Links for which all hosts count in what first returns to a host bring."""


@dataclass(frozen=True)
class Prior:
    """New links an hour, over the square root of links on a source, and their spread.

    Attributes
    ----------
    per_root, shape : float
    usual_root : float
        Mean square root of links of sources that were seen.
    """

    per_root: float = 1.0
    shape: float = 1.0
    usual_root: float = 1.0


def added(parts: Sequence[FloatArray]) -> FloatArray:
    """Sums over batches, the same in any order of them."""
    return np.array([math.fsum(column) for column in zip(*parts, strict=True)])


def shares(sums: Sums, common: Common) -> FloatArray:
    """Mixtures of lifetimes: (n, c) float64."""
    made = sums.count.astype(np.float64) + PRIOR_LINKS * common.share
    return np.asarray(made / made.sum(axis=1, keepdims=True), np.float64)


def exposures(sums: Sums, share: FloatArray) -> FloatArray:
    """Hours of each source: (n,) float64."""
    return np.asarray((share * sums.exposure_hours).sum(axis=1), np.float64)


def means(sums: Sums, exposure: FloatArray) -> FloatArray:
    """What `with_mean` is made of, of one batch: (5,) float64."""
    known, seen, root = exposure > 0.0, sums.links > 0, _roots(sums)
    return np.array(
        [
            sums.new[known].sum(dtype=np.float64),
            (exposure * root)[known].sum(),
            root[seen].sum(),
            seen.sum(),
            known.sum(),
        ]
    )


def with_mean(total: FloatArray) -> Prior:
    """A prior of shape 1, by sums over all batches."""
    usual = float(total[2] / total[3]) if total[3] else 1.0
    if total[4] < 2:
        return Prior(1.0 / usual, 1.0, usual)
    return Prior(float((total[0] + 1e-3) / (total[1] + 1e-3)), 1.0, usual)


def spreads(sums: Sums, exposure: FloatArray, prior: Prior) -> FloatArray:
    """What `with_spread` is made of, of one batch: (4,) float64."""
    known, mean = exposure > 0.0, prior.per_root
    at = (exposure * _roots(sums))[known]
    rate, weight = sums.new[known] / at, at / (at + 1.0 / mean)
    noise = mean * (weight / at).sum()
    return np.array([weight.sum(), noise, (weight * (rate - mean) ** 2).sum(), known.sum()])


def with_spread(prior: Prior, total: FloatArray) -> Prior:
    """The prior by the method of moments, see `yields.Rates.fit_prior`."""
    if total[3] < 2:
        return prior
    spread = (total[2] - total[1]) / max(total[0], 1e-9) / prior.per_root**2
    return Prior(prior.per_root, float(shape_of(spread)), prior.usual_root)


def rates(
    sums: Sums, exposure: FloatArray, prior: Prior, early: FloatArray, listed: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """New links an hour, expected and with what is unknown thought well of: (n,) float64 each.

    Parameters
    ----------
    early : (n,) float64
        What first returns to the host have found, see `early_rates`.
    listed : (n,) bool
        Sources that somebody has named.
    """
    root = np.where(sums.links > 0, _roots(sums), prior.usual_root)
    mean = np.where(listed, prior.per_root, np.minimum(early, prior.per_root)) * root
    shape = prior.shape + sums.new.astype(np.float64)
    rate = prior.shape / mean + exposure
    return shape / rate, (shape + OPTIMISM * np.sqrt(shape)) / rate


def drawn(sums: Sums, prior: Prior, mean: FloatArray, key: UIntArray, step: int) -> FloatArray:
    """New links an hour, drawn from what is known of each source as Thompson sampling does: (n,) float64.

    Parameters
    ----------
    mean : (n,) float64
        Of `rates`.
    key : (n,) uint64
        Of sources; with `step` they decide what is drawn.
    """
    shape = prior.shape + sums.new.astype(np.float64)
    return gammas(shape, shape / mean, uniforms(key, np.zeros(len(key), np.uint64), step, 0))


def early_rates(host_new: IntArray, host_exposure: IntArray, common: Common) -> FloatArray:
    """New links an hour over the root of links where sources of a host were seen once: (h,) float64."""
    return np.asarray((host_new + RETURNS) / (host_exposure * UNIT + RETURNS / common.early), np.float64)


def answering(sums: Sums, at_hours: float) -> tuple[FloatArray, FloatArray]:
    """How often sources answer as a rule, and what failures since make of that: (n,) float64 each."""
    n = len(sums)
    every = np.zeros(n, np.int64)
    made = Answers(Items(np.zeros(n, np.uint64), np.zeros(n, np.uint64), every, np.ones(1, np.int64)))
    made.asked = sums.asked.astype(np.float64)
    made.answered = made.asked - sums.unanswered
    made.failures = sums.failures.astype(np.float64)
    failing = sums.failures > 0
    made.failed_hours = np.where(failing, sums.failed_s / 3600.0, np.nan)
    last = np.where(failing, sums.asked_s, sums.seen_s)
    made.asked_hours = np.where(last == NEVER_S, np.nan, last / 3600.0)
    return made.usual, made.worth(at_hours) / made.usual


def unanswered_hours(sums: Sums, now_hours: float, least_hours: float) -> tuple[FloatArray, FloatArray]:
    """Hours from the first failure to the last, at least so many, and since: (n,); 0 of what answers."""
    failing = sums.failures > 0
    away = np.maximum((sums.asked_s - sums.failed_s) / 3600.0, least_hours)
    return np.where(failing, away, 0.0), np.where(failing, now_hours - sums.asked_s / 3600.0, 0.0)


def _roots(sums: Sums) -> FloatArray:
    return np.asarray(np.sqrt(np.maximum(sums.links, 1.0)), np.float64)
