"""Why a page's crawl rate differs between two nights: the difference, shared out to its causes.

A crawl rate is a function of the page's change rate and weight, of how good its change-indicating signals
are, of the price of a crawl (the multiplier, or what the page's host charges at its limit), and of the page's
own floor and cap. Every cause gets its Shapley value: the effect of moving that one input from the first
night to the second, averaged over all orders in which the inputs can move. So the parts add up to the
difference, do not depend on an order, and change their sign when the nights are swapped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policies.numerics.special import CHUNK
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives.objectives import Objective
from policies.signalled import value as signal_value
from policies.signalled.pages import SignalPages
from policies.signalled.rates import marginal_value_at_rate

CAUSES: Final = ("change_rate", "signals", "weight", "multiplier", "host_limit", "page_limit", "aim")
"""Rows of the parts: the page's change rate; precision and recall of its signals; its weight; the multiplier;
the price at its host's limit; its own floor or cap; objective or kind of weight, with all that is counted in
its units."""

CHANGE, SIGNALS, WEIGHT, MULTIPLIER, HOST, PAGE, AIM = range(len(CAUSES))

_TOLERANCE: Final = 1e-6  # of a marginal value; the search ends at 5e-9
_LARGEST_TOLERANCE: Final = 0.01
_DEAREST: Final = 1e24  # of a page's changes, in crawls
_STEP: Final = 1e-9  # of a rate: to both sides of a step of the marginal value
_LEAST: Final = 1e-300
_MOST: Final = 1e300


@dataclass(frozen=True, slots=True)
class SignalQuality:
    """How good the change-indicating signals of n pages are, whatever their change rates.

    Attributes
    ----------
    precision : (n,) float64 in [0, 1]
        Share of signals that mean a change.
    recall : (n,) float64 in [0, 1]
        Share of changes that are signalled. A page with 0 of either has no signals that count.
    """

    precision: FloatArray
    recall: FloatArray

    def __getitem__(self, rows: slice | IntArray) -> "SignalQuality":
        return SignalQuality(self.precision[rows], self.recall[rows])

    @property
    def counts(self) -> BoolArray:
        """Where there are signals that count, (n,) bool."""
        return (self.precision > 0.0) & (self.recall > 0.0)

    def pages(self, change_rate_per_day: FloatArray, weight: FloatArray) -> SignalPages:
        """The pages at some change rates and weights: unsignalled changes and signals are shares of all."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            per_change = np.where(self.counts, self.recall / self.precision, 0.0)
            signal_rate = np.minimum(per_change * change_rate_per_day, _MOST)
            kappa = np.where(self.counts, -np.log1p(-self.precision), 0.0)
        missed = np.where(self.counts, 1.0 - self.recall, 1.0)
        return SignalPages(weight, missed * change_rate_per_day, signal_rate, kappa)

    @property
    def tolerance(self) -> FloatArray:
        """How far values may be off, relative, (n,): precisions and recalls near 1 have lost digits."""
        lost = np.finfo(np.float64).eps * 8.0
        out = np.full(self.recall.shape, _TOLERANCE)
        for share in (self.precision, self.recall):
            left = 1.0 - share
            out += np.where(left > 0.0, lost / np.where(left > 0.0, left, 1.0), 0.0)
        smaller: FloatArray = np.minimum(out, _LARGEST_TOLERANCE)
        return smaller


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
    signals : SignalQuality, optional
        Of all n pages. Objectives that do not use signals do not look at it.
    """

    objective: Objective
    multiplier: float
    change_rate_per_day: FloatArray
    weight: FloatArray
    crawl_rate_per_day: FloatArray
    host_price: FloatArray
    signals: SignalQuality | None = None

    def __getitem__(self, rows: slice | IntArray) -> "RateInputs":
        return replace(
            self,
            change_rate_per_day=self.change_rate_per_day[rows],
            weight=self.weight[rows],
            crawl_rate_per_day=self.crawl_rate_per_day[rows],
            host_price=self.host_price[rows],
            signals=None if self.signals is None else self.signals[rows],
        )

    @property
    def signalled(self) -> BoolArray:
        """Where the objective follows signals, (n,) bool."""
        if self.signals is None or not self.objective.uses_signals:
            return np.zeros(self.weight.shape, np.bool_)
        return self.signals.counts

    @property
    def marginal_value(self) -> FloatArray:
        """What one more crawl a day of each page is worth, (n,) float64."""
        rate, change, weight = self.crawl_rate_per_day, self.change_rate_per_day, self.weight
        value = self.objective.marginal_value(rate, change, weight)
        rows = np.flatnonzero(self.signalled)
        if rows.size and self.signals is not None:
            pages = self.signals[rows].pages(change[rows], weight[rows])
            value[rows] = marginal_value_at_rate(pages, rate[rows])
        return value


def host_prices(
    objective: Objective,
    change_rate_per_day: FloatArray,
    weight: FloatArray,
    crawl_rate_per_day: FloatArray,
    host: IntArray,
    held: BoolArray,
    n_hosts: int,
    signals: SignalQuality | None = None,
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
    signals : SignalQuality, optional
        Of all n pages, where the objective uses them.

    Returns
    -------
    (n_hosts,) float64
        0 where no page is held. The median over the pages that are held and crawled, which all have one
        marginal value but for scaled floors; where none is crawled, the least price that nobody pays. Pages
        with signals whose rate is at a step, which any price between two values asks for, only count where
        there is nothing else, as do pages that no crawl helps; the price is then the least that all allow.
    """
    prices = np.zeros(n_hosts)
    rows = np.flatnonzero(held)
    rate = crawl_rate_per_day[rows]
    sides = []
    for step in (_STEP, -_STEP) if signals is not None else (0.0,):
        inputs = RateInputs(
            objective,
            0.0,
            change_rate_per_day[rows],
            weight[rows],
            rate * (1.0 + step),
            rate,
            None if signals is None else signals[rows],
        )
        sides.append(np.clip(inputs.marginal_value, 0.0, _MOST))
    value = sides[0]
    np.maximum.at(prices, host[rows], value)
    # At a step the value of the last crawl is above that of one more. A floor may ask for crawls of no value.
    usable = (rate > 0.0) & (value > 0.0) & (sides[-1] <= value * (1.0 + 2.0 * _TOLERANCE))
    at, value = host[rows[usable]], value[usable]
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
        and host limit cannot be told apart and count as one cause, "aim". The objectives "signals" and
        "periodic" do not differ in this: the second is the first of pages without signals.

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
    joint = not same_units or not _alike(before.objective, after.objective)
    for start in range(0, n, CHUNK):
        rows = slice(start, start + CHUNK)
        _Chunk(before[rows], after[rows], joint).into(out[:, rows])
    return out


def _alike(one: Objective, two: Objective) -> bool:
    """Whether two objectives count in the same units and treat pages without signals the same."""
    return one.name == two.name or {one.name, two.name} == {"periodic", "signals"}


class _Chunk:
    """The inputs of a few pages on both nights, limits filled in where they left no trace."""

    def __init__(self, before: RateInputs, after: RateInputs, joint: bool) -> None:
        self._sides = (before, after)
        self._joint = joint
        # Where objectives differ otherwise, signals are part of the aim.
        self._own = _alike(before.objective, after.objective)
        one_signals, two_signals = before.signalled, after.signalled
        self._counts = (one_signals, two_signals)
        self._signalled = one_signals | two_signals
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
        plain = replace(side, signals=None)
        value, rate = plain.marginal_value, side.crawl_rate_per_day
        low = (value < price * (1.0 - _TOLERANCE)) & (rate > 0.0)
        high = value > price * (1.0 + _TOLERANCE)
        rows = np.flatnonzero(self._counts[i])
        if rows.size:
            low[rows], high[rows] = self._bounded_by_rate(side[rows], price[rows])
        return np.where(low, rate, np.nan), np.where(high, rate, np.nan)

    @staticmethod
    def _bounded_by_rate(side: RateInputs, price: FloatArray) -> tuple[BoolArray, BoolArray]:
        """Whether floors and caps of pages with signals bind, told by rates: values have steps."""
        assert side.signals is not None
        rate, near = side.crawl_rate_per_day, side.signals.tolerance
        low, high = (np.zeros(rate.shape, np.bool_) for _ in range(2))
        wanted = _signal_rate(side.signals, side.change_rate_per_day, _worth(side.weight, price))
        rows = np.flatnonzero(np.abs(wanted - rate) > near * rate)
        if rows.size:
            some, near = side[rows], near[rows]
            assert some.signals is not None
            change, worth = some.change_rate_per_day, _worth(some.weight, price[rows])
            most = _signal_rate(some.signals, change, worth / (1.0 - near))
            least = _signal_rate(some.signals, change, worth / (1.0 + near))
            low[rows] = (rate[rows] > most * (1.0 + near)) & (rate[rows] > 0.0)
            high[rows] = rate[rows] < least * (1.0 - near)
        return low, high

    def into(self, out: FloatArray) -> None:
        """Parts of these pages into (len(CAUSES), n)."""
        kind = self._hosted + 2 * self._bounded + 4 * self._signalled
        for code in range(8):
            rows = np.flatnonzero(kind == code)
            if rows.size:
                out[:, rows] = self._parts(rows, bool(code & 1), bool(code & 2), bool(code & 4))

    def _parts(self, rows: IntArray, hosted: bool, bounded: bool, signalled: bool) -> FloatArray:
        causes = [CHANGE, AIM] if self._joint else [CHANGE, WEIGHT, MULTIPLIER] + [HOST] * hosted
        causes += [SIGNALS] * (signalled and self._own)
        causes += [PAGE] * bounded
        change = [side.change_rate_per_day[rows] for side in self._sides]
        weight = [side.weight[rows] for side in self._sides]
        price = [values[rows] for values in self._price]
        floor = [values[rows] for values in self._floor]
        cap = [values[rows] for values in self._cap]
        with_signals = [np.flatnonzero(counts[rows]) for counts in self._counts]
        quality = [
            None if side.signals is None or not mine.size else side.signals[rows[mine]]
            for side, mine in zip(self._sides, with_signals, strict=True)
        ]
        known: dict[tuple[int, ...], FloatArray] = {}

        def wanted(of: dict[int, int]) -> FloatArray:
            aim = of.get(AIM)
            at = {cause: of.get(cause, 0) if aim is None else aim for cause in (WEIGHT, MULTIPLIER, HOST)}
            multiplier = self._multiplier[at[MULTIPLIER]]
            paid = np.maximum(multiplier, price[at[HOST]]) if hosted else multiplier
            worth = _worth(weight[at[WEIGHT]], paid)
            found = self._sides[aim or 0].objective.rate(1.0, change[of[CHANGE]], worth)
            by = of.get(SIGNALS, aim or 0)
            trusted = quality[by]
            if signalled and trusted is not None:
                mine = with_signals[by]
                found[mine] = _signal_rate(trusted, change[of[CHANGE]][mine], worth[mine])
            return found

        def rate(of: dict[int, int]) -> FloatArray:
            if not bounded:
                return wanted(of)
            state = tuple(at for cause, at in of.items() if cause != PAGE)
            if state not in known:
                known[state] = wanted(of)
            return np.clip(known[state], floor[of[PAGE]], cap[of[PAGE]])

        out = np.zeros((len(CAUSES), rows.size))
        out[causes] = _shapley(rate, causes)
        # A page that is worth just its price has any rate that balances the budget: the price decides.
        first, last = (side.crawl_rate_per_day[rows] for side in self._sides)
        out[AIM if self._joint else HOST if hosted else MULTIPLIER] += (last - first) - out.sum(axis=0)
        return out


def _worth(weight: FloatArray, price: FloatArray | float) -> FloatArray:
    """Weight over price, on which alone every objective's rate depends."""
    with np.errstate(over="ignore", under="ignore"):
        return np.minimum(weight / price, _MOST)


def _signal_rate(quality: SignalQuality, change_rate_per_day: FloatArray, worth: FloatArray) -> FloatArray:
    """Crawls per day of pages with signals at price 1, (n,), finite."""
    most = change_rate_per_day * _DEAREST  # beyond it a crawl is as good as free
    pages = quality.pages(change_rate_per_day, np.minimum(worth, most))
    return np.minimum(signal_value.crawl_rate(pages, 1.0), _MOST)


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
