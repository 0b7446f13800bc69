import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from policies.estimation import prior
from policies.estimation.estimators import rate
from policies.estimation.group_means import group_means
from policies.estimation.prior import Prior, estimate, fit_prior
from policies.history.evidence import Evidence, empty, from_intervals
from tests.policies.joined import concatenate


def sample(seed: int, shape: float, mean: float, n: int = 2000, n_groups: int = 1, k: int = 20) -> tuple:
    """Evidence of pages whose rates are gamma around gamma means of groups (shape 3), and the groups."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    group = np.arange(n) % n_groups
    means = mean * (rng.gamma(3.0, 1.0 / 3.0, n_groups) if n_groups > 1 else np.ones(1))
    true = rng.gamma(shape, means[group] / shape)
    gap = rng.exponential(1.0, (n, k)) + 1e-9
    changed = rng.random((n, k)) < -np.expm1(-true[:, None] * gap)
    return from_intervals(np.repeat(np.arange(n), k), gap.ravel(), changed.ravel(), n_pages=n), group, means


@pytest.mark.parametrize("n_groups", [1, 100])
@pytest.mark.parametrize(
    ("shape", "mean", "error"),
    [
        (0.3, 0.05, 0.2),
        (0.3, 0.5, 0.15),
        (1.0, 0.05, 0.25),
        (1.0, 0.5, 0.2),
        (3.0, 0.05, 0.4),
        (3.0, 0.5, 0.15),
    ],
)
def test_prior_recovers_its_population(n_groups: int, shape: float, mean: float, error: float) -> None:
    """Sparse histories (one change a page) say little about a narrow population: the error grows there."""
    evidence, group, means = sample(1, shape, mean, n_groups=n_groups)
    learned = fit_prior(evidence, group)
    assert abs(learned.shape / shape - 1.0) < error
    # Three standard errors of 2,000 rates and one change a page, and up to 5 % of bias: the mode is below
    # the mean where every gap is changed, and the means of groups are shrunk.
    error = 3.0 * math.sqrt((1.0 / shape + 1.0) / 2000.0) + 0.05
    assert abs(learned.mean_per_day / means.mean() - 1.0) < error
    found = group_means(evidence, group, n_groups, learned)
    if n_groups > 1:
        # 20 pages a group: its mean has relative variance 1 / (20 shape) against 1/3 between groups.
        assert np.corrcoef(np.log(found), np.log(means))[0, 1] > (0.6 if shape < 1.0 else 0.8)


def test_order_of_pages_and_numbers_of_groups_leave_every_bit() -> None:
    evidence, group, _ = sample(2, 0.5, 0.3, n=5000, n_groups=300)
    learned = fit_prior(evidence, group)
    whole = estimate(evidence, group, 300, learned)
    rng = np.random.Generator(np.random.Philox(key=5))
    order, number = rng.permutation(5000), rng.permutation(300)
    assert fit_prior(evidence.take(order), number[group[order]]) == learned
    other = estimate(evidence.take(order), number[group[order]], 300, learned)
    assert_array_equal(other.change_rate_per_day, whole.change_rate_per_day[order])
    assert_array_equal(other.information, whole.information[order])
    assert_array_equal(other.group_mean_per_day[number], whole.group_mean_per_day)


def test_cutting_whole_groups_into_shards_leaves_every_bit() -> None:
    evidence, group, _ = sample(3, 0.5, 0.3, n=5000, n_groups=300)
    learned = fit_prior(evidence, group)
    whole = estimate(evidence, group, 300, learned)
    for shard in range(7):
        rows = np.flatnonzero(group % 7 == shard)
        local = group[rows] // 7
        part = estimate(evidence.take(rows), local, int(local.max()) + 1, learned)
        assert_array_equal(part.change_rate_per_day, whole.change_rate_per_day[rows])
        assert_array_equal(part.information, whole.information[rows])


def test_estimate_is_rate_at_the_group_means() -> None:
    evidence, group, _ = sample(4, 0.5, 0.3, n_groups=40)
    learned = fit_prior(evidence, group)
    found = estimate(evidence, group, 40, learned)
    assert_array_equal(found.group_mean_per_day, group_means(evidence, group, 40, learned))
    lam, information = rate(evidence, learned.shape, found.group_mean_per_day[group])
    assert_allclose(found.change_rate_per_day, lam, rtol=1e-9)
    assert_allclose(found.information, information, rtol=1e-9)


def test_unseen_groups_get_the_global_mean_and_pages_borrow() -> None:
    learned = Prior(0.5, 0.2, 2.0)
    fast = from_intervals(np.arange(40), np.ones(40), np.ones(40, bool), n_pages=40)
    slow = from_intervals(np.arange(40), np.full(40, 100.0), np.zeros(40, bool), n_pages=40)
    evidence = concatenate([fast, slow, empty(3)])
    group = np.concatenate([np.repeat([0, 1], 40), [0, 1, 2]])
    found = estimate(evidence, group, 4, learned)
    assert found.group_mean_per_day[3] == 0.2
    new = found.change_rate_per_day[-3:]
    assert_allclose(new, found.group_mean_per_day[:3], rtol=1e-9)
    assert new[0] > 0.5 > 0.2 > 0.03 > new[1]
    assert_allclose(new[2], 0.2, rtol=1e-9)


def test_five_daily_crawls_each_unchanged_and_each_changed() -> None:
    evidence = from_intervals(np.repeat([0, 1], 5), np.ones(10), np.repeat([False, True], 5))
    for group in (np.array([0, 0]), np.array([0, 1])):
        still, busy = estimate(evidence, group, 2, fit_prior(evidence, group)).change_rate_per_day
        assert 0.0 < still < 0.3
        assert 1.0 < busy < 100.0


@pytest.mark.parametrize(
    "evidence",
    [
        empty(),
        empty(5),
        from_intervals(np.arange(3), np.full(3, 1e5), np.zeros(3, bool)),
        from_intervals(np.arange(3), np.full(3, 1e-6), np.zeros(3, bool)),
        from_intervals(np.arange(50), np.full(50, 1e-6), np.ones(50, bool)),
        from_intervals(np.arange(50), np.full(50, 1e5), np.ones(50, bool)),
        from_intervals(np.zeros(1, int), np.ones(1), np.ones(1, bool)),
        # New at every fetch, by its own date: no finite rate explains it.
        from_intervals(np.arange(9), np.ones(9), np.ones(9, bool), np.zeros(9), np.full(9, 1e9)),
        from_intervals(np.arange(9), np.ones(9), np.arange(9) == 4, np.zeros(9), np.full(9, 1e9)),
    ],
    ids=["no pages", "no history", "no change", "no change, short", "all changed, short", "all changed, long",
         "one change", "always new", "one always new"],
)  # fmt: skip
def test_degenerate_samples_give_finite_priors(evidence: Evidence) -> None:
    n = len(evidence)
    for group in (np.zeros(n, int), np.arange(n)):
        learned = fit_prior(evidence, group)
        assert 0.1 <= learned.shape <= 20.0 and 0.3 <= learned.group_strength <= 8.0
        assert 1e-9 < learned.mean_per_day <= prior.LARGEST_RATE_PER_DAY
        found = estimate(evidence, group, max(n, 1), learned)
        assert np.isfinite(found.change_rate_per_day).all() and (found.change_rate_per_day > 0.0).all()
        assert np.isfinite(found.information).all() and (found.information > 0.0).all()


def test_defaults_without_changes() -> None:
    assert fit_prior(empty(), np.zeros(0, int)) == Prior(0.5, 0.05, 2.0)
    quiet = from_intervals(np.arange(3), np.full(3, 30.0), np.zeros(3, bool))
    assert fit_prior(quiet, np.zeros(3, int)) == Prior(0.5, 0.5 / 100.0, 2.0)


def test_wrong_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="one code per page"):
        fit_prior(empty(3), np.zeros(2, int))
    with pytest.raises(ValueError, match=r"0\.\.1"):
        group_means(empty(3), np.array([0, 1, 2]), 2, Prior(0.5, 0.1, 2.0))
    with pytest.raises(ValueError, match="group codes"):
        fit_prior(empty(2), np.array([-1, 0]))
    with pytest.raises(ValueError, match="shape"):
        Prior(math.nan, 0.1, 2.0)


def test_strength_follows_the_spread_of_group_means() -> None:
    """Groups alike: the firmest tie. Groups 30 times apart: the loosest."""
    alike, _, _ = sample(8, 1.0, 0.3)
    assert fit_prior(alike, np.arange(2000) % 100).group_strength == 8.0
    fast, slow = sample(9, 1.0, 1.0, n=400)[0], sample(10, 1.0, 0.03, n=1600)[0]
    assert fit_prior(concatenate([fast, slow]), np.arange(2000) // 20).group_strength < 2.0
