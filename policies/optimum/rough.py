"""Pages whose rates are not smooth between two multipliers, and the demand of all from theirs.

Between close multipliers nearly all pages are at a limit throughout or on a smooth curve, and a polynomial
through their demand at a few multipliers tells the rest. Only pages near the end of their demand, at the edge
of a floor or cap, or of a host that reaches its limit in between, have to be asked. They are few enough to be
sent to one place, which may ask them as often as it likes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.numerics.special import CHUNK
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives.objectives import Objective
from policies.optimum.demand import MOST_ALIKE, Hosts, HostTotals, Kernel, Prepared, host_cuts
from policies.optimum.page_block import PageBlock
from policies.signalled.block import SignalBlock, SignalRows
from policies.signalled.pages import depth_of, prices

WIDE: Final = 0.02
"""Width, in log multiplier, beyond which all pages count as rough."""

_MARGIN: Final = 16.0  # widths that a smooth page is away from the end of its demand: a node gains 1.5 digits
_PART: Final = 0.05  # of the reach of a series, over which a polynomial of our few nodes is as good


@dataclass(frozen=True, slots=True, eq=False)
class Rough:
    """Pages of a block that are not smooth, each kind once, host by host.

    Attributes
    ----------
    kinds : (5 or 8, k) float64
        Limit of the host (inf: none that matters here), floor, cap, change and request rate, all per day;
        where any page has signals what `SignalBlock` says of them, NaN where a page has none.
    count : (k,) int64
        Pages of each kind, up to `MOST_ALIKE`; what is more stands in a row of its own.
    hosts : (k,) int64
        Ascending numbers of hosts, those without a limit one.
    """

    kinds: FloatArray
    count: IntArray
    hosts: IntArray


def rough_pages(
    prepared: Prepared, objective: Objective, budget_per_day: float, low: float, high: float
) -> Rough | None:
    """The pages of a block that are not smooth between two multipliers; None if there are none."""
    block, hosts = prepared.block, prepared.hosts
    n = len(block)
    if math.log(high / low) > WIDE:
        rough = np.ones(n, dtype=np.bool_)
        crossing = np.ones(0 if hosts is None else hosts.start.size, dtype=np.bool_)
    else:
        rough, crossing = _rough(prepared, objective, budget_per_day, low, high)
    rows = np.flatnonzero(rough)
    if rows.size == 0:
        return None
    host, limit = np.zeros(rows.size, dtype=np.int64), np.full(rows.size, np.inf)
    if hosts is not None:
        number = np.where(crossing & np.isfinite(hosts.limit_per_day), np.arange(1, crossing.size + 1), 0)
        host = np.repeat(number, hosts.pages)[rows]
        limit = np.where(host > 0, hosts.limit_per_day[host - 1], np.inf)
    columns = [
        limit,
        np.zeros(rows.size) if prepared.floor is None else prepared.floor[rows],
        np.full(rows.size, np.inf) if prepared.cap is None else prepared.cap[rows],
        block.change_rate_per_day[rows],
        block.request_rate_per_day[rows],
    ]
    if prepared.signals is not None and block.signals is not None:
        signals, told = block.signals.take(rough), np.full((3, rows.size), np.nan)
        told[:, signals.row] = (
            signals.unsignalled_rate_per_day,
            signals.signal_rate_per_day,
            signals.signal_weight,
        )
        columns += list(told)
    kinds = np.array(columns)
    order = np.lexsort((*kinds, host))
    kinds, host = kinds[:, order], host[order]
    same = np.all((kinds[:, 1:] == kinds[:, :-1]) | np.isnan(kinds[:, 1:] + kinds[:, :-1]), axis=0)
    first = np.flatnonzero(np.concatenate([[True], ~same | (host[1:] != host[:-1])]))
    count = np.diff(np.append(first, rows.size))
    times = -(-count // MOST_ALIKE)
    nth = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
    first, count = np.repeat(first, times), np.repeat(count, times) - nth * MOST_ALIKE
    return Rough(kinds[:, first], np.minimum(count, MOST_ALIKE), host[first])


class RoughDemand:
    """Exact demand of rough pages of all blocks, at any multipliers."""

    def __init__(
        self, parts: Sequence[Rough], objective: Objective, budget_per_day: float, expanded_at: float
    ) -> None:
        self._objective, self._budget = objective, budget_per_day
        self._prepared: Prepared | None = None
        if not parts:
            return
        height = max(len(part.kinds) for part in parts)
        padded = (((0, height - len(part.kinds)), (0, 0)) for part in parts)
        found = [np.pad(p.kinds, by, constant_values=np.nan) for p, by in zip(parts, padded, strict=True)]
        kinds = np.concatenate(found, axis=1)
        self._count = np.concatenate([part.count for part in parts])
        edges = np.concatenate([np.diff(part.hosts, prepend=-1) > 0 for part in parts])
        start = np.append(np.flatnonzero(edges), edges.size)
        signals = None
        if height > 5:
            with_signals = np.flatnonzero(~np.isnan(kinds[5]))
            signals = SignalBlock(with_signals, *np.ascontiguousarray(kinds[5:, with_signals]))
        limit, floor, cap, change, request = np.ascontiguousarray(kinds[:5])
        block = PageBlock(change, request, floor, cap, start, limit[start[:-1]], signals)
        self._prepared = Prepared(block, objective, budget_per_day)
        self._prepared.expand(expanded_at)
        self._hosts = self._prepared.hosts or Hosts.one(edges.size, budget_per_day)

    def units(self, multipliers: Sequence[float]) -> list[int]:
        """Demand at ascending multipliers, in units, hosts cut at their limits."""
        if self._prepared is None:
            return [0] * len(multipliers)
        kernel = Kernel(self._prepared, self._objective, self._budget, multipliers, within_limits=True)
        totals = [HostTotals(self._hosts) for _ in multipliers]
        for start in range(0, self._count.size, CHUNK):
            kernel.load(start)
            cuts = host_cuts(self._hosts, kernel.rows)
            for k, rates in enumerate(kernel.rates_at(multipliers)):
                totals[k].add(kernel.units(rates), *cuts, self._count[kernel.rows])
        return [total.cut_units() for total in totals]


def _rough(
    prepared: Prepared, objective: Objective, budget_per_day: float, low: float, high: float
) -> tuple[BoolArray, BoolArray]:
    """(n,) pages that are not smooth between two multipliers; (h,) hosts that reach their limit there."""
    hosts, signals = prepared.hosts, prepared.signals
    kernel = Kernel(prepared, objective, budget_per_day, (low, high), within_limits=True)
    beyond = high * (high / low) ** _MARGIN
    limited = hosts is not None or prepared.cap is not None or prepared.floor is not None
    limited |= signals is not None or objective.max_rate_per_day < np.inf
    rough = np.zeros(len(prepared.block), dtype=np.bool_)
    ends = np.empty((2, CHUNK))
    by_host = [] if hosts is None else [HostTotals(hosts), HostTotals(hosts)]
    for at in range(0, rough.size, CHUNK):
        m = kernel.load(at)
        rows, ratio = kernel.rows, kernel.ratio
        if signals is not None:
            first, last = np.searchsorted(signals.row, [rows.start, rows.stop])
            ratio = ratio.copy()
            ratio[kernel.signal_row] = signals.ratio[first:last]
        near_end = (ratio * low < 1.0) & (ratio * beyond >= 1.0)
        if not limited:
            rough[rows] = near_end if objective.starves else False
            continue
        at_low, at_high = ends[0, :m], ends[1, :m]
        kernel.rates(low, at_low)
        kernel.rates(high, at_high)
        free = at_low != at_high
        own = objective.max_rate_per_day
        cap = own if prepared.cap is None else np.minimum(prepared.cap[rows], own)
        edge = (at_low >= cap) & (at_high < cap)
        if prepared.floor is not None:
            floor = prepared.floor[rows]
            edge |= (at_low > floor) & (at_high <= floor)
        if objective.starves:
            edge |= near_end
        if signals is not None and kernel.signal_row.size:
            edge[kernel.signal_row] |= _bent(signals, slice(first, last), low, high)
        rough[rows] = edge & free
        for totals, rates in zip(by_host, (at_low, at_high), strict=False):
            assert hosts is not None
            totals.add(kernel.units(rates), *host_cuts(hosts, rows))
    if hosts is None:
        return rough, np.zeros(0, dtype=np.bool_)
    over_low, over_high = (totals.over() for totals in by_host)
    crossing = over_low & ~over_high
    return (rough & ~np.repeat(over_high, hosts.pages)) | np.repeat(crossing, hosts.pages), crossing


def _bent(signals: SignalRows, part: slice, low: float, high: float) -> BoolArray:
    """(p,) which of some rows with signals have no series that tells their rates between two multipliers.

    Rates by signals have steps that are the sharper the more of the changes are signalled.
    """
    if signals.near is None:
        return np.ones(part.stop - part.start, dtype=np.bool_)
    near = signals.near.take(part)
    first, last = (depth_of(near.pages, near.kind, prices(near.pages, x)) for x in (low, high))
    depth, reach = near.point.depth, near.point.reach
    with np.errstate(invalid="ignore"):
        off = np.maximum(np.abs(first - depth), np.abs(last - depth))
        told: BoolArray = (off <= reach) & (np.abs(last - first) <= _PART * reach)
    return ~told


def smooth_between(at: Sequence[float], units: Sequence[int], multipliers: Sequence[float]) -> list[int]:
    """Demand of smooth pages at `multipliers` from that at some others, by the polynomial through these.

    Parameters
    ----------
    at : sequence of float
        Ascending multipliers.
    units : sequence of int
        Demand there.
    multipliers : sequence of float
    """
    x = np.log(np.array(at) / at[0])
    # What is left of the difference to the first, divided by nodes one after the other (Newton's form).
    table = np.array([float(u - units[0]) for u in units])
    for order in range(1, x.size):
        table[order:] = (table[order:] - table[order - 1 : -1]) / (x[order:] - x[: x.size - order])
    to = np.log(np.array(multipliers) / at[0])
    value = np.zeros(to.size)
    for j in range(x.size - 1, 0, -1):
        value = (value + table[j]) * (to - x[j - 1])
    return [units[0] + round(v) for v in value.tolist()]
