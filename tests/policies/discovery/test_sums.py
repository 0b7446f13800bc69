"""Sums of visits: the same in any number of nights, and what they tell."""

import itertools

import numpy as np
import pytest

from policies.discovery.lifetimes import CLASS_HOURS
from policies.discovery.shared import Shared, common, mixture
from policies.discovery.sums import NEVER_S, Sums, Visits

START_S = 1_767_052_800


def visits(n: int = 20, seed: int = 0) -> Visits:
    """Visits of sources at odd times, some of which fail."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    source = np.repeat(np.arange(n), rng.integers(1, 40, n))
    m = len(source)
    at = START_S + rng.permutation(m) * 977 + rng.integers(0, 900, m)
    ok = rng.random(m) < 0.8
    held = rng.integers(0, 6, m)
    made = [rng.integers(0, 40, m), rng.integers(0, 5, m), held, rng.integers(0, held + 1)]
    order = np.lexsort((at, source))
    return Visits(source[order], at[order], ok[order], *(x[order] * ok[order] for x in made))


def some(of: Visits, rows: np.ndarray) -> Visits:
    return Visits(*(getattr(of, name)[rows] for name in of.__dataclass_fields__))


@pytest.mark.parametrize("by_class", [True, False])
def test_nights_are_cut_anywhere(by_class: bool) -> None:
    every, host = visits(), np.arange(20) % 4
    whole, whole_shared = Sums(20, by_class), Shared(4)
    whole.learn(every, whole_shared, host)
    parts, shared = Sums(20, by_class), Shared(4)
    assert whole.count.any() == by_class and (np.ptp(whole.exposure_hours, axis=1) > 0).any() == by_class
    edges = START_S + np.array([0, 40_000, 41_000, 200_000, 10**7])
    for begin, end in itertools.pairwise(edges):
        parts.learn(some(every, (every.at_s >= begin) & (every.at_s < end)), shared, host)
    for name, values in vars(whole).items():
        assert np.all(getattr(parts, name) == values), name
    for name, values in vars(whole_shared).items():
        assert (getattr(shared, name) == values).all(), name


def test_failures_count_until_an_answer() -> None:
    at = START_S + 3600 * np.arange(6)
    ok = np.array([True, False, False, True, False, False])
    nothing = np.zeros(6, np.int64)
    sums = Sums(1)
    sums.learn(Visits(nothing, at, ok, nothing, nothing, nothing, nothing), Shared(1), np.zeros(1, np.int64))
    assert sums.failures[0] == 2 and sums.seen_s[0] == at[3]
    assert sums.failed_s[0] == at[4] and sums.asked_s[0] == at[5]
    # 2 failures of one that seldom fails: alive with .02^2, gone and back within 1 of 2 hours with GONE / 2.
    counted = 2.0 * 0.02**2 / (0.02**2 + 0.001 / 2.0)
    assert sums.unanswered[0] == pytest.approx(counted, rel=1e-5) and sums.before_hours[0] == 3.0
    assert Sums(1).seen_s[0] == NEVER_S


def test_lifetimes_are_learned_from_what_stays() -> None:
    """Links live 3 hours or 81; they are looked at every hour, or after 24."""
    rng = np.random.Generator(np.random.Philox(key=2))
    shared = Shared(1)
    for before, after in ((1.0, 1.0), (1.0, 4.0), (4.0, 24.0)):
        life = rng.exponential(np.where(rng.random(60_000) < 0.6, 3.0, 81.0))
        age = rng.random(60_000) * before
        held = life > age
        kept = life > age + after
        shared.lifetimes(
            np.array([before]), np.array([after]), np.array([held.sum()]), np.array([kept.sum()])
        )
    share = mixture(shared.held, shared.stayed)
    assert share.sum() == pytest.approx(1.0)
    short, long = share[CLASS_HOURS <= 9].sum(), share[CLASS_HOURS >= 27].sum()
    assert short == pytest.approx(0.6, abs=0.05) and long == pytest.approx(0.4, abs=0.05)


def test_the_clock_follows_links_by_day_and_night() -> None:
    rng = np.random.Generator(np.random.Philox(key=3))
    true = 1.0 + 0.8 * np.sin(2 * np.pi * (np.arange(24) - 6) / 24)
    hours = np.arange(24 * 60)
    new = rng.poisson(5.0 * true[hours % 24])
    shared = Shared(1)
    # Seen at the end of each hour.
    at = START_S + 3600 * (hours + 1)
    shared.hours(at, np.ones(len(at)), new, np.full(len(at), 5.0))
    found = common(shared.came, shared.expected, shared.held, shared.stayed, np.zeros(2, np.int64)).speed
    assert np.abs(found - true).max() < 0.2
