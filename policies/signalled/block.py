"""Pages with change-indicating signals in the search: their rows, and the rates they ask for.

A page with signals is crawled when its clock, -log of the probability that the copy is still fresh, reaches a
threshold (Busa-Fekete et al., "A Scalable Crawling Algorithm Utilizing Noisy Change-Indicating Signals",
Theorem 1).
The threshold for a multiplier has no closed form. So the search expands rates and thresholds of all pages
around its first guess, once; every evaluation near it then costs a polynomial.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policies.numerics.columns import take
from policies.numerics.special import p2
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives.objectives import TINY_RATE
from policies.signalled import pages as signal_pages
from policies.signalled import value as signal_value
from policies.signalled.expansion import Expansion, expand
from policies.signalled.pages import SignalPages, value_of_first

RADIUS: Final = 0.02
"""How far, in log multiplier, an expansion reaches; beyond it, pages are solved one by one."""

_WINDOW: Final = 1 << 17  # rows with signals that are evaluated together; more than a chunk
_CACHE: Final = 1 << 19  # rates that a window of several chunks keeps: 4 MB
_TOGETHER: Final = 288  # multipliers at which rates are kept together: 19 MB for a chunk
_MANY: Final = 6  # multipliers for which it pays to look at the first and the last one before
_MARGIN: Final = 1e-6  # by which a rate surely lies beyond a limit
_LARGEST_RATE: Final = 1e30
_SURE_WEIGHT: Final = 40.0  # a signal of this weight leaves no hope: e^-40 is below the rounding of 1
_SAFETY: Final = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class SignalBlock:
    """The pages of a block that have signals. Rates are per day.

    Attributes
    ----------
    row : (m,) int64, ascending
        Rows of the pages in the block.
    unsignalled_rate_per_day : (m,) float64
        Rate of changes that send no signal; 0 if each change sends one.
    signal_rate_per_day : (m,) float64
        Rate of signals, true and false.
    signal_weight : (m,) float64
        -log P(unchanged) that one signal adds to the clock; no unit. 0 is pure noise, inf a sure change.
    """

    row: IntArray
    unsignalled_rate_per_day: FloatArray
    signal_rate_per_day: FloatArray
    signal_weight: FloatArray

    def __len__(self) -> int:
        return int(self.row.shape[0])

    def validate(self, n: int) -> None:
        """Raises ValueError at the first column that is malformed, for a block of `n` pages."""
        m = self.row.shape
        if self.row.ndim != 1 or self.row.dtype != np.int64:
            raise ValueError(f"row of signals must be int64 of one dimension, got {self.row.dtype} of {m}")
        if self.row.size and not (
            self.row[0] >= 0 and self.row[-1] < n and bool(np.all(self.row[1:] > self.row[:-1]))
        ):
            raise ValueError(f"row of signals must rise within the {n} pages of the block")
        for name, largest in (
            ("unsignalled_rate_per_day", _LARGEST_RATE),
            ("signal_rate_per_day", _LARGEST_RATE),
            ("signal_weight", np.inf),
        ):
            values = getattr(self, name)
            if values.shape != m or values.dtype != np.float64:
                raise ValueError(f"{name} must be float64 of shape {m}, got {values.dtype} of {values.shape}")
            if values.size and not (float(values.min()) >= 0.0 and float(values.max()) <= largest):
                raise ValueError(
                    f"{name} must lie in [0, {largest:g}], got values from {float(values.min())!r} to "
                    f"{float(values.max())!r}"
                )

    def pages(self, request_rate_per_day: FloatArray) -> SignalPages:
        """The pages; `request_rate_per_day` (n,) is that of the whole block."""
        return SignalPages(
            request_rate_per_day[self.row],
            self.unsignalled_rate_per_day,
            self.signal_rate_per_day,
            self.signal_weight,
        )

    def take(self, chosen: BoolArray) -> SignalBlock:
        """Those of the `chosen` pages, (n,) bool, for a block of these pages alone."""
        part = take(self, chosen[self.row])
        return replace(part, row=(np.cumsum(chosen) - 1)[part.row])

    def slice(self, start: int, stop: int) -> SignalBlock:
        """Those in rows start:stop of the block, for a block of these rows alone."""
        first, last = np.searchsorted(self.row, [start, stop])
        part = take(self, slice(int(first), int(last)))
        return replace(part, row=part.row - start)


class SignalRows:
    """Pages of a block whose signals matter, ready for evaluation.

    Pages without a request, a change or a signal that says anything are left to the plain objective.

    Attributes
    ----------
    row : (s,) int64, ascending
    pages : SignalPages
    ratio : (s,) float64
        1 / (marginal value at rate 0+).
    most_per_day : (s,) float64
        Rate beyond which no crawl helps: that of the signals where each change sends one, else inf.
    limits : tuple of two (s,) float64, or None
        Floors and caps; None if there are none.
    near : Expansion or None
        None before `expand`.
    """

    def __init__(
        self, row: IntArray, pages: SignalPages, limits: tuple[FloatArray, FloatArray] | None = None
    ) -> None:
        a = pages.unsignalled_rate_per_day
        self.row, self.pages = row, replace(pages, unsignalled_rate_per_day=np.where(a < TINY_RATE, 0.0, a))
        pages = self.pages
        self.ratio = pages.change_rate_per_day / pages.request_rate_per_day
        self.most_per_day = np.where(pages.unsignalled_rate_per_day > 0.0, np.inf, pages.signal_rate_per_day)
        self.limits = limits
        self.near: Expansion | None = None

    @classmethod
    def of(
        cls,
        signals: SignalBlock,
        request_rate_per_day: FloatArray,
        floor: FloatArray | None = None,
        cap: FloatArray | None = None,
    ) -> SignalRows | None:
        """Those of a block, with floors and caps (n,) of all its pages; None if there are none."""
        pages = signals.pages(request_rate_per_day)
        kind = signal_pages.kind_of(pages)
        matters = (kind != signal_pages.INERT) & (kind != signal_pages.NO_SIGNALS)
        if not np.any(matters):
            return None
        rows = np.flatnonzero(matters)
        row = signals.row[rows]
        limits = None
        if floor is not None or cap is not None:
            limits = (
                np.zeros(row.size) if floor is None else floor[row],
                np.full(row.size, np.inf) if cap is None else cap[row],
            )
        return cls(row, pages.take(rows), limits)

    def expand(self, multiplier: float) -> None:
        """Makes evaluations near `multiplier` cheap. The rates depend on it in their last digits."""
        if multiplier > 0.0 and (self.near is None or self.near.multiplier != multiplier):
            self.near = expand(self.pages, multiplier)

    def window(
        self,
        first: int,
        last: int,
        multipliers: Sequence[float],
        within_limits: bool,
    ) -> SignalWindow:
        """The rows numbered first:last, and more if they are few, for evaluation at ascending multipliers.

        `within_limits`: rates count within floors and caps only.
        """
        many = max(len(multipliers), 1)
        few = min(_WINDOW, _CACHE // many) if many <= _TOGETHER else 0
        rows = slice(first, min(max(last, first + few), self.row.size))
        return SignalWindow(self, rows, multipliers, within_limits and self.limits is not None)

    def find(self, rows: IntArray) -> tuple[IntArray, IntArray]:
        """Where in ascending block `rows` there are pages of these, and which: two (k,) int64."""
        at = np.searchsorted(self.row, rows)
        inside = np.minimum(at, self.row.size - 1)
        where = np.flatnonzero((at < self.row.size) & (self.row[inside] == rows))
        return where, at[where]


class SignalWindow:
    """Some of the rows, evaluated together: a call costs more than a page.

    Most pages are settled by the first and the last multiplier: starved, at their cap or at their floor at
    both. Only the others are evaluated in between, some multipliers at a time, so that memory is bounded.

    Attributes
    ----------
    rows : slice
        Which of all rows with signals.
    row : (w,) int64
    most_per_day : (w,) float64
    """

    def __init__(
        self, of: SignalRows, rows: slice, multipliers: Sequence[float], within_limits: bool
    ) -> None:
        self.rows, self.row, self.most_per_day = rows, of.row[rows], of.most_per_day[rows]
        self._pages = of.pages.take(rows)
        self._near = None if of.near is None else of.near.take(rows)
        self._multipliers = np.array(multipliers, dtype=np.float64)
        self._at: dict[float, int] = {}  # rows of `_found` by multiplier
        self._found = np.empty((0, self.row.size))
        self._open = np.arange(self.row.size)
        self._ends: tuple[FloatArray, FloatArray] | None = None
        self._settled = np.zeros(self.row.size)
        self._limits = None
        if within_limits and of.limits is not None:
            self._limits = (of.limits[0][rows], of.limits[1][rows])
        if self._multipliers.size >= (_MANY if self._limits is None else 3):
            self._settle()

    def _settle(self) -> None:
        """Finds the pages with one rate for all multipliers, or rates that all lie beyond a limit."""
        at_first, at_last = self._evaluate(self._multipliers[[0, -1]])
        kind = signal_pages.kind_of(self._pages)
        steps = (kind == signal_pages.FULL_RECALL) | (kind == signal_pages.PERFECT)
        settled = (at_first == 0.0) | (steps & (at_first == at_last))
        if self._limits is not None:
            floor, cap = self._limits
            settled |= at_last >= cap * (1.0 + _MARGIN)
            at_floor = at_first <= floor * (1.0 - _MARGIN)
            settled |= at_floor
        self._settled = np.where(settled, at_last, 0.0)
        self._open = np.flatnonzero(~settled)
        self._ends = (at_first[self._open], at_last[self._open])
        if self._near is not None:
            self._near = self._near.take(self._open)
        self._pages = self._pages.take(self._open)

    def _evaluate(self, multipliers: FloatArray) -> FloatArray:
        """(k, open pages) rates, before floors and caps."""
        if self._near is not None:
            return self._near.rates_at(multipliers)
        rates = [signal_value.crawl_rate(self._pages, float(multiplier)) for multiplier in multipliers]
        return np.array(rates).reshape(multipliers.size, self._open.size)

    def settled(self, part: slice) -> FloatArray:
        """(p,) rates of those in a `part` of the rows that have one for all multipliers, else 0."""
        return self._settled[part]

    def others(self, multiplier: float, part: slice) -> tuple[IntArray, FloatArray]:
        """The other rows of the `part`, (q,) from its start, and their rates at a multiplier > 0."""
        first, last = (int(at) for at in np.searchsorted(self._open, [part.start, part.stop]))
        rows = self._open[first:last] - part.start
        if multiplier == np.inf:
            return rows, np.zeros(rows.size)
        if multiplier not in self._at:
            # Whatever the number of rows: which multipliers come together tells in the last digits.
            start = int(np.searchsorted(self._multipliers, multiplier)) // _TOGETHER * _TOGETHER
            some = self._multipliers[start : start + _TOGETHER]
            if multiplier not in some:
                raise ValueError(f"{multiplier!r} is none of the multipliers of this window")
            self._at = {float(x): j for j, x in enumerate(some)}
            self._found = np.empty((some.size, self._open.size))
            inner = np.ones(some.size, dtype=np.bool_)
            if self._ends is not None:  # known already
                is_end = (some == self._multipliers[0]), (some == self._multipliers[-1])
                for at, rates in zip(is_end, self._ends, strict=True):
                    self._found[at] = rates
                inner = ~(is_end[0] | is_end[1])
            if np.any(inner):
                self._found[inner] = self._evaluate(some[inner])
        return rows, self._found[self._at[multiplier], first:last]

    def rates(self, multiplier: float, part: slice) -> FloatArray:
        """Crawl rates per day asked for at a multiplier > 0 by a `part` of the rows: (p,) float64.

        Before floors and caps; where those were given, a rate beyond them may stand for any other.
        """
        rows, rates = self.others(multiplier, part)
        if rows.size == part.stop - part.start:
            return rates
        out = np.zeros(part.stop - part.start) if multiplier == np.inf else self._settled[part].copy()
        out[rows] = rates
        return out


def clock_rate(pages: SignalPages) -> tuple[FloatArray, BoolArray]:
    """How fast the clock runs on average, a + g kappa, at least; and where that is exact.

    A weight beyond 40 is as good as certainty: there it stands for a + g, which bounds values as well.
    """
    sure = pages.signal_weight > _SURE_WEIGHT
    weight = np.where(sure, 1.0, pages.signal_weight)
    return pages.unsignalled_rate_per_day + pages.signal_rate_per_day * weight, ~sure


def _over(x: FloatArray, y: FloatArray) -> FloatArray:
    """x / y, inf where y is not above 0."""
    return np.where(y > 0.0, x / np.where(y > 0.0, y, 1.0), np.inf)


def least_value(pages: SignalPages, rate_per_day: FloatArray) -> FloatArray:
    """(s,) multipliers at which the pages surely ask for at least `rate_per_day`.

    From psi <= u / a, psi <= (u + kappa) / (a + g kappa) and V(u) >= mu / (a + g kappa) P2(u). Rates above
    the most that helps a page count as that most.
    """
    a, g = pages.unsignalled_rate_per_day, pages.signal_rate_per_day
    clock, exact = clock_rate(pages)
    rate = np.where(a > 0.0, rate_per_day, np.minimum(rate_per_day, g))
    with np.errstate(divide="ignore", invalid="ignore"):
        alone, late = _over(a, rate), _over(clock, rate) - pages.signal_weight
    late = np.where(exact, np.maximum(late, 0.0), 0.0)
    found = pages.request_rate_per_day / clock * p2(np.maximum(alone, late)) * _SAFETY
    return np.where(rate <= g, np.maximum(found, value_of_first(pages)), found)
