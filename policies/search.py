"""The multiplier of the crawl budget, found by rounds of summed demand.

Total demand falls as the multiplier rises and may jump. A survey of the pages gives a bracket; each round adds up
demand at a few multipliers and narrows it; the rates are the convex combination of the demands at its two ends
that spends the budget. They keep every floor, cap and host limit, because the set of such rates is convex, and lie
within a known distance of the optimum (Lagrangian duality).

In one process `solve` does it all. Distributed, the same functions run as

    survey each block, merge -> begin -> ROUNDS times (demand of each block, merge, advance) -> finish -> allocate
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np

from policies.allocation import (
    CAP,
    FLOOR,
    HOST,
    LIMIT_NAMES,
    NONE,
    STARVED,
    Allocation,
    AllocationTotals,
    FreshnessSums,
    allocate,
    allocate_prepared,
    freshness_sums,
    shard_total_per_day,
)
from policies.demand import BUDGET_UNITS, PageBlock, Prepared, demand_units
from policies.errors import InfeasibleError, NotConvergedError
from policies.histogram import Bounds, Survey, survey_prepared
from policies.objectives import Objective
from policies.result import SearchResult, Status
from policies.typing_ import FloatArray

__all__ = [
    "CAP",
    "FLOOR",
    "HOST",
    "LIMIT_NAMES",
    "NONE",
    "ROUNDS",
    "STARVED",
    "Allocation",
    "AllocationTotals",
    "Demand",
    "FreshnessSums",
    "PageBlock",
    "SearchResult",
    "SearchState",
    "Status",
    "Survey",
    "advance",
    "allocate",
    "begin",
    "demand",
    "finish",
    "freshness_sums",
    "multipliers",
    "shard_total_per_day",
    "solve",
    "survey",
]

ROUNDS: Final = 6
"""Rounds after which every search has ended; most end after two or three."""

_WIDTH: Final = 5e-9  # of the bracket, in log multiplier, at the end
_GAP: Final = 2e-10  # of the certificate, relative to multiplier * budget
_SURE_WIDTH: Final = 4e-10  # narrow enough for any certificate
_SECTIONS: Final = 256  # points of one round that the plan falls back on
_FLOOR_TOLERANCE: Final = 1e-9  # floors this much above the budget, relative, are rounding
_LARGEST_BUDGET: Final = 1e30


@dataclass(frozen=True, slots=True)
class Demand:
    """Exact demand at the multipliers of a state, in units of budget * 2^-60, hosts cut at their limits."""

    units: tuple[int, ...]

    def merge(self, other: "Demand") -> "Demand":
        """Demand of the pages of both.

        Raises
        ------
        ValueError
            They belong to different numbers of multipliers.
        """
        if len(self.units) != len(other.units):
            raise ValueError(f"cannot add demands at {len(self.units)} and at {len(other.units)} multipliers")
        return Demand(tuple(a + b for a, b in zip(self.units, other.units, strict=True)))


@dataclass(frozen=True, slots=True)
class SearchState:
    """Where a search stands between two rounds.

    Attributes
    ----------
    status : Status
        RUNNING while `pending` is to be evaluated.
    low, high : float
        Bracket of the multiplier. `low_units`, `high_units` is the demand there, None if not evaluated yet.
    points : tuple of (multiplier, units)
        All evaluations, ascending.
    pending : tuple of float
        Ascending multipliers at which the next round wants the demand.
    """

    objective: str
    budget_per_day: float
    status: Status
    pages: int
    constrained: bool
    scaled_hosts: int
    floor_units: int
    most_units: int
    low: float
    high: float
    low_units: int | None = None
    high_units: int | None = None
    points: tuple[tuple[float, int], ...] = ()
    pending: tuple[float, ...] = ()
    rounds: int = 0


def survey(block: PageBlock, objective: Objective, budget_per_day: float) -> Survey:
    """First pass over a block.

    Parameters
    ----------
    block : PageBlock
        Pages of whole hosts.
    objective : Objective
    budget_per_day : float
        Crawls per day over all blocks.

    Raises
    ------
    ValueError
        A malformed block, or a budget that is negative, NaN or above 1e30.
    """
    _check_budget(budget_per_day)
    block.validate()
    if budget_per_day == 0.0:
        return _survey_of_nothing(block, objective)
    return survey_prepared(Prepared(block, objective, budget_per_day), objective, budget_per_day)


def _check_budget(budget_per_day: float) -> None:
    if not 0.0 <= budget_per_day <= _LARGEST_BUDGET:
        raise ValueError(f"budget_per_day must lie in [0, {_LARGEST_BUDGET:g}], got {budget_per_day!r}")


def _survey_of_nothing(block: PageBlock, objective: Objective) -> Survey:
    """Without a budget only floors matter; one unit stands for any."""
    ratio = np.empty(len(block))
    objective.ratio(block.change_rate_per_day, block.request_rate_per_day, ratio)
    floored = 0 if block.floor_per_day is None else int(np.count_nonzero(block.floor_per_day))
    empty = Survey.empty(objective, 0.0)
    return replace(
        empty,
        pages=len(block),
        useful_pages=int(np.count_nonzero(ratio < np.inf)),
        floor_units=floored,
        least_ratio=float(ratio.min()) if ratio.size else math.inf,
    )


def begin(survey_of_all: Survey, objective: Objective, budget_per_day: float) -> SearchState:
    """State before the first round.

    Raises
    ------
    InfeasibleError
        Floors above the budget.
    ValueError
        The survey was made for another objective or budget.
    """
    found = survey_of_all
    if (found.objective, found.budget_per_day) != (objective.name, budget_per_day):
        raise ValueError(
            f"the survey was made for {found.objective} at {found.budget_per_day} crawls a day, "
            f"not for {objective.name} at {budget_per_day}"
        )
    floors = found.floor_units
    if budget_per_day == 0.0 and floors:
        raise InfeasibleError(
            f"{floors} pages have a floor but the budget is 0 crawls a day; raise the budget or drop the floors"
        )
    if floors > BUDGET_UNITS * (1.0 + _FLOOR_TOLERANCE):
        total = floors / BUDGET_UNITS * budget_per_day
        raise InfeasibleError(
            f"the floors of all pages add up to {total:.12g} crawls a day, the budget is {budget_per_day:.12g}; "
            "raise the budget or lower the floors"
        )
    state = SearchState(
        objective=objective.name,
        budget_per_day=budget_per_day,
        status=Status.RUNNING,
        pages=found.pages,
        constrained=found.cut_pages > 0 or floors > 0,
        scaled_hosts=found.scaled_hosts,
        floor_units=floors,
        most_units=found.most_units,
        low=0.0,
        high=0.0,
    )
    if found.useful_pages == 0:
        return replace(state, status=Status.NOTHING_USEFUL)
    starve_all = 1.0 / found.least_ratio
    if budget_per_day == 0.0 or floors >= BUDGET_UNITS * (1.0 - 1e-15):
        return replace(state, status=Status.ALL_AT_FLOOR, low=starve_all, high=starve_all)
    if found.most_units <= BUDGET_UNITS * (1.0 + 1e-12):
        return replace(state, status=Status.ALL_AT_CAP)
    bounds = Bounds(found, objective)
    high = _upper_end(bounds, budget_per_day, starve_all * (1.0 + 1e-9))
    low = _lower_end(bounds, found, budget_per_day, high)
    guess = _bisect(bounds.estimate_near(low, high), budget_per_day, low, high, 1e-7)[1]
    state = replace(state, low=low, high=high)
    return replace(state, pending=_first_points(state, guess))


def _bisect(
    demand_at: Callable[[float], float], budget: float, low: float, high: float, width: float = 1e-4
) -> tuple[float, float]:
    """Narrows [low, high] around the root of a decreasing function, keeping demand_at(high) <= budget."""
    for _ in range(60):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high or high <= low * (1.0 + width):
            break
        if demand_at(middle) > budget:
            low = middle
        else:
            high = middle
    return low, high


def _upper_end(bounds: Bounds, budget: float, start: float) -> float:
    """A multiplier with demand surely <= budget."""
    high = start
    while bounds.upper(high) > budget and high < 1e300:
        high *= 16.0  # only an objective that never starves a page gets here
    low = high
    while bounds.upper(low) <= budget and low > 1e-300:
        low /= 16.0
    return min(_bisect(bounds.upper, budget, low, high)[1] * (1.0 + 1e-9), start if start >= high else math.inf)


def _lower_end(bounds: Bounds, found: Survey, budget: float, high: float) -> float:
    """A multiplier with demand surely >= budget."""
    target = budget * (1.0 + 1e-9)
    has_free = found.cut_pages < found.useful_pages
    low = high if math.isinf(found.least_multiplier) else min(high, found.least_multiplier)
    while bounds.lower(low) < target and low > 1e-250:
        if not has_free:
            return low * (1.0 - 1e-9)
        low /= 16.0
    return _bisect(bounds.lower, target, low, high)[0] * (1.0 - 1e-9)


def multipliers(state: SearchState) -> FloatArray:
    """(k,) float64: where the next round evaluates demand; empty once the search has ended."""
    return np.array(state.pending, dtype=np.float64)


def demand(block: PageBlock, objective: Objective, state: SearchState) -> Demand:
    """Exact demand of a block at `multipliers(state)`; returns at once when there are none."""
    if not state.pending:
        return Demand(())
    prepared = Prepared(block, objective, state.budget_per_day)
    return Demand(tuple(demand_units(prepared, objective, state.budget_per_day, state.pending)))


def advance(state: SearchState, demand_of_all: Demand) -> SearchState:
    """State after a round, from the merged demand of all blocks.

    Raises
    ------
    ValueError
        The demand does not belong to this state's multipliers.
    """
    if len(demand_of_all.units) != len(state.pending):
        raise ValueError(
            f"the state asked for {len(state.pending)} multipliers, the demand has {len(demand_of_all.units)}"
        )
    if not state.pending:
        return state
    points = tuple(sorted(state.points + tuple(zip(state.pending, demand_of_all.units, strict=True))))
    low, low_units, high, high_units = state.low, state.low_units, state.high, state.high_units
    for point, units in points:
        if units >= BUDGET_UNITS and point >= low:
            low, low_units = point, units
    for point, units in reversed(points):
        if units <= BUDGET_UNITS and low <= point <= high:
            high, high_units = point, units
    state = replace(state, points=points, low=low, low_units=low_units, high=high, high_units=high_units,
                    rounds=state.rounds + 1, pending=())  # fmt: skip
    if _has_converged(state):
        return replace(state, status=Status.CONVERGED)
    if state.rounds == ROUNDS:
        return state
    return replace(state, pending=_next_points(state))


def _log_width(state: SearchState) -> float:
    return math.log(state.high / state.low)


def _share(state: SearchState) -> Fraction:
    """Weight of the lower end in the combination that spends the budget."""
    low, high = state.low_units, state.high_units
    if low is None or high is None or low == high:
        return Fraction(1)
    return Fraction(BUDGET_UNITS - high, low - high)


def _gap(state: SearchState) -> float:
    """Bound on (optimum - value) / (multiplier * budget) for the combination."""
    if state.low_units is None or state.high_units is None:
        return math.inf
    share = float(_share(state))
    jump = (state.low_units - state.high_units) / BUDGET_UNITS
    return share * (1.0 - share) * jump * (state.high / state.low - 1.0)


def _has_converged(state: SearchState) -> bool:
    if state.low_units is None or state.high_units is None:
        return False
    width = _log_width(state)
    free = 1.0 - state.floor_units / BUDGET_UNITS
    return width <= _SURE_WIDTH * (1.0 + 1e-6) or (width <= _WIDTH and _gap(state) <= _GAP * free)


def _first_points(state: SearchState, guess: float) -> tuple[float, ...]:
    points = _around(guess, [3e-5 * 8.0**j for j in range(_pairs(state))])
    if state.constrained:  # the guess knows of no floors, caps and limits
        width = _log_width(state)
        points += [state.low, state.high]
        points += [state.low * math.exp(width * part) for part in (0.25, 0.5, 0.75)]
    return _plan(state, points)


def _next_points(state: SearchState) -> tuple[float, ...]:
    guess, error = _interpolate(state)
    width = _log_width(state)
    pairs = 1 if width < 1e-6 else max(_pairs(state), 2 if state.constrained else 1)
    first = max(1e-9, 2.0 * error)
    outer = max(first, 0.03 * width) if pairs > 1 else first
    offsets = [min(first * (outer / first) ** (j / max(pairs - 1, 1)), 0.5 * width) for j in range(pairs)]
    return _plan(state, _around(guess, offsets))


def _pairs(state: SearchState) -> int:
    """Pairs of points a round: more where pages are few and a round's fixed cost counts."""
    if state.pages > 300_000:
        return 1
    return 2 if state.pages > 100_000 else 3 if state.pages > 20_000 else 5


def _around(guess: float, offsets: list[float]) -> list[float]:
    return [guess * math.exp(-x) for x in offsets] + [guess * math.exp(x) for x in offsets]


def _plan(state: SearchState, points: list[float]) -> tuple[float, ...]:
    """Adds section points where the rounds left could not be sure to finish, and ends not evaluated yet."""
    width = max(_log_width(state), 0.0)
    left = ROUNDS - state.rounds - 1
    sections = math.ceil(width / _SURE_WIDTH / float(_SECTIONS + 1) ** left)
    if sections > 1 or left == 0:
        points = points + [state.low * math.exp(width * j / sections) for j in range(1, sections)]
    inside = {x for x in points if state.low <= x <= state.high}
    if left == 0 or width <= _WIDTH:
        inside |= {state.low, state.high}
    known = {point for point, _ in state.points}
    chosen = sorted(inside - known)
    return tuple(chosen) if chosen else tuple(sorted({state.low, state.high} - known))


def _interpolate(state: SearchState) -> tuple[float, float]:
    """Estimate of the multiplier, and how far off it may be in log multiplier."""
    known = [(math.log(p), math.log(units / BUDGET_UNITS)) for p, units in state.points if units > 0]
    known = _distinct(known)
    low, high = math.log(state.low), math.log(state.high)
    near = sorted(known, key=lambda point: abs(point[1]))[:3]
    bracketed = state.low_units is not None and state.high_units is not None
    if bracketed and state.low_units and state.high_units:
        ends = [(low, math.log(state.low_units / BUDGET_UNITS)), (high, math.log(state.high_units / BUDGET_UNITS))]
        near = ends + [point for point in near if point not in ends][:1]
    if len(near) < 2 or near[0][1] == near[1][1]:
        return math.exp(0.5 * (low + high)), (high - low) / 8.0
    secant = _secant(near[0], near[1])
    estimate, error = secant, 0.01 * abs(near[0][0] - near[1][0])
    if len(near) == 3:
        curve = _inverse_quadratic(*near)
        if low < curve < high:
            estimate, error = curve, abs(curve - secant)
    if not bracketed:
        error = max(error, 0.1 * min(abs(estimate - near[0][0]), abs(estimate - near[1][0])))
    inside = min(max(estimate, low + 0.02 * (high - low)), high - 0.02 * (high - low))
    if inside != estimate:
        error = max(error, 0.02 * (high - low))
    return math.exp(inside), error


def _distinct(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    return list({units: (at, units) for at, units in points}.values())


def _secant(first: tuple[float, float], second: tuple[float, float]) -> float:
    (x1, y1), (x2, y2) = first, second
    return x1 - y1 * (x2 - x1) / (y2 - y1)


def _inverse_quadratic(*points: tuple[float, float]) -> float:
    (x1, y1), (x2, y2), (x3, y3) = points
    if y1 == y2 or y2 == y3 or y1 == y3:
        return math.nan
    return (
        x1 * y2 * y3 / ((y1 - y2) * (y1 - y3))
        + x2 * y1 * y3 / ((y2 - y1) * (y2 - y3))
        + x3 * y1 * y2 / ((y3 - y1) * (y3 - y2))
    )


def finish(state: SearchState) -> SearchResult:
    """How a search ended.

    Raises
    ------
    NotConvergedError
        The bracket is wider than its tolerance. It cannot happen after `ROUNDS` rounds over the same pages.
    """
    budget = state.budget_per_day
    if state.status is Status.RUNNING:
        raise NotConvergedError(
            f"after {state.rounds} of {ROUNDS} rounds the multiplier lies between {state.low!r} and {state.high!r} "
            f"(demand {_per_day(state.low_units, budget)} and {_per_day(state.high_units, budget)}, budget "
            f"{budget!r} crawls a day); run all rounds over the same pages and limits"
        )
    share, residual, certificate = 1.0, 0.0, 0.0
    multiplier, spent, reason = state.low, budget, ""
    if state.status is Status.CONVERGED:
        share = float(_share(state))
        multiplier = share * state.low + (1.0 - share) * state.high
        residual = state.high / state.low - 1.0
        certificate = _gap(state) * state.low * budget
    elif state.status is Status.ALL_AT_CAP:
        spent = min(1.0, state.most_units / BUDGET_UNITS) * budget
        reason = "every page that crawling helps is at its cap or its host's limit"
    elif state.status is Status.NOTHING_USEFUL:
        spent = state.floor_units / BUDGET_UNITS * budget
        reason = "no page gains from a crawl: each has a change rate or a request rate of 0"
    unspent = max(0.0, budget - spent)
    return SearchResult(
        objective=state.objective,
        status=state.status,
        multiplier=multiplier,
        low=state.low,
        high=state.high,
        share_low=share,
        budget_per_day=budget,
        allocated_per_day=spent,
        unspent_per_day=unspent,
        unspent_reason=reason if unspent > 0.0 else "",
        floor_per_day=state.floor_units / BUDGET_UNITS * budget,
        rounds=state.rounds,
        residual=residual,
        certificate=certificate,
        pages=state.pages,
        constrained=state.constrained,
        scaled_hosts=state.scaled_hosts,
    )


def _per_day(units: int | None, budget: float) -> str:
    return "unknown" if units is None else f"{units / BUDGET_UNITS * budget:.12g}"


def solve(
    blocks: Sequence[PageBlock] | PageBlock, objective: Objective, budget_per_day: float
) -> tuple[SearchResult, list[Allocation]]:
    """The whole search and the allocation in one process.

    Parameters
    ----------
    blocks : PageBlock or sequence of PageBlock
        Pages of whole hosts; how they are cut into blocks does not change the result.
    objective : Objective
    budget_per_day : float
        Crawls per day.

    Returns
    -------
    result : SearchResult
    allocations : list of Allocation
        One for each block.

    Raises
    ------
    InfeasibleError
        Floors above the budget.
    ValueError
        A malformed block or budget.
    """
    if isinstance(blocks, PageBlock):
        blocks = [blocks]
    _check_budget(budget_per_day)
    found = Survey.empty(objective, budget_per_day)
    prepared = []
    for block in blocks:
        block.validate()
        if budget_per_day == 0.0:
            found = found.merge(_survey_of_nothing(block, objective))
            continue
        prepared.append(Prepared(block, objective, budget_per_day))
        found = found.merge(survey_prepared(prepared[-1], objective, budget_per_day))
    state = begin(found, objective, budget_per_day)
    while state.pending:
        total = Demand((0,) * len(state.pending))
        for part in prepared:
            total = total.merge(Demand(tuple(demand_units(part, objective, budget_per_day, state.pending))))
        state = advance(state, total)
    result = finish(state)
    if budget_per_day == 0.0:
        return result, [allocate(block, objective, result) for block in blocks]
    return result, [allocate_prepared(part, objective, result) for part in prepared]
