"""The multiplier of the crawl budget, found by rounds of summed demand.

Total demand falls as the multiplier rises and may jump. A survey of the pages gives a bracket; each round
adds up demand at a few multipliers and narrows it; the rates are the convex combination of the demands at its
two ends that spends the budget. They keep every floor, cap and host limit, because the set of such rates is
convex, and lie within a known distance of the optimum (Lagrangian duality).

In one process `solve` does it all. Distributed, the same functions run as

    survey each block, merge -> begin -> ROUNDS x (demand, merge, advance) -> finish -> allocate
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np

from policies.numerics.errors import InfeasibleError, NotConvergedError
from policies.objectives import objectives
from policies.objectives.objectives import Objective
from policies.optimum.allocation import (
    CAP,
    FLOOR,
    HOST,
    LIMIT_NAMES,
    NONE,
    STARVED,
    Allocation,
    AllocationTotals,
    allocate,
    allocate_prepared,
    shard_total_per_day,
)
from policies.optimum.demand import BUDGET_UNITS, Prepared, demand_units
from policies.optimum.histogram import Bounds, Survey, bisect, survey_prepared
from policies.optimum.page_block import PageBlock
from policies.optimum.result import SearchResult, Status
from policies.optimum.rough import WIDE, Rough, RoughDemand, rough_pages, smooth_between
from policies.optimum.rounds import (
    PRICED_AFTER,
    ROUNDS,
    SearchState,
    first_plan,
    gap,
    has_converged,
    is_sure,
    log_width,
    multiplier,
    narrowed,
    next_plan,
    priced,
    sections,
    share_low,
)
from policies.optimum.signalled_policy import SignalPolicy, signal_policy
from policies.signalled.block import SignalBlock

__all__ = [
    "CAP",
    "FLOOR",
    "HOST",
    "LIMIT_NAMES",
    "NONE",
    "PRICED_AFTER",
    "ROUNDS",
    "STARVED",
    "Allocation",
    "AllocationTotals",
    "Demand",
    "PageBlock",
    "SearchResult",
    "SearchState",
    "SignalBlock",
    "SignalPolicy",
    "Status",
    "Survey",
    "advance",
    "allocate",
    "begin",
    "demand",
    "finish",
    "shard_total_per_day",
    "signal_policy",
    "solve",
    "survey",
]

_FLOOR_TOLERANCE: Final = 1e-9  # floors this much above the budget, relative, are rounding
_LARGEST_BUDGET: Final = 1e30
_STEPS: Final = 60  # four sections each: 25 lead from one end of the numbers to the other


@dataclass(frozen=True, slots=True)
class Demand:
    """Exact demand at the multipliers of a state, and the pages that have to be looked at one by one.

    Attributes
    ----------
    units : tuple of int
        Demand of all pages at `SearchState.pending`, in units of budget * 2^-60, hosts cut at their limits.
    rough : tuple of Rough
        Pages that are not smooth within the bracket; empty until the search is `closing`.
    """

    units: tuple[int, ...]
    rough: tuple[Rough, ...] = ()

    def merge(self, other: "Demand") -> "Demand":
        """Demand of the pages of both.

        Raises
        ------
        ValueError
            They belong to different numbers of multipliers.
        """
        if len(self.units) != len(other.units):
            raise ValueError(f"cannot add demands at {len(self.units)} and at {len(other.units)} multipliers")
        units = tuple(a + b for a, b in zip(self.units, other.units, strict=True))
        return Demand(units, self.rough + other.rough)


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
            f"{floors} pages have a floor but the budget is 0 crawls a day; "
            "raise the budget or drop the floors"
        )
    if floors > BUDGET_UNITS * (1.0 + _FLOOR_TOLERANCE):
        total = floors / BUDGET_UNITS * budget_per_day
        least = "at least " if floors >= BUDGET_UNITS << 18 else ""  # a single floor is cut there
        raise InfeasibleError(
            f"the floors of all pages add up to {least}{total:.12g} crawls a day, "
            f"the budget is {budget_per_day:.12g}; raise the budget or lower the floors"
        )
    state = SearchState(
        objective=objective.name,
        budget_per_day=budget_per_day,
        status=Status.RUNNING,
        pages=found.pages,
        constrained=found.limited_pages > 0 or floors > 0,
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
        return priced(replace(state, status=Status.ALL_AT_FLOOR, low=starve_all, high=starve_all))
    if found.most_units <= BUDGET_UNITS * (1.0 + 1e-12):
        return replace(state, status=Status.ALL_AT_CAP)
    bounds = Bounds(found, objective)
    high = _upper_end(bounds, budget_per_day, starve_all * (1.0 + 1e-9))
    low = _lower_end(bounds, found, budget_per_day, high)
    guess = bounds.guess(budget_per_day, low, high)
    state = replace(state, low=low, high=high, expanded_at=guess if found.signals is not None else 0.0)
    return first_plan(state, guess, [*bounds.cliffs(budget_per_day, low, high), starve_all])


def _upper_end(bounds: Bounds, budget: float, start: float) -> float:
    """A multiplier with demand surely <= budget."""
    high = start
    while bounds.upper(high) > budget and high < 1e300:
        high *= 16.0  # only an objective that never starves a page gets here
    low = high
    while bounds.upper(low) <= budget and low > 1e-300:
        low /= 16.0
    found = bisect(bounds.upper, budget, low, high)[1] * (1.0 + 1e-9)
    return min(found, start) if start >= high else found


def _lower_end(bounds: Bounds, found: Survey, budget: float, high: float) -> float:
    """A multiplier with demand surely >= budget."""
    target = budget * (1.0 + 1e-9)
    has_free = found.cut_pages < found.useful_pages
    low = high if math.isinf(found.least_multiplier) else min(high, found.least_multiplier)
    while bounds.lower(low) < target and low > 1e-250:
        if not has_free:
            return low * (1.0 - 1e-9)
        low /= 16.0
    return bisect(bounds.lower, target, low, high)[0] * (1.0 - 1e-9)


def demand(block: PageBlock, objective: Objective, state: SearchState) -> Demand:
    """Exact demand of a block at the multipliers of `state.pending`; none once the search has ended."""
    if not (state.pending or state.closing):
        return Demand(())
    return _demand(Prepared(block, objective, state.budget_per_day), objective, state)


def _demand(prepared: Prepared, objective: Objective, state: SearchState) -> Demand:
    prepared.expand(state.expanded_at)
    units = tuple(demand_units(prepared, objective, state.budget_per_day, state.pending))
    if not state.closing:
        return Demand(units)
    rough = rough_pages(prepared, objective, state.budget_per_day, state.low, state.high)
    return Demand(units, () if rough is None else (rough,))


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
    if not (state.pending or state.closing):
        return state
    points = tuple(zip(state.pending, demand_of_all.units, strict=True))
    if state.closing:
        state = _closed(state, dict(state.points + points), demand_of_all.rough)
    else:
        state = narrowed(state, points)
    state = replace(state, rounds=state.rounds + 1, pending=(), closing=False)
    if has_converged(state):
        return priced(replace(state, status=Status.CONVERGED))
    state = priced(state)
    return state if state.rounds == ROUNDS else next_plan(state)


def _closed(state: SearchState, known: dict[float, int], rough: Sequence[Rough]) -> SearchState:
    """The state with a bracket as narrow as it has to be.

    `known` is the demand of all pages by multiplier. That of pages that are not `rough` is a polynomial, or
    they are none.
    """
    objective, budget = objectives.get(state.objective), state.budget_per_day
    part = RoughDemand(rough, objective, budget, state.expanded_at)
    nodes = [x for x in sorted(known) if state.low <= x <= state.high]
    smooth = None
    if log_width(state) <= WIDE:
        smooth = [known[x] - of_rough for x, of_rough in zip(nodes, part.units(nodes), strict=True)]
    for _ in range(_STEPS):
        if is_sure(state):
            break
        at = sections(state)
        units = part.units(at)
        if smooth is not None:
            units = [a + b for a, b in zip(units, smooth_between(nodes, smooth, at), strict=True)]
        state = narrowed(replace(state, points=()), zip(at, units, strict=True))
    return state


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
            f"after {state.rounds} of {ROUNDS} rounds the multiplier lies between {state.low!r} and "
            f"{state.high!r} (demand {_per_day(state.low_units, budget)} and "
            f"{_per_day(state.high_units, budget)}, budget "
            f"{budget!r} crawls a day); run all rounds over the same pages and limits"
        )
    share, residual, certificate = 1.0, 0.0, 0.0
    spent, reason = budget, ""
    if state.status is Status.CONVERGED:
        share = float(share_low(state))
        residual = state.high / state.low - 1.0
        certificate = gap(state) * state.low * budget
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
        multiplier=multiplier(state),
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
        expanded_at=state.expanded_at,
        price=state.price,
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
    while state.pending or state.closing:
        state = advance(state, reduce(Demand.merge, (_demand(part, objective, state) for part in prepared)))
    result = finish(state)
    if budget_per_day == 0.0:
        return result, [allocate(block, objective, result) for block in blocks]
    return result, [allocate_prepared(part, objective, result) for part in prepared]
