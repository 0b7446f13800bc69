import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from policies.signals.trust import JUNK_WEIGHT, Trust, merge_sources, summarise

FUNCTIONS = (
    ("precision", "precision_error"),
    ("recall", "recall_error"),
    ("change_rate_per_day", "change_rate_error"),
)


def parameters(seed: int, n: int, s: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.Philox(key=seed))
    return rng.gamma(0.5, 1.0, n) + 1e-3, rng.gamma(0.5, 1.5, (n, s)) + 1e-3, rng.gamma(0.7, 1.0, (n, s))


def test_summary_follows_the_definitions() -> None:
    recall, rate, false = np.array([[0.6]]), np.array([2.0]), np.array([[0.5]])
    weight = np.log1p(recall * rate[:, None] / false)
    trust = summarise((1.0 - recall[:, 0]) * rate, weight, recall * rate[:, None] + false)
    assert_allclose(trust.recall, recall, rtol=1e-14)
    assert_allclose(trust.change_rate_per_day, rate, rtol=1e-14)
    assert_allclose(trust.precision, 1.2 / 1.7, rtol=1e-14)
    assert np.isnan(trust.precision_error).all()


@pytest.mark.parametrize("s", [1, 3])
def test_standard_errors_are_those_of_small_deviations(s: int) -> None:
    """Against samples: 200,000 draws of log parameters with standard deviations of about 1 %."""
    a, k, g = parameters(3, 3, s)
    rng = np.random.Generator(np.random.Philox(key=4))
    root = rng.normal(0.0, 0.01, (3, 1 + s, 1 + s))
    covariance = root @ root.transpose(0, 2, 1)
    seen = rng.uniform(5e3, 2e4, (3, s))
    trust = summarise(a, k, g, covariance, seen)
    m = 200_000
    for i in range(3):
        move = rng.normal(0.0, 1.0, (m, 1 + s)) @ root[i].T
        rates = g[i] * np.exp(rng.normal(0.0, 1.0, (m, s)) / np.sqrt(seen[i]))
        sample = summarise(a[i] * np.exp(move[:, 0]), k[i] * np.exp(move[:, 1:]), rates)
        for name, error in FUNCTIONS:
            assert_allclose(getattr(trust, error)[i], getattr(sample, name).std(axis=0), rtol=0.03)


def test_summary_of_perfect_and_of_silent_sources() -> None:
    """No false signals at all, a source that never signals, a page that never changes: numbers, no NaN."""
    a = np.array([0.0, 1.0, 0.0])
    k = np.array([[np.inf, 0.3], [np.inf, 0.3], [0.0, 0.0]])
    g = np.array([[2.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    covariance = np.broadcast_to(np.eye(3) * 0.1, (3, 3, 3))
    trust = summarise(a, k, g, covariance, np.ones((3, 2)))
    for name in Trust.__slots__:
        assert np.isfinite(getattr(trust, name)).all(), name
    assert_array_equal(trust.precision[:, 0], [1.0, 1.0, 0.0])
    assert_array_equal(trust.recall[[0, 2]], [[1.0, 0.0], [0.0, 0.0]])
    assert_allclose(trust.recall[1, 0], 1.0 / (3.0 - np.exp(-0.3)), rtol=1e-14)
    assert_array_equal(trust.change_rate_per_day[[0, 2]], [2.0, 0.0])


@pytest.mark.parametrize("s", [2, 5])
def test_merging_keeps_change_rate_and_clock(s: int) -> None:
    a, k, g = parameters(6, 2000, s)
    merged_a, merged_g, merged_k = merge_sources(a, k, g)
    true = -np.expm1(-k) * g
    assert_allclose(merged_a - np.expm1(-merged_k) * merged_g, a + true.sum(axis=1), rtol=1e-13)
    kept = k >= JUNK_WEIGHT
    assert_allclose(merged_a, a + np.where(kept, 0.0, true).sum(axis=1), rtol=1e-13)
    assert_allclose(merged_g * merged_k, np.where(kept, g * k, 0.0).sum(axis=1), rtol=1e-12, atol=1e-300)
    some = kept.sum(axis=1) > 1
    assert (
        some.any() and (merged_k[some] >= np.where(kept, k, np.inf).min(axis=1)[some] * (1.0 - 1e-12)).all()
    )
    assert (merged_k[some] <= np.where(kept, k, 0.0).max(axis=1)[some] * (1.0 + 1e-12)).all()


def test_one_source_keeps_its_bits() -> None:
    a, k, g = parameters(8, 500, 1)
    k = k + JUNK_WEIGHT
    for weight, rate in (
        (k, g),
        (np.hstack([k, k]), np.hstack([g, 0.0 * g])),
        (np.hstack([0.0 * k, k]), np.hstack([g, g])),
    ):
        merged_a, merged_g, merged_k = merge_sources(a, weight, rate)
        assert_array_equal(merged_a, a)
        assert_array_equal(merged_k, k[:, 0])
        assert_array_equal(merged_g, g[:, 0])


def test_merging_at_the_ends() -> None:
    a = np.ones(4)
    k = np.array([[0.01, 0.02], [np.inf, 1.0], [1e-3, np.inf], [700.0, 1e-1]])
    g = np.ones((4, 2))
    merged_a, merged_g, merged_k = merge_sources(a, k, g)
    assert merged_k[0] == 0.0 and merged_g[0] == 0.0
    assert merged_k[1] == np.inf and merged_k[2] == np.inf
    assert_allclose(merged_a - np.expm1(-merged_k) * merged_g, a - np.expm1(-k).sum(axis=1), rtol=1e-14)
    same = merge_sources(a[:1], np.array([[0.3, 0.3]]), np.array([[1.0, 2.0]]))
    assert_allclose(same, [[1.0], [3.0], [0.3]], rtol=1e-13)
    nothing = merge_sources(a, np.zeros((4, 0)), np.zeros((4, 0)))
    assert_array_equal(nothing[0], a)


@pytest.mark.parametrize(
    ("a", "k", "g", "message"),
    [
        (np.ones(2), np.ones((1, 1)), np.ones((1, 1)), "shapes"),
        (np.array([-1.0]), np.ones((1, 1)), np.ones((1, 1)), "unsignalled rates are -1.0"),
        (np.ones(1), np.array([[np.nan]]), np.ones((1, 1)), "signal weights are nan"),
        (np.ones(1), np.ones((1, 1)), np.array([[np.inf]]), "signal rates are inf"),
    ],
)
def test_errors(a: np.ndarray, k: np.ndarray, g: np.ndarray, message: str) -> None:
    for function in (merge_sources, summarise):
        with pytest.raises(ValueError, match=message):
            function(a, k, g)
