"""How well a crawler finds (Schulam and Muslea 2023, sections 2.1 and 3.3).

Judged are the targets that some source shows first after a warm-up, which is before all of them. Hours are
those of steps, as in the paper: in which step a target was there first, and in which it was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.discovery.presences import US_PER_HOUR, Presences
from policies.discovery.replay import Run
from policies.numerics.typing_ import FloatArray, IntArray

WITHIN_HOURS: Final = (1, 3, 6, 24)
_PERCENTILE: Final = 90.0


@dataclass(frozen=True)
class Judged:
    """A crawler's numbers, of each lane and domain.

    Attributes
    ----------
    coverage : (lanes, d) float64
        Targets found over those that any source showed. NaN where there are none.
    coverage_from_start : (lanes, d) float64
        The same, of all targets: those of the warm-up too.
    within : (4, lanes, d) float64
        Found within `WITHIN_HOURS`, over all: a share that a crawler which finds little cannot gain by.
    overhead : (lanes, d) float64
        Refreshes after the warm-up, over targets found in them; inf where none was.
    htd_p90 : (lanes, d) float64
        90th percentile of hours to discovery of those found; NaN where there are none.
    refreshes : (lanes, d) int64
        After the warm-up.
    found : (lanes, d, steps) int64
        Targets found up to the end of each step.
    """

    coverage: FloatArray
    coverage_from_start: FloatArray
    within: FloatArray
    overhead: FloatArray
    htd_p90: FloatArray
    refreshes: IntArray
    found: IntArray

    def take(self, lanes: IntArray) -> Judged:
        """Some lanes, or some of them several times."""
        return Judged(
            *(
                getattr(self, name)[:, lanes] if name == "within" else getattr(self, name)[lanes]
                for name in self.__dataclass_fields__
            )
        )


def joined(parts: Sequence[Judged]) -> Judged:
    """Lanes of several runs over one history, in order."""
    return Judged(
        *(
            np.concatenate([getattr(part, name) for part in parts], axis=1 if name == "within" else 0)
            for name in Judged.__dataclass_fields__
        )
    )


def judge(history: Presences, run: Run, warm_up_hours: float) -> Judged:
    """Judge a run.

    Parameters
    ----------
    history : Presences
    run : Run
    warm_up_hours : float
    """
    lanes, d = len(run.found_step), history.domains
    first, domain = history.first_step(), history.target_domain
    begin = -(-round(warm_up_hours * US_PER_HOUR) // history.step_us)
    there, judged = first < history.steps, (first >= begin) & (first < history.steps)
    all_there, all_judged = (np.bincount(domain[x], minlength=d) for x in (there, judged))
    hours = (run.found_step - first) * (history.step_us / US_PER_HOUR)
    was_found = run.found_step < history.steps
    coverage, whole, p90 = (np.full((lanes, d), np.nan) for _ in range(3))
    within = np.full((len(WITHIN_HOURS), lanes, d), np.nan)
    found = np.zeros((lanes, d, history.steps), np.int64)
    for lane in range(lanes):
        mine = was_found[lane] & judged
        place = domain[mine] * history.steps + run.found_step[lane, mine]
        steps = np.bincount(place, minlength=d * history.steps)
        found[lane] = np.cumsum(steps.reshape(d, -1), axis=1)
        coverage[lane] = _share(np.bincount(domain[mine], minlength=d), all_judged)
        whole[lane] = _share(np.bincount(domain[was_found[lane] & there], minlength=d), all_there)
        for i, limit in enumerate(WITHIN_HOURS):
            soon = mine & (hours[lane] <= limit)
            within[i, lane] = _share(np.bincount(domain[soon], minlength=d), all_judged)
        for j in range(d):
            some = hours[lane, mine & (domain == j)]
            if len(some):
                p90[lane, j] = np.percentile(some, _PERCENTILE)
    refreshes = run.refreshes[:, :, begin:].sum(axis=2)
    total = found[:, :, -1]
    overhead = np.where(total > 0, refreshes / np.maximum(total, 1), np.inf)
    return Judged(coverage, whole, within, overhead, p90, refreshes, found)


def _share(part: IntArray, whole: IntArray) -> FloatArray:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)


def regret(found: IntArray, oracle: IntArray) -> FloatArray:
    """Percent of the Oracle's targets that a crawler has not found, up to each step.

    May be negative, as the Oracle does not look ahead; NaN where the Oracle has found nothing.

    Parameters
    ----------
    found, oracle : (..., steps) int64
        As in `Judged`.
    """
    share = (oracle - found) / np.maximum(oracle, 1)
    return np.where(oracle > 0, 100.0 * share, np.nan)


def bootstrap(values: FloatArray, draws: int = 1000, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of a mean over domains, by drawing domains again: its ends.

    Parameters
    ----------
    values : (d,) float64
        NaN is left out.
    draws : int
    confidence : float

    Returns
    -------
    low, high : float
        NaN for fewer than two values.
    """
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return float("nan"), float("nan")
    generator = np.random.Generator(np.random.Philox(key=len(values)))
    means = values[generator.integers(0, len(values), (draws, len(values)))].mean(axis=1)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(means, [tail, 100.0 - tail])
    return float(low), float(high)
