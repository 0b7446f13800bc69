"""Hours that move with summer time: found soon, and not where nothing has moved."""

from itertools import pairwise

import numpy as np
import pytest

from policies.clocks.kept import Kept
from policies.clocks.moving import LOOKED_FOR_US, moves, telling
from policies.clocks.profile import NO_TIME, US_PER_DAY, US_PER_HOUR, WEEK_HOURS, Profiles
from policies.numerics.typing_ import FloatArray

DAY = 20_000
AS_OF_US = DAY * US_PER_DAY


def batch_at(hour: int, groups: int) -> Profiles:
    """Nearly all changes come in one hour of the day."""
    found = Profiles.flat(np.arange(groups))
    found.hour[:] = 0.05
    found.hour[:, hour::24] = 0.0
    found.hour[:, hour::24] = 24.0 - 23 * 0.05
    return found


def crawled(batch_hour: FloatArray, hours: list[float], groups: int, seed: int = 0) -> Kept:
    """Pages of hosts, crawled at these hours day after day, the batch changing nine in ten of them."""
    rng = np.random.Generator(np.random.Philox(seed))
    days = len(batch_hour)
    at = np.array(hours)[None, :] / 24.0 + np.arange(days)[:, None]
    changes = np.arange(days) + batch_hour / 24.0
    columns: dict[str, list[float]] = {name: [] for name in ("group", "page", "begin", "end", "changed")}
    for group in range(groups):
        there = rng.random(days) < 0.9
        flat = np.sort(at.ravel())
        for begin, end in pairwise(flat):
            values = group, group, begin, end, (there & (changes > begin) & (changes <= end)).any()
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
    group, page = (np.array(columns[name], np.int64) for name in ("group", "page"))
    begin, end = ((DAY - days + np.array(columns[n])) * US_PER_DAY for n in ("begin", "end"))
    digest = page.astype(np.uint64)
    return Kept.of(
        group, page, digest, begin.astype(np.int64), end.astype(np.int64), np.array(columns["changed"])
    )


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_batch_that_moves_is_followed_and_what_was_kept_moves_with_it(shift: int) -> None:
    groups, days = 20, 6
    hour = np.full(days, 13.5)
    hour[3:] += shift
    kept = crawled(hour, [12.0, 13.0, 14.0, 15.0], groups)
    before, rates = batch_at(13, groups), np.full(groups, 2.3)
    born = np.full(groups, NO_TIME)
    found = moves(kept, before, born, rates, AS_OF_US, shift)
    assert len(found.group) >= 18
    later = found.of_profiles(before)
    assert (later.of_day.argmax(axis=1)[found.group] == 13 + shift).all()
    assert not len(moves(kept, before, born, rates, AS_OF_US, -shift).group), "the other way"
    moved = found.of_kept(kept)
    assert len(moved) == len(kept) and (np.diff(moved.group) >= 0).all()
    # By the new clock nothing is left to move.
    assert not len(moves(moved, later, born, rates, AS_OF_US, shift).group)


def test_where_nothing_has_moved_and_where_crawls_keep_their_hour_no_clock_moves() -> None:
    groups = 300
    rates, born = np.full(groups, 2.3), np.full(groups, NO_TIME)
    still = crawled(np.full(6, 13.5), [12.0, 13.0, 14.0, 15.0], groups, seed=1)
    nightly = crawled(np.array([13.5] * 3 + [12.5] * 3), [14.0], groups, seed=2)
    for kept in (still, nightly):
        for shift in (-1, 1):
            found = moves(kept, batch_at(13, groups), born, rates, AS_OF_US, shift)
            assert len(found.group) <= 3, "chance gets there in one case of 100"


def test_flat_clocks_and_old_intervals_say_nothing() -> None:
    kept = crawled(np.full(6, 12.5), [13.0, 14.0], 2)
    born, rates = np.full(2, NO_TIME), np.full(2, 2.3)
    assert not len(moves(kept, Profiles.flat(np.arange(2)), born, rates, AS_OF_US, -1).group)
    assert not len(moves(kept, batch_at(13, 2), born, rates, AS_OF_US + LOOKED_FOR_US, -1).group)
    assert not len(moves(kept.take(np.zeros(0, np.int64)), batch_at(13, 2), born, rates, AS_OF_US, -1).group)
    flat = np.ones((1, WEEK_HOURS))
    found = moves(kept, batch_at(13, 2), born, rates, AS_OF_US, -1)
    other = Profiles(np.array([7]), flat, np.ones((1, 11)))
    np.testing.assert_array_equal(found.of_profiles(other).hour, flat)
    assert (kept.to_us - found.of_kept(kept).to_us <= US_PER_HOUR).all()


def test_crawls_tell_old_hours_from_new_ones() -> None:
    """By a batch in the hour before the best one: one clock has had it by then, the other one not."""
    best, last = np.array([14, 14, 0, 23, 23]), np.array([14, 17, 5, 23, 2])
    np.testing.assert_array_equal(telling(best, last, -1), [13, 13, 0, 22, 22])
    np.testing.assert_array_equal(telling(best, last, 1), [15, 14, 0, 23, 23])
