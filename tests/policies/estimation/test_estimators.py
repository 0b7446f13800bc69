import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom

from benchmarks.estimation.replay_estimators import cho_garcia_molina, clipped_mle
from policies.estimation import estimators
from policies.estimation.estimators import mle, predict_unchanged, rate, standard_error
from policies.history.evidence import Evidence, empty, from_intervals
from tests.golden import load

GOLDEN = load("mle_rate")["cases"]


def population(seed: int, n: int, k: int, shape: float, mean: float, gap: str = "exponential") -> tuple:
    """True rates, and k intervals of each of n pages."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    true = rng.gamma(shape, mean / shape, n)
    gaps = {
        "exponential": rng.exponential(1.0, (n, k)) + 1e-9,
        "uniform": rng.uniform(0.5, 1.5, (n, k)),
        "daily": rng.choice([1.0, 2.0, 7.0], (n, k)) + rng.normal(0.0, 0.02, (n, k)),
    }[gap]
    changed = rng.random((n, k)) < -np.expm1(-true[:, None] * gaps)
    return true, np.repeat(np.arange(n), k), gaps.ravel(), changed.ravel()


def extreme(seed: int, n: int = 500, k: int = 6) -> Evidence:
    """Gaps of 1e-6 to 1e5 days, weights up to 1e9, some dated, some with age 0."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    gap = 10 ** rng.uniform(-6, 5, (n, k))
    weight = 10 ** rng.uniform(0, 9, (n, k)) * (rng.random((n, k)) < 0.8)
    age = np.where(rng.random((n, k)) < 0.3, gap * rng.random((n, k)) * (rng.random((n, k)) < 0.8), np.nan)
    page, changed = np.repeat(np.arange(n), k), rng.random((n, k)) < 0.5
    return from_intervals(page, gap.ravel(), changed.ravel(), age.ravel(), weight.ravel(), n)


def score(evidence: Evidence, i: int, lam: float, shape: float, mean: float) -> tuple[float, float]:
    """Derivative of the log posterior in log rate, and the size of its terms, in plain Python."""
    total = evidence.dated_changes[i] + shape
    for b in range(evidence.bin_start[i], evidence.bin_start[i + 1]):
        w, s1, s2 = evidence.bin_weight[b], evidence.bin_days[b], evidence.bin_days_squared[b]
        if w == 0.0:
            continue
        spread = math.sqrt(max(s2 / w - (s1 / w) ** 2, 0.0))
        for tau in (s1 / w - spread, s1 / w + spread):
            x = lam * max(tau, 0.0)
            total += 0.5 * w * (1.0 if x == 0.0 else 0.0 if x > 700.0 else x / math.expm1(x))
    return total - lam * (evidence.exposure_days[i] + shape / mean), total


def golden_fit(case: dict) -> estimators.RateFit:
    shape, prior_rate = case.get("prior_shape_rate") or (1.0, 0.0)
    if case["kind"] == "binary":
        rows = [(gap, z == 1, math.nan) for gap, z in case["data_tau_z"]]
    else:
        rows = [(o[1], o[0] != "none", o[2] if o[0] == "age" else math.nan) for o in case["observations"]]
    gap, changed, age = (np.array([r[j] for r in rows], dtype=t) for j, t in enumerate((float, bool, float)))
    return mle(np.zeros(len(rows), int), gap, changed, age, shape, prior_rate, n_pages=1)


@pytest.mark.parametrize(
    "case", [c for c in GOLDEN if c["kind"] in ("binary", "last_modified")], ids=lambda c: c["name"]
)
def test_mle_golden(case: dict) -> None:
    fit = golden_fit(case)
    names = {
        "a": "change_rate_per_day",
        "observed_info": "observed_information",
        "expected_info": "expected_information",
        "loglik": "log_likelihood",
    }
    checked = 0
    for key, name in names.items():
        if key in case:
            assert_allclose(getattr(fit, name)[0], float(case[key]), rtol=1e-11, atol=0.0, err_msg=key)
            checked += 1
    assert checked
    boundary = {0.0: estimators.BOUNDARY_ZERO, math.inf: estimators.BOUNDARY_INFINITE}
    assert fit.boundary[0] == boundary.get(float(case["a"]), estimators.BOUNDARY_NONE)


@pytest.mark.parametrize("case", [c for c in GOLDEN if c["kind"] == "cho_gm"], ids=str)
def test_cho_garcia_molina_golden(case: dict) -> None:
    got = cho_garcia_molina(np.array([case["n"]]), np.array([case["X"]]), case["tau"])
    assert_allclose(got[0], float(case["bias_reduced"]), rtol=1e-11)
    k = case["n"]
    fit = mle(np.zeros(k, int), np.full(k, case["tau"]), np.arange(k) < case["X"], n_pages=1)
    assert_allclose(fit.change_rate_per_day[0], float(case["naive_mle"]), rtol=1e-11)


@pytest.mark.parametrize("case", [c for c in GOLDEN if c["kind"] == "cho_gm_bias"], ids=str)
def test_cho_garcia_molina_has_its_known_bias(case: dict) -> None:
    n, true, tau = case["n"], case["rate"], case["tau"]
    x = np.arange(n + 1)
    p = binom.pmf(x, n, -np.expm1(-true * tau))
    error = cho_garcia_molina(np.full(n + 1, n), x, tau) - true
    assert_allclose(p @ error, float(case["bias"]), rtol=1e-6)
    assert_allclose(np.sqrt(p @ error**2), float(case["rmse"]), rtol=1e-9)


def test_cho_garcia_molina_is_biased_low_on_irregular_gaps() -> None:
    """With exponential gaps P(changed) = r/(1+r), so it tends to log(1 + r), not r."""
    true, page, gap, changed = population(5, 1, 200_000, 1e9, 1.0)
    got = cho_garcia_molina(np.array([len(gap)]), np.array([changed.sum()]), gap.mean())
    assert_allclose(got[0], math.log(2.0), atol=0.02)
    assert_allclose(mle(page, gap, changed).change_rate_per_day[0], true[0], atol=0.02)


def test_mle_refuses_what_has_no_mode() -> None:
    with pytest.raises(ValueError, match=r"shape 0\.5"):
        mle(np.zeros(1, int), np.ones(1), np.array([True]), prior_shape=0.5)
    with pytest.raises(ValueError, match="gaps"):
        mle(np.zeros(1, int), np.zeros(1), np.array([True]))
    nothing = mle(np.zeros(0, int), np.zeros(0), np.zeros(0, bool), n_pages=2)
    assert_array_equal(nothing.boundary, estimators.BOUNDARY_NO_DATA)
    assert np.isnan(nothing.change_rate_per_day).all()


@pytest.mark.parametrize("gap", ["exponential", "uniform", "daily"])
@pytest.mark.parametrize("mean", [0.1, 1.0, 4.0])
def test_summary_gives_the_exact_mle(gap: str, mean: float) -> None:
    """The page's mean gap times its rate is at most 4, the range that the summary promises."""
    _, page, gaps, changed = population(7, 300, 60, 3.0, mean, gap)
    exact = mle(page, gaps, changed, n_pages=300)
    fits = (exact.boundary == estimators.BOUNDARY_NONE) & (exact.change_rate_per_day * gaps.mean() <= 4.0)
    assert np.count_nonzero(fits) >= 18
    got, _ = rate(from_intervals(page, gaps, changed, n_pages=300), 1e-9, 1.0)  # as good as without a prior
    error = np.abs(got[fits] / exact.change_rate_per_day[fits] - 1.0)
    assert error.max() < 0.01
    assert np.median(error) < 0.0015


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.05, 20.0), st.floats(-9.0, 6.0))
def test_score_is_zero_at_the_mode(seed: int, shape: float, log_mean: float) -> None:
    evidence = extreme(seed, 20)
    mean = 10.0**log_mean
    lam, information = rate(evidence, shape, mean)
    assert np.isfinite(lam).all() and (lam > 0.0).all()
    assert np.isfinite(information).all() and (information > 0.0).all()
    for i in range(len(evidence)):
        gradient, size = score(evidence, i, lam[i], shape, mean)
        assert abs(gradient) < 1e-8 * size
        if lam[i] < 1e10:
            ahead, _ = score(evidence, i, lam[i] * (1 + 1e-5), shape, mean)
            behind, _ = score(evidence, i, lam[i] * (1 - 1e-5), shape, mean)
            assert_allclose((behind - ahead) / 2e-5, information[i], rtol=1e-4, atol=1e-9 * size)


def test_without_undated_changes_the_posterior_is_exact() -> None:
    evidence = from_intervals(np.array([0, 1, 1]), np.array([4.0, 5.0, 3.0]), np.array([False, True, False]),
                              np.array([np.nan, 1.0, np.nan]), n_pages=3)  # fmt: skip
    lam, information = rate(evidence, 0.5, 0.1)
    assert_allclose(lam, [0.5 / (4.0 + 5.0), 1.5 / (4.0 + 5.0), 0.1], rtol=1e-13)
    assert_allclose(information, [0.5, 1.5, 0.5], rtol=1e-13)
    assert_allclose(standard_error(lam, information), lam / np.sqrt(information))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(seed: int, unit: float) -> None:
    e = extreme(seed, 20)
    other = Evidence(e.exposure_days * unit, e.dated_changes, e.bin_start, e.bin_weight,
                     e.bin_days * unit, e.bin_days_squared * unit**2)  # fmt: skip
    lam, information = rate(e, 0.5, 0.1)
    lam_other, information_other = rate(other, 0.5, 0.1 / unit)
    # The spread of a bin comes from a difference, so rounding moves its two points a little.
    assert_allclose(lam_other * unit, lam, rtol=1e-6)
    assert_allclose(information_other, information, rtol=1e-6)


def test_more_evidence_moves_the_rate_the_right_way() -> None:
    _, page, gap, changed = population(11, 100, 10, 0.5, 0.3)
    base, _ = rate(from_intervals(page, gap, changed, n_pages=100), 0.5, 0.3)

    def with_one(change: bool, age: float) -> np.ndarray:
        pages, new = np.append(page, np.arange(100)), np.ones(100)
        e = from_intervals(pages, np.append(gap, 2.0 * new), np.append(changed, new * change),
                           np.append(np.full(len(gap), np.nan), age * new), n_pages=100)  # fmt: skip
        return rate(e, 0.5, 0.3)[0]

    assert (with_one(False, np.nan) < base).all()
    assert (with_one(True, np.nan) > base).all()
    assert (with_one(True, 0.1) > with_one(True, 1.9)).all()
    assert (rate(from_intervals(page, gap, changed, n_pages=100), 0.5, 0.6)[0] > base).all()


def test_order_and_batch_cut_leave_every_bit() -> None:
    _, page, gap, changed = population(13, 9000, 8, 0.5, 0.5)
    evidence = from_intervals(page, gap, changed, n_pages=9000)
    mean = np.random.Generator(np.random.Philox(key=1)).uniform(0.1, 1.0, 9000)
    lam, information = rate(evidence, 0.7, mean)
    for cut in (1, 7, 4099):
        stop = 60 if cut == 1 else 9000
        for first in range(0, stop, cut):
            rows = np.arange(first, min(first + cut, 9000))
            part, part_information = rate(evidence.take(rows), 0.7, mean[rows])
            assert_array_equal(part, lam[rows])
            assert_array_equal(part_information, information[rows])
            if cut == 7 and first > 700:
                break
    order = np.random.Generator(np.random.Philox(key=2)).permutation(9000)
    shuffled, _ = rate(evidence.take(order), 0.7, mean[order])
    assert_array_equal(shuffled, lam[order])


def test_a_warm_start_and_few_steps_reach_the_mode() -> None:
    _, page, gap, changed = population(17, 500, 20, 0.5, 0.2)
    evidence = from_intervals(page, gap, changed, n_pages=500)
    lam, _ = rate(evidence, 0.5, 0.2)
    assert_allclose(rate(evidence, 0.5, 0.2, start=lam * 1.3)[0], lam, rtol=1e-9)
    assert_allclose(rate(evidence, 0.5, 0.2, start=np.full(500, 1e4))[0], lam, rtol=1e-9)
    assert_allclose(rate(evidence, 0.5, 0.2, steps=6)[0], lam, rtol=1e-9)
    assert_allclose(rate(evidence, 0.5, 0.2, start=lam * 1.01, steps=1)[0], lam, rtol=1e-4)


def test_rate_is_close_to_the_posterior_mean() -> None:
    """Crawls about as often as pages change: within 3 %, and never above the mean."""
    _, page, gap, changed = population(19, 300, 15, 0.5, 0.2)
    log_rate = np.linspace(-45.0, 5.0, 5001)[:, None]
    at = np.exp(log_rate)
    mean = []
    for i in range(300):
        gaps, found = gap[page == i], changed[page == i]
        log_density = 0.5 * log_rate[:, 0] - at[:, 0] * (0.5 / 0.2)
        log_density += np.where(found, np.log(-np.expm1(-at * gaps)), -at * gaps).sum(axis=1)
        density = np.exp(log_density - log_density.max())
        mean.append(density @ at[:, 0] / density.sum())
    ratio = rate(from_intervals(page, gap, changed, n_pages=300), 0.5, 0.2)[0] / mean
    assert ratio.min() > 0.96 and ratio.max() < 1.0001
    assert np.median(ratio) > 0.99


def test_predictions_are_calibrated() -> None:
    """With 5 observations a page, the share of changed next gaps is what the predictive form says."""
    n, gap = 40_000, 5.0
    true, page, gaps, changed = population(23, n, 5, 0.5, 0.2)
    lam, h = rate(from_intervals(page, gaps, changed, n_pages=n), 0.5, 0.2)
    seen = np.random.Generator(np.random.Philox(key=9)).random(n) < -np.expm1(-true * gap)
    averaged, plugged = predict_unchanged(lam, h, gap), np.exp(-lam * gap)
    error = 4.0 * math.sqrt(seen.mean() * (1.0 - seen.mean()) / n)
    assert abs((1.0 - averaged).mean() - seen.mean()) < error
    assert abs((1.0 - plugged).mean() - seen.mean()) > error
    likelihood = [np.where(seen, np.log1p(-p), np.log(p)).mean() for p in (averaged, plugged)]
    assert likelihood[0] > likelihood[1] + 0.015


def test_prediction_limits() -> None:
    one = np.ones(1)
    assert_allclose(predict_unchanged(0.1 * one, 1e12 * one, 3.0), math.exp(-0.3), rtol=1e-9)
    assert predict_unchanged(0.1 * one, 0.5 * one, 0.0)[0] == 1.0
    assert predict_unchanged(0.1 * one, 0.5 * one, 3.0)[0] > math.exp(-0.3)


def test_clipped_mle_answers_with_its_limits() -> None:
    page, changed = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 0, 1], bool)
    lam, information = clipped_mle(page, np.ones(6), changed, np.full(4, 0.01), np.full(4, 5.0))
    assert_allclose(lam, [0.01, 5.0, math.log(2.0), 0.01], rtol=1e-12)
    x = lam[1:3]  # of a changed gap of a day: -x q'(x), q(x) = x / expm1(x)
    curve = x * (x * np.exp(x) - np.expm1(x)) / np.expm1(x) ** 2
    assert_allclose(information, [0.02, 2 * curve[0], x[1] + curve[1], 0.0], rtol=1e-12)


def test_bad_priors_and_evidence_are_refused() -> None:
    for shape, mean in ((0.0, 1.0), (np.nan, 1.0), (1.0, 0.0), (1.0, np.inf), (1.0, np.nan)):
        with pytest.raises(ValueError, match="prior"):
            rate(empty(2), shape, mean)
    with pytest.raises(ValueError, match="n_changes"):
        cho_garcia_molina(np.array([3]), np.array([4]), 1.0)
    bad = Evidence(
        np.array([np.nan]), np.zeros(1), np.zeros(2, np.int64), np.zeros(0), np.zeros(0), np.zeros(0)
    )
    with pytest.raises(ValueError, match=r"exposure_days\[0\] is nan"):
        rate(bad, 0.5, 0.1)


def test_no_pages() -> None:
    lam, information = rate(empty(), 0.5, 0.1)
    assert lam.shape == information.shape == (0,)
