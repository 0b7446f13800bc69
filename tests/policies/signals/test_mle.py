import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from policies.numerics.typing_ import FloatArray
from policies.signals.mle import mle_two_param, naive_estimate
from tests.golden import load
from tests.policies.signal_simulation import simulate

GOLDEN = load("mle_two_param")["cases"]


def golden_fit(case: dict) -> tuple[FloatArray, FloatArray]:
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


def likelihood(gap: FloatArray, signals: FloatArray, changed: FloatArray, a: FloatArray, k: FloatArray):
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.where(gap > 0.0, a * gap, 0.0) + np.where(signals > 0.0, k * signals, 0.0)
        return np.where(changed, np.log(-np.expm1(-s)), -s).sum(axis=-1)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda c: c["name"])
def test_golden(case: dict) -> None:
    for got, value in zip(golden_fit(case), (case["a"], case["k"]), strict=True):
        assert_allclose(float(got[0]), np.nan if value is None else float(value), rtol=1e-9)


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
    alone = [np.concatenate(both) for both in zip(*map(golden_fit, cases), strict=True)]
    assert_array_equal(together, alone)


def test_no_data() -> None:
    fit = mle_two_param(np.zeros(0, int), np.zeros(0), np.zeros(0), np.zeros(0, bool), 2)
    assert np.isnan(fit).all()


def test_maximum_beats_a_grid() -> None:
    """Small random histories, most of them at some boundary: nothing on a grid is more likely."""
    rng = np.random.Generator(np.random.Philox(key=5))
    n, k = 400, 5
    gap, signals = rng.choice([0.5, 1.0, 3.0], (n, k)), rng.integers(0, 3, (n, k))
    changed = rng.random((n, k)) < 0.5
    a, w = mle_two_param(np.repeat(np.arange(n), k), gap.ravel(), signals.ravel(), changed.ravel(), n)
    for edge in (a == 0.0, w == 0.0, np.isinf(a), np.isinf(w), (a > 0.0) & (w > 0.0) & (a + w < np.inf)):
        assert edge.any()
    # Without an end any number is as good: so it is with what the data do not determine.
    found = likelihood(
        gap, signals, changed, *(np.nan_to_num(v, nan=1.0, posinf=1e9)[:, None] for v in (a, w))
    )
    grid = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 60)])
    of_grid = grid[:, None, None, None], grid[None, :, None, None]
    best = likelihood(gap, signals, changed, *of_grid).max(axis=(0, 1))
    assert (found >= best - 1e-9).all()
    assert (found <= np.maximum(best + 0.05, 0.0)).all()  # and the grid comes close


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
    unsignalled, weight = mle_two_param(data.page, data.gap, data.signals[:, 0], data.changed, n)
    assert (unsignalled > 0.0).all() and ((weight > 0.0) & (weight < np.inf)).all()
    share = -np.expm1(-weight)
    signalled = share * data.signal_rate[:, 0]
    found = signalled / (unsignalled + signalled)
    naive_precision, naive_recall = naive_estimate(data.page, data.signals[:, 0], data.changed, n)
    # Likelihood: the mean over pages.
    error = share - precision
    assert abs(error.mean()) < 4.0 * error.std() / np.sqrt(n)
    assert np.abs(found - recall).mean() < 0.05
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
