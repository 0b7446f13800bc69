"""What a person sees of `recrawl dynamics`: the summary, and pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.experiments.experiment import aligned, read_table
from pipelines.pictures.plots import Panel, Picture, Series
from policies.dynamics.profiles import CORRECTED
from transforms.dynamics.writing import ALL, RESULTS
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import read_json

PICTURES: Final = ("hours", "intervals", "groups")
WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
TOLD_HOURS = 0.1
"""Waits are known where crawls come as soon as this after changes."""

MOST_ROWS, MOST_LINES = 12, 6
_DROPPED = {
    "failed": "fetches without an answer",
    "duplicate": "visits within a minute of the one before",
    "late": "rows out of order",
    "no_change_evidence": "visits that cannot be compared",
    "not_modified_without_baseline": "304 without a visit before",
    "baseline": "first visits, which open an interval",
    "changes_repeated": "listed changes to the same content, or within two minutes",
    "sitemap_rows_without_instant": "sitemap rows without a time of day",
    "sitemap_rows_of_unknown_pages": "sitemap rows of pages without intervals",
    "pages_without_intervals": "pages without two visits to compare",
    "pages_with_unknown_timezone": "pages whose time zone does not exist",
    "pages_without_a_number": "pages whose --correlate is no number",
}


@dataclass(frozen=True)
class Results:
    """The tables of a folder, and its results.json."""

    hours: pa.Table
    weekdays: pa.Table
    intervals: pa.Table
    groups: pa.Table
    about: dict[str, Any]

    @classmethod
    def read(cls, folder: str) -> Results:
        """Raises FileNotFoundError where the folder has none."""
        names = ("hours", "weekdays", "intervals", "groups")
        about = read_json(FileSystems.join(folder, RESULTS))
        return cls(*(read_table(folder, f"{name}.parquet") for name in names), about)

    @property
    def zone(self) -> str:
        """Whose hours."""
        options = self.about["options"]
        return f"by column {options['zone']}" if options["zone"] else str(options["timezone"])


def rows_of(table: pa.Table, by: str = ALL, group: str = ALL, estimate: str = "") -> pa.Table:
    """Rows of a group, those of one estimate if given."""
    mask = pc.and_(pc.equal(table["by"], by), pc.equal(table["group"], group))
    return table.filter(mask if not estimate else pc.and_(mask, pc.equal(table["estimate"], estimate)))


def estimates_of(table: pa.Table) -> list[str]:
    """Names of the estimates that a table has."""
    return list(dict.fromkeys(rows_of(table)["estimate"].to_pylist()))


def text(found: Results, folder: str) -> str:
    """The summary."""
    counts = found.about["counters"]
    whole = rows_of(found.groups).to_pylist()
    lines = [
        f"rows        {_total(counts, 'accepted'):,} read, {_total(counts, 'rejected'):,} rejected",
        f"used        {counts.get('intervals', 0):,} intervals of {counts.get('pages_watched', 0):,} pages, "
        f"{counts.get('intervals_changed', 0):,} with a change",
    ]
    lines += [f"not used    {n:,} {what}" for what, n in not_used(counts)]
    for row in whole:
        lines.append(
            f"rate        {_rate(row)} changes a page and day; found: "
            f"{row['found_per_day']:.4g} a day, {row['found_per_crawl']:.3g} a crawl"
        )
        if row["saturated_pages"]:
            lines.append(
                f"saturated   {row['saturated_pages']:,} pages changed in every interval: their "
                "rate is a guess, at least as high as that of their crawls"
            )
    lines += ["", *_profile(found.hours, "hour", f"hour of the day ({found.zone}), % of changes", None)]
    lines += ["", *_profile(found.weekdays, "weekday", "weekday, % of changes", WEEKDAYS)]
    lines += ["", *_waits(found.intervals)]
    for compared in found.about["compared"]:
        lines += ["", *_groups(found.groups, compared)]
    return "\n".join([*lines, "", f"wrote       {folder}"])


def not_used(counts: dict[str, int]) -> list[tuple[str, int]]:
    """What says nothing of changes, and how many there are."""
    return [(what, counts[name]) for name, what in _DROPPED.items() if counts.get(name)]


def _total(counts: dict[str, int], what: str) -> int:
    return sum(n for name, n in counts.items() if name.endswith(f"s_{what}"))


def _profile(table: pa.Table, column: str, title: str, names: tuple[str, ...] | None) -> list[str]:
    shown = [rows_of(table, estimate=name).to_pylist() for name in estimates_of(table)]
    if not shown:
        return [f"{title}: too few changes"]
    rows = [[column, *(f"{s[0]['estimate']} ({s[0]['changes']:,})" for s in shown)]]
    for at in range(len(shown[0])):
        rows.append([names[at] if names else f"{at:02d}", *(_percent(s[at]) for s in shown)])
    blind = ["corrected: crawls of a page are whole days apart, so nothing is told"] \
        if shown[0][0]["share"] is None else []  # fmt: skip
    return [title, *aligned(rows), *blind]


def _percent(row: dict[str, Any]) -> str:
    return "?" if row["share"] is None else f"{100 * row['share']:.1f} ± {100 * row['share_error']:.1f}"


def _waits(table: pa.Table) -> list[str]:
    said = said_of_waits(table)
    if not said:
        return ["waits between changes: too few changes"]
    return [f"{'waits' * (not text.startswith('half')):<12}{text}" for text in said]


def said_of_waits(table: pa.Table) -> list[str]:
    """Sentences on each estimate of waits, and from where on they are known."""
    shown = {name: rows_of(table, estimate=name).to_pylist() for name in estimates_of(table)}
    if not shown:
        return []
    lines = []
    for name, rows in shown.items():
        passed, middle = 0.0, rows[-1]
        for row in rows:
            passed += row["share"]
            if passed >= 0.5:
                middle = row
                break
        peaks = [_between(row) for row in sorted(rows, key=lambda r: -r["share"]) if row["peak"]][:4]
        lines.append(
            f"{name} ({rows[0]['changes']:,}): half are over by {middle['to_hours']:.3g} h; "
            f"{'peaks at ' + ', '.join(peaks) if peaks else 'no peak beyond errors'}"
        )
    finest = next(iter(shown.values()))[0]["resolution_hours"]
    if finest > TOLD_HOURS:
        lines.append(
            f"half of the changes were found {finest:.3g} h or more after the crawl "
            "before: below that, waits are a guess"
        )
    return lines


def _between(row: dict[str, Any]) -> str:
    """A bin of waits, named by the days that it holds."""
    low, high = row["from_hours"], row["to_hours"]
    if high - low <= 24.0 and (days := np.ceil(low / 24.0)) * 24.0 < high and days >= 1:
        return f"{24 * days:.0f} h"
    return f"{low:.3g} to {high:.3g} h"


def _rate(row: dict[str, Any]) -> str:
    """Of a row of groups; of one page there is no error."""
    return f"{row['rate_per_day']:.4g} ± " + (
        "?" if row["rate_error"] is None else f"{row['rate_error']:.2g}"
    )


def _groups(table: pa.Table, compared: dict[str, Any]) -> list[str]:
    rows = table.filter(pc.equal(table["by"], compared["by"])).sort_by([("changes_found", "descending")])
    listed = [[compared["by"], "pages", "changes a page and day", "found a crawl"]]
    for row in rows.slice(0, MOST_ROWS).to_pylist():
        listed.append(
            [row["group"] or "(none)", f"{row['pages']:,}", _rate(row), f"{row['found_per_crawl']:.3g}"]
        )
    lines = aligned(listed)
    if rows.num_rows > MOST_ROWS:
        lines.append(f"and {rows.num_rows - MOST_ROWS:,} more in groups.parquet")
    return lines + said_of_groups(compared)


def said_of_groups(compared: dict[str, Any]) -> list[str]:
    """How far groups differ, and go with --correlate."""
    lines = []
    if compared["share_between"] is not None:
        lines.append(
            f"{100 * compared['share_between']:.0f} % of the variance of log rates is between groups"
        )
    if (c := compared["correlation"]) is not None:
        lines.append(
            f"rates of {c['groups']} groups and --correlate: Pearson {c['pearson']:.2f} "
            f"(95 %: {c['low']:.2f} to {c['high']:.2f}), Spearman {c['spearman']:.2f}"
        )
    return lines


def pictures(found: Results) -> list[Picture]:
    """Hours and weekdays; waits; groups, if any are shown."""
    made = []
    if found.hours.num_rows:
        panels = []
        for table, column, title in (
            (found.hours, "hour", f"hour of the day ({found.zone})"),
            (found.weekdays, "weekday", "weekday, 0 is Monday"),
        ):
            series = [_series(rows_of(table, estimate=name), column, name) for name in estimates_of(table)]
            panels.append(Panel("all pages", title, "share of changes", series))
        made.append(Picture(PICTURES[0], "When pages change", panels))
    if found.intervals.num_rows:
        series = []
        for name in estimates_of(found.intervals):
            rows = rows_of(found.intervals, estimate=name)
            rows = rows.filter(pc.and_(pc.greater(rows["share"], 1e-6), pc.is_finite(rows["to_hours"])))
            low, high, dense = (rows[c].to_numpy() for c in ("from_hours", "to_hours", "share_per_hour"))
            error = rows["share_error"].to_numpy() / (high - low)
            middle = np.sqrt(np.maximum(low, high / 2.0) * high)
            series.append(Series(name, middle, dense, np.minimum(error, 0.9 * dense)))
        axes = "hours from a change to the next", "share of waits per hour"
        made.append(
            Picture(
                PICTURES[1], "Waits between changes", [Panel("", *axes, series, log_x=True, log_y=True)], 1
            )
        )
    shown = [c["by"] for c in found.about["compared"]]
    panels = [panel for by in shown if (panel := _group_panel(found, by)) is not None]
    if panels:
        made.append(Picture(PICTURES[2], "When pages of groups change, corrected", panels))
    return made


def _group_panel(found: Results, by: str) -> Panel | None:
    rows = found.hours.filter(
        pc.and_(pc.equal(found.hours["by"], by), pc.equal(found.hours["estimate"], CORRECTED))
    )
    rows = rows.filter(pc.is_valid(rows["share"]))
    names = list(dict.fromkeys(rows["group"].to_pylist()))[:MOST_LINES]
    series = [_series(rows.filter(pc.equal(rows["group"], name)), "hour", name or "(none)") for name in names]
    return Panel(by, f"hour of the day ({found.zone})", "share of changes", series) if series else None


def _series(rows: pa.Table, column: str, label: str) -> Series:
    x, y, error = (rows[c].to_numpy().astype(np.float64) for c in (column, "share", "share_error"))
    return Series(label, x, y, error)
