"""The posterior of pages with undated changes, against a dense quadrature and the conjugate case."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from policies.estimation.estimators import bin_nodes, predict_unchanged, rate
from policies.estimation.forecast import forecast
from policies.estimation.posterior import posterior
from policies.history.evidence import Evidence, from_intervals
from policies.numerics.typing_ import FloatArray
from tests.policies.joined import concatenate

DAYS = np.exp(np.linspace(-4.0, 6.0, 21))


def exactly(evidence: Evidence, shape: float, mean: float) -> tuple[FloatArray, FloatArray]:
    """Rates on a dense grid and their posterior probabilities, of one page."""
    theta = np.linspace(-40.0, 10.0, 20001)
    rates = np.exp(theta)
    (nodes,) = bin_nodes(evidence)
    x = np.maximum(np.outer(nodes.days, rates), 1e-200)
    log = (evidence.dated_changes[0] + shape) * theta - (evidence.exposure_days[0] + shape / mean) * rates
    log += nodes.weight @ np.log(-np.expm1(-x))
    weight = np.exp(log - log.max())
    return rates, weight / weight.sum()


def all_changed(gap_days: float, n: int) -> Evidence:
    return from_intervals(np.zeros(n, int), np.full(n, gap_days), np.ones(n, bool), n_pages=1)


@pytest.mark.parametrize("shape", [0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
def test_predictions_are_within_a_hundredth_for_all_shapes(shape: float) -> None:
    """All changed at gaps short and long, or some not, few visits or many."""
    rng = np.random.Generator(np.random.Philox(key=7))
    pages, means, expected, fresh = [], [], [], []
    for mean in (0.01, 0.1, 1.0):
        for gap in (1.0, 7.0, 30.0):
            for n, changed in ((1, 1), (2, 2), (3, 3), (5, 5), (17, 17), (60, 60), (3, 2), (10, 5)):
                gaps = np.full(n, gap) if n % 2 else gap * np.exp(rng.normal(0.0, 0.7, n))
                pages.append(from_intervals(np.zeros(n, int), gaps, np.arange(n) < changed, n_pages=1))
                means.append(mean)
                rates, probability = exactly(pages[-1], shape, mean)
                x = np.outer(DAYS, rates)
                expected.append(np.exp(-x) @ probability)
                fresh.append((-np.expm1(-x) / x) @ probability)
    evidence = concatenate(pages)
    found = posterior(evidence, *rate(evidence, shape, np.array(means)))
    for j, days in enumerate(DAYS):
        every = np.full(len(pages), days)
        assert_allclose(found.unchanged(every), np.array(expected)[:, j], atol=0.003)
        assert_allclose(found.changed(every), 1.0 - found.unchanged(every), atol=1e-12)
        assert_allclose(found.fresh(every), np.array(fresh)[:, j], atol=0.003)


def test_changed_at_every_long_visit() -> None:
    """Known by quadrature: .055 where the gamma distribution of the mode has .286; the mean is .428 a day."""
    page = all_changed(30.0, 3)
    mode, information = rate(page, 0.1, 0.1)
    found = posterior(page, mode, information)
    assert_allclose(found.unchanged(np.array([30.0])), 0.0551, atol=0.001)
    assert_allclose(found.mean_per_day(), 0.428, rtol=0.005)
    assert_allclose(predict_unchanged(mode, information, 30.0), 0.286, atol=0.001)


def test_many_dated_changes_are_a_gamma_distribution() -> None:
    dated = from_intervals(
        np.zeros(40, int), np.full(40, 2.0), np.ones(40, bool), np.full(40, 0.4), n_pages=1
    )
    mode, information = rate(dated, 0.5, 0.2)
    found = posterior(dated, mode, information)
    for days in DAYS:
        assert_allclose(
            found.unchanged(np.array([days])), predict_unchanged(mode, information, days), atol=1e-4
        )


def test_rates_of_other_evidence_stand_for_their_gamma_distribution() -> None:
    """As where signals have moved them: nothing would be left for the prior."""
    found = posterior(all_changed(1.0, 30), np.array([0.01]), np.array([8.0]))
    assert_allclose(
        found.unchanged(np.array([50.0])),
        predict_unchanged(np.array([0.01]), np.array([8.0]), 50.0),
        atol=1e-3,
    )


def test_a_date_narrows_the_posterior() -> None:
    page = all_changed(10.0, 4)
    rates, probability = exactly(page, 0.5, 0.3)
    found = posterior(page, *rate(page, 0.5, 0.3)).dated(np.array([3.0]))
    weight = probability * rates * np.exp(-3.0 * rates)
    for days in (0.5, 4.0, 7.0):
        expected = np.exp(-rates * days) @ weight / weight.sum()
        assert_allclose(found.unchanged(np.array([days])), expected, atol=0.003)


def test_forecasts_mix_pages_with_and_without() -> None:
    evidence = concatenate(
        [all_changed(30.0, 3), from_intervals(np.zeros(2, int), np.full(2, 30.0), np.zeros(2, bool))]
    )
    mode, information = rate(evidence, 0.1, 0.1)
    told, row, days = forecast(evidence, mode, information), np.arange(2), np.array([30.0, 30.0])
    unchanged = np.exp(told.log_unchanged(row, days))
    assert_allclose(unchanged[0], 0.0551, atol=0.001)
    assert_allclose(unchanged[1], predict_unchanged(mode[1:], information[1:], 30.0)[0], rtol=1e-12)
