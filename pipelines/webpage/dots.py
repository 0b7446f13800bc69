"""A chart of rows: a name, its number, and below them a dot with its error. For what no line should join."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.webpage.parts import TOP, WIDTH, Table, marks_around, step_of

ROW, BELOW = 36.0, 44.0
WORDS, BAR = 13.0, 25.0  # of a row, from its top
SIDE = 20.0


@dataclass(frozen=True)
class Dot:
    """A row.

    Attributes
    ----------
    name, role : str
        As of `parts.Line`.
    x, low, high : float
        The value, and the ends of its bar. An x that is infinite lies beyond the right end.
    text : str
        At the right end.
    """

    name: str
    role: str
    x: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Dots:
    """Rows over one axis, first at the top.

    Attributes
    ----------
    title, text : str
        Heading, and what there is to see, in words.
    x : str
        Name of the axis, with its unit.
    dots : sequence of Dot
    numbers : Table
    rule : float, optional
        Where a thin line stands.
    log_x : bool
    """

    title: str
    text: str
    x: str
    dots: Sequence[Dot]
    numbers: Table
    rule: float | None = None
    log_x: bool = False

    @property
    def y(self) -> str:
        """For the caption."""
        return self.x[:1].upper() + self.x[1:]

    @property
    def height(self) -> float:
        return TOP + ROW * len(self.dots) + BELOW

    def drawn(self) -> dict[str, Any]:
        """Places of all that is drawn, in units of the picture, rounded: the same text on every machine."""
        left, right = SIDE, WIDTH - SIDE
        ends = [end for dot in self.dots if math.isfinite(dot.x) for end in (dot.low, dot.high)]
        ends += [] if self.rule is None else [self.rule]
        ticks = _logarithmic(ends) if self.log_x else _even(ends)
        first, last = self._at(ticks[0]), self._at(ticks[-1])

        def at(x: float) -> float:
            inside = min(max(self._at(x), first), last)
            return round(left + (right - left) * (inside - first) / (last - first), 1)

        rows = []
        for n, dot in enumerate(self.dots):
            there = math.isfinite(dot.x)
            rows.append(
                {
                    "dot": dot,
                    "y": round(TOP + ROW * n + BAR, 1),
                    "words": round(TOP + ROW * n + WORDS, 1),
                    "x": at(dot.x) if there else None,
                    "bar": (at(dot.low), at(dot.high)) if there else None,
                }
            )
        return {
            "left": round(left, 1),
            "right": round(right, 1),
            "floor": round(TOP + ROW * len(self.dots), 1),
            "ticks": [(at(x), f"{x:g}".replace("-", "−")) for x in ticks],
            "rule": None if self.rule is None else at(self.rule),
            "rows": rows,
        }

    def _at(self, x: float) -> float:
        return math.log10(max(x, 1e-12)) if self.log_x else x


def _even(ends: Sequence[float]) -> list[float]:
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    step = step_of((high - low) or abs(high) or 1.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 12) for n in range(first, max(last, first + 1) + 1)]


def _logarithmic(ends: Sequence[float]) -> list[float]:
    """Few marks, around all ends."""
    positive = [end for end in ends if end > 0.0] or [1.0]
    marks = marks_around(min(positive), max(positive))
    return marks if len(marks) <= 6 else [marks[0], *marks[1:-1][:: -(-len(marks) // 5)], marks[-1]]
