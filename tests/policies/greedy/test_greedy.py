"""Greedy nights of one shard: the picks of a full argmax, limits kept, the optimum in the long run."""

from dataclasses import replace

import numpy as np
import pytest

from policies.greedy import greedy
from policies.greedy.value_curves import ValueCurves
from policies.history.page_state import US_PER_DAY
from policies.objectives import objectives
from policies.objectives.objectives import Objective
from policies.sequencing.quotas import slot_offsets_us
from policies.sequencing.sequencing import REASONS
from policies.sequencing.shard_pages import ShardPages
from policies.signalled.pages import SignalPages
from tests.policies.greedy_shards import make, naive, without_limits

KINDS = {
    "plain": {},
    "ties": {"ties": True},
    "memoryless": {"objective": "memoryless", "spread": 3.0},
    "discrete": {"objective": "discrete", "ties": True},
    "harmonic": {"objective": "harmonic"},
    "new": {"new": 0.4},
    "only_new": {"new": 1.0, "hosts": 5},
    "hosts": {"hosts": 6},
    "many_hosts": {"hosts": 60, "new": 0.2, "ties": True},
    "one_host": {"hosts": 1},
    "signals": {"signals": 0.5},
    "signals_hosts": {"signals": 0.9, "hosts": 10, "ties": True},
    "floors": {"floors": 0.3, "hosts": 4},
    "caps": {"caps": 0.4, "ties": True},
    "everything": {"signals": 0.3, "floors": 0.2, "caps": 0.2, "new": 0.2, "hosts": 12, "ties": True},
    "backlog": {"age": 20.0, "spread": 2.0},
    "all_fresh": {"age": 0.0},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "slots"), [(1, 5), (40, 100), (700, 300)])
def test_the_picks_of_a_full_argmax(kind, n, slots):
    for seed in range(2 if n < 700 else 1):
        key = [n, slots * 100 + seed]
        rng = np.random.Generator(np.random.Philox(key=key))
        shard = make(rng, n, slots, **KINDS[kind])
        page, due = naive(shard)
        got = greedy.sequence(*shard.arguments())
        np.testing.assert_array_equal(got.page, page)
        np.testing.assert_array_equal(got.due_offset_us, due)


def test_equal_pages_go_by_hash_each_once():
    n = 1500
    same = np.full(n, 2.0)
    tie = np.random.Generator(np.random.Philox(key=3)).integers(0, 2**63, n).astype(np.uint64)
    for days in (1.0, np.inf):  # with inf no page gains anything by waiting
        age = np.full(n, days)
        pages = ShardPages(same, age, np.zeros(n, np.bool_), same, tie)
        curves = ValueCurves.of(objectives.get("periodic"), same, same, age)
        got = greedy.sequence(pages, curves, slot_offsets_us([300], 0, US_PER_DAY), US_PER_DAY)
        np.testing.assert_array_equal(got.page, np.argsort(tie)[:300])


@pytest.mark.parametrize("kind", ["plain", "hosts", "everything"])
def test_pages_are_evaluated_only_when_they_can_matter(kind):
    """A full argmax evaluates 20,000 pages a slot."""
    rng = np.random.Generator(np.random.Philox(key=11))
    shard = make(rng, 20_000, 4_000, **KINDS[kind] | {"ties": False})
    got = greedy.sequence(*shard.arguments())
    assert got.counters["evaluated"] < 200 * 4_000


@pytest.mark.parametrize("seed", range(4))
def test_limits_are_kept_and_the_budget_is_spent(seed):
    rng = np.random.Generator(np.random.Philox(key=seed))
    shard = make(rng, 3000, 2000, hosts=50, caps=0.2, floors=0.1, new=0.2, signals=0.2)
    got = greedy.sequence(*shard.arguments())
    used = np.flatnonzero(got.page >= 0)
    page, due = got.page[used], got.due_offset_us[used]
    latest = np.append(shard.offsets[1:] - 1, shard.horizon_us - 1)
    assert np.all(got.due_offset_us >= shard.offsets) and np.all(got.due_offset_us <= latest)
    host = np.repeat(np.arange(50), np.diff(shard.pages.host_start))
    for j in range(50):
        times = due[host[page] == j]
        assert times.size <= shard.pages.host_max_slots[j]
        assert np.all(times >= shard.pages.host_free_at_us[j])
        assert times.size < 2 or np.diff(times).min() >= shard.pages.host_gap_us[j]
    order = np.lexsort((due, page))
    again = np.flatnonzero(np.diff(page[order]) == 0)
    apart = (due[order][again + 1] - due[order][again]) / US_PER_DAY
    assert np.all(apart >= 1.0 / shard.cap[page[order][again]] - 1e-9)
    assert used.size == got.counters["used"]
    np.testing.assert_array_equal(got.expected, np.bincount(page, minlength=3000))
    assert np.count_nonzero(shard.pages.is_new[page]) <= 2000 - np.count_nonzero(~shard.pages.is_new[page])
    free = greedy.sequence(*without_limits(shard).arguments())
    assert free.counters["empty"] == 0


def test_a_limited_host_is_crawled_all_night():
    rng = np.random.Generator(np.random.Philox(key=5))
    shard = make(rng, 500, 1000, hosts=2, age=5.0)
    pages = replace(
        shard.pages,
        host_start=np.array([0, 250, 500]),
        host_gap_us=np.zeros(2, np.int64),
        host_max_slots=np.array([100, 2**40]),
        host_free_at_us=np.zeros(2, np.int64),
    )
    got = greedy.sequence(pages, shard.curves, shard.offsets, shard.horizon_us)
    of_host = got.due_offset_us[got.page < 250]
    assert of_host.size == 100 and got.counters["empty"] == 0
    np.testing.assert_array_equal(np.histogram(of_host, 10, (0, US_PER_DAY))[0], np.full(10, 10))


def test_floors_are_met():
    n, slots = 400, 400
    rng = np.random.Generator(np.random.Philox(key=8))
    shard = make(rng, n, slots, horizon_us=4 * US_PER_DAY, age=0.0)
    floor = np.where(np.arange(n) < 40, 1.0, 0.0)
    curves = replace(shard.curves, scale=np.where(floor > 0.0, 0.0, shard.curves.scale))
    got = greedy.sequence(shard.pages, curves, shard.offsets, shard.horizon_us, floor)
    for i in range(40):
        times = np.concatenate(([0.0], got.due_offset_us[got.page == i] / US_PER_DAY, [4.0]))
        assert np.diff(times).max() < 1.0 + 41 * 4 / slots  # all of them are due at once


def test_rows_in_any_order_give_the_same_schedule():
    rng = np.random.Generator(np.random.Philox(key=6))
    shard = make(rng, 800, 500, ties=True, new=0.2)
    names = ("crawl_rate_per_day", "days_since_last", "is_new", "crawl_value", "tie")
    for name in names:
        getattr(shard.pages, name).setflags(write=False)
    shard.curves.days.setflags(write=False)
    shard.curves.signals.setflags(write=False)
    first = greedy.sequence(*shard.arguments())
    mixed = rng.permutation(800)
    pages = ShardPages(*(getattr(shard.pages, name)[mixed] for name in names))
    second = greedy.sequence(pages, shard.curves.take(mixed), shard.offsets, shard.horizon_us)
    np.testing.assert_array_equal(first.page, mixed[second.page])
    np.testing.assert_array_equal(first.reason, second.reason)
    np.testing.assert_array_equal(first.owed[mixed], second.owed)


def test_a_signal_puts_a_page_first_once():
    n = 50
    one = np.ones(n)
    change = 0.2 * one
    days = np.linspace(0.1, 1.0, n)
    some = SignalPages.from_rates(one[:1], change[:1], np.array([0.9]), np.array([0.01]))
    curves = ValueCurves.of(objectives.get("signals"), change, one, days)
    told = curves.with_signals(np.array([0]), some, np.array([1.0]))
    by_signal = np.arange(n) == 0
    pages = ShardPages(
        np.where(by_signal, 10.0, 1.0), days, ~by_signal & by_signal, one, np.arange(n, dtype=np.uint64)
    )
    pages = replace(pages, by_signal=by_signal)
    offsets = slot_offsets_us([10], 0, US_PER_DAY)
    silent = greedy.sequence(pages, curves, offsets, US_PER_DAY)
    heard = greedy.sequence(pages, told, offsets, US_PER_DAY)
    assert 0 not in silent.page
    assert heard.page[0] == 0 and np.count_nonzero(heard.page == 0) == 1
    assert REASONS[heard.reason[0]] == "signal"


def test_curves_are_the_crawl_values_of_the_objectives_and_their_bounds_hold():
    rng = np.random.Generator(np.random.Philox(key=2))
    n = 300
    change, request = np.exp(2.0 * rng.normal(size=n)), rng.random(n)
    rows, none = np.arange(n), np.zeros(n)
    for objective in [*map(objectives.get, objectives.NAMES), objectives.Discrete(0.25)]:
        curves = ValueCurves.of(objective, change, request, none)
        for days in (1.0, 2.5, 40.0):
            age = np.full(n, days)
            value = curves.value(rows, age, none)
            np.testing.assert_allclose(value, objective.crawl_value(change, request, age), rtol=1e-13)
            assert np.all(value <= curves.start() * days**2 * (1 + 1e-12))
    some = SignalPages.from_rates(request, change, rng.choice([0.0, 0.5, 1.0], n), rng.choice([0.0, 0.3], n))
    curves = ValueCurves.of(objectives.get("signals"), change, request, none).with_signals(rows, some, none)
    for told in (0.0, 2.0):
        signals = np.full(n, told)
        for first in (0.0, 0.3, 3.0):
            for length in (0.01, 0.2):
                t = first + length * np.linspace(0.0, 1.0, 9)
                v = np.array([curves.value(rows, np.full(n, day), signals) for day in t])
                y = np.linspace(0.0, 1.0, 9)[:, None]
                curve = v[0] + y * (4 * v[4] - v[8] - 3 * v[0]) + y * y * 2 * (v[0] + v[8] - 2 * v[4])
                bend = curves.bend(rows, np.full(n, t[0]), np.full(n, t[-1]), signals)
                assert np.all(np.abs(v - curve) <= bend * length**3 * 0.00802 + 1e-11 * v[-1])


def test_thirty_nights_reach_the_rates_and_the_freshness_of_the_optimum():
    rng = np.random.Generator(np.random.Philox(key=30))
    n, slots = 300, 600
    change, request = rng.gamma(1.0, size=n) * 2.0 + 0.05, rng.gamma(0.7, size=n) + 0.02
    goal = objectives.get("periodic")
    low, high = 1e-9, 1e3
    for _ in range(200):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if goal.rate(middle, change, request).sum() > slots else (low, middle)
    rate = goal.rate(low, change, request)
    last = -rng.random(n) / np.maximum(rate, 0.1)
    tie, new = np.arange(n, dtype=np.uint64), np.zeros(n, np.bool_)
    offsets = slot_offsets_us([slots], 0, US_PER_DAY)
    crawls, fresh, warm_up, nights = np.zeros(n), np.zeros(n), 10, 40
    for night in range(nights):
        days = night - last
        curves = ValueCurves.of(goal, change, request, days)
        pages = ShardPages(rate, days, new, goal.crawl_value(change, request, days), tie)
        got = greedy.sequence(pages, curves, offsets, US_PER_DAY)
        assert got.counters["used"] == slots
        for page, at in zip(
            got.page.tolist(), (night + got.due_offset_us / US_PER_DAY).tolist(), strict=True
        ):
            if night >= warm_up:
                begin = max(last[page], warm_up)
                fresh[page] += np.exp(-change[page] * (begin - last[page])) - np.exp(
                    -change[page] * (at - last[page])
                )
                crawls[page] += 1
            last[page] = at
    begin = np.maximum(last, warm_up)
    fresh += np.exp(-change * (begin - last)) - np.exp(-change * (nights - last))
    span = nights - warm_up
    # Near starving a little of the level moves rates a lot: between those of a multiplier 10 % off.
    assert np.all(crawls > goal.rate(1.1 * low, change, request) * span - 2.5)
    assert np.all(crawls < goal.rate(low / 1.1, change, request) * span + 2.5)
    easy = (rate * span > 20.0) & (change < 3.0 * rate)
    assert easy.sum() > 50 and np.all(np.abs(crawls[easy] / (rate[easy] * span) - 1.0) < 0.05)
    reached = np.sum(request * fresh / change) / span
    best = np.sum(request * goal.freshness(rate, change))
    assert 0.99 * best < reached < 1.001 * best


def test_no_pages_no_slots():
    rng = np.random.Generator(np.random.Philox(key=1))
    assert greedy.sequence(*make(rng, 0, 4).arguments()).page.tolist() == [-1] * 4
    assert greedy.sequence(*make(rng, 4, 0).arguments()).page.size == 0


def test_an_objective_without_a_known_curve():
    class Other(objectives.Harmonic):
        name = "other"

    class Unknown(Objective):
        name = "unknown"
        demand = freshness = _slope = lambda self, *_: None

    one = np.ones(1)
    assert ValueCurves.of(Other(), one, one, one).scale.size == 1
    with pytest.raises(ValueError, match=r"greedy sequencing knows no crawl value in time of .*'unknown'"):
        ValueCurves.of(Unknown(), one, one, one)
