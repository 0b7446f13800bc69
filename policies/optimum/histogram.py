"""One pass over the pages that brackets the multiplier: a mergeable histogram of ratios.

Demand of a page is weight * f(multiplier * ratio) with f decreasing. Bins hold the ratio's leading bits (128
an octave), so their edges bound the demand of all pages in them on both sides without a look at the pages.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.numerics.exact import exact_units
from policies.numerics.inverse_table import Reciprocal
from policies.numerics.special import CHUNK
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives.objectives import Objective
from policies.objectives.ratio_sums import (
    BIN_SHIFT,
    SLACK,
    Histogram,
    RatioSums,
    ratio_histogram,
    total_demand,
)
from policies.optimum.demand import BUDGET_UNITS, HostTotals, Kernel, Prepared, host_cuts
from policies.optimum.page_block import PageBlock
from policies.signalled.block import least_value
from policies.signalled.survey import SignalBounds, SignalSurvey

_CAP_BITS: Final = 30
_GUESSES: Final = 6
_CLIFFS: Final = 2
_HEAVY: Final = 0.25  # of the budget: weight of a bin
_CLOSE: Final = 1e-4  # of a guess, in log multiplier: all that the sample is good for


@dataclass(frozen=True, slots=True)
class Survey:
    """What one pass over some pages tells about the multiplier. Surveys merge exactly and in any order.

    Attributes
    ----------
    objective, budget_per_day
        What the survey was made for.
    pages, useful_pages, cut_pages : int
        All pages; those that some crawl helps; those of them that a cap, a host's limit or the number of
        their signals may cut.
    limited_pages : int
        Those of the last that a cap or a host's limit may cut.
    scaled_hosts : int
        Hosts whose floors exceed their limit.
    floor_units, most_units : int
        Sum of floors, and of demand at multiplier 0, in units of budget * 2^-60.
    least_ratio : float
        Reciprocal of the largest marginal value of any page at rate 0; inf without useful pages.
    least_multiplier : float
        No page that may be cut asks for less than its cap at multipliers up to this one.
    ratios : Histogram
        Keys: may be cut, level of weight, bin of ratio. Sums: weight, and weight times place in the bin.
    caps : Histogram
        Keys: bin of the multiplier at which a page reaches its cap. Sum: caps, in units of budget * 2^-30.
    signals : SignalSurvey or None
        Of pages with signals, which `ratios` leaves out; None if there are none.
    """

    objective: str
    budget_per_day: float
    pages: int
    useful_pages: int
    cut_pages: int
    limited_pages: int
    scaled_hosts: int
    floor_units: int
    most_units: int
    least_ratio: float
    least_multiplier: float
    ratios: Histogram
    caps: Histogram
    signals: SignalSurvey | None = None

    @classmethod
    def empty(cls, objective: Objective, budget_per_day: float) -> "Survey":
        """Survey of no pages."""
        return cls(
            objective.name,
            budget_per_day,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            math.inf,
            math.inf,
            Histogram.empty(3),
            Histogram.empty(1),
        )

    def merge(self, other: "Survey") -> "Survey":
        """Survey of the pages of both.

        Raises
        ------
        ValueError
            The two were made for different objectives or budgets.
        """
        if (self.objective, self.budget_per_day) != (other.objective, other.budget_per_day):
            raise ValueError(
                f"cannot merge a survey for {self.objective} at {self.budget_per_day} a day with one for "
                f"{other.objective} at {other.budget_per_day} a day"
            )
        return Survey(
            self.objective,
            self.budget_per_day,
            self.pages + other.pages,
            self.useful_pages + other.useful_pages,
            self.cut_pages + other.cut_pages,
            self.limited_pages + other.limited_pages,
            self.scaled_hosts + other.scaled_hosts,
            self.floor_units + other.floor_units,
            self.most_units + other.most_units,
            min(self.least_ratio, other.least_ratio),
            min(self.least_multiplier, other.least_multiplier),
            self.ratios.merge(other.ratios),
            self.caps.merge(other.caps),
            _merge_signals(self.signals, other.signals),
        )


def _merge_signals(one: SignalSurvey | None, other: SignalSurvey | None) -> SignalSurvey | None:
    return one.merge(other) if one is not None and other is not None else one or other


def survey_prepared(prepared: Prepared, objective: Objective, budget_per_day: float) -> Survey:
    """Survey of one block, for a budget > 0."""
    block = prepared.block
    n = len(block)
    if n == 0:
        return Survey.empty(objective, budget_per_day)
    kernel = Kernel(prepared, objective, budget_per_day)
    ratio = np.empty(n)
    weight = block.change_rate_per_day
    if objective.weight(weight[:1]) is not weight[:1] and objective.name == "discrete":
        weight = objective.weight(weight)
    signals = prepared.signals
    needs_most = not (prepared.cap is None and prepared.floor is None and prepared.hosts is None)
    # Where each change sends a signal, no page wants more crawls than there are signals.
    needs_most |= signals is not None and bool(np.any(signals.most_per_day < np.inf))
    uncapped = 2.0 * budget_per_day  # stands for a rate without limit: more than any page can get
    by_host = HostTotals(prepared.hosts) if prepared.hosts is not None else None
    floor_units = most_units = 0
    most = np.empty(CHUNK)
    for start in range(0, n, CHUNK):
        m = kernel.load(start)
        ratio[kernel.rows] = kernel.ratio
        if prepared.floor is not None:
            floors = np.minimum(prepared.floor[kernel.rows], 2.0**18 * budget_per_day)
            floor_units += exact_units(floors * kernel.scale)
        if needs_most:
            kernel.most(most[:m], uncapped)
            units = most[:m] * kernel.scale
            if by_host is not None and prepared.hosts is not None:
                by_host.add(units, *host_cuts(prepared.hosts, kernel.rows))
            else:
                most_units += exact_units(units)
    if by_host is not None:
        most_units = by_host.cut_units()
    useful = ratio < np.inf
    if signals is not None:
        useful[signals.row] = True
    n_useful = int(np.count_nonzero(useful))
    if not needs_most:
        most_units = int(min(uncapped, objective.max_rate_per_day) * kernel.scale) * n_useful
    caps = Histogram.empty(1)
    may_cut: BoolArray | None = None
    cut_pages, limited_pages, least_multiplier = 0, 0, math.inf
    if n_useful and (needs_most or prepared.ceiling < uncapped):
        may_cut, limited_pages, caps, least_multiplier = _caps(prepared, objective, budget_per_day, useful)
        cut_pages = int(np.count_nonzero(may_cut))
    of_signals = None
    least_ratio = math.inf
    if signals is not None:
        of_signals = SignalSurvey.of(signals, None if may_cut is None else may_cut[signals.row])
        least_ratio = float(signals.ratio.min())
        useful[signals.row] = False
    if n_useful < n or signals is not None:
        ratio, weight = ratio[useful], weight[useful]
    if may_cut is not None:
        may_cut = may_cut[useful]
    if ratio.size:
        least_ratio = min(least_ratio, float(ratio.min()))
    ratios = ratio_histogram(ratio, weight, may_cut)
    return Survey(
        objective.name,
        budget_per_day,
        n,
        n_useful,
        cut_pages,
        limited_pages,
        prepared.scaled_hosts,
        floor_units,
        most_units,
        least_ratio,
        least_multiplier,
        ratios,
        caps,
        of_signals,
    )


def _caps(
    prepared: Prepared, objective: Objective, budget_per_day: float, useful: BoolArray
) -> tuple[BoolArray, int, Histogram, float]:
    """Which useful pages may be cut, and how many by caps and limits; what they surely ask for at small
    multipliers; where all are cut.
    """
    block = prepared.block
    change, request = block.change_rate_per_day, block.request_rate_per_day
    cap = np.full(len(block), prepared.ceiling) if prepared.cap is None else prepared.cap.copy()
    cut = useful & (cap < 2.0 * budget_per_day)
    signals = prepared.signals
    if signals is not None:
        cap[signals.row] = np.minimum(cap[signals.row], signals.most_per_day)
    share = cap
    hosts = prepared.hosts
    if hosts is not None:
        limit = np.repeat(hosts.limit_per_day, hosts.pages)
        cut |= useful & np.isfinite(limit)
        cap = np.minimum(cap, limit)
        # A host at its limit asks for at least what its pages would under any split of that limit.
        worth = np.where(useful, np.sqrt(change * request), 0.0)
        of_host = np.repeat(np.add.reduceat(worth, hosts.start), hosts.pages)
        asked = np.repeat(np.add.reduceat(np.where(useful, cap, 0.0), hosts.start), hosts.pages)
        split = np.where(np.isfinite(limit), limit, 0.0) * worth / np.where(of_host > 0.0, of_host, 1.0)
        share = np.where(asked <= limit, cap, np.minimum(cap, split))
    limited = int(np.count_nonzero(cut))
    if signals is not None:
        cut[signals.row[signals.most_per_day < np.inf]] = True
    rows = np.flatnonzero(cut)
    if rows.size == 0:
        return cut, limited, Histogram.empty(1), math.inf
    at = objective.marginal_value(share[rows], change[rows], request[rows])
    least = _least_at_cap(objective, at, share, cap, block, rows)
    if signals is not None:
        where, which = signals.find(rows)
        pages = signals.pages.take(which)
        at[where] = least_value(pages, share[rows[where]])
        least[where] = least_value(pages, cap[rows[where]])
    # More than the budget tells no more than twice the budget does, and would not fit.
    units = np.floor(np.minimum(share[rows] / budget_per_day, 2.0) * 2.0**_CAP_BITS)
    return cut, limited, _by_multiplier(at, units), float(least.min())


def _least_at_cap(
    objective: Objective,
    at_share: FloatArray,
    share: FloatArray,
    cap: FloatArray,
    block: PageBlock,
    rows: IntArray,
) -> FloatArray:
    """Multipliers at which `rows` ask for their cap, from the marginal values at a part of it."""
    part = share[rows] / np.where(cap[rows] > 0.0, cap[rows], 1.0)
    # Marginal values fall no faster than the square of the rate, whatever the objective.
    with np.errstate(invalid="ignore"):
        least = np.where(cap[rows] > 0.0, at_share * part * part, at_share)
    small = np.flatnonzero((part < 0.03) & (cap[rows] > 0.0))
    if small.size:
        those = rows[small]
        least[small] = objective.marginal_value(
            cap[those], block.change_rate_per_day[those], block.request_rate_per_day[those]
        )
    return least


def _by_multiplier(at: FloatArray, units: FloatArray) -> Histogram:
    keys = np.ascontiguousarray(at).view(np.int64) >> BIN_SHIFT
    first, last = int(keys.min()), int(keys.max())
    if last - first > 4 * keys.size:
        return Histogram.empty(1).merge(Histogram(keys, units.astype(np.int64)[:, None]))
    keys -= first
    sums = np.zeros(last - first + 1, dtype=np.int64)
    for start in range(0, keys.size, 1 << 20):  # a cap is below 2^31 units: these sums are exact
        part = slice(start, start + (1 << 20))
        sums += np.bincount(keys[part], weights=units[part], minlength=sums.size).astype(np.int64)
    some = np.bincount(keys, minlength=sums.size) > 0
    return Histogram(np.flatnonzero(some) + first, sums[some][:, None])


class Bounds:
    """Bounds and an estimate of total demand at any multiplier, from a survey."""

    def __init__(self, survey: Survey, objective: Objective) -> None:
        self._sums = RatioSums(survey.ratios)
        self._scratch = Reciprocal()
        self._cap_at = (survey.caps.key << BIN_SHIFT).view(np.float64)
        self._cap = survey.caps.sums[:, 0] * (survey.budget_per_day / 2.0**_CAP_BITS)
        self._floors = survey.floor_units / BUDGET_UNITS * survey.budget_per_day
        self._objective = objective
        self._signals = None if survey.signals is None else SignalBounds(survey.signals, objective)

    def upper(self, multiplier: float) -> float:
        """No less than the demand, per day."""
        sums = self._sums
        total = self._floors + (1.0 + SLACK) * total_demand(
            self._objective, sums.weight, sums.left, multiplier, self._scratch
        )
        return total if self._signals is None else total + self._signals.upper(multiplier)

    def lower(self, multiplier: float) -> float:
        """No more than the demand, per day."""
        sums, free = self._sums, ~self._sums.flag
        total = float(self._cap[self._cap_at >= multiplier].sum())
        total += (1.0 - SLACK) * total_demand(
            self._objective, sums.weight[free], sums.right[free], multiplier, self._scratch
        )
        return total if self._signals is None else total + self._signals.lower(multiplier)

    def cliffs(self, budget_per_day: float, low: float, high: float) -> list[float]:
        """About where in [low, high] many pages alike begin to starve: at most `_CLIFFS` multipliers."""
        weight, at = self._sums.weight, 1.0 / self._sums.mean
        # Just before a page starves it asks for a 25th of its weight.
        heavy = (at > low) & (at < high) & (weight > _HEAVY * budget_per_day) & self._objective.starves
        rows = np.flatnonzero(heavy)
        return sorted(at[rows[np.argsort(-weight[rows], kind="stable")[:_CLIFFS]]].tolist())

    def guess(self, budget_per_day: float, low: float, high: float) -> float:
        """About the multiplier, in [low, high], if no constraint but the budget binds."""
        plain = self._sums.estimate_near(self._objective, low, high)
        if self._signals is None:
            return bisect(plain, budget_per_day, low, high, 1e-7)[1]
        of_signals = self._signals.plain_near(low, high)
        known: list[tuple[float, float]] = []
        guess = bisect(lambda x: plain(x) + of_signals(x), budget_per_day, low, high, 1e-7)[1]
        for _ in range(_GUESSES):
            factor = math.log(max(self._signals.demand_over_plain(guess), 1e-300))
            known.append((math.log(guess), factor))
            (x0, y0), (x1, y1) = known[-2:] if len(known) > 1 else known * 2
            # Beyond the points known the factor changes as between them, but demand falls all the same.
            slope = min(max((y1 - y0) / (x1 - x0), -0.4), 0.4) if x1 != x0 else 0.0
            offset = y1 - slope * x1

            def total(x: float, slope: float = slope, offset: float = offset) -> float:
                return plain(x) + of_signals(x) * math.exp(min(slope * math.log(x) + offset, 300.0))

            before, guess = guess, bisect(total, budget_per_day, low, high, 1e-7)[1]
            if abs(math.log(guess / before)) < _CLOSE:
                break
        return guess


def bisect(
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
