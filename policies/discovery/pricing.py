"""One price of a refresh for all sources: when each of them is to be refreshed at it.

By the price at which waiting longer is worth no more (`lifetimes.worth_of_now`), every source has its own
distance between refreshes, and the same price for all makes the best use of a budget. Distances are hours of
the clock of the day (`hours`), so they are longer in the night. The number of refreshes in a horizon falls as
the price rises, and is a whole number, so counts of shards add up exactly however they are added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol, Self

import numpy as np

from policies.discovery.lifetimes import CLASS_HOURS, discounted, expected_there, worth_of_now
from policies.discovery.names import LEAST_PRICE, POLICIES, VALUED
from policies.discovery.planner import LASTING, WORTH_HOURS
from policies.numerics.typing_ import FloatArray, IntArray, UIntArray

MOST_PRICE: Final = 1e7
_USUAL: Final = 1e-3, 1e3
WAITING_HOURS: Final = 12.0
"""After which a link is worth 1 / e to the policy that waits."""
PRICES: Final = 17
"""Tried in a round."""
ROUNDS: Final = 5
MOST_REFRESHES: Final = 1 << 40
_GRID_HOURS: Final = np.geomspace(1.0 / 60.0, 4000.0, 64)
_LOG_HOURS: Final = np.log(_GRID_HOURS)
_ROWS: Final = 1024
"""Of sources at once, so that their curves stay in the cache."""
_BISECTIONS: Final = 60
_ONE: Final = np.eye(len(CLASS_HOURS))


def _of_classes(index: Callable[..., FloatArray], class_hours: FloatArray) -> FloatArray:
    """Worth of a refresh of a source of one class, at the hours of the grid: (c, g)."""
    return np.stack(
        [index(np.broadcast_to(one, (len(_GRID_HOURS), len(one))), _GRID_HOURS, class_hours) for one in _ONE]
    )


_FOUND: Final = _of_classes(expected_there, CLASS_HOURS)
_INDEX: Final = dict(
    zip(
        VALUED,
        (
            (1.0 - LASTING) * _of_classes(worth_of_now, discounted(CLASS_HOURS, WORTH_HOURS))
            + LASTING * _of_classes(worth_of_now, CLASS_HOURS),
            _of_classes(worth_of_now, discounted(CLASS_HOURS, WAITING_HOURS)),
            _FOUND,
            _FOUND,
            np.broadcast_to(_GRID_HOURS, _FOUND.shape),
        ),
        strict=True,
    )
)
"""By policy the worth of a refresh of a source with one new link an hour, by class of lifetime."""


class Clock:
    """Hours of the clock of the day.

    Parameters
    ----------
    speed : (24,) float64
        Of each hour, UTC; 1 in the mean.
    """

    def __init__(self, speed: FloatArray) -> None:
        self._sum = np.append(0.0, np.cumsum(speed))
        self._sum *= len(speed) / self._sum[-1]

    def reading(self, at_hours: FloatArray) -> FloatArray:
        """Of hours since 1970-01-01 UTC."""
        days = np.floor(at_hours / 24.0)
        within = np.interp(at_hours - 24.0 * days, np.arange(25.0), self._sum)
        return np.asarray(24.0 * days + within, np.float64)

    def instants(self, reading: FloatArray) -> FloatArray:
        """The hours at which it reads so."""
        days = np.floor(reading / 24.0)
        within = np.interp(reading - 24.0 * days, self._sum, np.arange(25.0))
        return np.asarray(24.0 * days + within, np.float64)


@dataclass(frozen=True)
class Waiting:
    """n sources that wait for a refresh.

    Attributes
    ----------
    per_hour : (n,) float64
        New links, times the odds of an answer.
    share : (n, c) float64
        Their mixture of lifetimes.
    since : (n,) float64
        Hours of the clock since the last visit; inf where there was none.
    away, waited : (n,) float64
        Of sources that do not answer hours from the first failure to the last, and since; 0 where one does.
        They are asked again after `away` hours, so at distances that double, or after the geometric mean of
        that and their own distance: about where `answers` has the best one, of what is away for long.
    least_hours : float
        Between two refreshes of a source.
    span : float
        Hours of the clock that are planned.
    policy : str
        One of `POLICIES`, none of `DRAWN`.
    odds : (n,) float64, optional
        Those of an answer that are in `per_hour` because the last fetch failed; 1 where it did not. For the
        first refresh they do not count: it tells whether the source is back.
    """

    per_hour: FloatArray
    share: FloatArray
    since: FloatArray
    away: FloatArray
    waited: FloatArray
    least_hours: float
    span: float
    policy: str = POLICIES[0]
    odds: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.per_hour)

    def take(self, rows: IntArray) -> Waiting:
        """Some of them."""
        fields = "per_hour", "share", "since", "away", "waited"
        odds = None if self.odds is None else self.odds[rows]
        return replace(self, odds=odds, **{name: getattr(self, name)[rows] for name in fields})

    @cached_property
    def curves(self) -> FloatArray:
        """Worth of a refresh, new links, at the hours of the grid: (n, g)."""
        made = np.zeros((len(self), len(_GRID_HOURS)))
        part = np.empty((min(_ROWS, len(self)), len(_GRID_HOURS)))
        for rows in _slices(len(self)):
            # Class by class: a product of matrices may round by the number of its rows.
            shown, of = self.share[rows] * self.per_hour[rows, None], part[: rows.stop - rows.start]
            for column, worth in zip(shown.T, _INDEX[self.policy], strict=True):
                np.multiply(column[:, None], worth, out=of)
                made[rows] += of
        return made

    def worth(self, elapsed: FloatArray) -> FloatArray:
        """Worth of a refresh so many hours of the clock after the one before: (n,) float64, new links."""
        made = np.zeros(len(self))
        for rows in _slices(len(self)):
            curve, hours = self.curves[rows], np.minimum(elapsed[rows], _GRID_HOURS[-1])
            high = np.clip(np.searchsorted(_GRID_HOURS, hours), 1, len(_GRID_HOURS) - 1)
            part = np.clip((hours - _GRID_HOURS[high - 1]) / np.diff(_GRID_HOURS)[high - 1], 0.0, 1.0)
            every = np.arange(len(curve))
            made[rows] = curve[every, high - 1] * (1.0 - part) + curve[every, high] * part
        return made

    def distances(self, price: FloatArray) -> FloatArray:
        """Hours of the clock between refreshes at prices, inf where a refresh is never worth it.

        Parameters
        ----------
        price : (n,) float64
            New links.
        """
        made = np.empty(len(self))
        for rows in _slices(len(self)):
            made[rows] = self._invert(self.curves[rows], price[rows])
        return made

    def _invert(self, curve: FloatArray, price: FloatArray | float) -> FloatArray:
        """Hours at which curves reach prices, or one price."""
        price, points = np.asarray(price), len(_GRID_HOURS)
        above = np.bitwise_count(np.packbits(curve < price[..., None], axis=1).view(np.uint64)[:, 0])
        high = np.minimum(np.maximum(above, 1), points - 1).astype(np.int64)
        at = high + points * np.arange(len(curve))
        y0, y1 = (np.log(np.maximum(curve.ravel().take(i), 1e-300)) for i in (at - 1, at))
        x0, x1 = _LOG_HOURS.take(high - 1), _LOG_HOURS.take(high)
        part = np.minimum(np.maximum((np.log(price) - y0) / np.maximum(y1 - y0, 1e-12), 0.0), 1.0)
        hours = np.maximum(np.exp(x0 + part * (x1 - x0)), self.least_hours)
        return np.where(above < points, hours, np.inf)

    def firsts(
        self, price: FloatArray | float, distance: FloatArray, curve: FloatArray | None = None
    ) -> FloatArray:
        """Hours of the clock from the last refresh to the first one, as `distances` and at its prices."""
        if self.odds is None or not len(rows := np.flatnonzero(self.odds < 1.0)):
            return distance
        made, every = distance.copy(), np.broadcast_to(price, len(self))
        made[rows] = self._invert((self.curves if curve is None else curve)[rows], (every * self.odds)[rows])
        return made

    def waits(self, first: FloatArray) -> FloatArray:
        """Hours of the clock until the first refresh: (n,) float64."""
        # Who was never seen is due at any distance.
        seen = np.isfinite(self.since)
        left = np.where(seen, first - np.where(seen, self.since, 0.0), 0.0)
        again = np.sqrt(self.away * np.minimum(self.away, first)) - self.waited
        wait = np.maximum(np.maximum(left, again), 0.0)
        return np.where(np.isfinite(first), wait, np.inf)

    def counts(self, first: FloatArray, distance: FloatArray) -> IntArray:
        """Refreshes in the span: (n,) int64."""
        wait = self.waits(first)
        room = np.where(wait < self.span, self.span - wait, 0.0)
        return np.where(room > 0.0, np.maximum(np.ceil(room / distance), 1.0), 0.0).astype(np.int64)

    def _counts(self, curve: FloatArray, price: float) -> IntArray:
        distance = self._invert(curve, price)
        return self.counts(self.firsts(price, distance, curve), distance)

    def asked(self, price: FloatArray) -> IntArray:
        """Refreshes in the span at prices, (n,) float64: (n,) int64."""
        distance = self.distances(price)
        return self.counts(self.firsts(price, distance), distance)

    def totals(self, prices: FloatArray, host_start: IntArray, most: IntArray) -> IntArray:
        """Refreshes of all at each price, within the limits of hosts: (prices,) int64.

        Parameters
        ----------
        prices : (p,) float64
            Ascending.
        host_start : (h + 1,) int64
            Rows of each host; none is empty.
        most : (h,) int64
            Refreshes of each host.
        """
        count = np.empty((len(prices), len(self)), np.int64)
        for rows in _slices(len(self)):
            curve, some = self.curves[rows], self.take(np.arange(rows.start, rows.stop))
            for i in (0, len(prices) - 1):
                count[i, rows] = some._counts(curve, prices[i])
            some._between(curve, prices, count[:, rows])
        return within(count, host_start, most)

    def _between(self, curve: FloatArray, prices: FloatArray, count: IntArray) -> None:
        """Fill in counts, (p, n), of which the first and the last are known."""
        if len(prices) < 3:
            return
        # Where both ends agree all between do: in late rounds nearly everywhere.
        moves = np.flatnonzero(count[0] != count[-1])
        if 2 * len(moves) < len(self):
            count[1:-1] = count[0]
            if len(moves):
                part = count[:, moves]
                self.take(moves)._between(curve[moves], prices, part)
                count[:, moves] = part
            return
        middle = len(prices) // 2
        count[middle] = self._counts(curve, prices[middle])
        self._between(curve, prices[: middle + 1], count[: middle + 1])
        self._between(curve, prices[middle:], count[middle:])

    @property
    def worth_now(self) -> FloatArray:
        """Worth of a refresh at the start: (n,) float64, new links."""
        return self.worth(self.since)

    def instants(self, chosen: Chosen, key: UIntArray, capacity: float) -> Refreshes:
        """When sources are refreshed.

        What is overdue comes at the start, what is worth most first, and no faster than `capacity` times the
        mean of the span; who waits for that at the end comes earlier.
        """
        row = np.repeat(np.arange(len(self)), chosen.count)
        number = np.arange(len(row)) - np.repeat(np.cumsum(chosen.count) - chosen.count, chosen.count)
        distance = self.distances(chosen.at)
        waits = self.waits(self.firsts(chosen.at, distance))
        apart = np.where(np.isfinite(distance), distance, 0.0)
        due: FloatArray = np.minimum(waits, self.span)[row] + number * apart[row]
        first, later = self.worth(self.since + waits), self.worth(np.where(chosen.count > 1, distance, 0.0))
        worth = np.where(number == 0, first[row], later[row])
        order = np.lexsort((key[row], -self.worth_now[row], due))
        gap = self.span / (capacity * max(len(row), 1))
        return Refreshes(row[order], spaced(due[order], gap, self.span - gap), worth[order])


def _slices(n: int) -> list[slice]:
    return [slice(begin, min(begin + _ROWS, n)) for begin in range(0, n, _ROWS)]


def within(count: IntArray, host_start: IntArray, most: IntArray) -> IntArray:
    """Refreshes of all sources, within the limits of hosts: (p,) int64.

    Parameters
    ----------
    count : (p, n) int64
    host_start : (h + 1,) int64
        Rows of each host; none is empty.
    most : (h,) int64
        Refreshes of each host.
    """
    if not count.shape[1]:
        return np.zeros(len(count), np.int64)
    of_host = np.add.reduceat(count, host_start[:-1], axis=1)
    return np.asarray(np.minimum(of_host, most).sum(axis=1), np.int64)


@dataclass(frozen=True)
class Recrawling:
    """What recrawls ask for, where they share a budget with refreshes at one price.

    A refresh that finds one link more, now rather than later, is worth what the first crawl of a new page is.
    Crawls are taken to be asked for in inverse proportion to their price, about the price and the number of
    the night before: where these are right already, nothing moves, whatever the proportion is.

    Attributes
    ----------
    crawls : float
        Of pages, in the span.
    multiplier : float
        Their price: what one more crawl is worth, as the night values freshness.
    new_page_worth : float
        Of the first crawl of a new page, in the same unit.
    """

    crawls: float
    multiplier: float
    new_page_worth: float

    def asked(self, price: FloatArray | float) -> FloatArray:
        """Crawls at prices of a refresh, in new links: float64."""
        return np.asarray(self.crawls * self.multiplier / (price * np.float64(self.new_page_worth)))


@dataclass(frozen=True)
class Bracket:
    """Where the price is: at `low` there are more refreshes than the budget has, at `high` not."""

    low: float = LEAST_PRICE
    high: float = MOST_PRICE

    def prices(self) -> FloatArray:
        """To try, ascending; both ends among them."""
        if (self.low, self.high) == (LEAST_PRICE, MOST_PRICE):  # where prices are as a rule
            return np.concatenate([[self.low], np.geomspace(*_USUAL, PRICES - 2), [self.high]])
        made: FloatArray = np.geomspace(self.low, self.high, PRICES)
        made[0], made[-1] = self.low, self.high
        return made

    def around(self, totals: IntArray, refreshes: int) -> tuple[int, int]:
        """The two of `prices()` between which the budget is; both the lowest where that is too high for it.

        Parameters
        ----------
        totals : (p,) int64
            Refreshes at the prices.
        refreshes : int
        """
        fits = np.flatnonzero(totals <= refreshes)
        first = int(fits[0]) if len(fits) else len(totals) - 1
        return max(first - 1, 0), first


class Asking(Protocol):
    """Sources that ask for refreshes, for fewer at a higher price."""

    def __len__(self) -> int: ...

    def take(self, rows: IntArray) -> Self:
        """Some of them."""

    def asked(self, price: FloatArray) -> IntArray:
        """Refreshes at prices, (n,) float64 each: (n,) int64."""


@dataclass(frozen=True)
class Chosen:
    """Of n sources, how often each is refreshed.

    Attributes
    ----------
    count : (n,) int64
    at : (n,) float64
        The price at which it asks for no fewer.
    price : (n,) float64
        That of its host.
    """

    count: IntArray
    at: FloatArray
    price: FloatArray


@dataclass(frozen=True)
class Refreshes:
    """r refreshes in the order of time.

    Attributes
    ----------
    row : (r,) int64
    due : (r,) float64
        Hours of the clock from the start on.
    worth : (r,) float64
        New links.
    """

    row: IntArray
    due: FloatArray
    worth: FloatArray


def choose(
    waiting: Asking, bracket: Bracket, extra: int, key: UIntArray, host_start: IntArray, most: IntArray
) -> Chosen:
    """Give refreshes to the sources of a shard.

    Parameters
    ----------
    waiting : Asking
    bracket : Bracket
        As the search left it.
    extra : int
        Refreshes beyond those at its high end: they go in the order of keys to sources that have more at its
        low end.
    key : (n,) uint64
    host_start : (h + 1,) int64
    most : (h,) int64
        A host that has more has a higher price of its own.
    """
    n = len(waiting)
    host = np.repeat(np.arange(len(most)), np.diff(host_start))
    low, high = np.full(n, bracket.low), np.full(n, bracket.high)

    def of_host(count: IntArray) -> IntArray:
        return np.bincount(host, count, len(most)).astype(np.int64)

    count = waiting.asked(high)
    over = of_host(count) > most
    if over.any():
        rows = np.flatnonzero(over[host])
        some, of = waiting.take(rows), host[rows]
        ends = np.log(np.where(over, bracket.high, 1.0)), np.full(len(most), np.log(MOST_PRICE))
        for _ in range(_BISECTIONS):
            middle = (ends[0] + ends[1]) / 2.0
            above = np.bincount(of, some.asked(np.exp(middle)[of]), len(most)) > most
            ends = np.where(above, middle, ends[0]), np.where(above, ends[1], middle)
        low[rows], high[rows] = np.exp(ends[0])[of], np.exp(ends[1])[of]
        count[rows] = some.asked(high[rows])
    spare = np.maximum(waiting.asked(low) - count, 0)
    order = np.lexsort((key, host))
    room = (most - of_host(count))[host[order]]
    spare[order] = _in_turn(spare[order], room, host[order])
    # Hosts at their limit fill it by themselves; all others share what the search has left.
    others = ~over[host]
    order = np.lexsort((key, others))
    left = np.where(others, extra, MOST_REFRESHES)[order]
    spare[order] = _in_turn(spare[order], left, others[order].astype(np.int64))
    return Chosen(count + spare, np.where(spare > 0, low, high), high)


def _in_turn(wanted: IntArray, room: IntArray, group: IntArray) -> IntArray:
    """What each gets of the room of its group (ascending), the first ones first."""
    before = np.cumsum(wanted) - wanted
    before -= before[np.searchsorted(group, group)] if len(group) else before
    return np.clip(room - before, 0, wanted)


def spaced(due: FloatArray, gap: float, last: float) -> FloatArray:
    """Instants, ascending, a gap apart or more: later than due, or earlier where they would pass the last."""
    step = gap * np.arange(len(due))
    later = np.maximum.accumulate(due - step) + step if len(due) else due
    return np.asarray(np.minimum(later, last - step[::-1]), np.float64)
