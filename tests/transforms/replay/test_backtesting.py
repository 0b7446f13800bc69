"""Runs of policies on a history: budgets, what they see, who wins where theory says who must."""

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from policies.history.page_state import US_PER_DAY
from policies.objectives.objectives import Periodic
from policies.rules.bandits import KAB_ARMS
from policies.rules.crawler_rules import RULES
from policies.rules.rate_policies import Parameters, rates
from policies.simulation import intervals, metrics
from policies.simulation.histories import ChangeHistory
from tests.transforms.replayed_worlds import START, poisson_world
from transforms.replay.backtesting import (
    ESTIMATED,
    POLICIES,
    Scored,
    Setting,
    Trial,
    Weighting,
    available,
    lacking,
    play,
    scored_from,
    trials,
    weightings,
)
from transforms.replay.bandit_nights import BanditNights
from transforms.replay.closed_loop import ClosedLoop, Crawls, Day, Planner
from transforms.replay.job_nights import JobFold
from transforms.replay.night_modes import Mode
from transforms.replay.rate_nights import (
    EVEN,
    RANDOM,
    Averages,
    Estimates,
    JobEstimates,
    KnownRates,
    NoEstimates,
    RateNights,
    Uncensored,
)
from transforms.replay.worlds import World

EQUAL = (Weighting("equal"),)
# To keep the last third fresh is hopeless.
MIXED = np.repeat([0.02, 0.5, 5.0], 20)
DAYS = 25


@pytest.fixture(scope="module")
def world() -> World:
    return poisson_world(MIXED, DAYS)


@pytest.fixture(scope="module")
def played(world: World) -> Callable[[str], Scored]:
    """What a policy comes to in the world at a budget of 0.3 and equal weights; run once for all tests."""
    return functools.cache(lambda name: play(world, Trial(name, 0.3, EQUAL))[0])


def rates_found(world: World, estimates: Estimates) -> np.ndarray:
    """What the last of all nights thinks, with uniform crawls."""
    seen = []

    class Spy(Estimates):
        def change_rates(self, day: Day, known: np.ndarray) -> np.ndarray:
            seen.append(estimates.change_rates(day, known))
            return seen[-1]

    ClosedLoop(world, RateNights(world, Spy(), "uniform", 1.0, np.ones(len(world)))).run()
    return seen[-1]


def crawls_of(world: World, planner: Planner) -> Crawls:
    return ClosedLoop(world, planner).run().crawls


@pytest.mark.parametrize("name", [n for n, p in POLICIES.items() if not p.needs])
def test_every_policy_spends_its_budget(world: World, name: str, played: Callable[[str], Scored]) -> None:
    found = played(name)
    assert found.spent == pytest.approx(0.3, rel=0.01)
    assert found.crawls == pytest.approx(0.3 * len(world) * 15, rel=0.01)
    assert found.accuracy == pytest.approx(found.offer_freshness)
    assert found.fresh.sum() / found.held.sum() == pytest.approx(found.accuracy)
    assert len(found.fresh) == 15


@pytest.mark.parametrize("name", ["recrawl", "uniform", "lambdacrawl", *RULES])
def test_where_pages_appear_all_policies_spend_the_same(name: str) -> None:
    """Five new pages a day beside a hundred old ones: who plans at night cannot pay for pages of that day."""
    appears = np.concatenate([np.full(100, -1.0), np.arange(140) / 5.0 + 0.3])
    growing = poisson_world(np.full(240, 0.3), 28, appears_day=appears)
    found = play(growing, Trial(name, 0.3, EQUAL))[0]
    assert found.spent == pytest.approx(0.3, rel=0.005)


def test_hopeless_pages_are_left_alone_by_who_knows(played: Callable[[str], Scored]) -> None:
    fresh = {
        name: played(name).accuracy
        for name in ("recrawl", "uniform", "change-weighted", "known-rates", "heritrix")
    }
    rate = rates("periodic", Parameters.of(MIXED, np.ones(60)), 0.3 * 60)
    optimum = Periodic().freshness(rate, MIXED).mean()
    assert fresh["known-rates"] == pytest.approx(optimum, abs=0.03)
    assert fresh["recrawl"] > fresh["uniform"] + 0.01
    assert fresh["uniform"] > fresh["change-weighted"] + 0.03
    assert fresh["uniform"] > fresh["heritrix"] + 0.03


def test_estimates_near_the_true_rates() -> None:
    rate_per_day = np.repeat([0.2, 0.8], 40)
    world = poisson_world(rate_per_day, 60, seed=3)
    fold = JobFold(world, Mode(world), np.ones(80))
    for estimates in (JobEstimates(fold), Averages(world), Uncensored(world)):
        found = rates_found(world, estimates)
        for rate in (0.2, 0.8):
            # Averages count found changes, one a day at most: (1 - e^-0.8) is 0.55.
            expected = -np.expm1(-rate) if isinstance(estimates, Averages) else rate
            assert found[rate_per_day == rate].mean() == pytest.approx(expected, rel=0.2)
    known = KnownRates(world, world.start_us, world.end_us)
    truth = world.history.changes_between(world.start_us, world.end_us) / 60
    assert rates_found(world, known) == pytest.approx(truth, abs=0.01)


@pytest.mark.parametrize("name", ["recrawl", "periodic-history", "uncensored"])
def test_learners_see_only_their_own_crawls(name: str) -> None:
    """Without the changes that no crawl up to a night has seen, all is the same up to that night."""
    world, night = poisson_world(MIXED[::3], 20), START + 15 * US_PER_DAY
    n, past = len(world), world.history
    setting = Setting(world, 0.3, np.ones(n), 0, START, 0)
    crawls = POLICIES[name].run(setting)
    before = crawls.at_us <= night
    last = np.full(n, past.start_us - US_PER_DAY)
    np.maximum.at(last, crawls.page[before], crawls.at_us[before])
    seen = past.change_us <= last[past.change_page]
    assert 50 < seen.sum() < 0.9 * len(seen)
    changes = (past.change_page[seen], past.change_us[seen], past.change_version[seen])
    blind = replace(world, history=ChangeHistory(past.start_us, past.end_us, past.first_us, *changes))
    other = POLICIES[name].run(replace(setting, world=blind))
    early, of_other = (c.take(c.at_us < night + US_PER_DAY) for c in (crawls, other))
    assert (early.page == of_other.page).all() and (early.at_us == of_other.at_us).all()


def test_random_order_follows_the_rates(world: World) -> None:
    weight = np.repeat([1.0, 3.0], 30)
    even, drawn = (
        crawls_of(world, RateNights(world, NoEstimates(), "click-weighted", 1.0, weight, order, key=7))
        for order in (EVEN, RANDOM)
    )
    for crawls, spread in ((even, 1.0), (drawn, 4.0 * np.sqrt(DAYS * 60 * 0.75 * 0.25))):
        heavy = np.count_nonzero(crawls.page[~crawls.free] >= 30)
        assert abs(heavy - 0.75 * DAYS * 60) <= spread + 30
    gaps = [np.diff(c.at_us)[np.diff(c.page) == 0] / US_PER_DAY for c in (even, drawn)]
    # Distances at random are exponential: as spread as they are long.
    assert gaps[0].std() < 0.6 * gaps[0].mean() and gaps[1].std() > 0.8 * gaps[1].mean()


def test_a_bandit_comes_to_prefer_the_arm_that_finds_changes() -> None:
    """Pages that change weigh nothing but little: crawls by change rates find some, by clicks none."""
    world = poisson_world(np.repeat([1e-9, 2.0], 30), 40, seed=4)
    weight = np.repeat([10.0, 0.1], 30)
    bandit = BanditNights(world, KnownRates(world, START, world.end_us), "KAB2", 0.5, weight, key=1)
    crawls = crawls_of(world, bandit)
    assert KAB_ARMS["KAB2"] == ("click-weighted", "change-weighted")
    assert bandit.probability[0].tolist() == [0.5, 0.5]
    assert bandit.probability[-1][1] > 0.9
    paid = ~crawls.free
    assert np.count_nonzero(paid) == 0.5 * 60 * 40
    late = crawls.page[paid & (crawls.at_us > START + 20 * US_PER_DAY)]
    assert (late >= 30).mean() > 0.85


def test_one_run_serves_all_weights_of_a_policy_that_does_not_know_them(world: World) -> None:
    scorings = weightings(["equal", "zipf"], draws=3, repetitions=2)
    assert [(w.name, w.repetition, w.seed) for w in scorings] == [
        ("equal", 0, 0),
        ("equal", 1, 1),
        ("zipf", 0, 0),
        ("zipf", 1, 1),
        ("zipf", 2, 0),
    ]
    planned = list(trials(["recrawl", "uniform"], [0.1, 0.3], scorings))
    assert len([t for t in planned if t.policy == "recrawl"]) == 10
    uniform = [t for t in planned if t.policy == "uniform"]
    assert [len(t.weightings) for t in uniform] == [3, 2, 3, 2]
    together = play(world, uniform[0])
    alone = [play(world, Trial("uniform", 0.1, (w,)))[0] for w in uniform[0].weightings]
    assert [s.accuracy for s in together] == [s.accuracy for s in alone]


def test_rules_are_those_of_the_simulator(world: World, played: Callable[[str], Scored]) -> None:
    begin = scored_from(world, 0.4)
    assert begin == START + 10 * US_PER_DAY
    for name, rule in RULES.items():
        crawls = intervals.rule_at_budget(world.history, rule, 0.3, begin).crawls
        fresh = metrics.fresh_days(world.history, crawls.page, crawls.at_us, begin, world.end_us)
        held = world.history.held_days(begin, world.end_us)
        assert played(name).accuracy == pytest.approx(fresh.sum() / held.sum())


def test_what_worlds_allow(world: World) -> None:
    names = available(world, POLICIES, EQUAL)
    assert set(available(world, POLICIES, [*EQUAL, Weighting("zipf")])) - set(names) == {"recrawl+equal"}
    assert list(lacking(world, ["recrawl+equal", "uniform"], EQUAL)) == ["recrawl+equal"]
    assert {*lacking(world, POLICIES, iter(EQUAL))} == {*POLICIES} - {*names}
    assert set(POLICIES) - set(names) == {
        "recrawl+equal",
        "recrawl+groups",
        "recrawl+signals",
        "sitemap",
        "impression-weighted",
        *(f"{name}/{how}" for name in ESTIMATED for how in ("metadata", "both")),
    }


def test_what_weights_are_worth(world: World, played: Callable[[str], Scored]) -> None:
    """Of two jobs that are scored by Zipf weights one does not know them: it crawls as for equal ones."""
    zipf = (Weighting("zipf"),)
    told, untold = (play(world, Trial(name, 0.3, zipf))[0] for name in ("recrawl", "recrawl+equal"))
    assert untold.offer_freshness == played("recrawl").offer_freshness
    assert told.accuracy > untold.accuracy + 0.05 and told.offer_freshness < untold.offer_freshness


def test_signals_put_to_use() -> None:
    quiet = poisson_world(np.full(60, 0.3), 30, seed=5)
    past = quiet.history
    inside = past.change_us > past.start_us
    signals = quiet.signals.add(past.change_page[inside], past.change_us[inside], "ping")
    world = World(past, quiet.url, quiet.url_hash, quiet.host_hash, quiet.host, quiet.hosts, signals=signals)
    without, heard, sitemap = (
        play(world, Trial(name, 0.4, EQUAL))[0] for name in ("recrawl", "recrawl+signals", "sitemap")
    )
    assert heard.accuracy > without.accuracy + 0.05
    # A crawl for each change is all that it makes: no more budget is used than there are reasons.
    assert sitemap.spent < 0.35 and sitemap.found > 0.95
