"""One host's slots over several shards: its limit, its gap, its shares, and the merged night."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from policies.sequencing.giants import host_slots, merge_sequences, most_slots
from policies.sequencing.sequencing import Sequence, ShardPages, sequence

DAY_US = 86_400_000_000


@given(
    st.integers(0, 500),
    st.integers(0, 10**9),
    st.integers(-(10**9), 2 * 10**9),
    st.integers(1, 10**9),
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=6).filter(lambda r: sum(r) > 0),
)
def test_slots_keep_limit_gap_and_night(max_slots, gap_us, free_us, horizon_us, rate):
    most = most_slots(max_slots, gap_us, free_us, horizon_us)
    assert 0 <= most <= max_slots
    slots, owed = host_slots(np.array(rate), np.zeros(len(rate)), most, gap_us, free_us, horizon_us)
    offsets = [slots.offsets_us(part) for part in range(len(rate))]
    due = np.sort(np.concatenate(offsets))
    assert len(due) == slots.total == most
    assert all((o[1:] > o[:-1]).all() for o in offsets if gap_us > 0)
    assert (np.diff(due) >= gap_us).all()
    if most:
        assert due[0] >= max(free_us, 0)
        assert due[-1] < horizon_us
    assert abs(owed.sum()) < 1e-6 * max(most, 1)
    share = np.array(rate) / np.sum(rate) * most
    assert (np.abs(slots.quota - share) < 1 + 1e-6 * max(most, 1)).all()


def test_all_that_a_gap_allows_is_used():
    assert most_slots(10**6, 300_000_000, 0, DAY_US) == 288
    slots, _ = host_slots(np.array([3.0, 1.0]), np.zeros(2), 288, 300_000_000, 0, DAY_US)
    assert slots.quota.tolist() == [216, 72]
    assert most_slots(5, 300_000_000, DAY_US, DAY_US) == 0


def test_parts_take_turns():
    slots, _ = host_slots(np.array([2.0, 1.0, 1.0]), np.zeros(3), 400, 0, 0, DAY_US)
    own = np.concatenate([np.full(slots.quota[p], p) for p in range(3)])
    in_time = own[np.argsort(np.concatenate([slots.offsets_us(p) for p in range(3)]), kind="stable")]
    for part, share in enumerate((0.5, 0.25, 0.25)):
        ahead = np.cumsum(in_time == part) - share * np.arange(1, 401)
        assert np.abs(ahead).max() < 1.0


def _night(rows: int, slots: int, seed: int) -> tuple[ShardPages, np.ndarray]:
    rng = np.random.Generator(np.random.Philox(key=seed))
    rate = rng.gamma(1.0, size=rows)
    pages = ShardPages(
        rate,
        rng.exponential(size=rows),
        np.zeros(rows, np.bool_),
        rng.random(rows),
        rng.integers(0, 2**63, rows).astype(np.uint64),
    )
    return pages, np.sort(rng.integers(0, DAY_US, slots))


def test_merged_nights_are_those_of_their_pages():
    pages, offsets = _night(30, 50, 1)
    rows = [np.arange(0, 10), np.arange(10, 12), np.arange(12, 30)]
    cuts = [offsets[:20], offsets[20:20], offsets[20:]]
    parts = [(r, sequence(pages.rows(r), o, DAY_US)) for r, o in zip(rows, cuts, strict=True)]
    merged = merge_sequences(parts, 30)
    assert (np.diff(merged.due_offset_us) >= 0).all()
    for r, part in parts:
        mine = np.isin(merged.page, r)
        assert_array_equal(merged.page[mine] - r[0], part.page[part.page >= 0])
        assert_array_equal(merged.expected[r], part.expected)
    assert merged.counters["slots"] == 50


def test_empty_slots_stay_empty():
    pages, offsets = _night(4, 6, 2)
    none = Sequence(
        np.full(3, -1, np.int32), offsets[:3], np.zeros(0), np.zeros(0), np.zeros(3, np.uint8), {"empty": 3}
    )
    rows = np.arange(4)
    merged = merge_sequences([(np.zeros(0, np.int64), none), (rows, sequence(pages, offsets[3:], DAY_US))], 4)
    assert (merged.page == -1).sum() == 3 and merged.counters["empty"] == 3


def test_pages_of_hosts_need_hosts():
    pages, _ = _night(3, 1, 3)
    with pytest.raises(ValueError, match="host_start"):
        pages.of_hosts(np.array([True]))
