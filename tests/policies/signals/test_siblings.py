"""Siblings: exact sums in any order, the clock that they give, and when it is believed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.estimation.forecast import PROBABILITY_UNIT, Forecast
from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME
from policies.judging.calibration import Judge
from policies.signals.siblings import (
    GAIN_UNIT,
    HALF_LIFE_DAYS,
    KEPT_DAYS,
    SiblingDays,
    SiblingWatch,
    day_of,
    log_score_gain,
)

DAY_US = 86_400_000_000
TODAY = 20_000
COLUMNS = ("group", "day", "found", "expected", "gain")


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def _rows(seed, k=400, groups=9):
    rng = _rng(seed)
    return [
        rng.integers(0, groups, k),
        TODAY - rng.integers(0, 30, k),
        rng.integers(0, 50, k),
        rng.integers(0, 50 << 32, k),
        rng.integers(-(1 << 40), 1 << 40, k),
    ]


def _equal(one, other):
    return all(np.array_equal(getattr(one, n), getattr(other, n)) for n in COLUMNS)


def _days(group, day, found, expected, gain):
    """Rows in plain numbers: changes, changes, nats."""
    group, day, found = (np.asarray(v, np.int64) for v in (group, day, found))
    units = (np.rint(np.asarray(v, float) / u).astype(np.int64) for v, u in zip(
        (expected, gain), (PROBABILITY_UNIT, GAIN_UNIT), strict=True
    ))  # fmt: skip
    return SiblingDays.gather(group, day, found, *units)


def test_rows_gather_in_any_order_and_cut():
    rows = _rows(1)
    whole = SiblingDays.gather(*rows)
    order = _rng(2).permutation(len(rows[0]))
    assert _equal(SiblingDays.gather(*(v[order] for v in rows)), whole)
    for cut in (0, 1, 137, 400):
        parts = [SiblingDays.gather(*(v[at] for v in rows)) for at in (slice(cut), slice(cut, None))]
        assert _equal(parts[0].merge(parts[1]), whole) and _equal(parts[1].merge(parts[0]), whole)
    assert [int(v.sum()) for v in (whole.found, whole.expected, whole.gain)] == [
        int(v.sum()) for v in rows[2:]
    ]


def test_rows_out_of_order_are_refused():
    one = np.array([1, 0])
    with pytest.raises(ValueError, match="ascending"):
        SiblingDays(one, one, one, one, one)
    with pytest.raises(ValueError, match="rows"):
        SiblingDays(one, one, one, one, one[:1])


def test_the_clock_counts_the_days_between():
    """Against a loop, also before, after and in between the days that are known, and for unknown groups."""
    days = SiblingDays.gather(*_rows(3, groups=5))
    rng = _rng(4)
    n = 500
    group = rng.integers(0, 8, n)
    after = TODAY - rng.integers(-5, 45, n)
    after[:9] = day_of(np.full(9, NO_TIME))
    before = np.where(rng.random(n) < 0.5, TODAY + 5, after + rng.integers(-3, 20, n))
    found, expected = days.between(group, after, before)
    factor = days.clock_factor(group, after, before)
    for i in range(n):
        use = (days.group == group[i]) & (days.day > after[i]) & (days.day < before[i])
        x, e = int(days.found[use].sum()), int(days.expected[use].sum()) * PROBABILITY_UNIT
        assert (found[i], expected[i]) == (x, pytest.approx(e, abs=1e-9))
        assert factor[i] == pytest.approx((2 + x) / (2 + e), rel=1e-12)
    assert (factor[group > 4] == 1.0).all() and (factor[group < 5] != 1.0).any()


def test_days_are_forgotten_after_ninety():
    days = _days(
        [0, 0, 1], [TODAY - KEPT_DAYS - 1, TODAY - KEPT_DAYS, TODAY], [1, 2, 3], [1, 1, 1], [0, 0, 0]
    )
    assert days.since(TODAY).found.tolist() == [2, 3]


def test_gain_is_the_difference_of_log_scores():
    rng = _rng(5)
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
        assert gain[i] == pytest.approx(math.log(with_it / without), rel=1e-6, abs=1e-9)
    assert (log_score_gain(without, without, changed, np.ones(k)) == 0.0).all()


@pytest.mark.parametrize("rate", [1e-300, 1e-30, 1e-9, 1e9])
@pytest.mark.parametrize("information", [1e-12, 1.0, 1e12])
def test_gain_is_finite_and_bounded(rate, information):
    forecast = Forecast(np.arange(4, dtype=np.int32), *(np.full(4, v) for v in (rate, information, 1.0)))
    changed, factor = np.array([True, False, True, False]), np.array([0.01, 0.01, 90.0, 90.0])
    with_it, without = (forecast.log_unchanged(np.arange(4), 3.0 * f) for f in (factor, np.ones(4)))
    gain = log_score_gain(with_it, without, changed, factor)
    assert np.isfinite(gain).all() and (np.abs(gain) <= 1024).all()
    assert (gain[:2] * [-1, 1] >= 0).all() and (gain[2:] * [1, -1] >= 0).all()


def _night(seed=0, pages=300, rows=4000, groups=7):
    rng = _rng(seed)
    scheduled = rng.random(pages) < 0.8
    row = np.where(scheduled, np.cumsum(scheduled) - 1, -1).astype(np.int32)
    m = int(scheduled.sum())
    forecast = Forecast(row, rng.gamma(0.5, 0.3, m) + 1e-6, rng.gamma(2.0, 2.0, m) + 0.1, np.ones(m))
    group = np.sort(rng.integers(0, groups, pages)).astype(np.int32)
    page = np.sort(rng.integers(0, pages, rows))
    gap = rng.integers(60_000_000, 9 * DAY_US, rows)
    at = TODAY * DAY_US - rng.integers(0, 2 * DAY_US, rows)
    return forecast, group, Intervals(page, at, gap, rng.random(rows) < 0.4, None)


def _watch(forecast, group, before, intervals, counted, cuts=()):
    watch = SiblingWatch(forecast, group, before, counted)
    for low, high in zip([0, *cuts], [*cuts, len(group)], strict=True):
        at = slice(*np.searchsorted(intervals.page, [low, high]))
        part = (intervals.at_us[at], intervals.gap_us[at], intervals.changed[at])
        watch(low, Intervals(intervals.page[at] - low, *part, None))
    return watch


def test_a_night_is_counted_as_a_loop_would():
    forecast, group, intervals = _night()
    before = SiblingDays.gather(*_rows(6, groups=7))
    counted = np.ones(7, np.bool_)
    counted[2] = False
    watch = _watch(forecast, group, before, intervals, counted)
    days = watch.days(TODAY)
    expected: dict[tuple[int, int], list[float]] = {}
    for i in range(len(before)):
        at = (int(before.group[i]), int(before.day[i]))
        expected[at] = [before.found[i], before.expected[i] * PROBABILITY_UNIT, before.gain[i] * GAIN_UNIT]
    tonight = 0.0
    for page, at, gap, changed in zip(
        intervals.page, intervals.at_us, intervals.gap_us, intervals.changed, strict=True
    ):
        row, g = forecast.row[page], int(group[page])
        if row < 0 or not counted[g]:
            continue
        rate, h = forecast.change_rate_per_day[row], forecast.information[row]
        day, first = int(at // DAY_US), int((at - gap) // DAY_US)
        use = (before.group == g) & (before.day > first) & (before.day < day)
        x, e = before.found[use].sum(), before.expected[use].sum() * PROBABILITY_UNIT
        chances = []
        for f in ((2 + x) / (2 + e), 1.0):
            unchanged = (1 + rate * gap / DAY_US * f / h) ** -h
            chances.append(1 - unchanged if changed else unchanged)
        entry = expected.setdefault((g, day), [0, 0.0, 0.0])
        entry[0] += changed
        entry[1] += 1 - (1 + rate * gap / DAY_US / h) ** -h
        entry[2] += math.log(chances[0] / chances[1])
        tonight += math.log(chances[0] / chances[1])
    assert list(zip(days.group.tolist(), days.day.tolist(), strict=True)) == sorted(expected)
    table = np.array([expected[k] for k in sorted(expected)])
    assert days.found.tolist() == table[:, 0].tolist()
    assert np.allclose(days.expected * PROBABILITY_UNIT, table[:, 1], atol=1e-6, rtol=0)
    assert np.allclose(days.gain * GAIN_UNIT, table[:, 2], atol=1e-5, rtol=0)
    assert watch.gain * GAIN_UNIT == pytest.approx(tonight, abs=1e-5)


@pytest.mark.parametrize("cuts", [[1], [150], list(range(1, 300, 7))])
def test_a_night_does_not_depend_on_how_pages_are_cut(cuts):
    forecast, group, intervals = _night()
    before = SiblingDays.gather(*_rows(6, groups=7))
    counted = np.ones(7, np.bool_)
    one, cut = (_watch(forecast, group, before, intervals, counted, c) for c in ((), cuts))
    assert _equal(cut.days(TODAY), one.days(TODAY)) and cut.gain == one.gain


def test_what_is_found_and_expected_is_what_is_judged():
    """The same crawls, the same probabilities, to the last unit."""
    forecast, group, intervals = _night()
    judge = Judge(forecast, group)
    judge(0, intervals)
    days = _watch(forecast, group, SiblingDays.empty(), intervals, np.ones(7, np.bool_)).days(TODAY)
    for j in range(7):
        sums, mine = judge.host(j), days.group == j
        assert int(days.found[mine].sum()) == sums.found
        assert abs(int(days.expected[mine].sum()) - sums.predicted) <= sums.crawls  # a unit each


def test_a_crawl_is_no_sibling_of_itself():
    """On the day of a page's last crawl, and on the day it is judged, nothing counts for it."""
    days = _days([0, 0, 0], [TODAY - 5, TODAY - 3, TODAY - 1], [50, 7, 90], [1, 1, 1], [0, 0, 0])
    factor = days.clock_factor(np.array([0]), np.array([TODAY - 5]), np.array([TODAY - 1]))
    assert factor[0] == 9 / 3


def test_gains_count_less_with_age():
    days = _days([0, 1], [TODAY, TODAY - int(HALF_LIFE_DAYS)], [0, 0], [0, 0], [8.0, 8.0])
    gain, best = days.gains(3, TODAY)
    assert gain.tolist() == pytest.approx([8.0, 4.0, 0.0])
    assert best.tolist() == pytest.approx([8.0, 4.0, 0.0])


def test_the_best_day_is_the_one_that_counts_most_tonight():
    """10 nats sixty days ago are 2.5; a group that only ever lost has no best day."""
    days = _days([0, 0, 0, 1, 1], TODAY - np.array([60, 30, 0, 1, 0]), [0] * 5, [0] * 5, [10, 6, 2, -4, -1])
    gain, best = days.gains(2, TODAY)
    assert gain[0] == pytest.approx(2.5 + 3.0 + 2.0) and best.tolist() == pytest.approx([3.0, 0.0])


@pytest.mark.parametrize(
    ("gains", "pays"),
    [
        ([500.0], False),  # one lucky day
        ([500.0, 2.9], False),
        ([500.0, 3.2], True),
        ([2.0, 1.5, 1.4], False),  # 4.9 nats, 2.9 of them without the best day
        ([2.0, 1.8, 1.4], True),
        ([0.3] * 10, False),
        ([0.3] * 14, True),
        ([0.5] * 30 + [-7.5], True),  # of a night on which all predictions were off
        ([0.5] * 20 + [-7.5], False),
        ([-3.0] * 9, False),
    ],
)
def test_what_must_be_seen_before_it_is_believed(gains, pays):
    k = len(gains)
    days = _days([1] * k, TODAY - np.arange(k), [0] * k, [0] * k, gains)
    assert days.pays(2, TODAY).tolist() == [False, pays]


def _history(seed, groups, share, nights=60, pages=60):
    """Groups whose pages are crawled at random, judged by rates that are right on average.

    Every tenth day or so a group has an event that changes `share` of its pages; the rest of their changes
    come one by one. The forecasts know the mean rate of both together.
    """
    rng = _rng(seed)
    n = groups * pages
    group = np.repeat(np.arange(groups, dtype=np.int32), pages)
    single, event = 0.1 - 0.1 * share, 0.1
    rate = np.full(n, single - np.log1p(-share) * event if share else 0.1)
    forecast = Forecast(np.arange(n, dtype=np.int32), rate, np.full(n, 1e6), np.ones(n))
    counted = np.ones(groups, np.bool_)
    days, last, changed = SiblingDays.empty(), np.zeros(n, np.int64), np.zeros(n, np.bool_)
    on = []
    for night in range(1, nights):
        changed |= rng.random(n) < -np.expm1(-single)
        if share:
            changed |= np.repeat(rng.random(groups) < -np.expm1(-event), pages) & (rng.random(n) < share)
        page = np.flatnonzero(rng.random(n) < 0.3)
        gap = (night - last[page]) * DAY_US
        watch = SiblingWatch(forecast, group, days, counted)
        watch(0, Intervals(page, np.full(len(page), (TODAY + night) * DAY_US), gap, changed[page], None))
        days = watch.days(TODAY + night)
        last[page], changed[page] = night, False
        on.append(days.pays(groups, TODAY + night))
    return days, np.array(on)


def test_it_is_off_where_pages_change_alone():
    """200 groups, 60 nights: in a night one group in 2,000 at most is on by chance."""
    days, on = _history(1, 200, share=0.0)
    gain = days.gains(200, TODAY + 59)[0]
    assert gain.mean() < -4 * gain.std() / math.sqrt(200)  # there the rule costs
    assert on.mean() < 0.0005


def test_it_is_on_where_pages_change_together():
    days, on = _history(2, 60, share=0.6)
    gain = days.gains(60, TODAY + 59)[0]
    assert gain.mean() > 4 * gain.std() / math.sqrt(60)
    assert on[-1].mean() > 0.9 and on[:3].mean() == 0.0  # a night to find something, and two days of gains
