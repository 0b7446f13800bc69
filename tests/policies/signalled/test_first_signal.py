"""Thresholds and rates where the first signal ends every interval, against sums that know of no such case."""

import numpy as np
import pytest

from policies.signalled import first_signal, terms, threshold_clock


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """r over 18 decades; y from nothing to where doubles end."""
    rng = np.random.default_rng(seed)
    return 10.0 ** rng.uniform(-9.0, 9.0, n), 10.0 ** rng.uniform(-12.0, np.log10(36.7), n)


def test_solutions_are_those_of_the_sums():
    r, y = drawn(20_000, 1)
    u, w = first_signal.solve(r, y)
    found = terms.evaluate(r, np.full(r.size, 1e18), u, np.zeros(r.size))
    np.testing.assert_allclose(1.0 / w, found.h, rtol=1e-13)
    low = y < 1.0
    np.testing.assert_allclose((1.0 + r)[low] * found.value[low], -np.expm1(-y[low]), rtol=2e-13)
    np.testing.assert_allclose(-np.log(found.rest[~low]), y[~low], rtol=1e-13)


def test_series_hold_as_far_as_they_are_used():
    r, y = drawn(20_000, 2)
    series = first_signal.Series.of(r, y)
    factors = np.array([0.9901, 0.995, 1.0, 1.0001, 1.0099])
    for factor, rates in zip(factors, series.rates(r, y * factors[:, None]), strict=True):
        want = first_signal.solve(r, y * factor)[1]
        np.testing.assert_allclose(rates, want, rtol=1e-10, err_msg=str(factor))


def test_series_in_the_multiplier_hold_as_far_as_they_are_used():
    r, y = drawn(20_000, 5)
    y = np.minimum(y, 36.0)
    series = first_signal.Series.of(r, y)
    for part in (-1.0, -0.3, 0.0, 1e-3, 1.0):
        off = part * series.reach()
        want = first_signal.solve(r, y - np.log1p(-np.expm1(y) * off))[1]
        np.testing.assert_allclose(series.rates_near(r, off[None])[0], want, rtol=1e-10, err_msg=str(part))


def test_beyond_their_reach_rates_are_solved():
    r, y = drawn(100, 3)
    series = first_signal.Series.of(r, y)
    np.testing.assert_array_equal(series.rates(r, 2.0 * y[None, :])[0], first_signal.solve(r, 2.0 * y)[1])


@pytest.mark.parametrize("r", [1e-6, 0.3, 40.0, 1e6])
def test_up_to_the_value_of_the_first_signal_and_hardly_less_far(r):
    kappa = 10.0 ** np.linspace(-9.0, 1.0, 200)
    rate = np.full(kappa.size, r)
    share = first_signal.value_at_first(rate, kappa)
    u = first_signal.solve(rate, -np.log1p(-share))[0]
    assert np.all(u <= kappa * (1.0 + 1e-12))
    assert np.all(u >= kappa * (1.0 - 1e-5))


def test_sums_take_over_where_closed_forms_end():
    rng = np.random.default_rng(4)
    r, kappa = 10.0 ** rng.uniform(-2.0, 2.0, 500), 10.0 ** rng.uniform(-3.0, 1.0, 500)
    share = first_signal.value_at_first(r, kappa)
    everything = (1.0 - r * np.expm1(-kappa)) / (1.0 + r)
    clock, h = threshold_clock.solution(r, kappa, np.sqrt(-2.0 * np.log1p(-share * everything)))
    u, w = first_signal.solve(r, -np.log1p(-share))
    np.testing.assert_allclose(u, clock, rtol=1e-12)
    np.testing.assert_allclose(1.0 / w, h, rtol=1e-12)
