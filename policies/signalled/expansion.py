"""Rates and thresholds of pages with signals for many multipliers close to one another.

A search evaluates every page at a dozen multipliers, each nearer to the answer. Solving for the threshold
costs microseconds; a Taylor series around a first guess costs nanoseconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self, TypeVar

import numpy as np

from policies.numerics.columns import take
from policies.numerics.typing_ import ByteArray, FloatArray, IntArray
from policies.signalled import first_signal, threshold_clock
from policies.signalled.pages import (
    GENERAL,
    INERT,
    NOISELESS,
    SignalPages,
    blocks,
    closed,
    depth_from,
    depth_of,
    first_depth,
    kind_at,
    kind_of,
    prices,
    scaled,
    useful_changes,
    value_of_first,
)
from policies.signalled.threshold_clock import Point

_COLUMNS = tuple(field.name for field in fields(Point))
_Series = TypeVar("_Series", Point, first_signal.Series)

_PASS = 1 << 14  # pairs of page and multiplier evaluated together: their arrays stay in the cache
_ROWS = 1 << 13
_SOLVED = 1 << 16  # pairs that are solved together
_RENEWALS = 2  # series of a page that may serve several multipliers, before each gets its own
_LEFT = 1 << 19  # pairs that are kept until they are solved


@dataclass(frozen=True, slots=True)
class Expansion:
    """Threshold and crawl rate of n pages as functions of the multiplier, near one multiplier.

    Attributes
    ----------
    pages : SignalPages
    kind : (n,) uint8
        As `signal_pages.kind_of` gives it.
    multiplier : float
        Where it was made, in requests per crawl.
    point : threshold_clock.Point
        Series of each page; reach 0 where there is none: kinds with closed forms, pages crawled at the first
        signal at the latest, and those not worth a crawl there.
    first_value : (n,) float64
        Multipliers up to which the first signal ends every interval.
    early : first_signal.Series
        Of pages for which it does there, and those without false signals.
    """

    pages: SignalPages
    kind: ByteArray
    multiplier: float
    point: Point
    first_value: FloatArray
    early: first_signal.Series

    def rates(self, multiplier: float | FloatArray) -> FloatArray:
        """Crawls per day that `multiplier` buys, as `signal_value.crawl_rate`; (n,) float64.

        Relative error at most 1e-9 for any multiplier: by the series inside their reach, else solved.

        Raises
        ------
        ValueError
            A negative multiplier, or NaN.
        """
        return Trail(self).at(np.arange(len(self.pages)), prices(self.pages, multiplier))[1]

    def thresholds(self, multiplier: float | FloatArray) -> FloatArray:
        """Threshold of the clock at `multiplier`, as `signal_value.threshold`; (n,) float64."""
        return Trail(self).at(np.arange(len(self.pages)), prices(self.pages, multiplier))[0]

    def rates_at(self, multipliers: FloatArray) -> FloatArray:
        """`rates` at many multipliers, at a fraction of the cost: (k, n) float64.

        Where the series of a page does not reach, new ones amid its multipliers do, within the same error.
        What a page gets depends on that page and the multipliers alone, to the bit.

        Parameters
        ----------
        multipliers : (k,) float64, >= 0
        """
        out = np.zeros((multipliers.size, len(self.pages)))
        if multipliers.size == 0:
            return out
        general = self.kind == GENERAL
        early = (self.kind == NOISELESS) | (general & (multipliers.min() <= self.first_value))
        near = np.zeros(early.size, dtype=np.bool_)
        off = (
            multipliers[:, None] / self.multiplier - 1.0 if self.multiplier > 0.0 else np.full((1, 1), np.inf)
        )
        if np.abs(off).max() < 1.0:
            near = early & (np.abs(off).max() <= self.early.reach())
            near &= (self.kind == NOISELESS) | (multipliers.max() <= self.first_value)
        size = max(_PASS // multipliers.size, 1)
        for part in _parts(np.flatnonzero(near), size):
            r, a = scaled(self.pages.take(part))[0], self.pages.unsignalled_rate_per_day[part]
            out[:, part] = a * take(self.early, part).rates_near(r, off)
        for part in _parts(np.flatnonzero(early & ~near), size):
            out[:, part] = self._by_first_signal(part, multipliers[:, None])
        rows = np.flatnonzero(~(general | early | (self.kind == INERT)))
        for part in _parts(rows, _ROWS):
            pages, kind = self.pages.take(part), self.kind[part]
            for j, multiplier in enumerate(multipliers):
                out[j, part] = closed(pages, kind, np.broadcast_to(multiplier, part.shape))[2]
        rows = np.flatnonzero(general & (multipliers.max() > self.first_value))
        size = max(min(_ROWS, _LEFT // multipliers.size), 1)
        found: list[tuple[IntArray, IntArray, FloatArray]] = []
        for start in range(0, rows.size, size):
            part = rows[start : start + size]
            rates, left = self._by_series(part, multipliers)
            out[:, part] = np.where(multipliers[:, None] <= self.first_value[part], out[:, part], rates)
            for first, goal in left:
                at, which = np.nonzero(~np.isnan(goal))
                found.append((first + at, part[which], goal[at, which]))
            if found and (start + size >= rows.size or sum(one[0].size for one in found) > _LEFT):
                columns = [np.concatenate(column) for column in zip(*found, strict=True)]
                self._solve_left(columns[0], columns[1], columns[2], out)
                found = []
        return out

    def _by_first_signal(self, rows: IntArray, multipliers: FloatArray) -> FloatArray:
        """Rates of `rows` whose first signal ends every interval: (k, rows) float64."""
        pages = self.pages.take(rows)
        a, y = pages.unsignalled_rate_per_day, first_depth(pages, multipliers)
        never, always = y == np.inf, y == 0.0
        special = np.any(never) or np.any(always)
        if special:
            y[never | always] = 1.0
        rates = a * take(self.early, rows).rates(pages.signal_rate_per_day / a, y)
        if special:
            rates[never], rates[always] = 0.0, np.inf
        return rates

    def _by_series(
        self, rows: IntArray, multipliers: FloatArray
    ) -> tuple[FloatArray, list[tuple[int, FloatArray]]]:
        """`rates_at` for `rows` without closed forms where the series reach: (k, rows) float64.

        Also, for some multipliers from a first one on, the depths that they do not reach, elsewhere NaN.
        """
        pages, point = self.pages.take(rows), take(self.point, rows)
        a, mu, changes = pages.unsignalled_rate_per_day, pages.request_rate_per_day, useful_changes(pages)
        out = np.empty((multipliers.size, rows.size))
        step = max(_PASS // rows.size, 1)
        outside = []
        for first in range(0, multipliers.size, step):
            price = multipliers[first : first + step, None]
            part = out[first : first + step]
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                goal = depth_from(price * changes, mu)
                np.divide(a, threshold_clock.move_h(point, goal), out=part)
                left = ~(np.abs(goal - point.depth) <= point.reach)
            if not np.any(left):
                continue
            never, always = goal == np.inf, goal == 0.0
            part[never] = 0.0
            part[always] = np.inf
            left &= ~(never | always | (price <= self.first_value[rows]))
            if np.any(left):
                outside.append((first, np.where(left, goal, np.nan)))
        return out, outside

    def _solve_left(self, at: IntArray, which: IntArray, goal: FloatArray, out: FloatArray) -> None:
        """Rates of pages `which` at their depths `goal` into rows `at` of `out`.

        The goals of one page are ascending. A new series in their middle reaches most of the others, too.
        """
        order = np.argsort(which, kind="stable")
        at, which, goal = at[order], which[order], goal[order]
        for renewal in range(_RENEWALS + 1):
            first = np.flatnonzero(np.diff(which, prepend=-1))
            if renewal == _RENEWALS:
                first = np.arange(at.size)
            ends = np.append(first, at.size)
            left = np.zeros(at.size, dtype=np.bool_)
            for start in range(0, first.size, _SOLVED):
                count = np.diff(ends[start : start + _SOLVED + 1])
                middle = first[start : start + _SOLVED] + count // 2
                rows = which[middle]
                found = _solve(self.pages.take(rows), take(self.point, rows), goal[middle])
                a = self.pages.unsignalled_rate_per_day[rows]
                pairs = slice(int(ends[start]), int(ends[start + count.size]))
                if count.size < pairs.stop - pairs.start:
                    mine = np.repeat(np.arange(count.size), count)
                    found, a = take(found, mine), a[mine]
                    left[pairs] = ~(np.abs(goal[pairs] - found.depth) <= found.reach)
                    left[middle] = False
                with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                    out[at[pairs], which[pairs]] = a / threshold_clock.move_h(found, goal[pairs])
            if not np.any(left):
                return
            at, which, goal = at[left], which[left], goal[left]

    def take(self, rows: IntArray | slice) -> "Expansion":
        """The pages of `rows`."""
        columns = take(self.point, rows), self.first_value[rows], take(self.early, rows)
        return Expansion(self.pages.take(rows), self.kind[rows], self.multiplier, *columns)


def expand(pages: SignalPages, multiplier: float) -> Expansion:
    """The series of each page around `multiplier`.

    Parameters
    ----------
    pages : SignalPages
    multiplier : float, > 0
        Requests per crawl.

    Returns
    -------
    Expansion

    Raises
    ------
    ValueError
        Rates out of range; multiplier not positive and finite.
    """
    pages.check()
    if not 0.0 < multiplier < np.inf:
        raise ValueError(f"an expansion needs a multiplier > 0 and finite, got {multiplier!r}")
    n = len(pages)
    kind, first = kind_of(pages), np.empty(n)
    early = first_signal.Series(*np.zeros((3, n)))
    point = Point(*(np.zeros(n) for _ in _COLUMNS))
    for block in blocks(n):
        part = pages.take(block)
        first[block] = value_of_first(part)
        price = prices(part, multiplier)
        here = kind_at(kind[block], price, first[block])
        y = first_depth(part, price)
        rows = np.flatnonzero((here == NOISELESS) & (y > 0.0) & (y < np.inf))
        r = scaled(part.take(rows))[0]
        _put(early, block, rows, first_signal.Series.of(r, y[rows]))
        rows = np.flatnonzero(here == GENERAL)
        depth = depth_of(part.take(rows), here[rows], price[rows])
        some = (depth > 0.0) & (depth < np.inf)
        rows, depth = rows[some], depth[some]
        if rows.size:
            r, kappa = scaled(part.take(rows))
            _put(point, block, rows, threshold_clock.solve(r, kappa, depth, loose=True))
    return Expansion(pages, kind, float(multiplier), point, first, early)


def _parts(rows: IntArray, size: int) -> Iterator[IntArray]:
    for start in range(0, rows.size, size):
        yield rows[start : start + size]


def _put(columns: _Series, block: slice, rows: IntArray, found: _Series) -> None:
    for field in fields(columns):
        getattr(columns, field.name)[block][rows] = getattr(found, field.name)


def _solve(pages: SignalPages, point: Point, goal: FloatArray) -> Point:
    """Series around the depths `goal` of pages whose own, `point`, do not reach there."""
    r, kappa = scaled(pages)
    with np.errstate(over="ignore", invalid="ignore"):
        start = threshold_clock.move(point, goal)
    # A series is a good start a little outside its reach, and none at all further out.
    near = np.abs(goal - point.depth) <= np.minimum(20.0 * point.reach, 0.1 * goal)
    far = np.flatnonzero(~(near & (start > 0.0) & np.isfinite(start)))
    start[far] = threshold_clock.guess(r[far], kappa[far], goal[far])
    return threshold_clock.solve(r, kappa, goal, start, loose=True)


class Trail:
    """Rates at multipliers that close in on an answer, of each page its own: series follow them.

    The rates of a page depend on the multipliers it was asked for before, in their last digits.
    """

    __slots__ = ("_first", "_kind", "_pages", "_point")

    def __init__(self, near: Expansion) -> None:
        """Starts from `near`, which stays as it is."""
        self._pages, self._kind, self._first = near.pages, near.kind, near.first_value
        self._point = Point(*(getattr(near.point, name).copy() for name in _COLUMNS))

    @classmethod
    def of(cls, pages: SignalPages) -> Self:
        """Starts from nothing."""
        point = Point(*np.zeros((len(_COLUMNS), len(pages))))
        early = first_signal.Series(*np.zeros((3, len(pages))))
        return cls(Expansion(pages, kind_of(pages), 0.0, point, value_of_first(pages), early))

    def at(self, rows: IntArray, multiplier: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Thresholds and crawls per day of `rows`, distinct ones, at their multipliers >= 0: (k,) float64."""
        clock, rate = np.empty((2, rows.size))
        for block in blocks(rows.size):
            clock[block], rate[block] = self._at(rows[block], multiplier[block])
        return clock, rate

    def _at(self, rows: IntArray, multiplier: FloatArray) -> tuple[FloatArray, FloatArray]:
        pages = self._pages.take(rows)
        kind = kind_at(self._kind[rows], multiplier, self._first[rows])
        goal, clock, rate = closed(pages, kind, multiplier)
        searched = (kind == GENERAL) & np.isfinite(goal) & (goal > 0.0)
        left = searched & ~(np.abs(goal - self._point.depth[rows]) <= self._point.reach[rows])
        some = np.flatnonzero(left)
        if some.size:
            found = _solve(pages.take(some), take(self._point, rows[some]), goal[some])
            _put(self._point, slice(None), rows[some], found)
        some = np.flatnonzero(searched)
        point = take(self._point, rows[some])
        clock[some] = threshold_clock.move(point, goal[some])
        rate[some] = pages.unsignalled_rate_per_day[some] / threshold_clock.move_h(point, goal[some])
        return clock, rate
