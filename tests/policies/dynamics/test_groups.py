"""Groups: how much of the difference between pages they make, and what goes with them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from policies.dynamics.groups import correlation, share_between


def test_the_share_between_groups_is_that_which_was_drawn():
    rng = np.random.default_rng(5)
    size = rng.integers(5, 60, 300)
    of_group = np.repeat(rng.normal(0.0, 1.0, 300), size)
    value = of_group + rng.normal(0.0, 2.0, len(of_group))
    number = np.repeat(np.arange(300), size)
    total, squares = np.bincount(number, value), np.bincount(number, value * value)
    assert share_between(size, total, squares) == pytest.approx(0.2, abs=0.04)
    alike = rng.normal(0.0, 2.0, len(of_group))
    assert abs(share_between(size, np.bincount(number, alike), np.bincount(number, alike**2))) < 0.02
    assert np.isnan(share_between(np.array([4]), np.ones(1), np.ones(1)))


def test_the_correlation_is_pearsons_with_fishers_limits():
    rng = np.random.default_rng(2)
    rate = rng.gamma(2.0, 1.0, 20)
    value = rate + rng.normal(0.0, 1.5, 20)
    found = correlation(rate, value, np.full(20, 50))
    said = stats.pearsonr(rate, value)
    limits = said.confidence_interval(0.95)
    assert found is not None and found.groups == 20
    assert (found.pearson, found.low, found.high) == pytest.approx((said.statistic, limits.low, limits.high))
    assert found.spearman == pytest.approx(stats.spearmanr(rate, value).statistic)


def test_small_groups_and_missing_numbers_are_left_out():
    rate, value = np.arange(6.0), np.array([0.0, 1.0, 2.0, 3.0, np.nan, 5.0])
    assert correlation(rate, value, np.array([50, 50, 50, 50, 50, 9])) is None
    assert correlation(rate, np.arange(6.0), np.full(6, 50)).groups == 6
