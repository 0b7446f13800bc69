"""Factors of hosts: what they learn, how fast, and when they are left out."""

from __future__ import annotations

import numpy as np
import pytest

from policies.judging.host_factors import (
    GAIN_UNIT,
    HALF_LIFE_DAYS,
    MOST_LOST_NATS,
    STRENGTH,
    Corrections,
    HostTrack,
    likely_events,
    pays,
)


def _after(track: HostTrack, rng: np.random.Generator, hazard: float, times: float, crawls: int) -> HostTrack:
    """A night of one host that changes so many `times` as often as expected."""
    changed = rng.random(crawls) < -np.expm1(-hazard * times)
    x = np.full(crawls, hazard)
    sums = np.array([0.0, likely_events(x, changed).sum(), x.sum(), 0.0])[:, None]
    return track.add(np.rint(sums / GAIN_UNIT).astype(np.int64))


@pytest.mark.parametrize("times", [0.3, 1.0, 2.5])
def test_it_comes_to_what_the_host_does_and_follows_it(times):
    rng = np.random.default_rng(5)
    track = HostTrack.empty(1)
    for _ in range(60):
        track = _after(track, rng, 0.05, times, 4000)
    assert track.factors()[0] == pytest.approx(times, rel=0.06)
    for _ in range(round(HALF_LIFE_DAYS)):
        track = _after(track, rng, 0.05, 1.0, 4000)
    # Half of what counts is of the time before.
    assert track.factors()[0] == pytest.approx((1.0 + times) / 2.0, rel=0.06)


def test_long_intervals_tell_little_and_never_too_much():
    """Nearly all of them find a change at twice the rate as at once."""
    rng = np.random.default_rng(6)
    found = []
    for hazard in (0.1, 1.0, 4.0):
        track = HostTrack.empty(1)
        for _ in range(40):
            track = _after(track, rng, hazard, 2.0, 4000)
        found.append(track.factors()[0])
    assert 2.1 > found[0] > found[1] > found[2] > 1.0


def test_few_changes_move_it_little():
    track = HostTrack.empty(2).add(np.array([[0, 0], [1, 0], [0, 1], [0, 0]]) * round(1.0 / GAIN_UNIT))
    np.testing.assert_allclose(track.factors(), [(1 + STRENGTH) / STRENGTH, STRENGTH / (1 + STRENGTH)])


def test_it_is_left_out_where_it_lost_and_comes_back():
    lost = HostTrack(np.zeros(1), np.array([7.0]), np.array([2.0]), np.array([-2.0 * MOST_LOST_NATS]))
    assert lost.used_factors() == [1.0] and lost.factors() == [2.0]
    nights = 0
    while not pays(lost.own_gain)[0]:
        lost, nights = lost.add(np.zeros((4, 1), np.int64)), nights + 1
    assert nights == HALF_LIFE_DAYS and lost.used_factors() == lost.factors()


def test_a_host_in_several_shards_counts_once():
    one = Corrections(1, 2, 3, (4, 5, 6), {"giant": (True, False, False), "other": (False, False, False)})
    other = Corrections(10, 20, 30, (40, 50, 60), {"giant": (True, True, False)})
    assert one.merge(other) == other.merge(one)
    merged = one.merge(other)
    assert (merged.crawls, merged.by_rates, merged.corrected) == (11, 22, 33)
    assert merged.hosts() == (45, 56, 66)
    assert one.merge(Corrections()) == one and Corrections().hosts() == (0, 0, 0)
