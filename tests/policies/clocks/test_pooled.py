"""Hours of all small hosts: what is sampled, when it is believed, and who goes by it."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

from policies.clocks.kept import Kept
from policies.clocks.pooled import MOST, MOST_OF_HOST, HoursOfAll, Pooled, agreeing, borrowers
from policies.clocks.profile import US_PER_DAY, US_PER_HOUR

START = 20_000 * US_PER_DAY
HOSTS, OF_HOST = 300, 20


def _crawls(rng: np.random.Generator, batch: bool) -> tuple[np.ndarray, ...]:
    """Intervals of 1 to 40 hours; pages change at 13:30 on two days of three, or as often at any hour."""
    group = np.repeat(np.arange(HOSTS), OF_HOST)
    begin = START + rng.integers(0, 20 * US_PER_DAY, len(group))
    end = begin + rng.integers(US_PER_HOUR, 40 * US_PER_HOUR, len(group))
    batches = (end - 13.5 * US_PER_HOUR) // US_PER_DAY - (begin - 13.5 * US_PER_HOUR) // US_PER_DAY
    expected = batches if batch else (end - begin) / US_PER_DAY
    return group, begin, end, rng.random(len(group)) < -np.expm1(-1.1 * expected)


def _kept(group: np.ndarray, begin: np.ndarray, end: np.ndarray, changed: np.ndarray) -> Kept:
    page = np.arange(len(group))
    return Kept.of(group, page, page.astype(np.uint64) * np.uint64(7919), begin, end, changed)


def _same(a: Pooled, b: Pooled) -> bool:
    names = ("number", "host", "from_us", "to_us", "changed", "rate_per_day")
    return all((getattr(a, n) == getattr(b, n)).all() for n in names)


@pytest.mark.parametrize("seed", range(3))
def test_the_sample_does_not_depend_on_how_pages_are_cut_into_parts(seed):
    """Nor on the order of parts; a host may lie in several."""
    rng = np.random.default_rng(seed)
    kept, hashes = _kept(*_crawls(rng, True)), rng.integers(1, 1 << 60, HOSTS).astype(np.uint64)
    rate = rng.gamma(1.0, 1.0, len(kept))
    whole = Pooled.of(kept, hashes, rate, False)
    part = rng.integers(0, 5, len(kept))
    parts = [Pooled.of(kept.take(part == i), hashes, rate, False) for i in range(5)]
    for order in (range(5), rng.permutation(5)):
        assert _same(functools.reduce(Pooled.merge, [parts[i] for i in order], Pooled()), whole)
    assert len(whole.number) == MOST and np.unique(whole.host, return_counts=True)[1].max() <= MOST_OF_HOST
    assert Pooled().merge(Pooled()).hours() == HoursOfAll(None, 0, 0.0)


def test_hours_are_found_where_there_are_any():
    hashes = np.arange(1, HOSTS + 1).astype(np.uint64)
    rng = np.random.default_rng(5)
    kept = _kept(*_crawls(rng, True))
    found = Pooled.of(kept, hashes, np.ones(len(kept)), False).hours()
    assert found.speed is not None and found.speed.argmax() == 13 and found.speed.mean() == pytest.approx(1.0)
    back = HoursOfAll.from_json(json.loads(json.dumps(found.as_json())))
    assert (back.speed == found.speed).all() and (back.short, back.gain) == (found.short, found.gain)
    # Most hosts with such intervals agree, and few of those whose pages change at any hour.
    even = _kept(*_crawls(rng, False))
    agree, against = (agreeing(k, HOSTS, np.ones(len(k)), found.speed).mean() for k in (kept, even))
    assert agree > 0.95 and against < 0.2


def test_none_are_found_where_there_are_none():
    hashes = np.arange(1, HOSTS + 1).astype(np.uint64)
    for seed in range(30):
        kept = _kept(*_crawls(np.random.default_rng(seed), False))
        found = Pooled.of(kept, hashes, np.ones(len(kept)), False).hours()
        assert found.speed is None and not found.wanting


def test_who_has_enough_intervals_borrows_nothing():
    rng = np.random.default_rng(6)
    group = np.repeat([0, 1, 2], [200, 40, 5])
    begin = START + rng.integers(0, 20 * US_PER_DAY, len(group))
    kept = _kept(group, begin, begin + US_PER_DAY, np.ones(len(group), np.bool_))
    assert borrowers(kept, 4, np.array([False, True, False, False])).tolist() == [False, False, True, True]


@pytest.mark.parametrize("found", [{}, {"speed": [1.0], "short": 3, "gain": 0.0}, {"speed": None}, "x"])
def test_other_things_in_a_manifest_are_errors(found):
    with pytest.raises((ValueError, TypeError, KeyError)):
        HoursOfAll.from_json(found)
