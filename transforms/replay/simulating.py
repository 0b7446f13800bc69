"""Policies on drawn worlds: those of slots that are told the parameters, and those that learn on the way.

A cell of pages, bandwidth and repetitions is one element of a Beam pipeline. Its streams are drawn where it
runs, from the seed, so what comes out depends on nothing but the cell; which cells run together, and where,
does not matter. All policies of a repetition see the same changes, requests and signals. A time unit is a
day.

    told          GREEDY and the others of `greedy.crawl_values`, LDS: one crawl a slot, slots at even
                  distances; BASELINE: the exact accuracy of the continuous optimum, nothing is crawled
    learning      policies of `backtesting`: each night from what own crawls found, and signals

Every page is fresh and has just been crawled at time 0, for free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from policies.greedy.crawl_values import crawl_value_policy
from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray, IntArray
from policies.simulation import metrics
from policies.simulation.drawn import Drawn, Model, draw
from policies.simulation.experiments import BASELINE, LDS, low_discrepancy_picks
from policies.simulation.histories import ChangeHistory
from policies.simulation.scoring import accuracy, sampled_accuracy
from policies.simulation.slots import Lanes, run_lanes, slot_times
from policies.simulation.streams import Instance, baseline_accuracy, draw_requests, optimal_rates
from transforms.batches.hashing import stable_hash
from transforms.batches.steps import Step
from transforms.replay import backtesting
from transforms.replay.backtesting import Setting
from transforms.replay.worlds import SignalLog, World, name_pages

TOLD: Final = (
    "GREEDY",
    "GREEDY-CIS",
    "GREEDY-NCIS",
    "G-NCIS-APPROX-j",
    "GREEDY-CIS+",
    "GREEDY-NCIS-D",
    LDS,
    BASELINE,
)
"""Policies that are told the true parameters."""

WINDOWS: Final = 20
START_US: Final = 20_458 * US_PER_DAY
"""Of the replays: a Monday, as the offers' first day."""

_PAGES_AT_ONCE = 1_500_000  # pages times lanes
_PARTS = 4


def is_told(policy: str) -> bool:
    """Whether it is a policy of slots.

    Raises
    ------
    ValueError
        For a policy that is neither that nor one of `transforms.replay.backtesting`.
    """
    if policy in (LDS, BASELINE):
        return True
    if policy in backtesting.POLICIES:
        return False
    crawl_value_policy(policy)
    return True


@dataclass(frozen=True)
class Plan:
    """What is common to all cells.

    Attributes
    ----------
    model : Model
    days : int
    warm_up : float
        Share of the days that is not scored.
    seed : int
    discard : float
        Days after a crawl in which GREEDY-NCIS-D does not count signals.
    requests : bool
        Whether to draw requests as well and count those served fresh.
    """

    model: Model
    days: int
    warm_up: float
    seed: int
    discard: float = 0.0
    requests: bool = False

    @property
    def start(self) -> float:
        """Day from which on it is scored."""
        return self.warm_up * self.days


@dataclass(frozen=True)
class Cell:
    """Policies and repetitions that run together.

    Attributes
    ----------
    pages : int
    bandwidth : float
        Crawls per day, over all pages.
    policies : tuple of str
        All told, or a single one that learns.
    repetitions : tuple of int
    """

    pages: int
    bandwidth: float
    policies: tuple[str, ...]
    repetitions: tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """A policy in a repetition. What does not apply is None.

    Attributes
    ----------
    policy : str
    pages : int
    bandwidth, budget : float
        Crawls per day, and the same per page.
    repetition : int
    accuracy : float
        Exact over requests after the warm-up.
    offer_freshness : float
        The same with equal requests.
    harmonic_cost : float or None
        Mean over requests of 1 + 1/2 + ... + 1/k, k the changes since the crawl.
    crawls : int or None
        After the warm-up.
    spent : float or None
        The same per page and day.
    found : float or None
        Share of these that found a change.
    requests, fresh_requests : int or None
        Drawn after the warm-up, and those served fresh.
    over_time : (WINDOWS,) float64
        Accuracy in equal parts of all the time, warm-up included.
    """

    policy: str
    pages: int
    bandwidth: float
    budget: float
    repetition: int
    accuracy: float
    offer_freshness: float
    harmonic_cost: float | None
    crawls: int | None
    spent: float | None
    found: float | None
    requests: int | None
    fresh_requests: int | None
    over_time: FloatArray


def cells(
    policies: Sequence[str], pages: Sequence[int], bandwidths: Sequence[float], repetitions: int
) -> Iterator[Cell]:
    """All cells, in an order and a size that no number of workers decides.

    Policies that learn come first, for they take longest. Told ones share cells: lanes together are faster.
    """
    told = tuple(p for p in policies if is_told(p))
    for m in sorted(pages, reverse=True):
        for bandwidth in bandwidths:
            for policy in policies:
                if policy not in told:
                    yield from (Cell(m, bandwidth, (policy,), (r,)) for r in range(repetitions))
            if told:
                most = max(1, _PAGES_AT_ONCE // (m * len(told)))
                size = min(-(-repetitions // _PARTS), most)
                for first in range(0, repetitions, size):
                    some = tuple(range(first, min(first + size, repetitions)))
                    yield Cell(m, bandwidth, told, some)


def run_cell(plan: Plan, cell: Cell) -> Iterator[Outcome]:
    """Run all policies of a cell.

    Raises
    ------
    ValueError
        Where a policy cannot be brought to the budget, or a world has no requests.
    """
    drawn = [draw(plan.model, cell.pages, plan.days, plan.seed, r) for r in cell.repetitions]
    if is_told(cell.policies[0]):
        yield from _told(plan, cell, drawn)
    else:
        for one, repetition in zip(drawn, cell.repetitions, strict=True):
            page, day = _learning(plan, cell, one, repetition)
            yield _score(plan, cell, cell.policies[0], one, repetition, page, day)


def _told(plan: Plan, cell: Cell, drawn: list[Drawn]) -> Iterator[Outcome]:
    times = slot_times(cell.bandwidth, float(plan.days))
    greedy = [p for p in cell.policies if p not in (LDS, BASELINE)]
    instances = [one.instance for one in drawn]
    lanes = [Lanes(crawl_value_policy(p), instances, plan.discard) for p in greedy]
    picks = run_lanes(lanes, [one.streams for one in drawn], times)
    for i, (one, repetition) in enumerate(zip(drawn, cell.repetitions, strict=True)):
        rate = optimal_rates(one.instance, cell.bandwidth) if len(greedy) < len(cell.policies) else None
        for policy in cell.policies:
            if rate is not None and policy == BASELINE:
                yield _baseline(cell, one, repetition, rate)
                continue
            if rate is not None and policy == LDS:
                mine = low_discrepancy_picks(rate, cell.bandwidth, times.size)
            else:
                mine = picks[greedy.index(policy), i]
            used = mine >= 0
            yield _score(plan, cell, policy, one, repetition, mine[used].astype(np.int64), times[used])


def _baseline(cell: Cell, drawn: Drawn, repetition: int, rate: FloatArray) -> Outcome:
    fresh = baseline_accuracy(drawn.instance, rate)
    equal = baseline_accuracy(_equal(drawn), rate)
    budget, nothing = cell.bandwidth / cell.pages, (None,) * 6
    over_time = np.full(WINDOWS, fresh)
    return Outcome(
        BASELINE, cell.pages, cell.bandwidth, budget, repetition, fresh, equal, *nothing, over_time=over_time
    )


def _equal(drawn: Drawn) -> Instance:
    return replace(drawn.instance, request_rate=np.ones(len(drawn.instance)))


def _learning(plan: Plan, cell: Cell, drawn: Drawn, repetition: int) -> tuple[IntArray, FloatArray]:
    """Page and day of each paid crawl, by time within a page."""
    world, policy = as_world(drawn), cell.policies[0]
    begin_us = START_US + round(plan.start * US_PER_DAY)
    budget, phases = cell.bandwidth / cell.pages, (plan.seed << 32) + repetition
    key = stable_hash(f"{policy}:{cell.pages}:{cell.bandwidth!r}:{plan.seed}:{repetition}")
    setting = Setting(world, budget, world.weights["requests"], phases, begin_us, key)
    crawls = backtesting.POLICIES[policy].run(setting)
    paid = ~crawls.free
    return crawls.page[paid], (crawls.at_us[paid] - START_US) / US_PER_DAY


def as_world(drawn: Drawn) -> World:
    """The same world in microseconds, with URLs, for policies that replay it."""
    sites = drawn.site.tolist()
    url = pa.array([f"https://s{site:07d}.test/{i:07d}" for i, site in enumerate(sites)])
    signals, streams = SignalLog.empty(), drawn.streams
    if streams.signal_page.size:
        at_us = _us(streams.signal_time)
        signals = signals.add(streams.signal_page.astype(np.int64), at_us, "signals")
    metadata = {name: pa.array(values) for name, values in drawn.labels.items()}
    weights = {"requests": drawn.instance.request_rate}
    if drawn.impressions is not None:
        weights["impressions"] = drawn.impressions
    return World(_history(drawn), url, *name_pages(url), signals, metadata, weights)


def _us(days: FloatArray) -> IntArray:
    return START_US + np.rint(days * US_PER_DAY).astype(np.int64)


def _history(drawn: Drawn) -> ChangeHistory:
    streams = drawn.streams
    first = np.full(streams.pages, START_US, np.int64)
    end_us = START_US + round(streams.until * US_PER_DAY)
    page = streams.change_page.astype(np.int64)
    return ChangeHistory.from_events(START_US, end_us, first, page, _us(streams.change_time))


def _score(
    plan: Plan,
    cell: Cell,
    policy: str,
    drawn: Drawn,
    repetition: int,
    page: IntArray,
    day: FloatArray,
) -> Outcome:
    instance, streams, begin, end = drawn.instance, drawn.streams, plan.start, float(plan.days)
    window = np.array([begin, end])
    fresh = float(accuracy(instance, streams, page, day, window)[0])
    equal = float(accuracy(_equal(drawn), streams, page, day, window)[0])
    over_time = accuracy(instance, streams, page, day, np.linspace(0.0, end, WINDOWS + 1))

    history, everything = _history(drawn), np.arange(cell.pages)
    of, at_us = metrics.sort_crawls(
        np.concatenate((everything, page)), np.concatenate((history.first_us, _us(day)))
    )
    begin_us, end_us = START_US + round(begin * US_PER_DAY), history.end_us
    use = metrics.resource_use(history, of, at_us, begin_us, end_us)
    cost = metrics.harmonic_cost(history, of, at_us, begin_us, end_us)
    weight = instance.request_rate
    asked = served = None
    if plan.requests:
        asked_page, asked_at = draw_requests(instance, end, plan.seed, repetition)
        asked = int(np.count_nonzero(asked_at > begin))
        share = sampled_accuracy(streams, page, day, asked_page, asked_at, begin)
        served = round(share * asked) if asked else 0
    return Outcome(
        policy,
        cell.pages,
        cell.bandwidth,
        cell.bandwidth / cell.pages,
        repetition,
        fresh,
        equal,
        # Not by BLAS, whose sums depend on its threads.
        float((weight * cost).sum() / (weight.sum() * (end - begin))),
        use.crawls,
        use.per_page_day,
        use.found / use.crawls if use.crawls else 0.0,
        asked,
        served,
        over_time,
    )


@dataclass(frozen=True)
class Failed:
    """A cell that cannot be run as asked for: why, for a person."""

    why: str


class RunCells(Step):
    """Runs cells. Input: `Cell`; output: `Outcome`, one for each policy and repetition, or `Failed`."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def process(self, cell: Cell) -> Iterator[Outcome | Failed]:
        try:
            found: list[Outcome | Failed] = [*run_cell(self._plan, cell)]
        except ValueError as error:
            policies = ", ".join(cell.policies)
            found = [Failed(f"{policies}, {cell.pages} pages, {cell.bandwidth:g} crawls per day: {error}")]
        yield from found
