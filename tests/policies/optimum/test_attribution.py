"""Parts add up, mirror when the nights are swapped, vanish without a difference, and name the true cause."""

import functools
from dataclasses import replace

import numpy as np
import pytest

from policies.numerics.errors import InfeasibleError
from policies.objectives import objectives
from policies.optimum import attribution, search
from policies.optimum.attribution import (
    AIM,
    CAUSES,
    CHANGE,
    HOST,
    MULTIPLIER,
    PAGE,
    SIGNALS,
    WEIGHT,
    RateInputs,
    SignalQuality,
)
from policies.optimum.result import Status
from policies.signalled.pages import SignalPages
from tests.policies.problems import Problem, random_problem
from tests.policies.signal_problems import SignalProblem, random_signal_problem


def solved(problem: Problem, objective: objectives.Objective) -> RateInputs:
    """A night, as its outputs would tell: rates, and host prices read off them."""
    result, parts = search.solve([problem.block()], objective, problem.budget)
    rates, limit = parts[0].crawl_rate_per_day, parts[0].limit
    price = np.zeros(rates.size)
    if problem.sizes is not None:
        held = limit == search.LIMIT_NAMES.index("host")
        host = problem.host_of()
        prices = attribution.host_prices(
            objective, problem.change, problem.request, rates, host, held, problem.sizes.size
        )
        price = prices[host]
    nothing = result.status is Status.ALL_AT_FLOOR or problem.budget == 0.0
    multiplier = np.inf if nothing else result.multiplier
    return RateInputs(objective, multiplier, problem.change, problem.request, rates, price)


def later(problem: Problem, seed: int) -> Problem:
    """The next night: a few pages and everything else somewhat different."""
    rng = np.random.Generator(np.random.Philox(key=seed + 10_000))

    def shaken(values: np.ndarray | None) -> np.ndarray | None:
        if values is None:
            return None
        return np.where(
            rng.random(values.size) < 0.5, values * 10.0 ** rng.uniform(-1, 1, values.size), values
        )

    moved = replace(
        problem,
        change=shaken(problem.change),
        request=shaken(problem.request),
        limit=shaken(problem.limit),
        cap=shaken(problem.cap),
        budget=problem.budget * float(rng.choice([0.3, 1.0, 2.0])),
    )
    if moved.floor is not None and moved.cap is not None:
        moved = replace(moved, cap=np.maximum(moved.floor, moved.cap))
    return moved


def pairs() -> list[tuple[RateInputs, RateInputs]]:
    found = []
    for seed in range(30):
        for name in objectives.NAMES:
            problem = random_problem(seed)
            objective = objectives.get(name)
            try:
                found.append((solved(problem, objective), solved(later(problem, seed), objective)))
            except InfeasibleError:
                continue
    return found


@pytest.fixture(scope="module")
def nights() -> list[tuple[RateInputs, RateInputs]]:
    found = pairs()
    assert len(found) > 50
    assert any((a.host_price > 0).any() for a, _ in found)
    return found


def scale(parts: np.ndarray, *sides: RateInputs) -> np.ndarray:
    return np.abs(parts).sum(axis=0) + sum(side.crawl_rate_per_day for side in sides)


def test_parts_add_up(nights):
    for before, after in nights:
        parts = attribution.attribute(before, after)
        total = after.crawl_rate_per_day - before.crawl_rate_per_day
        assert np.isfinite(parts).all()
        assert (np.abs(parts.sum(axis=0) - total) <= 1e-12 * scale(parts, before, after)).all()


def test_swapped_nights_negate(nights):
    for before, after in nights:
        there, back = attribution.attribute(before, after), attribution.attribute(after, before)
        assert (np.abs(there + back) <= 1e-12 * scale(there, before, after)).all()


def test_identical_nights_have_no_parts(nights):
    for before, _ in nights:
        assert not attribution.attribute(before, before).any()


def plain(n: int = 50, **more) -> Problem:
    rng = np.random.Generator(np.random.Philox(key=5))
    return Problem(10.0 ** rng.uniform(-2, 1, n), 10.0 ** rng.uniform(-2, 2, n), 20.0, **more)


HOSTS = {"sizes": np.array([10, 15, 25]), "limit": np.array([np.inf, 3.0, np.inf])}
LOOSE = {"sizes": HOSTS["sizes"], "limit": np.full(3, np.inf)}


@pytest.mark.parametrize("name", objectives.NAMES)
@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (plain(), replace(plain(), budget=10.0), MULTIPLIER),
        (plain(**HOSTS), replace(plain(**HOSTS), budget=10.0), MULTIPLIER),
        (plain(cap=np.full(50, 0.3)), replace(plain(cap=np.full(50, 0.3)), budget=8.0), MULTIPLIER),
        (plain(floor=np.full(50, 0.1)), replace(plain(floor=np.full(50, 0.1)), budget=8.0), MULTIPLIER),
        (plain(), replace(plain(), change=plain().change * np.where(np.arange(50) == 4, 0.7, 1)), CHANGE),
        (plain(), replace(plain(), request=plain().request * np.where(np.arange(50) == 4, 0.7, 1)), WEIGHT),
    ],
    ids=[
        "budget",
        "budget with a host at its limit",
        "budget with caps",
        "budget with floors",
        "change",
        "weight",
    ],
)
def test_one_move_has_one_cause(before, after, cause, name):
    """Besides the cause itself only the multiplier may move, or the price within a host."""
    objective = objectives.get(name)
    parts = attribution.attribute(solved(before, objective), solved(after, objective))
    total = np.abs(parts).sum(axis=1)
    assert total[cause] > 0
    innocent = {CHANGE, WEIGHT, HOST, PAGE, AIM} - {cause, MULTIPLIER}
    assert total[list(innocent)].sum() <= 1e-6 * total[cause]


@pytest.mark.parametrize("name", objectives.NAMES)
def test_a_new_host_limit_is_the_host_limits_doing(name):
    objective = objectives.get(name)
    before, after = plain(**LOOSE), plain(**HOSTS)
    parts = attribution.attribute(solved(before, objective), solved(after, objective))
    mine = before.host_of() == 1
    assert parts[HOST, mine].sum() < 0 and not parts[HOST, ~mine].any()
    assert np.abs(parts[HOST, mine]).sum() > 2 * np.abs(parts[MULTIPLIER, mine]).sum()
    assert (parts[MULTIPLIER, ~mine] >= -1e-9).all()


def test_a_new_cap_is_the_pages_own_limit():
    objective = objectives.get("periodic")
    cap = np.full(50, np.inf)
    cap[33] = 0.01
    before, after = solved(plain(), objective), solved(plain(cap=cap), objective)
    assert before.crawl_rate_per_day[33] > 0.1
    parts = attribution.attribute(before, after)
    assert parts[PAGE, 33] == pytest.approx(0.01 - before.crawl_rate_per_day[33], rel=0.2)
    assert not np.delete(parts[PAGE], 33).any()


def test_a_budget_that_limits_left_unspent():
    """Multiplier 0: the host limit did all, then the budget did."""
    objective = objectives.get("periodic")
    limit = np.array([5.0, 3.0, 4.0])
    rich = solved(plain(sizes=HOSTS["sizes"], limit=limit), objective)
    poor = solved(replace(plain(sizes=HOSTS["sizes"], limit=limit), budget=1.0), objective)
    assert rich.multiplier == 0.0
    parts = attribution.attribute(rich, poor)
    assert np.abs(parts[[CHANGE, WEIGHT, PAGE]]).sum() <= 1e-6
    assert parts[MULTIPLIER].sum() == pytest.approx(-11.0, rel=0.05)


def test_other_units_are_one_cause():
    one = solved(plain(), objectives.get("periodic"))
    two = solved(replace(plain(), request=plain().request * 1e6), objectives.get("periodic"))
    parts = attribution.attribute(one, two, same_units=False)
    assert np.abs(parts).max() <= 1e-6
    other = solved(plain(), objectives.get("memoryless"))
    parts = attribution.attribute(one, other)
    assert parts[AIM].any() and not np.delete(parts, [AIM], axis=0).any()


def test_price_of_a_closed_host_is_what_nobody_pays():
    objective = objectives.get("periodic")
    zeros, ones = np.zeros(2), np.ones(2)
    price = attribution.host_prices(
        objective, ones, np.array([3.0, 7.0]), zeros, np.array([0, 0]), np.array([True, True]), 2
    )
    assert price.tolist() == [7.0, 0.0]


def test_pages_that_no_crawl_helps_tell_no_price():
    """Floors may have such pages crawled at a host that is at its limit."""
    weight, ones = np.array([0.0, 0.0, 8.0]), np.ones(3)
    price = attribution.host_prices(
        objectives.get("memoryless"), ones, weight, ones, np.zeros(3, np.int64), ones > 0.0, 1
    )
    assert price == pytest.approx([2.0])


def test_price_of_a_host_is_that_of_most_pages():
    """Pages at scaled floors, which count as held as well, have other marginal values."""
    ones = np.ones(6)
    weight = np.array([4.0, 20.0, 20.0, 20.0, 36.0, 400.0])  # values are a quarter of it
    held = np.array([True, True, True, True, True, False])
    price = attribution.host_prices(
        objectives.get("memoryless"), ones, weight, ones, np.array([1, 1, 1, 1, 1, 0]), held, 2
    )
    assert price == pytest.approx([0.0, 5.0])


def test_causes_have_names():
    assert len(CAUSES) == AIM + 1


WITH_SIGNALS = objectives.get("signals")


def quality_of(problem: SignalProblem) -> SignalQuality:
    """What pages/ tells of signals."""
    n, pages = problem.plain.change.size, problem.pages
    precision, recall = np.zeros(n), np.zeros(n)
    precision[problem.row] = -np.expm1(-pages.signal_weight)
    change = pages.change_rate_per_day
    signalled = precision[problem.row] * pages.signal_rate_per_day
    recall[problem.row] = np.where(change > 0.0, signalled / np.where(change > 0.0, change, 1.0), 0.0)
    return SignalQuality(precision, np.minimum(recall, 1.0))


def solved_with_signals(problem: SignalProblem) -> tuple[RateInputs, search.Allocation, float]:
    """A night with signals, what it allocated, and its multiplier."""
    plain, quality = problem.plain, quality_of(problem)
    result, (found,) = search.solve([problem.block()], WITH_SIGNALS, problem.budget)
    rates, price = found.crawl_rate_per_day, np.zeros(plain.change.size)
    if plain.sizes is not None:
        held = found.limit == search.LIMIT_NAMES.index("host")
        prices = attribution.host_prices(
            WITH_SIGNALS, plain.change, plain.request, rates, plain.host_of(), held, plain.sizes.size, quality
        )
        price = prices[plain.host_of()]
    nothing = result.status is Status.ALL_AT_FLOOR or problem.budget == 0.0
    multiplier = np.inf if nothing else result.multiplier
    inputs = RateInputs(WITH_SIGNALS, multiplier, plain.change, plain.request, rates, price, quality)
    return inputs, found, result.multiplier


@functools.cache
def first_with_signals(seed: int) -> tuple[SignalProblem, RateInputs, search.Allocation] | None:
    """A drawn problem and its night; None where it has no answer. Two tests look at the same nights."""
    problem = random_signal_problem(seed)
    try:
        night, found, _ = solved_with_signals(problem)
    except InfeasibleError:
        return None
    return problem, night, found


def later_with_signals(problem: SignalProblem, seed: int) -> SignalProblem:
    """The next night: everything somewhat different, some pages without signals that had some."""
    rng = np.random.Generator(np.random.Philox(key=seed + 20_000))
    plain = later(problem.plain, seed)
    kept = np.flatnonzero(rng.random(problem.row.size) < 0.8)
    row = problem.row[kept]
    recall = np.where(rng.random(row.size) < 0.5, quality_of(problem).recall[row], rng.random(row.size))
    noise = plain.change[row] * 10.0 ** rng.uniform(-2, 1, row.size)
    pages = SignalPages.from_rates(plain.request[row], plain.change[row], recall, noise)
    change = plain.change.copy()
    change[row] = pages.change_rate_per_day
    return SignalProblem(replace(plain, change=change), row, pages)


@pytest.fixture(scope="module")
def signal_nights() -> list[tuple[RateInputs, RateInputs]]:
    found = []
    for seed in range(10):
        first = first_with_signals(seed)
        if first is None:
            continue
        try:
            second = solved_with_signals(later_with_signals(first[0], seed))[0]
        except InfeasibleError:
            continue
        found.append((first[1], second))
    assert len(found) > 6
    assert sum(int(a.signalled.sum()) for a, _ in found) > 35
    assert any((a.host_price > 0).any() and a.signalled.any() for a, _ in found)
    return found


class TestSignals:
    def test_parts_add_up_and_swapped_nights_negate(self, signal_nights):
        for before, after in signal_nights:
            parts, back = attribution.attribute(before, after), attribution.attribute(after, before)
            total = after.crawl_rate_per_day - before.crawl_rate_per_day
            near = 1e-12 * scale(parts, before, after)
            assert np.isfinite(parts).all()
            assert (np.abs(parts.sum(axis=0) - total) <= near).all()
            assert (np.abs(parts + back) <= near).all()
            assert not parts[AIM].any()
            assert not parts[SIGNALS, ~(before.signalled | after.signalled)].any()

    def test_identical_nights_have_no_parts(self, signal_nights):
        for before, _ in signal_nights:
            assert not attribution.attribute(before, before).any()

    def test_limits_are_found(self):
        """A rate off what the price buys is at a floor or cap; steps of the demand are neither."""
        pages = capped = 0
        for seed in range(20):
            first = first_with_signals(seed)
            if first is None:
                continue
            problem, night, found = first
            floors, caps = attribution._Chunk(night, night, False)._bounds(0)
            names = np.array(search.LIMIT_NAMES)[found.limit]
            mine, floor = night.signalled, problem.plain.floor
            has_floor = np.zeros(mine.shape, np.bool_) if floor is None else floor > 0.0
            free = mine & ~has_floor & (names != "cap")
            if floor is not None:
                free &= night.host_price == 0.0  # a host's floors may fill its limit
            assert np.isnan(floors[free]).all() and np.isnan(caps[free]).all(), seed
            pages += int(free.sum())
            capped += int((~np.isnan(caps[mine & (names == "cap")])).sum())
        assert pages > 50 and capped > 2

    def test_prices_of_hosts_are_those_of_the_search(self):
        """Pages that miss no change have rates at steps, which tell no price."""
        hosts = 0
        for seed in range(40):
            problem = random_signal_problem(seed, share=1.0)
            if problem.plain.limit is None or problem.plain.floor is not None:
                continue
            night, found, multiplier = solved_with_signals(problem)
            host = problem.plain.host_of()
            for j in np.flatnonzero(found.host_multiplier > 1e-6 * multiplier):
                price = float(night.host_price[host == j][0])
                held = (host == j) & (found.limit == search.LIMIT_NAMES.index("host"))
                missing = night.signals is not None and (night.signals.recall[held] < 1.0).any()
                if missing and np.isfinite(found.host_multiplier[j]):
                    assert price == pytest.approx(multiplier + found.host_multiplier[j], rel=1e-5), (seed, j)
                    hosts += 1
        assert hosts > 3

    def test_pages_without_signals_have_the_parts_of_periodic_nights(self, nights):
        """To the bit, and whether the nights follow signals or not."""
        for before, after in nights:
            if before.objective.name != "periodic":
                continue
            n, expected = before.weight.size, attribution.attribute(before, after)
            none = SignalQuality(np.zeros(n), np.zeros(n))
            second = replace(after, objective=WITH_SIGNALS, signals=none)
            for first in (replace(before, objective=WITH_SIGNALS, signals=none), before):
                assert np.array_equal(attribution.attribute(first, second), expected)

    @staticmethod
    def page(precision: float, recall: float, other: float = 0.0, **more) -> RateInputs:
        """Two pages, the first with signals, at a price of 0.05; the second may have had some, too."""
        change, weight = np.array([0.5, 0.5]), np.ones(2)
        quality = SignalQuality(np.array([precision, other]), np.array([recall, other]))
        change = more.get("change", change)
        price = more.get("price", 0.05)
        rate = WITH_SIGNALS.rate(price, change, weight)
        rows = np.flatnonzero(quality.counts)
        pages = quality[rows].pages(change[rows], weight[rows])
        rate[rows] = attribution.signal_value.crawl_rate(pages, price)
        return RateInputs(WITH_SIGNALS, price, change, weight, rate, np.zeros(2), quality)

    def test_trust_alone_is_the_signals_doing(self):
        parts = attribution.attribute(self.page(0.3, 0.5), self.page(0.9, 0.5))
        assert parts[SIGNALS, 0] < -1e-3  # fewer crawls for nothing
        assert np.abs(np.delete(parts, SIGNALS, axis=0)).max() <= 1e-12

    def test_signals_that_came_to_count_are_the_signals_doing(self):
        parts = attribution.attribute(self.page(0.0, 0.0), self.page(0.8, 0.8))
        assert abs(parts[SIGNALS, 0]) > 1e-2 and np.abs(np.delete(parts, SIGNALS, axis=0)).max() <= 1e-12

    def test_a_faster_page_is_not_trusted_otherwise(self):
        """Its signals come faster as well, at the same precision and recall."""
        change = np.array([0.7, 0.5])
        parts = attribution.attribute(self.page(0.6, 0.5), self.page(0.6, 0.5, change=change))
        assert parts[CHANGE, 0] > 1e-3 and np.abs(np.delete(parts, CHANGE, axis=0)).max() <= 1e-12

    def test_following_signals_at_all_is_the_signals_doing(self):
        before, after = self.page(0.8, 0.7), self.page(0.8, 0.7)
        plain = replace(
            before,
            objective=objectives.get("periodic"),
            signals=None,
            crawl_rate_per_day=objectives.get("periodic").rate(
                0.05, before.change_rate_per_day, before.weight
            ),
        )
        parts = attribution.attribute(plain, after)
        assert abs(parts[SIGNALS, 0]) > 1e-2 and np.abs(np.delete(parts, SIGNALS, axis=0)).max() <= 1e-12
        other = replace(plain, objective=objectives.get("memoryless"))
        parts = attribution.attribute(other, after)
        assert parts[AIM].any() and not np.delete(parts, [AIM, CHANGE], axis=0).any()

    def test_other_units_leave_signals_apart(self):
        before, after = self.page(0.3, 0.5), self.page(0.9, 0.5)
        heavy = replace(after, weight=after.weight * 1e6, multiplier=after.multiplier * 1e6)
        parts = attribution.attribute(before, heavy, same_units=False)
        assert np.abs(np.delete(parts, SIGNALS, axis=0)).max() <= 1e-9 < abs(parts[SIGNALS, 0])

    def test_a_price_is_the_multipliers_doing(self):
        parts = attribution.attribute(self.page(0.6, 0.5, 0.9), self.page(0.6, 0.5, 0.9, price=0.08))
        assert (parts[MULTIPLIER] < -1e-3).all()
        assert np.abs(np.delete(parts, MULTIPLIER, axis=0)).max() <= 1e-12

    def test_a_new_cap_is_the_pages_own_limit(self):
        before = self.page(0.6, 0.5)
        rate = before.crawl_rate_per_day * np.array([0.25, 1.0])
        parts = attribution.attribute(before, replace(before, crawl_rate_per_day=rate))
        assert parts[PAGE, 0] == pytest.approx(rate[0] - before.crawl_rate_per_day[0])
        assert np.abs(np.delete(parts, PAGE, axis=0)).max() <= 1e-12
