import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from policies.signals.mle import (
    ALL_CHANGED,
    INFINITE_WEIGHT,
    INTERIOR,
    NO_CHANGE,
    NO_DATA,
    NO_SIGNALS,
    PROPORTIONAL,
    ZERO_RATE,
    ZERO_WEIGHT,
    TwoParamFit,
    mle_two_param,
    naive_estimate,
)
from tests.golden import load
from tests.policies.signal_simulation import simulate

GOLDEN = load("mle_two_param")["cases"]
STATUS = {
    "interior": {INTERIOR},
    "boundary k=0": {ZERO_WEIGHT, NO_CHANGE},
    "boundary a=0": {ZERO_RATE},
    "no change seen": {NO_CHANGE},
    "all changed: a -> inf": {ALL_CHANGED},
    "k -> inf (every interval with a signal changed); a from n=0 intervals": {INFINITE_WEIGHT},
    "n all zero: k not identified": {NO_SIGNALS},
    "tau and n proportional: only a + c k identified (reported as a, k=0)": {PROPORTIONAL, NO_CHANGE},
}


def golden_fit(case: dict) -> TwoParamFit:
    gap, signals, changed = np.array(case["data_tau_n_z"], dtype=float).T
    return mle_two_param(
        np.zeros(len(gap), int),
        gap,
        signals,
        changed == 1.0,
        1,
        tuple(case["prior_a_shape_rate"] or (1.0, 0.0)),
        tuple(case["prior_k_shape_rate"] or (1.0, 0.0)),
    )


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: c["name"])
def test_golden(case: dict) -> None:
    fit = golden_fit(case)
    assert fit.boundary[0] in STATUS[case["status"]]
    expected = {"unsignalled_rate_per_day": case["a"], "signal_weight": case["k"]}
    if "se_a" in case:
        expected |= {"rate_error": case["se_a"], "weight_error": case["se_k"]}
    for name, value in expected.items():
        got = float(getattr(fit, name)[0])
        assert_allclose(got, np.nan if value is None else float(value), rtol=1e-9, err_msg=name)
    for key, rtol in (("loglik", 1e-12), ("sup_loglik", 1e-12)):
        if key in case:
            assert_allclose(fit.log_likelihood[0], float(case[key]), rtol=rtol, atol=1e-300)
    for key, matrix in (
        ("observed_info", fit.observed_information[0]),
        ("expected_info", fit.expected_information[0]),
    ):
        if key in case:
            assert_allclose([matrix[0, 0], matrix[0, 1], matrix[1, 1]], np.array(case[key], float), rtol=1e-9)
            assert matrix[0, 1] == matrix[1, 0]


def test_pages_together_are_pages_alone() -> None:
    """One call with all golden cases without priors, rows shuffled, has the bits of one call each."""
    cases = [c for c in GOLDEN if c["prior_a_shape_rate"] is None]
    rows = np.concatenate(
        [
            np.column_stack([np.full(len(c["data_tau_n_z"]), i), c["data_tau_n_z"]])
            for i, c in enumerate(cases)
        ]
    )
    together = mle_two_param(rows[:, 0].astype(int), rows[:, 1], rows[:, 2], rows[:, 3] == 1.0, len(cases))
    for i, case in enumerate(cases):
        alone = golden_fit(case)
        for name in TwoParamFit.__slots__:
            assert_array_equal(getattr(together, name)[i], getattr(alone, name)[0])


def test_no_data() -> None:
    fit = mle_two_param(np.zeros(0, int), np.zeros(0), np.zeros(0), np.zeros(0, bool), 2)
    assert_array_equal(fit.boundary, [NO_DATA, NO_DATA])
    assert np.isnan(fit.unsignalled_rate_per_day).all() and np.isnan(fit.signal_weight).all()


def test_maximum_beats_a_grid() -> None:
    """Small random histories, most of them at some boundary: nothing on a grid is more likely."""
    rng = np.random.Generator(np.random.Philox(key=5))
    n, k = 400, 5
    gap, signals = rng.choice([0.5, 1.0, 3.0], (n, k)), rng.integers(0, 3, (n, k))
    changed = rng.random((n, k)) < 0.5
    fit = mle_two_param(np.repeat(np.arange(n), k), gap.ravel(), signals.ravel(), changed.ravel(), n)
    assert set(np.unique(fit.boundary)) >= {
        INTERIOR,
        ZERO_WEIGHT,
        ZERO_RATE,
        NO_CHANGE,
        INFINITE_WEIGHT,
        ALL_CHANGED,
    }
    a = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 60)])[:, None, None, None]
    w = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 60)])[None, :, None, None]
    with np.errstate(divide="ignore"):
        s = a * gap + w * signals
        best = np.where(changed, np.log(-np.expm1(-s)), -s).sum(axis=-1).max(axis=(0, 1))
    assert (fit.log_likelihood >= best - 1e-9).all()
    assert (fit.log_likelihood <= np.maximum(best + 0.05, 0.0)).all()  # and the grid comes close


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"rate_prior": (0.5, 1.0)}, "shape 0.5"),
        ({"weight_prior": (1.0, -1.0)}, "rate -1.0"),
        ({"gap_days": np.array([0.0])}, "gaps of 0.0"),
        ({"signals": np.array([-1.0])}, "signals are -1.0"),
    ],
)
def test_errors(argument: dict, message: str) -> None:
    data = {"gap_days": np.ones(1), "signals": np.ones(1), "changed": np.ones(1, bool)} | argument
    with pytest.raises(ValueError, match=message):
        mle_two_param(page=np.zeros(1, int), **data)


def test_counting_is_biased_and_likelihood_is_not() -> None:
    """The paper's figures 13 and 14: precision and recall in [0.2, 0.95], a change in 2 to 20 days, and a
    quarter to four crawls a change."""
    rng = np.random.Generator(np.random.Philox(key=13))
    n, k = 60, 4000
    precision, recall = rng.uniform(0.2, 0.95, (2, n))
    rate = 1.0 / rng.uniform(2.0, 20.0, n)
    crawls_per_change = np.exp(rng.uniform(np.log(0.25), np.log(4.0), n))
    data = simulate(14, rate, k, precision[:, None], recall[:, None], 1.0 / (crawls_per_change * rate))
    fit = mle_two_param(data.page, data.gap, data.signals[:, 0], data.changed, n)
    assert (fit.boundary == INTERIOR).all()
    share = -np.expm1(-fit.signal_weight)
    signalled = share * data.signal_rate[:, 0]
    found = signalled / (fit.unsignalled_rate_per_day + signalled)
    naive_precision, naive_recall = naive_estimate(data.page, data.signals[:, 0], data.changed, n)
    # Likelihood: the mean over pages, and each page by its own standard error.
    error = share - precision
    assert abs(error.mean()) < 4.0 * error.std() / np.sqrt(n)
    assert np.abs(found - recall).mean() < 0.05
    z = (fit.signal_weight - data.weight[:, 0]) / fit.weight_error
    assert abs(z.mean()) < 4.0 / np.sqrt(n) and abs((z * z).mean() - 1.0) < 4.0 * np.sqrt(2.0 / n)
    # Counting: far off on the same data, the more so the longer the gaps.
    for naive, true in ((naive_precision, precision), (naive_recall, recall)):
        bias = naive - true
        assert bias.mean() > 0.1 and bias.mean() > 4.0 * bias.std() / np.sqrt(n)
        seldom, often = crawls_per_change < 0.5, crawls_per_change > 2.0
        assert bias[seldom].mean() > 1.5 * bias[often].mean()


def test_naive_estimate_counts() -> None:
    page = np.array([0, 0, 0, 0, 1])
    precision, recall = naive_estimate(page, np.array([1, 2, 0, 0, 0]), np.array([1, 0, 1, 0, 0], bool), 2)
    assert_array_equal(precision, [0.5, np.nan])
    assert_array_equal(recall, [0.5, np.nan])
