"""Rates and thresholds of pages with signals for many multipliers close to one another.

A search evaluates every page at a dozen multipliers, each nearer to the answer. Solving for the threshold
costs microseconds; a Taylor series around a first guess costs nanoseconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from policies import signal_clock
from policies.signal_clock import Point
from policies.signal_pages import (
    GENERAL,
    NOISELESS,
    SignalPages,
    blocks,
    closed,
    depth_of,
    kind_of,
    prices,
    scaled,
)
from policies.typing_ import ByteArray, FloatArray, IntArray

_COLUMNS = tuple(field.name for field in fields(Point))


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
    point : signal_clock.Point
        Series of each page; reach 0 where there is none: kinds with closed forms, and pages not worth a
        crawl there.
    """

    pages: SignalPages
    kind: ByteArray
    multiplier: float
    point: Point

    def rates(self, multiplier: float | FloatArray) -> FloatArray:
        """Crawls per day that `multiplier` buys, as `signal_value.crawl_rate`; (n,) float64.

        Relative error at most 1e-9 for any multiplier: by the series inside their reach, else solved.

        Raises
        ------
        ValueError
            A negative multiplier, or NaN.
        """
        return self._evaluate(multiplier)[1]

    def thresholds(self, multiplier: float | FloatArray) -> FloatArray:
        """Threshold of the clock at `multiplier`, as `signal_value.threshold`; (n,) float64."""
        return self._evaluate(multiplier)[0]

    def _evaluate(self, multiplier: float | FloatArray) -> tuple[FloatArray, FloatArray]:
        price = prices(self.pages, multiplier)
        u, rate = np.empty(len(self.pages)), np.empty(len(self.pages))
        for block in blocks(len(self.pages)):
            u[block], rate[block] = self._block(block, price[block])
        return u, rate

    def _block(self, block: slice, price: FloatArray) -> tuple[FloatArray, FloatArray]:
        pages, kind = self.pages.take(block), self.kind[block]
        depth = depth_of(pages, kind, price)
        u, rate = closed(pages, kind, depth)
        rows = np.flatnonzero(((kind == GENERAL) | (kind == NOISELESS)) & np.isfinite(depth) & (depth > 0.0))
        if rows.size == 0:
            return u, rate
        point, goal = take(take(self.point, block), rows), depth[rows]
        inside = np.abs(goal - point.depth) <= point.reach
        with np.errstate(over="ignore", invalid="ignore"):
            clock = signal_clock.move(point, goal)
            h = signal_clock.move_h(point, goal)
        outside = np.flatnonzero(~inside)
        if outside.size:
            r, kappa = scaled(pages.take(rows[outside]))
            goal = goal[outside]
            start = clock[outside]
            # A series is a good start a little outside its reach, and none at all further out.
            near = np.abs(goal - point.depth[outside]) <= np.minimum(20.0 * point.reach[outside], 0.1 * goal)
            far = np.flatnonzero(~(near & (start > 0.0) & np.isfinite(start)))
            start[far] = signal_clock.guess(r[far], kappa[far], goal[far])
            found = signal_clock.solve(r, kappa, goal, start, loose=True)
            clock[outside] = signal_clock.move(found, goal)
            h[outside] = signal_clock.move_h(found, goal)
        u[rows] = clock
        rate[rows] = pages.unsignalled_rate_per_day[rows] / h
        return u, rate

    def take(self, rows: IntArray | slice) -> "Expansion":
        """The pages of `rows`."""
        return Expansion(self.pages.take(rows), self.kind[rows], self.multiplier, take(self.point, rows))

    def columns(self) -> dict[str, FloatArray]:
        """The series as named (n,) float64 columns, to travel with the pages."""
        return {name: getattr(self.point, name) for name in _COLUMNS}

    @classmethod
    def from_columns(cls, pages: SignalPages, multiplier: float, columns: Mapping[str, FloatArray]) -> Self:
        """The expansion that `columns` came from.

        Raises
        ------
        ValueError
            A column is missing or has the wrong length.
        """
        missing = [name for name in _COLUMNS if name not in columns]
        if missing:
            raise ValueError(f"an expansion needs the column {missing[0]!r}, got {sorted(columns)}")
        arrays = [np.asarray(columns[name], dtype=np.float64) for name in _COLUMNS]
        for name, array in zip(_COLUMNS, arrays, strict=True):
            if array.shape != (len(pages),):
                raise ValueError(f"{name} has shape {array.shape}, expected ({len(pages)},)")
        return cls(pages, kind_of(pages), float(multiplier), Point(*arrays))


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
    kind = kind_of(pages)
    point = Point(*(np.zeros(n) for _ in _COLUMNS))
    for block in blocks(n):
        part = pages.take(block)
        depth = depth_of(part, kind[block], prices(part, multiplier))
        searched = (kind[block] == GENERAL) | (kind[block] == NOISELESS)
        rows = np.flatnonzero(searched & np.isfinite(depth) & (depth > 0.0))
        if rows.size == 0:
            continue
        r, kappa = scaled(part.take(rows))
        found = signal_clock.solve(r, kappa, depth[rows], loose=True)
        for name in _COLUMNS:
            getattr(point, name)[block][rows] = getattr(found, name)
    return Expansion(pages, kind, float(multiplier), point)


def take(point: Point, rows: IntArray | slice) -> Point:
    """The pages of `rows`."""
    return Point(*(getattr(point, name)[rows] for name in _COLUMNS))
