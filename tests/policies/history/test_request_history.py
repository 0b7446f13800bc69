"""Requests by week: any order and any cut gives the same state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.history.request_history import (
    NO_DAY,
    RequestState,
    exposure_days,
    fold_requests,
    oldest_week,
    spread_counts,
    week_weight,
    weighted_counts,
)

ROW = st.tuples(st.integers(0, 4), st.integers(20_000, 20_080), st.integers(0, 9), st.integers(0, 9))


def _fold(state, rows, oldest=0):
    page, day, clicks, impressions = (
        (np.asarray(c, np.int64) for c in zip(*rows, strict=True)) if rows else (np.zeros(0, np.int64),) * 4
    )
    return fold_requests(state, page, day, clicks, impressions, oldest)


def _same(a, b):
    return all(np.array_equal(getattr(a, n), getattr(b, n)) for n in RequestState.__slots__)


@settings(max_examples=80, deadline=None)
@given(st.lists(ROW, max_size=40), st.integers(0, 40), st.randoms(use_true_random=False))
def test_nights_and_order_do_not_matter(rows, cut, random):
    whole = _fold(RequestState.empty(5), rows)
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert _same(whole, _fold(_fold(RequestState.empty(5), shuffled[:cut]), shuffled[cut:]))
    assert whole.clicks.sum() == sum(r[2] for r in rows)
    for page in range(5):
        days = [r[1] for r in rows if r[0] == page]
        assert whole.first_day[page] == (min(days) if days else NO_DAY)
        assert whole.last_day[page] == (max(days) if days else NO_DAY)


def test_old_weeks_are_dropped_at_once_or_nightly():
    rows = [(0, 20_000, 1, 1), (0, 20_070, 2, 2), (1, 20_069, 3, 3)]
    late = _fold(RequestState.empty(2), rows, oldest=20_063 // 7)
    nightly = _fold(_fold(RequestState.empty(2), rows[:1]), rows[1:], oldest=20_063 // 7)
    assert late.clicks.tolist() == nightly.clicks.tolist() == [2, 3]


def test_spread_keeps_pages_apart():
    state = _fold(RequestState.empty(2), [(0, 20_000, 1, 0), (1, 20_001, 2, 0), (1, 20_050, 4, 0)])
    wide = state.spread(np.array([1, 3]), 5)
    assert np.diff(wide.start).tolist() == [0, 1, 0, 2, 0]
    assert wide.page.tolist() == [1, 3, 3]
    assert wide.first_day.tolist() == [NO_DAY, 20_000, NO_DAY, 20_001, NO_DAY]


def test_a_steady_rate_is_found_whatever_the_half_life():
    """Clicks of 3 a day: weighted counts over weighted days is 3 exactly, young pages included."""
    for half_life in (7.0, 28.0, 400.0):
        as_of = 20_081
        rows = [(0, d, 3, 0) for d in range(20_001, as_of)] + [(1, d, 3, 0) for d in range(20_060, as_of)]
        oldest = oldest_week(as_of, half_life)
        state = _fold(RequestState.empty(2), rows, oldest)
        counts, _ = weighted_counts(state, as_of, half_life, 1.0)
        days = exposure_days(state.first_day, 20_001, as_of - 1, as_of, half_life)
        np.testing.assert_allclose(counts / days, 3.0, rtol=1e-12)


def test_weights_halve_per_half_life():
    weeks = np.array([20_020 // 7, 20_020 // 7 - 4, 20_020 // 7 + 3])
    np.testing.assert_allclose(week_weight(weeks, 20_020, 28.0), [1.0, 0.5, 1.0])


def test_a_page_never_seen_has_no_exposure():
    assert exposure_days(np.array([NO_DAY], np.int32), 20_000, 20_006, 20_007, 28.0).tolist() == [0.0]


@pytest.mark.parametrize("first", [19_000, 20_000])
def test_exposure_is_bounded_by_the_log(first):
    days = exposure_days(np.array([first], np.int32), 20_000, 20_006, 20_007, 1e9)
    np.testing.assert_allclose(days, 7.0, rtol=1e-6)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 489)), min_size=1), st.integers(1, 490))
def test_spread_counts_are_whole_even_and_add_up(made: list[tuple[int, int]], n: int):
    count, start = (np.array(column, np.int64) for column in zip(*made, strict=True))
    parts = spread_counts(count, start % n, n)
    assert (parts.sum(1) == count).all()
    assert (parts.max(1) - parts.min(1) <= 1).all() and (parts >= 0).all()
    # Of few the first days of any stretch have as many as those behind, give or take one.
    turned = np.stack([np.roll(row, -at) for row, at in zip(parts, start % n, strict=True)])
    assert (np.abs(turned.cumsum(1) - count[:, None] * (np.arange(n) + 1.0) / n) < 1.001).all()
