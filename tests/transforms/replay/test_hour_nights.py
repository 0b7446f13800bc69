"""References that know when pages change: at the best hour, and at fixed ages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.rules.crawler_rules import ByAge, Fetches
from policies.simulation.best_hours import best_hours
from policies.simulation.histories import ChangeHistory
from tests.transforms.replayed_worlds import START, poisson_world
from transforms.replay.backtesting import EQUAL, Trial, Weighting, play
from transforms.replay.worlds import World

HOUR_US = US_PER_DAY // 24
DAYS = 20


def _batch(hours: list[float]) -> World:
    """Pages of two hosts in turn that change once a day, within minutes of an hour of their host."""
    world = poisson_world(np.full(40, 0.1), DAYS)
    hosts, host = np.unique(world.host_hash, return_inverse=True)
    assert len(hosts) == 2
    rng = np.random.default_rng(1)
    page, day = np.divmod(np.arange(40 * DAYS), DAYS)
    at = START + day * US_PER_DAY + (np.array(hours)[host[page]] * HOUR_US).astype(np.int64)
    at += rng.integers(0, HOUR_US // 10, len(at))
    past = ChangeHistory.from_events(START, START + DAYS * US_PER_DAY, world.history.first_us, page, at)

    return replace(world, history=past)


def _fresh(world: World, policy: str, budget: float) -> tuple[float, float]:
    (scored,) = play(world, Trial(policy, budget, (Weighting(EQUAL, 0, 0),)))
    return scored.accuracy, scored.spent


def test_the_best_hour_is_the_one_after_the_batch():
    world = _batch([6.2, 21.5])
    hosts = np.unique(world.host_hash, return_inverse=True)[1]
    assert best_hours(world.history, hosts, START).tolist() == np.array([7, 22])[hosts].tolist()


def test_who_crawls_after_the_batch_has_fresh_copies():
    world = _batch([6.2, 21.5])
    plain, spent = _fresh(world, "uniform", 1.0)
    best, spent_at_hours = _fresh(world, "hour-aware", 1.0)
    assert spent_at_hours == pytest.approx(spent, rel=0.02)
    # From half an hour and .8 hours after the change on.
    assert best == pytest.approx(1.0 - 0.65 / 24.0, abs=0.03) and plain < 0.6


def test_where_pages_change_at_any_time_hours_do_not_matter():
    world = poisson_world(np.full(300, 0.7), 40)
    assert _fresh(world, "hour-aware", 0.5)[0] == pytest.approx(_fresh(world, "uniform", 0.5)[0], abs=0.015)


def test_fixed_ages():
    rule, state = ByAge(), ByAge().first(1)
    zero = np.zeros(1, np.int64)
    found = Fetches(np.zeros(1, np.bool_), zero + 200, zero, zero + NO_TIME)
    ages = []
    for _ in range(6):
        state = rule.after_fetch(state, found)
        ages.append(sum(ages[-1:]) + int(state.wait_us[0]) / HOUR_US)
    assert ages == [1.0, 6.0, 24.0, 168.0, 312.0, 456.0]
