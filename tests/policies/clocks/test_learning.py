"""Clocks are learned where there are any, and where there are none they stay flat."""

from __future__ import annotations

import numpy as np
import pytest

from policies.clocks import learning
from policies.clocks.kept import Kept, joined
from policies.clocks.learning import CERTAIN, Spells
from policies.clocks.profile import AGES, NO_TIME, US_PER_DAY, US_PER_HOUR, Profiles, cycle_lengths_days

START = 20_000 * US_PER_DAY
MOST = np.full(3, 1024)


def _crawled(
    rng: np.random.Generator, changes: list[np.ndarray], days: float, gap_days: float, jitter: float
) -> Kept:
    """What crawls at distances of `gap_days`, give or take, found on pages of one host."""
    rows = []
    for page, changed in enumerate(changes):
        gaps = gap_days * (1.0 + jitter * rng.uniform(-1.0, 1.0, int(days / gap_days) + 2))
        at = rng.uniform(0.0, gap_days) + np.cumsum(gaps)
        at = at[at < days]
        seen = np.searchsorted(changed, at)
        rows += [(page, a, b, m > k) for a, b, k, m in zip(at, at[1:], seen, seen[1:], strict=False)]
    page, begin, end, found = (np.array(c) for c in zip(*rows, strict=True))
    begin, end = (START + (t * US_PER_DAY).astype(np.int64) for t in (begin, end))
    zero = np.zeros(len(page), np.int64)
    return Kept.of(zero, page, page.astype(np.uint64), begin, end, found).best(
        MOST, np.full(page.max() + 1, NO_TIME)
    )


def _clocks(kept: Kept, born_us: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pages = kept.page.max() + 1
    born_us = np.full(pages, NO_TIME) if born_us is None else born_us
    found, gain = kept.profiles(1, born_us, np.full(pages, 0.8), Profiles.flat())
    clocks = found.clocks(np.zeros(1, np.int64), np.zeros(1, np.int64))
    return clocks.hour[:1], clocks.age[:1], gain


def _batch(rng: np.random.Generator, pages: int, days: int, hour: float) -> list[np.ndarray]:
    every = [np.flatnonzero(rng.random(days) < 0.9) for _ in range(pages)]
    return [d + (hour + rng.normal(0.0, 0.2, len(d))) / 24.0 for d in every]


@pytest.mark.parametrize("gap_days", [0.4, 0.9])
def test_a_daily_batch_is_found(gap_days):
    rng = np.random.default_rng(1)
    kept = _crawled(rng, _batch(rng, 60, 14, 13.5), 14.0, gap_days, 0.2)
    hour, age, gain = _clocks(kept)
    day = hour[0].reshape(7, 24)[0]
    assert gain[0] > 10.0 and day[13] > 8.0 and day[[12, 13, 14]].sum() > 0.7 * 24.0
    assert hour.mean() == pytest.approx(1.0) and (age == 1.0).all()


def test_crawls_at_one_hour_of_the_day_say_nothing():
    rng = np.random.default_rng(2)
    kept = _crawled(rng, _batch(rng, 60, 14, 13.5), 14.0, 1.0, 0.0)
    hour, _, gain = _clocks(kept)
    assert abs(gain[0]) < 2.0 and (hour == 1.0).all()


def test_without_rhythm_clocks_stay_flat():
    """False alarms of 150 hosts, of hours and of age."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(150):
        changes = [np.sort(rng.uniform(0, 20, rng.poisson(20 * rng.gamma(1.0, 0.6)))) for _ in range(12)]
        kept = _crawled(rng, changes, 20.0, 0.8, 0.5)
        born_us = START - rng.integers(0, 9 * US_PER_DAY, 12)
        hour, age, _ = _clocks(kept, born_us)
        alarms += int((hour != 1.0).any()) + int((age != 1.0).any())
    assert alarms <= 2


def test_pages_that_settle_are_found():
    """Articles change four times a day at first, half as often with every six hours."""
    rng = np.random.default_rng(4)
    rows = []
    for page in range(400):
        born = rng.uniform(0, 20)
        age = rng.exponential(0.36, rng.poisson(1.5))
        at = np.concatenate([[0.02], rng.uniform(0.1, 4.0, 2), [9.0]])
        seen = [int((age < t).sum()) for t in np.sort(at)]
        at = np.sort(at)
        rows += [
            (page, born, born + a, born + b, m > k)
            for a, b, k, m in zip(at, at[1:], seen, seen[1:], strict=False)
        ]
    page, born, begin, end, found = (np.array(c) for c in zip(*rows, strict=True))
    born, begin, end = (START + (t * US_PER_DAY).astype(np.int64) for t in (born, begin, end))
    zero, born_us = np.zeros(len(page), np.int64), np.zeros(400, np.int64)
    born_us[page] = born
    _, age, _ = _clocks(
        Kept.of(zero, page, page.astype(np.uint64), begin, end, found).best(MOST, born_us), born_us
    )
    assert age.shape == (1, AGES) and age.mean() == pytest.approx(1.0)
    assert age[0, :4].mean() > 20.0 * age[0, -3:].mean()
    # Half-life of 6 hours: from the bin of 4 to 8 hours to that of 16 to 32 by exp(-(24 - 6) / 8.7).
    assert age[0, 3] / age[0, 5] == pytest.approx(np.exp(18 / 8.66), rel=0.6)


@pytest.mark.parametrize("batch", [False, True])
def test_hours_and_ages_are_told_apart(batch):
    """Articles that come by day and change soon after have an age and no hours; pages that come in the
    morning and change in the batch of every noon have hours and no age.
    """
    rng = np.random.default_rng(6)
    rows = []
    for page in range(300):
        born = int(rng.integers(0, 20)) + rng.uniform(8, 11 if batch else 20) / 24.0
        changes = born + rng.exponential(0.12, rng.poisson(2.0))
        if batch:
            changes = np.floor(born) + np.arange(20) + 12.5 / 24.0 + rng.normal(0.0, 0.01, 20)
        gap = rng.uniform(0.1, 1.3, 8)
        at = np.concatenate([[born + 0.005], born + np.cumsum(gap)])
        seen = np.searchsorted(np.sort(changes), at)
        rows += [(page, born, a, b, m > k) for a, b, k, m in zip(at, at[1:], seen, seen[1:], strict=False)]
    page, born, begin, end, found = (np.array(c) for c in zip(*rows, strict=True))
    born, begin, end = (START + (t * US_PER_DAY).astype(np.int64) for t in (born, begin, end))
    born_us = np.zeros(300, np.int64)
    born_us[page] = born
    zero = np.zeros(len(page), np.int64)
    kept = Kept.of(zero, page, page.astype(np.uint64), begin, end, found).best(MOST, born_us)
    hour, age, _ = _clocks(kept, born_us)
    assert (hour != 1.0).any() == batch and (age != 1.0).any() != batch
    assert hour[0, 12] > 10.0 if batch else age[0, :4].mean() > 20.0 * age[0, -3:].mean()


def test_the_fit_is_where_its_equations_hold():
    rng = np.random.default_rng(5)
    k, bins = 4000, 6
    length = rng.gamma(0.3, 1.0, (k, bins))
    truth = np.array([2.0, 1.0, 0.5, 0.2, 1.0, 3.0])
    changed = rng.random(k) < -np.expm1(-(length @ truth))
    spells = Spells(np.zeros(k, np.int64), length, changed, np.ones(k))
    factor = learning.fit(spells, 1, circular=True)[0]
    clock = length[changed] @ factor
    placed = (length[changed] * factor / -np.expm1(-clock)[:, None]).sum(axis=0)
    logs = np.log(factor)
    beside = np.exp((np.roll(logs, 1) + logs + np.roll(logs, -1)) / 3.0)
    assert factor == pytest.approx((placed + 1.0) / (length.sum(axis=0) + 1.0 / beside), rel=3e-2)
    assert np.abs(np.log(factor / truth)).max() < 0.4


def test_kept_intervals_do_not_depend_on_how_a_log_is_cut():
    rng = np.random.default_rng(6)
    k = 6000
    end = START + rng.integers(0, 60 * US_PER_DAY, k)
    length = rng.integers(1, 9 * US_PER_DAY, k)
    hashes = rng.integers(0, 1 << 63, k).astype(np.uint64)
    group, page = rng.integers(0, 3, k), np.arange(k)
    whole = Kept.of(group, page, hashes, end - length, end, rng.random(k) < 0.5)
    born_us = np.full(k, NO_TIME)
    once, parts = whole.best(MOST, born_us), whole.take(page[:0])
    for night in np.array_split(np.argsort(end), 9):
        parts = joined([parts, whole.take(night[rng.permutation(len(night))])]).best(MOST, born_us)
    assert len(once) == 3 * 1024
    for name in vars(once):
        assert np.array_equal(getattr(once, name), getattr(parts, name))
    # What tells more is kept sooner.
    rest = (once.to_us - once.from_us) / US_PER_DAY
    assert np.mean(rest < 0.9) > 1.5 * np.mean((whole.to_us - whole.from_us) / US_PER_DAY < 0.9)
    late = np.bincount((once.to_us - START) // (20 * US_PER_DAY), minlength=3)
    assert late[2] > 1.5 * late[0]
    assert US_PER_HOUR * 24 == US_PER_DAY


def test_few_without_rhythm_are_fitted_and_all_that_have_a_clock(monkeypatch):
    """A first look is enough for nearly all hosts; who would be certain by less is always looked at."""
    rng = np.random.default_rng(7)
    groups, each = 300, 200
    group, at = np.repeat(np.arange(groups), each), np.sort(rng.random((groups, each)) * 40.0, axis=1).ravel()
    length = cycle_lengths_days(
        *(START + ((at + days) * US_PER_DAY).astype(np.int64) for days in (0.0, rng.random(at.size))),
        24,
        US_PER_HOUR,
    )
    changed = rng.random(at.size) < -np.expm1(-0.6 * length.sum(axis=1))
    spells = Spells(group, length, changed, np.full(at.size, 0.6))
    fitted: list[int] = []
    fit = learning.fit
    monkeypatch.setattr(
        learning, "fit", lambda s, n, *rest: fitted.append(len(np.unique(s.group))) or fit(s, n, *rest)
    )
    have = rng.random(groups) < 0.1
    _, _, gain = learning.profiles(spells, np.where(have, 0.0, CERTAIN), True)
    assert (gain[have] != 0.0).all() and np.count_nonzero(gain[~have]) < 0.02 * groups
    # All have one rate, and few are fitted to the hours of their first blocks.
    assert fitted[0] == groups and max(fitted[1:]) < 5 * (have.sum() + 0.02 * groups)
