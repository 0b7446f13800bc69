"""Slots per night and shard, and when they are due."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.sequencing import quotas
from policies.sequencing.quotas import (
    BIN_US,
    all_slot_ranks,
    shard_quotas,
    slot_offsets_us,
    slot_ranks,
    total_slots,
)

DAY_US = 86_400_000_000


def per_bin(offsets, horizon_us):
    return np.bincount(offsets // BIN_US, minlength=-(-horizon_us // BIN_US))


def test_total_slots_follow_the_budget_the_same_night():
    assert total_slots(100.0, 24.0) == (100, 0.0)
    assert total_slots(50.0, 24.0) == (50, 0.0)


def test_fraction_of_a_slot_is_carried():
    carried, given_out = 0.0, 0
    for _ in range(1000):
        slots, carried = total_slots(10.3, 6.0, carried)
        given_out += slots
        assert slots in (2, 3)
    assert given_out == pytest.approx(10.3 * 0.25 * 1000, abs=1.0)


def test_rounding_error_of_a_budget_loses_no_slot():
    assert total_slots(50_000 * (1 - 1e-12), 24.0)[0] == 50_000


@pytest.mark.parametrize("rate, hours, carried", [(-1.0, 24, 0), (np.inf, 24, 0), (1, 0, 0), (1, 24, np.nan)])
def test_total_slots_reject(rate, hours, carried):
    with pytest.raises(ValueError):
        total_slots(rate, hours, carried)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([0.0, 0.1, 0.5]))
def test_quotas_are_exact_every_night_and_never_drift(seed, shards, noise):
    rng = np.random.default_rng(seed)
    base = rng.gamma(0.5, size=shards) * 10.0 ** rng.integers(-2, 4) + 1e-6
    carry, carried = np.zeros(shards), 0.0
    owed = np.zeros(shards)
    for _ in range(40):
        rate = base * np.exp(noise * rng.normal(size=shards))
        slots, carried = total_slots(rate.sum(), 24.0, carried)
        quota, carry = shard_quotas(rate, carry, slots)
        assert quota.sum() == slots and quota.min() >= 0
        owed += slots * rate / rate.sum() - quota
        assert np.abs(carry).max() < 1.0
        np.testing.assert_allclose(carry, owed, atol=1e-6)


def test_carry_of_sizeable_shards_stays_small():
    rng = np.random.default_rng(5)
    rate = rng.uniform(5_000, 15_000, 64)
    carry, worst = np.zeros(64), []
    for _ in range(60):
        _, carry = shard_quotas(rate * np.exp(0.1 * rng.normal(size=64)), carry, int(rate.sum()))
        worst.append(np.abs(carry).max())
    assert np.mean(worst) < 0.61


def test_quota_ties_go_to_the_lower_shard():
    quota, carry = shard_quotas([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], 4)
    assert quota.tolist() == [2, 1, 1]
    assert shard_quotas([1.0, 1.0, 1.0], carry, 4)[0].tolist() == [1, 2, 1]


def test_shards_without_rate_get_nothing_and_forget():
    quota, carry = shard_quotas([0.0, 2.0, 1.0], [0.6, -0.3, -0.3], 7)
    assert quota[0] == 0 and carry[0] == 0.0 and quota.sum() == 7
    assert shard_quotas([0.0, 0.0], [0.0, 0.0], 0)[0].tolist() == [0, 0]
    with pytest.raises(ValueError, match="rate 0"):
        shard_quotas([0.0, 0.0], [0.0, 0.0], 5)


@pytest.mark.parametrize("rate", [[-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0]])
def test_quotas_reject(rate):
    with pytest.raises(ValueError, match="rate_per_day"):
        shard_quotas(rate, [0.0, 0.0], 3)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=9))
def test_ranks_order_all_slots_by_their_ideal_place(quota):
    ideal = sorted((Fraction(2 * k + 1, 2 * b), s) for s, b in enumerate(quota) for k in range(b))
    want = [[rank for rank, (_, shard) in enumerate(ideal) if shard == s] for s in range(len(quota))]
    assert [slot_ranks(quota, s).tolist() for s in range(len(quota))] == want


def test_offsets_of_one_shard():
    assert slot_offsets_us([4], 0, 80).tolist() == [10, 30, 50, 70]
    assert slot_offsets_us([4, 0], 1, 80).size == 0


@pytest.mark.parametrize("quota", [[600], [37, 1, 0, 250, 311], [5] * 200, [3, 60] * 20])
def test_ranked_slots_are_even(quota):
    horizon_us = 6 * 3_600_000_000
    offsets = np.concatenate([slot_offsets_us(quota, s, horizon_us) for s in range(len(quota))])
    assert np.unique(offsets).size == sum(quota)
    assert offsets.min() >= 0 and offsets.max() < horizon_us
    counts = per_bin(offsets, horizon_us)
    assert counts.max() <= np.ceil(counts.mean()) and counts.min() >= np.floor(counts.mean())


@pytest.mark.parametrize("shards, mean", [(17, 800), (300, 800), (300, 3000)])
def test_many_slots_in_many_shards_are_even(shards, mean):
    rng = np.random.default_rng(shards)
    for quota in (np.full(shards, mean), rng.integers(mean // 10, 2 * mean, shards)):
        offsets = np.concatenate([slot_offsets_us(quota, s, DAY_US) for s in range(shards)])
        counts = per_bin(offsets, DAY_US)
        assert counts.max() <= max(1.2 * counts.mean(), counts.mean() + 1)


def test_offsets_of_a_billion_slots_fit_into_integers():
    quota = np.full(1000, 1_000_000)
    offsets = slot_offsets_us(quota, 999, DAY_US)
    assert offsets[0] >= 0 and offsets[-1] < DAY_US
    assert set(np.unique(np.diff(offsets))) <= {86_400}
    large = slot_offsets_us([1_000_000, 600_000_000], 0, DAY_US)
    exact = [(2 * k + 1) * DAY_US // 2_000_000 for k in (0, 499_999, 999_999)]
    assert large[[0, 499_999, 999_999]] == pytest.approx(exact, abs=200)


def test_offsets_reject():
    with pytest.raises(ValueError, match="shard 2"):
        slot_offsets_us([1, 2], 2, DAY_US)
    with pytest.raises(ValueError, match="horizon_us"):
        slot_offsets_us([1, 2], 0, 0)
    with pytest.raises(ValueError, match="negative"):
        slot_offsets_us([1, -2], 0, DAY_US)
    with pytest.raises(ValueError, match="more shards"):
        slot_offsets_us([2_000_000_000], 0, DAY_US)


@pytest.mark.parametrize("most", [1, 4, 60])
def test_ranks_of_all_shards_at_once_are_those_of_each(most, monkeypatch):
    slots = np.random.default_rng(most).integers(0, most + 1, 300)
    each = np.concatenate([slot_ranks(slots, shard) for shard in range(len(slots))])
    assert np.array_equal(all_slot_ranks(slots), each)
    assert np.array_equal(np.sort(each), np.arange(slots.sum()))
    monkeypatch.setattr(quotas, "_MAX_ROUNDED_SLOTS", 0)  # as where places may be rounded
    assert np.array_equal(all_slot_ranks(slots), each)
