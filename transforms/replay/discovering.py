"""Crawlers that look for new pages, compared on one history of links: see `policies.discovery`.

A trial is one crawler with all budgets and seeds, side by side; it is one element of a Beam pipeline, and its
result depends on nothing but the history and the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from policies.discovery import metrics
from policies.discovery.items import Crawler, Items
from policies.discovery.pham import Pham
from policies.discovery.planner import Planner
from policies.discovery.presences import US_PER_HOUR, Presences
from policies.discovery.replay import Oracle, replay
from policies.discovery.rules import Elapsed, RoundRobin, Thompson, Uniform
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.batches.steps import Step
from transforms.replay.link_histories import ALL, LinkHistory

DEFAULT, ORACLE = "recrawl", "oracle"
_LANE_TARGETS = 1 << 27
"""Targets times lanes of one run: of more, lanes go one after the other."""


Make = Callable[[Items, Presences], Crawler]
"""Makes a crawler that can be tried."""


def _rule(make: Callable[[Items], Crawler]) -> Make:
    return lambda items, _: make(items)


def _pham(items: Items, history: Presences, first: bool = True) -> Crawler:
    return Pham(items, history.step_us / US_PER_HOUR, first)


POLICIES: dict[str, Make] = {
    DEFAULT: _rule(Planner),
    ORACLE: Oracle,
    "waiting": _rule(partial(Elapsed, worth_hours=12.0)),
    "elapsed": _rule(Elapsed),
    "elapsed-sampled": _rule(partial(Elapsed, sampled=True)),
    "thompson": _rule(Thompson),
    "thompson-skip-first": _rule(partial(Thompson, first=False)),
    "pham": _pham,
    "pham-skip-first": partial(_pham, first=False),
    "round-robin": _rule(RoundRobin),
    "uniform": _rule(Uniform),
}


@dataclass(frozen=True)
class Trial:
    """A policy, and whether with one budget for all sources."""

    policy: str
    pooled: bool


@dataclass(frozen=True)
class Result:
    """What came of one policy, domain, budget and seed; see `metrics.Judged`.

    Attributes
    ----------
    found : (steps,) int64
        Targets found up to the end of each step.
    """

    policy: str
    domain: str
    k: int
    seed: int
    coverage: float
    found_within_3h: float
    overhead: float
    htd_p90: float
    refreshes: int
    found_within_1h: float
    found_within_6h: float
    found_within_24h: float
    coverage_from_start: float
    found: IntArray


def trials(policies: Sequence[str], by_domain: bool, pooled: bool) -> Iterator[Trial]:
    """All of them."""
    for policy in policies:
        for at_once in (False,) * by_domain + (True,) * pooled:
            yield Trial(policy, at_once)


def play(
    history: Presences, policy: str, ks: Sequence[int], seeds: Sequence[int], warm_up_hours: float
) -> metrics.Judged:
    """One policy with all budgets and seeds, budget by budget.

    What draws nothing plays once for all seeds.
    """
    once = [0] if policy == ORACLE else list(range(len(seeds)))
    budgets = np.repeat(np.asarray(ks, np.int64), len(once))
    lanes = np.tile(np.asarray(seeds, np.uint64)[once], len(ks))
    at_once = max(1, _LANE_TARGETS // max(history.targets, 1))
    parts = []
    for begin in range(0, len(budgets), at_once):
        some = slice(begin, begin + at_once)
        crawler = POLICIES[policy](history.items(budgets[some], lanes[some]), history)
        parts.append(metrics.judge(history, replay(history, crawler, len(budgets[some])), warm_up_hours))
    whole = metrics.joined(parts)
    if len(once) == len(seeds):
        return whole
    return whole.take(np.repeat(np.arange(len(ks)), len(seeds)))


class PlayDiscovery(Step):
    """Plays trials: a list of `Result` each."""

    def __init__(self, ks: Sequence[int], seeds: Sequence[int], warm_up_hours: float) -> None:
        self._ks, self._seeds, self._warm_up = tuple(ks), tuple(seeds), warm_up_hours

    def process(self, trial: Trial, history: LinkHistory) -> Iterator[list[Result]]:
        tried = history.pooled if trial.pooled else history.by_domain
        if tried is None:
            return
        judged = play(tried, trial.policy, self._ks, self._seeds, self._warm_up)
        names = (ALL,) if trial.pooled else history.domains
        yield list(results(trial.policy, names, self._ks, self._seeds, judged))


def results(
    policy: str, names: Sequence[str], ks: Sequence[int], seeds: Sequence[int], judged: metrics.Judged
) -> Iterator[Result]:
    """A row for each domain, budget and seed in which there was something to find."""
    lane = 0
    for k in ks:
        for seed in seeds:
            for d, name in enumerate(names):
                at = lane, d
                if not np.isnan(judged.coverage[at]):
                    within: FloatArray = judged.within[:, lane, d]
                    yield Result(
                        policy, name, k, seed, float(judged.coverage[at]), float(within[1]),
                        float(judged.overhead[at]), float(judged.htd_p90[at]), int(judged.refreshes[at]),
                        float(within[0]), float(within[2]), float(within[3]),
                        float(judged.coverage_from_start[at]), judged.found[at],
                    )  # fmt: skip
            lane += 1
