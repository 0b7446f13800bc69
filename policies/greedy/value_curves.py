"""How the crawl value of each page of a shard grows during a night, with bounds on how it bends.

Without signals every objective has ``V(t) = scale f(speed t)``, t days after the last crawl: its marginal
value at the rate 1/t, see `policies.objectives.objectives.Objective.crawl_value`.

    periodic    f = P(2, x)         scale mu/D, speed D
    memoryless  f = (x / (1 + x))^2 scale mu/D, speed D
    discrete    the same            speed (e^(D s) - 1)/s with steps of s days, from one step after a crawl on
    harmonic    f = x^2 / (1 + x)   scale mu/D, speed D; without bound, so no page starves

Pages with signals have V(tau, n) of `policies.signalled.value`, with the signals that are known tonight; a
crawl sets them back to 0. All of these grow with t, and from one crawl to the next none is above ``start
t^2``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from policies.greedy.crawl_values import clock_jump, clock_speed, value_and_interval
from policies.numerics import special
from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives.objectives import TINY_RATE, Discrete, Harmonic, Memoryless, Objective, Periodic
from policies.signalled import pages as signal_pages
from policies.signalled import value as signal_value
from policies.signalled.pages import SignalPages

_LONGEST_DAYS: Final = 1e9
_NEVER_FRESH: Final = 745.0
_NOISE: Final = 1e-13
_NOISE_OF_SIGNALS: Final = 1e-11
_LARGEST_JUMP: Final = 1e3


@dataclass(frozen=True, slots=True)
class _Shape:
    """f, a bound on |f'''| between two x, and the least c with f(x) <= c x^2."""

    f: Callable[[FloatArray], FloatArray]
    bend: Callable[[FloatArray, FloatArray], FloatArray]
    start: float


def _memoryless(x: FloatArray) -> FloatArray:
    part = x / (1.0 + x)
    return part * part


def _harmonic(x: FloatArray) -> FloatArray:
    return x * (x / (1.0 + x))


_SHAPES: Final[dict[type[Objective], _Shape]] = {
    Periodic: _Shape(special.p2, lambda x, end: np.maximum(end, 2.0) * np.exp(-np.minimum(x, 800.0)), 0.5),
    Memoryless: _Shape(_memoryless, lambda x, _: 12.0 * (1.0 + x) ** -4.0, 1.0),
    Harmonic: _Shape(_harmonic, lambda x, _: 6.0 * (1.0 + x) ** -4.0, 1.0),
}


@dataclass(frozen=True, slots=True)
class ValueCurves:
    """Crawl values of n pages in time.

    Attributes
    ----------
    scale, speed : (n,) float64
        As in the module; 0 where no crawl helps. Not used for pages with signals.
    shape : _Shape
    days : (n,) float64, >= 0
        Days from the last attempt, or the last slot that is past, to the start of the night.
    signals : (n,) float64
        Signals since then; 0 for pages without.
    at : (n,) int64 or None
        Row of each page in `pages`, -1 for those without signals. None where no page has any.
    pages : SignalPages or None
    longest_rate_per_day : float
        No page is crawled more often than the objective's steps allow.
    """

    scale: FloatArray
    speed: FloatArray
    shape: _Shape
    days: FloatArray
    signals: FloatArray
    at: IntArray | None = None
    pages: SignalPages | None = None
    longest_rate_per_day: float = np.inf

    @classmethod
    def of(
        cls,
        objective: Objective,
        change_rate_per_day: FloatArray,
        request_rate_per_day: FloatArray,
        days: FloatArray,
    ) -> "ValueCurves":
        """Pages without signals, (n,) float64 each; days of NaN count as 0.

        Raises
        ------
        ValueError
            An objective whose crawl value is not known as a function of time.
        """
        shapes = [shape for kind, shape in _SHAPES.items() if isinstance(objective, kind)]
        if not shapes:
            raise ValueError(
                f"greedy sequencing knows no crawl value in time of the objective {objective.name!r}; "
                "choose another objective or the sequencer lds"
            )
        change, request = change_rate_per_day, request_rate_per_day
        useful = (change >= TINY_RATE) & (request >= TINY_RATE)
        change = np.where(useful, change, 1.0)
        speed, scale = change, request / change
        if isinstance(objective, Discrete):
            speed = objective.weight(change)
            ratio = np.empty(change.shape)
            objective.ratio(change, request, ratio)
            scale = 1.0 / np.where(useful, ratio, 1.0)
        days = np.clip(np.where(np.isnan(days), 0.0, days), 0.0, _LONGEST_DAYS)
        return cls(
            np.where(useful, scale, 0.0),
            np.where(useful, speed, 0.0),
            shapes[0],
            days,
            np.zeros(days.size),
            longest_rate_per_day=objective.max_rate_per_day,
        )

    def with_signals(self, rows: IntArray, pages: SignalPages, signals: FloatArray) -> "ValueCurves":
        """The same where the pages of `rows`, (r,) int64, have signals, (r,) float64 of them by now."""
        if rows.size == 0:
            return self
        at = np.full(self.scale.size, -1)
        at[rows] = np.arange(rows.size)
        now = self.signals.copy()
        now[rows] = signals
        return replace(self, at=at, pages=pages, signals=now)

    def take(self, rows: IntArray) -> "ValueCurves":
        """The curves of some pages, (m,) int64, in their order."""
        return replace(
            self,
            scale=self.scale[rows],
            speed=self.speed[rows],
            days=self.days[rows],
            signals=self.signals[rows],
            at=None if self.at is None else self.at[rows],
        )

    @property
    def noise(self) -> float:
        """How far computed values may be off, relative."""
        return _NOISE if self.at is None else _NOISE_OF_SIGNALS

    def value(self, rows: IntArray, days: FloatArray, signals: FloatArray) -> FloatArray:
        """Crawl values of `rows`, so many days and signals after their last crawls: (m,) float64 each.

        The value of a page depends on that page alone, to the bit.
        """
        if self.at is None or self.pages is None:
            return self.scale[rows] * self.shape.f(self.speed[rows] * days)
        value = np.empty(rows.size)
        at = self.at[rows]
        some = np.flatnonzero(at < 0)
        value[some] = self.scale[rows[some]] * self.shape.f(self.speed[rows[some]] * days[some])
        some = np.flatnonzero(at >= 0)
        value[some] = signal_value.crawl_value(self.pages.take(at[some]), days[some], signals[some])
        return value

    def bend(self, rows: IntArray, first: FloatArray, last: FloatArray, signals: FloatArray) -> FloatArray:
        """Bound on the third derivative in days between `first` and `last` days after the crawl: (m,).

        With signals V' = mu a E psi, E = e^-clock, where 0 <= psi' <= 1 and |psi''| <= g.
        """
        speed = self.speed[rows]
        bound: FloatArray = self.scale[rows] * speed**3 * self.shape.bend(speed * first, speed * last)
        if self.at is None or self.pages is None:
            return bound
        some = np.flatnonzero(self.at[rows] >= 0)
        pages = self.pages.take(self.at[rows[some]])
        interval = value_and_interval(pages, last[some], signals[some], None)[1]
        a, jump = clock_speed(pages), clock_jump(pages, _LARGEST_JUMP)
        g = np.where(jump > 0.0, pages.signal_rate_per_day, 0.0)
        clock = a * first[some] + jump * signals[some]
        fresh = np.where(clock < _NEVER_FRESH, np.exp(-np.minimum(clock, _NEVER_FRESH)), 0.0)
        moves = pages.request_rate_per_day * a * fresh
        moves = np.where(interval > 0.0, moves, 0.0)
        bound[some] = moves * (g + 2.0 * a + a * a * np.where(moves > 0.0, np.minimum(interval, 1e300), 0.0))
        return bound

    def start(self) -> FloatArray:
        """c of each page, (n,): t days after a crawl tonight its value is at most c t^2."""
        c = self.shape.start * self.scale * self.speed**2
        if self.at is not None and self.pages is not None:
            rows = np.flatnonzero(self.at >= 0)
            pages = self.pages.take(self.at[rows])
            c[rows] = 0.5 * pages.request_rate_per_day * clock_speed(pages)
        return c

    def highest(self) -> FloatArray:
        """Whether pages ever have a value: 0 for those that never do, (n,) float64."""
        if self.at is None or self.pages is None:
            return self.scale
        best = self.scale.copy()
        rows = np.flatnonzero(self.at >= 0)
        pages = self.pages.take(self.at[rows])
        best[rows] = pages.request_rate_per_day * (signal_pages.kind_of(pages) != signal_pages.INERT)
        return best
