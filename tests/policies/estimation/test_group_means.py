"""Means of groups: against a plain search, alike for any cut into shards."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from policies.estimation import group_means as means
from policies.estimation.estimators import bin_nodes, rate
from policies.estimation.group_means import GroupSums, Prior, group_means
from policies.estimation.prior import estimate, fit_prior
from policies.history.evidence import Evidence, empty, from_intervals
from policies.numerics.typing_ import FloatArray, IntArray
from tests.policies.joined import concatenate


def histories(rng: np.random.Generator, true: FloatArray, gap: FloatArray) -> Evidence:
    n, k = gap.shape
    changed = rng.random((n, k)) < -np.expm1(-true[:, None] * gap)
    return from_intervals(np.repeat(np.arange(n), k), gap.ravel(), changed.ravel(), n_pages=n)


def groupings(seed: int, n_groups: int = 100) -> tuple[Evidence, IntArray, Prior]:
    """Groups alike or not, quick or still, with histories short or long; the prior learned or drawn.

    Given the prior, groups do not know of each other: a hundred of them are as many cases.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    size, k = rng.integers(1, 40, n_groups), int(rng.integers(1, 30))
    group = np.repeat(np.arange(n_groups), size)
    mean = np.exp(rng.uniform(-5, 2) + rng.choice([0.0, 0.5, 2.0, 4.0]) * rng.standard_normal(n_groups))
    mean[rng.random(n_groups) < 0.1] = 0.0
    shape = rng.choice([0.1, 0.5, 5.0, 1e6], n_groups)[group]
    true = mean[group] * rng.gamma(shape) / shape
    gap = np.exp(rng.uniform(-2, 3, n_groups))[group, None] * np.ones((len(group), k))
    if rng.random() < 0.5:
        gap *= rng.exponential(1.0, gap.shape) + 1e-3
    evidence = histories(rng, true, gap)
    prior = fit_prior(evidence, group)
    if rng.random() < 0.5:
        drawn = float(np.exp(rng.uniform(np.log(0.1), np.log(20.0))))
        prior = Prior(drawn, prior.mean_per_day, prior.group_strength)
    return evidence, group, prior


def in_several_places(
    evidence: Evidence, group: IntArray, n_groups: int, prior: Prior, place: IntArray
) -> FloatArray:
    def add(points: IntArray) -> list[GroupSums]:
        total: list[GroupSums] = []
        for here in np.unique(place):
            rows = np.flatnonzero(place == here)
            part = evidence.take(rows)
            sums = [means.sums_at(part, bin_nodes(part), group[rows], at, prior) for at in points]
            total = [a.merge(b) for a, b in zip(total, sums, strict=True)] if total else sums
        return total

    points = means.first_points(prior, n_groups)
    sums = add(points)
    for stride in means.STRIDES[1:]:
        points = means.next_points(prior, points, sums, stride)
        sums = add(points)
    return means.means_among(prior, points, sums)


@pytest.mark.parametrize("seed", range(10))
def test_means_are_the_fixed_point_of_a_thousand_groups(seed: int) -> None:
    """Both sides of the equation are evaluated a hair below and above: the root is in between."""
    evidence, group, prior = groupings(seed)
    found = group_means(evidence, group, 100, prior)
    count = np.bincount(group, minlength=100)
    k, a = prior.group_strength, prior.shape
    assert (np.abs(np.log2(found / prior.mean_per_day)) < 11.0).all()  # not at the ends of the range
    for factor, sign in ((1.0 - 1e-5, 1.0), (1.0 + 1e-5, -1.0)):
        m = factor * found
        total = np.bincount(group, rate(evidence, a, m[group])[0], minlength=100)
        assert (sign * (k * (prior.mean_per_day - m) + a * (total - count * m)) > 0.0).all()
    place = np.random.Generator(np.random.Philox(key=seed)).integers(0, 3, len(group))
    assert_array_equal(in_several_places(evidence, group, 100, prior, place), found)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_plain_iteration_comes_to_the_same_means(seed: int) -> None:
    evidence, group, prior = groupings(seed, 20)
    count = np.bincount(group, minlength=20)
    k, a = prior.group_strength, prior.shape
    mean = np.full(20, prior.mean_per_day)
    for _ in range(3000):
        rates, _ = rate(evidence, a, mean[group])
        before = mean
        mean = (k * prior.mean_per_day + a * np.bincount(group, rates, minlength=20)) / (k + a * count)
        if np.abs(mean / before - 1.0).max() < 1e-9:
            break
    assert_allclose(group_means(evidence, group, 20, prior), mean, rtol=1e-4)


def test_pages_that_never_change_beside_pages_that_change_daily() -> None:
    """Two hosts of 200 pages, 15 daily crawls: the still one is at the root of its quadratic, far below."""
    rng = np.random.Generator(np.random.Philox(key=1))
    group = np.repeat([0, 1], 200)
    evidence = histories(rng, np.where(group == 0, 1.0, 0.0), np.ones((400, 15)))
    prior = fit_prior(evidence, group)
    found = estimate(evidence, group, 2, prior)
    busy, still = found.group_mean_per_day
    assert 0.95 < busy < 1.05
    # (k + a n) m = k m0 + a n rate, with rate = a / (15 + a / m).
    k, a, m0 = prior.group_strength, prior.shape, prior.mean_per_day
    left = k + a * 200.0
    root = np.roots([left * 15.0, left * a - 15.0 * k * m0 - a * a * 200.0, -a * k * m0]).max()
    assert_allclose(still, root, rtol=1e-5)
    assert (found.change_rate_per_day[200:] < 0.02).all()


def test_groups_out_of_reach_stay_at_the_ends() -> None:
    prior = Prior(20.0, 0.5, 1e-5)
    still = from_intervals(np.arange(50), np.full(50, 1e9), np.zeros(50, bool), n_pages=50)
    restless = from_intervals(np.arange(50), np.full(50, 1e-6), np.ones(50, bool), n_pages=50)
    group = np.repeat([0, 1], 50)
    evidence = concatenate([still, restless])
    found = group_means(evidence, group, 3, prior)
    assert_array_equal(found, [2.0**-16, 2.0**12, 0.5])
    assert_array_equal(in_several_places(evidence, group, 3, prior, np.arange(100) % 2)[:2], found[:2])


def test_sums_are_exact_in_any_order() -> None:
    rng = np.random.Generator(np.random.Philox(key=6))
    rates, group = 10 ** rng.uniform(-6, 2, 3000), rng.integers(0, 5, 3000)
    slope, mean = rates * rng.random(3000), 10 ** rng.uniform(-2, 0, 6)
    whole = means.sum_groups(rates, slope, group, mean)
    parts = [means.sum_groups(rates[i::3], slope[i::3], group[i::3], mean) for i in range(3)]
    for merged in (parts[0].merge(parts[1]).merge(parts[2]), parts[2].merge(parts[0].merge(parts[1]))):
        assert_array_equal(merged.limbs, whole.limbs)
        assert_array_equal(merged.count, whole.count)
    total, slopes = whole.relative()
    for g in range(5):
        assert_allclose(total[g] * mean[g], rates[group == g].sum(), rtol=1e-7)
        assert_allclose(slopes[g] * mean[g], slope[group == g].sum(), rtol=1e-7)


def test_grid() -> None:
    point = np.arange(-500, 500)
    assert_array_equal(means.grid_above(means.grid_mean(point)), point)
    assert_array_equal(means.grid_above(np.nextafter(means.grid_mean(point), np.inf)), point + 1)
    assert means.grid_mean(np.array([0, 16, 8])).tolist() == [1.0, 2.0, 1.5]


def test_no_pages() -> None:
    assert_array_equal(group_means(empty(), np.zeros(0, int), 2, Prior(0.5, 0.2, 2.0)), [0.2, 0.2])
