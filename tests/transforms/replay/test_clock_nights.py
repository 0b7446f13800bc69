"""Nights in a closed loop where pages change at an hour, where they settle, and where neither is so."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from policies.clocks import exploring
from policies.clocks.profile import US_PER_DAY, US_PER_HOUR
from policies.simulation.histories import ChangeHistory
from tests.transforms.replay.test_backtesting import EQUAL
from transforms.night.scheduling import ScheduledShard
from transforms.replay.backtesting import Trial, play
from transforms.replay.closed_loop import ClosedLoop, Day, Planned
from transforms.replay.job_nights import JobNights, JobOptions
from transforms.replay.night_modes import Mode
from transforms.replay.worlds import World, name_pages

START = 20_000 * US_PER_DAY
PAGES = 120


def worlds_of(first_us: np.ndarray, page: np.ndarray, at_us: np.ndarray, days: int) -> World:
    url = pa.array([f"https://host.test/{i:05d}" for i in range(len(first_us))])
    history = ChangeHistory.from_events(START, START + days * US_PER_DAY, first_us, page, at_us)
    return World(history, url, *name_pages(url))


def _batches(rng: np.random.Generator, days: int) -> World:
    """Nine of ten pages change every day, all within a quarter of an hour from 13:30 on."""
    page, day = np.nonzero(rng.random((PAGES, days)) < 0.9)
    at = START + day * US_PER_DAY + (13.5 * US_PER_HOUR + rng.integers(0, US_PER_HOUR // 4, len(page)))
    return worlds_of(np.full(PAGES, START - US_PER_DAY), page, at.astype(np.int64), days)


def test_crawls_come_right_after_a_daily_batch():
    """After 14 nights four in five of them, and copies are fresh for most of the day, not for half of it."""
    days = 24
    world = _batches(np.random.default_rng(1), days)
    nights = JobNights(world, Mode(world), 1.0, np.ones(PAGES))
    crawls = ClosedLoop(world, nights).run().crawls
    late = (crawls.at_us > START + 14 * US_PER_DAY) & ~crawls.free
    hour = crawls.at_us[late] % US_PER_DAY / US_PER_HOUR
    assert ((hour > 13.5) & (hour < 20.0)).mean() > 0.8
    recrawl, uniform = (play(world, Trial(name, 1.0, EQUAL), 0.6)[0] for name in ("recrawl", "uniform"))
    assert recrawl.accuracy > uniform.accuracy + 0.2
    assert recrawl.spent == pytest.approx(uniform.spent, rel=0.02)


class _AtOneHour(JobNights):
    """For the first nights every page is crawled just before its batch, and the nights learn from it."""

    nights = 10

    def plan(self, day: Day) -> Planned:
        planned = super().plan(day)
        if day.as_of_us >= START + self.nights * US_PER_DAY:
            return planned
        page = self._fold.known(day.as_of_us)
        return Planned.of(page, day.as_of_us + 13 * US_PER_HOUR + page * 1_000_000)


def test_who_was_crawled_at_one_hour_finds_the_right_one_within_14_nights():
    """A crawl a day at 13:00 finds every change, half a day late, and says nothing of the hour."""
    days = _AtOneHour.nights + 20
    world = _batches(np.random.default_rng(5), days)
    nights = _AtOneHour(world, Mode(world), 1.0, np.ones(PAGES))
    crawls = ClosedLoop(world, nights).run().crawls
    late = (crawls.at_us > START + (_AtOneHour.nights + 14) * US_PER_DAY) & ~crawls.free
    hour = crawls.at_us[late] % US_PER_DAY / US_PER_HOUR
    assert ((hour > 13.5) & (hour < 20.0)).mean() > 0.8


@pytest.mark.parametrize("capacity", [2.0, 12.0])
def test_an_hour_has_room_for_some_times_its_share(capacity):
    world = _batches(np.random.default_rng(2), 20)
    options = JobOptions(hour_capacity=capacity)
    nights = JobNights(world, Mode(world), 1.0, np.ones(PAGES), options)
    crawls = ClosedLoop(world, nights).run().crawls
    at = (crawls.at_us[~crawls.free] - START) // US_PER_HOUR
    most = np.bincount(at).max()
    assert 0.9 * capacity * PAGES / 24 < most <= capacity * PAGES / 24 + 1


def test_articles_are_crawled_again_when_they_have_settled():
    """20 a day, three changes each in their first hours; there is budget for three crawls of each."""
    rng = np.random.default_rng(3)
    days, old = 30, 200
    new = START + np.sort(rng.integers(0, days * US_PER_DAY, 600))
    born = np.concatenate([np.full(old, START - US_PER_DAY), new])
    page = np.repeat(np.arange(old, len(born)), 3)
    at = born[page] + (rng.exponential(3.0, len(page)) * US_PER_HOUR).astype(np.int64)
    world = worlds_of(born, page, at, days)
    recrawl, uniform = (play(world, Trial(name, 0.12, EQUAL), 0.6)[0] for name in ("recrawl", "uniform"))
    assert recrawl.accuracy > uniform.accuracy + 0.08
    assert recrawl.accuracy > 0.9


def test_a_night_promises_what_its_hours_keep(monkeypatch):
    """Freshness that is expected, against that of the days that come."""
    days = 24
    world = _batches(np.random.default_rng(4), days)
    promised: list[float] = []
    schedule = ScheduledShard.schedule

    def scheduled(self: ScheduledShard) -> pa.RecordBatch:
        promised.append(float(self._fresh.mean()))
        return schedule(self)

    monkeypatch.setattr(ScheduledShard, "schedule", scheduled)
    nights = JobNights(world, Mode(world), 1.0, np.ones(PAGES))
    crawls = ClosedLoop(world, nights).run().crawls
    us = START + np.arange(18, days) * US_PER_DAY
    at = us[:, None] + np.arange(0, US_PER_DAY, US_PER_HOUR // 2)
    fresh = []
    for page in range(PAGES):
        mine = crawls.at_us[crawls.page == page]
        seen = mine[np.maximum(np.searchsorted(mine, at, side="right") - 1, 0)]
        known = world.history.version(np.full(at.size, page), seen.ravel())
        now = world.history.version(np.full(at.size, page), at.ravel())
        fresh.append((known == now).mean())
    assert np.mean(promised[18:]) == pytest.approx(np.mean(fresh), abs=0.06)


def test_hosts_of_few_pages_go_by_the_hours_of_all():
    """Of one page each: none has enough intervals to show a batch, and together they do."""
    rng = np.random.default_rng(6)
    days, hosts = 16, 300
    page, day = np.nonzero(rng.random((hosts, days)) < 0.6)
    at = START + day * US_PER_DAY + (13.5 * US_PER_HOUR + rng.integers(0, US_PER_HOUR // 4, len(page)))
    url = pa.array([f"https://h{i}.test/" for i in range(hosts)])
    first = np.full(hosts, START - US_PER_DAY)
    history = ChangeHistory.from_events(START, START + days * US_PER_DAY, first, page, at.astype(np.int64))
    world = World(history, url, *name_pages(url))
    recrawl, uniform = (play(world, Trial(name, 1.0, EQUAL), 0.6)[0] for name in ("recrawl", "uniform"))
    assert recrawl.accuracy > uniform.accuracy + 0.15
    assert recrawl.spent == pytest.approx(uniform.spent, rel=0.02)


def _articles(rng: np.random.Generator, days: int, by_day: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """When they come, from 8 to 20 o'clock, and their changes: two or three in the first hours."""
    hour = rng.integers(8 * US_PER_HOUR, 20 * US_PER_HOUR, days * by_day)
    born = START + np.repeat(np.arange(days), by_day) * US_PER_DAY + hour
    page = np.repeat(np.arange(len(born)), rng.integers(2, 4, len(born)))
    at = born[page] + (rng.exponential(2.0, len(page)) * US_PER_HOUR).astype(np.int64)
    return born, page, at


def test_how_articles_age_is_known_in_a_week(monkeypatch):
    """At a budget that would see each again after a week, some are crawled the day after they came."""
    days = 18
    world = worlds_of(*_articles(np.random.default_rng(7), days, 30), days)
    fresh = []
    for share in (exploring.EXPLORED_YOUNG, 0.0):
        monkeypatch.setattr(exploring, "EXPLORED_YOUNG", share)
        fresh.append(play(world, Trial("recrawl", 0.2, EQUAL), 0.5)[0].accuracy)
    assert fresh[0] > fresh[1] + 0.1 and fresh[0] > 0.93


def test_a_home_page_among_articles_does_not_age():
    """Three pages that were there before change all day long, and go on to be crawled."""
    days, steady = 30, 3
    rng = np.random.default_rng(8)
    born, page, at = _articles(rng, days, 20)
    born = np.concatenate([np.full(steady, START - US_PER_DAY), born])
    always = START + rng.integers(0, days * US_PER_DAY, (steady, 6 * days))
    page = np.concatenate([np.repeat(np.arange(steady), 6 * days), page + steady])
    world = worlds_of(born, page, np.concatenate([always.ravel(), at]), days)
    nights = JobNights(world, Mode(world), 0.15, np.where(np.arange(len(born)) < steady, 5.0, 1.0))
    crawls = ClosedLoop(world, nights).run().crawls
    late = (crawls.at_us > START + 22 * US_PER_DAY) & ~crawls.free
    of_home = np.bincount(crawls.page[late], minlength=len(born))[:steady]
    assert (of_home > 6 * (days - 22)).all()


def test_pages_that_change_all_day_are_crawled_when_their_day_is_over():
    """By their rates, 20 changes a day, no crawl seems to help; in the evening one lasts until morning."""
    rng, days = np.random.default_rng(7), 24
    often = rng.gamma(4.0, 5.0, PAGES)
    count = rng.poisson(often[:, None], (PAGES, days))
    page, day = (np.repeat(at.ravel(), count.ravel()) for at in np.indices((PAGES, days)))
    at = START + day * US_PER_DAY + ((8 + 12 * rng.random(len(page))) * US_PER_HOUR).astype(np.int64)
    world = worlds_of(np.full(PAGES, START - US_PER_DAY), page, at, days)
    recrawl, uniform = (play(world, Trial(name, 2.0, EQUAL), 0.5)[0] for name in ("recrawl", "uniform"))
    assert recrawl.accuracy > uniform.accuracy + 0.1
    assert recrawl.accuracy > 0.42


def test_a_weekend_does_not_speak_against_the_hours_of_working_days():
    """All pages change every hour from 9 to 17 on working days; a crawl a day finds changes alone."""
    rng, days, pages = np.random.default_rng(8), 42, 240
    hours = np.arange(days * 24)
    open_at = hours[(hours % 24 >= 9) & (hours % 24 < 17) & ((hours // 24 + 20_000 + 3) % 7 < 5)]
    page, at = np.nonzero(rng.random((pages, open_at.size)) < 0.8)
    at_us = START + open_at[at] * US_PER_HOUR + rng.integers(60, 180, len(page)) * 1_000_000
    world = worlds_of(np.full(pages, START - US_PER_DAY), page, at_us, days)
    recrawl, uniform = (play(world, Trial(name, 1.0, EQUAL), 0.5)[0] for name in ("recrawl", "uniform"))
    assert recrawl.accuracy > uniform.accuracy + 0.12
