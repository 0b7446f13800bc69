"""Crawl rates of a block at the end of a search, and what bounds each of them."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.numerics.special import CHUNK
from policies.numerics.typing_ import BoolArray, ByteArray, FloatArray
from policies.objectives.objectives import Objective
from policies.optimum.demand import BUDGET_UNITS, HostTotals, Kernel, Prepared, host_cuts
from policies.optimum.limits import solve_hosts
from policies.optimum.page_block import PageBlock
from policies.optimum.result import SearchResult, Status

NONE: Final = 0
FLOOR: Final = 1
CAP: Final = 2
HOST: Final = 3
STARVED: Final = 4
LIMIT_NAMES: Final = ("none", "floor", "cap", "host", "starved")
"""Names of the codes in `Allocation.limit`: what a page's rate would follow if it moved."""


@dataclass(frozen=True, slots=True)
class AllocationTotals:
    """Counts and sums over an allocation; they merge exactly and in any order.

    Attributes
    ----------
    units : int
        Crawls per day, in units of budget * 2^-60.
    pages, at_floor, at_cap, at_host, starved : int
        Pages, and pages by the limit that binds.
    hosts_at_limit, scaled_hosts : int
        Hosts that get all their limit allows; hosts whose floors were scaled down to it.
    """

    units: int = 0
    pages: int = 0
    at_floor: int = 0
    at_cap: int = 0
    at_host: int = 0
    starved: int = 0
    hosts_at_limit: int = 0
    scaled_hosts: int = 0

    def merge(self, other: "AllocationTotals") -> "AllocationTotals":
        """Totals of both."""
        return AllocationTotals(
            *(getattr(self, name) + getattr(other, name) for name in AllocationTotals.__dataclass_fields__)
        )


@dataclass(frozen=True, slots=True)
class Allocation:
    """Crawl rates of the pages of one block.

    Attributes
    ----------
    crawl_rate_per_day : (n,) float64
    limit : (n,) uint8
        Code of `LIMIT_NAMES`: cap if the page would get more without its cap, host if it would without its
        host's limit, floor if it would get less without its floor, starved if it gets nothing, else none.
    host_multiplier : (h,) float64
        What one more crawl per day of a host is worth beyond the multiplier of all;
        0 where its limit does not bind, inf for a closed host of an objective that starves no page.
    totals : AllocationTotals
    """

    crawl_rate_per_day: FloatArray
    limit: ByteArray
    host_multiplier: FloatArray
    totals: AllocationTotals


def allocate(block: PageBlock, objective: Objective, result: SearchResult) -> Allocation:
    """Crawl rates of a block: the combination of its demands at both ends of the final bracket.

    Over all blocks they add up to ``result.allocated_per_day`` within 1e-9, relative.

    Parameters
    ----------
    block : PageBlock
        As it was surveyed, or any other cut into whole hosts.
    objective : Objective
    result : SearchResult
    """
    if result.budget_per_day == 0.0:
        n = len(block)
        hosts = 0 if block.host_start is None else block.host_start.size - 1
        return Allocation(
            np.zeros(n),
            np.full(n, STARVED, dtype=np.uint8),
            np.zeros(hosts),
            AllocationTotals(pages=n, starved=n),
        )
    return allocate_prepared(Prepared(block, objective, result.budget_per_day), objective, result)


def shard_total_per_day(block: PageBlock, objective: Objective, result: SearchResult) -> float:
    """Crawls per day that `allocate` gives to a block, without keeping the rates."""
    return allocate(block, objective, result).totals.units / BUDGET_UNITS * result.budget_per_day


def allocate_prepared(prepared: Prepared, objective: Objective, result: SearchResult) -> Allocation:
    """`allocate` for a block that is prepared already, and a budget > 0."""
    block, hosts = prepared.block, prepared.hosts
    prepared.expand(result.expanded_at)
    n = len(block)
    # Decided for all blocks together: the two ways differ in the last bits.
    simple = not result.constrained and result.status is Status.CONVERGED
    ends = sorted({result.low, result.high}) if result.status is Status.CONVERGED else ()
    kernel = Kernel(prepared, objective, result.budget_per_day, ends, within_limits=not simple)
    rates, starved = np.empty(n), np.empty(n, dtype=np.bool_)
    limit = starved.view(np.uint8)  # 0 or 1 for now
    low, high = np.empty(CHUNK), np.empty(CHUNK)
    constrained = (
        prepared.cap is not None or prepared.floor is not None or objective.max_rate_per_day < np.inf
    )
    high_rates = np.empty(n) if hosts is not None else None
    low_rates = np.empty(n) if hosts is not None else None
    totals_low = HostTotals(hosts) if hosts is not None else None
    totals_high = HostTotals(hosts) if hosts is not None else None
    if simple:
        hosts, constrained = None, False
    units = 0
    share = result.share_low
    for start in range(0, n, CHUNK):
        m = kernel.load(start)
        rows = kernel.rows
        at_low, at_high, out = low[:m], high[:m], rates[rows]
        if simple:
            kernel.mixed(result.low, result.high, share, out)
        else:
            _ends(kernel, result, at_low, at_high)
            # In this form a rate that both ends agree on, such as a cap, stays what it is.
            np.subtract(at_low, at_high, out=out)
            out *= share
            out += at_high
        if totals_low is not None and totals_high is not None and hosts is not None:
            assert low_rates is not None and high_rates is not None
            low_rates[rows], high_rates[rows] = at_low, at_high
            cuts = host_cuts(hosts, rows)
            totals_low.add(kernel.units(at_low), *cuts)
            totals_high.add(kernel.units(at_high), *cuts)
        else:
            units += kernel.exact_total(out)
        np.equal(out, 0.0, out=starved[rows])
        np.multiply(limit[rows], STARVED, out=limit[rows])
        if constrained:
            _mark(prepared, objective, rows, out, limit[rows])
    n_hosts = 0 if block.host_start is None else block.host_start.size - 1
    host_multiplier = np.zeros(n_hosts)
    hosts_at_limit = 0
    if hosts is not None and totals_low is not None and totals_high is not None:
        assert low_rates is not None and high_rates is not None
        over_low, over_high = totals_low.over(), totals_high.over()
        if np.any(over_low):
            found = solve_hosts(prepared, objective, over_low, result)
            mine = np.repeat(over_low, hosts.pages)
            both = np.repeat(over_high, hosts.pages)[mine]
            mixed = high_rates[mine] + share * (found.rates - high_rates[mine])
            rates[mine] = np.where(both, found.rates, mixed)
            host_multiplier[hosts.index[over_low]] = np.maximum(found.multiplier - result.multiplier, 0.0)
            _mark_hosts(prepared, objective, rates, low_rates, mine, limit)
            hosts_at_limit = int(np.count_nonzero(over_low))
        if prepared.scaled is not None and prepared.floor is not None:
            limit[np.repeat(prepared.scaled, hosts.pages) & (prepared.floor > 0.0)] = HOST
        units = _units_in_chunks(kernel, rates)
    counts = np.bincount(limit, minlength=len(LIMIT_NAMES))
    totals = AllocationTotals(
        units,
        n,
        int(counts[FLOOR]),
        int(counts[CAP]),
        int(counts[HOST]),
        int(counts[STARVED]),
        hosts_at_limit,
        prepared.scaled_hosts,
    )
    return Allocation(rates, limit, host_multiplier, totals)


def _ends(kernel: Kernel, result: SearchResult, low: FloatArray, high: FloatArray) -> None:
    """Rates of the loaded rows at both ends of the final bracket."""
    if result.status is Status.CONVERGED:
        kernel.rates(result.low, low)
        kernel.rates(result.high, high)
    elif result.status is Status.ALL_AT_FLOOR:
        kernel.rates(np.inf, low)
        high[:] = low
    else:
        kernel.most(low, result.budget_per_day)
        high[:] = low


def _mark(prepared: Prepared, objective: Objective, rows: slice, rates: FloatArray, limit: ByteArray) -> None:
    """Codes of pages at their floor or cap."""
    if prepared.floor is not None:
        floor = prepared.floor[rows]
        limit[(rates <= floor) & (floor > 0.0)] = FLOOR
    own = objective.max_rate_per_day
    cap = np.full(rates.shape, own) if prepared.cap is None else np.minimum(prepared.cap[rows], own)
    limit[rates >= cap] = CAP


def _mark_hosts(
    prepared: Prepared,
    objective: Objective,
    rates: FloatArray,
    low_rates: FloatArray,
    mine: BoolArray,
    limit: ByteArray,
) -> None:
    """Codes of pages that would get more without their host's limit."""
    rows = np.flatnonzero(mine)
    limit[rows[rates[rows] < low_rates[rows] * (1.0 - 1e-9)]] = HOST


def _units_in_chunks(kernel: Kernel, rates: FloatArray) -> int:
    return sum(kernel.exact_total(rates[start : start + CHUNK]) for start in range(0, rates.size, CHUNK))
