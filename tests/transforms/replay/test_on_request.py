"""Requests of a log, and of some pages of it, as a replay takes them."""

from __future__ import annotations

import numpy as np

from policies.history.page_state import US_PER_DAY
from transforms.replay.worlds import RequestLog

HOUR_US = US_PER_DAY // 24


def test_requests_come_within_their_spans_evenly_and_the_same_each_time():
    log = RequestLog(
        np.array([0, 0, 2]),
        np.array([0, 5, 7]) * HOUR_US,
        np.array([1, 1, 24]) * HOUR_US,
        np.array([3.0, 1.0, 240.0]),
    )
    page, at = log.instants(1)
    assert np.bincount(page).tolist() == [4, 0, 240]
    assert (at[:3] < HOUR_US).all() and np.ptp(np.diff(at[:3])) <= 1 and 5 * HOUR_US <= at[3] < 6 * HOUR_US
    day = at[page == 2] - 7 * HOUR_US
    assert np.bincount(day // HOUR_US, minlength=24).tolist() == [10] * 24
    again = log.instants(1)
    assert (again[1] == at).all() and (log.instants(2)[1] != at).any()


def test_some_pages_keep_their_requests():
    log = RequestLog(
        np.array([0, 1, 1, 3]), np.arange(4), np.ones(4, np.int64), np.array([1.0, 2.0, 3.0, 4.0])
    )
    some = log.of_pages(np.array([False, True, False, True]))
    assert some.page.tolist() == [0, 0, 1] and some.clicks.tolist() == [2.0, 3.0, 4.0]
