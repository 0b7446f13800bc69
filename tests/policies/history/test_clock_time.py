"""Sums of a history in the time of another clock."""

from __future__ import annotations

import numpy as np
import pytest

from policies.clocks.profile import AGES, US_PER_DAY, Clocks, Profiles
from policies.history.clock_time import in_other_time, rough_rates
from policies.history.history import fold
from policies.history.page_state import PageState
from policies.history.visits import Observations

START = 20_000 * US_PER_DAY
BORN = np.full(2, START)


def _folded(clock: Clocks) -> PageState:
    """Two pages, visited at birth and then daily; the first changes on the first day."""
    page, day = np.repeat([0, 1], 6), np.tile(np.arange(6), 2)
    digest = np.where((page == 0) & (day > 0), 2, 1).astype(np.uint64)
    rows = Observations(page, START + day * US_PER_DAY, digest=digest)
    return fold(PageState.empty(2), rows, START + 9 * US_PER_DAY, clock=clock)[0]


def test_there_and_back_is_the_history_itself():
    age = np.geomspace(8.0, 0.05, AGES)[None]
    was = Profiles.flat().clocks(np.zeros(2, np.int64), BORN)
    now = Clocks(np.ones((1, 168)), age / age.mean(), np.zeros(2, np.int64), BORN)
    plain = _folded(was)
    other = in_other_time(plain, np.arange(2), was, now)
    back = in_other_time(other, np.arange(2), now, was)
    for name in ("exposure_days", "bin_days", "bin_days_squared"):
        assert getattr(back, name) == pytest.approx(getattr(plain, name))
    # What never changed is as long as if it had been folded by the other clock.
    assert other.exposure_days[1] == pytest.approx(_folded(now).exposure_days[1])
    assert other.exposure_days[1] != pytest.approx(plain.exposure_days[1], rel=0.1)


def test_other_pages_and_those_without_evidence_stay():
    was = Profiles.flat().clocks(np.zeros(2, np.int64), BORN)
    now = Clocks(np.ones((1, 168)), np.linspace(1.9, 0.1, AGES)[None], np.zeros(2, np.int64), BORN)
    plain, none = _folded(was), PageState.empty(2)
    assert in_other_time(plain, np.array([1]), was, now).bin_days == pytest.approx(plain.bin_days)
    assert in_other_time(none, np.arange(2), was, now) is none


def test_rates_lie_between_the_pages_own_and_that_of_its_group():
    flat = Profiles.flat().clocks(np.zeros(2, np.int64), BORN)
    rate = rough_rates(_folded(flat), np.zeros(2, np.int64), 1)
    # One change in ten days of both, half a change in five days more: 0.1. Of their own 0.2 and none.
    assert 0.1 < rate[0] < 0.2 and 0.0 < rate[1] < 0.1
