"""Pages that go back and forth between contents, beside those that change."""

from __future__ import annotations

import numpy as np
import pytest

from policies.history.alternating import alternating, set_aside
from policies.history.history import Observations, fold
from policies.history.page_state import NO_TIME, PageState, evidence
from policies.numerics.typing_ import IntArray
from tests.policies.crawl_rows import DAY, FOREVER, START

PAGES, VISITS = 200, 40


def _state(digest: IntArray, nights: int = 1, modified: IntArray | None = None) -> PageState:
    """Pages crawled daily, (PAGES, VISITS) digests."""
    state = PageState.empty(PAGES)
    for part in np.array_split(np.arange(VISITS), nights):
        at = START + np.tile(part, PAGES) * DAY
        rows = Observations(
            np.repeat(np.arange(PAGES), len(part)),
            at,
            digest=digest[:, part].ravel().astype(np.uint64),
            last_modified_us=None if modified is None else modified[:, part].ravel(),
        )
        state, _ = fold(state, rows, FOREVER, half_life_changes=12)
    return state


def _switched(per_day: float) -> IntArray:
    """Two contents, switched at that rate."""
    rng = np.random.default_rng(1)
    return 1 + rng.poisson(per_day, (PAGES, VISITS)).cumsum(axis=1) % 2


@pytest.mark.parametrize(("servers", "share"), [(2, 0.97), (3, 0.85)])
def test_servers_that_disagree(servers: int, share: float) -> None:
    digest = np.random.default_rng(2).integers(1, servers + 1, (PAGES, VISITS))
    state = _state(digest)
    found = alternating(state)
    assert found.mean() > share
    assert _state(digest, nights=7).equals(state)
    # So do they if the page changes now and then.
    digest += 10 * (np.arange(VISITS) // 15)
    assert alternating(_state(digest)).mean() > share - 0.25


def test_pages_that_change_or_are_switched_are_not_among_them() -> None:
    rng = np.random.default_rng(3)
    steady = rng.poisson(0.9, (PAGES, VISITS)).cumsum(axis=1)
    assert not alternating(_state(1 + steady)).any()
    assert alternating(_state(_switched(0.15))).mean() < 0.02
    # One price in ten is an old one.
    prices = 1 + np.where(rng.random((PAGES, VISITS)) < 0.1, np.maximum(steady - 1, 0), steady)
    assert alternating(_state(prices)).mean() < 0.02
    dates = START + np.arange(VISITS)[None] * DAY - rng.integers(3600, 20 * 3600, (PAGES, VISITS)) * 1_000_000
    assert not alternating(_state(_switched(0.9), modified=np.where(dates > START, dates, NO_TIME))).any()


def test_their_evidence_is_set_aside_and_no_other() -> None:
    digest = np.random.default_rng(2).integers(1, 3, (PAGES, VISITS))
    digest[::2] = 1 + np.arange(VISITS) // 3
    state = _state(digest)
    whole = evidence(state)
    kept, found = set_aside(state, whole)
    kept.check()
    assert not found[::2].any() and found[1::2].mean() > 0.97
    assert not kept.changes()[found].any() and not kept.exposure_days[found].any()
    rows = np.arange(0, PAGES, 2)
    for name in ("exposure_days", "bin_start", "bin_weight", "bin_days", "bin_days_squared"):
        np.testing.assert_array_equal(getattr(kept.take(rows), name), getattr(whole.take(rows), name))
