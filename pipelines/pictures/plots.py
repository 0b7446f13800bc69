"""Pictures of simulations and backtests, PNG and SVG; the same numbers give the same bytes.

A `Picture` is data alone, so what makes pictures needs no matplotlib; `draw` does (the extra `plots`).
Bytes are the same for the same versions of matplotlib and its libraries.
"""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pipelines.pictures.colours import COLOURS, colour_of
from policies.numerics.typing_ import FloatArray

FORMATS: Final = ("png", "svg")
_DOTS_PER_INCH: Final = 100
_DOTS_WITH_POINTS: Final = 80  # points in many colours are what makes files large
_PANEL_INCHES: Final = (4.8, 3.6)
# Those of pages, and three more that can be told from them.
_COLOURS: Final = (
    *(COLOURS[role][0] for role in ("fresh", "found", "crawls", "violet", "wine", "plain", "black")),
    "#56b4e9", "#e08bbd", "#8a6d00",
)  # fmt: skip
_MARKERS: Final = "osD^vP*X<>"
_STYLES: Final = ("-", "--", ":", "-.")  # of lines of one colour
_MOST_IN_LEGEND: Final = 3  # names; more stand beside their lines
_NAME_POINTS: Final = 7.0


class NoPlotsError(RuntimeError):
    """matplotlib is not there."""


@dataclass(frozen=True)
class Series:
    """Points of one policy.

    Attributes
    ----------
    label : str
    x, y : (n,) float64
    error : (n,) float64, optional
        Standard errors of y, drawn as bars.
    style : {"line", "points", "bare", "bars"}
        A line with markers, points alone, a line without markers, or bars down to 0.
    colour : (n,) float64, optional
        Of points, by the panel's colour scale.
    """

    label: str
    x: FloatArray
    y: FloatArray
    error: FloatArray | None = None
    style: str = "line"
    colour: FloatArray | None = None


@dataclass(frozen=True)
class Panel:
    """Axes with series.

    Attributes
    ----------
    title, x, y : str
        Heading, and names of the axes.
    series : list of Series
    log_x, log_y : bool
    diagonal : bool
        Whether to draw y = x.
    level : float, optional
        Height of a thin horizontal line.
    colour : str
        Name of the colour scale; empty: none.
    named : bool
        Whether names are shown; those of the panel beside it may do.
    """

    title: str
    x: str
    y: str
    series: list[Series]
    log_x: bool = False
    log_y: bool = False
    diagonal: bool = False
    level: float | None = None
    colour: str = ""
    named: bool = True


@dataclass(frozen=True)
class Picture:
    """Panels side by side.

    Attributes
    ----------
    name : str
        Of the files, without ending.
    title : str
    panels : list of Panel
    across : int
        Panels in a row.
    """

    name: str
    title: str
    panels: list[Panel] = field(default_factory=list)
    across: int = 2


def freshness_against_budget(
    name: str, title: str, rows: Mapping[str, Any], budget: str = "budget_per_day"
) -> Picture:
    """Mean freshness of each policy by budget, with standard errors over the other columns' rows."""
    means = _means(rows, budget, "accuracy")
    return Picture(name, title, [Panel("", "crawls per page and day", "freshness", means, log_x=True)])


def accuracy_against_pages(name: str, title: str, rows: Mapping[str, Any], against: str = "") -> Picture:
    """Mean accuracy of each policy by number of pages, with standard errors over repetitions.

    With `against` a second panel has the differences to that policy, repetition by repetition.
    """
    pages = np.asarray(rows["pages"], dtype=np.float64)
    log = len(pages) > 0 and float(pages.max()) >= 20.0 * float(pages.min())
    panels = [Panel("", "pages", "accuracy", _means(rows, "pages", "accuracy"), log_x=log)]
    if against:
        keys = list(zip(rows["pages"], rows["repetition"], strict=True))
        base = {
            key: value
            for key, policy, value in zip(keys, rows["policy"], rows["accuracy"], strict=True)
            if policy == against
        }
        gain = [value - base[key] for key, value in zip(keys, rows["accuracy"], strict=True)]
        series = _means({**rows, "accuracy": gain}, "pages", "accuracy")
        less = f"less {against}"
        panels.append(Panel(less, "pages", "difference of accuracy", series, log_x=log, named=False))
    return Picture(name, title, panels)


def rates_against_optimal(
    title: str, optimal: FloatArray, rate: FloatArray, colour: FloatArray | None = None, scale: str = ""
) -> Panel:
    """A policy's crawl rates against those of the optimum, a point a page."""
    points = Series("", optimal, rate, style="points", colour=colour)
    return Panel(title, "optimal rate", "empirical rate", [points], diagonal=True, colour=scale)


def arm_probabilities(title: str, step: FloatArray, probability: Mapping[str, FloatArray]) -> Panel:
    """Probability of each arm of a bandit over time."""
    arms = [Series(arm, step, q, style="bare") for arm, q in probability.items()]
    return Panel(title, "step", "probability", arms)


def accuracy_over_time(title: str, time: FloatArray, accuracy: Mapping[str, FloatArray]) -> Panel:
    """Accuracy over time, e.g. when the bandwidth changes."""
    lines = [Series(name, time, values, style="bare") for name, values in accuracy.items()]
    return Panel(title, "time", "accuracy", lines)


def _means(rows: Mapping[str, Any], x: str, y: str) -> list[Series]:
    policy = np.asarray(rows["policy"], dtype=object)
    at, values = np.asarray(rows[x], dtype=np.float64), np.asarray(rows[y], dtype=np.float64)
    found = []
    for name in dict.fromkeys(policy.tolist()):
        mine = policy == name
        points = np.unique(at[mine])
        groups = [values[mine & (at == point)] for point in points]
        mean = np.array([group.mean() for group in groups])
        error = np.array([g.std(ddof=1) / np.sqrt(g.size) if g.size > 1 else 0.0 for g in groups])
        found.append(Series(str(name), points, mean, error))
    return found


def draw(picture: Picture, formats: Sequence[str] = FORMATS) -> dict[str, bytes]:
    """Bytes of the picture's files by name.

    Parameters
    ----------
    picture : Picture
    formats : sequence of {"png", "svg"}

    Raises
    ------
    NoPlotsError
        Without matplotlib; the message says how to get it.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPlotsError(f"no pictures ({error}): in a checkout pip install '.[plots]'") from None
    settings = dict(matplotlib.rcParamsDefault) | {
        "svg.hashsalt": "recrawl",
        "svg.fonttype": "none",
        "font.size": 8.0,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "grid.linewidth": 0.5,
        "legend.frameon": False,
    }
    settings = {key: value for key, value in settings.items() if not key.startswith("backend")}
    out = {}
    with matplotlib.rc_context(settings):
        across = min(picture.across, max(len(picture.panels), 1))
        down = -(-len(picture.panels) // across)
        width, height = _PANEL_INCHES
        wide = width * 1.3 if across == 1 else width
        coloured = any(series.colour is not None for panel in picture.panels for series in panel.series)
        figure = Figure(
            figsize=(wide * across, height * down + 0.3),
            dpi=_DOTS_WITH_POINTS if coloured else _DOTS_PER_INCH,
            layout="constrained",
        )
        FigureCanvasAgg(figure)
        figure.suptitle(picture.title, fontsize=9)
        for number, panel in enumerate(picture.panels):
            _draw_panel(figure, figure.add_subplot(down, across, number + 1), panel)
        for kind in formats:
            target = io.BytesIO()
            if kind == "png":
                figure.savefig(target, format="png", metadata={"Software": None})
                out[f"{picture.name}.png"] = _fewer_colours(target.getvalue())
            else:
                figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
                out[f"{picture.name}.svg"] = target.getvalue()
    return out


def _fewer_colours(png: bytes) -> bytes:
    """The same picture with a palette: a quarter of the bytes."""
    from PIL import Image

    target = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        # Median cut spends its colours on greys and leaves two lines alike.
        image.convert("RGB").quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            target, format="png", optimize=True
        )
    return target.getvalue()


def _draw_panel(figure: Any, axes: Any, panel: Panel) -> None:
    drawn: Counter[str] = Counter()
    colours = _colours(panel.series)
    for number, (series, colour) in enumerate(zip(panel.series, colours, strict=True)):
        _draw_series(figure, axes, panel, series, number, colour, drawn[colour])
        drawn[colour] += 1
    if panel.log_x:
        axes.set_xscale("log")
        _plain_numbers(axes.xaxis)
    if panel.log_y:
        axes.set_yscale("log")
        _plain_numbers(axes.yaxis)
    if panel.diagonal:
        axes.axline((0.0, 0.0), slope=1.0, color="#d00000", linewidth=0.8)
    if panel.level is not None:
        axes.axhline(panel.level, color="#404040", linewidth=0.8)
    axes.set_title(panel.title, fontsize=8)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    both = list(zip(colours, panel.series, strict=True))
    labelled = [(colour, s) for colour, s in both if s.label and len(s.x)] if panel.named else []
    lines = [(colour, s) for colour, s in labelled if s.style in ("line", "bare")]
    if len(lines) > _MOST_IN_LEGEND:
        _name_lines(axes, lines)
    elif labelled:
        axes.legend(fontsize=_NAME_POINTS)


def _name_lines(axes: Any, lines: Sequence[tuple[str, Series]]) -> None:
    """Names to the right of lines, each at the height of its end, or below the name above it."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    axes.set_xlim(*axes.get_xlim())
    gap = 1.25 * _NAME_POINTS / (0.75 * 72.0 * _PANEL_INCHES[1])
    placed: list[tuple[float, str, Series]] = []
    for colour, series in lines:
        at = axes.transAxes.inverted().transform(axes.transData.transform((series.x[-1], series.y[-1])))
        placed.append((float(at[1]), colour, series))
    height = 2.0
    for end, colour, series in sorted(placed, key=lambda found: -found[0]):
        height = min(end, height - gap)
        axes.annotate(
            series.label,
            (series.x[-1], series.y[-1]),
            (1.03, height),
            textcoords=axes.transAxes,
            color=colour,
            fontsize=_NAME_POINTS,
            va="center",
            annotation_clip=False,
            # To where the name begins: to its middle it would cross the name above.
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.4,
                "relpos": (0.0, 0.5),
                "shrinkA": 1.0,
                "shrinkB": 0.0,
            },
        )


def _colours(several: Sequence[Series]) -> list[str]:
    """Colours of series: a policy has its own, others take what none of these has, in order."""
    own = [colour_of(series.label) for series in several]
    free = itertools.cycle([colour for colour in _COLOURS if colour not in own] or _COLOURS)
    return [colour or next(free) for colour in own]


def _plain_numbers(axis: Any) -> None:
    """Ticks at 1, 2 and 5 times powers of ten, as people write them."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def _draw_series(
    figure: Any, axes: Any, panel: Panel, series: Series, number: int, colour: str, alike: int
) -> None:
    """Draw a series; `alike` others of its colour are drawn already."""
    if series.style == "points":
        shade: dict[str, Any] = {"color": colour} if series.colour is None else {"c": series.colour}
        shown = axes.scatter(series.x, series.y, s=5, linewidths=0, rasterized=True, **shade)
        if series.label:
            shown.set_label(series.label)
        if series.colour is not None and panel.colour:
            figure.colorbar(shown, ax=axes, label=panel.colour, fraction=0.05)
    elif series.style == "bars":
        step = float(np.min(np.diff(series.x))) if len(series.x) > 1 else 1.0
        axes.bar(series.x, series.y, 0.9 * step, color=colour, alpha=0.6, label=series.label)
    else:
        marker = _MARKERS[number % len(_MARKERS)] if series.style == "line" else ""
        axes.errorbar(
            series.x,
            series.y,
            yerr=series.error,
            color=colour,
            marker=marker,
            markersize=3.5,
            linewidth=1.0,
            linestyle=_STYLES[alike % len(_STYLES)],
            capsize=2.0,
            elinewidth=0.8,
            label=series.label or None,
        )
