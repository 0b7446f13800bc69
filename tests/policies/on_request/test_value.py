"""The value of a crawl at a request is what one more crawl gains; no exchange beats its thresholds."""

from __future__ import annotations

import numpy as np
import pytest

from policies.numerics.special import p2
from policies.on_request.value import crawl_value, worth_from_days

KNOWN = 1e9  # information of a rate that is known


def _fresh_and_crawls(mu, rate, tau):
    """Fresh requests and crawls a day of a page that is crawled at the first request after `tau`."""
    fresh = mu / rate * -np.expm1(-rate * tau) + np.exp(-rate * tau) * mu / (rate + mu)
    cycle = tau + 1.0 / mu
    return fresh / cycle, 1.0 / cycle


@pytest.mark.parametrize("mu", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("rate", [0.02, 1.0, 20.0])
def test_it_is_the_ratio_of_what_freshness_gains_and_crawls_cost(mu, rate):
    tau = np.array([0.05, 0.5, 3.0])
    h = 1e-5 * tau
    (fa, ca), (fb, cb) = (_fresh_and_crawls(mu, rate, t) for t in (tau - h, tau + h))
    value = crawl_value(np.full(3, mu), np.full(3, rate), np.full(3, KNOWN), tau)
    assert value == pytest.approx((fa - fb) / (ca - cb), rel=2e-4)


def test_with_many_requests_it_is_lambdacrawls_and_with_few_a_probability_times_requests():
    x = np.array([0.1, 1.0, 4.0])
    many = crawl_value(np.full(3, 1e7), np.full(3, 2.0), np.full(3, KNOWN), x / 2.0)
    assert many == pytest.approx(1e7 / 2.0 * p2(x), rel=1e-5)
    few = crawl_value(np.full(3, 1e-7), np.full(3, 2.0), np.full(3, KNOWN), x / 2.0)
    assert few == pytest.approx(1e-7 / 2.0 * -np.expm1(-x), rel=1e-5)


def test_uncertain_rates_are_integrated_over_and_values_grow_with_age():
    rng = np.random.default_rng(1)
    rate, information = 0.7, 2.5
    draws = rng.gamma(information, rate / information, 200_000)
    for days in (0.3, 2.0, 9.0):
        x = draws * days
        share = 3.0 / (3.0 + rate)
        mean = 3.0 / rate * (1.0 - np.exp(-x).mean() - (x * np.exp(-x)).mean() * share)
        one = crawl_value(np.array([3.0]), np.array([rate]), np.array([information]), np.array([days]))
        assert one[0] == pytest.approx(mean, abs=0.02)
    ages = np.linspace(0.0, 50.0, 400)
    values = crawl_value(*(np.full(400, v) for v in (3.0, rate, information)), ages)
    assert values[0] == 0.0 and (np.diff(values) > 0.0).all()


def test_the_age_is_where_the_value_reaches_the_multiplier_or_nowhere():
    rng = np.random.default_rng(2)
    known = rng.gamma(1.0, 5.0, 300), rng.gamma(0.7, 0.5, 300), rng.gamma(3.0, 2.0, 300)
    age = worth_from_days(*known, 0.8)
    some = np.isfinite(age)
    assert 0.2 < some.mean() < 1.0
    assert crawl_value(*(v[some] for v in known), age[some]) == pytest.approx(
        np.full(some.sum(), 0.8), rel=1e-3
    )
    assert (crawl_value(*(v[~some] for v in known), np.full((~some).sum(), 1e6)) < 0.8).all()
    assert (worth_from_days(*known, 1.6) >= age).all()


def test_no_exchange_between_pages_gains_at_equal_crawls():
    rng = np.random.default_rng(3)
    mu, rate = rng.gamma(0.8, 3.0, 40) + 0.05, rng.gamma(0.7, 0.6, 40) + 0.01
    tau = worth_from_days(mu, rate, np.full(40, KNOWN), 1.5)
    mu, rate, tau = (v[np.isfinite(tau)] for v in (mu, rate, tau))
    assert len(tau) > 15
    fresh, crawls = _fresh_and_crawls(mu, rate, tau)
    for _ in range(200):
        a, b = rng.choice(len(tau), 2, replace=False)
        moved = 0.02 * crawls[a]
        other = crawls.copy()
        other[a] -= moved
        other[b] += moved
        at = 1.0 / other - 1.0 / mu
        if (at < 0.0).any():
            continue
        assert _fresh_and_crawls(mu, rate, at)[0].sum() < fresh.sum() + 1e-9


def test_with_requests_at_random_equal_distances_are_never_worse():
    """A cycle of random length L serves ``mu E g(L)``, g concave: less than at its mean length (Jensen)."""
    rng = np.random.default_rng(4)
    mu, rate, tau = (rng.lognormal(0.0, 2.0, 2000) for _ in range(3))
    fresh, crawls = _fresh_and_crawls(mu, rate, tau)
    even = mu * -np.expm1(-rate / crawls) / (rate / crawls)
    assert (even >= fresh * (1.0 - 1e-9)).all() and (even > 1.02 * fresh).mean() > 0.1
