"""Predictions against what crawls found: exact sums, unbiased shares, bounds that noise does not cross."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest
from scipy.integrate import quad

from policies.estimation.estimators import predict_unchanged
from policies.estimation.forecast import PROBABILITY_UNIT, Forecast, fresh_if_changed, predict
from policies.history.interval_sums import Intervals
from policies.judging.calibration import (
    BINS,
    EXPOSURE_UNIT,
    FACTORS,
    Bound,
    Judge,
    JudgedSums,
    Tally,
    calibrate,
    drifted,
)

DAY_US = 86_400_000_000
BOUND = Bound(z=4.0, rate_factor=1.25)


@pytest.mark.parametrize("information", [0.1, 0.9999999, 1.0, 1.0000001, 3.0, 250.0])
@pytest.mark.parametrize("changes", [1e-12, 1e-5, 0.03, 1.0, 40.0, 1e5])
def test_predictions_are_the_integrals_they_stand_for(information, changes):
    """`changes` is what the rate promises for the interval."""
    rate, days = changes / 7.0, 7.0
    unchanged, fresh = (v[0] for v in predict(*(np.array([x]) for x in (rate, information, days))))
    assert unchanged == pytest.approx((1 + changes / information) ** -information, rel=1e-12)
    assert unchanged == predict_unchanged(np.array([rate]), np.array([information]), days)[0]
    # In log time: the integrand falls early where there are many changes.
    expected = quad(
        lambda v: math.exp(v) * (1 + rate * days * math.exp(v) / information) ** -information,
        -45,
        0,
        epsabs=0,
        epsrel=1e-10,
        limit=500,
    )[0]
    assert fresh == pytest.approx(expected, rel=1e-8)
    share = fresh_if_changed(
        np.array([rate]), np.array([information]), np.array([days]), *predict(
            np.array([rate]), np.array([information]), np.array([days])
        ), None
    )  # fmt: skip
    assert 0.0 <= share[0] <= 0.5


@pytest.mark.parametrize(("information", "rate"), [(0.4, 0.3), (1.0, 2.0), (12.0, 0.5)])
def test_realised_freshness_is_unbiased(information, rate):
    """Rates as the posterior has them, changes as they fall: what counts is right on average."""
    rng = np.random.Generator(np.random.Philox(key=5))
    n = 400_000
    days = rng.uniform(0.2, 8.0, n)
    true = rng.gamma(information, rate / information, n)
    count = rng.poisson(true * days)
    first = days * (1.0 - rng.random(n) ** (1.0 / np.maximum(count, 1)))  # least of so many
    rest = (days - first) * (1.0 - rng.random(n) ** (1.0 / np.maximum(count - 1, 1)))
    last_age = np.where(count > 1, rest, days - first)  # by symmetry the last of the others
    changed = count > 0
    truth = np.where(changed, first, days)
    columns = np.full(n, rate), np.full(n, information), days
    unchanged, fresh = predict(*columns)
    for age_days in (None, np.where(changed, np.maximum(last_age, 1e-9), 0.0)):
        share = fresh_if_changed(*columns, unchanged, fresh, age_days)
        counted = np.where(changed, share * days, days)
        error = np.std(counted - truth) / math.sqrt(n)
        assert abs(np.mean(counted - truth)) < 4 * error
        # Within changed intervals, too; so it is not the unchanged ones that make it up.
        off = (counted - truth)[changed]
        assert abs(np.mean(off)) < 4 * np.std(off) / math.sqrt(len(off))
    assert np.mean(fresh * days) == pytest.approx(np.mean(truth), rel=0.01)


def _problem(seed=0, pages=700, rows=20_000, hosts=23):
    rng = np.random.Generator(np.random.Philox(key=seed))
    scheduled = rng.random(pages) < 0.8
    row = np.where(scheduled, np.cumsum(scheduled) - 1, -1).astype(np.int32)
    m = int(scheduled.sum())
    forecast = Forecast(row, rng.gamma(0.5, 1.0, m) + 1e-9, rng.gamma(2.0, 2.0, m) + 0.1, rng.pareto(1.0, m))
    host = np.sort(rng.integers(0, hosts, pages)).astype(np.int32)
    page = np.sort(rng.integers(0, pages, rows))
    gap = rng.integers(60_000_000, 9 * DAY_US, rows)
    changed = rng.random(rows) < 0.4
    age = np.where(changed & (rng.random(rows) < 0.5), (gap * rng.random(rows)).astype(np.int64) + 1, 0)
    return forecast, host, Intervals(page, np.cumsum(gap), gap, changed, np.minimum(age, gap - 1))


def _judge(forecast, host, intervals, cuts):
    """Judge in runs of pages that end at `cuts`."""
    judge = Judge(forecast, host)
    for low, high in zip([0, *cuts], [*cuts, len(host)], strict=True):
        at = slice(*np.searchsorted(intervals.page, [low, high]))
        columns = (intervals.at_us, intervals.gap_us, intervals.changed, intervals.age_us)
        judge(low, Intervals(intervals.page[at] - low, *(c[at] for c in columns)))
    return judge


def test_sums_are_the_plain_ones():
    """Against a loop over the intervals."""
    forecast, host, intervals = _problem(rows=3000)
    sums = _judge(forecast, host, intervals, []).sums()
    bins = np.zeros((BINS, 3))
    brier = variance = 0.0
    others = np.zeros(len(FACTORS))
    time, least, most = [], [], []
    by_host = np.zeros((host[-1] + 1, 4))
    unscheduled = 0
    for page, gap, changed, age in zip(
        intervals.page, intervals.gap_us, intervals.changed, intervals.age_us, strict=True
    ):
        row = forecast.row[page]
        if row < 0:
            unscheduled += 1
            continue
        days, h = gap / DAY_US, forecast.information[row]
        p = 1 - (1 + forecast.change_rate_per_day[row] * days / h) ** -h
        bins[min(int(10 * p), 9)] += 1, p, changed
        brier += (changed - p) ** 2
        variance += p * (1 - p)
        others += [1 - (1 + f * forecast.change_rate_per_day[row] * days / h) ** -h for f in FACTORS]
        by_host[host[page]] += 1, p, changed, 1 - (1 + 2 * forecast.change_rate_per_day[row] * days / h) ** -h
        time.append(days)
        least.append(0 if changed else days)
        most.append((gap - age) / DAY_US if changed else days)
    assert sums.not_scheduled == unscheduled > 100
    assert sums.bin_crawls == tuple(bins[:, 0]) and sums.bin_found == tuple(bins[:, 2])
    assert np.allclose(np.array(sums.bin_predicted) * PROBABILITY_UNIT, bins[:, 1], atol=1e-6)
    assert np.allclose(np.array(sums.predicted_at) * PROBABILITY_UNIT, others, atol=1e-6)
    assert sums.brier * PROBABILITY_UNIT == pytest.approx(brier, abs=1e-6)
    assert sums.variance * PROBABILITY_UNIT == pytest.approx(variance, abs=1e-6)
    for name, expected in (("held", time), ("least", least), ("most", most)):
        assert getattr(sums.time, name) * EXPOSURE_UNIT == pytest.approx(math.fsum(expected), rel=1e-9)
    assert sums.time.least < sums.time.found < sums.time.most < sums.time.held
    tally = sums.tally()
    assert (tally.crawls, tally.hosts) == (len(time), np.count_nonzero(by_host[:, 0]))
    f, e, d = by_host[:, 2], by_host[:, 1], by_host[:, 3] - by_host[:, 1]
    expected = [np.sum(a * b) for a, b in combinations_with_replacement((f, e, d), 2)]
    assert np.allclose(tally.products, expected, atol=1e-3, rtol=1e-9)


@pytest.mark.parametrize("cuts", [[1], [350], list(range(1, 700, 7)), list(range(1, 700))])
def test_sums_do_not_depend_on_how_pages_are_cut(cuts):
    forecast, host, intervals = _problem()
    whole, cut = (_judge(forecast, host, intervals, c) for c in ([], cuts))
    assert cut.sums() == whole.sums()
    assert cut.furthest(5) == whole.furthest(5)


def test_sums_of_whole_hosts_merge_in_any_order():
    forecast, host, intervals = _problem()
    whole = _judge(forecast, host, intervals, []).sums()
    parts = []
    for j in range(host[-1] + 1):
        low, high = np.searchsorted(host, [j, j + 1])
        at = slice(*np.searchsorted(intervals.page, [low, high]))
        judge = Judge(
            Forecast(
                forecast.row[low:high], forecast.change_rate_per_day, forecast.information, forecast.weight
            ),
            np.zeros(high - low, np.int32),
        )
        columns = (intervals.at_us, intervals.gap_us, intervals.changed, intervals.age_us)
        judge(0, Intervals(intervals.page[at] - low, *(c[at] for c in columns)))
        parts.append(judge.sums())
    for order in (parts, parts[::-1], parts[1::2] + parts[::2]):
        total = JudgedSums()
        for part in order:
            total = total.merge(part)
        assert total == whole


def test_weights_of_any_size_are_counted():
    """Pages that weigh a trillion, and more than a double holds: cut, never wrapped around."""
    row = np.arange(3, dtype=np.int32)
    forecast = Forecast(row, np.full(3, 0.1), np.ones(3), np.array([1e12, 1.0, np.inf]))
    gap = np.full(3, DAY_US)
    judge = Judge(forecast, np.zeros(3, np.int32))
    judge(0, Intervals(np.arange(3), gap, gap, np.array([True, False, False]), None))
    requests = judge.sums().requests
    assert requests.held == 2**84 + 10**12 * 2**40 + 2**40
    assert requests.least == 2**84 + 2**40


def _tally(found, predicted, crawls):
    """Sums of hosts on which all crawls had one known rate."""
    found, predicted = np.asarray(found, float), np.asarray(predicted, float)
    chance = float(predicted.sum() / crawls)
    others = tuple(crawls * (1 - (1 - chance) ** f) for f in FACTORS)
    columns = found, predicted, predicted * (1 - chance)
    return Tally(
        crawls,
        int(found.sum()),
        crawls * chance,
        others,
        crawls * chance * (1 - chance),
        len(found),
        tuple(float(a @ b) for a, b in combinations_with_replacement(columns, 2)),
    )


def test_one_wild_host_does_not_stand_for_all():
    predicted = np.full(100, 10.0)
    found = predicted.copy()
    found[3] = 800.0  # a template that changed; the others are as they were
    tally = _tally(found, predicted, 4000)
    independent = (found.sum() - 1000) / math.sqrt(tally.variance)
    assert independent > 20 and found.sum() / 1000 > 1.5
    assert calibrate(tally).z < 1.5
    assert not drifted(tally, BOUND)


@pytest.mark.parametrize("hosts", [1, 2, 100])
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_a_shift_that_hosts_share_is_found_on_any_number_of_them(hosts, factor):
    predicted = np.full(hosts, 1000.0 / hosts)
    tally = _tally(predicted * factor, predicted, 4000)
    assert abs(calibrate(tally).z) > 15
    assert drifted(tally, BOUND)


def test_changes_that_come_together_do_not_alarm():
    """Hosts with good and bad nights: independent crawls would be 6 standard errors off in many nights."""
    rng = np.random.Generator(np.random.Philox(key=11))
    naive = robust = 0
    for _ in range(400):
        predicted = rng.gamma(2.0, 10.0, 40)
        found = rng.poisson(predicted * rng.gamma(1.0, 1.0, 40))
        tally = _tally(found, predicted, int(6 * predicted.sum()))
        naive += abs(tally.found - tally.predicted) > 4 * math.sqrt(tally.variance)
        robust += drifted(tally, BOUND)
    assert naive > 80
    assert robust <= 4


@pytest.mark.parametrize(
    ("found", "predicted", "crawls", "beyond"),
    [
        (130_000, 100_000, 1_000_000, True),
        (101_000, 100_000, 1_000_000, False),  # 3 standard errors for certain, and 1 % that nobody needs
        (118_000, 100_000, 1_000_000, False),  # rates a fifth higher: no schedule is much worse for it
        (70_000, 100_000, 1_000_000, True),
        (36, 24, 200, False),  # 1.5 times as many, by chance
        (19, 2, 2000, False),  # too few changes
        (90, 10, 99, False),  # too few crawls
        (0, 0, 1000, False),
        (60, 0, 1000, False),  # nothing was predicted, so nothing is said
    ],
)
def test_each_part_of_the_bound_is_needed(found, predicted, crawls, beyond):
    """On one host, where only independent crawls count."""
    assert drifted(_tally([found], [predicted], crawls), BOUND) is beyond


def test_hosts_that_all_change_at_every_visit_share_that():
    """Twice the share on one host and half as much again on another: no sign that hosts differ."""
    rng = np.random.Generator(np.random.Philox(key=2))
    host = np.sort(rng.integers(0, 12, 900)).astype(np.int32)
    rate = np.exp(rng.normal(size=12))[host]
    forecast = Forecast(np.arange(900, dtype=np.int32), rate, np.full(900, 8.0), np.ones(900))
    gap = np.full(900, DAY_US)
    judge = Judge(forecast, host)
    judge(0, Intervals(np.arange(900), gap, gap, np.ones(900, np.bool_), None))
    tally = judge.sums().tally()
    assert drifted(tally, Bound(z=6.0, rate_factor=2.0))
    assert calibrate(tally).rate_factor == 2.0


@pytest.mark.parametrize("factor", [0.3, 0.5, 0.7, 0.9, 1.0, 1.1, 1.6, 1.9])
@pytest.mark.parametrize("chance", [0.01, 0.3, 0.9])
def test_the_factor_on_rates_is_found_where_a_ratio_of_changes_cannot_be_high(factor, chance):
    crawls = 100_000
    tally = _tally([round(crawls * (1 - (1 - chance) ** factor))], [crawls * chance], crawls)
    found = calibrate(tally)
    assert found.rate_factor == pytest.approx(factor, abs=0.01)
    assert found.ratio < 1.12 or chance < 0.9
    assert drifted(tally, BOUND) == (not 0.8 < factor < 1.25)


def test_nothing_judged_is_nothing_said():
    empty = Judge(Forecast(np.full(4, -1, np.int32), *[np.zeros(0)] * 3), np.zeros(4, np.int32))
    gap = np.full(2, DAY_US)
    empty(1, Intervals(np.array([0, 2]), gap, gap, np.array([True, False]), None))
    assert empty.sums() == JudgedSums(not_scheduled=2)
    assert empty.furthest(3) == []
    assert calibrate(empty.sums().tally()) is None
    assert empty.sums().time.share("found") is None
