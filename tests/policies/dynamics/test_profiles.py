"""What is corrected is right where what is found is wrong; nothing is lost or made up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.clocks.profile import NO_TIME, US_PER_DAY
from policies.dynamics import profiles
from policies.dynamics.lengths import WAIT_EDGES_HOURS, wait_lengths_days, week_hour, week_lengths_days
from policies.dynamics.profiles import CORRECTED, FOUND, LAST_MODIFIED, Week
from policies.dynamics.sums import MOST, Sums
from tests.policies.dynamics.crawled import looks, poisson, sums

DAYS = 98


def _weeks(made: Sums) -> dict[str, Week]:
    return {week.hours.estimate: week for week in profiles.weeks(made, 0)}


def _batch(rng: np.random.Generator, pages: int, hour: float) -> list[np.ndarray]:
    every = [np.flatnonzero(rng.random(DAYS) < 0.3) for _ in range(pages)]
    return [np.sort(d + (hour + rng.normal(0.0, 0.1, len(d))) / 24.0) for d in every]


@pytest.fixture(scope="module")
def batch() -> tuple[Sums, Sums]:
    """Pages that change at 13:30, crawled by day and by night: the first from 20:00 to 6:00 only."""
    rng = np.random.default_rng(1)
    changes = _batch(rng, 80, 13.5)
    nights = [np.unique(rng.integers(0, DAYS, 70)) + rng.uniform(-4, 6, 1) / 24.0 for _ in changes]
    nights = [np.sort(d + rng.uniform(-0.1, 0.1, len(d))) for d in nights]
    nights = [np.sort(np.concatenate([d, d + rng.uniform(0.05, 0.12, len(d))])) for d in nights]
    return sums(changes, nights), sums(changes, poisson(rng, 80, DAYS, 0.6))


def test_a_batch_is_seen_at_its_hour_by_crawls_at_other_hours(batch):
    week = _weeks(batch[1])
    hours, found = week[CORRECTED].hours, week[FOUND].hours
    assert hours.share[13] > 0.85 and hours.share[[12, 13, 14]].sum() > 0.95
    assert found.share.max() < 0.08 and abs(hours.share[13] - 1.0) < 4.0 * hours.error[13] + 0.1


def test_a_batch_by_day_is_not_called_one_of_the_night(batch):
    """Crawls from 20 to 6 cannot tell the hours between; they must not place it where they found it."""
    week = _weeks(batch[0])
    day = np.arange(7, 19)
    assert week[CORRECTED].hours.share[day].sum() > 0.7
    assert week[FOUND].hours.share[day].sum() < 0.2


def test_without_rhythm_profiles_are_flat_within_their_errors():
    zs = []
    for seed in range(4):
        rng = np.random.default_rng(10 + seed)
        made = sums(poisson(rng, 60, DAYS, 0.5), poisson(rng, 60, DAYS, 2.0))
        for week in profiles.weeks(made, 0):
            for profile in (week.hours, week.weekdays):
                flat = 1.0 / len(profile.share)
                assert profile.share.sum() == pytest.approx(1.0)
                if week.hours.estimate == CORRECTED:
                    zs.append((profile.share - flat) / profile.error)
    z = np.concatenate(zs)
    assert np.abs(z).max() < 4.0 and 0.4 < np.sqrt(np.mean(z * z)) < 1.3


def test_weekdays_are_told_apart_from_hours():
    rng = np.random.default_rng(3)
    changes = [c[(c % 7 < 5) | (rng.random(len(c)) < 0.25)] for c in poisson(rng, 80, DAYS, 0.5)]
    week = _weeks(sums(changes, poisson(rng, 80, DAYS, 1.2)))[CORRECTED]
    # Day 0 is a Thursday: days 5 and 6 of seven are a Tuesday and a Wednesday.
    quiet = week.weekdays.share[[1, 2]]
    assert quiet / week.weekdays.share[[3, 4, 5, 6, 0]].mean() == pytest.approx([0.25, 0.25], abs=0.12)
    assert np.abs(week.hours.share * 24.0 - 1.0).max() < 0.3


def test_crawls_whole_days_apart_tell_nothing_of_hours():
    rng = np.random.default_rng(4)
    changes = _batch(rng, 40, 13.5)
    daily = [np.arange(DAYS) + rng.random() for _ in changes]
    week = _weeks(sums(changes, daily))[CORRECTED]
    assert np.isnan(week.hours.share).all() and week.hours.told < profiles.LEAST_TOLD


def test_dates_count_over_the_time_that_they_tell_of():
    """A Last-Modified is that of the last change: with long gaps it is the more likely the later it is."""
    rng = np.random.default_rng(5)
    changes, crawls = poisson(rng, 60, DAYS, 3.0), [np.arange(DAYS) + 0.5 for _ in range(60)]
    made = looks(changes, crawls)
    page = np.repeat(np.arange(60), DAYS - 1)
    last = [
        changes[p][np.searchsorted(changes[p], t / US_PER_DAY) - 1]
        for p, t in zip(page, made.to_us, strict=True)
    ]
    dated = np.where(made.changed, (np.array(last) * US_PER_DAY).astype(np.int64), NO_TIME)
    made = replace(made, dated_us=dated, dates=np.ones(len(made), np.bool_))
    hours = _weeks(Sums.empty(1).add(made, np.zeros(len(made), np.int64)))[LAST_MODIFIED].hours
    assert np.abs(hours.share * 24.0 - 1.0).max() < 0.35
    raw = np.bincount(week_hour(dated[made.changed]) % 24, minlength=24) / made.changed.sum()
    assert raw[11] / raw[13] > 3.0


def test_waits_under_censoring_have_the_law_that_made_them():
    rng = np.random.default_rng(6)
    mean_hours = 40.0
    changes = [np.cumsum(rng.exponential(mean_hours / 24.0, 200)) for _ in range(60)]
    made = sums([c[c < DAYS] for c in changes], poisson(rng, 60, DAYS, 3.0))
    corrected, found = profiles.waits(made, 0)
    for waits in (corrected, found):
        assert waits.share.sum() == pytest.approx(1.0) and len(waits.share) == len(waits.edges_hours) - 1
    over = np.cumsum(corrected.share)[:-1]
    law = -np.expm1(-corrected.edges_hours[1:-1] / mean_hours)
    assert np.abs(over - law).max() < 0.04
    # By the crawls that found them waits look longer: two changes between crawls are one.
    assert np.interp(0.5, np.cumsum(found.share)[:-1], found.edges_hours[1:-1]) > 33.0
    assert np.interp(0.5, over, corrected.edges_hours[1:-1]) == pytest.approx(27.7, rel=0.1)
    assert not corrected.peak[5:].any()


def test_a_daily_rhythm_is_a_peak_at_24_hours():
    rng = np.random.default_rng(7)
    corrected, found = profiles.waits(sums(_batch(rng, 150, 13.5), poisson(rng, 150, DAYS, 1.5)), 0)
    at = int(np.searchsorted(WAIT_EDGES_HOURS, 24.0))
    assert corrected.peak[at] and corrected.share[at - 1 : at + 2].sum() > 0.24
    assert not found.peak[at] and found.share[at - 1 : at + 2].sum() < 0.18


@pytest.mark.parametrize("days", [0.01, 0.4, 3.3, 40.0])
def test_intervals_are_cut_into_all_of_their_length(days):
    rng = np.random.default_rng(8)
    begin = rng.integers(0, 400 * US_PER_DAY, 50)
    end = begin + int(days * US_PER_DAY)
    assert week_lengths_days(begin, end).sum(axis=1) == pytest.approx(days)
    low = begin - rng.integers(0, 9 * US_PER_DAY, 50)
    high = low + (rng.random(50) * (begin - low)).astype(np.int64)
    cut = wait_lengths_days(begin, end, low, high)
    assert cut.sum(axis=1) == pytest.approx(days) and cut.min() > -1e-9
    steps = (low[:, None] + (high - low)[:, None] * (np.arange(200) + 0.5) / 200).astype(np.int64)
    mean = np.mean([wait_lengths_days(begin, end, t, t) for t in steps.T], axis=0)
    assert cut == pytest.approx(mean, abs=2e-3 * days + 1e-3)


def test_parts_merge_to_the_same_whole_in_any_order():
    rng = np.random.default_rng(11)
    made = looks(poisson(rng, 120, DAYS, 0.8), poisson(rng, 120, DAYS, 2.0))
    group = rng.integers(-1, 2, len(made))
    part = rng.integers(0, 3, len(made))
    whole = Sums.empty(2).add(made, group)
    some = [Sums.empty(2).add(made.take(part == p), group[part == p]) for p in range(3)]
    merged = some[2].merge(some[0]).merge(some[1])
    for name in ("expected", "changed", "crawls", "found", "waited", "waits"):
        assert (getattr(whole, name) == getattr(merged, name)).all(), name
    for one, other in ((whole.of_hours, merged.of_hours), (whole.of_waits, merged.of_waits)):
        assert (one.looks.drawn == other.looks.drawn).all() and (one.group == other.group).all()
        assert np.bincount(one.group).max() <= MOST
    assert whole.crawls.sum() == (group >= 0).sum() and whole.found.sum() == made.changed[group >= 0].sum()
