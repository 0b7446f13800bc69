"""Requests of hosts by hour, as they fade and as they are believed."""

from __future__ import annotations

import numpy as np
import pytest

from policies.history.request_hours import FLAT, HOURS, faded, profiles


def test_days_in_turn_are_days_at_once():
    """Whole numbers, in fixed point, whichever nights lie between."""
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 1000, (40, HOURS)) << 20
    day = 20_000 + rng.integers(0, 300, 40)
    nights = np.sort(rng.choice(np.arange(20_301, 20_400), 12, replace=False))
    whole = faded(counts, day, nights[-1], 28.0).sum(axis=0)
    turn, before = np.zeros((1, HOURS), np.int64), 0
    for night in nights:
        new = (day >= before) & (day < night) if night < nights[-1] else day >= before
        turn = faded(turn, np.array([before]), night, 28.0) + faded(counts[new], day[new], night, 28.0).sum(
            axis=0
        )
        before = night
    assert (turn[0] == whole).all()
    assert faded(counts, day, 20_400, 28.0).sum() < counts.sum() / 2


def test_few_requests_mean_an_even_profile():
    assert (profiles(np.zeros((1, HOURS))) == 1.0).all() and (profiles(np.full((1, HOURS), 7.0)) == 1.0).all()
    few = np.zeros((1, HOURS))
    few[0, 20] = 1.0
    many = np.zeros((1, HOURS))
    many[0, 20] = 1e6 * FLAT
    assert profiles(few)[0, 20] < 1.1 and profiles(many)[0, 20] == pytest.approx(HOURS, rel=1e-3)
    assert profiles(many).mean() == pytest.approx(1.0)
