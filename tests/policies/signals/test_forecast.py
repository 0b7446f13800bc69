"""Crawls of pages with signals against what was expected given the signals that came."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad

from policies.estimation.forecast import PROBABILITY_UNIT, Forecast, fresh_if_changed, predict
from policies.history.history import fold
from policies.history.interval_sums import Intervals
from policies.history.page_state import Forgetting, PageState
from policies.judging.calibration import BINS, Judge
from policies.signals.fold import SignalFold
from policies.signals.forecast import HeardIntervals, SignalForecast
from policies.signals.state import SignalState
from tests.policies.crawl_rows import DAY, FOREVER, SECOND, START, Row, observations, row, signals_of
from tests.policies.signal_simulation import simulate

KNOWN = 1e12  # information of what is known for certain
HOUR = 3600 * SECOND


def forecast_for(
    n: int, rate: Any, weight: Any, of_rate: Any = KNOWN, of_weight: Any = KNOWN, change: Any = 1.0
) -> SignalForecast:
    """n pages, `weight` (S,) or (n, S)."""
    weight = np.broadcast_to(np.asarray(weight, float), (n, np.shape(weight)[-1]))
    full = (np.broadcast_to(np.asarray(v, float), n).copy() for v in (change, rate, of_rate))
    information = np.broadcast_to(np.asarray(of_weight, float), weight.shape)
    return SignalForecast(np.arange(n, dtype=np.int32), *full, weight.copy(), information.copy())


def heard_of(
    days: np.ndarray,
    number: np.ndarray,
    changed: np.ndarray | None = None,
    age_days: np.ndarray | None = None,
    page: np.ndarray | None = None,
) -> HeardIntervals:
    """Intervals of `days`, with `number` (k, S) signals, those of a source evenly from start to end."""
    k = len(days)
    gap = np.maximum((days * DAY).astype(np.int64), 60 * SECOND)
    age = np.zeros(k, np.int64)
    if age_days is not None:
        age = np.minimum((age_days * DAY).astype(np.int64), gap - 1)
    page = np.arange(k) if page is None else page
    interval, source = np.nonzero(number)
    intervals = Intervals(page, START + gap, gap, np.zeros(k, bool) if changed is None else changed, age)
    return HeardIntervals(
        intervals,
        np.zeros(k, np.int64),
        interval,
        source.astype(np.int32),
        number[interval, source].astype(np.int64),
        (START + gap)[interval],
    )


def moments(days: np.ndarray, at_days: list[np.ndarray], **columns: Any) -> HeardIntervals:
    """Intervals with signals of one source, at those days of each."""
    heard = heard_of(days, np.zeros((len(days), 1), np.int64), **columns)
    interval = np.repeat(np.arange(len(days)), [len(a) for a in at_days])
    at = np.concatenate([*at_days, np.zeros(0)])
    return HeardIntervals(
        heard.intervals,
        heard.unheard_us,
        interval,
        np.zeros(len(at), np.int32),
        np.ones(len(at), np.int64),
        START + (at * DAY).astype(np.int64),
    )


def judged(forecast: SignalForecast, heard: HeardIntervals, with_signals: bool = True) -> Judge:
    """A judge that has seen all intervals; every page is on one host."""
    n = len(forecast.row)
    plain = Forecast(forecast.row, forecast.change_rate_per_day, np.full(n, KNOWN), np.ones(n))
    judge = Judge(plain, np.zeros(n, np.int32))
    if with_signals:
        judge(0, *forecast.clocks(heard))
    else:
        judge(0, heard.intervals)
    return judge


def off_by_bin(judge: Judge) -> np.ndarray:
    """Changes found minus predicted in each bin, in standard errors; bins of 100 crawls and more."""
    sums = judge.sums()
    crawls, found = np.array(sums.bin_crawls), np.array(sums.bin_found)
    predicted = np.array(sums.bin_predicted) * PROBABILITY_UNIT
    p = predicted / np.maximum(crawls, 1)
    return ((found - predicted) / np.sqrt(np.maximum(crawls * p * (1 - p), 1.0)))[crawls >= 100]


def test_predictions_hold_in_every_bin_and_do_not_without_the_signals():
    """Two sources, one good and one bad; pages picked by their signals, as a schedule does."""
    rng = np.random.Generator(np.random.Philox(key=1))
    rate = rng.uniform(0.02, 0.8, 800)
    web = simulate(2, rate, 60, np.array([0.8, 0.1]), np.array([0.5, 0.1]), mean_gap=2.0)
    picked = np.flatnonzero((web.signals[:, 0] > 0) | (rng.random(len(web.gap)) < 0.3))
    heard = heard_of(web.gap[picked], web.signals[picked], web.changed[picked], page=web.page[picked])
    forecast = forecast_for(len(rate), web.unsignalled, web.weight, change=rate)
    off = off_by_bin(judged(forecast, heard))
    assert len(off) == BINS and np.abs(off).max() < 4.0
    assert np.abs(off_by_bin(judged(forecast, heard, with_signals=False))).max() > 10.0


@pytest.mark.parametrize(("of_rate", "of_weight"), [(2.0, 6.0), (9.0, 3.0), (1.5, 1.5)])
def test_predictions_hold_where_rate_and_weight_are_uncertain(of_rate, of_weight):
    """They are gamma variables that know nothing of each other; errors are those of the night's crawls."""
    rng = np.random.Generator(np.random.Philox(key=3))
    n = 60_000
    rate, weight = np.exp(rng.normal(-1.5, 1.0, n)), np.exp(rng.normal(-0.3, 0.8, (n, 1)))
    days, number = rng.exponential(3.0, n) + 0.1, rng.poisson(0.7, (n, 1))
    u = rate * rng.gamma(of_rate, 1 / of_rate, n) * days
    u += (weight * rng.gamma(of_weight, 1 / of_weight, (n, 1)) * number)[:, 0]
    changed = rng.random(n) < -np.expm1(-u)
    forecast = forecast_for(n, rate, weight, of_rate, of_weight)
    assert np.abs(off_by_bin(judged(forecast, heard_of(days, number, changed)))).max() < 4.0


def test_without_signals_in_it_an_interval_is_judged_like_any_other():
    rng = np.random.Generator(np.random.Philox(key=4))
    n = 500
    rate, h = rng.gamma(0.6, 1.0, n) + 1e-6, rng.gamma(2.0, 2.0, n) + 0.2
    days = np.floor(rng.exponential(4.0, n) * 1e6) / 1e6 + 0.01
    age = np.where(rng.random(n) < 0.5, rng.random(n) * days, 0.0)
    heard = heard_of(days, np.zeros((n, 1), np.int64), age > -1, age)
    intervals, clocks = forecast_for(n, rate, [[0.3]], h, change=rate).clocks(heard)
    days = intervals.gap_us / DAY
    unchanged, fresh = predict(rate, h, days)
    assert clocks.rate_per_day == pytest.approx(rate, rel=1e-12)
    assert clocks.information == pytest.approx(h, rel=1e-12)
    assert clocks.by_time == pytest.approx(np.ones(n))
    assert clocks.fresh == pytest.approx(fresh, rel=1e-9)
    expected = fresh_if_changed(rate, h, days, unchanged, fresh, intervals.age_us / DAY)
    assert clocks.fresh_if_changed == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("information", [0.5, 1.0, 7.0, 1e6])
def test_freshness_is_the_integral_it_stands_for(information):
    """Piece by piece, by quadrature."""
    days, rate, weight = 9.0, 0.15, 0.8
    at = np.array([1.0, 4.5, 8.0])
    only = forecast_for(1, 1e-30, [[weight]], KNOWN, information)
    both = forecast_for(1, rate, [[weight]], information, information)
    for forecast, a in ((only, 0.0), (both, rate)):
        _, clocks = forecast.clocks(moments(np.array([days]), [at]))
        h = float(clocks.information[0])
        assert clocks.rate_per_day[0] * days == pytest.approx(a * days + 3 * weight)

        def still(t: float, a: float = a, h: float = h) -> float:
            return (1 + (a * t + weight * np.count_nonzero(at <= t)) / h) ** -h

        expected = quad(still, 0, days, points=list(at), epsrel=1e-10)[0] / days
        assert clocks.fresh[0] == pytest.approx(expected, rel=1e-6)
        given = (expected - still(days)) / (1 - still(days))
        assert clocks.fresh_if_changed[0] == pytest.approx(given, rel=1e-5)


def _simulated(
    days: np.ndarray, at: list[np.ndarray], rate: np.ndarray, weight: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First change and last change of each interval (its length where there is none), and whether one is."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    first, last = days.copy(), days.copy()
    changed = np.zeros(len(days), np.bool_)
    for i, moments_ in enumerate(at):
        silent = rng.random(rng.poisson(rate[i] * days[i])) * days[i]
        true = moments_[rng.random(len(moments_)) < -math.expm1(-weight[i])]
        changes = np.concatenate([silent, true])
        if len(changes):
            first[i], last[i], changed[i] = changes.min(), changes.max(), True
    return first, last, changed


@pytest.mark.parametrize("case", ["known", "dated", "uncertain"])
def test_realised_freshness_is_unbiased(case):
    """Changes as they fall, crawls soon after the last signal; what counts is right on average."""
    rng = np.random.Generator(np.random.Philox(key=6))
    n = 40_000
    at = [np.sort(np.floor(rng.random(rng.poisson(1.5)) * 6e6) / 1e6) for _ in range(n)]
    days = np.array([a[-1] + 0.25 if len(a) else 6.0 for a in at])
    h = 2.0 if case == "uncertain" else KNOWN
    rate = np.full(n, 1e-30 if case == "uncertain" else 0.1)
    scale = rng.gamma(h, 1 / h, n) if case == "uncertain" else np.ones(n)
    first, last, changed = _simulated(days, at, rate, 0.9 * scale, seed=7)
    age = np.where(changed & (case == "dated"), days - last, 0.0)
    heard = moments(days, at, changed=changed, age_days=np.maximum(age, 0.0))
    _, clocks = forecast_for(n, rate, [[0.9]], KNOWN, h).clocks(heard)
    counted = np.where(changed, clocks.fresh_if_changed * days, days)
    off = counted - first
    assert abs(off.mean()) < 4 * off.std() / math.sqrt(n)
    assert abs(off[changed].mean()) < 4 * off[changed].std() / math.sqrt(changed.sum())
    promised = (clocks.fresh * days - first).mean()
    assert abs(promised) < 4 * np.std(first) / math.sqrt(n)
    # As if changes came evenly: copies would seem much staler than they are.
    even = (1 - np.exp(-clocks.rate_per_day * days)) / (clocks.rate_per_day * days)
    assert (even * days - first).mean() < -0.1 * first.mean()


def test_before_anybody_listened_all_changes_were_unsignalled():
    heard = heard_of(np.full(3, 10.0), np.zeros((3, 1), np.int64))
    unheard = np.array([0, 4 * DAY, 10 * DAY])
    heard = replace(heard, unheard_us=unheard)
    _, clocks = forecast_for(3, 0.1, [[0.5]], change=0.6).clocks(heard)
    assert clocks.rate_per_day * 10 == pytest.approx([1.0, 0.6 + 2.4, 6.0])


def test_signals_of_a_source_that_was_not_heard_of_leave_nothing_to_compare():
    number = np.array([[1, 0], [0, 1], [0, 0]])
    heard = heard_of(np.full(3, 2.0), number, np.array([True, True, False]))
    forecast = forecast_for(3, 0.1, [[0.5, np.nan]])
    _, clocks = forecast.clocks(heard)
    assert list(clocks.known) == [True, False, True]
    sums = judged(forecast, heard).sums()
    assert (sums.not_scheduled, sums.crawls) == (1, 2)
    assert sum(sums.bin_found) == 1
    assert sum(sums.bin_predicted) * PROBABILITY_UNIT == pytest.approx(2 - math.exp(-0.7) - math.exp(-0.2))


def test_what_is_expected_of_a_page_depends_on_it_alone():
    rng = np.random.Generator(np.random.Philox(key=8))
    k = 3000
    page = np.sort(rng.integers(0, 400, k))
    number = rng.poisson(0.6, (k, 3))
    changed = rng.random(k) < 0.5
    age = np.where(changed & (rng.random(k) < 0.5), rng.random(k), 0.0)
    heard = heard_of(rng.exponential(2.0, k) + 1.1, number, changed, age, page)
    weight = rng.gamma(1.0, 1.0, (400, 3))
    forecast = forecast_for(400, rng.random(400), weight, rng.gamma(2.0, 2.0, 400) + 0.1, weight + 1.0)
    whole = forecast.clocks(heard)[1]
    for low, high in ((0, 1), (17, 260), (1500, 3000)):
        part = forecast.clocks(heard.of(np.arange(low, high)))[1]
        for name in part.__dataclass_fields__:
            assert getattr(part, name).tobytes() == getattr(whole, name)[low:high].tobytes(), name


def test_no_number_is_lost_at_the_ends_of_the_range():
    """Rates of nearly nothing and weights that leave no doubt."""
    rate, weight = np.array([1e-30, 1e-30, 1e9, 0.1]), np.array([[1e-30], [1e9], [0.5], [1e-9]])
    days, number = np.array([1e-3, 900.0, 900.0, 1e-3]), np.array([[1], [3000], [0], [1]])
    heard = heard_of(days, number, np.ones(4, bool))
    _, clocks = forecast_for(4, rate, weight, [0.1, KNOWN, 3.0, 1e-3], [[0.1]]).clocks(heard)
    for name in clocks.__dataclass_fields__:
        assert np.isfinite(getattr(clocks, name).astype(float)).all(), name
    assert ((clocks.fresh >= 0) & (clocks.fresh <= 1)).all() and (clocks.rate_per_day > 0).all()


# ---- what the fold tells of the signals in each interval


def _log(seed: int) -> tuple[list[Row], list[tuple[int, int, int]]]:
    rng = np.random.Generator(np.random.Philox(key=seed))
    rows = [
        row(int(p), int(START + t * DAY), digest=int(d))
        for p, t, d in zip(
            rng.integers(0, 30, 400), rng.uniform(0, 20, 400), rng.integers(1, 4, 400), strict=True
        )
    ]
    signals = [
        (int(p), int(START + t * DAY), int(s))
        for p, t, s in zip(
            rng.integers(0, 30, 600), rng.uniform(0, 20, 600), rng.integers(0, 3, 600), strict=True
        )
    ]
    return rows, signals


def _nights(ends: list[int], seed: int = 9, pages: int = 30) -> tuple[dict, SignalState, int]:
    """Signals by (page, time) of every interval that was heard, over nights that end then."""
    rows, signals = _log(seed)
    state, history = SignalState.empty(), PageState.empty(pages)
    found: dict[tuple[int, int], tuple[int, list[int], int]] = {}
    dropped = 0
    begin = 0
    for end in ends:
        mine = [r for r in rows if begin < r["at"] <= end]
        news = [s for s in signals if begin < s[1] <= end]
        host = (np.arange(pages) // 10).astype(np.int32)
        fold_ = SignalFold(state, signals_of(news), history, host, end)
        listened = fold_.listens()
        history, _ = fold(history, observations(mine), end, watch=fold_)
        state, counts = fold_.finish(history, Forgetting())
        dropped += counts["signals_counted"]
        for heard in fold_.heard:
            number = heard.counts(3).astype(int)
            inside = heard.intervals
            assert listened[inside.page].all()
            began = inside.at_us - inside.gap_us
            assert (heard.last_at_us <= inside.at_us[heard.interval]).all()
            assert (heard.last_at_us > began[heard.interval]).all()
            for i in range(len(inside.page)):
                key = int(inside.page[i]), int(inside.at_us[i])
                assert key not in found
                found[key] = int(heard.unheard_us[i]), number[i].tolist(), int(inside.changed[i])
        begin = end
    return found, state, dropped


def test_signals_of_intervals_are_those_of_the_state_and_of_one_night():
    one, state, counted = _nights([FOREVER])
    several = _nights([int(START + d * DAY + 12 * HOUR) for d in (2, 5, 6, 13)] + [FOREVER])[0]
    assert set(several) <= set(one) and len(one) > 150
    # Nights before its era do not watch a page; later ones agree, to the number.
    missing = [one[key] for key in set(one) - set(several)]
    assert all(unheard > 0 and not any(number) for unheard, number, _ in missing)
    assert all(several[key] == one[key] for key in several)
    by_change = np.zeros(2, np.int64)
    for unheard, number, changed in one.values():
        if unheard == 0:
            by_change[changed] += sum(number)
    assert by_change.tolist() == [state.unchanged.sum(), (state.total - state.unchanged).sum()]
    assert sum(sum(number) for _, number, _ in one.values()) + state.pending.sum() <= counted
