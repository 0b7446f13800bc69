"""What a page is made of: figures, tables, charts and sections; no HTML but the points of charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

# A telephone shows a picture 358 pixels wide, on which letters of 14 units must be read.
WIDTH, HEIGHT = 430.0, 270.0
RIGHT, TOP, BOTTOM = 16.0, 14.0, 44.0
LETTER, BOLD = 8.0, 9.2  # of text and of names, about
_TICKS = 5
_ON_TOP = {"thin": 0, "rule": 0, "rings": 2}


@dataclass(frozen=True)
class Cell:
    """A value as people read it, and as it is: what a table is sorted by."""

    text: str
    value: Any = ""

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float)


def count(value: float | None) -> Cell:
    """A whole number, or one with as many digits as it needs."""
    if value is None:
        return Cell("–")
    whole = value == int(value) or abs(value) >= 100
    return Cell(f"{value:,.0f}" if whole else f"{value:,.3g}", value)


def share(value: float | None, digits: int = 1) -> Cell:
    """A share as a percentage."""
    if value is None:
        return Cell("–")
    form = ".2g" if 0.0 < value < 0.001 else f".{digits}f"
    return Cell(f"{100.0 * value:{form}}\u00a0%", value)


def signed(value: float) -> Cell:
    """A change."""
    size = abs(value)
    text = f"{size:,.0f}" if size >= 100 else f"{size:.3g}" if size >= 1e-6 else "0"
    return Cell(text if text == "0" else f"{'−' if value < 0 else '+'}{text}", value)


def words(text: Any) -> Cell:
    """A text."""
    return Cell(str(text), str(text))


@dataclass(frozen=True)
class Tile:
    """One large figure."""

    name: str
    cell: Cell
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows below a caption. `columns` are names, with units."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @cached_property  # each cell asks
    def numeric(self) -> list[bool]:
        """Columns of numbers, which stand to the right."""
        return [
            all(row[i].is_number or row[i].text == "–" for row in self.rows) for i in range(len(self.columns))
        ]


@dataclass(frozen=True)
class Line:
    """A series of a chart.

    Attributes
    ----------
    name : str
        Written to the right of its last point.
    role : str
        What it means: each has one colour everywhere, see `pipelines.pictures.colours`.
    x, y : sequence of float
        A y that is None is a gap.
    error : sequence of (float, float), optional
        Lower and upper ends of bars, or of the band of a line that has one.
    style : {"line", "band", "thin", "points", "bars", "rule", "rings"}
        A line with dots, the same in a band, a thin line, dots, bars from the floor, a dashed line, or rings.
    across : bool
        The error is one of x.
    """

    name: str
    role: str
    x: Sequence[float]
    y: Sequence[float | None]
    error: Sequence[tuple[float, float]] | None = None
    style: str = "line"
    across: bool = False


@dataclass(frozen=True)
class Chart:
    """Axes with lines. The numbers are a table below it, for whom a picture tells nothing.

    Attributes
    ----------
    title, text : str
        Heading, and what there is to see, in words.
    x, y : str
        Names of the axes, with units.
    lines : sequence of Line
    numbers : Table
    percent : bool
        y is a share.
    ticks : sequence of (float, str)
        Of the x axis.
    log_x, from_zero : bool
    """

    title: str
    text: str
    x: str
    y: str
    lines: Sequence[Line]
    numbers: Table
    percent: bool = False
    ticks: Sequence[tuple[float, str]] = ()
    log_x: bool = False
    from_zero: bool = True

    def drawn(self) -> dict[str, Any]:
        """Places of all that is drawn, in units of the picture, rounded: the same text on every machine."""
        low, high, step = self._range()
        digits = max(0, -math.floor(math.log10(step * (100.0 if self.percent else 1.0)) + 1e-9))
        levels = [float(n * step) for n in range(round(low / step), round(high / step) + 1)]
        names = [f"{100.0 * y:.{digits}f} %" if self.percent else f"{y:,.{digits}f}" for y in levels]
        left = 12.0 + LETTER * max(map(len, names))
        values = [x for line in self.lines for x in line.x]
        most = max(values)
        right = WIDTH - RIGHT - BOLD * max((len(s.name) for s in self.lines if s.x[-1] == most), default=0)
        half = 0.5 if any(line.style == "bars" for line in self.lines) else 0.0
        first, last = self._x(min(values)) - half, self._x(most) + half
        wide = (last - first) or 1.0

        def at_x(x: float) -> float:
            middle = 0.5 if last == first else (self._x(x) - first) / wide
            return round(left + (right - left) * middle, 1)

        def at_y(y: float) -> float:
            return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low) / (high - low), 1)

        def side(x: float, text: str) -> str:
            return "end" if x + 0.5 * LETTER * len(text) > WIDTH else "middle"

        x_ticks, free = [], -LETTER
        for x, text in ((at_x(x), text) for x, text in self.ticks):
            if (half_wide := 0.5 * LETTER * (len(text) + 1)) <= x - free or not x_ticks:
                x_ticks, free = [*x_ticks, (x, text)], x + half_wide
        return {
            "left": round(left, 1),
            "right": round(right, 1),
            "floor": at_y(low),
            "bar": round(0.8 * (right - left) / wide, 1),
            "y_ticks": [(at_y(y), text) for y, text in zip(levels, names, strict=True)],
            "x_ticks": [(WIDTH if side(x, t) == "end" else x, t, side(x, t)) for x, t in x_ticks],
            "lines": self._lines(at_x, at_y),
        }

    def _x(self, x: float) -> float:
        return math.log2(x) if self.log_x else x

    def _range(self) -> tuple[float, float, float]:
        ys = [y for line in self.lines for y in line.y if y is not None]
        ys += [end for s in self.lines if not s.across for pair in s.error or () for end in pair]
        low, high = (0.0 if self.from_zero else min(ys)), max(ys)
        step = step_of((high - low) or abs(high) or 1.0)
        if all(y == round(y) for y in ys):
            step = max(step, 1.0)  # of what is counted
        low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        return low, high if high > low else low + step, step

    def _lines(self, at_x: Any, at_y: Any) -> list[dict[str, Any]]:
        found, taken = [], list[float]()
        # From the top down, so that a name gives way to the one above it, and all to those of rules.
        for line in sorted(self.lines, key=_name_order):
            points = [(at_x(x), at_y(y)) for x, y in zip(line.x, line.y, strict=True) if y is not None]
            if not points:
                continue
            x, y = points[-1]
            y += 4.0
            while close := [other for other in taken if abs(other - y) < 14.9]:
                y = round(max(close) + 15.0, 1)
            taken += [y] if line.name else []
            found.append(
                {
                    "line": line,
                    "points": points,
                    "errors": _errors(line, at_x, at_y),
                    "label": (round(x + 8.0, 1), round(y, 1)),
                }
            )
        # What is named, and most of all answers, lies on top.
        return sorted(found, key=lambda drawn: _ON_TOP.get(drawn["line"].style, 1))


def _name_order(line: Line) -> tuple[bool, float]:
    return line.style != "rule", -next((y for y in reversed(line.y) if y is not None), 0.0)


def _errors(line: Line, at_x: Any, at_y: Any) -> list[tuple[float, float, float, float]]:
    """Ends of bars: x1, y1, x2, y2."""
    rows = zip(line.x, line.y, line.error or (), strict=False)
    if line.across:
        return [(at_x(a), at_y(y), at_x(b), at_y(y)) for _, y, (a, b) in rows if y is not None]
    return [(at_x(x), at_y(a), at_x(x), at_y(b)) for x, y, (a, b) in rows if y is not None]


_MARKS = (1.0, 2.0, 5.0)


def marks_around(low: float, high: float) -> list[float]:
    """Of a logarithmic scale: 1, 2 and 5 times powers of ten, from the last one up to `low` on."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    marks = [mark * 10.0**power for power in powers for mark in _MARKS]
    first = max(i for i, mark in enumerate(marks) if mark <= low)
    last = min((i for i, mark in enumerate(marks) if mark >= high), default=len(marks) - 1)
    return marks[first : max(last, first + 1) + 1]


def step_of(span: float) -> float:
    """Of ticks: 1, 2 or 5 times a power of ten."""
    rough = span / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    return float(next(m * power for m in (*_MARKS, 10.0) if m * power >= rough * (1.0 - 1e-9)))


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading.

    Attributes
    ----------
    key, title : str
    notes : list of str
        Paragraphs.
    tiles, charts, tables : lists
        Charts are `Chart` or `dots.Dots`.
    """

    key: str
    title: str
    notes: list[str] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    charts: list[Any] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    @property
    def says_something(self) -> bool:
        return bool(self.notes or self.tiles or self.charts or self.tables)
