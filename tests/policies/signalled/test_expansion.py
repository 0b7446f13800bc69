"""Series around a multiplier: as exact as promised, the same bits for any batch, columns that travel."""

import numpy as np
import pytest

from policies.signalled import value as signal_value
from policies.signalled.expansion import Trail, expand
from policies.signalled.pages import SignalPages


def paper_mix(n: int, seed: int) -> SignalPages:
    rng = np.random.default_rng(seed)
    return SignalPages.from_rates(
        rng.uniform(0.0, 1.0, n), rng.uniform(0.0, 1.0, n), rng.beta(0.25, 0.25, n), rng.uniform(0.1, 0.6, n)
    )


def junk_mix(n: int, seed: int) -> SignalPages:
    """Rare changes, signals all the time: hundreds of signals a crawl, weights near 0."""
    rng = np.random.default_rng(seed)
    return SignalPages.from_rates(
        rng.uniform(0.0, 1.0, n),
        10.0 ** rng.uniform(-4, -1, n),
        rng.beta(1.0, 0.2, n),
        rng.uniform(0.5, 2.0, n),
    )


def every_kind(n: int, seed: int) -> SignalPages:
    rng = np.random.default_rng(seed)
    recall, noise = rng.beta(0.5, 0.5, n), 10.0 ** rng.uniform(-3.0, 1.0, n)
    recall[::7], recall[1::7], noise[2::7], noise[3::14] = 0.0, 1.0, 0.0, 0.0
    recall[3::14] = 1.0
    change = rng.gamma(0.5, 1.0, n)
    change[4::21] = 0.0
    return SignalPages.from_rates(rng.uniform(0.0, 1.0, n), change, recall, noise)


MIXES = {"paper": paper_mix, "junk": junk_mix, "kinds": every_kind}


def best_of(pages: SignalPages) -> np.ndarray:
    change = pages.change_rate_per_day
    return np.where(change > 0.0, pages.request_rate_per_day / np.where(change > 0.0, change, 1.0), 0.0)


@pytest.mark.parametrize("mix", list(MIXES))
@pytest.mark.parametrize("quantile", [0.001, 0.05, 0.5, 0.97])
def test_rates_and_thresholds_near_the_multiplier(mix, quantile):
    pages = MIXES[mix](600 if mix == "junk" else 1500, 30)
    multiplier = float(np.quantile(best_of(pages), quantile)) + 1e-6
    near = expand(pages, multiplier)
    a = pages.unsignalled_rate_per_day
    r = np.where(a > 0.0, pages.signal_rate_per_day / np.where(a > 0.0, a, 1.0), 0.0)
    used = 0
    for t in (0.0, 1e-9, -1e-6, 1e-4, -1e-3, 0.004, -0.011, 0.02, -0.02, 0.3, -1.5):
        price = multiplier * np.exp(t)
        want, clock = signal_value.crawl_rate(pages, price), signal_value.threshold(pages, price)
        got, got_clock = near.rates(price), near.thresholds(price)
        assert np.array_equal(np.isinf(clock), np.isinf(got_clock))
        assert np.array_equal(want == 0.0, got == 0.0)
        rows = np.flatnonzero(want > 0.0)
        # Where the interval is nearly a step function of the clock, a rounding of the clock counts r times.
        rounding = 1e-15 * r[rows] * clock[rows]
        assert np.all(np.abs(got[rows] / want[rows] - 1.0) <= 1e-9 + rounding)
        assert np.all(np.abs(got_clock[rows] / clock[rows] - 1.0) <= 1e-9)
        used += rows.size
    assert used > 100


def test_series_are_used():
    """Not an accuracy but the point of it: at a hair from the multiplier nearly all pages are inside."""
    pages = paper_mix(5000, 31)
    multiplier = float(np.quantile(best_of(pages), 0.2))
    near = expand(pages, multiplier)
    active = (best_of(pages) > multiplier) & (near.first_value < multiplier)
    assert np.mean(active) > 0.1
    assert np.mean(near.point.reach[active] > 1e-4 * near.point.depth[active]) > 0.97
    assert np.all(near.point.reach[~active] == 0.0)


def test_across_a_kink():
    """Multipliers whose thresholds lie a little below and above one and two signals' weight."""
    one = np.ones(12)
    weight = np.linspace(0.2, 2.0, 12)
    pages = SignalPages(one, one, 10.0 ** np.linspace(-2.0, 3.0, 12), weight)
    for m in (1.0, 2.0, 3.0):
        for off in (-1e-3, -1e-6, 1e-6, 1e-3):
            price = signal_value.value_at(pages, weight * m * (1.0 + off))
            for i in range(12):
                page = pages.take(slice(i, i + 1))
                near = expand(page, float(price[i]))
                for t in (-0.02, -1e-3, 1e-3, 0.02):
                    there = float(price[i]) * np.exp(t)
                    want = signal_value.crawl_rate(page, there)
                    np.testing.assert_allclose(near.rates(there), want, rtol=1e-9)


def test_one_multiplier_a_page():
    pages = every_kind(500, 32)
    prices = 0.1 * np.exp(np.random.default_rng(33).uniform(-0.02, 0.02, 500))
    got = expand(pages, 0.1).rates(prices)
    np.testing.assert_allclose(got, signal_value.crawl_rate(pages, prices), rtol=1e-9)


def test_a_page_does_not_depend_on_its_neighbours():
    pages = every_kind(3000, 34)
    order = np.random.default_rng(35).permutation(3000)
    whole, mixed = expand(pages, 0.2), expand(pages.take(order), 0.2)
    for price in (0.2, 0.2001, 0.21, 0.6):
        assert np.array_equal(whole.rates(price)[order], mixed.rates(price))
        assert np.array_equal(whole.take(order).rates(price), mixed.rates(price))
        part = expand(pages.take(slice(100, 107)), 0.2)
        assert np.array_equal(part.thresholds(price), whole.thresholds(price)[100:107])
        assert np.array_equal(whole.take(slice(5, 9)).rates(price), whole.rates(price)[5:9])


@pytest.mark.parametrize("multiplier", [0.0, -1.0, np.nan, np.inf])
def test_bad_multipliers_are_refused(multiplier):
    with pytest.raises(ValueError, match="needs a multiplier > 0"):
        expand(every_kind(3, 37), multiplier)


def test_bad_price_is_refused():
    with pytest.raises(ValueError, match="at least 0"):
        expand(every_kind(3, 37), 0.1).rates(-0.1)


@pytest.mark.parametrize("mix", list(MIXES))
def test_rates_at_multipliers_that_share_no_series_are_the_rates_at_each_to_the_bit(mix):
    pages = MIXES[mix](600, 34)
    multiplier = float(np.quantile(best_of(pages), 0.4)) + 1e-6
    near = expand(pages, multiplier)
    several = np.array([0.0, *(multiplier * np.exp(np.linspace(-0.7, 0.7, 12))), 1e9, np.inf])
    found = near.rates_at(several)
    for j, price in enumerate(several):
        np.testing.assert_array_equal(found[j], near.rates(float(price)))


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("mix", list(MIXES))
def test_rates_at_close_multipliers_are_exact_and_depend_on_the_page_alone(mix, count):
    pages = MIXES[mix](300, 35)
    multiplier = float(np.quantile(best_of(pages), 0.4)) + 1e-6
    near = expand(pages, multiplier)
    many = multiplier * np.exp(np.linspace(-3e-3, 5e-4, count))
    found = near.rates_at(many)
    for price, rates in zip(many, found, strict=True):
        np.testing.assert_allclose(rates, signal_value.crawl_rate(pages, float(price)), rtol=1e-9)
    some = np.arange(7, 300, 3)
    np.testing.assert_array_equal(near.take(some).rates_at(many), found[:, some])


@pytest.mark.parametrize("mix", list(MIXES))
@pytest.mark.parametrize("expanded", [True, False])
def test_a_trail_follows_multipliers_that_close_in(mix, expanded):
    pages = MIXES[mix](300, 37)
    rng = np.random.default_rng(38)
    goal = best_of(pages) * rng.uniform(0.05, 1.02, 300)
    near = expand(pages, float(np.median(goal)))
    before = near.point.depth.copy()
    trail = Trail(near) if expanded else Trail.of(pages)
    for width in (1.0, 0.3, 0.05, 1e-2, 1e-4, 1e-6, 0.0):
        rows = np.sort(rng.choice(300, 200, replace=False))
        price = goal[rows] * np.exp(width * rng.uniform(-1.0, 1.0, 200))
        want = signal_value.crawl_rate(pages.take(rows), price)
        np.testing.assert_allclose(trail.at(rows, price)[1], want, rtol=1e-9)
    np.testing.assert_array_equal(near.point.depth, before)
