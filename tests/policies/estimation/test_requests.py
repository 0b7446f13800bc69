import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import gamma, nbinom

from policies.estimation.requests import RequestPrior, fit_request_prior, posterior, request_rate
from tests.golden import load


@pytest.mark.parametrize("case", load("gamma_poisson")["cases"], ids=lambda c: f"{c['yields'][:4]}")
def test_posterior_golden(case: dict) -> None:
    exposure = case["exposures"] if case["exposures"] is not None else [1.0] * len(case["yields"])
    shape, days = posterior(
        case["prior_shape"], case["prior_rate"], np.array([sum(case["yields"])]), np.array([sum(exposure)])
    )
    assert_allclose(shape[0], float(case["post_shape"]), rtol=1e-12)
    assert_allclose(days[0], float(case["post_rate"]), rtol=1e-12)
    for q, value in case["quantiles"].items():
        assert_allclose(gamma.ppf(float(q), shape[0], scale=1.0 / days[0]), float(value), rtol=1e-10)
    prior = RequestPrior(case["prior_shape"], case["prior_shape"] / case["prior_rate"])
    mean, error = request_rate(prior, np.array([sum(case["yields"])]), np.array([sum(exposure)]))
    assert_allclose(mean[0], float(case["mean"]), rtol=1e-12)
    assert_allclose(error[0] ** 2, float(case["variance"]), rtol=1e-12)


def draw(seed: int, shape: float, mean: float, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.Philox(key=seed))
    exposure, true = rng.uniform(5.0, 60.0, n), rng.gamma(shape, mean / shape, n)
    return true, rng.poisson(true * exposure).astype(np.float64), exposure


@pytest.mark.parametrize(("shape", "mean"), [(0.3, 2.0), (1.0, 0.1), (5.0, 100.0), (0.05, 1.0)])
def test_prior_recovers_its_population(shape: float, mean: float) -> None:
    """About five standard errors of 5,000 pages."""
    _, counts, exposure = draw(1, shape, mean, 5000)
    prior = fit_request_prior(counts, exposure)
    assert abs(prior.shape / shape - 1.0) < 0.12
    assert abs(prior.mean_per_day / mean - 1.0) < 5.0 / math.sqrt(5000 * shape) + 0.03


def test_prior_is_the_maximum_of_the_likelihood() -> None:
    _, counts, exposure = draw(2, 0.4, 1.5, 500)
    prior = fit_request_prior(counts, exposure)

    def likelihood(shape: float, mean: float) -> float:
        return float(nbinom.logpmf(counts, shape, shape / (shape + mean * exposure)).sum())

    top = likelihood(prior.shape, prior.mean_per_day)
    for factor in (0.97, 0.999, 1.001, 1.03):
        assert likelihood(prior.shape * factor, prior.mean_per_day) < top
        assert likelihood(prior.shape, prior.mean_per_day * factor) < top


def test_shrunken_rates_beat_raw_ones() -> None:
    true, _, _ = draw(3, 0.5, 0.2, 3000)
    few = np.random.Generator(np.random.Philox(key=4)).poisson(true * 2.0).astype(np.float64)
    prior = fit_request_prior(few, np.full(3000, 2.0))
    got, error = request_rate(prior, few, np.full(3000, 2.0))
    assert np.mean((got - true) ** 2) < 0.7 * np.mean((few / 2.0 - true) ** 2)
    assert_allclose(np.mean((got - true) ** 2), np.mean(error**2), rtol=0.25)
    assert (got > 0.0).all()


def test_order_leaves_every_bit() -> None:
    _, counts, exposure = draw(5, 0.4, 1.5, 2000)
    order = np.random.Generator(np.random.Philox(key=6)).permutation(2000)
    assert fit_request_prior(counts[order], exposure[order]) == fit_request_prior(counts, exposure)


@pytest.mark.parametrize(
    ("counts", "exposure"),
    [
        ([], []),
        ([0.0, 0.0], [10.0, 20.0]),
        ([0.0], [0.0]),
        ([1.0], [1.0]),
        ([3.0] * 50, [1.0] * 50),
        ([0.0, 1e9, 3.0], [1e-6, 1e5, 1.0]),
        ([1e9, 0.0, 0.0], [1e-6, 1e5, 1e5]),
        ([1e-12, 0.0], [1e-3, 1e5]),
    ],
)
def test_degenerate_samples_give_finite_priors(counts: list[float], exposure: list[float]) -> None:
    y, e = np.array(counts), np.array(exposure)
    prior = fit_request_prior(y, e)
    assert 0.0 < prior.shape <= 100.0 and 0.0 < prior.mean_per_day < math.inf
    mean, error = request_rate(prior, y, e)
    assert np.isfinite(mean).all() and (mean > 0.0).all() and np.isfinite(error).all()


def test_defaults_without_requests() -> None:
    assert fit_request_prior(np.zeros(0), np.zeros(0)) == RequestPrior(0.5, 0.05)
    assert fit_request_prior(np.zeros(3), np.full(3, 30.0)) == RequestPrior(0.5, 0.005)


def test_bad_numbers_are_refused() -> None:
    good = np.ones(2)
    for bad in (np.nan, -1.0, np.inf):
        with pytest.raises(ValueError, match=r"counts\[1\]"):
            fit_request_prior(np.array([1.0, bad]), good)
        with pytest.raises(ValueError, match=r"exposure_days\[1\]"):
            request_rate(RequestPrior(0.5, 1.0), good, np.array([1.0, bad]))
    with pytest.raises(ValueError, match="one of each"):
        posterior(0.5, 1.0, good, np.ones(3))
    with pytest.raises(ValueError, match="request prior"):
        RequestPrior(0.0, 1.0)
