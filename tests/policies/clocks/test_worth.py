"""What crawls are worth by the hour, and how hours are given out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from policies.clocks import instants, worth
from policies.clocks.profile import AGES, NO_TIME, US_PER_DAY, US_PER_HOUR, Clocks, Profiles
from policies.clocks.worth import INSTANTS, Ahead, kept_in_turn
from policies.numerics.special import p2

START = 20_000 * US_PER_DAY


def test_with_an_even_clock_it_is_the_crawl_value_of_lambdacrawl():
    n = 60
    rng = np.random.default_rng(1)
    rate, weight = rng.uniform(0.4, 4.0, n), rng.uniform(0.5, 3.0, n)
    since = rng.uniform(0.0, 3.0, n)
    clocks = Profiles.flat().clocks(np.zeros(n, np.int64), np.full(n, START))
    ahead = Ahead.of(START, US_PER_DAY)
    clock = ahead.clock(clocks, np.arange(n))
    found = worth.crawl_values(ahead, clock, rate, np.full(n, 1e9), since, weight)
    # It grows through the night, so the last instant is the best.
    assert found == pytest.approx(weight / rate * p2(rate * (since + 1.0)), rel=0.05)


def test_a_page_that_has_settled_is_worth_more_than_one_that_goes_on_changing():
    age = np.ones((1, AGES)) * 1e-3
    age[0, :5] = 1.0
    age /= age.mean()
    born = np.array([START - 30 * US_PER_HOUR, START - 30 * US_PER_HOUR])
    settled = Clocks(np.ones((1, 168)), age, np.zeros(2, np.int64), born)
    even = Profiles.flat().clocks(np.zeros(2, np.int64), born)
    ahead = Ahead.of(START, US_PER_DAY)
    values = [
        worth.crawl_values(
            ahead, ahead.clock(c, np.arange(2)), np.full(2, 2.0), np.full(2, 1e9), np.full(2, 1.0), np.ones(2)
        )
        for c in (settled, even)
    ]
    assert (values[0] > 20.0 * values[1]).all()


def test_steps_count_as_requests_come_in_them():
    hour = np.random.default_rng(1).gamma(1.0, 1.0, (2, 24))
    hour /= hour.mean(axis=1, keepdims=True)
    ahead = Ahead.of(START + 5 * US_PER_HOUR, US_PER_DAY)
    asked = ahead.asked(np.concatenate([hour, np.ones((1, 24))]))
    assert asked[:2, :INSTANTS] == pytest.approx(np.roll(hour, -5, axis=1))
    assert (asked[2] == 1.0).all()
    # Whole days of requests in the steps together.
    whole = Ahead(ahead.at_us[[0, INSTANTS]]).asked(hour)
    assert whole == pytest.approx(np.ones((2, 1)))


def test_what_is_kept_counts_by_requests():
    """Crawled in turn at an instant, against a sum over a fine grid of moments."""
    rng = np.random.default_rng(7)
    speed, hour = rng.gamma(0.5, 1.0, (1, 168)), rng.gamma(1.0, 1.0, (1, 24))
    speed[:] = np.tile(speed[:, :24], 7)
    speed, hour = speed / speed.mean(), hour / hour.mean()
    clocks = Clocks(speed, np.ones((1, AGES)), np.zeros(1, np.int64), np.full(1, START))
    ahead, rate, turns = Ahead.of(START, US_PER_DAY), np.array([1.3]), 3
    kept = kept_in_turn(
        ahead, ahead.clock(clocks, np.zeros(1, np.int64)), rate, np.full(1, float(turns)), ahead.asked(hour)
    )
    step = US_PER_HOUR // 60
    for instant in (0, 9, 23):
        begin = START + instant * US_PER_HOUR
        at = begin + np.arange(0, turns * US_PER_DAY, step) + step // 2
        passed = clocks.days(np.zeros(len(at), np.int64), np.full(len(at), begin), at)
        fresh = np.exp(-rate[0] * passed) * hour[0, at % US_PER_DAY // US_PER_HOUR]
        assert kept[0, instant] == pytest.approx(fresh.sum() * step / US_PER_DAY, rel=2e-3)


@pytest.mark.parametrize("crawls", [1, 2, 3])
def test_the_best_instants_are_those_of_all_choices(crawls):
    rng = np.random.default_rng(crawls)
    hour = rng.gamma(0.3, 1.0, (1, 168))
    clocks = Clocks(hour / hour.mean(), np.ones((1, AGES)), np.zeros(3, np.int64), np.full(3, START))
    ahead = Ahead.of(START, US_PER_DAY)
    clock, rate, fresh = (
        ahead.clock(clocks, np.arange(3)),
        np.array([0.7, 3.0, 9.0]),
        np.array([0.1, 0.5, 0.9]),
    )
    until = np.full(3, INSTANTS + 5)
    page, kept = worth.best_instants(ahead, clock, rate, fresh, np.full(3, crawls, np.int32), until)
    assert page.tolist() == [p for p in range(3) for _ in range(crawls)]

    def value(p: int, chosen: tuple[int, ...]) -> float:
        alive, total, days = fresh[p], 0.0, ahead.days()
        for j in range(INSTANTS + 5):
            if j in chosen:
                alive = 1.0
            step = rate[p] * clock[p, j]
            total += alive * days[j] * (-np.expm1(-step) / step if step > 1e-9 else 1.0)
            alive *= np.exp(-step)
        return total

    for p in range(3):
        rows = kept[page == p]
        chosen = tuple(rows.argmax(axis=1).tolist())
        assert list(chosen) == sorted(set(chosen))
        best = max(value(p, c) for c in combinations(range(INSTANTS), crawls))
        assert value(p, chosen) == pytest.approx(best, rel=1e-9)


def test_hours_are_given_out_within_their_room():
    rng = np.random.default_rng(9)
    kept = rng.random((500, INSTANTS)) + 3.0 * (np.arange(INSTANTS) == 7)
    room = np.full(INSTANTS, 40)
    chosen = instants.place(kept, room)
    count = np.bincount(chosen, minlength=INSTANTS)
    assert (count <= room).all() and count.sum() == 500 and count[7] == 40
    free = instants.place(kept, np.full(INSTANTS, 500))
    assert np.array_equal(free, kept.argmax(axis=1))
    # Those stay that lose most by going elsewhere.
    second = np.sort(kept, axis=1)
    regret = second[:, -1] - second[:, -2]
    assert regret[chosen == 7].min() >= regret[chosen != 7].max() - 1e-12


def test_gaps_of_hosts_are_kept_and_crawls_move_little():
    rng = np.random.default_rng(10)
    horizon = US_PER_DAY
    host = np.repeat(np.arange(4), [50, 20, 5, 1])
    gap = np.array([20, 60, 0, 300]) * 60_000_000
    free = np.array([0, 30, 0, 600]) * 60_000_000
    moment = np.where(host < 2, 20 * US_PER_HOUR, rng.integers(0, horizon, len(host)))
    moved = instants.keep_gaps(host, moment, gap, free, horizon)
    assert (moved >= free[host]).all() and (moved < horizon).all()
    for h in range(4):
        assert (np.diff(np.sort(moved[host == h])) >= gap[h]).all()
    assert np.array_equal(moved[host == 2], moment[host == 2])


def test_crawls_of_an_instant_are_spread_within_it():
    chosen = np.array([3, 3, 5, 3, 0])
    weight = np.array([1.0, 5.0, 1.0, 2.0, 1.0])
    moment = instants.spread(chosen, weight, 24 * US_PER_HOUR, INSTANTS)
    assert np.array_equal(moment // US_PER_HOUR, chosen)
    assert len(set(moment.tolist())) == 5
    assert moment[1] < moment[3] < moment[0]


def test_a_night_is_split_where_a_share_of_its_changes_have_come():
    clock = np.array([[1.0] * INSTANTS + [7.0], [0.0] * 5 + [3.0, 1.0] + [0.0] * (INSTANTS - 6)])
    for share in (0.01, 0.5, 0.7, 0.9, 1.0):
        even, batch = instants.splitting(clock, np.full(2, share))
        assert even == min(np.ceil(share * INSTANTS) - 1, INSTANTS - 1)
        assert batch == (5 if share <= 0.75 else 6)


@pytest.mark.parametrize("nights", [1.0, 3.0])
def test_who_is_crawled_in_turn_is_fresh_for_as_long_as_the_clock_says(nights):
    """Against the integral of the survival from crawl to crawl, whatever the hour of the night's start."""
    hour = np.ones((1, 168))
    hour[0, 22::24] = 40.0
    clocks = Clocks(hour / hour.mean(), np.ones((1, AGES)), np.zeros(1, np.int64), np.full(1, NO_TIME))
    ahead, rate = Ahead.of(START, US_PER_DAY), np.array([0.9])
    kept = kept_in_turn(ahead, ahead.clock(clocks, np.zeros(1, np.int64)), rate, np.array([nights]))
    assert kept.argmax() == 23
    minutes = np.arange(int(nights * 1440))
    for a in (0, 12, 22, 23):
        begin = np.full(len(minutes), START + a * US_PER_HOUR)
        clock = clocks.days(np.zeros(len(minutes), np.int64), begin, begin + (2 * minutes + 1) * 30_000_000)
        assert kept[0, a] == pytest.approx(np.exp(-0.9 * clock).sum() / 1440, abs=1e-4)


def _day(*awake: tuple[int, int, float]) -> Clocks:
    """A page for each of some days that change evenly from one hour to another, and a little beside."""
    hour = np.full((len(awake), 24), 1e-4)
    for row, (begin, end, speed) in enumerate(awake):
        hour[row, begin:end] = speed
    hour /= hour.mean(axis=1, keepdims=True)
    n = len(awake)
    return Clocks(np.tile(hour, 7), np.ones((n, AGES)), np.arange(n), np.full(n, NO_TIME))


def test_one_crawl_at_the_best_hour_is_worth_as_many_at_any_hour_as_its_gain_says():
    """Of a batch it is x / (1 - e^-x); of twelve busy hours in which no copy lasts, a night of rest."""
    clocks, even = _day((13, 14, 1.0), (8, 20, 1.0)), np.ones((2, 24))
    ahead = Ahead.of(START, US_PER_DAY)
    for changes in (0.05, 0.7, 3.0, 20.0):
        found = worth.gains(ahead, clocks, np.full(2, changes), even)
        assert found[0] == pytest.approx(changes / -np.expm1(-changes), rel=0.07)
        evenly = -np.expm1(-changes) / changes
        rest = 0.5 + 0.5 * -np.expm1(-changes) / changes
        assert found[1] * evenly == pytest.approx(rest, rel=0.07)


def test_hours_gain_the_same_in_so_many_nights_and_nothing_where_they_are_even():
    clocks, ahead = _day((13, 15, 1.0), (0, 24, 1.0)), Ahead.of(START, US_PER_DAY)
    night = ahead.clock(clocks, np.arange(2))
    rate = np.full(2, 0.8)
    gain = worth.gains(ahead, clocks, rate, np.ones((2, 24)))
    assert gain[1] == pytest.approx(1.0, abs=1e-3)
    for nights in (1.0, 3.0, 8.0):
        kept = kept_in_turn(ahead, night, rate, np.full(2, nights)).max(axis=1)
        assert kept == pytest.approx(gain * -np.expm1(-rate * nights) / rate, rel=0.01)
    short = Ahead.of(START, US_PER_DAY // 4)
    assert (worth.gains(short, clocks, rate, np.ones((2, 24))) == 1.0).all()
    assert (worth.gains(ahead, Profiles.flat().clocks(np.zeros(2, np.int64), np.zeros(2, np.int64)), rate,
                        np.ones((1, 24))) == 1.0).all()  # fmt: skip


def test_requests_of_some_hours_gain_where_pages_change_at_any():
    flat = Profiles.flat().clocks(np.zeros(1, np.int64), np.full(1, NO_TIME))
    evening = np.zeros((1, 24))
    evening[0, 18:22] = 6.0
    found = worth.gains(Ahead.of(START, US_PER_DAY), flat, np.array([1.0]), evening)
    # Crawled at 18:00 a copy is two hours old on average when it is asked for, not twelve.
    assert found[0] == pytest.approx(np.exp(-2 / 24) / -np.expm1(-1.0), rel=0.03)
