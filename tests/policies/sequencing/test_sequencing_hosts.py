"""One night of one shard with limits of hosts, on random instances: none is broken, and none costs a slot."""

from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.sequencing.quotas import slot_offsets_us
from policies.sequencing.sequencing import sequence
from tests.policies.sequencing.test_sequencing import make, max_discrepancy, night


def polite_instance(seed):
    rng = np.random.default_rng(seed)
    hosts = int(rng.integers(1, 9))
    sizes = rng.integers(0, 12, hosts)
    n = int(sizes.sum())
    rate = np.exp(rng.choice([0.3, 2.0]) * rng.normal(size=n)) * (rng.random(n) < 0.95)
    new = rng.random(n) < rng.choice([0.0, 0.2, 0.8])
    days = rng.exponential(size=n) * rng.choice([0.1, 1.0, 50.0])
    slots = int(rng.integers(1, 120))
    gap = (rng.random(hosts) < 0.7) * rng.integers(0, int(rng.choice([20, 200, 2000])), hosts)
    most = np.where(rng.random(hosts) < 0.5, 2**40, rng.integers(0, 30, hosts))
    free = rng.integers(-1000, 400, hosts)
    pages = make(
        rate,
        days,
        new=new,
        value=rng.integers(0, 3, n),
        host_start=np.concatenate(([0], np.cumsum(sizes))),
        host_max_slots=most,
        host_gap_us=gap,
        host_free_at_us=free,
    )
    return pages, slots, 1000, np.repeat(np.arange(hosts), sizes)


@settings(deadline=None, max_examples=250)
@given(st.integers(0, 2**32))
def test_no_limit_broken_and_no_slot_empty_that_somebody_may_use(seed):
    pages, slots, horizon_us, host = polite_instance(seed)
    offsets = slot_offsets_us([slots], 0, horizon_us)
    result = sequence(pages, offsets, horizon_us)
    ends = np.maximum(np.append(offsets[1:], horizon_us) - 1, offsets)
    due = result.due_offset_us
    assert np.all(np.diff(due) >= 0)
    assert np.all((due >= offsets[np.maximum(np.arange(slots) - 8, 0)]) & (due <= ends))
    used = result.page >= 0
    counts = np.bincount(result.page[used], minlength=host.size)
    assert np.all(counts[pages.is_new] <= 1)
    assert np.all(counts[~pages.is_new & (pages.crawl_rate_per_day == 0.0)] == 0)
    taken = [np.sort(due[used][host[result.page[used]] == j]) for j in range(pages.host_gap_us.size)]
    for j, times in enumerate(taken):
        gap = int(pages.host_gap_us[j])
        assert times.size <= pages.host_max_slots[j]
        assert np.all(times >= pages.host_free_at_us[j]) and np.all(np.diff(times) >= gap)
    may = np.where(pages.is_new, counts == 0, pages.crawl_rate_per_day > 0.0)
    nightly = [max(horizon_us // g, 1) if g else 2**40 for g in pages.host_gap_us.tolist()]
    for slot in np.searchsorted(offsets, due[~used]):
        for j in np.unique(host[may]):
            gap, times = int(pages.host_gap_us[j]), taken[j]
            if times.size >= min(pages.host_max_slots[j], nightly[j]):
                continue
            moments = np.arange(max(offsets[slot], pages.host_free_at_us[j]), ends[slot] + 1)
            clear = [np.all(np.abs(times - moment) >= max(gap, 0)) for moment in moments]
            assert not any(clear), f"host {j} may use slot {slot}"


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32))
def test_counts_inside_busy_hosts_stay_within_two(seed):
    """Limits per night bind, gaps do not: counts are known to 2 in busy hosts, to 1 outside."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, 6)
    host = np.repeat(np.arange(6), sizes)
    rate = np.exp(rng.normal(size=host.size))
    days = rng.exponential(size=host.size) / rate
    slots = int(rng.integers(20, 300))
    wanted = np.bincount(host, rate) / rate.sum() * slots
    most = np.where(np.arange(6) < 3, np.maximum(1, (0.8 * wanted).astype(int)), 10**9)
    pages = make(rate, days, host_start=np.concatenate(([0], np.cumsum(sizes))), host_max_slots=most)
    result = night(pages, slots)
    assert result.counters["empty"] == 0
    share = (result.expected - result.owed) / slots
    assert share.sum() == pytest.approx(1.0)
    busy = host < 3
    assert max_discrepancy(result.page, np.where(busy, share, 0.0)[busy.nonzero()[0]], result.owed) < 2 + 1e-6
    for i in np.flatnonzero(~busy):
        count = np.cumsum(result.page == i)
        ideal = share[i] * np.arange(1, slots + 1) + result.owed[i]
        assert np.abs(count - ideal).max() < 1 + 1e-6
    used = np.bincount(host[result.page], minlength=6)
    assert np.all(used <= most)
    assert np.all(used[:3] >= floor(0.99 * most[:3].min()) - 1)
