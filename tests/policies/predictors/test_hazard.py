"""The hazard model: gradients, sums over shards, factors found again, what days may teach."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from policies.numerics.errors import NotConvergedError
from policies.predictors.hazard import (
    RIDGE,
    Hazard,
    NewtonSums,
    combined,
    default_features,
    newton_sums,
    solve,
)
from policies.predictors.predictor import log_hazard, probability
from tests.policies.predictors.drawn_rows import drawn_rows


def problem(k=400, seed=1):
    rng = np.random.Generator(np.random.Philox(key=seed))
    x = np.column_stack([np.ones(k), rng.normal(size=(k, 2))])
    return x, rng.normal(-1.0, 1.0, k), rng.random(k) < 0.4, rng.normal(0.0, 0.3, 3)


def test_gradient_and_hessian_are_those_of_the_loss():
    x, offset, changed, b = problem()
    here = newton_sums(x, offset, changed, b)

    def loss(at):
        return newton_sums(x, offset, changed, at).loss

    assert here.gradient == pytest.approx(approx_fprime(b, loss, 1e-6), rel=1e-4, abs=1e-3)
    for j in range(3):

        def slope(at, j=j):
            return newton_sums(x, offset, changed, at).gradient[j]

        assert here.hessian[j] == pytest.approx(approx_fprime(b, slope, 1e-6), rel=1e-3, abs=1e-3)
    assert (np.linalg.eigvalsh(here.hessian) > 0.0).all()


def test_sums_of_parts_are_those_of_all_rows():
    x, offset, changed, b = problem()
    whole = newton_sums(x, offset, changed, b)
    parts = [newton_sums(x[r], offset[r], changed[r], b) for r in (slice(0, 130), slice(130, 400))]
    both = parts[0].merge(parts[1])
    assert both.loss == pytest.approx(whole.loss, rel=1e-12)
    np.testing.assert_allclose(both.gradient, whole.gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(both.hessian, whole.hessian, rtol=1e-9, atol=1e-9)


def test_the_solution_is_a_maximum_under_the_ridge():
    x, offset, changed, _ = problem(2000)
    ridge = np.array([1e-6, RIDGE, RIDGE])
    b = solve(lambda at: newton_sums(x, offset, changed, at), np.zeros(3), ridge)
    assert np.abs(newton_sums(x, offset, changed, b).gradient + ridge * b).max() < 0.1


def test_what_does_not_converge_is_an_error():
    def runs_away(b):
        return NewtonSums(-float(b.sum()), -np.ones(1), np.full((1, 1), 1.0))

    with pytest.raises(NotConvergedError, match="fewer features or more rows"):
        solve(runs_away, np.zeros(1), np.zeros(1))


def test_factors_are_found_from_intervals_of_any_length():
    """Lengths are in the offset: no label a day long is needed."""
    k = 60_000
    rng = np.random.Generator(np.random.Philox(key=3))
    rows = replace(drawn_rows(k, 2), days=rng.uniform(0.1, 6.0, k))
    offset = np.log(0.1 * rows.days)
    truth = 0.7 * (np.log1p(rows.since_days) - 1.5) + 0.4 * (rows.hour == 9)
    rows = replace(rows, changed=rng.random(k) < probability(offset, truth))
    model = Hazard(recent_days=None)
    model.fit(rows, offset)
    found = model.log_multiplier(rows)
    assert np.corrcoef(found, truth)[0, 1] > 0.97
    assert probability(offset, found).mean() == pytest.approx(rows.changed.mean(), rel=0.01)
    longer = replace(rows, days=np.full(k, 1.0))
    assert model.log_multiplier(longer) == pytest.approx(found)


def test_what_weekdays_teach_is_a_matter_of_days_and_not_of_pages():
    k = 1200
    rows = replace(drawn_rows(k, 4), day=np.repeat(np.arange(60), k // 60), hour=np.zeros(k, np.int64))
    rows = replace(rows, changed=(rows.day % 7 == 6) & (np.arange(k) % 3 > 0))
    many = rows.take(np.repeat(np.arange(k), 10))
    spreads = []
    for some in (rows, many):
        model = Hazard(recent_days=None)
        model.fit(some, np.full(len(some), np.log(0.1)))
        weekday = model.b[-31:-24]
        spreads.append(weekday.max() - weekday.min())
    assert spreads[1] == pytest.approx(spreads[0], rel=0.1)
    assert 0.5 < spreads[0] < 3.0  # eight weeks tell something, by far not that other days have none


def test_the_level_is_that_of_the_last_days():
    k = 30_000
    rng = np.random.Generator(np.random.Philox(key=5))
    rows = drawn_rows(k, 5)
    rate = np.where(rows.day >= 46, 0.2, 0.05)
    rows = replace(rows, changed=rng.random(k) < -np.expm1(-rate))
    offset = np.full(k, np.log(0.05))
    late = rows.take(rows.day >= 46)
    bias = {}
    for recent in (None, 14):
        model = Hazard(recent_days=recent)
        model.fit(rows, offset)
        p = probability(offset[: len(late)], model.log_multiplier(late))
        bias[recent] = p.mean() / late.changed.mean()
    assert bias[None] < 0.7
    assert bias[14] == pytest.approx(1.0, abs=0.03)


def test_the_paper_combines_frequencies_alone():
    rows = drawn_rows(500, 6, changed=np.arange(500) % 3 == 0)
    model = combined()
    model.fit(rows, np.zeros(500))
    assert len(model.b) == 9
    other = replace(rows, hour=(rows.hour + 5) % 24, log_rate=rows.log_rate + 1.0)
    assert model.log_multiplier(other) == pytest.approx(model.log_multiplier(rows))
    assert default_features(rows).shape == (500, 50)


def test_probabilities_are_inside_their_limits_and_invert():
    log = np.array([-1e3, -20.0, -1.0, 0.0, 2.0, 1e3])
    p = probability(log, np.zeros(6))
    assert ((p > 0.0) & (p < 1.0)).all()
    assert log_hazard(p)[1:5] == pytest.approx(log[1:5], rel=1e-6)
