"""Hosts at their limit: each is a budget problem of its own, and all are solved at once."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.numerics.errors import NotConvergedError
from policies.numerics.inverse_table import Reciprocal
from policies.numerics.special import CHUNK, LARGEST_BELOW_ONE
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives.objectives import Objective
from policies.optimum.demand import Prepared
from policies.optimum.result import SearchResult
from policies.signalled.block import least_value
from policies.signalled.expansion import Trail
from policies.signalled.pages import SignalPages
from policies.signalled.rates import marginal_value_at_rate

_WIDTH: Final = 1e-9  # of a host's bracket, in log multiplier
_STEPS: Final = 200


@dataclass(frozen=True, slots=True)
class HostSolution:
    """Rates of the pages of hosts at their limit.

    Attributes
    ----------
    rates : (m,) float64
        Crawl rates per day of the pages of these hosts, in order.
    multiplier : (g,) float64
        Marginal value of the host's pages.
    """

    rates: FloatArray
    multiplier: FloatArray


class _Pages:
    """Pages of the hosts still searched."""

    def __init__(self, prepared: Prepared, objective: Objective, rows: IntArray) -> None:
        block = prepared.block
        change = block.change_rate_per_day[rows]
        self.ratio = np.empty(rows.size)
        objective.ratio(change, block.request_rate_per_day[rows], self.ratio)
        self.weight = objective.weight(change)
        self.cap = None if prepared.cap is None else prepared.cap[rows]
        self.floor = None if prepared.floor is None else prepared.floor[rows]
        self.ceiling = prepared.ceiling
        self.objective = objective
        self._scratch = Reciprocal()
        self.signals: SignalPages | None = None
        if prepared.signals is not None:
            self.signal_row, which = prepared.signals.find(rows)
            if which.size:
                self.signals = prepared.signals.pages.take(which)
                near = prepared.signals.near
                self._trail = Trail.of(self.signals) if near is None else Trail(near.take(which))
                self.ratio[self.signal_row] = prepared.signals.ratio[which]
                self._signal_of = np.full(rows.size, -1)
                self._signal_of[self.signal_row] = np.arange(which.size)

    def rates(self, multiplier: FloatArray, rows: IntArray | None) -> FloatArray:
        """Demand of `rows` (None: all) at one multiplier per row."""

        def pick(values: FloatArray) -> FloatArray:
            return values if rows is None else values[rows]

        c = pick(self.ratio) * multiplier
        weight = pick(self.weight)
        out = np.empty(c.size)
        for start in range(0, c.size, CHUNK):
            part = slice(start, start + CHUNK)
            chunk, result = c[part], out[part]
            active = chunk < (1.0 if self.objective.starves else np.inf)
            np.minimum(chunk, LARGEST_BELOW_ONE if self.objective.starves else 1e300, out=chunk)
            self.objective.demand(weight[part], chunk, self._scratch, result)
            result *= active
        if self.signals is not None:
            of = self._signal_of if rows is None else self._signal_of[rows]
            mine = np.flatnonzero(of >= 0)
            out[mine] = self._trail.at(of[mine], multiplier[mine])[1]
        np.minimum(out, self.ceiling if self.cap is None else pick(self.cap), out=out)
        if self.floor is not None:
            np.maximum(out, pick(self.floor), out=out)
        return out


def solve_hosts(
    prepared: Prepared, objective: Objective, chosen: BoolArray, result: SearchResult
) -> HostSolution:
    """Shares the limits of the `chosen` hosts among their pages.

    A bracketing search per host (Chandrupatla's choice of bisection or inverse quadratic interpolation),
    all hosts in step, then the convex combination of both ends that meets the limit.

    Raises
    ------
    NotConvergedError
        A bracket stays wider than its tolerance.
    """
    hosts = prepared.hosts
    assert hosts is not None
    sizes, limit = hosts.pages[chosen], hosts.limit_per_day[chosen]
    start = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rows = np.flatnonzero(np.repeat(chosen, hosts.pages))
    pages = _Pages(prepared, objective, rows)
    host_of = np.repeat(np.arange(sizes.size), sizes)

    def total(rates: FloatArray, sizes_now: IntArray) -> FloatArray:
        return np.add.reduceat(rates, np.concatenate([[0], np.cumsum(sizes_now)[:-1]]))

    low, high = _ends(pages, prepared, objective, rows, start, limit, result)
    rates_low = pages.rates(low[host_of], None)
    rates_high = pages.rates(high[host_of], None)
    sum_low, sum_high = total(rates_low, sizes), total(rates_high, sizes)
    # a: newest end, b: the other one, c: the end before.
    with np.errstate(divide="ignore"):
        a, b = np.log(high), np.log(low)
    f_a, f_b = _gap(sum_high, limit), _gap(sum_low, limit)
    c, f_c = a.copy(), f_a.copy()
    t = np.full(sizes.size, 0.5)
    searched = (sum_high < limit * (1.0 - 1e-12)) & (sum_low > limit)  # else floors fill the limit
    open_ = np.flatnonzero(searched)
    for _ in range(_STEPS):
        wide = np.abs(a[open_] - b[open_]) > _WIDTH
        open_ = open_[wide & (f_a[open_] != 0.0)]
        if open_.size == 0:
            break
        x = a[open_] + t[open_] * (b[open_] - a[open_])
        if open_.size == sizes.size:
            pick, in_open = None, host_of
        else:
            is_open = np.zeros(sizes.size, dtype=np.bool_)
            is_open[open_] = True
            pick = np.flatnonzero(is_open[host_of])
            in_open = np.repeat(np.arange(open_.size), sizes[open_])
        rates = pages.rates(np.exp(x)[in_open], pick)
        sums = total(rates, sizes[open_])
        f = _gap(sums, limit[open_])
        is_low = f >= 0.0  # the limit is exceeded: the multiplier is too low
        where = slice(None) if pick is None else pick
        rates_low[where] = np.where(is_low[in_open], rates, rates_low[where])
        rates_high[where] = np.where(is_low[in_open], rates_high[where], rates)
        sum_low[open_] = np.where(is_low, sums, sum_low[open_])
        sum_high[open_] = np.where(is_low, sum_high[open_], sums)
        same = np.sign(f) == np.sign(f_a[open_])
        c[open_] = np.where(same, a[open_], b[open_])
        f_c[open_] = np.where(same, f_a[open_], f_b[open_])
        b[open_] = np.where(same, b[open_], a[open_])
        f_b[open_] = np.where(same, f_b[open_], f_a[open_])
        a[open_], f_a[open_] = x, f
        t[open_] = _next(a[open_], b[open_], c[open_], f_a[open_], f_b[open_], f_c[open_])
    else:
        worst = int(open_[0])
        raise NotConvergedError(
            f"the multiplier of a host with limit {limit[worst]!r} crawls a day and {sizes[worst]} pages is "
            "still "
            f"uncertain by {abs(a[worst] - b[worst]):.3g} (relative) after {_STEPS} steps"
        )
    spread = sum_low - sum_high
    share = np.where(searched, (limit - sum_high) / np.where(searched, spread, 1.0), 0.0)
    part = share[host_of]
    mixed = part * rates_low + (1.0 - part) * rates_high
    b = np.where(f_a == 0.0, a, b)  # the newest end met the limit exactly
    at_a, at_b = np.exp(np.minimum(a, b)), np.exp(np.maximum(a, b))
    mixed = np.where((limit == 0.0)[host_of], 0.0, mixed)
    multiplier = np.where(searched, share * at_a + (1.0 - share) * at_b, high)
    if not np.all(searched):
        # Floors fill the limit: the least multiplier at which no page wants more than its floor.
        block = prepared.block
        slope = objective.marginal_value(
            mixed, block.change_rate_per_day[rows], block.request_rate_per_day[rows]
        )
        if pages.signals is not None:
            slope[pages.signal_row] = marginal_value_at_rate(pages.signals, mixed[pages.signal_row])
        multiplier = np.where(searched, multiplier, np.maximum.reduceat(slope, start))
    return HostSolution(mixed, multiplier)


def _gap(total: FloatArray, limit: FloatArray) -> FloatArray:
    """Log of demand over limit, kept finite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.maximum(total / np.where(limit > 0.0, limit, 1.0), 1e-6))


def _next(
    a: FloatArray, b: FloatArray, c: FloatArray, f_a: FloatArray, f_b: FloatArray, f_c: FloatArray
) -> FloatArray:
    """Where between a and b the next point goes, in (0, 1) (Chandrupatla, 1997)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        xi = (a - b) / (c - b)
        phi = (f_a - f_b) / (f_c - f_b)
        trusted = (phi * phi < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
        curve = f_a / (f_b - f_a) * f_c / (f_b - f_c) + (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (
            f_c - f_b
        )
        least = np.minimum(0.45 * _WIDTH / np.abs(b - a), 0.5)
    t = np.where(trusted & np.isfinite(curve), curve, 0.5)
    return np.clip(t, least, 1.0 - least)


def _ends(
    pages: _Pages,
    prepared: Prepared,
    objective: Objective,
    rows: IntArray,
    start: IntArray,
    limit: FloatArray,
    result: SearchResult,
) -> tuple[FloatArray, FloatArray]:
    """Multipliers at which each host surely exceeds, and surely keeps, its limit."""
    with np.errstate(divide="ignore"):
        high = np.maximum.reduceat(1.0 / pages.ratio, start) * (1.0 + 1e-12)
    block = prepared.block
    sizes = np.diff(np.append(start, rows.size))
    if result.low > 0.0:
        low = np.full(start.size, result.low)
    else:
        change, request = block.change_rate_per_day[rows], block.request_rate_per_day[rows]
        cap = np.minimum(
            pages.ceiling if pages.cap is None else pages.cap, np.repeat(limit, sizes) * (1.0 + 1e-9)
        )
        at_cap = objective.marginal_value(np.broadcast_to(cap, rows.shape), change, request)
        if pages.signals is not None:
            mine = pages.signal_row
            at_cap[mine] = least_value(pages.signals, np.broadcast_to(cap, rows.shape)[mine])
        useful = pages.ratio < np.inf
        low = np.minimum.reduceat(np.where(useful, at_cap, np.inf), start) * 0.5
        low = np.where(np.isfinite(low), low, 1.0)
    high = np.maximum(high, low)
    if not objective.starves:
        for _ in range(_STEPS):
            asked = np.add.reduceat(pages.rates(np.repeat(high, sizes), None), start)
            floors = 0.0 if pages.floor is None else np.add.reduceat(pages.floor, start)
            more = (asked > limit) & (asked > floors * (1.0 + 1e-12)) & (limit > 0.0)
            if not np.any(more):
                break
            high = np.where(more, high * 16.0, high)
    return low, high
