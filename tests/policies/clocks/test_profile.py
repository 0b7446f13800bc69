"""Clock time: flat clocks are time; others are the integral of their speeds."""

from __future__ import annotations

import numpy as np
import pytest

from policies.clocks.profile import AGE_EDGES_HOURS, AGES, NO_TIME, US_PER_DAY, US_PER_HOUR, Clocks, Profiles

RNG = np.random.default_rng(7)
START = 1_700_000_000 * 1_000_000


def _clocks(n: int, born: np.ndarray) -> Clocks:
    hour, age = RNG.uniform(0.1, 3.0, (2, 168)), RNG.uniform(0.1, 3.0, (2, AGES))
    hour, age = (v / v.mean(axis=1, keepdims=True) for v in (hour, age))
    return Clocks(hour, age, np.arange(n) % 2, born)


def test_a_flat_clock_is_time_to_the_bit():
    n = 500
    clocks = Profiles.flat().clocks(np.zeros(n, np.int64), np.full(n, START))
    begin = START + RNG.integers(0, 90 * US_PER_DAY, n)
    end = begin + RNG.integers(60_000_000, 40 * US_PER_DAY, n)
    assert np.array_equal(clocks.length_us(np.arange(n), begin, end), end - begin)
    assert np.array_equal(clocks.days(np.arange(n), begin, end), (end - begin) / US_PER_DAY)


def test_clock_days_are_the_integral_of_the_speeds():
    n = 40
    born = START - RNG.integers(0, 30 * US_PER_DAY, n)
    clocks = _clocks(n, born)
    begin = born + RNG.integers(0, 20 * US_PER_DAY, n)
    end = begin + RNG.integers(1, 6 * US_PER_DAY, n)
    edges = np.array(AGE_EDGES_HOURS) * US_PER_HOUR
    for page, found in enumerate(clocks.days(np.arange(n), begin, end)):
        grid = np.linspace(begin[page], end[page], 60_001)
        at = ((grid[1:] + grid[:-1]) / 2).astype(np.int64)
        group = page % 2
        speed = clocks.hour[group, at // US_PER_HOUR % 168]
        speed = speed * clocks.age[group, np.searchsorted(edges, at - born[page], side="right")]
        assert found == pytest.approx(speed.mean() * (end[page] - begin[page]) / US_PER_DAY, rel=2e-3)


def test_clock_days_add_up_and_a_week_of_hours_is_a_week():
    n = 200
    clocks = _clocks(n, START - RNG.integers(0, 30 * US_PER_DAY, n))
    page = np.arange(n)
    a = START + RNG.integers(0, 5 * US_PER_DAY, n)
    b, c = a + RNG.integers(0, US_PER_DAY, n), a + 2 * US_PER_DAY
    assert clocks.days(page, a, b) + clocks.days(page, b, c) == pytest.approx(
        clocks.days(page, a, c), abs=1e-9
    )
    plain = Clocks(clocks.hour, np.ones((2, AGES)), clocks.group, clocks.born_us)
    assert plain.days(page, a, a + 7 * US_PER_DAY) == pytest.approx(7.0, abs=1e-9)


def test_a_page_of_unknown_age_goes_by_the_hours_alone():
    clocks = _clocks(4, np.full(4, NO_TIME))
    hours = Clocks(clocks.hour, np.ones((2, AGES)), clocks.group, clocks.born_us)
    page, begin = np.arange(4), np.full(4, START)
    end = begin + 7 * US_PER_HOUR
    assert clocks.days(page, begin, end).tolist() == hours.days(page, begin, end).tolist()
