"""Last-Modified that follows a clock, beside pages that change at any time: what is learned of each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from policies.estimation.estimators import rate
from policies.history.history import Observations, fold
from policies.history.page_state import NO_TIME, PageState, evidence
from policies.numerics.typing_ import FloatArray, IntArray
from tests.policies.crawl_rows import DAY, FOREVER, SECOND, START

HOUR, MINUTE = 3600 * SECOND, 60 * SECOND
PAGES, VISITS = 60, 40
# A prior that says next to nothing: what it is worth is two hours of a page that changes five times a day.
SHAPE, MEAN = 0.5, 5.0


def _visits(gap_days: float, seed: int = 1) -> IntArray:
    """Times of visits, (PAGES, VISITS), somewhere in each gap."""
    rng = np.random.default_rng(seed)
    at = (np.arange(VISITS) + rng.uniform(0.2, 0.8, (PAGES, VISITS))) * gap_days * DAY
    return START + at.astype(np.int64)


def _learned(
    at: IntArray, modified: IntArray, digest: IntArray | None = None
) -> tuple[FloatArray, PageState]:
    """Rates of pages, changes per day."""
    page = np.repeat(np.arange(PAGES), VISITS)
    rows = Observations(
        page,
        at.ravel(),
        last_modified_us=modified.ravel() // SECOND * SECOND,
        digest=None if digest is None else digest.ravel().astype(np.uint64),
    )
    state, _ = fold(PageState.empty(PAGES), rows, FOREVER, half_life_changes=12)
    return rate(evidence(state, 12), SHAPE, MEAN)[0], state


def _noise(low: int, high: int) -> IntArray:
    return np.random.default_rng(5).integers(low, high, (PAGES, VISITS)) * SECOND


CLOCKS: dict[str, Callable[[IntArray], IntArray]] = {
    "the present": lambda at: at,
    "within seconds": lambda at: at - _noise(0, 20),
    "the present minus a constant": lambda at: at - 17 * MINUTE - _noise(-2, 3),
    "of another time zone": lambda at: at - 2 * HOUR - _noise(0, 3),
    "a cache of ten minutes": lambda at: at - _noise(0, 600),
    "now and then in the future": lambda at: at - _noise(-5, 20),
}


@pytest.mark.parametrize("gap_days", [0.5, 1.0, 7.0])
@pytest.mark.parametrize("name", CLOCKS)
def test_the_clock_says_nothing(name: str, gap_days: float) -> None:
    at = _visits(gap_days)
    rates, state = _learned(at, CLOCKS[name](at))
    # By chance a date moves by whole days.
    assert (state.n_intervals <= 3).all() and state.n_intervals.mean() < 0.5
    assert np.median(rates) == pytest.approx(MEAN, rel=1e-6)


@pytest.mark.parametrize("late_minutes", [(0, 140), (1, 3), (600, 1430)])
@pytest.mark.parametrize("nights", [1, 2, 7])
def test_a_page_built_every_midnight_changes_once_a_day(late_minutes: tuple[int, int], nights: int) -> None:
    rng = np.random.default_rng(2)
    day = np.arange(VISITS)[None] * nights * DAY + START
    at = day + rng.integers(late_minutes[0] * 60, late_minutes[1] * 60, (PAGES, VISITS)) * SECOND
    for modified in (day + 0 * at, np.minimum(day + _noise(0, 50), at)):
        rates, _ = _learned(at, modified)
        assert 0.8 < np.median(rates) < 1.3


def test_a_page_built_every_six_hours() -> None:
    for gap_days in (0.25, 0.5, 1.0):
        at = _visits(gap_days)
        rates, _ = _learned(at, at // (6 * HOUR) * 6 * HOUR)
        assert 1.0 < np.median(rates) < 5.0


def test_a_page_built_weekly_is_not_built_daily() -> None:
    at = _visits(1.0)
    rates, _ = _learned(at, at // (7 * DAY) * 7 * DAY)
    assert np.median(rates) == pytest.approx(1 / 7, rel=0.3)


def test_dates_rounded_to_the_hour_are_no_sign_of_haste() -> None:
    for gap_days in (1.0, 3.0):
        at = _visits(gap_days)
        assert np.median(_learned(at, at // HOUR * HOUR)[0]) < MEAN / 2


@pytest.mark.parametrize("apart_seconds", [1, 420])
def test_servers_that_differ_are_no_changes(apart_seconds: int) -> None:
    at = _visits(1.0)
    which = np.random.default_rng(3).integers(0, 3, at.shape)
    rates, state = _learned(at, START - 90 * DAY + which * apart_seconds * SECOND)
    assert not state.n_changes.any() and rates.max() < 0.05
    # Until it moves past the last visit.
    modified = np.where(np.arange(VISITS) < 30, START - 90 * DAY, at[:, 29:30] + 5 * HOUR)
    _, state = _learned(at, modified + which * SECOND)
    assert (state.n_changes == 1).all()


@pytest.mark.parametrize("gap_days", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("true_per_day", [0.1, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("with_digest", [False, True])
def test_pages_that_change_at_any_time_are_estimated_as_before(
    gap_days: float, true_per_day: float, with_digest: bool
) -> None:
    rng = np.random.default_rng(4)
    at = _visits(gap_days)
    modified, version = np.empty_like(at), np.empty_like(at)
    for p in range(PAGES):
        k = int(((at[p, -1] - START) / DAY + 400) * true_per_day * 2) + 40
        events = START - 400 * DAY + np.cumsum(rng.exponential(DAY / true_per_day, k))
        version[p] = np.searchsorted(events, at[p])
        modified[p] = events[version[p] - 1]
    rates, state = _learned(at, modified, version if with_digest else None)
    pooled = _rate_of_all(state)
    if true_per_day * gap_days <= 12:
        assert pooled == pytest.approx(true_per_day, rel=0.15)
        if true_per_day * gap_days * VISITS > 3:
            assert np.median(rates) == pytest.approx(true_per_day, rel=0.35)
    else:  # out of reach: fast, however fast
        assert pooled > 3.0


def _rate_of_all(state: PageState) -> float:
    """Rate of the pages taken as one."""
    now = evidence(state)
    dated = now.dated_changes.sum()
    undated = now.bin_weight.sum()
    # Undated gaps count by their likelihood at the rate; a few steps of a fixed point are enough.
    value = 1.0
    for _ in range(200):
        days = now.bin_days / now.bin_weight
        x = np.minimum(value * days, 500.0)
        expected = (now.bin_weight * np.where(x > 0, x / np.expm1(x), 1.0)).sum() if undated else 0.0
        value = (dated + expected) / now.exposure_days.sum() if now.exposure_days.sum() else value
    return value


def test_a_clock_beside_digests_leaves_the_changes_without_dates() -> None:
    at = _visits(1.0)
    version = np.arange(VISITS)[None] // 4 + 0 * at
    plain, _ = _learned(at, np.full_like(at, NO_TIME), version + 1)
    for name in ("within seconds", "the present minus a constant", "a cache of ten minutes"):
        rates, state = _learned(at, CLOCKS[name](at), version + 1)
        assert state.dated_changes.sum() <= 0.02 * state.n_changes.sum()
        np.testing.assert_allclose(np.median(rates), np.median(plain), rtol=0.02)
