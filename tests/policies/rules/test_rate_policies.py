"""Rate policies: budgets spent, caps kept, proportions, optima, parameters."""

import numpy as np
import pytest

from policies.objectives import objectives
from policies.optimum import search
from policies.rules import rate_policies
from policies.rules.rate_policies import Parameters, rates
from tests import golden

N = 300


@pytest.fixture(scope="module")
def parameters():
    rng = np.random.default_rng(4)
    return Parameters.of(rng.gamma(0.5, 0.2, N), rng.gamma(0.3, 1.0, N), rng.gamma(0.5, 4.0, N))


@pytest.mark.parametrize("name", rate_policies.NAMES)
@pytest.mark.parametrize("budget", [0.001 * N, 0.1 * N, 0.9 * N])
def test_every_policy_spends_the_budget_and_keeps_the_cap(parameters, name, budget):
    cap, step = 12.0, 1.0 / 12.0
    rate = rates(name, parameters, budget, cap, step)
    assert rate.sum() == pytest.approx(budget, rel=1e-9)
    assert (rate >= 0.0).all() and rate.max() <= cap * (1.0 + 1e-12)


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("change-weighted", "change_rate_per_day"),
        ("click-weighted", "click_rate_per_day"),
        ("impression-weighted", "impression_rate_per_day"),
    ],
)
def test_weighted_policies_are_proportional_below_the_cap(parameters, name, weight):
    rate = rates(name, parameters, 60.0, 0.5)
    below = rate < 0.5
    assert 0 < below.sum() < N
    ratio = rate[below] / getattr(parameters, weight)[below]
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)
    at_cap = getattr(parameters, weight)[~below]
    assert (ratio[0] * at_cap >= 0.5 * (1.0 - 1e-12)).all()


def test_a_change_weight_of_its_own_counts_for_change_weighted_only():
    one = Parameters.of(np.array([1.0, 2.0]), np.ones(2), change_weight=np.array([3.0, 1.0]))
    assert rates("change-weighted", one, 4.0).tolist() == [3.0, 1.0]
    plain = Parameters.of(np.array([1.0, 2.0]), np.ones(2))
    assert rates("periodic", one, 4.0).tolist() == rates("periodic", plain, 4.0).tolist()


def test_pages_of_weight_zero_get_nothing_and_leave_budget():
    weight = np.array([0.0, 1.0, 3.0, 0.0])
    assert rate_policies.proportional(weight, 8.0).tolist() == [0.0, 2.0, 6.0, 0.0]
    assert rate_policies.proportional(weight, 8.0, 5.0).tolist() == [0.0, 3.0, 5.0, 0.0]
    assert rate_policies.proportional(weight, 8.0, 3.0).tolist() == [0.0, 3.0, 3.0, 0.0]
    assert rate_policies.proportional(np.zeros(3), 8.0).tolist() == [0.0, 0.0, 0.0]


def test_proportions_of_any_scale():
    for scale in (1e-300, 1e300):
        rate = rate_policies.proportional(np.array([1.0, 2.0, 1.0]) * scale, 4.0)
        np.testing.assert_allclose(rate, [1.0, 2.0, 1.0], rtol=1e-12)


@pytest.mark.parametrize(("name", "best_for"), [
    ("periodic", "periodic"), ("lambdacrawl", "memoryless"), ("lambdacrawl-discrete", "discrete"),
])  # fmt: skip
def test_no_other_policy_is_better_at_what_an_optimum_is_for(parameters, name, best_for):
    objective = objectives.get(best_for)

    def fresh(rate):
        fresh = objective.freshness(
            np.minimum(rate, objective.max_rate_per_day), parameters.change_rate_per_day
        )
        return parameters.click_rate_per_day @ fresh

    best = fresh(rates(name, parameters, 40.0))
    for other in rate_policies.NAMES:
        assert fresh(rates(other, parameters, 40.0)) <= best * (1.0 + 1e-9)


def test_lambdacrawl_has_the_golden_rates():
    cases = [case for case in golden.load("lambdacrawl")["cases"] if case["kind"] == "continuous"]
    assert cases
    for case in cases:
        change = np.array(case["Delta"], dtype=float)
        click = np.array(case["mu"], dtype=float)
        rate = rates("lambdacrawl", Parameters.of(change, click), float(case["R"]))
        expected = np.array(case["rho"], dtype=float)
        got, best = (objectives.get("memoryless").freshness(r, change) @ click for r in (rate, expected))
        assert got == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("name", ["memoryless", "discrete"])
@pytest.mark.parametrize("cap", [np.inf, 0.7])
@pytest.mark.parametrize("budget", [1e-6, 0.5, 30.0, 150.0])
def test_roots_agree_with_the_search(parameters, name, cap, budget):
    objective = objectives.get(name)
    change, click = parameters.change_rate_per_day, parameters.click_rate_per_day
    limit = None if np.isinf(cap) else np.full(N, cap)
    block = search.PageBlock(change, click, cap_per_day=limit)
    expected = search.solve(block, objective, budget)[1][0].crawl_rate_per_day
    found = rate_policies.optimal(objective, change, click, budget, cap)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * budget)


def test_budget_is_met_where_demand_is_steep():
    change, click = np.array([59.0, 59.0, 70.0, 0.0]), np.array([1.0, 1.0, 1.0, 5.0])
    rate = rates("lambdacrawl-discrete", Parameters.of(change, click), 1.7)
    assert rate.sum() == pytest.approx(1.7, rel=1e-9)
    assert (rate >= 0.0).all() and (rate <= 1.0).all() and rate[3] == 0.0
    assert rates("lambdacrawl-discrete", Parameters.of(change, click), 9.0).tolist() == [1.0, 1.0, 1.0, 0.0]


def test_harmonic_starves_no_page(parameters):
    assert (rates("harmonic", parameters, 0.01) > 0.0).all()
    assert (rates("lambdacrawl", parameters, 0.01) == 0.0).any()


def test_averages_of_days():
    counts = np.array([[0, 2, 4], [0, 0, 1]])
    assert rate_policies.averages(counts).tolist() == [0.0, 1.0, 2.5]
    with pytest.raises(ValueError, match="no day"):
        rate_policies.averages(counts[:0])


def test_learned_rates_of_changes_find_the_truth_and_help_young_groups():
    rng = np.random.default_rng(8)
    group = np.repeat(np.arange(40), 50)
    mean = rng.gamma(2.0, 0.05, 40)[group]
    truth = mean * rng.gamma(2.0, 0.5, len(group))
    days = 20
    changed = rng.binomial(days, -np.expm1(-truth)).astype(float)
    rate, information = rate_policies.learned_changes(changed, days, group)
    assert (rate > 0.0).all() and (information > 0.0).all()
    raw = changed / days

    def error(found):
        return np.mean((found - truth) ** 2)

    assert error(rate) < 0.9 * error(raw)
    assert abs(rate.mean() / truth.mean() - 1.0) < 0.05


def test_learned_clicks_follow_impressions_where_nobody_clicked():
    rng = np.random.default_rng(9)
    shown = rng.gamma(0.4, 5.0, 4000)
    truth = shown * rng.gamma(2.0, 0.02, 4000)
    days = 30
    impressions, clicks = rng.poisson(shown * days), rng.poisson(truth * days)
    click, impression = rate_policies.learned_clicks(clicks.astype(float), impressions.astype(float), days)
    unclicked = clicks == 0
    assert np.corrcoef(click[unclicked], truth[unclicked])[0, 1] > 0.5
    assert np.mean((click - truth) ** 2) < np.mean((clicks / days - truth) ** 2)
    assert abs(impression.mean() / shown.mean() - 1.0) < 0.02


def test_wrong_arguments_are_named(parameters):
    with pytest.raises(ValueError, match="pagerank"):
        rates("pagerank", parameters, 1.0)
    with pytest.raises(ValueError, match=r"budget_per_day.*-1"):
        rates("uniform", parameters, -1.0)
    with pytest.raises(ValueError, match="cap_per_day"):
        rates("click-weighted", parameters, 1.0, float("nan"))
    with pytest.raises(ValueError, match="weight"):
        rate_policies.proportional(np.array([1.0, -2.0]), 1.0)
    with pytest.raises(ValueError, match="click_rate_per_day"):
        Parameters.of(np.ones(3), np.ones(2))
    with pytest.raises(ValueError, match=r"5\.0 days with a change in 4"):
        rate_policies.change_evidence(np.array([5.0]), 4)
