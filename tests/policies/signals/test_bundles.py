"""What several sources tell together: against all combinations one by one, and by drawing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from policies.numerics.columns import take
from policies.signals.bundles import Bundles, choose_bundles, told
from policies.signals.estimation import Pooled
from policies.signals.host_signals import hold_to_changes
from policies.signals.trust import merge_sources, summarise


def drawn(seed: int, n: int, s: int) -> tuple[np.ndarray, np.ndarray, Bundles]:
    rng = np.random.Generator(np.random.Philox(key=seed))
    weight, rate = rng.gamma(0.8, 1.5, (n, s)) + 1e-2, rng.gamma(0.7, 1.0, (n, s)) + 1e-3
    parent = np.stack([rng.integers(-1, max(j, 1) if j else 0, n) for j in range(s)], axis=1)
    return weight, rate, Bundles(parent, np.where(parent >= 0, rng.random((n, s)), 0.0))


def by_combinations(weight: np.ndarray, rate: np.ndarray, parent: np.ndarray, share: np.ndarray) -> tuple:
    """One page: all sets of sources that tell of one event, and how often."""
    s = len(rate)
    shared = [share[j] * min(rate[j], rate[parent[j]]) if parent[j] >= 0 else 0.0 for j in range(s)]
    true, sent, right = 0.0, np.zeros(s), np.zeros(s)
    for combination in itertools.product([False, True], repeat=s):
        members = [j for j in range(s) if combination[j]]
        if not members:
            continue
        # The first of a chain opens the event; the others joined their parents, or did not.
        openers = [j for j in members if parent[j] < 0 or not combination[parent[j]]]
        if len(openers) != 1:
            continue
        often = rate[openers[0]] - shared[openers[0]]
        for j in range(s):
            if parent[j] >= 0 and combination[parent[j]]:
                joins = shared[j] / rate[parent[j]]
                often *= joins if combination[j] else 1.0 - joins
        good = -np.expm1(-sum(weight[j] for j in members))
        true += often * good
        sent[members] += often
        right[members] += often * good
    assert_allclose(sent, rate, rtol=1e-12)
    return true, right / sent


@pytest.mark.parametrize("s", [1, 2, 3, 5])
def test_every_combination_counts_once(s: int) -> None:
    weight, rate, bundles = drawn(3, 60, s)
    found = told(weight, rate, bundles)
    for i in range(60):
        true, precision = by_combinations(weight[i], rate[i], bundles.parent[i], bundles.share[i])
        assert found.true_per_day[i] == pytest.approx(true, rel=1e-12)
        assert_allclose(found.precision[i], precision, rtol=1e-12)
    assert_allclose(found.wrong, 1.0 - found.precision, atol=1e-14)


def test_sources_that_have_nothing_to_do_with_each_other() -> None:
    weight, rate, _ = drawn(4, 50, 3)
    for bundles in (None, Bundles.none(50, 3)):
        found = told(weight, rate, bundles)
        assert_array_equal(found.precision, -np.expm1(-weight))
        assert_allclose(found.true_per_day, (-np.expm1(-weight) * rate).sum(axis=1), rtol=1e-14)


def test_two_that_always_come_together_are_one_with_both_weights() -> None:
    k, g = np.array([[0.4, 1.1], [np.inf, 0.3], [0.0, 2.0]]), np.full((3, 2), 0.7)
    both = Bundles(np.tile([-1, 0], (3, 1)), np.tile([0.0, 1.0], (3, 1)))
    found = told(k, g, both)
    assert_allclose(found.precision, -np.expm1(-k.sum(axis=1, keepdims=True)) * np.ones((1, 2)), rtol=1e-14)
    assert_allclose(found.true_per_day, -np.expm1(-k.sum(axis=1)) * 0.7, rtol=1e-14)
    a, rate, weight = merge_sources(np.full(3, 0.1), k, g, both)
    assert_allclose(rate, 0.7, rtol=1e-12)
    assert_allclose(weight, k.sum(axis=1), rtol=1e-12)
    assert_allclose(a, 0.1, rtol=1e-14)


def test_merging_keeps_changes_and_clock_and_leaves_junk_no_credit() -> None:
    k, g, bundles = drawn(6, 400, 3)
    a = np.full(400, 0.2)
    k[::3, 1] = 0.03  # left out
    merged_a, merged_g, merged_k = merge_sources(a, k, g, bundles)
    every = told(k, g, bundles).true_per_day
    assert_allclose(merged_a - np.expm1(-merged_k) * merged_g, a + every, rtol=1e-12)
    kept = k >= 0.05
    assert_allclose(merged_g * merged_k, np.where(kept, k * g, 0.0).sum(axis=1), rtol=1e-12)
    assert (merged_a >= a).all() and (merged_a[kept.all(axis=1)] == 0.2).all()


def test_standard_errors_are_those_of_small_deviations() -> None:
    k, g, bundles = drawn(8, 4, 3)
    bundles.parent[:, 1:], bundles.share[:, 1:] = [0, 1], [0.7, 0.4]
    a = np.array([0.1, 0.5, 1.0, 2.0])
    rng = np.random.Generator(np.random.Philox(key=9))
    root = rng.normal(0.0, 0.01, (4, 4, 4))
    seen = rng.uniform(5e3, 2e4, (4, 3))
    trust = summarise(a, k, g, root @ root.transpose(0, 2, 1), seen, bundles)
    m = 100_000
    for i in range(4):
        move = rng.normal(0.0, 1.0, (m, 4)) @ root[i].T
        rates = g[i] * np.exp(rng.normal(0.0, 1.0, (m, 3)) / np.sqrt(seen[i]))
        same = take(bundles, np.full(m, i))
        sample = summarise(a[i] * np.exp(move[:, 0]), k[i] * np.exp(move[:, 1:]), rates, bundles=same)
        for name in ("precision", "recall", "change_rate"):
            value = getattr(sample, name + ("_per_day" if "rate" in name else ""))
            assert_allclose(getattr(trust, name + "_error")[i], value.std(axis=0), rtol=0.04)


def test_parents_are_those_with_which_most_is_told() -> None:
    share = np.zeros((3, 3, 3))
    share[0, 0, 1], share[0, 0, 2], share[0, 1, 2] = 0.5, 0.9, 0.5
    share[1, 0, 2] = share[1, 1, 2] = 0.5
    signals = np.array([[10.0, 100.0, 100.0], [5.0, 5.0, 5.0], [1.0, 1.0, 1.0]])
    found = choose_bundles(share, signals)
    assert found.parent.tolist() == [[-1, 0, 1], [-1, -1, 0], [-1, -1, -1]]
    assert found.share.tolist() == [[0.0, 0.5, 0.5], [0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]


def test_what_is_told_twice_does_not_make_weights_give_way() -> None:
    """Two sources that tell the same nine of ten changes: shares and weights stay as they fit."""
    pooled = Pooled(np.array([0.1]), np.full((1, 2), 1.6), 0.1 * np.eye(3)[None])
    sent = np.full((1, 2), 0.9 / -np.expm1(-3.2))
    both = Bundles(np.array([[-1, 0]]), np.array([[0.0, 1.0]]))
    held = hold_to_changes(pooled, sent, 500 * sent, both)
    assert_allclose(held.signal_weight, 1.6, rtol=1e-6)
    assert_allclose(held.missed_share, 0.1, rtol=1e-6)
    apart = hold_to_changes(pooled, sent, 500 * sent)
    assert (apart.signal_weight < 1.2).all()
