"""What waiting for the next plan costs, and for which pages signals are then worth it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from policies.objectives import objectives
from policies.optimum.signalled_delay import lost_waiting, periodic_rate, worth_waiting_for
from policies.signalled import value as signal_value
from policies.signalled.pages import SignalPages


def pages(n: int, seed: int = 1) -> SignalPages:
    rng = np.random.Generator(np.random.Philox(key=seed))
    change = 10.0 ** rng.uniform(-2.0, 1.0, n)
    return SignalPages.from_rates(
        rng.random(n) + 0.01, change, rng.beta(2.0, 1.0, n), change * rng.uniform(0.01, 0.3, n)
    )


def test_without_waiting_signals_are_never_worse():
    """Theorem 1: the policy that looks at them is the best there is."""
    some = pages(500)
    for multiplier in (1e-3, 0.03, 0.3):
        assert worth_waiting_for(some, multiplier, 0.0).all()


def test_longer_waits_lose_pages_and_never_win_one():
    some = pages(500)
    kept = [worth_waiting_for(some, 0.01, wait) for wait in (0.0, 0.1, 0.5, 2.0, 10.0)]
    for shorter, longer in itertools.pairwise(kept):
        assert not (longer & ~shorter).any()
    assert 0 < kept[2].sum() < 500


def test_pages_crawled_many_times_a_day_do_not_wait_and_rare_ones_do():
    """Nor do those that change daily, of whose changes signals tell half a day late."""
    daily, rarely = (
        SignalPages.from_rates(*(np.array([v]) for v in (1.0, change, 0.95, 0.02 * change)))
        for change in (1.0, 0.1)
    )
    assert periodic_rate(rarely, 1e-4)[0] > 2 and not worth_waiting_for(rarely, 1e-4, 0.5)[0]
    assert 0 < periodic_rate(rarely, 3.0)[0] < 0.2 and worth_waiting_for(rarely, 3.0, 0.5)[0]
    assert 0 < periodic_rate(daily, 0.4)[0] < 1 and not worth_waiting_for(daily, 0.4, 0.5)[0]


def test_rates_without_signals_are_those_of_the_objective():
    some, periodic = pages(200), objectives.get("periodic")
    rate = periodic_rate(some, 0.05)
    change = some.change_rate_per_day
    positive = rate > 0
    # The marginal value of a crawl is its price; pages never worth a crawl have none.
    clock = change[positive] / rate[positive]
    value = some.request_rate_per_day[positive] / change[positive] * (1 - (1 + clock) * np.exp(-clock))
    np.testing.assert_allclose(value, 0.05, rtol=1e-9)
    assert (some.request_rate_per_day[~positive] <= 0.05 * change[~positive] * (1 + 1e-12)).all()
    assert np.all((periodic.freshness(rate, change) >= 0) & (periodic.freshness(rate, change) <= 1))


@pytest.mark.parametrize("wait", [0.05, 0.2])
def test_the_loss_is_that_of_a_simulated_page(wait):
    """Cycles of a threshold policy whose crawls come `wait` days after the signal that caused them."""
    change, recall, false = 0.3, 0.8, 0.05
    one = SignalPages.from_rates(*(np.array([v]) for v in (1.0, change, recall, false)))
    threshold = np.array([1.2])
    rate = 1.0 / signal_value.interval_days(one, threshold)
    lost = lost_waiting(one, threshold, rate, wait)[0]
    rng = np.random.Generator(np.random.Philox(key=3))
    n, most = 200_000, 40
    a, g = one.unsignalled_rate_per_day[0], one.signal_rate_per_day[0]
    kappa = one.signal_weight[0]
    # The clock reaches the threshold by time alone, or jumps over it at the k-th signal.
    at = np.cumsum(rng.exponential(1.0 / g, (n, most)), axis=1)
    over = a * at + kappa * np.arange(1, most + 1) >= threshold[0]
    first = over.argmax(axis=1)
    jump = at[np.arange(n), first]
    calm = (threshold[0] - kappa * first) / a
    by_signal = jump < calm
    end = np.where(by_signal, jump + wait, calm)
    silent = rng.exponential(1.0 / a, n)
    true = rng.random((n, most)) < -np.expm1(-kappa)
    told = np.where(true, at, np.inf).min(axis=1)
    fresh = np.minimum(np.minimum(silent, told), end)
    long_run = fresh.mean() / end.mean()
    ideal = signal_value.freshness(one, threshold)[0]
    # To first order in the wait: the cycle is longer by it, and stale for most of that.
    assert ideal - long_run == pytest.approx(lost, rel=0.2)
