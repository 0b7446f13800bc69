"""Crawlers that learn on the way, against theory and against those that know more or less."""

from functools import cache

import numpy as np
import pytest

from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import FloatArray
from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.page_block import PageBlock
from policies.simulation import intervals, learners, metrics, statistics
from policies.simulation.histories import ChangeHistory
from policies.simulation.intervals import CrawlTimes

START = 20_000 * US_PER_DAY
BUDGET, DAYS = 0.2, 80


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


@cache
def world(n: int = 300) -> tuple[ChangeHistory, FloatArray]:
    draw = rng(1)
    rate = draw.lognormal(np.log(0.1), 1.5, n)
    first = np.where(np.arange(n) % 5 == 0, START + 20 * US_PER_DAY, START - 2 * US_PER_DAY)
    return ChangeHistory.poisson(START, START + DAYS * US_PER_DAY, rate, draw, first), rate


@cache
def learned(learner: learners.Learner) -> CrawlTimes:
    return learners.run_nights(world()[0], learner, BUDGET)


def told_the_truth(known: learners.Known) -> FloatArray:
    return world()[1]


def fresh(history: ChangeHistory, crawls: CrawlTimes) -> tuple[FloatArray, FloatArray]:
    begin = intervals.scored_from(history)
    days = metrics.fresh_days(history, crawls.page, crawls.at_us, begin, history.end_us)
    return days, history.held_days(begin, history.end_us)


def test_true_rates_give_what_theory_promises() -> None:
    history, rate = world()
    crawls = learned(told_the_truth)
    days, held = fresh(history, crawls)
    block = PageBlock(rate, np.ones(len(rate)))
    objective = objectives.get("periodic")
    _, (allocation,) = search.solve(block, objective, BUDGET * len(rate))
    theory = objective.freshness(allocation.crawl_rate_per_day, rate)
    # Pages that are not crawled any more were fresh at first: they are left out of the comparison.
    kept = allocation.crawl_rate_per_day > 2 / DAYS
    difference = (days / held - theory)[kept]
    assert abs(difference.mean()) < 3 * difference.std(ddof=1) / np.sqrt(kept.sum())


@pytest.mark.parametrize("learner", [learners.from_crawls, learners.uncensored], ids=["crawls", "uncensored"])
def test_learning_beats_equal_rates_and_spends_the_budget(learner: learners.Learner) -> None:
    history, rate = world()
    begin = intervals.scored_from(history)
    days, held = fresh(history, learned(learner))
    uniform = intervals.rates_at_budget(history, np.ones(len(rate)), BUDGET, begin)
    gain, error = statistics.over_pages(days, held, other=fresh(history, uniform.crawls)[0])
    assert gain > 3 * error
    best, _ = fresh(history, learned(told_the_truth))
    behind, error = statistics.over_pages(best, held, other=days)
    assert behind < 0.03 + 3 * error
    assert learned(learner).paid_between(begin, history.end_us) == pytest.approx(
        BUDGET * held.sum(), rel=0.01
    )


def test_weights_move_crawls_to_what_is_asked_for() -> None:
    history, rate = world()
    weight = metrics.zipf_weights(len(rate), 3)
    days, held = fresh(history, learners.run_nights(history, learners.from_crawls, BUDGET, weight))
    plain, _ = fresh(history, learned(learners.from_crawls))
    assert metrics.weighted(days, held, weight) > metrics.weighted(plain, held, weight) + 0.05


def test_a_crawler_does_not_know_the_future_nor_what_it_did_not_see() -> None:
    history, _ = world()
    cut = START + 40 * US_PER_DAY
    kept = history.change_us <= cut
    past = ChangeHistory.from_events(
        history.start_us, history.end_us, history.first_us, history.change_page[kept], history.change_us[kept]
    )
    one, two = learned(learners.from_crawls), learners.run_nights(past, learners.from_crawls, BUDGET)
    assert np.array_equal(one.at_us[one.at_us <= cut], two.at_us[two.at_us <= cut])
    assert not np.array_equal(one.at_us, two.at_us)


def test_known_rates_are_those_of_the_given_time() -> None:
    history, _ = world()
    begin = intervals.scored_from(history)
    learner = learners.known(begin, history.end_us)
    days, held = fresh(history, learners.run_nights(history, learner, BUDGET))
    plain, _ = fresh(history, learned(learners.from_crawls))
    gain, error = statistics.over_pages(days, held, other=plain)
    assert gain > -2 * error
