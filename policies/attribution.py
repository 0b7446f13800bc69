"""Why a page's crawl rate differs between two nights: the difference, shared out to its causes.

A crawl rate is a function of the page's change rate and weight, of the price of a crawl (the multiplier, or
what the page's host charges at its limit), and of the page's own floor and cap. Every cause gets its Shapley
value: the effect of moving that one input from the first night to the second, averaged over all orders in
which the inputs can move. So the parts add up to the difference, do not depend on an order, and change their
sign when the nights are swapped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policies.objectives import Objective
from policies.special import CHUNK
from policies.typing_ import BoolArray, FloatArray, IntArray

CAUSES: Final = ("change_rate", "weight", "multiplier", "host_limit", "page_limit", "aim")
"""Rows of the parts: the page's change rate and weight; the multiplier; the price at its host's limit; its
own floor or cap; objective or kind of weight, with all that is counted in its units."""

CHANGE, WEIGHT, MULTIPLIER, HOST, PAGE, AIM = range(len(CAUSES))

_TOLERANCE: Final = 1e-6  # of a marginal value; the search ends at 5e-9
_LEAST: Final = 1e-300
_MOST: Final = 1e300


@dataclass(frozen=True, slots=True)
class RateInputs:
    """What one night made of n pages.

    Attributes
    ----------
    objective : Objective
    multiplier : float
        Value of one more crawl a day; 0 if the budget was not spent, inf if nothing was to spend.
    change_rate_per_day, weight, crawl_rate_per_day : (n,) float64
    host_price : (n,) float64
        Marginal value at the page's host if that is at its limit, see `host_prices`; else 0.
    """

    objective: Objective
    multiplier: float
    change_rate_per_day: FloatArray
    weight: FloatArray
    crawl_rate_per_day: FloatArray
    host_price: FloatArray

    def __getitem__(self, rows: slice | IntArray) -> "RateInputs":
        return replace(
            self,
            change_rate_per_day=self.change_rate_per_day[rows],
            weight=self.weight[rows],
            crawl_rate_per_day=self.crawl_rate_per_day[rows],
            host_price=self.host_price[rows],
        )

    @property
    def marginal_value(self) -> FloatArray:
        """What one more crawl a day of each page is worth, (n,) float64."""
        return self.objective.marginal_value(self.crawl_rate_per_day, self.change_rate_per_day, self.weight)


def host_prices(
    objective: Objective,
    change_rate_per_day: FloatArray,
    weight: FloatArray,
    crawl_rate_per_day: FloatArray,
    host: IntArray,
    held: BoolArray,
    n_hosts: int,
) -> FloatArray:
    """Marginal value of a crawl at each host that is at its limit, from the rates of its pages.

    Parameters
    ----------
    objective : Objective
    change_rate_per_day, weight, crawl_rate_per_day : (n,) float64
    host : (n,) int
        Host of each page, below `n_hosts`.
    held : (n,) bool
        Whether the host's limit is what holds the page's rate down.
    n_hosts : int

    Returns
    -------
    (n_hosts,) float64
        0 where no page is held. The median over the pages that are held and crawled, which all have one
        marginal value but for scaled floors; where none is crawled, the least price that nobody pays.
    """
    prices = np.zeros(n_hosts)
    rows = np.flatnonzero(held)
    value = objective.marginal_value(crawl_rate_per_day[rows], change_rate_per_day[rows], weight[rows])
    value = np.clip(value, 0.0, _MOST)
    np.maximum.at(prices, host[rows], value)
    crawled = crawl_rate_per_day[rows] > 0.0
    at, value = host[rows[crawled]], value[crawled]
    order = np.lexsort((value, at))
    at, value = at[order], value[order]
    first = np.flatnonzero(np.diff(at, prepend=-1))
    size = np.diff(np.append(first, at.size))
    prices[at[first]] = value[first + size // 2]
    return prices


def attribute(before: RateInputs, after: RateInputs, same_units: bool = True) -> FloatArray:
    """Share the difference of crawl rates out to its causes.

    Parameters
    ----------
    before, after : RateInputs
        Of the same n pages.
    same_units : bool
        Whether weights of both nights count the same. If not, or if the objectives differ, weight, multiplier
        and host limit cannot be told apart and count as one cause, "aim".

    Returns
    -------
    (len(CAUSES), n) float64
        Crawls per day; rows add up to the difference of the crawl rates.

    Notes
    -----
    A limit that does not bind leaves no trace in a rate. It is taken to be what it was on the other night if
    the rate allows that, else the nearest that the rate allows: a cause is charged no more than it must.
    """
    n = before.crawl_rate_per_day.size
    out = np.zeros((len(CAUSES), n))
    joint = not same_units or before.objective.name != after.objective.name
    for start in range(0, n, CHUNK):
        rows = slice(start, start + CHUNK)
        _Chunk(before[rows], after[rows], joint).into(out[:, rows])
    return out


class _Chunk:
    """The inputs of a few pages on both nights, limits filled in where they left no trace."""

    def __init__(self, before: RateInputs, after: RateInputs, joint: bool) -> None:
        self._sides = (before, after)
        self._joint = joint
        multiplier = [_finite(side.multiplier) for side in self._sides]
        one, two = (np.minimum(side.host_price, _MOST) for side in self._sides)
        if joint:
            prices = (one, two)
        else:
            prices = (
                np.where((one == 0.0) & (two > 0.0), np.minimum(two, multiplier[0]), one),
                np.where((two == 0.0) & (one > 0.0), np.minimum(one, multiplier[1]), two),
            )
        self._multiplier, self._price = multiplier, prices
        floors, caps = zip(*(self._bounds(i) for i in (0, 1)), strict=True)
        rates = [side.crawl_rate_per_day for side in self._sides]
        self._floor = tuple(
            np.where(np.isnan(mine), np.minimum(np.nan_to_num(other), rate), mine)
            for mine, other, rate in zip(floors, floors[::-1], rates, strict=True)
        )
        self._cap = tuple(
            np.where(np.isnan(mine), np.maximum(np.nan_to_num(other, nan=math.inf), rate), mine)
            for mine, other, rate in zip(caps, caps[::-1], rates, strict=True)
        )
        self._hosted = (one > 0.0) | (two > 0.0)
        self._bounded = ~(np.isnan(floors).all(axis=0) & np.isnan(caps).all(axis=0))

    def _bounds(self, i: int) -> tuple[FloatArray, FloatArray]:
        """Floor and cap of each page where they bind, NaN elsewhere."""
        side = self._sides[i]
        price = np.maximum(self._multiplier[i], self._price[i])
        value, rate = side.marginal_value, side.crawl_rate_per_day
        floor = np.where((value < price * (1.0 - _TOLERANCE)) & (rate > 0.0), rate, np.nan)
        cap = np.where(value > price * (1.0 + _TOLERANCE), rate, np.nan)
        return floor, cap

    def into(self, out: FloatArray) -> None:
        """Parts of these pages into (len(CAUSES), n)."""
        for hosted in (False, True):
            for bounded in (False, True):
                rows = np.flatnonzero((self._hosted == hosted) & (self._bounded == bounded))
                if rows.size:
                    out[:, rows] = self._parts(rows, hosted, bounded)

    def _parts(self, rows: IntArray, hosted: bool, bounded: bool) -> FloatArray:
        causes = [CHANGE, AIM] if self._joint else [CHANGE, WEIGHT, MULTIPLIER] + [HOST] * hosted
        causes += [PAGE] * bounded
        change = [side.change_rate_per_day[rows] for side in self._sides]
        weight = [side.weight[rows] for side in self._sides]
        price = [values[rows] for values in self._price]
        floor = [values[rows] for values in self._floor]
        cap = [values[rows] for values in self._cap]

        def rate(of: dict[int, int]) -> FloatArray:
            aim = of.get(AIM)
            at = {cause: of.get(cause, 0) if aim is None else aim for cause in (WEIGHT, MULTIPLIER, HOST)}
            multiplier = self._multiplier[at[MULTIPLIER]]
            paid = np.maximum(multiplier, price[at[HOST]]) if hosted else multiplier
            # Every objective's rate depends on the weight over the price alone.
            with np.errstate(over="ignore", under="ignore"):
                worth = np.minimum(weight[at[WEIGHT]] / paid, _MOST)
            result = self._sides[aim or 0].objective.rate(1.0, change[of[CHANGE]], worth)
            if bounded:
                result = np.clip(result, floor[of[PAGE]], cap[of[PAGE]])
            return result

        out = np.zeros((len(CAUSES), rows.size))
        out[causes] = _shapley(rate, causes)
        # A page that is worth just its price has any rate that balances the budget: the price decides.
        first, last = (side.crawl_rate_per_day[rows] for side in self._sides)
        out[AIM if self._joint else HOST if hosted else MULTIPLIER] += (last - first) - out.sum(axis=0)
        return out


def _shapley(value: Callable[[dict[int, int]], FloatArray], players: list[int]) -> list[FloatArray]:
    """Shapley value of every player; `value` takes 0 or 1 for each of them."""
    k = len(players)
    values = [value({p: mask >> i & 1 for i, p in enumerate(players)}) for mask in range(1 << k)]
    out = []
    for i in range(k):
        part = np.zeros_like(values[0])
        for mask in range(1 << k):
            if not mask >> i & 1:
                size = mask.bit_count()
                share = math.factorial(size) * math.factorial(k - size - 1) / math.factorial(k)
                part += share * (values[mask | 1 << i] - values[mask])
        out.append(part)
    return out


def _finite(multiplier: float) -> float:
    return min(max(multiplier, _LEAST), _MOST)
