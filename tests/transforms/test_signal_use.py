"""Which pages follow their signals: never fewer than where crawls are scarcer than their price says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from policies.signal_delay import worth_waiting_for
from policies.signal_value import SignalPages
from transforms.signal_use import SignalUse
from transforms.trusting import SIGNALS_TABLE

N, HOSTS = 60, 3


def shard(limit_per_day: float = np.inf, cap_per_day: float = np.inf):
    """Pages of three hosts; only the first host may be limited. Signals are good and changes frequent."""
    host = np.repeat(np.arange(HOSTS), N // HOSTS)
    change = np.tile(np.geomspace(0.01, 3.0, N // HOSTS), HOSTS)
    found = SignalPages.from_rates(np.ones(N), change, np.full(N, 0.9), 0.05 * change)
    given = {
        "row": np.arange(N),
        "unsignalled_rate_per_day": found.unsignalled_rate_per_day,
        "signal_rate_per_day": found.signal_rate_per_day,
        "signal_weight": found.signal_weight,
    }
    arrays = [pa.array(given.get(f.name, np.zeros(N)), f.type) for f in SIGNALS_TABLE]
    pages = {
        "weight": pa.array(np.ones(N)),
        "change_rate_per_day": pa.array(found.change_rate_per_day),
        "cap_per_day": pa.array(np.full(N, cap_per_day)),
        "host_code": pa.array(host.astype(np.int32)),
    }
    hosts = pa.RecordBatch.from_pydict(
        {
            "host_hash": pa.array(np.arange(7, 7 + HOSTS, dtype=np.uint64)),
            "limit_per_day": pa.array(np.array([limit_per_day] + [np.inf] * (HOSTS - 1))),
        }
    )
    return found, pa.RecordBatch.from_arrays(arrays, schema=SIGNALS_TABLE), pages, hosts


def rows(use: SignalUse, made, split=()) -> np.ndarray:
    _, signals, pages, hosts = made
    return use.kept(signals, pages, hosts, split).column("row").to_numpy()


def test_a_first_night_takes_all_signals_to_be_worth_it():
    assert len(rows(SignalUse(1.0), shard())) == N


def test_pages_are_kept_by_price_and_half_a_horizon():
    made = shard()
    kept = rows(SignalUse(1.0, 0.05), made)
    assert 0 < len(kept) < N
    np.testing.assert_array_equal(kept, np.flatnonzero(worth_waiting_for(made[0], 0.05, 0.5)))
    assert len(rows(SignalUse(0.04, 0.05), made)) > len(kept)


def test_pages_of_a_host_at_its_limit_keep_their_signals():
    """They are crawled less than the price says: there a signal tells which of them."""
    kept = rows(SignalUse(1.0, 0.05), shard(limit_per_day=2.0))
    assert set(range(N // HOSTS)) <= set(kept.tolist()) and len(kept) < N
    free = rows(SignalUse(1.0, 0.05), shard(limit_per_day=1e6))
    assert len(free) < len(kept)


def test_pages_at_their_cap_keep_their_signals():
    assert len(rows(SignalUse(1.0, 0.05), shard(cap_per_day=0.1))) == N


def test_a_part_of_a_split_host_with_a_limit_keeps_its_signals():
    made = shard(limit_per_day=1e6)
    kept = rows(SignalUse(1.0, 0.05), made, split={7, 8})
    assert set(range(N // HOSTS)) <= set(kept.tolist())
    # The second host is split and has no limit.
    assert len(kept) == N // HOSTS + 2 * (len(rows(SignalUse(1.0, 0.05), shard())) // HOSTS)
