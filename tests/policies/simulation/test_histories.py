"""Histories of changes: every look-up against a loop over the changes, and drawn ones against their law."""

from dataclasses import replace

import numpy as np
import pytest

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.simulation.histories import NEVER, ChangeHistory

START = 20_000 * US_PER_DAY
DAYS = 400


def rng(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def small(seed: int = 1, n: int = 7) -> ChangeHistory:
    """Changes at few instants, so that many coincide with each other and with what is asked."""
    draw = rng(seed)
    first = START + draw.integers(-2, 5, n) * US_PER_DAY
    page = draw.integers(0, n - 1, 60)  # the last page never changes
    at = first[page] + draw.integers(1, DAYS, 60) * US_PER_DAY
    _, kept = np.unique(np.stack([page, at]), axis=1, return_index=True)
    version = draw.integers(0, 3, len(kept))
    return ChangeHistory.from_events(START, START + DAYS * US_PER_DAY, first, page[kept], at[kept], version)


def test_look_ups_against_a_loop() -> None:
    history, draw = small(), rng(2)
    page = draw.integers(0, len(history), 500)
    when = START + draw.integers(-5, DAYS + 5, 500) * US_PER_DAY
    found = zip(
        history.version(page, when),
        history.next_change(page, when),
        history.last_change(page, when),
        strict=True,
    )
    for p, t, (version, following, last) in zip(page, when, found, strict=True):
        mine = history.change_page == p
        times, versions = history.change_us[mine], history.change_version[mine]
        past, first = times <= t, history.first_us[p]
        assert version == (versions[past][-1] if past.any() else 0)
        assert following == min(times[~past], default=NEVER)
        assert last == (times[past][-1] if past.any() else first if first <= t else NO_TIME)


def test_changes_between_two_instants_add_up() -> None:
    history = small()
    middle = START + 100 * US_PER_DAY
    parts = history.changes_between(NO_TIME + 1, middle) + history.changes_between(middle, NEVER)
    assert np.array_equal(parts, np.bincount(history.change_page, minlength=len(history)))
    inside = (history.change_us > START) & (history.change_us <= middle)
    expected = np.bincount(history.change_page[inside], minlength=len(history))
    assert np.array_equal(history.changes_between(START, middle), expected)


def test_windows_of_centuries_and_many_pages_do_not_overflow() -> None:
    n, far = 1_000_000, 300 * 365 * US_PER_DAY
    page = np.array([0, n - 1, n - 1])
    at = np.array([0, far, far + 1])
    history = ChangeHistory.from_events(-far, 2 * far, np.full(n, -far), page, at)
    asked = np.array([n - 1, n - 1, n - 1, n - 2])
    when = np.array([far - 1, far, far + 1, far])
    assert history.version(asked, when).tolist() == [0, 2, 3, 0]
    assert history.next_change(asked, when).tolist() == [far, far + 1, NEVER, NEVER]


def test_without_changes() -> None:
    none = np.zeros(0, np.int64)
    history = ChangeHistory.from_events(START, START + US_PER_DAY, np.full(3, START), none, none)
    asked = np.arange(3)
    assert history.version(asked, np.full(3, START)).tolist() == [0, 0, 0]
    assert history.next_change(asked, np.full(3, START)).tolist() == [NEVER] * 3
    assert history.last_change(asked, np.full(3, START)).tolist() == [START] * 3
    assert len(history.nights()) == 1


def test_poisson_counts_and_times() -> None:
    rate, n = 0.2, 2000
    first = np.where(np.arange(n) < n // 2, START, START + 30 * US_PER_DAY)
    history = ChangeHistory.poisson(START, START + 40 * US_PER_DAY, np.full(n, rate), rng(3), first)
    for half, days in ((slice(None, n // 2), 40), (slice(n // 2, None), 10)):
        counts = np.bincount(history.change_page, minlength=n)[half]
        expected = rate * days
        assert abs(counts.mean() - expected) < 4 * np.sqrt(expected / len(counts))
        assert abs(counts.var() / expected - 1) < 4 * np.sqrt((2 + 1 / expected) / len(counts))
    assert (history.change_us > history.first_us[history.change_page]).all()
    assert history.change_us.max() <= history.end_us
    again = ChangeHistory.poisson(START, START + 40 * US_PER_DAY, np.full(n, rate), rng(3), first)
    assert np.array_equal(history.change_us, again.change_us)


def test_some_pages_only() -> None:
    history = small()
    part = history.of_pages([1, 4])
    when = np.full(2, START + 50 * US_PER_DAY)
    assert np.array_equal(part.version(np.arange(2), when), history.version(np.array([1, 4]), when))
    mask = np.isin(np.arange(len(history)), [1, 4])
    assert np.array_equal(history.of_pages(mask).change_us, part.change_us)


def test_spread_changes_stay_in_their_gap_and_in_order() -> None:
    history = small()
    looked = history.change_us - 3 * US_PER_DAY
    moved = history.spread(rng(4), looked)
    assert ((moved.change_us > looked) & (moved.change_us <= history.change_us)).all()
    assert (moved.change_us > moved.first_us[moved.change_page]).all()
    assert (moved.change_us != history.change_us).all()
    # Two changes found by looks less than three days apart keep their order: the class would raise.
    assert np.array_equal(moved.change_page, history.change_page)


def test_held_days_count_from_the_appearance() -> None:
    history = replace(small(), first_us=START + np.arange(7) * US_PER_DAY)
    held = history.held_days(START + 2 * US_PER_DAY, START + 4 * US_PER_DAY)
    assert held.tolist() == [2, 2, 2, 1, 0, 0, 0]


@pytest.mark.parametrize(
    ("page", "at", "message"),
    [
        ([0, 0], [2, 1], "not sorted"),
        ([1, 0], [1, 2], "not sorted"),
        ([3], [1], "pages are 0 to 1"),
        ([0], [1, 2], "1 pages, 2 times"),
    ],
)
def test_faulty_changes_are_refused(page: list[int], at: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChangeHistory(0, 10, np.zeros(2, np.int64), np.array(page), np.array(at), np.arange(1, len(page) + 1))


def test_empty_windows_and_bad_rates_are_refused() -> None:
    none = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match="ends at 5 us"):
        ChangeHistory(5, 5, none, none, none, none)
    with pytest.raises(ValueError, match=r"-1\.0 to 1\.0 per day"):
        ChangeHistory.poisson(0, 10, np.array([-1.0, 1.0]), rng(1))
