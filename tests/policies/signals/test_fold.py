"""Folding signals: the rules, case by case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.history.history import Observations
from policies.history.page_state import Forgetting
from policies.signals.counts import REPEAT_US, Signals, neighbours
from policies.signals.state import (
    DATED,
    MAX_COUNT,
    bring_to_present,
)
from tests.policies.crawl_rows import (
    DAY,
    FOREVER,
    SECOND,
    START,
    day,
    observations,
    row,
    signals_of,
)
from tests.policies.signal_nights import HOUR, Both, night, nothing, one_page


def test_signals_are_counted_by_the_outcome_of_their_interval() -> None:
    rows = [day(0, digest=1), day(2, digest=1), day(4, digest=2)]
    signals = [
        (0, START - DAY, 0),  # before the baseline: no interval
        (0, START + DAY, 0),
        (0, START + DAY, 0),  # repeated
        (0, START + 2 * DAY, 1),  # at the visit that ends the unchanged interval
        (0, START + 3 * DAY, 0),
        (0, START + 5 * DAY, 1),  # pending
        (0, START + 9 * DAY, 1),  # after as_of
    ]
    state, counts = one_page(rows, signals, START + 6 * DAY)
    assert counts == {
        "signals": 7,
        "signals_after_as_of": 1,
        "signals_duplicate": 1,
        "signals_counted": 5,
    }
    assert state.since_us.tolist() == [START - DAY]
    assert state.source.tolist() == [0, 1]
    assert state.pending.tolist() == [0, 1]
    assert (state.unchanged.tolist(), state.total.tolist()) == ([1.0, 1.0], [2.0, 1.0])
    assert (state.last_at_us - START).tolist() == [3 * DAY, 5 * DAY]
    assert (state.exposure_days.tolist(), state.watched_days.tolist()) == ([2.0], [4.0])
    assert (state.bin_id.tolist(), state.signature.tolist()) == ([22], [1])
    assert [state.bin_weight[0], state.bin_days[0], state.bin_days_squared[0]] == [1.0, 2.0, 4.0]


def test_intervals_count_that_began_after_the_first_signal_of_the_host() -> None:
    """Pages 0 and 1 share a host, page 2 never hears anything."""
    rows = [row(p, START + d * DAY, digest=d + 1) for p in range(3) for d in (0, 2, 4, 6)]
    (state, _), _ = night(
        nothing(3), observations(rows), signals_of([(0, START + 2 * DAY, 0)]), host=[0, 0, 1]
    )
    # The signal lies at the end of the first interval, which began without anyone to send any.
    assert state.page.tolist() == [0, 1] and state.since_us.tolist() == [START + 2 * DAY] * 2
    assert state.total.tolist() == [0.0]
    assert state.bin_weight.tolist() == [2.0, 2.0] and state.signature.tolist() == [0, 0]
    assert state.watched_days.tolist() == [4.0, 4.0]


def test_a_dated_change_says_more() -> None:
    dated = [day(d, digest=d + 1, last_modified=START + round((d - 0.5) * DAY) + d * HOUR) for d in (0, 2, 4)]
    state, _ = one_page(dated, [(0, START - DAY, 0), (0, START + 3 * DAY, 0)])
    # The change of day 2 came without a signal, that of day 4 with one, before it was found. Dates that move
    # by 50 hours count for two hours each.
    assert state.exposure_days.tolist() == [2 / 12] and state.dated_changes.tolist() == [1.0]
    assert state.bin_id.tolist() == [DATED + 22] and state.signature.tolist() == [1]
    assert state.bin_days.tolist() == [pytest.approx(1.5 + 4 / 24)]


def test_signals_soon_after_a_visit_are_discarded() -> None:
    rows = [day(0, digest=1), day(1, digest=2)]
    signals = [(0, START, 0), *((0, START + DAY + h * HOUR, 1) for h in (0, 1, 3, 5))]
    state, counts = one_page(rows, signals, delay_us=3 * HOUR)
    # That at the instant of the visit comes before it; that of three hours later is no longer soon.
    assert (counts["signals_delayed"], counts["signals_counted"]) == (1, 4)
    assert state.pending.tolist() == [0, 2] and state.total.tolist() == [0.0, 1.0]
    assert state.watched_days.tolist() == [0.875]
    assert one_page(rows, signals)[1]["signals_counted"] == 5


def test_repeats_within_an_hour_of_the_last_counted_one() -> None:
    minutes = [0, 40, 59, 60, 100, 125]
    state, counts = one_page([], [(0, START + 60 * SECOND * m, s) for m in minutes for s in (0, 1)])
    assert (counts["signals_counted"], counts["signals_duplicate"]) == (6, 6)  # 0, 60, 125 of each
    assert state.pending.tolist() == [3, 3]
    assert (state.last_at_us - START).tolist() == [125 * 60 * SECOND] * 2
    assert REPEAT_US == HOUR


def test_late_signals_change_nothing() -> None:
    rows = observations([day(0, digest=1), day(4, digest=2)])
    before, _ = night(nothing(1), rows, signals_of([(0, START + DAY, 0), (0, START + 5 * DAY, 1)]))
    late = signals_of([(0, START + 4 * DAY, 0), (0, START + 5 * DAY, 1), (0, START + 4 * DAY + 1, 1)])
    again, counts = night(before, observations([]), late)
    assert again[0].equals(before[0])
    assert (counts["signals_late"], counts["signals_duplicate"]) == (2, 1)


def test_what_is_pending_goes_to_the_next_observation() -> None:
    signals = [(0, START + DAY + h * HOUR, 0) for h in range(20)] + [(0, START + 2 * DAY, 1)]
    before, _ = night(nothing(1), observations([day(0, digest=1)]), signals_of([(0, START, 0)]))
    waiting, _ = night(before, observations([]), signals_of(signals))
    assert waiting[0].pending.tolist() == [20, 1]
    # A visit that says nothing ends no interval.
    again, _ = night(waiting, observations([day(3)]), signals_of([]))
    assert again[0].equals(waiting[0])
    (state, _), _ = night(again, observations([day(4, digest=2)]), signals_of([]))
    assert state.pending.tolist() == [0, 0]
    assert state.signature.tolist() == [MAX_COUNT + 16] and state.total.tolist() == [20.0, 1.0]


def test_interval_weights_by_hand() -> None:
    """H = 2; three changes a day apart, then an unchanged day: now c = 3, L = 2."""
    rows = [day(d, digest=min(d, 3) + 1) for d in range(5)]
    signals = [(0, START + round((d + 0.5) * DAY), 0) for d in range(-1, 4)]
    both, _ = night(nothing(1), observations(rows), signals_of(signals), half_life_changes=2)
    root = 2.0**0.5
    np.testing.assert_allclose(both[0].bin_weight, [0.5 * root + 1.0 + root], rtol=1e-15)
    now, running_days = bring_to_present(*both, Forgetting(2), START + 6 * DAY, 6 * HOUR)
    np.testing.assert_allclose(now.bin_weight, [0.5 + 0.5 * root + 1.0], rtol=1e-15)
    np.testing.assert_allclose(now.total, [0.5 + 0.5 * root + 2.0], rtol=1e-15)
    np.testing.assert_allclose(now.unchanged, [1.0], rtol=1e-15)
    assert running_days.tolist() == [1.75]


def test_an_era_that_has_begun_stays() -> None:
    """A signal that comes late, older than the first one known, moves nothing; new pages join the era."""
    before, _ = night(nothing(3), observations([]), signals_of([(0, START + 2 * DAY, 0)]), host=[0, 0, 1])
    pages = before[1].expand(np.array([0, 1, 3]), 4)
    older = signals_of([(1, START + DAY, 0)])
    (state, _), counts = night((before[0], pages), observations([]), older, host=[0, 0, 0, 1])
    assert counts["signals_counted"] == 1
    assert state.page.tolist() == [0, 1, 2] and state.since_us.tolist() == [START + 2 * DAY] * 3


def test_what_is_added_is_a_minute_at_least() -> None:
    """Smaller parts could move the last bit of what is left of old sums, and when depends on the nights."""
    visits = [day(0, digest=1), row(0, START + 90 * SECOND, digest=2), row(0, START + 250 * SECOND, digest=3)]
    heard = [(0, START - DAY, 0), (0, START + 90 * SECOND, 0)]
    state, _ = one_page(visits, heard, delay_us=60 * SECOND)
    assert state.watched_days.tolist() == [100 / 86400]  # not the 30 seconds of the first interval
    # A change at the first second of its interval, by its date.
    dated = [day(0, digest=1), day(1, digest=2, last_modified=START + SECOND)]
    state, _ = one_page(dated, [(0, START - DAY, 0), (0, START + DAY // 2, 0)])
    assert state.bin_id.tolist() == [DATED] and state.bin_days.tolist() == [1 / 1440]


def test_intervals_of_long_ago_leave_the_state() -> None:
    rows = [row(0, START, digest=1), row(0, START + 70 * SECOND, digest=2)]
    rows += [day(4 + i, digest=3 + i) for i in range(100)]
    heard = [(0, START, 0), (0, START + 60 * SECOND, 1)]
    (state, pages), _ = night(nothing(1), observations(rows[:70]), signals_of(heard), half_life_changes=1)
    # The short interval weighs 2**-68 by now; all of its sums are still there.
    assert len(state.bin_id) == 2 + 1 and state.bin_days_squared.min() < 2.0**-80
    short = int(np.argmin(state.bin_days_squared))
    mean = state.bin_days[short] / state.bin_weight[short]
    assert mean == 70 / 86400 and state.bin_days_squared[short] == state.bin_weight[short] * mean**2
    both, _ = night((state, pages), observations(rows[70:]), signals_of([]), half_life_changes=1)
    assert len(both[0].bin_id) == 1 and both[0].total.tolist() == [0.0, 0.0]
    # So it is where time forgets, between the last interval and the present.
    both, _ = night(nothing(1), observations(rows[:2]), signals_of(heard), half_life_days=1.0)
    assert len(bring_to_present(*both, Forgetting(None, 1.0), START + 70 * DAY)[0].bin_id) == 1
    assert len(bring_to_present(*both, Forgetting(None, 1.0), START + 90 * DAY)[0].bin_id) == 0


def test_weights_that_underflow_still_leave_their_last_bit() -> None:
    """x <- x / 2 + c has two fixed points an ulp apart; which one is reached depends on where it began."""
    gap = DAY + 2 * SECOND * 1000
    gaps = np.array([gap + 1800 * SECOND] * 40 + [gap] * 2000)
    page = np.zeros(len(gaps), dtype=np.int64)
    always = np.ones(len(gaps), dtype=np.int8)
    bits = set()
    for odd in range(12):
        at = START + np.cumsum(gaps) + np.arange(len(gaps)) * odd
        first = Signals(page[:1], at[:1] - DAY, np.zeros(1, np.int32))

        def part(both: Both, rows: slice | np.ndarray, at: Any = at, first: Signals = first) -> Both:
            observed = Observations(page[rows], at[rows], changed=always[rows])
            return night(both, observed, first, half_life_changes=1)[0]

        one, _ = part(nothing(1), slice(None))
        both = nothing(1)
        for rows in np.array_split(np.arange(len(gaps)), 9):
            both = part(both, rows)
        assert both[0].equals(one)
        late, _ = part(nothing(1), slice(1000, None))
        bits.add(late.watched_days.tobytes() == one.watched_days.tobytes())
    assert bits == {True, False}  # the beginning does matter in some of these


def test_the_running_interval_counts_from_the_begin_of_the_era() -> None:
    rows = observations([row(p, START, digest=1) for p in (0, 1)])
    both, _ = night(nothing(3), rows, signals_of([(0, START + DAY, 0), (1, START, 0)]), host=[0, 1, 1])
    now, running_days = bring_to_present(*both, Forgetting(), START + 2 * DAY)
    assert running_days.tolist() == [1.0, 2.0, 0.0] and now.pending.tolist() == [1, 0]
    # Nobody listened to page 0 on its first day; page 2 was never crawled.
    _, late = bring_to_present(*both, Forgetting(), START + 2 * DAY, DAY + DAY // 2)
    assert late.tolist() == [0.5, 0.5, 0.0]


def test_neighbours_by_hand() -> None:
    seen = np.array([0, 0, 2, 2]), np.array([10, 20, 10, 30])
    signals = np.array([2, 0, 0, 1, 0, 2, 0]), np.array([30, 5, 10, 10, 11, 31, 21])
    previous, following = neighbours(*signals, *seen)
    assert previous.tolist() == [2, -1, -1, -1, 0, 3, 1]
    assert following.tolist() == [3, 0, 0, -1, 1, -1, -1]
    none = np.zeros(0, np.int64)
    assert neighbours(*signals, none, none)[0].tolist() == [-1] * 7


def test_nothing_in_nothing_out() -> None:
    both, counts = night(nothing(3), observations([day(0, digest=1)]), signals_of([]))
    assert len(both[0]) == 0 and not counts
    now, _ = bring_to_present(*both, Forgetting(12), FOREVER)
    assert len(now.page) == len(now.bin_id) == 0


def test_errors_name_value_limit_and_remedy() -> None:
    with pytest.raises(ValueError, match=r"pages 3\.\.3 and the state has 2; expand"):
        night(nothing(2), observations([]), signals_of([(3, START, 0)]))
    with pytest.raises(ValueError, match=r"sources 8\.\.8; give codes of 0 to 7"):
        night(nothing(2), observations([]), signals_of([(0, START, 8)]))
    with pytest.raises(ValueError, match="signals have 1 pages, 2 times"):
        Signals(np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int32)).check(1, 1)
