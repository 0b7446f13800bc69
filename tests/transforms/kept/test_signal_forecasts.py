"""Forecasts of pages with signals: what is kept with the slots, and what the night after makes of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from policies.estimation.forecast import PROBABILITY_UNIT, forecast
from policies.history.page_state import Forgetting, evidence
from policies.judging.calibration import FACTORS
from policies.judging.host_factors import COLUMNS
from policies.judging.recalibration import CALM, CELLS, KINDS
from policies.signals.estimation import PageFit
from tests.transforms.signal_shards import signals_of
from transforms.batches import schemas
from transforms.batches.urls import locate
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.kept.predictions import ShardPredictions
from transforms.kept.signal_forecasts import forecasts_batch, signal_forecast_of, slots_columns
from transforms.kept.state import read_history, times
from transforms.kept.statistics import slots_schema
from transforms.night.folding import ShardFold
from transforms.shards.catalogue import DAY_US, HostDefaults

FIRST_DAY = 20_000
HOUR_US = 3_600_000_000
SOURCES = ["ping", "rss", "sitemap"]


def _fit(n: int, seed: int = 0) -> PageFit:
    rng = np.random.default_rng(seed)
    spread = rng.random((n, 1 + len(SOURCES), 1 + len(SOURCES)))
    return PageFit(rng.random(n) + 0.1, rng.random((n, len(SOURCES))) + 0.1, spread)


def _slots(hashes: list[int], columns: list[pa.Array]) -> pa.Table:
    n = len(hashes)
    known = pa.array([0.5] * n, pa.float32())
    plain = [pa.array(hashes, pa.uint64()), pa.array(hashes, pa.uint64()), times(np.full(n, DAY_US))]
    return pa.Table.from_arrays(
        [*plain, known, known, known, *columns, pa.nulls(n, pa.int16()), pa.nulls(n, schemas.TIME)],
        schema=slots_schema(),
    )


def test_what_a_night_expects_is_read_by_the_next():
    """Rows without signals between, pages in another order, codes that are not those of the night before."""
    heard_of = np.array([[True, False, True], [False, False, False], [True, True, True]])
    fit = _fit(3)
    batch = forecasts_batch(np.array([1, 4, 6]), SOURCES, heard_of, 2.0 * fit.unsignalled_rate_per_day, fit)
    batch.validate(full=True)
    slots = _slots([11, 12, 13, 14, 15], [*slots_columns(batch, np.array([0, 1, 3, 4, 6])).values()])
    assert slots.column("unsignalled_rate_per_day").null_count == 2
    assert slots.column("signal_source").to_pylist() == [None, ["ping", "sitemap"], None, [], SOURCES]
    code = {"about": 0, "ping": 1, "rss": 2, "sitemap": 3}
    found = signal_forecast_of(slots, np.array([4, 3, -1, 1, 0]), 6, code)
    assert list(found.row) == [2, 1, -1, 0, -1, -1]
    np.testing.assert_allclose(found.unsignalled_rate_per_day, 2.0 * fit.unsignalled_rate_per_day, rtol=1e-6)
    np.testing.assert_allclose(found.unsignalled_information, 1 / fit.covariance[:, 0, 0], rtol=1e-6)
    expected = np.full((3, 4), np.nan)
    expected[:, 1:] = np.where(heard_of, fit.signal_weight, np.nan)
    np.testing.assert_allclose(found.signal_weight, expected, rtol=1e-6)
    expected[:, 1:] = np.where(heard_of, 1 / fit.covariance[:, [1, 2, 3], [1, 2, 3]], np.nan)
    np.testing.assert_allclose(found.signal_information, expected, rtol=1e-6)


def test_sources_that_are_told_apart_no_more_are_not_known():
    fit = _fit(1)
    batch = forecasts_batch(np.array([0]), SOURCES, np.ones((1, 3), bool), fit.unsignalled_rate_per_day, fit)
    slots = _slots([11], [*slots_columns(batch, np.array([0])).values()])
    found = signal_forecast_of(slots, np.array([0]), 1, {"other": 0, "ping": 0, "rss": 0, "sitemap": 1})
    assert np.isnan(found.signal_weight[0, 0]) and found.signal_weight[0, 1] > 0.0
    gone = signal_forecast_of(slots, np.array([0]), 1, {"ping": 0})
    assert gone.signal_weight.shape == (1, 1)
    assert signal_forecast_of(slots, np.array([0]), 1, {}).signal_weight.shape == (1, 0)


def test_without_signals_there_is_nothing():
    slots = _slots([11, 12], [*slots_columns(None, np.arange(2)).values()])
    for found in (
        signal_forecast_of(slots, np.array([0, 1]), 2, {"rss": 0}),
        signal_forecast_of(None, None, 2, {}),
    ):
        assert list(found.row) == [-1, -1] and not len(found.change_rate_per_day)


# ---- through a shard's fold

N_PAGES = 24
URLS = [f"https://h{i // 8}.test/{i}" for i in range(N_PAGES)]


def _batch(schema: pa.Schema, rows: list[dict]) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(rows, schema)
    hashes = locate(batch.column("url")).url_hash
    return batch.append_column("url_hash", pa.array(hashes)).replace_schema_metadata(schema.metadata)


def _night(
    end_day: int, crawls: list[tuple], signals: list[tuple], carried: list[pa.RecordBatch], **more: object
) -> ShardFold:
    settings = FoldSettings(
        end_day * DAY_US, Forgetting(12, None), RequestClock(end_day, 28.0), HostDefaults(None, 0.0, DAY_US)
    )
    observations = [
        {"url": URLS[i], "fetched_at": at, "status": 200, "digest_hash": d + 1} for i, at, d in crawls
    ]
    news = [{"url": URLS[i], "signalled_at": at, "source": s} for i, at, s in signals]
    fold = ShardFold(
        replace(settings, **more),
        [_batch(schemas.OBSERVATIONS, observations), _batch(schemas.SIGNALS, news), *carried],
    )
    fold.tables(0, [])
    return fold


def _world(seed: int = 0) -> tuple[list[tuple], list[tuple]]:
    """Crawls and signals of fifteen days; host 2 never signals."""
    rng = np.random.default_rng(seed)
    at = [FIRST_DAY * DAY_US + int(t) for t in np.sort(rng.integers(0, 15 * DAY_US, 400))]
    crawls = [(int(rng.integers(N_PAGES)), t, int(rng.integers(2))) for t in at]
    signals = [(int(rng.integers(16)), t + 1, SOURCES[int(rng.integers(2))]) for t in at]
    return crawls, signals


def _slots_of_night(fit: PageFit, calm: int | None = None) -> pa.RecordBatch:
    """Pages of host 0 with both sources, of host 1 with the first one alone, of host 2 without signals."""
    located = locate(pa.array(URLS))
    heard_of = np.zeros((16, 3), bool)
    heard_of[:, 0] = heard_of[:8, 1] = True
    batch = forecasts_batch(np.arange(16), SOURCES, heard_of, fit.unsignalled_rate_per_day, fit)
    columns = {
        "url_hash": pa.array(located.url_hash),
        "host_hash": pa.array(located.url_hash),
        "last_slot_at": times(np.full(N_PAGES, (FIRST_DAY + 10) * DAY_US)),
        "change_rate_per_day": pa.array(np.linspace(0.2, 2.0, N_PAGES), pa.float32()),
        "information": pa.array(np.full(N_PAGES, 4.0), pa.float32()),
        "weight": pa.array(np.ones(N_PAGES), pa.float32()),
    }
    arrays = [
        *columns.values(),
        *slots_columns(batch, np.arange(N_PAGES)).values(),
        pa.array([calm] * N_PAGES, pa.int16()),
        pa.nulls(N_PAGES, schemas.TIME),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=slots_schema())


@pytest.fixture(scope="module")
def two_nights() -> tuple[ShardFold, ShardFold, PageFit]:
    crawls, signals = _world()
    cut = (FIRST_DAY + 10) * DAY_US
    fit = _fit(16, seed=1)
    first = _night(
        FIRST_DAY + 10, [c for c in crawls if c[1] <= cut], [s for s in signals if s[1] <= cut], []
    )
    carried = [first.state(), signals_of(first), _slots_of_night(fit)]
    second = _night(
        FIRST_DAY + 15, [c for c in crawls if c[1] > cut], [s for s in signals if s[1] > cut], carried
    )
    return first, second, fit


def _by_its_posterior(first: ShardFold, page: int, rate: float, days: float) -> float:
    """Chance of a change of a page without signals, as the night before left it."""
    state = first.state()
    row = np.flatnonzero(state.column("url_hash").to_numpy() == locate(pa.array(URLS)).url_hash[page])
    known = evidence(read_history(state).take(row), 12)
    told = forecast(known, np.array([rate]), np.array([4.0]))
    return float(-np.expm1(told.log_unchanged(told.row, np.array([days])))[0])


def test_crawls_are_judged_by_the_signals_of_their_intervals(two_nights):
    """Against a loop over crawls and signals, those of the first night among them."""
    first, second, fit = two_nights
    crawls, signals = _world()
    rate = np.linspace(0.2, 2.0, N_PAGES).astype(np.float32)
    began_of_host = [min(s[1] for s in signals if s[0] // 8 == h) for h in range(2)]
    weight = fit.signal_weight.astype(np.float32).astype(float)
    information = (1 / np.diagonal(fit.covariance, axis1=1, axis2=2)).astype(np.float32).astype(float)
    expected, found, unknown = [], [], 0
    for page in range(N_PAGES):
        mine = [(t, d) for i, t, d in crawls if i == page]
        last_heard = dict.fromkeys(SOURCES, -(1 << 62))
        for (began, old), (at, digest) in pairwise(mine):
            assert at - began > 60_000_000
            number = dict.fromkeys(SOURCES, 0)
            for i, t, source in signals:
                if i == page and began < t <= at and t - last_heard[source] >= HOUR_US:
                    number[source] += 1
                    last_heard[source] = t
            if at <= (FIRST_DAY + 10) * DAY_US:
                continue
            days = (at - began) / DAY_US
            if page >= 16:
                expected.append(_by_its_posterior(first, page, rate[page], days))
                found.append(digest != old)
                continue
            if number["rss"] and page >= 8:
                unknown += 1
                continue
            a = fit.unsignalled_rate_per_day.astype(np.float32)[page]
            before = max(began_of_host[page // 8] - began, 0) / DAY_US
            calm = a * days + max(rate[page] - a, 0.0) * before
            parts = [calm, *(weight[page, j] * number[s] for j, s in enumerate(SOURCES))]
            u = sum(parts)
            h = u**2 / sum(p**2 / i for p, i in zip(parts, information[page], strict=True))
            expected.append(1 - (1 + u / h) ** -h)
            found.append(digest != old)
    sums = second.overview().sums[ShardPredictions].sums
    assert sums.crawls == len(expected) > 80 and sums.not_scheduled == unknown > 3
    assert sum(sums.bin_found) == sum(found)
    predicted = np.array(sums.bin_predicted) * PROBABILITY_UNIT
    assert predicted.sum() == pytest.approx(sum(expected), rel=1e-6)
    place = np.minimum((np.array(expected) * 10).astype(int), 9)
    assert predicted == pytest.approx(np.bincount(place, expected, 10), rel=1e-6)


def test_every_crawl_is_judged_once_also_of_pages_that_nobody_listens_to(two_nights):
    """Slots with forecasts beside a state that has lost its signals."""
    first, second, fit = two_nights
    crawls, signals = _world()
    cut = (FIRST_DAY + 10) * DAY_US
    carried = [first.state(), _slots_of_night(fit)]
    news = [s for s in signals if s[1] > cut and s[0] < 8]
    lost = _night(FIRST_DAY + 15, [c for c in crawls if c[1] > cut], news, carried)
    one, other = (fold.overview().sums[ShardPredictions].sums for fold in (second, lost))
    assert one.crawls + one.not_scheduled == other.crawls + other.not_scheduled
    assert sum(one.bin_found) <= sum(other.bin_found) and other.not_scheduled == 0


def test_clock_factors_move_what_is_predicted_and_nothing_else(two_nights):
    """Not rates or state: forecasts with a factor of 2 are those of twice the clock."""
    first, _, fit = two_nights
    crawls, signals = _world()
    cut = (FIRST_DAY + 10) * DAY_US
    rows = [c for c in crawls if c[1] > cut], [s for s in signals if s[1] > cut]
    carried = [first.state(), signals_of(first), _slots_of_night(fit, calm=3)]
    plain = _night(FIRST_DAY + 15, *rows, carried)
    twice = _night(FIRST_DAY + 15, *rows, carried, clock_factors=np.full(KINDS * CELLS, 2.0))
    one, two = (fold.overview().sums[ShardPredictions] for fold in (plain, twice))
    assert (
        sum(two.sums.bin_predicted) == one.sums.predicted_at[FACTORS.index(2.0)] > sum(one.sums.bin_predicted)
    )
    assert two.cells == one.cells and two.cells.crawls.sum() == one.sums.crawls
    by_kind = two.cells.crawls.reshape(KINDS, CELLS)
    of_row = by_kind.reshape(KINDS, CALM, -1).sum(axis=2)
    assert (of_row[:, 3] > 5).all() and of_row.sum() == of_row[:, 3].sum()
    assert (plain.state(), signals_of(plain)) == (twice.state(), signals_of(twice))
    before, after = (fold.tables(0, []).tables for fold in (plain, twice))
    assert before.keys() == after.keys()
    for name in COLUMNS[:3]:
        assert (after["hosts"].column(name).to_numpy() != 0.0).any()
        assert (before["hosts"].column(name).to_numpy() == 0.0).all()
    for name, table in before.items():
        some = [n for n in table.schema.names if n not in COLUMNS]
        assert repr(table.select(some).to_pydict()) == repr(
            after[name].select(some).to_pydict()
        )  # NaN is NaN
