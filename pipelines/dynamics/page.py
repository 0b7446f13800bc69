"""The results of `recrawl dynamics` as a web page, of the family of a night's."""

from __future__ import annotations

import math
from typing import Any, Final

import pyarrow.compute as pc

from pipelines.command.version import __version__
from pipelines.dynamics.summary import (
    MOST_ROWS,
    WEEKDAYS,
    Results,
    estimates_of,
    not_used,
    rows_of,
    said_of_groups,
    said_of_waits,
)
from pipelines.webpage.dots import Dot, Dots
from pipelines.webpage.parts import Chart, Line, Section, Table, Tile, count, share, words
from pipelines.webpage.rendering import rendered
from policies.numerics.special import HALF_95
from transforms.batches.tally import counted
from transforms.files.sinks import write_file

NAME: Final = "report.html"
_ROLES: Final = {
    "corrected": "fresh",
    "found": "found",
    "last-modified": "violet",
    "sitemap": "crawls",
    "listed": "black",
}
_TICKS: Final = ((0.25, "15 min"), (1.0, "1 h"), (6.0, "6 h"), (24.0, "1 d"), (168.0, "7 d"), (720.0, "30 d"))


def write(found: Results, folder: str) -> None:
    """Write it into the folder of the results."""
    sections = [_rates(found), _when(found), _waits(found)]
    sections += [_groups(found, compared) for compared in found.about["compared"]]
    text = rendered(
        "recrawl dynamics: when pages change",
        "Errors are standard errors, bars 95 % ranges; corrected is what makes the log most probable.",
        sections,
        f"recrawl {__version__} from the tables beside it",
    )
    write_file(folder, NAME, text.encode(), 1)


def _rates(found: Results) -> Section:
    section, counts = Section("rates", "How often"), found.about["counters"]
    for row in rows_of(found.groups).to_pylist():
        error = "" if row["rate_error"] is None else f"± {row['rate_error']:.2g}; "
        of_log = f"{error}found: {row['found_per_day']:.4g}"
        section.tiles.append(Tile("Changes a page and day", count(row["rate_per_day"]), of_log))
        if row["saturated_pages"]:
            section.notes.append(
                f"{counted(row['saturated_pages'], 'page')} changed in every interval: their rate is a "
                "guess, at least as high as that of their crawls."
            )
    changed = f"{counts.get('intervals_changed', 0):,} with a change"
    section.tiles.extend(
        [
            Tile("Pages", count(counts.get("pages_watched", 0))),
            Tile("Intervals between visits", count(counts.get("intervals", 0)), changed),
        ]
    )
    if left := not_used(counts):
        section.tables.append(
            Table(
                "Rows and pages that say nothing", ("what", "number"), [[words(w), count(n)] for w, n in left]
            )
        )
    return section


def _when(found: Results) -> Section:
    section = Section("when", "Hours and weekdays")
    for table, column, title, names in (
        (found.hours, "hour", f"hour of the day ({found.zone})", [f"{i:02d}" for i in range(24)]),
        (found.weekdays, "weekday", "weekday", list(WEEKDAYS)),
    ):
        shown = {name: rows_of(table, estimate=name).to_pylist() for name in estimates_of(table)}
        shown = {name: rows for name, rows in shown.items() if rows and rows[0]["share"] is not None}
        if not shown:
            section.notes.append(f"By {column}: too few changes, or crawls of a page are whole days apart.")
            continue
        lines = [
            Line(
                name,
                _ROLES.get(name, "plain"),
                [float(row[column]) for row in rows],
                [row["share"] for row in rows],
                [_range(row["share"], row["share_error"]) for row in rows],
            )
            for name, rows in shown.items()
        ]
        every = 6 if column == "hour" else 1
        ticks = [(float(i), name) for i, name in enumerate(names) if i % every == 0]
        section.charts.append(
            Chart(
                f"By {column}",
                "A share is of all changes.",
                title,
                "Share of changes",
                lines,
                _numbers(f"Share of changes by {column}", column, names, shown),
                percent=True,
                ticks=ticks,
            )
        )
    return section


def _numbers(caption: str, column: str, names: list[str], shown: dict[str, list[dict[str, Any]]]) -> Table:
    columns = [column, *(name for one in shown for name in (f"{one} ({shown[one][0]['changes']:,})", "±"))]
    rows = [
        [words(name), *(share(rows[i][n]) for rows in shown.values() for n in ("share", "share_error"))]
        for i, name in enumerate(names)
    ]
    return Table(caption, columns, rows)


def _range(value: float, error: float) -> tuple[float, float]:
    return max(value - HALF_95 * error, 0.0), value + HALF_95 * error


def _waits(found: Results) -> Section:
    section, lines, rows = Section("waits", "Waits from a change to the next"), [], []
    for name in estimates_of(found.intervals):
        table = rows_of(found.intervals, estimate=name)
        x, y, bars = [], [], []
        for row in table.filter(pc.is_finite(table["to_hours"])).to_pylist():
            low, high = max(row["from_hours"], row["to_hours"] / 2.0), row["to_hours"]
            x.append(math.sqrt(low * high))
            y.append(row["share"])
            bars.append(_range(y[-1], row["share_error"]))
            rows.append(
                [
                    words(name),
                    count(row["from_hours"]),
                    count(high),
                    share(row["share"]),
                    share(row["share_error"]),
                ]
            )
        lines.append(Line(name, _ROLES.get(name, "plain"), x, y, bars))
    section.notes.extend([f"{text[:1].upper()}{text[1:]}." for text in said_of_waits(found.intervals)])
    if lines:
        first, last = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
        section.charts.append(
            Chart(
                "Waits",
                "Marks stand in the middle of the times that they count; the numbers have these.",
                "time from a change to the next",
                "Share of all waits",
                lines,
                Table("Waits", ("estimate", "from, hours", "to, hours", "of all waits", "±"), rows),
                percent=True,
                ticks=[tick for tick in _TICKS if first <= tick[0] <= last],
                log_x=True,
            )
        )
    return section


def _groups(found: Results, compared: dict[str, Any]) -> Section:
    by = compared["by"]
    section = Section(f"by-{by}", f"By {by}")
    table = found.groups.filter(pc.equal(found.groups["by"], by)).sort_by([("changes_found", "descending")])
    rows = table.slice(0, MOST_ROWS).to_pylist()
    section.notes.extend([f"{text}." for text in said_of_groups(compared)])
    numbers = Table(
        f"Changes a page and day by {by}",
        (by, "pages", "changes a page and day", "±", "found a crawl"),
        [
            [
                words(row["group"] or "(none)"),
                count(row["pages"]),
                count(row["rate_per_day"]),
                count(row["rate_error"]),
                count(row["found_per_crawl"]),
            ]
            for row in rows
        ],
    )
    dots = []
    for row in rows:
        rate, error = row["rate_per_day"], row["rate_error"] or 0.0
        said = f"{rate:.3g}" + (f" ± {row['rate_error']:.2g}" if row["rate_error"] is not None else "")
        dots.append(Dot(row["group"] or "(none)", "fresh", rate, *_range(rate, error), said))
    if dots:
        section.charts.append(
            Dots(
                f"Rates by {by}",
                "Those in which most changes were found.",
                "changes a page and day",
                dots,
                numbers,
            )
        )
    return section
