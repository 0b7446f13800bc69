"""The state of signals: taken, recoded, sources that become one, signatures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.signals.state import (
    MAX_COUNT,
    MAX_SOURCES,
    OTHER,
    SignalState,
    choose_sources,
    counts_of,
    signature_of,
)
from tests.policies.crawl_rows import (
    DAY,
    START,
    day,
)
from tests.policies.signal_nights import filled, one_page


def recoded(state: SignalState, new: Sequence[int]) -> SignalState:
    """The same signals under other codes of sources; those with the same one become one."""
    codes = np.asarray(new, dtype=np.int32)
    signature = np.zeros(len(state.signature), dtype=np.uint32)
    for code in np.unique(codes).tolist():
        count = sum(counts_of(state.signature, int(old)) for old in np.flatnonzero(codes == code))
        signature |= signature_of(np.asarray(count), code)
    return replace(state, source=codes[state.source], signature=signature).regrouped()


def test_take_and_recode_undo_themselves() -> None:
    state, _ = filled(40)
    assert state.near.sum() > 2 and state.far.sum() > 4 and state.near_pending.sum() > 0
    order = np.random.default_rng(1).permutation(len(state))
    assert state.take(order).take(np.argsort(order)).equals(state)
    codes, same = [3, 1, 4, 0, 7, 2, 6, 5], recoded(state, range(8))
    assert not recoded(state, codes).equals(same)
    assert recoded(recoded(state, codes), np.argsort(codes).tolist()).equals(same)
    # But for which sources came together.
    pairs = ("recent", "pair_start", "pair", "near_pending", "far_pending", "near", "far")
    assert replace(state, **{name: getattr(same, name) for name in pairs}).equals(same)
    assert not (same.recent.any() or len(same.pair))


def test_sources_that_become_one_keep_their_signals() -> None:
    state, _ = filled(40)
    merged = recoded(state, [0, 0, 1, 2, 2, 2, 1, 1])
    assert merged.source.max() == 2
    for name in ("pending", "unchanged", "total"):
        assert getattr(merged, name).sum() == pytest.approx(getattr(state, name).sum(), rel=1e-12)
    np.testing.assert_allclose(merged.bin_weight.sum(), state.bin_weight.sum(), rtol=1e-12)
    np.testing.assert_allclose(merged.bin_days_squared.sum(), state.bin_days_squared.sum(), rtol=1e-12)
    counts = np.stack([counts_of(merged.signature, s) for s in range(8)])
    assert counts[3:].max() == 0
    expected = sum(counts_of(state.signature, s) @ state.bin_weight for s in (0, 1))
    assert counts[0] @ merged.bin_weight == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(merged.last_at_us.max(), state.last_at_us.max())


def test_intervals_that_differ_by_merged_sources_alone_become_one() -> None:
    rows = [day(d, digest=d + 1) for d in range(5)]
    heard = [
        (0, START, 0),
        (0, START + DAY // 2, 0),
        (0, START + 3 * DAY // 2, 1),
        (0, START + 5 * DAY // 2, 2),
    ]
    state, _ = one_page(rows, heard, half_life_changes=3)
    assert state.signature.tolist() == [0, 1, 16, 256]
    merged = recoded(state, [0, 1, 1])
    assert merged.signature.tolist() == [0, 1, 16] and merged.bin_start.tolist() == [0, 3]
    assert merged.bin_weight.tolist() == [*state.bin_weight[:2], state.bin_weight[2] + state.bin_weight[3]]
    assert recoded(state, [1, 0, 0]).signature.tolist() == [0, 1, 16]
    assert merged.source.tolist() == [0, 1]


def test_more_sources_than_fit_become_one() -> None:
    names, code = choose_sources(["b", "d"], ["a", "c", "b"])
    assert names == ["a", "b", "c", "d"] and code == {"a": 0, "b": 1, "c": 2, "d": 3}
    carried = [f"s{i}" for i in range(5)]
    names, code = choose_sources(carried, ["z", "y", "x", "a", "b"])
    assert names == sorted([*carried, "a", "b", OTHER]) and len(names) == MAX_SOURCES
    assert all(code[n] == names.index(OTHER) for n in "xyz")
    # The night after: the same sources, whatever comes.
    assert choose_sources(names, ["z", "0"])[0] == names
    names, code = choose_sources([f"s{i}" for i in range(8)], ["t"])
    assert code["s7"] == code["t"] == names.index(OTHER) and len(names) == MAX_SOURCES


@given(st.lists(st.integers(0, 40), min_size=8, max_size=8))
def test_signatures_hold_what_was_put_in(counts: list[int]) -> None:
    signature = sum(
        (signature_of(np.array([n]), s) for s, n in enumerate(counts)), start=np.zeros(1, np.uint32)
    )
    got = [int(counts_of(signature, s)[0]) for s in range(8)]
    assert got == [min(n, MAX_COUNT) for n in counts]
