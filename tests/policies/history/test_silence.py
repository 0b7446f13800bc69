"""Waits of pages that do not answer."""

import numpy as np
from numpy.testing import assert_array_equal

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.history.silence import LONGEST_WAIT_DAYS, NEVER, failing_since, first_answers, forgiven, silence

DAY = US_PER_DAY


def us(*days: float) -> np.ndarray:
    """Times in days, None for none."""
    return np.array([NO_TIME if d is None else round(d * DAY) for d in days], np.int64)


def test_the_first_failure_since_the_last_answer_whatever_the_nights() -> None:
    """Page 0 answers in between, page 1 never, page 2 fails before its answer only, page 3 is not seen."""
    page = np.array([0, 0, 0, 1, 1, 2, 2])
    at = us(1, 2, 4, 3, 5, 1, 2)
    failed = np.array([True, False, True, True, True, True, False])
    success = np.array([*us(2), NO_TIME, *us(2), NO_TIME])
    none = us(None, None, None, None)
    expected = us(4, 3, None, None)
    assert_array_equal(failing_since(none, success, page, at, failed, 10 * DAY), expected)
    rng = np.random.Generator(np.random.Philox(key=1))
    order = rng.permutation(len(page))
    shuffled = failing_since(none, success, page[order], at[order], failed[order], 10 * DAY)
    assert_array_equal(shuffled, expected)
    since = none
    for day in range(7):
        rows = (at >= day * DAY) & (at < (day + 1) * DAY)
        known = np.full(4, NO_TIME)
        seen = (at < (day + 1) * DAY) & ~failed
        np.maximum.at(known, page[seen], at[seen])
        since = failing_since(since, known, page[rows], at[rows], failed[rows], (day + 1) * DAY)
    assert_array_equal(since, expected)
    # What is later than the night waits for the next.
    assert_array_equal(failing_since(none, us(None, None, None, None), page, at, failed, 0), none)


def wait(
    attempt: float | None, failing: float | None, slot: float | None = None, since: float | None = None
) -> float:
    found = silence(us(attempt), us(failing), us(slot), us(since), 9 * DAY, round(9.9 * DAY))
    return float(found.wait_days[0])


def test_waits_grow_with_the_time_of_trying_in_vain() -> None:
    assert wait(5, None) == 0.0  # answered
    assert wait(5, 5) == 0.0  # failed once
    assert wait(6, 5) == 2.0
    assert wait(9, 5) == 8.0
    assert wait(1000, 5) == LONGEST_WAIT_DAYS
    assert wait(8, None, slot=9.5) == 0.0  # the first slot that no log shows
    assert wait(8, None, slot=9.5, since=8.5) == 2.0
    assert wait(None, None, slot=9.5, since=1.5) == 16.0  # never fetched
    assert wait(9.2, None, slot=9.5, since=8.5) == 0.0  # fetched tonight, before its time
    assert wait(8.7, None, slot=9.5, since=8.5) == 0.0  # answered after the first, the second is missing
    assert wait(6, 5, slot=9.5) == 9.0  # failed, then in no log
    assert wait(8, None, slot=9.95, since=None) == 0.0  # the log does not reach so far


def test_crawls_that_the_log_cannot_know_are_not_missed() -> None:
    found = silence(
        us(8, 8, 9.2), us(None, None, None), us(9.5, 9.95, 9.6), us(*[None] * 3), 9 * DAY, round(9.9 * DAY)
    )
    assert_array_equal(found.awaited, [True, False, True])
    assert_array_equal(found.missed, [True, False, False])
    silent_log = silence(us(8), us(None), us(9.5), us(8.5), 9 * DAY, 8 * DAY)
    assert not silent_log.awaited.any() and silent_log.wait_days[0] == 0.0


def test_limits_keep_waits_and_floors_give_way() -> None:
    found = silence(us(9, 9, 5), us(5, 9, None), us(*[None] * 3), us(*[None] * 3), None, 10 * DAY)
    floor, cap = found.limits(np.array([1.0, 1.0, 1.0]), np.array([np.inf, 2.0, np.inf]))
    assert_array_equal(cap, [0.125, 2.0, np.inf])
    assert_array_equal(floor, [0.125, 1.0, 1.0])
    assert_array_equal(found.unclaimed, [True, False, False])


def test_a_host_that_was_silent_as_a_whole_is_forgiven() -> None:
    """Host 0 answers again after a week; on host 1 others answered all along; page 4 fails on its own."""
    host = np.array([0, 0, 0, 1, 1], np.int32)
    since, last_try = us(3, None, 3, 3, None), us(8, 9, 9.5, 8, 9)
    before = us(1, 2, 2, 1, 8.5)
    first = first_answers(before, np.array([1, 4, 1]), us(9.2, 9.4, 9.0), np.array([True, True, True]))
    assert_array_equal(first, [NEVER, 9 * DAY, NEVER, NEVER, round(9.4 * DAY)])
    assert_array_equal(forgiven(since, last_try, before, first, host), us(8, None, 3, 3, None))
    # Nobody has answered yet.
    nobody = np.full(5, NEVER)
    assert_array_equal(forgiven(since, last_try, before, nobody, host), since)
