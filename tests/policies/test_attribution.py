"""Parts add up, mirror when the nights are swapped, vanish without a difference, and name the true cause."""

from dataclasses import replace

import numpy as np
import pytest

from policies import attribution, objectives, search
from policies.attribution import AIM, CAUSES, CHANGE, HOST, MULTIPLIER, PAGE, WEIGHT, RateInputs
from policies.errors import InfeasibleError
from policies.result import Status
from tests.policies.problems import Problem, random_problem


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
    for seed in range(60):
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
    assert len(found) > 100
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
