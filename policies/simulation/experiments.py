"""Repetitions of a synthetic experiment: policies by name, what they crawled, how accurate they were.

    experiment = Experiment(("GREEDY", "GREEDY-NCIS", "LDS", "BASELINE"), bandwidth=100.0, until=1000.0)
    result = simulate(experiment, make=lambda rng: uniform_instance(1000, rng, (0.25, 0.25), (0.1, 0.6)),
                      seed=0, repetitions=range(10))
    result.accuracy        # (policies, repetitions)

The result of a repetition depends on the seed, its number and the experiment alone, not on which repetitions
run together: any number of workers may share them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from policies.greedy.crawl_values import crawl_value_policy
from policies.numerics.typing_ import FloatArray, Int32Array, IntArray
from policies.sequencing.low_discrepancy import low_discrepancy
from policies.simulation.scoring import accuracy, sampled_accuracy
from policies.simulation.slots import Lanes, run_lanes, slot_times
from policies.simulation.streams import (
    Delay,
    Instance,
    Streams,
    baseline_accuracy,
    draw_requests,
    draw_streams,
    generator,
    optimal_rates,
)

BASELINE, LDS = "BASELINE", "LDS"

_PAGES_AT_ONCE = 1_500_000  # pages times lanes
_EVENTS_AT_ONCE = 24_000_000


@dataclass(frozen=True)
class Experiment:
    """What is common to all repetitions.

    Attributes
    ----------
    policies : sequence of str
        Names of `policies.greedy.crawl_values`, "LDS" and "BASELINE" (the exact accuracy of the continuous
        optimum; it has no picks). Both take the true rates.
    bandwidth : float or sequence of (start, bandwidth)
        Crawls per time unit, see `policies.simulation.slots.slot_times`. Steps are not for LDS and BASELINE.
    until : float
    warm_up : float
        Time at the start that is left out of the accuracy; None: a tenth of `until`.
    delay, delay_mean
        Of the signals, see `draw_streams`.
    discard_time : float
        Time after a crawl in which GREEDY-NCIS-D does not count signals.
    edges : (k + 1,) float64, optional
        Windows for accuracy over time.
    requests : bool
        Whether to draw requests as well and count those served fresh.
    """

    policies: Sequence[str]
    bandwidth: float | Sequence[tuple[float, float]]
    until: float
    warm_up: float | None = None
    delay: Delay = "none"
    delay_mean: float = 0.0
    discard_time: float = 0.0
    edges: FloatArray | None = None
    requests: bool = False

    @property
    def start(self) -> float:
        """End of the warm-up."""
        return 0.1 * self.until if self.warm_up is None else self.warm_up


@dataclass(frozen=True)
class Result:
    """Of P policies in R repetitions.

    Attributes
    ----------
    policies : tuple of str
    repetitions : (R,) int64
    accuracy : (P, R) float64
        Exact over requests after the warm-up.
    sampled : (P, R) float64
        Over drawn requests, NaN if they were not asked for and for BASELINE.
    over_time : (P, R, k) float64
        Accuracy in each window of `Experiment.edges`; k = 0 without.
    crawl_rate : (P, R, m) float64
        Crawls per time unit after the warm-up; of BASELINE the optimal rates.
    picks : (P, R, S) int32 or None
        Page of each slot, -1: none.
    """

    policies: tuple[str, ...]
    repetitions: IntArray
    accuracy: FloatArray
    sampled: FloatArray
    over_time: FloatArray
    crawl_rate: FloatArray
    picks: Int32Array | None = field(default=None)


def simulate(
    experiment: Experiment,
    make: Callable[[np.random.Generator], Instance],
    seed: int,
    repetitions: Sequence[int],
    believed: Callable[[Instance, np.random.Generator], Instance] | None = None,
    keep_picks: bool = False,
) -> Result:
    """Run all policies on common random numbers.

    Parameters
    ----------
    experiment : Experiment
    make : callable
        Pages of a repetition from its own random numbers; the same number of pages each time.
    seed : int
    repetitions : sequence of int
        Numbers of the repetitions to run.
    believed : callable, optional
        What the policies of crawl values are told about the pages; default the truth.
    keep_picks : bool

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        A policy without a name here, LDS or BASELINE with steps of bandwidth, or a warm-up outside
        [0, until).

    Notes
    -----
    Memory is bounded: repetitions run together as long as pages x lanes <= 1.5 million and changes and
    signals are 24 million at most (about 1 GB); a single repetition takes what it needs. A slot costs the
    less the more repetitions one call is given.
    """
    if not 0.0 <= experiment.start < experiment.until:
        raise ValueError(f"the warm-up must lie in [0, {experiment.until!r}), got {experiment.start!r}")
    steady = isinstance(experiment.bandwidth, int | float)
    for name in experiment.policies:
        if name in (BASELINE, LDS):
            if not steady:
                raise ValueError(f"{name} takes a constant bandwidth, not steps")
        else:
            crawl_value_policy(name)
    times = slot_times(experiment.bandwidth, experiment.until)
    parts: list[Result] = []
    waiting: list[tuple[int, Instance]] = []
    events = 0.0
    numbers = list(repetitions)
    for number in numbers:
        instance = make(generator(seed, number, "instance"))
        rates = instance.change_rate * (1.0 + instance.recall) + instance.false_signal_rate
        expected = experiment.until * float(rates.sum())
        lanes = (len(waiting) + 1) * max(len(experiment.policies), 1)
        if waiting and (lanes * len(instance) > _PAGES_AT_ONCE or events + expected > _EVENTS_AT_ONCE):
            parts.append(_together(experiment, times, waiting, seed, believed, keep_picks))
            waiting, events = [], 0.0
        waiting.append((number, instance))
        events += expected
    if not waiting:
        raise ValueError("there are no repetitions to run")
    parts.append(_together(experiment, times, waiting, seed, believed, keep_picks))
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=1)
        for name in ("accuracy", "sampled", "over_time", "crawl_rate")
    }
    picks = (
        np.concatenate([part.picks for part in parts if part.picks is not None], axis=1)
        if keep_picks
        else None
    )
    return Result(tuple(experiment.policies), np.array(numbers), **joined, picks=picks)


def low_discrepancy_picks(rate: FloatArray, bandwidth: float, slots: int) -> Int32Array:
    """Page of each slot of LDS at crawl rates (m,) per time unit, (slots,) int32; -1: none."""
    share = rate / bandwidth
    return low_discrepancy(share / max(1.0, share.sum()), slots).astype(np.int32)


def _together(
    experiment: Experiment,
    times: FloatArray,
    repetitions: list[tuple[int, Instance]],
    seed: int,
    believed: Callable[[Instance, np.random.Generator], Instance] | None,
    keep_picks: bool,
) -> Result:
    streams = [
        draw_streams(instance, experiment.until, seed, number, experiment.delay, experiment.delay_mean)
        for number, instance in repetitions
    ]
    told = [x if believed is None else believed(x, generator(seed, n, "beliefs")) for n, x in repetitions]
    greedy = [name for name in experiment.policies if name not in (BASELINE, LDS)]
    lanes = [Lanes(crawl_value_policy(name), told, experiment.discard_time) for name in greedy]
    found = run_lanes(lanes, streams, times)
    shape = (len(experiment.policies), len(repetitions))
    m = len(repetitions[0][1])
    windows = 0 if experiment.edges is None else experiment.edges.size - 1
    result = Result(
        tuple(experiment.policies),
        np.array([number for number, _ in repetitions]),
        np.empty(shape),
        np.full(shape, np.nan),
        np.empty((*shape, windows)),
        np.empty((*shape, m)),
        np.full((*shape, times.size), -1, np.int32) if keep_picks else None,
    )
    for i, (number, instance) in enumerate(repetitions):
        for j, name in enumerate(experiment.policies):
            _score(
                result,
                j,
                i,
                experiment,
                times,
                instance,
                streams[i],
                seed,
                number,
                found[greedy.index(name), i] if name in greedy else None,
            )
    return result


def _score(
    result: Result,
    j: int,
    i: int,
    experiment: Experiment,
    times: FloatArray,
    instance: Instance,
    streams: Streams,
    seed: int,
    number: int,
    picks: Int32Array | None,
) -> None:
    name = experiment.policies[j]
    if picks is None:
        assert isinstance(experiment.bandwidth, int | float)
        rate = optimal_rates(instance, float(experiment.bandwidth))
        if name == BASELINE:
            result.accuracy[j, i] = baseline_accuracy(instance, rate)
            result.over_time[j, i] = result.accuracy[j, i]
            result.crawl_rate[j, i] = rate
            return
        picks = low_discrepancy_picks(rate, float(experiment.bandwidth), times.size)
    edges = np.array([experiment.start, experiment.until])
    result.accuracy[j, i] = accuracy(instance, streams, picks, times, edges)[0]
    if experiment.edges is not None:
        result.over_time[j, i] = accuracy(instance, streams, picks, times, experiment.edges)
    if experiment.requests:
        page, time = draw_requests(instance, experiment.until, seed, number)
        result.sampled[j, i] = sampled_accuracy(streams, picks, times, page, time, experiment.start)
    counted = picks[(times > experiment.start) & (picks >= 0)]
    counts = np.bincount(counted, minlength=len(instance))
    result.crawl_rate[j, i] = counts / (experiment.until - experiment.start)
    if result.picks is not None:
        result.picks[j, i] = picks
