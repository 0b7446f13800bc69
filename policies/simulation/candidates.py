"""What the candidates of a block of slots are worth, to within known errors.

Where no signal comes, crawl value V is smooth in time: ``V' = mu a E psi`` with E = e^-clock, and psi has
``0 <= psi' <= 1`` and ``|psi''| <= g``, since psi' = P(the threshold is reached by drift) and
``psi'(x) = 1 - g (psi(x) - psi(x - beta))``. So the cubic with V and V' at both ends of a stretch of length d
is off by at most

    mu a E [ g d^3 / 96 + (3 a^2 + 2 a g + a^3 psi) d^4 / 384 ]

E at its start, psi at its end: the part of V''' with psi'' need not be continuous (1/96 is the Peano constant
of third order of cubic Hermite interpolation), the rest is (1/384, of fourth order).
"""

from dataclasses import dataclass

import numpy as np

from policies.greedy.crawl_values import value_and_interval
from policies.numerics.typing_ import FloatArray, IntArray
from policies.signalled.pages import SignalPages
from policies.simulation.levels import Levels, by_terms

UNKNOWN = 1e308
"""Stands for a value that has to be found before anything can be said."""

SLACK = 1e-11
"""Of values, relative: they are good to 1e-13 and better."""
_NEVER_FRESH = 745.0
_ROWS = 512  # at a time: what they need stays in the cache


@dataclass
class Table:
    """Values of k candidates in each slot of a block, for each lane.

    Attributes
    ----------
    page : (lanes, k) int64
        Rising; -1 where there is no candidate.
    value : (lanes, slots, k) float64
        `UNKNOWN` where it is not known.
    below, above : (lanes, k) float64
        What to add for bounds; both -inf for candidates that are out.
    due : (lanes, k) float64
        Reading of the clock since the last crawl at which the level is reached.
    """

    page: IntArray
    value: FloatArray
    below: FloatArray
    above: FloatArray
    due: FloatArray

    @classmethod
    def empty(cls, lanes: int, slots: int, k: int) -> "Table":
        """No candidates."""
        out = np.full((lanes, k), -np.inf)
        return cls(np.full((lanes, k), -1), np.zeros((lanes, slots, k)), out, out.copy(), out.copy())

    def widened(self, k: int) -> "Table":
        """The same with room for k candidates."""
        lanes, slots, now = self.value.shape
        if k <= now:
            return self
        wide = Table.empty(lanes, slots, k)
        for name in ("page", "below", "above", "due"):
            getattr(wide, name)[:, :now] = getattr(self, name)
        wide.value[:, :, :now] = self.value
        return wide


@dataclass(frozen=True)
class Stretches:
    """Stretches without signals of rows (lane, page): slots begin..end, signals since the crawl."""

    row: IntArray
    lane: IntArray
    page: IntArray
    begin: IntArray
    end: IntArray
    signals: FloatArray


def fill(
    table: Table,
    pages: SignalPages,
    levels: Levels,
    found: Stretches,
    place: IntArray,
    crawled: FloatArray,
    times: FloatArray,
) -> None:
    """Write values and their errors of stretches into a table.

    Parameters
    ----------
    table : Table
    pages : SignalPages
        Of all lanes.
    levels : Levels
    found : Stretches
    place : (rows,) int64
        Candidate of each row.
    crawled : (stretches,) float64
        Time of the last crawl.
    times : (slots,) float64
    """
    lane, page, n = found.lane, found.page, found.row.size
    first, last = times[found.begin], times[found.end]
    at = lane * levels.m + page
    here = pages.take(at)
    ends = np.concatenate((np.arange(n), np.flatnonzero(found.end > found.begin)))
    elapsed = np.concatenate((first, last[ends[n:]])) - crawled[ends]
    value, interval = np.empty(ends.size), np.empty(ends.size)
    for terms, rows in by_terms(levels.terms, lane[ends]):
        value[rows], interval[rows] = value_and_interval(
            here.take(ends[rows]), elapsed[rows], found.signals[ends[rows]], terms
        )
    value1, interval1 = value[:n].copy(), interval[:n].copy()
    value1[ends[n:]], interval1[ends[n:]] = value[n:], interval[n:]
    value0, interval0 = value[:n], interval[:n]

    a, jump = levels.speed.ravel()[at], levels.jump.ravel()[at]
    g = np.where(jump > 0.0, here.signal_rate_per_day, 0.0)
    d = last - first
    u0 = a * (first - crawled) + jump * found.signals
    scale = here.request_rate_per_day * a * np.exp(-np.minimum(u0, _NEVER_FRESH))
    moves = (scale > 0.0) & (d > 0.0) & (interval1 > 0.0) & (u0 < _NEVER_FRESH)
    scale = np.where(moves, scale, 0.0)
    psi0 = np.where(moves, interval0, 0.0)
    psi1 = np.where(moves, np.minimum(interval1, 1e300), 0.0)
    slope0, slope1 = scale * psi0 * d, scale * np.exp(-a * d) * psi1 * d
    error = scale * d**3 * (g / 96.0 + (3.0 * a * a + 2.0 * a * g + a**3 * psi1) * d / 384.0)
    error += SLACK * value1
    # Of all stretches of a row, which share one error.
    row_error = np.zeros(place.size)
    np.maximum.at(row_error, found.row, error)
    rise = value1 - value0
    c2 = 3.0 * rise - 2.0 * slope0 - slope1
    c3 = slope0 + slope1 - 2.0 * rise

    over = np.where(d > 0.0, 1.0 / np.where(d > 0.0, d, 1.0), 0.0)
    whole = found.end - found.begin + 1 == table.value.shape[1]
    rows = np.flatnonzero(whole)
    for start in range(0, rows.size, _ROWS):
        some = rows[start : start + _ROWS]
        x = (times - first[some, None]) * over[some, None]
        y = c3[some, None] * x
        y += c2[some, None]
        y *= x
        y += slope0[some, None]
        y *= x
        y += value0[some, None]
        table.value[lane[some], :, place[found.row[some]]] = y
    rows = np.flatnonzero(~whole)
    if rows.size:
        length = found.end[rows] - found.begin[rows] + 1
        of = np.repeat(rows, length)
        slot = np.arange(of.size) - np.repeat(np.cumsum(length) - length, length) + found.begin[of]
        x = (times[slot] - first[of]) * over[of]
        y = value0[of] + x * (slope0[of] + x * (c2[of] + x * c3[of]))
        table.value[lane[of], slot, place[found.row[of]]] = y
    row_lane = np.zeros(place.size, np.int64)
    row_lane[found.row] = lane
    table.below[row_lane, place] = -row_error
    table.above[row_lane, place] = row_error
