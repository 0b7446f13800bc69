"""One price for all sources: what follows from it, and that it is kept to."""

from dataclasses import replace

import numpy as np
import pytest

from policies.discovery.lifetimes import CLASS_HOURS, discounted, worth_of_now
from policies.discovery.planner import LASTING, WORTH_HOURS
from policies.discovery.pricing import ROUNDS, Bracket, Clock, Recrawling, Waiting, choose, spaced

HOSTS = 40


def waiting(n: int = 400, seed: int = 0) -> tuple[Waiting, np.ndarray, np.ndarray, np.ndarray]:
    """Sources with their keys, the first row of each host, and limits of hosts."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    share = rng.dirichlet(np.ones(len(CLASS_HOURS)), n)
    since = np.where(rng.random(n) < 0.2, np.inf, rng.exponential(12.0, n))
    away = np.where(rng.random(n) < 0.1, rng.random(n) * 30.0, 0.0)
    made = Waiting(rng.pareto(1.2, n), share, since, away, away * rng.random(n), 0.5, 24.0)
    start = np.append(0, np.sort(rng.choice(np.arange(1, n), HOSTS - 1, replace=False)))
    most = np.where(rng.random(HOSTS) < 0.5, rng.integers(0, 12, HOSTS), 1 << 40)
    return made, rng.integers(1, 2**63, n).astype(np.uint64), np.append(start, n), most


def worth(one: Waiting, hours: np.ndarray) -> np.ndarray:
    soon = worth_of_now(one.share, hours, discounted(CLASS_HOURS, WORTH_HOURS))
    late = worth_of_now(one.share, hours, CLASS_HOURS)
    return one.per_hour * (soon + LASTING * (late - soon))


def searched(one: Waiting, start: np.ndarray, most: np.ndarray, refreshes: int) -> tuple[Bracket, int]:
    bracket = Bracket()
    for _ in range(ROUNDS):
        prices = bracket.prices()
        low, high = bracket.around(one.totals(prices, start, most), refreshes)
        bracket = Bracket(prices[low], prices[high])
    return bracket, int(one.totals(bracket.prices(), start, most)[-1])


@pytest.mark.parametrize("price", [0.01, 0.3, 4.0])
def test_at_its_distance_a_refresh_is_worth_the_price(price: float) -> None:
    one, *_ = waiting()
    distance = one.distances(np.full(len(one), price))
    inside = np.isfinite(distance) & (distance > one.least_hours)
    assert inside.sum() > 20
    assert worth(one, distance)[inside] == pytest.approx(price, rel=4e-3)
    # Where it is never worth it, it is not after months either.
    assert (worth(one, np.full(len(one), 4000.0))[np.isinf(distance)] < price).all()
    short = distance == one.least_hours
    assert (worth(one, distance)[short] >= price * 0.99).all()


def test_refreshes_fall_as_the_price_rises_and_batches_add_up() -> None:
    one, _, start, most = waiting()
    prices = np.geomspace(1e-6, 1e5, 40)
    total = one.totals(prices, start, most)
    assert (np.diff(total) <= 0).all() and total[0] > total[-1] == 0
    cut = int(start[HOSTS // 2])
    parts = [
        one.take(np.arange(*ends)).totals(prices, start[some] - ends[0], most[limits])
        for ends, some, limits in (
            ((0, cut), slice(0, HOSTS // 2 + 1), slice(0, HOSTS // 2)),
            ((cut, len(one)), slice(HOSTS // 2, None), slice(HOSTS // 2, None)),
        )
    ]
    assert (sum(parts) == total).all()


@pytest.mark.parametrize("refreshes", [0, 1, 37, 500, 2000])
def test_all_of_a_budget_is_spent_within_the_limits_of_hosts(refreshes: int) -> None:
    one, key, start, most = waiting()
    bracket, at_high = searched(one, start, most, refreshes)
    chosen = choose(one, bracket, refreshes - at_high, key, start, most)
    of_host = np.add.reduceat(chosen.count, start[:-1])
    assert chosen.count.sum() == refreshes and (of_host <= most).all()
    full = (of_host == most)[np.repeat(np.arange(HOSTS), np.diff(start))]
    # Who is left out elsewhere is not worth the price, but for ties that a few refreshes are drawn from.
    wait = one.waits(one.distances(np.full(len(one), bracket.high * 1.001)))
    assert (chosen.count[~full & (wait < one.span - 1e-9)] > 0).all()
    if full.any():
        assert (chosen.price[full] >= bracket.high).all()


def test_hosts_at_their_limit_have_a_price_of_their_own() -> None:
    one, key, start, _ = waiting()
    most = np.full(HOSTS, 1 << 40)
    most[3] = 2
    bracket, at_high = searched(one, start, most, 600)
    chosen = choose(one, bracket, 600 - at_high, key, start, most)
    mine = slice(start[3], start[4])
    assert chosen.count[mine].sum() == 2
    assert (chosen.price[mine] > bracket.high).all() and (
        np.delete(chosen.price, np.r_[mine]) == bracket.high
    ).all()


def test_instants_are_the_counts_and_no_time_is_crowded() -> None:
    one, key, start, most = waiting()
    bracket, at_high = searched(one, start, most, 480)
    chosen = choose(one, bracket, 480 - at_high, key, start, most)
    made = one.instants(chosen, key, 2.0)
    row, due = made.row, made.due
    assert (np.bincount(row, minlength=len(one)) == chosen.count).all()
    assert (np.diff(due) >= 24.0 / 960 - 1e-9).all() and due[0] >= 0.0 and due[-1] < 24.0
    hour = np.bincount(due.astype(int), minlength=24)
    assert hour.max() <= 2 * 480 / 24 + 1


def test_the_clock_runs_as_links_come_and_back() -> None:
    speed = 1.0 + 0.6 * np.sin(np.arange(24) / 24 * 2 * np.pi)
    clock = Clock(speed)
    at = 490_000.0 + np.arange(0, 100, 0.37)
    assert clock.instants(clock.reading(at)) == pytest.approx(at, abs=1e-8)
    assert np.diff(clock.reading(490_008.0 + np.arange(0, 96, 24.0))) == pytest.approx(24.0)
    hours = 24 * 20_000 + np.arange(25.0)
    assert np.diff(clock.reading(hours)) == pytest.approx(speed / speed.mean())


def test_instants_that_would_pass_the_end_come_earlier() -> None:
    assert spaced(np.array([0.0, 0.0, 0.5, 9.9, 9.9]), 1.0, 10.0).tolist() == [0.0, 1.0, 2.0, 9.0, 10.0]


@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_with_recrawls_at_one_price_a_right_price_stays_and_more_links_take_more(scale: float) -> None:
    """The price is where both ask for the budget; crawls of pages are right at last night's price."""
    one, _, start, most = waiting()
    price = 0.3
    refreshes = int(one.totals(np.array([price]), start, most)[0])
    pages = Recrawling(400.0, multiplier=0.6, new_page_worth=2.0)
    assert pages.asked(price) == pytest.approx(400.0)
    more = replace(one, per_hour=one.per_hour * scale)
    bracket = Bracket()
    for _ in range(ROUNDS):
        prices = bracket.prices()
        both = more.totals(prices, start, most) + np.ceil(pages.asked(prices)).astype(np.int64)
        low, high = bracket.around(both, refreshes + 400)
        bracket = Bracket(prices[low], prices[high])
    found = int(more.totals(np.array([bracket.high]), start, most)[0])
    if scale == 1.0:
        assert bracket.high == pytest.approx(price, rel=0.01) and found == pytest.approx(refreshes, abs=3)
    else:
        assert (found > refreshes) == (scale > 1.0) == (bracket.high > price)
    assert found + float(pages.asked(bracket.high)) == pytest.approx(refreshes + 400, abs=3)


def test_who_failed_is_due_as_if_it_had_not_and_from_then_on_by_its_odds() -> None:
    one, _, start, most = waiting()
    rng = np.random.Generator(np.random.Philox(key=7))
    odds = np.where(rng.random(len(one)) < 0.4, rng.random(len(one)), 1.0)
    failed = replace(one, per_hour=one.per_hour * odds, odds=odds)
    for price in (0.01, 0.3, 4.0):
        at = np.full(len(one), price)
        first = failed.firsts(at, failed.distances(at))
        assert failed.waits(first) == pytest.approx(one.waits(one.distances(at)), rel=1e-9)
        asked, before = failed.asked(at), one.asked(at)
        assert ((asked > 0) == (before > 0)).all() and (asked <= before).all()
        assert (asked == before)[odds == 1.0].all() and (asked < before)[odds < 0.5].any()
    prices = np.geomspace(1e-3, 1e3, 9)
    whole = failed.totals(prices, np.arange(len(one) + 1), np.full(len(one), 1 << 40))
    assert whole.tolist() == [failed.asked(np.full(len(one), p)).sum() for p in prices]
    assert (np.diff(failed.totals(prices, start, most)) <= 0).all()


def test_what_is_away_is_asked_when_its_own_distance_and_its_absence_say() -> None:
    one = waiting()[0].take(np.arange(4))
    away, waited = np.array([2.0, 50.0, 800.0, 0.0]), np.array([1.0, 10.0, 0.0, 0.0])
    one = replace(one, since=np.full(4, 1e4), away=away, waited=waited)
    # Distances double, and where nothing is known of how often the source is worth a refresh, too.
    assert one.waits(np.full(4, 1e3)).tolist() == [1.0, 40.0, 800.0, 0.0]
    assert one.waits(np.full(4, 8.0)) == pytest.approx([1.0, 10.0, 80.0, 0.0])
