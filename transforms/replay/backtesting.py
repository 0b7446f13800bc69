"""Policies compared on one history: who spends the same number of crawls best.

All policies of a repetition see the same changes and free crawls, and are scored by the same weights. A run
is one element of a Beam pipeline; its result depends on nothing but the world and its `Trial`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray
from policies.rules.crawler_rules import RULES, ByAge, SitemapDriven
from policies.simulation import intervals, metrics
from transforms.batches.hashing import stable_hash
from transforms.batches.steps import Step
from transforms.replay.bandit_nights import BanditNights
from transforms.replay.closed_loop import ClosedLoop, Crawls, Planner
from transforms.replay.hour_nights import AtBestHours
from transforms.replay.job_nights import JobFold, JobNights, JobOptions
from transforms.replay.night_modes import LearnedTrust, Mode
from transforms.replay.rate_nights import (
    EVEN,
    RANDOM,
    Averages,
    Estimates,
    JobEstimates,
    KnownRates,
    MetadataMeans,
    NoEstimates,
    RateNights,
    Uncensored,
    group_means,
)
from transforms.replay.replaying import Replayed
from transforms.replay.worlds import World

EQUAL, ZIPF = "equal", "zipf"
HISTORY, METADATA, BOTH = "history", "metadata", "both"
ESTIMATORS = (HISTORY, METADATA, BOTH)
"""What rates are estimated from (Han et al. 2020, Table 3, who have "h" and "ml")."""

ESTIMATED = {
    "change-weighted": EVEN,
    "lambdacrawl": RANDOM,
    "lambdacrawl-discrete": RANDOM,
    "harmonic": RANDOM,
}
"""Policies of estimated change rates, and their order of crawls."""


@dataclass(frozen=True)
class Weighting:
    """How runs are scored, and what policies take for the weights of pages.

    Attributes
    ----------
    name : str
        "equal", "zipf", or a name of `World.weights`.
    repetition : int
        Of Zipf weights another draw of which pages are popular.
    seed : int
        Of the free crawls and first phases.
    """

    name: str
    repetition: int = 0
    seed: int = 0

    def weight(self, world: World) -> FloatArray:
        """Weights of all pages, (n,)."""
        if self.name == EQUAL:
            return np.ones(len(world))
        if self.name == ZIPF:
            return metrics.zipf_weights(len(world), self.repetition + 1)
        return world.weights[self.name]


@dataclass(frozen=True)
class Trial:
    """One run: a policy at a budget, crawls per page and day, scored by one or more weightings of a seed."""

    policy: str
    budget: float
    weightings: tuple[Weighting, ...]


@dataclass(frozen=True)
class Scored:
    """What came of a run under one weighting.

    Attributes
    ----------
    policy : str
    budget : float
        Crawls per page and day that it was to spend.
    weights : str
    repetition : int
    pages : int
    crawls : int
        Paid crawls in the scored nights.
    spent : float
        The same per page and day.
    found : float
        Share of these that found a change.
    accuracy : float
        Time-averaged weighted freshness: fresh requests over requests.
    offer_freshness : float
        The same with equal weights.
    harmonic_cost : float
        Mean over requests of 1 + 1/2 + ... + 1/k, k the changes since the crawl.
    fresh, held : (scored nights,) float64
        Weighted days of fresh copies, and of pages, of each day.
    """

    policy: str
    budget: float
    weights: str
    repetition: int
    pages: int
    crawls: int
    spent: float
    found: float
    accuracy: float
    offer_freshness: float
    harmonic_cost: float
    fresh: FloatArray
    held: FloatArray


@dataclass(frozen=True)
class Setting:
    """What a policy is made for."""

    world: World
    budget: float
    weight: FloatArray
    seed: int
    score_from_us: int
    key: int


@dataclass(frozen=True)
class Policy:
    """A policy that can be backtested.

    Attributes
    ----------
    weighs : bool
        Whether it knows what pages weigh; else one run serves for all weightings.
    run : callable
        From `Setting` to `Crawls`.
    needs : str
        What a world must have: "signals", "metadata", "impressions" or nothing; "weights": weights that score
        and are not all equal.
    reference : bool
        Whether it knows what no crawler can know.
    """

    run: Callable[[Setting], Crawls]
    weighs: bool = True
    needs: str = ""
    reference: bool = False


def _follow(planner: Callable[[Setting], Planner], setting: Setting) -> Crawls:
    return ClosedLoop(setting.world, planner(setting), setting.seed).run().crawls


def _job(mode: type[Mode], groups: bool, s: Setting, sequencer: str = "lds") -> Planner:
    columns = tuple(sorted(s.world.metadata)) if groups else ()
    options = JobOptions(group_columns=columns, sequencer=sequencer)
    return JobNights(s.world, mode(s.world), s.budget, s.weight, options, foretell=False)


def _told_no_weights(planner: Callable[[Setting], Planner], s: Setting) -> Planner:
    return planner(replace(s, weight=np.ones(len(s.world))))


def _learned(s: Setting) -> Estimates:
    return JobEstimates(JobFold(s.world, Mode(s.world), s.weight))


def _by_metadata(s: Setting) -> Estimates:
    """As `_learned`, beside pages with the same metadata in place of those of the host."""
    options = JobOptions(group_columns=tuple(sorted(s.world.metadata)))
    return JobEstimates(JobFold(s.world, Mode(s.world), s.weight, options))


def _estimated(name: str, order: str, how: str, s: Setting) -> Planner:
    """A policy of estimated rates, `how` being "both" or "metadata": then requests are so, too."""
    if how == BOTH:
        return _rates(name, _by_metadata, order, s)
    columns = [c.to_numpy(zero_copy_only=False).astype(str) for _, c in sorted(s.world.metadata.items())]
    group = np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)
    weights = {n: group_means(w, group) for n, w in s.world.weights.items()}
    told = replace(s, world=replace(s.world, weights=weights), weight=group_means(s.weight, group))
    return _rates(name, lambda t: MetadataMeans(_by_metadata(t), group), order, told)


def _averages(s: Setting) -> Estimates:
    return Averages(s.world)


def _no_estimates(s: Setting) -> Estimates:
    return NoEstimates()


def _known(s: Setting) -> Estimates:
    return KnownRates(s.world, s.score_from_us, s.world.end_us)


def _uncensored(s: Setting) -> Estimates:
    return Uncensored(s.world)


def _rates(name: str, estimates: Callable[[Setting], Estimates], order: str, s: Setting) -> Planner:
    return RateNights(s.world, estimates(s), name, s.budget, s.weight, order, s.key)


def _kab(name: str, s: Setting) -> Planner:
    return BanditNights(s.world, _learned(s), name.upper(), s.budget, s.weight, s.key)


def _as_crawls(world: World, found: intervals.CrawlTimes) -> Crawls:
    version = world.history.version(found.page, found.at_us)
    again = np.diff(found.page, prepend=-1) == 0
    changed = again & (np.diff(version, prepend=-1) != 0)
    return Crawls(found.page, found.at_us, changed, np.where(found.free, np.nan, 0.0))


def _at_best_hours(s: Setting) -> Planner:
    return AtBestHours(s.world, _rates("uniform", _no_estimates, EVEN, s), s.score_from_us)


def _rule(name: str, s: Setting) -> Crawls:
    rule = ByAge() if name == ByAge.name else RULES[name]
    found = intervals.rule_at_budget(s.world.history, rule, s.budget, s.score_from_us, s.seed)
    return _as_crawls(s.world, found.crawls)


def _sitemap(s: Setting) -> Crawls:
    log = s.world.signals
    said = intervals.Sitemap(log.page, log.seen_us, log.dated_us, s.world.signalled)
    found = intervals.sitemap_at_budget(
        s.world.history, SitemapDriven(), said, s.budget, s.score_from_us, s.seed
    )
    return _as_crawls(s.world, found.crawls)


def _policy(
    planner: Callable[[Setting], Planner],
    weighs: bool = True,
    needs: str = "",
    reference: bool = False,
) -> Policy:
    return Policy(partial(_follow, planner), weighs, needs, reference)


POLICIES: dict[str, Policy] = {
    "recrawl": _policy(partial(_job, Mode, False)),
    "recrawl+groups": _policy(partial(_job, Mode, True), needs="metadata"),
    "recrawl+signals": _policy(partial(_job, LearnedTrust, False), needs="signals"),
    "recrawl+equal": _policy(
        partial(_told_no_weights, partial(_job, Mode, False)),
        weighs=False,
        needs="weights",
    ),
    "recrawl+greedy": _policy(
        partial(_job, Mode, False, sequencer="greedy"),
    ),
    "uniform": _policy(partial(_rates, "uniform", _no_estimates, EVEN), weighs=False),
    "change-weighted": _policy(partial(_rates, "change-weighted", _learned, EVEN), False),
    "click-weighted": _policy(partial(_rates, "click-weighted", _no_estimates, EVEN)),
    "impression-weighted": _policy(
        partial(_rates, "impression-weighted", _no_estimates, EVEN),
        needs="impressions",
    ),
    "lambdacrawl": _policy(partial(_rates, "lambdacrawl", _learned, RANDOM)),
    "lambdacrawl-discrete": _policy(partial(_rates, "lambdacrawl-discrete", _learned, RANDOM)),
    "harmonic": _policy(partial(_rates, "harmonic", _learned, RANDOM)),
    **{
        f"{name}/{how}": _policy(partial(_estimated, name, order, how), needs="metadata")
        for name, order in ESTIMATED.items()
        for how in (METADATA, BOTH)
    },
    "periodic-history": _policy(partial(_rates, "periodic", _averages, EVEN)),
    **{f"kab{k}": _policy(partial(_kab, f"KAB{k}")) for k in (2, 3, 4, 5)},
    **{name: Policy(partial(_rule, name), weighs=False) for name in RULES},
    "sitemap": Policy(
        _sitemap,
        weighs=False,
        needs="signals",
    ),
    "age-aware": Policy(
        partial(_rule, ByAge.name),
        weighs=False,
        reference=True,
    ),
    "hour-aware": _policy(
        _at_best_hours,
        weighs=False,
        reference=True,
    ),
    "uncensored": _policy(
        partial(_rates, "periodic", _uncensored, EVEN),
        reference=True,
    ),
    "known-rates": _policy(
        partial(_rates, "periodic", _known, EVEN),
        reference=True,
    ),
}


NEEDS = {
    "signals": "--signals",
    "metadata": "--pages with columns of metadata",
    "impressions": "--requests with impressions",
    "weights": "weights that differ, from --requests, --pages or --weights=zipf",
}


def available(world: World, names: Iterable[str], scorings: Iterable[Weighting]) -> list[str]:
    """Those of some policies for which a world, and the weights that score, have what they need."""
    has = {
        "": True,
        "signals": len(world.signals) > 0,
        "metadata": bool(world.metadata),
        "impressions": "impressions" in world.weights,
        "weights": any(w.name != EQUAL for w in scorings),
    }
    return [name for name in names if has[POLICIES[name].needs]]


def arms(names: Iterable[str], estimators: Iterable[str]) -> tuple[str, ...]:
    """Policies with each of some `ESTIMATORS`; those that estimate nothing as they are."""
    of_job = {("recrawl", BOTH): "recrawl+groups"}
    found = []
    for name in names:
        for how in estimators:
            arm = of_job.get((name, how), f"{name}/{how}")
            found.append(arm if arm in POLICIES else name)
    return tuple(dict.fromkeys(found))


def lacking(world: World, names: Iterable[str], scorings: Iterable[Weighting]) -> dict[str, str]:
    """What each of the policies that are not `available` needs."""
    names = list(names)
    allowed = available(world, names, scorings)
    return {name: NEEDS[POLICIES[name].needs] for name in names if name not in allowed}


def weightings(names: Sequence[str], draws: int, repetitions: int) -> list[Weighting]:
    """All weightings: of Zipf weights a number of draws, of others one for each seed."""
    found = []
    for name in names:
        if name == ZIPF:
            found += [Weighting(name, draw, draw % repetitions) for draw in range(draws)]
        else:
            found += [Weighting(name, seed, seed) for seed in range(repetitions)]
    return found


def trials(
    policies: Iterable[str], budgets: Iterable[float], scorings: Sequence[Weighting]
) -> Iterator[Trial]:
    """All runs. A policy that does not know weights is run once for each seed."""
    budgets = list(budgets)
    for name in policies:
        for budget in budgets:
            if POLICIES[name].weighs:
                yield from (Trial(name, budget, (w,)) for w in scorings)
                continue
            for seed in sorted({w.seed for w in scorings}):
                yield Trial(name, budget, tuple(w for w in scorings if w.seed == seed))


def scored_from(world: World, warm_up: float) -> int:
    """The night with which scoring begins, UTC microseconds: this share of the nights is warm-up."""
    return int(world.start_us + round(warm_up * len(world.nights())) * US_PER_DAY)


def play(world: World, trial: Trial, warm_up: float = 0.4) -> list[Scored]:
    """Make one run and score it.

    Raises
    ------
    ValueError
        For a budget of less than one crawl, or a share of warm-up that leaves no night.
    """
    begin = scored_from(world, warm_up)
    first = trial.weightings[0]
    name = f"{trial.policy}:{trial.budget!r}:{first.name}:{first.repetition}"
    setting = Setting(world, trial.budget, first.weight(world), first.seed, begin, stable_hash(name))
    crawls = POLICIES[trial.policy].run(setting)
    return [score(world, trial, w, crawls, begin) for w in trial.weightings]


def score(world: World, trial: Trial, weighting: Weighting, crawls: Crawls, begin_us: int) -> Scored:
    """Score the crawls of a run from a night on."""
    past, weight = world.history, weighting.weight(world)
    edges = np.arange(begin_us, world.end_us + 1, US_PER_DAY)
    end = int(edges[-1])
    fresh, held = (v[:, 0] for v in metrics.by_period(past, crawls.page, crawls.at_us, edges, weight))
    held_days = past.held_days(begin_us, end)
    plain = metrics.fresh_days(past, crawls.page, crawls.at_us, begin_us, end)
    cost = metrics.harmonic_cost(past, crawls.page, crawls.at_us, begin_us, end)
    paid = ~crawls.free & (crawls.at_us >= begin_us) & (crawls.at_us < end)
    number = int(np.count_nonzero(paid))
    return Scored(
        trial.policy,
        trial.budget,
        weighting.name,
        weighting.repetition,
        len(world),
        number,
        number / past.paid_days(begin_us, end),
        float(crawls.changed[paid].mean()) if number else 0.0,
        float(fresh.sum() / held.sum()),
        float(metrics.weighted(plain, held_days)),
        float((weight * cost).sum() / (weight * held_days).sum()),
        fresh,
        held,
    )


class PlayTrials(Step):
    """Makes runs on the world, a side input. Input: `Trial`; output: `Scored`, one for each weighting."""

    def __init__(self, warm_up: float) -> None:
        self._warm_up = warm_up

    def process(self, trial: Trial, replayed: Replayed) -> Iterator[Scored]:
        yield from play(replayed.world, trial, self._warm_up)
