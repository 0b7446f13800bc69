"""Crawls that are decided before the night, among those that are not."""

from dataclasses import replace

import numpy as np
import pytest

from policies.sequencing.fixed_crawls import firsts, left_rates, slots_for, with_fixed
from policies.sequencing.host_shares import host_slot_limits
from policies.sequencing.quotas import slot_offsets_us
from policies.sequencing.sequencing import REASON_DISCOVER, ShardPages, sequence

DAY = 86_400_000_000
PAGES, HOSTS = 60, 6


def problem(seed: int):
    """Pages of hosts with limits and gaps, and fixed crawls within them."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    start = np.append(0, np.sort(rng.choice(np.arange(1, PAGES), HOSTS - 1, replace=False)))
    start = np.append(start, PAGES)
    host = np.repeat(np.arange(HOSTS), np.diff(start))
    most = rng.integers(4, 60, HOSTS)
    gap = rng.choice([0, DAY // 200, DAY // 30], HOSTS)
    free = np.where(rng.random(HOSTS) < 0.5, 0, rng.integers(0, DAY // 4, HOSTS))
    limit = host_slot_limits(most, gap, free, 0, DAY - 1, DAY)
    page, at = rng.integers(0, PAGES, 80), np.sort(rng.integers(0, DAY, 80))
    fits = firsts(host[page], at, page, limit[host[page]])
    page, at = page[fits], at[fits]
    fixed = np.bincount(host[page], minlength=HOSTS)
    pages = ShardPages(
        left_rates(rng.pareto(1.5, PAGES), np.bincount(page, minlength=PAGES), 1.0),
        rng.random(PAGES) * 3.0,
        np.zeros(PAGES, np.bool_),
        rng.random(PAGES),
        rng.integers(1, 2**63, PAGES).astype(np.uint64),
        start,
        np.minimum(most, limit) - fixed,
        gap,
        free,
    )
    return pages, host, limit, gap, free, page, at


@pytest.mark.parametrize("seed", range(12))
def test_limits_and_gaps_hold_for_both_and_no_crawl_is_lost(seed):
    pages, host, limit, gap, free, page, at = problem(seed)
    others = sequence(pages, slot_offsets_us(np.array([70]), 0, DAY), DAY)
    made = with_fixed(others, page, at, host, gap, free, DAY)
    used = made.page >= 0
    assert (np.bincount(host[made.page[used]], minlength=HOSTS) <= limit).all()
    assert (made.reason == REASON_DISCOVER).sum() == len(page)
    fixed = np.sort(made.page[made.reason == REASON_DISCOVER])
    assert (fixed == np.sort(page)).all()
    assert used.sum() == len(page) + (others.page >= 0).sum() and len(made.page) == len(page) + 70
    due = made.due_offset_us
    assert (np.diff(due) >= 0).all() and due[used].min() >= 0 and due.max() < DAY
    for h in range(HOSTS):
        mine = np.sort(due[used][host[made.page[used]] == h])
        assert (np.diff(mine) >= gap[h]).all() and (mine >= free[h] * (h in host[page])).all()
    assert made.counters["discover"] == len(page) and made.counters["slots"] == len(due)


def test_crawls_that_have_room_stay_where_they_are():
    pages, host, *_, page, at = problem(1)
    none = np.zeros(HOSTS, np.int64)
    others = sequence(replace(pages, host_start=None), slot_offsets_us(np.array([70]), 0, DAY), DAY)
    made = with_fixed(others, page, at, host, none, none, DAY)
    is_fixed = made.reason == REASON_DISCOVER
    assert (made.due_offset_us[is_fixed] == at).all()
    assert (made.due_offset_us[~is_fixed] == others.due_offset_us).all()
    assert made.expected - others.expected == pytest.approx(np.bincount(page, minlength=PAGES))


def test_each_takes_a_slot_of_its_own_at_or_after_its_instant_where_there_is_one():
    offsets = np.array([0, 10, 20, 30, 40])
    assert slots_for(offsets, np.array([5, 6, 7])).tolist() == [1, 2, 3]
    assert slots_for(offsets, np.array([35, 36, 37])).tolist() == [2, 3, 4]
    assert slots_for(offsets, np.array([0, 10, 20, 30, 40])).tolist() == [0, 1, 2, 3, 4]
    assert slots_for(offsets, np.zeros(0, np.int64)).size == 0


def test_what_is_left_of_a_rate_is_not_rounding():
    left = left_rates(np.array([3.0 + 1e-13, 2.5, 1.0]), np.array([3, 2, 4]), 1.0)
    assert left.tolist() == [0.0, 0.5, 0.0]
