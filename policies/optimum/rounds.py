"""Where a search for the multiplier stands, and the multipliers that its next round evaluates."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from policies.optimum.demand import BUDGET_UNITS
from policies.optimum.result import Status
from policies.optimum.rough import WIDE
from policies.signalled.block import RADIUS

ROUNDS: Final = 3
"""Rounds after which every search has ended: the last one, or an earlier one, solves what is left."""

PRICED_AFTER: Final = 2
"""Rounds after which `SearchState.price` stands."""

_WIDTH: Final = 5e-9  # of the bracket, in log multiplier, at the end
_GAP: Final = 2e-10  # of the certificate, relative to multiplier * budget
_SURE_WIDTH: Final = 4e-10  # narrow enough for any certificate
_FEW_PAGES: Final = 1 << 14  # so many are solved in one place at once
_NODES: Final = {1e-6: 1, 1e-3: 2, WIDE: 5}  # by width: multipliers inside a bracket that tell a smooth curve
_DOUBT: Final = 0.1  # of an estimate: its error over the width of the bracket
_MANY_PAGES: Final = 1 << 22  # too many to send
_MOST: Final = 64  # points of a round in doubt
_CLOSE: Final = 1e-3  # width at which few pages are left that are not smooth
_SECTIONS: Final = 4  # of a bracket, in one place
_PLACE: Final = 2e-5  # how far a cliff may be from where the survey has it, in log multiplier
_NEAR: Final = 1e-3  # of an expansion, in log multiplier: a fifth of the pages reach no further


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
    closing : bool
        Whether the next round wants the pages, too, that are not smooth between `low` and `high`.
    expanded_at : float
        Multiplier around which pages with signals are expanded; 0 if there are none.
    price : float
        The multiplier as far as `PRICED_AFTER` rounds tell: who only compares prices need not wait for more.
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
    closing: bool = False
    rounds: int = 0
    expanded_at: float = 0.0
    price: float = 0.0


def narrowed(state: SearchState, points: Iterable[tuple[float, int]]) -> SearchState:
    """The state after evaluations, (multiplier, units) each."""
    points = tuple(sorted({*state.points, *points}))
    low, low_units, high, high_units = state.low, state.low_units, state.high, state.high_units
    for point, units in points:
        if units >= BUDGET_UNITS and point >= low:
            low, low_units = point, units
    for point, units in reversed(points):
        if units <= BUDGET_UNITS and low <= point <= high:
            high, high_units = point, units
    return replace(
        state, points=tuple(points), low=low, low_units=low_units, high=high, high_units=high_units
    )


def is_sure(state: SearchState) -> bool:
    """Whether the bracket is as narrow as any certificate may ask."""
    return has_converged(state) and log_width(state) <= _SURE_WIDTH


def sections(state: SearchState) -> list[float]:
    """Multipliers that narrow the bracket, its ends among them: close to the estimate, and all over it."""
    width = log_width(state)
    guess, error = _interpolate(state)
    close = min(max(0.3 * _SURE_WIDTH, 2.0 * error), 0.1 * width)
    inner = [state.low * math.exp(width * j / _SECTIONS) for j in range(1, _SECTIONS)]
    inside = {x for x in inner + _around(guess, [close]) if state.low < x < state.high}
    return sorted({state.low, state.high, *inside})


def log_width(state: SearchState) -> float:
    """Log of the ratio of the bracket's ends."""
    return math.log(state.high / state.low)


def share_low(state: SearchState) -> Fraction:
    """Weight of the lower end in the combination that spends the budget."""
    low, high = state.low_units, state.high_units
    if low is None or high is None or low == high:
        return Fraction(1)
    return Fraction(BUDGET_UNITS - high, low - high)


def gap(state: SearchState) -> float:
    """Bound on (optimum - value) / (multiplier * budget) for the combination."""
    if state.low_units is None or state.high_units is None:
        return math.inf
    share = float(share_low(state))
    jump = (state.low_units - state.high_units) / BUDGET_UNITS
    return share * (1.0 - share) * jump * (state.high / state.low - 1.0)


def has_converged(state: SearchState) -> bool:
    """Whether both ends are evaluated, close enough, and the certificate is small."""
    if state.low_units is None or state.high_units is None:
        return False
    width = log_width(state)
    free = 1.0 - state.floor_units / BUDGET_UNITS
    return width <= _SURE_WIDTH * (1.0 + 1e-6) or (width <= _WIDTH and gap(state) <= _GAP * free)


def first_plan(state: SearchState, guess: float, cliffs: list[float]) -> SearchState:
    """The state with what the first round wants, around the survey's estimate.

    `cliffs` has multipliers at which many pages starve, about; the last one all pages, sharply.
    """
    points = _around(guess, [3e-5 * 8.0**j for j in range(_pairs(state))])
    if state.expanded_at > 0.0:
        # The estimate is from a sample. Points that the expansion covers cost little, others much.
        points = _around(guess, [4e-3])
    if state.constrained:  # the guess knows of no floors, caps and limits
        if state.expanded_at > 0.0:
            # Caps and limits push the multiplier down, floors up.
            ends = [state.low] if state.floor_units == 0 else [state.low, state.high]
            points += [guess * (end / guess) ** part for end in ends for part in (0.1, 0.6)]
        else:
            width = log_width(state)
            points += [state.low, state.high]
            points += [state.low * math.exp(width * part) for part in (0.25, 0.5, 0.75)]
    # A budget may end where the most valuable pages, or many alike, begin to starve.
    points += [*_around(cliffs[-1], [_SURE_WIDTH]), cliffs[-1]]
    points += [x for cliff in cliffs[:-1] for x in _around(cliff, [_PLACE])]
    return _plan(state, points)


def next_plan(state: SearchState) -> SearchState:
    """The state with what a later round wants, around the estimate from the demands so far."""
    guess, error = _interpolate(state)
    width = log_width(state)
    pairs = max(_pairs(state), 2 if state.constrained else 1)
    first = outer = max(1e-9, 2.0 * error)
    if pairs > 1:
        first = max(1e-9, min(first, 0.01 * width))
        outer = max(first, min(max(outer, 0.03 * width), 0.25 * width))
    offsets = [min(first * (outer / first) ** (j / max(pairs - 1, 1)), 0.5 * width) for j in range(pairs)]
    if state.expanded_at > 0.0 and not state.constrained and width > RADIUS:
        offsets = [min(x, 0.99 * RADIUS) for x in offsets] + [0.99 * RADIUS]
    points = _around(guess, offsets)
    in_doubt = error > _DOUBT * width or state.pages > _MANY_PAGES
    if state.rounds == ROUNDS - 2 and width > WIDE and in_doubt:
        parts = min(math.ceil(width / WIDE), _MOST)  # else the last round may have to send all pages
        points += [state.low * math.exp(width * j / parts) for j in range(1, parts)]
    state = replace(state, expanded_at=_center(state.expanded_at, guess, error))
    return _plan(state, points)


def priced(state: SearchState) -> SearchState:
    """The state with the price that it tells, where that does not stand yet."""
    if state.rounds > PRICED_AFTER:
        return state
    if state.status is Status.RUNNING:
        return replace(state, price=_interpolate(state)[0])
    return replace(state, price=multiplier(state))


def multiplier(state: SearchState) -> float:
    """What a search that has ended found."""
    if state.status is not Status.CONVERGED:
        return state.low
    share = float(share_low(state))
    return share * state.low + (1.0 - share) * state.high


def _center(expanded_at: float, guess: float, error: float) -> float:
    """Where to expand: where it was done already, unless it is far off for what is known by now."""
    if expanded_at == 0.0:
        return 0.0
    off = abs(math.log(guess / expanded_at))
    return guess if off > max(_NEAR, 4.0 * error) else expanded_at


def _pairs(state: SearchState) -> int:
    """Pairs of points a round: more where pages are few and a round's fixed cost counts."""
    if state.pages > 300_000:
        return 1
    return 2 if state.pages > 100_000 else 3 if state.pages > 20_000 else 5


def _around(guess: float, offsets: list[float]) -> list[float]:
    return [guess * math.exp(-x) for x in offsets] + [guess * math.exp(x) for x in offsets]


def _plan(state: SearchState, points: list[float]) -> SearchState:
    """Wants the demand at some points, or what it takes to solve the rest in one place.

    Over a wide bracket that takes all pages. Over a narrow one it takes few pages, and the demand of all at
    some multipliers: that of the others is a polynomial there.
    """
    width = max(log_width(state), 0.0)
    closing = state.rounds == ROUNDS - 1 or width <= _CLOSE or state.pages <= _FEW_PAGES
    ends = {state.low, state.high}
    if closing and width <= WIDE:
        n = next(nodes for most, nodes in _NODES.items() if width <= most)
        inner = (0.5 - 0.5 * math.cos(math.pi * (j + 0.5) / n) for j in range(n))
        points = [state.low * math.exp(width * part) for part in inner] + [state.low, state.high]
    elif closing:
        points = []
    inside = {x for x in points if state.low <= x <= state.high}
    known = {point for point, _ in state.points}
    chosen = sorted(inside - known)
    if not chosen and not closing:
        chosen = sorted(ends - known)
    return replace(state, pending=tuple(chosen), closing=closing)


def _interpolate(state: SearchState) -> tuple[float, float]:
    """Estimate of the multiplier, and how far off it may be in log multiplier."""
    known = [(math.log(p), math.log(units / BUDGET_UNITS)) for p, units in state.points if units > 0]
    known = _distinct(known)
    low, high = math.log(state.low), math.log(state.high)
    near = sorted(known, key=lambda point: abs(point[1]))[:3]
    bracketed = state.low_units is not None and state.high_units is not None
    if bracketed and state.low_units and state.high_units:
        demands = (state.low_units, state.high_units)
        ends = [(at, math.log(units / BUDGET_UNITS)) for at, units in zip((low, high), demands, strict=True)]
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
    return math.exp(min(max(estimate, low), high)), error


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
