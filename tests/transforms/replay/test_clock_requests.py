"""Crawls at hours where requests come at some hours more than at others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from policies.clocks.profile import US_PER_DAY, US_PER_HOUR
from tests.transforms.replay.test_clock_nights import PAGES, START, worlds_of
from transforms.batches import schemas
from transforms.replay.closed_loop import ClosedLoop, Crawls, Day, Planned
from transforms.replay.job_nights import JobNights
from transforms.replay.night_modes import Mode
from transforms.replay.worlds import World
from transforms.rows.normalise import HASHES

DAYS, LEARNING = 24, 14
EVENING = 18, 22


class _Asked(JobNights):
    """Every night has the requests of the day before: so many of each page in each hour.

    There are `first` crawls a page and day until the hours of changes may be known, and then one.
    """

    first = 3.0

    def __init__(self, world: World, by_hour: np.ndarray | None) -> None:
        super().__init__(world, Mode(world), 1.0, np.ones(len(world)))
        self._by_hour = by_hour

    def plan(self, day: Day) -> Planned:
        self._crawls_per_page = self.first if day.as_of_us < START + LEARNING * US_PER_DAY else 1.0
        if self._by_hour is not None:
            self._carried.batches = [*self._carried.batches, self._requests(day)]
        return super().plan(day)

    def _requests(self, day: Day) -> pa.RecordBatch:
        world, hours = self._world, np.flatnonzero(self._by_hour)
        page, hour = (v.ravel() for v in np.meshgrid(np.arange(len(world)), hours, indexing="ij"))
        columns = {
            "url": world.url.take(pa.array(page)),
            "day": np.full(len(page), day.as_of_us // US_PER_DAY - 1, np.int32),
            "hour": hour.astype(np.int8),
            "clicks": (self._by_hour[hour] / schemas.COUNT_UNIT).astype(np.int64),
            "impressions": np.zeros(len(page), np.int64),
            "url_hash": world.url_hash[page],
            "host_hash": world.host_hash[page],
        }
        fields = [*schemas.REQUESTS, *HASHES]
        schema = pa.schema(fields, metadata=schemas.REQUESTS.metadata)
        return pa.RecordBatch.from_arrays([pa.array(columns[f.name]) for f in fields], schema=schema)


def _two_batches(seed: int) -> World:
    """Four of five pages change soon after 6:00, three in ten after 15:00: 6:00 is the best hour."""
    rng = np.random.default_rng(seed)
    pages, times = [], []
    for share, hour in ((0.8, 6.0), (0.3, 15.0)):
        page, day = np.nonzero(rng.random((PAGES, DAYS)) < share)
        pages.append(page)
        times.append(
            START + day * US_PER_DAY + (hour * US_PER_HOUR + rng.integers(0, US_PER_HOUR // 4, len(page)))
        )
    at = np.concatenate(times).astype(np.int64)
    return worlds_of(np.full(PAGES, START - US_PER_DAY), np.concatenate(pages), at, DAYS)


def _fresh(world: World, crawls: Crawls, hours: tuple[int, int], after: int) -> float:
    """The share of the requests of some hours that meet a fresh copy, from a night on."""
    at = START + np.arange(after, DAYS)[:, None] * US_PER_DAY
    at = (at + np.arange(hours[0] * US_PER_HOUR, hours[1] * US_PER_HOUR, US_PER_HOUR // 4)).ravel()
    fresh = []
    for page in range(PAGES):
        mine = np.sort(crawls.at_us[crawls.page == page])
        seen = mine[np.maximum(np.searchsorted(mine, at, side="right") - 1, 0)]
        of = np.full(at.size, page)
        fresh.append(world.history.version(of, seen) == world.history.version(of, at))
    return float(np.mean(fresh))


def test_who_is_asked_for_in_the_evening_is_crawled_after_the_last_batch_before_it():
    """As many crawls a night, no hour fuller than it may be, and more of the evening's requests are fresh."""
    world = _two_batches(1)
    evening = np.zeros(24)
    evening[slice(*EVENING)] = 2.0
    plain, asked = (ClosedLoop(world, _Asked(world, hours)).run().crawls for hours in (None, evening))
    assert _fresh(world, asked, EVENING, 16) > max(_fresh(world, plain, EVENING, 16) + 0.1, 0.82)
    for crawls in (plain, asked):
        at = crawls.at_us[~crawls.free] - START
        assert (np.bincount(at // US_PER_DAY)[LEARNING:] == PAGES).all()
        assert np.bincount(at // US_PER_HOUR)[24 * LEARNING :].max() <= 4 * PAGES / 24 + 1


class _OnceADay(_Asked):
    first = 1.0


def test_a_page_that_changes_at_any_hour_is_crawled_before_it_is_asked_for():
    """In the evening copies are hours old in place of half a day; over the whole day nothing is gained."""
    rng = np.random.default_rng(2)
    count = rng.poisson(DAYS * 0.7, PAGES)
    at = START + (rng.random(count.sum()) * DAYS * US_PER_DAY).astype(np.int64)
    world = worlds_of(np.full(PAGES, START - US_PER_DAY), np.repeat(np.arange(PAGES), count), at, DAYS)
    evening = np.zeros(24)
    evening[slice(*EVENING)] = 2.0
    plain, asked = (ClosedLoop(world, _OnceADay(world, hours)).run().crawls for hours in (None, evening))
    assert _fresh(world, asked, EVENING, 17) > _fresh(world, plain, EVENING, 17) + 0.07
    for crawls in (plain, asked):
        tonight = crawls.at_us[~crawls.free] - START
        assert (np.bincount(tonight // US_PER_DAY) == PAGES).all()
        assert np.bincount(tonight // US_PER_HOUR).max() <= 4 * PAGES / 24 + 1


def test_requests_that_come_evenly_change_no_byte():
    world = _two_batches(3)
    runs = [ClosedLoop(world, _Asked(world, hours)).run().crawls for hours in (None, np.ones(24))]
    for name in ("page", "at_us", "free"):
        assert (getattr(runs[0], name) == getattr(runs[1], name)).all()
