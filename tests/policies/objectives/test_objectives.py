"""Objectives: their rates, values and slopes must fit together, and match golden numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.objectives import objectives
from tests import golden

rates = st.floats(-6.0, 3.0).map(lambda x: 10.0**x)


def one(*values: float) -> tuple[np.ndarray, ...]:
    return tuple(np.array([float(value)]) for value in values)


@pytest.mark.parametrize("name", objectives.NAMES)
@settings(deadline=None, max_examples=60)
@given(change=rates, request=rates, crawl=rates)
def test_marginal_value_is_the_slope_of_the_value(name, change, request, crawl):
    objective = objectives.get(name)
    if name == "discrete":
        change, crawl = min(change, 30.0), min(crawl, 0.99)
    step = 1e-5 * crawl
    below = objective.value(*one(crawl - step, change))[0]
    above = objective.value(*one(crawl + step, change))[0]
    slope = objective.marginal_value(*one(crawl, change, request))[0]
    # Differences of values near 1 lose all but 1e-16 of it.
    assert request * (above - below) / (2 * step) == pytest.approx(
        slope, rel=1e-4, abs=request * 1e-15 / step
    )


@pytest.mark.parametrize("name", objectives.NAMES)
@settings(deadline=None, max_examples=100)
@given(change=rates, request=rates, share=st.floats(-8.0, -1e-6))
def test_rate_is_where_the_marginal_value_meets_the_multiplier(name, change, request, share):
    objective = objectives.get(name)
    if name == "discrete":
        change = min(change, 20.0)
    largest = (
        objective.marginal_value(*one(1e-300, change, request))[0] if objective.starves else request / change
    )
    multiplier = largest * 10.0**share
    rate = objective.rate(multiplier, *one(change, request))[0]
    slope = objective.marginal_value(*one(rate, change, request))[0]
    if rate == objective.max_rate_per_day:
        assert slope >= multiplier * (1 - 1e-9)
    else:
        assert slope == pytest.approx(multiplier, rel=1e-9)


@pytest.mark.parametrize("name", ["periodic", "memoryless", "discrete"])
def test_no_crawls_once_the_multiplier_exceeds_the_first_crawl(name):
    objective = objectives.get(name)
    change, request = one(0.5, 2.0)
    first = objective.marginal_value(np.array([0.0]), change, request)[0]
    assert objective.rate(first, change, request)[0] <= 1e-15
    assert objective.rate(np.nextafter(first, 0) * (1 - 1e-12), change, request)[0] > 0.0


def test_harmonic_never_starves():
    harmonic = objectives.get("harmonic")
    assert harmonic.rate(1e200, *one(1e-6, 1e-6))[0] > 0.0
    assert harmonic.value(*one(0.0, 1.0))[0] == -np.inf
    assert harmonic.freshness(*one(0.0, 1.0))[0] == 0.0


@pytest.mark.parametrize("name", objectives.NAMES)
def test_degenerate_pages(name):
    objective = objectives.get(name)
    change, request = np.array([0.0, 1.0, 0.0, 1e-40]), np.array([1.0, 0.0, 0.0, 1.0])
    with np.errstate(all="raise"):
        assert not objective.rate(0.1, change, request).any()
        assert not objective.marginal_value(np.ones(4), change, request).any()
        assert not objective.crawl_value(change, request, np.full(4, 3.0)).any()
    fresh = objective.freshness(np.array([0.0, 0.0, 2.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0]))
    assert fresh[0] == 1.0 and fresh[1] == 0.0 and fresh[2] == 1.0 and 0.0 < fresh[3] <= 1.0


@pytest.mark.parametrize("name", objectives.NAMES)
def test_crawl_value_grows_from_zero(name):
    objective = objectives.get(name)
    days = np.array([0.0, 1e-9, 0.1, 1.0, 10.0, 1e6, np.inf])
    value = objective.crawl_value(np.full(7, 0.5), np.full(7, 2.0), days)
    assert np.all(np.diff(value) >= 0.0)
    assert value[0] == (0.0 if name != "discrete" else value[1])
    never = objective.crawl_value(*one(0.5, 2.0, np.nan))[0]
    assert never == value[-1]


def test_crawl_value_reaches_the_multiplier_when_the_interval_is_over():
    periodic = objectives.get("periodic")
    change, request = one(0.7, 3.0)
    rate = periodic.rate(0.4, change, request)
    assert periodic.crawl_value(change, request, 1.0 / rate)[0] == pytest.approx(0.4, rel=1e-12)


def test_discrete_freshness_matches_golden():
    for case in golden.load("lambdacrawl")["cases"]:
        if case["kind"] != "freshness_discrete":
            continue
        change = -np.log1p(-case["Delta"]) if case["Delta"] < 1.0 else 60.0
        got = objectives.get("discrete").freshness(*one(case["rho"], change))[0]
        assert got == pytest.approx(float(case["change_crawl_read"]), rel=1e-12)


def test_discrete_steps_scale():
    hourly = objectives.Discrete(step_days=1.0 / 24.0)
    assert hourly.max_rate_per_day == pytest.approx(24.0)
    change, request = one(2.0, 5.0)
    daily_like = objectives.Discrete(1.0).freshness(*one(0.5, 2.0 / 24.0))
    assert hourly.freshness(*one(12.0, 2.0))[0] == pytest.approx(daily_like[0], rel=1e-12)
    rate = hourly.rate(0.3, change, request)
    assert hourly.marginal_value(rate, change, request)[0] == pytest.approx(0.3, rel=1e-9)


def test_unknown_names_and_bad_numbers_are_errors():
    with pytest.raises(ValueError, match=r"harmonc.*periodic"):
        objectives.get("harmonc")
    with pytest.raises(ValueError, match="step_days"):
        objectives.Discrete(0.0)
    with pytest.raises(ValueError, match="multiplier > 0"):
        objectives.get("periodic").rate(0.0, *one(1.0, 1.0))
