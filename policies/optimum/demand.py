"""Crawl demand of a block of pages at given multipliers, as exact integers.

Terms are cut to whole units of budget * 2^-60 before they are added, and integers are added: any split into
blocks, any order of merging and any number of shards then give the same bits.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from policies.numerics.exact import LOW_BITS, SAFE_SUM, exact_units
from policies.numerics.inverse_table import Reciprocal
from policies.numerics.special import CHUNK, LARGEST_BELOW_ONE
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives.objectives import Objective
from policies.optimum.page_block import PageBlock
from policies.signalled.block import SignalRows, SignalWindow

MOST_ALIKE: Final = 1 << 14
"""Pages that may stand in one row, see `HostTotals.add`."""

UNIT_BITS: Final = 60
BUDGET_UNITS: Final = 1 << UNIT_BITS
_LOW_MASK: Final = (1 << LOW_BITS) - 1
_FEW: Final = CHUNK // 2
_HEADROOM: Final = 2.0**28
_SMOOTH_BELOW: Final = 0.995  # of multiplier * ratio; at 1 demand ends in a cliff


class Prepared:
    """A block with its constraints resolved for one objective and budget.

    Attributes
    ----------
    ceiling : float
        No page asks for more than this: the objective's own limit, or what the integers can hold. That is
        far above the budget, so that tied pages share it in proportion to their demands.
    floor, cap : (n,) float64 or None
        As applied: floors at most the cap, and scaled down where a host's floors exceed its limit.
    hosts : Hosts or None
        None where no host limit lies below the budget.
    scaled : (h,) bool or None
        Hosts whose floors were scaled down; None if there are none.
    signals : SignalRows or None
        Pages whose signals matter to the objective; None if there are none.
    """

    __slots__ = ("block", "cap", "ceiling", "floor", "hosts", "scaled", "signals")

    def __init__(self, block: PageBlock, objective: Objective, budget_per_day: float) -> None:
        self.block = block
        self.ceiling = min(_HEADROOM * budget_per_day, objective.max_rate_per_day)
        floor, cap = block.floor_per_day, block.cap_per_day
        if cap is not None and not (cap.size and float(cap.min()) < self.ceiling):
            cap = None
        if floor is not None and not (floor.size and float(floor.max()) > 0.0):
            floor = None
        if cap is not None:
            cap = np.minimum(cap, self.ceiling)
        if floor is not None:
            # The budget is no reason to lower a floor: that is an error to report, not a limit to apply.
            own = objective.max_rate_per_day
            floor = np.minimum(
                floor, own if block.cap_per_day is None else np.minimum(block.cap_per_day, own)
            )
        self.hosts = Hosts.of(block, budget_per_day)
        self.scaled: BoolArray | None = None
        if floor is not None and self.hosts is not None:
            factor = self.hosts.shrink(floor)
            if np.any(factor < 1.0):
                self.scaled = factor < 1.0
                floor = floor * np.repeat(factor, self.hosts.pages)
        self.floor, self.cap = floor, cap
        self.signals: SignalRows | None = None
        if objective.uses_signals and block.signals is not None:
            self.signals = SignalRows.of(block.signals, block.request_rate_per_day, floor, cap)

    def expand(self, multiplier: float) -> None:
        """Makes evaluations near `multiplier` cheap for pages with signals."""
        if self.signals is not None:
            self.signals.expand(multiplier)

    @property
    def scaled_hosts(self) -> int:
        """How many hosts had their floors scaled down."""
        return 0 if self.scaled is None else int(np.count_nonzero(self.scaled))


class Hosts:
    """Non-empty hosts of a block and their limits in units; a host without limit has the largest integer."""

    __slots__ = ("index", "limit_high", "limit_low", "limit_per_day", "pages", "start")

    def __init__(
        self, index: IntArray, start: IntArray, pages: IntArray, limit: FloatArray, scale: float
    ) -> None:
        self.index, self.start, self.pages, self.limit_per_day = index, start, pages, limit
        units = np.where(np.isfinite(limit), np.minimum(limit * scale, SAFE_SUM), 0.0).astype(np.int64)
        self.limit_high = np.where(np.isfinite(limit), units >> LOW_BITS, np.iinfo(np.int64).max)
        self.limit_low = units & _LOW_MASK

    @classmethod
    def of(cls, block: PageBlock, budget_per_day: float) -> "Hosts | None":
        if block.host_limit_per_day is None or block.host_start is None or len(block) == 0:
            return None
        limit = block.host_limit_per_day
        if not np.any(limit < budget_per_day):
            return None
        pages = np.diff(block.host_start)
        index = np.flatnonzero(pages)
        limit = np.where(limit < budget_per_day, limit, np.inf)[index]
        return cls(index, block.host_start[:-1][index], pages[index], limit, unit_scale(budget_per_day))

    @classmethod
    def one(cls, n: int, budget_per_day: float) -> "Hosts":
        """All of `n` pages in a host without limit."""
        whole = np.zeros(1, dtype=np.int64)
        return cls(whole, whole, np.array([n]), np.array([np.inf]), unit_scale(budget_per_day))

    def shrink(self, floor: FloatArray) -> FloatArray:
        """(h,) factor <= 1 that brings each host's floors within its limit."""
        total = np.add.reduceat(floor, self.start)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(total > self.limit_per_day, self.limit_per_day / total, 1.0)


def unit_scale(budget_per_day: float) -> float:
    """Units per crawl a day."""
    return BUDGET_UNITS / budget_per_day


class HostTotals:
    """Units per host at one multiplier, added chunk by chunk as (high, low) pairs that cannot overflow."""

    __slots__ = ("_hosts", "high", "low")

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self.high = np.zeros(hosts.start.size, dtype=np.int64)
        self.low = np.zeros(hosts.start.size, dtype=np.int64)

    def add(self, values: FloatArray, first: int, cuts: IntArray, count: IntArray | None = None) -> None:
        """Adds one chunk: `values` in units, `cuts` the rows where host first, first + 1, ... begin.

        `count` is how many pages, at most `MOST_ALIKE`, a row stands for; None: one.
        """
        part = slice(first, first + cuts.size)
        low, high = self.low[part], self.high[part]
        if count is None and float(values.sum()) < SAFE_SUM:
            low += np.add.reduceat(values.astype(np.int64), cuts)
        else:
            top = np.floor(values * 2.0**-LOW_BITS)
            rest = (values - top * 2.0**LOW_BITS).astype(np.int64) * (1 if count is None else count)
            tops = top.astype(np.int64) * (1 if count is None else count) + (rest >> LOW_BITS)
            high += np.add.reduceat(tops, cuts)
            low += np.add.reduceat(rest & _LOW_MASK, cuts)
        high += low >> LOW_BITS
        low &= _LOW_MASK

    def over(self) -> BoolArray:
        """(h,) whether a host asks for more than its limit."""
        hosts = self._hosts
        same = self.high == hosts.limit_high
        over: BoolArray = (self.high > hosts.limit_high) | (same & (self.low > hosts.limit_low))
        return over

    def cut_units(self) -> int:
        """Total demand with every host cut at its limit."""
        over = self.over()
        high = np.where(over, self._hosts.limit_high, self.high)
        low = np.where(over, self._hosts.limit_low, self.low)
        return (int(high.sum()) << LOW_BITS) + int(low.sum())


class Kernel:
    """Crawl rates of one chunk of rows at one multiplier after another, in scratch that is allocated once.

    Where there are signals, `raw`, `rates` and `mixed` take none but the ascending `multipliers` and inf;
    `rates` and `free_units` alone where rates are asked for `within_limits`.
    """

    __slots__ = (
        "_active",
        "_c",
        "_multipliers",
        "_out",
        "_prepared",
        "_ratio",
        "_settled_units",
        "_sub",
        "_units",
        "_weight",
        "_window",
        "_within_limits",
        "inverter",
        "objective",
        "ratio",
        "rows",
        "scale",
        "signal_row",
        "signal_rows",
        "weight",
    )

    def __init__(
        self,
        prepared: Prepared,
        objective: Objective,
        budget_per_day: float,
        multipliers: Sequence[float] = (),
        within_limits: bool = False,
    ) -> None:
        self._prepared, self.objective = prepared, objective
        self._multipliers = multipliers
        self._within_limits = within_limits
        self.scale = unit_scale(budget_per_day)
        self.inverter = Reciprocal()
        self._ratio, self._weight, self._c, self._out, self._sub = np.empty((5, CHUNK))
        self._units = np.empty(CHUNK, dtype=np.int64)
        self._active = np.empty(CHUNK, dtype=np.bool_)
        self.rows = slice(0, 0)
        self.ratio = self.weight = self._ratio[:0]
        self._window: SignalWindow | None = None
        self._settled_units: int | None = None
        self.signal_rows = slice(0, 0)
        self.signal_row: IntArray = np.empty(0, dtype=np.int64)

    def load(self, start: int) -> int:
        """Takes rows start:start + CHUNK; returns how many there are."""
        block = self._prepared.block
        self.rows = slice(start, min(start + CHUNK, len(block)))
        change = block.change_rate_per_day[self.rows]
        self.ratio = self._ratio[: change.size]
        self.objective.ratio(change, block.request_rate_per_day[self.rows], self.ratio)
        self.weight = self.objective.weight(change)
        if self._prepared.signals is not None:
            self._load_signals(self._prepared.signals)
        return change.size

    def _load_signals(self, signals: SignalRows) -> None:
        """Pages with signals among the loaded rows; to the objective they are pages that no crawl helps."""
        first, last = (int(at) for at in np.searchsorted(signals.row, [self.rows.start, self.rows.stop]))
        self.signal_row = signals.row[first:last] - self.rows.start
        self.ratio[self.signal_row] = np.inf
        window = self._window
        if first < last and (window is None or first < window.rows.start or last > window.rows.stop):
            self._window = window = signals.window(first, last, self._multipliers, self._within_limits)
        offset = 0 if window is None else window.rows.start
        self.signal_rows = slice(first - offset, last - offset)
        self._settled_units = None

    def _signal_rates(self, multiplier: float) -> FloatArray:
        """Demand of the loaded pages with signals, before floors and caps."""
        assert self._window is not None
        return self._window.rates(multiplier, self.signal_rows)

    def _signal_units(self, multiplier: float) -> int:
        """Demand of the loaded pages with signals when the ceiling alone binds."""
        if not self.signal_row.size:
            return 0
        assert self._window is not None
        ceiling = self._prepared.ceiling
        if self._settled_units is None:
            self._settled_units = self._exact(
                np.minimum(self._window.settled(self.signal_rows), ceiling) * self.scale
            )
        _, rates = self._window.others(multiplier, self.signal_rows)
        return self._settled_units + self._exact(np.minimum(rates, ceiling) * self.scale)

    def free_units(self, multipliers: Sequence[float]) -> list[int]:
        """Demand of the loaded rows at ascending multipliers when the ceiling alone binds."""
        ratio, weight = self._drop_starved(multipliers[0])
        n = ratio.size
        if n == 0:
            return [self._signal_units(multiplier) for multiplier in multipliers]
        c, out, active = self._c[:n], self._out[:n], self._active[:n]
        starves, ceiling = self.objective.starves, self._prepared.ceiling
        totals = []
        for multiplier in multipliers:
            np.multiply(ratio, multiplier, out=c)
            some_starved = starves and float(c.max()) >= 1.0
            if some_starved:
                np.less(c, 1.0, out=active)
                np.minimum(c, LARGEST_BELOW_ONE, out=c)
            self.objective.demand(weight, c, self.inverter, out)
            if some_starved:
                np.multiply(out, active, out=out)
            np.minimum(out, ceiling, out=out)
            np.multiply(out, self.scale, out=out)
            totals.append(self._exact(out) + self._signal_units(multiplier))
        return totals

    def _drop_starved(self, least_multiplier: float) -> tuple[FloatArray, FloatArray]:
        """The loaded rows that any of the multipliers leaves with some demand."""
        active = self._active[: self.ratio.size]
        c = self._c[: self.ratio.size]
        np.multiply(self.ratio, least_multiplier, out=c)
        np.less(c, 1.0 if self.objective.starves else np.inf, out=active)
        n = int(np.count_nonzero(active))
        if n > 0.9 * active.size and (self.objective.starves or n == active.size):
            return self.ratio, self.weight
        rows = np.flatnonzero(active)
        ratio, weight = self._sub[:n], self._weight[:n]
        np.take(self.ratio, rows, out=ratio, mode="clip")
        np.take(self.weight, rows, out=weight, mode="clip")
        return ratio, weight

    def _exact(self, values: FloatArray) -> int:
        if float(values.sum()) < SAFE_SUM:
            units = self._units[: values.size]
            np.copyto(units, values, casting="unsafe")
            return int(units.sum())
        return exact_units(values)

    def raw(self, multiplier: float, out: FloatArray) -> None:
        """Demand of the loaded rows before floors and caps, into `out`."""
        self._raw(multiplier, out)
        if self.signal_row.size:
            out[self.signal_row] = self._signal_rates(multiplier)

    def _raw(self, multiplier: float, out: FloatArray) -> None:
        """`raw` for pages without signals; 0 for the others."""
        n = self.ratio.size
        c, active = self._c[:n], self._active[:n]
        np.multiply(self.ratio, multiplier, out=c)
        np.less(c, 1.0 if self.objective.starves else np.inf, out=active)
        some = int(np.count_nonzero(active))
        if some == n:
            self.objective.demand(self.weight, c, self.inverter, out)
        elif some == 0:
            out.fill(0.0)
        elif some > 0.8 * n and self.objective.starves:
            np.minimum(c, LARGEST_BELOW_ONE, out=c)
            self.objective.demand(self.weight, c, self.inverter, out)
            np.multiply(out, active, out=out)
        else:
            rows = np.flatnonzero(active)
            part_c, part_weight, part_out = self._sub[:some], self._weight[:some], self._out[:some]
            np.take(c, rows, out=part_c, mode="clip")
            np.take(self.weight, rows, out=part_weight, mode="clip")
            self.objective.demand(part_weight, part_c, self.inverter, part_out)
            out.fill(0.0)
            out[rows] = part_out

    def mixed(self, low: float, high: float, share_low: float, out: FloatArray) -> None:
        """share_low * demand(low) + (1 - share_low) * demand(high) of unconstrained rows, into `out`.

        Where demand is smooth over the bracket one evaluation in the middle does: the error is quadratic in
        its width, 1e-12 of the page's rate. Pages near starvation are evaluated at both ends.
        """
        self._raw(share_low * low + (1.0 - share_low) * high, out)
        np.minimum(out, self._prepared.ceiling, out=out)
        if self.signal_row.size:
            ceiling = self._prepared.ceiling
            at_low, at_high = (np.minimum(self._signal_rates(x), ceiling) for x in (low, high))
            out[self.signal_row] = share_low * at_low + (1.0 - share_low) * at_high
        if not self.objective.starves:
            return
        n = self.ratio.size
        active = self._active[:n]
        np.greater(self.ratio, _SMOOTH_BELOW / high, out=active)
        active &= self.ratio < 1.0 / (low * _SMOOTH_BELOW)
        rows = np.flatnonzero(active)
        if rows.size == 0:
            return
        weight, total = self.weight[rows], np.zeros(rows.size)
        for multiplier, part in ((low, share_low), (high, 1.0 - share_low)):
            c = self.ratio[rows] * multiplier
            is_active = c < 1.0
            np.minimum(c, LARGEST_BELOW_ONE, out=c)
            rates = np.empty(rows.size)
            self.objective.demand(weight, c, self.inverter, rates)
            total += part * (np.minimum(rates, self._prepared.ceiling) * is_active)
        out[rows] = total

    def rates(self, multiplier: float, out: FloatArray) -> None:
        """Demand of the loaded rows within ceiling, floors and caps, into `out`."""
        self.raw(multiplier, out)
        self._limit(out)

    def rates_at(self, multipliers: Sequence[float]) -> Iterator[FloatArray]:
        """`rates` at one multiplier after the other; each is overwritten by the next.

        Of few rows those of many multipliers are found at once, with the same bits.
        """
        n = self.ratio.size
        if n > _FEW or self._prepared.signals is not None:
            out = np.empty(n)
            for multiplier in multipliers:
                self.rates(multiplier, out)
                yield out
            return
        together = CHUNK // max(n, 1)
        for first in range(0, len(multipliers), together):
            yield from self._rates_together(multipliers[first : first + together])

    def _rates_together(self, multipliers: Sequence[float]) -> FloatArray:
        """`rates` at k multipliers of loaded rows without signals, (k, n): at most a chunk of them."""
        n = self.ratio.size
        c = np.multiply.outer(np.array(multipliers), self.ratio)
        active = np.flatnonzero(c < (1.0 if self.objective.starves else np.inf))
        some, rates = np.empty(active.size), np.zeros(c.shape)
        self.objective.demand(self.weight[active % n], c.ravel()[active], self.inverter, some)
        rates.ravel()[active] = some
        self._limit(rates)
        return rates

    def _limit(self, out: FloatArray) -> None:
        """Rates (..., n) of the loaded rows, held within ceiling, floors and caps."""
        prepared = self._prepared
        np.minimum(out, prepared.ceiling if prepared.cap is None else prepared.cap[self.rows], out=out)
        if prepared.floor is not None:
            np.maximum(out, prepared.floor[self.rows], out=out)

    def most(self, out: FloatArray, uncapped: float) -> None:
        """Rates at multiplier 0 into `out`: useful pages at cap or `uncapped`, others at their floor."""
        prepared = self._prepared
        np.less(self.ratio, np.inf, out=self._active[: self.ratio.size])
        np.multiply(self._active[: self.ratio.size], min(uncapped, self.objective.max_rate_per_day), out=out)
        if self.signal_row.size and self._window is not None:
            most = self._window.most_per_day[self.signal_rows]
            out[self.signal_row] = np.minimum(uncapped, most)
        if prepared.cap is not None:
            cap = prepared.cap[self.rows]
            np.minimum(out, np.where(cap < prepared.ceiling, cap, np.inf), out=out)
        if prepared.floor is not None:
            np.maximum(out, prepared.floor[self.rows], out=out)

    def units(self, rates: FloatArray) -> FloatArray:
        """`rates` in units, in scratch."""
        out = self._out[: rates.size]
        np.multiply(rates, self.scale, out=out)
        return out

    def exact_total(self, rates: FloatArray) -> int:
        """Sum of `rates` (a chunk) in whole units."""
        return self._exact(self.units(rates))


def host_cuts(hosts: Hosts, rows: slice) -> tuple[int, IntArray]:
    """First host that reaches into `rows`, and where in them it and its followers begin."""
    first = int(np.searchsorted(hosts.start, rows.start, side="right")) - 1
    last = int(np.searchsorted(hosts.start, rows.stop, side="left"))
    cuts = hosts.start[first:last] - rows.start
    if cuts[0] < 0:
        cuts[0] = 0
    return first, cuts


def demand_units(
    prepared: Prepared, objective: Objective, budget_per_day: float, multipliers: Sequence[float]
) -> list[int]:
    """Exact demand of a block at ascending multipliers, in units, hosts cut at their limits."""
    totals = [0] * len(multipliers)
    if not multipliers:
        return totals
    kernel = Kernel(prepared, objective, budget_per_day, multipliers, within_limits=True)
    hosts = prepared.hosts
    by_host = [HostTotals(hosts) for _ in multipliers] if hosts is not None else []
    free = hosts is None and prepared.floor is None and prepared.cap is None
    for start in range(0, len(prepared.block), CHUNK):
        n = kernel.load(start)
        if free and (n > _FEW or prepared.signals is not None):
            for k, units in enumerate(kernel.free_units(multipliers)):
                totals[k] += units
            continue
        first, cuts = host_cuts(hosts, kernel.rows) if hosts is not None else (0, None)
        for k, rates in enumerate(kernel.rates_at(multipliers)):
            if cuts is not None:
                by_host[k].add(kernel.units(rates), first, cuts)
            else:
                totals[k] += kernel.exact_total(rates)
    return [host.cut_units() for host in by_host] if hosts is not None else totals
