"""Forecasts that learn from what became of forecasts."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from policies.clocks import profile
from policies.clocks.profile import AGES, NO_TIME
from policies.estimation.forecast import PROBABILITY_UNIT, Clocks, Forecast, predict
from policies.history.interval_sums import Intervals
from policies.history.page_state import US_PER_DAY, PageState
from policies.judging.recalibration import (
    CALM,
    CALM_EDGES,
    CELLS,
    EXPECTED_EDGES,
    FACTORS,
    HALF_LIFE_DAYS,
    HEARD,
    KINDS,
    MOST_NATS,
    NO_CELL,
    PLAIN,
    QUIET,
    STRENGTH,
    CellSums,
    CellWatch,
    Track,
    calm_cells,
    calm_days,
    cells,
    clock_factors,
    log_score_gain,
)

_EXPECTED = len(EXPECTED_EDGES) + 1


def _forecast(rate: np.ndarray, information: np.ndarray) -> Forecast:
    return Forecast(np.arange(len(rate), dtype=np.int32), rate, information, np.ones(len(rate)))


def _intervals(page: np.ndarray, days: np.ndarray, changed: np.ndarray) -> Intervals:
    gap = np.rint(days * US_PER_DAY).astype(np.int64)
    return Intervals(page, gap, gap, changed, None)


def _sums(cell: int, crawls: int, found: int, p: float, kind: int = PLAIN) -> CellSums:
    """Crawls with p predicted, all the same."""
    sums = CellSums.empty()
    at = kind * CELLS + cell
    crawls_of, found_of, predicted = (v.copy() for v in (sums.crawls, sums.found, sums.predicted))
    crawls_of[at], found_of[at] = crawls, found
    for j, factor in enumerate(FACTORS):
        predicted[at, j] = round(crawls * (1.0 - (1.0 - p) ** factor) / PROBABILITY_UNIT)
    return CellSums(crawls_of, found_of, predicted)


def test_cells_are_those_of_calm_and_of_what_was_expected():
    days = np.array([0.0, 0.3, 100.0, np.nan, -1.0, 2.0])
    rate = np.array([0.2, 0.2, 5.0, 0.01, 0.2, 0.5])
    calm = calm_cells(days, rate)
    assert calm.dtype == np.int16
    last = len(CALM_EDGES)
    assert list(calm) == [0, 1, last, last + 1, NO_CELL, 5] and CALM == last + 2
    cell = cells(calm[[0, 2, 5]], np.array([0.0, 0.1, 99.0]))
    assert list(cell) == [0, last * _EXPECTED + 3, 5 * _EXPECTED + len(EXPECTED_EDGES)]
    assert CELLS == CALM * _EXPECTED


def test_calm_is_in_the_time_of_the_clock():
    """Of a host that changes in the first half of the day only; never seen to change; not known."""
    hour = np.repeat([[2.0, 0.0], [1.0, 1.0]], 12, axis=1)
    clocks = profile.Clocks(np.tile(hour, 7), np.ones((2, AGES)), np.array([0, 1, 0, 0]), np.full(4, NO_TIME))
    state = replace(
        PageState.empty(4),
        last_change_at_us=np.array([US_PER_DAY // 2, US_PER_DAY // 2, NO_TIME, NO_TIME]),
        baseline_at_us=np.full(4, US_PER_DAY),
        n_changes=np.array([1, 1, 0, 1]),
    )
    np.testing.assert_allclose(calm_days(state, clocks), [0.0, 0.5, np.nan, -1.0])


def test_sums_merge_exactly_for_any_cut_and_order():
    rng = np.random.default_rng(1)
    n, k = 40, 3000
    forecast = _forecast(rng.gamma(0.5, 1.0, n) + 1e-6, rng.gamma(2.0, 2.0, n) + 0.1)
    calm = rng.integers(-1, CALM, n).astype(np.int16)
    page = np.sort(rng.integers(0, n, k))
    every = _intervals(page, rng.exponential(3.0, k) + 0.01, rng.random(k) < 0.4)
    whole = CellWatch(forecast, calm)
    whole(0, every)
    parts = []
    for low, high in ((17, 40), (0, 17)):
        part = CellWatch(forecast, calm)
        rows = np.flatnonzero((page >= low) & (page < high))
        for some in (rows[len(rows) // 2 :], rows[: len(rows) // 2]):
            moved = every.take(some)
            part(low, Intervals(moved.page - low, moved.at_us, moved.gap_us, moved.changed, None))
        parts.append(part.sums)
    assert parts[0].merge(parts[1]) == whole.sums == parts[1].merge(parts[0])
    assert whole.sums.crawls.sum() == (calm[page] != NO_CELL).sum()
    rate, information = forecast.change_rate_per_day[page], forecast.information[page]
    days = every.gap_us / US_PER_DAY
    unchanged = predict(rate, information, days)[0]
    cell = np.where(calm[page] == NO_CELL, -1, cells(calm[page], rate * days))
    for one in np.unique(cell[cell >= 0]):
        at_one = whole.sums.predicted[one, FACTORS.index(1.0)] * PROBABILITY_UNIT
        np.testing.assert_allclose(at_one, (1.0 - unchanged)[cell == one].sum(), rtol=1e-7)


def test_crawls_of_pages_with_signals_have_cells_of_their_own():
    forecast, cell = _forecast(np.ones(3), np.full(3, 4.0)), np.array([5, 5, 5], np.int16)
    intervals = _intervals(np.arange(3), np.ones(3), np.array([True, False, True]))
    full = np.ones(3)
    clocks = Clocks(np.array([True, True, False]), full, full * 4.0, np.array([1.0, 0.5, 1.0]), full, full)
    watch = CellWatch(forecast, cell)
    watch(0, intervals, clocks)
    crawls = watch.sums.crawls.reshape(KINDS, CELLS)
    assert [crawls[kind, 5 * _EXPECTED + 7] for kind in (PLAIN, QUIET, HEARD)] == [0, 1, 1]
    assert crawls.sum() == 2 and watch.sums.found.sum() == 1


def test_the_factor_predicts_what_was_found():
    """Much evidence in one cell: the root, whatever the cells around it say."""
    for p, share in ((0.4, 0.01), (0.3, 0.3), (0.2, 0.5)):
        n = 10**7
        track = Track.empty().add(1.0, _sums(30, n, round(n * share), p))
        factor = track.factors()[30]
        assert 1.0 - (1.0 - p) ** factor == pytest.approx(share, rel=1e-4)


def test_little_evidence_moves_little_and_cells_lend_to_each_other():
    nothing = Track.empty().factors()
    assert np.array_equal(nothing, np.ones(KINDS * CELLS))
    few = Track.empty().add(1.0, _sums(30, 3, 3, 0.1)).factors()
    assert 1.0 < few[30] < (1.0 + 3.0 / STRENGTH) ** 3
    many = Track.empty().add(1.0, _sums(30, 5000, 500, 0.5)).factors().reshape(KINDS, CELLS)
    row = slice(30 // _EXPECTED * _EXPECTED, 30 // _EXPECTED * _EXPECTED + _EXPECTED)
    assert many[PLAIN, 30] == many[PLAIN].min() < 0.3
    assert (many[PLAIN, row] < 0.5).all()  # the same calm
    assert (many[QUIET:] == 1.0).all()


def test_nothing_found_or_everything_stays_within_the_factors():
    for found, p in ((0, 0.5), (10**6, 0.5)):
        factors = Track.empty().add(1.0, _sums(3, 10**6, found, p)).factors()
        assert np.isfinite(factors).all()
        assert (factors >= FACTORS[0] * 0.999999).all() and (factors <= FACTORS[-1] * 1.000001).all()


def test_old_crawls_count_less():
    track = Track.empty().add(1.0, _sums(3, 1024, 100, 0.5))
    assert track.add(HALF_LIFE_DAYS, CellSums.empty()).crawls[3] == 512.0
    assert track.add(0.0, CellSums.empty()).crawls[3] == 1024.0
    once = track.add(2.0, CellSums.empty()).add(1.0, CellSums.empty())
    np.testing.assert_allclose(once.found, track.add(3.0, CellSums.empty()).found, rtol=1e-14)


def test_a_track_comes_back_from_a_manifest():
    track = Track.empty().add(1.0, _sums(3, 1000, 100, 0.5)).add(1.0, _sums(9, 77, 70, 0.8, HEARD))
    again = Track.from_json(json.loads(json.dumps(track.as_json())))
    for name in ("crawls", "found", "predicted"):
        assert np.array_equal(getattr(again, name), getattr(track, name))
    assert np.array_equal(again.factors(), track.factors())
    assert Track.from_json({}).crawls.sum() == 0.0
    other = track.as_json() | {"expected_edges": [1.0]}
    assert Track.from_json(other).crawls.sum() == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cell", [5, 3]),
        ("cell", [3, KINDS * CELLS]),
        ("cell", None),
        ("crawls", [1.0]),
        ("found", [1.0, float("nan")]),
        ("found", [1.0, -1.0]),
        ("predicted_at", [[1.0], [2.0]]),
        ("predicted_at", "x"),
    ],
)
def test_a_damaged_track_is_refused(name, value):
    track = Track.empty().add(1.0, _sums(3, 1000, 100, 0.5)).add(1.0, _sums(9, 77, 70, 0.8))
    with pytest.raises(ValueError):
        Track.from_json(track.as_json() | {name: value})


def test_factors_of_crawls():
    factors = np.arange(KINDS * CELLS, dtype=np.float64) + 1.0
    calm, expected = np.array([NO_CELL, 0, 2], np.int16), np.array([1.0, 0.0, 0.03])
    assert clock_factors(calm, expected, PLAIN, factors).tolist() == [1, 1, 2 + 2 * _EXPECTED]
    kinds = np.array([HEARD, HEARD, QUIET])
    assert clock_factors(calm, expected, kinds, factors).tolist() == [
        1,
        1 + 2 * CELLS,
        2 + 2 * _EXPECTED + CELLS,
    ]
    assert (clock_factors(calm, expected, PLAIN, None) == 1.0).all()


def _nights(pages: int, nights: int, stop_per_day: float, seed: int) -> tuple[np.ndarray, ...]:
    """Pages crawled daily, judged and recalibrated night by night.

    Rates are known from gamma posteriors of ten changes; pages stop changing for good at a rate that no
    forecast knows of. Returns what was predicted with and without factors, what was found, and the night.
    """
    rng = np.random.default_rng(seed)
    information = np.full(pages, 10.0)
    believed = rng.choice([0.05, 0.2, 0.6], pages)
    rate = believed * rng.gamma(10.0, 0.1, pages)
    lives_until = rng.exponential(1.0 / stop_per_day, pages) if stop_per_day else np.full(pages, np.inf)
    calm = np.zeros(pages)
    track, rows = Track.empty(), []
    for night in range(nights):
        row = calm_cells(calm, believed)
        factor = clock_factors(row, believed, PLAIN, track.factors())
        changed = rng.random(pages) < -np.expm1(-rate * (lives_until > night))
        forecast = _forecast(believed, information)
        watch = CellWatch(forecast, row)
        watch(0, _intervals(np.arange(pages), np.ones(pages), changed))
        plain, ours = (1.0 - predict(believed * f, information, np.ones(pages))[0] for f in (1.0, factor))
        rows.append((plain, ours, changed, np.full(pages, night)))
        track = track.add(1.0, watch.sums)
        calm = np.where(changed, 0.0, calm + 1.0)
    return tuple(np.concatenate(columns) for columns in zip(*rows, strict=True))


def _log_score(p: np.ndarray, changed: np.ndarray) -> float:
    return float(np.mean(np.log(np.where(changed, p, 1.0 - p))))


def test_pages_that_stop_end_up_calibrated():
    """In every decile of the second half within 4 standard errors; as rates predict them most are not."""
    plain, ours, changed, night = _nights(2000, 120, 1 / 60, 5)
    late = night >= 60
    plain, ours, changed = plain[late], ours[late], changed[late]

    def furthest(p: np.ndarray) -> float:
        place = np.searchsorted(np.quantile(p, np.arange(1, 10) / 10), p, side="right")
        z = [
            (changed[some] - p[some]).sum() / np.sqrt((p[some] * (1.0 - p[some])).sum())
            for some in (place == i for i in range(10))
            if some.any()
        ]
        return float(np.abs(z).max())

    assert furthest(plain) > 20.0
    assert abs((changed - ours).sum()) < 0.05 * changed.sum()
    assert _log_score(ours, changed) > _log_score(plain, changed) + 0.05
    assert furthest(ours) < 0.3 * furthest(plain)


def test_steady_pages_lose_nothing():
    """Factors fitted to chance alone cost a few nats, on however many crawls."""
    for pages in (50, 2000):
        plain, ours, changed, _ = _nights(pages, 80, 0.0, 6)
        assert _log_score(ours, changed) > _log_score(plain, changed) - 10.0 / len(changed)


def test_gain_is_the_difference_of_log_scores():
    rng = np.random.default_rng(5)
    k = 2000
    rate, h, days, factor = (np.exp(rng.uniform(low, high, k)) for low, high in
                             ((-7, 3), (-2, 5), (-4, 4), (-1.5, 1.5)))  # fmt: skip
    changed = rng.random(k) < 0.5

    def chance(f, i):
        return (1 + rate[i] * days[i] * f / h[i]) ** -h[i]

    forecast, at = Forecast(np.arange(k, dtype=np.int32), rate, h, np.ones(k)), np.arange(k)
    without = forecast.log_unchanged(at, days)
    gain = log_score_gain(forecast.log_unchanged(at, factor * days), without, changed, factor)
    for i in range(k):
        with_it, without = chance(factor[i], i), chance(1.0, i)
        if changed[i]:
            with_it, without = 1 - with_it, 1 - without
        expected = np.clip(math.log(with_it / without), -MOST_NATS, MOST_NATS)
        assert gain[i] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert (log_score_gain(without, without, changed, np.ones(k)) == 0.0).all()


@pytest.mark.parametrize("rate", [1e-300, 1e-30, 1e-9, 1e9])
@pytest.mark.parametrize("information", [1e-12, 1.0, 1e12])
def test_gain_is_finite_and_bounded(rate, information):
    forecast = Forecast(np.arange(4, dtype=np.int32), *(np.full(4, v) for v in (rate, information, 1.0)))
    changed, factor = np.array([True, False, True, False]), np.array([0.01, 0.01, 90.0, 90.0])
    with_it, without = (forecast.log_unchanged(np.arange(4), 3.0 * f) for f in (factor, np.ones(4)))
    gain = log_score_gain(with_it, without, changed, factor)
    assert np.isfinite(gain).all() and (np.abs(gain) <= MOST_NATS).all()
    assert (gain[:2] * [-1, 1] >= 0).all() and (gain[2:] * [1, -1] >= 0).all()
