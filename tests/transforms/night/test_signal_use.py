"""Which pages follow their signals: never fewer than where crawls are scarcer than their price says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.signalled_delay import followed, worth_waiting_for
from policies.signalled.block import SignalBlock
from policies.signalled.pages import SignalPages
from transforms.night.signal_use import follow_useful, only_signals, useful_signals
from transforms.night.solving import block_to_tables, tables_to_block

N, HOSTS = 60, 3
PRICE = 0.05


def shard(limit_per_day: float | None = None, cap_per_day: float | None = None):
    """Pages of three hosts; only the first host may be limited. Signals are good and changes frequent."""
    change = np.tile(np.geomspace(0.01, 3.0, N // HOSTS), HOSTS)
    found = SignalPages.from_rates(np.ones(N), change, np.full(N, 0.9), 0.05 * change)
    rates = (found.unsignalled_rate_per_day, found.signal_rate_per_day, found.signal_weight)
    limited = limit_per_day is not None
    return found, search.PageBlock(
        found.change_rate_per_day,
        np.ones(N),
        cap_per_day=None if cap_per_day is None else np.full(N, cap_per_day),
        host_start=np.arange(0, N + 1, N // HOSTS) if limited else None,
        host_limit_per_day=np.array([limit_per_day, np.inf, np.inf]) if limited else None,
        signals=SignalBlock(np.arange(N), *rates),
    )


def test_crawls_that_cost_nothing_make_all_signals_worth_it():
    assert followed(shard()[1], 0.0, 0.5).all()


def test_pages_are_kept_by_price_and_wait():
    pages, block = shard()
    kept = followed(block, PRICE, 0.5)
    assert 0 < kept.sum() < N
    np.testing.assert_array_equal(kept, worth_waiting_for(pages, PRICE, 0.5))
    assert followed(block, PRICE, 0.02).sum() > kept.sum()


def test_pages_of_a_host_at_its_limit_keep_their_signals():
    """They are crawled less than the price says: there a signal tells which of them."""
    kept = followed(shard(limit_per_day=2.0)[1], PRICE, 0.5)
    assert kept[: N // HOSTS].all() and not kept.all()
    free = followed(shard(limit_per_day=1e6)[1], PRICE, 0.5)
    np.testing.assert_array_equal(free, followed(shard()[1], PRICE, 0.5))
    assert free.sum() < kept.sum()


def test_pages_at_their_cap_keep_their_signals():
    assert followed(shard(cap_per_day=0.1)[1], PRICE, 0.5).all()


def test_the_rows_of_a_shard_are_those_that_are_worth_it():
    """In the solver's tables and in any other that has the same rows; nothing else moves."""
    block = shard(limit_per_day=5.0, cap_per_day=4.0)[1]
    without, _ = search.solve(block, objectives.get("periodic"), 20.0)
    kept = followed(block, without.price, 0.5)
    assert 0 < kept.sum() < N
    tables = block_to_tables(4, block)
    useful = follow_useful(tables, 1.0, without)
    after = tables_to_block(useful)
    np.testing.assert_array_equal(after.signals.row, np.flatnonzero(kept))
    np.testing.assert_array_equal(after.signals.signal_weight, block.signals.signal_weight[kept])
    assert useful.shard == 4 and useful.tables["pages"].equals(tables.tables["pages"])
    other = tables.tables["signals"].append_column("more", pa.array(np.arange(N)))
    estimated = type(tables)(4, {**tables.tables, "signals": other})
    said = only_signals(estimated, useful_signals(block, without, 1.0)).tables["signals"]
    assert said.column("more").to_pylist() == np.flatnonzero(kept).tolist()
    # What was left out once is left out again: a night may ask twice.
    assert follow_useful(useful, 1.0, without).tables["signals"].equals(useful.tables["signals"])


def test_a_shard_without_signals_stays_as_it_is():
    block = search.PageBlock(np.ones(3), np.ones(3))
    without, _ = search.solve(block, objectives.get("periodic"), 1.0)
    tables = block_to_tables(0, block)
    assert follow_useful(tables, 1.0, without) is tables
