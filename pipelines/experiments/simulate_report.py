"""What a simulation says: who is best where, and whether that may be chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.experiments.experiment import aligned, read_table, write_table
from pipelines.pictures import plots
from pipelines.pictures.plots import Picture
from policies.numerics.typing_ import FloatArray
from policies.simulation import statistics
from transforms.replay.backtesting import POLICIES
from transforms.replay.simulating import is_told

MOST_PANELS = 6
OFF_BUDGET = 0.015
PICTURES = ("accuracy_against_pages", "accuracy_against_budget", "accuracy_over_time")


def report(folder: str, against: str) -> str:
    """Read the results of a folder, write summary.parquet, and tell."""
    rows = read_table(folder, "results.parquet").to_pylist()
    about = read_table(folder, "over_time.parquet")
    summaries = [_summaries(cell, against) for _, cell in _cells(rows)]
    write_table(folder, "summary.parquet", pa.Table.from_pylist([r for some in summaries for r in some]))
    days = max(about.column("end").to_pylist())
    return "\n\n".join([_text(some, against) for some in summaries] + [_notes(rows, days)])


def _cells(rows: list[dict[str, Any]]) -> Iterator[tuple[tuple[int, float], list[dict[str, Any]]]]:
    for key in sorted({(r["pages"], r["bandwidth"]) for r in rows}):
        yield key, [r for r in rows if (r["pages"], r["bandwidth"]) == key]


def _summaries(rows: list[dict[str, Any]], against: str) -> list[dict[str, Any]]:
    """A row for each policy of a cell, the best first."""

    def of(policy: str, name: str) -> FloatArray:
        return np.array([r[name] for r in rows if r["policy"] == policy], np.float64)

    names = list(dict.fromkeys(r["policy"] for r in rows))
    accuracy = {name: of(name, "accuracy") for name in names}
    found = []
    for name, values in accuracy.items():
        mine, pair = statistics.summary(values), statistics.paired(values, accuracy[against])
        found.append(
            {
                "pages": rows[0]["pages"],
                "bandwidth": rows[0]["bandwidth"],
                "budget": rows[0]["budget"],
                "policy": name,
                "repetitions": mine.repetitions,
                "median": mine.median,
                "low": mine.low,
                "high": mine.high,
                "mean": mine.mean,
                "standard_error": mine.standard_error,
                "against": against,
                "gain": pair.mean,
                "gain_error": pair.standard_error,
                "wins": pair.wins,
                "p_value": pair.p_value,
                "offer_freshness": float(of(name, "offer_freshness").mean()),
                "spent": float(of(name, "spent").mean()),
            }
        )
    return sorted(found, key=lambda row: -row["mean"])


def _text(rows: list[dict[str, Any]], against: str) -> str:
    first = rows[0]
    lines = [
        f"{first['pages']:,} pages, {first['bandwidth']:g} crawls per day ({first['budget']:.3g} per page), "
        f"{first['repetitions']} repetition{'s' if first['repetitions'] > 1 else ''}"
    ]
    table = [["fresh requests, %", "median", "95 % interval", "mean", f"less {against}", "wins", "p"]]
    for row in rows:
        mine = row["policy"] == against
        table.append(
            [
                row["policy"] + _mark(row["policy"]),
                f"{100 * row['median']:.2f}",
                _interval(row["low"], row["high"]),
                _with_error(row["mean"], row["standard_error"]),
                "" if mine else _with_error(row["gain"], row["gain_error"], "+"),
                "" if mine else f"{row['wins']}/{row['repetitions']}",
                "" if mine else f"{row['p_value']:.2g}",
            ]
        )
    return "\n".join([*lines, *aligned(table)])


def _mark(policy: str) -> str:
    if is_told(policy):
        return " *"
    return " (reference)" if POLICIES[policy].reference else ""


def _interval(low: float, high: float) -> str:
    return f"{100 * low:.2f} to {100 * high:.2f}" if np.isfinite([low, high]).all() else "too few"


def _with_error(value: float, error: float, sign: str = "") -> str:
    return f"{100 * value:{sign}.2f}" + ("" if np.isnan(error) else f" ± {100 * error:.2f}")


def _notes(rows: list[dict[str, Any]], days: float) -> str:
    notes = []
    if any(is_told(r["policy"]) for r in rows):
        notes.append("* is told the true rates; the others see only their own crawls, and signals.")
    notes.append(
        "± standard errors over repetitions, of differences paired; p: Wilcoxon signed-rank test, two-sided."
    )
    spent = [(r["policy"], r["spent"] / r["budget"]) for r in rows if r["spent"] is not None]
    off = sorted({policy for policy, share in spent if abs(share - 1.0) > OFF_BUDGET})
    if off:
        named = ", ".join(off)
        notes.append(f"Off the budget by more than {100 * OFF_BUDGET:g} % in a repetition: {named}.")
    return "\n".join(notes)


def pictures(folder: str) -> list[Picture]:
    """Accuracy against pages and against budget, where there are several, and over time."""
    rows = read_table(folder, "results.parquet").to_pylist()
    over_time = read_table(folder, "over_time.parquet").to_pylist()
    pages, bandwidths = (sorted({r[name] for r in rows}) for name in ("pages", "bandwidth"))
    found = []
    if len(pages) > 1:
        panels = [
            (f"{b:g} crawls per day", plots.accuracy_against_pages("", "", _columns(rows, "bandwidth", b)))
            for b in bandwidths
        ]
        found.append(_joined(PICTURES[0], "Share of fresh requests by pages", panels))
    if len(bandwidths) > 1:
        panels = []
        for m in pages:
            mine = plots.freshness_against_budget("", "", _columns(rows, "pages", m), budget="budget")
            panels.append((f"{m:,} pages", mine))
        found.append(_joined(PICTURES[1], "Share of fresh requests by budget", panels))
    panels = []
    for (m, b), cell in _cells(over_time):
        by_policy: dict[str, FloatArray] = {}
        ends = sorted({(r["begin"], r["end"]) for r in cell})
        for name in dict.fromkeys(r["policy"] for r in cell):
            values = np.array([r["accuracy"] for r in cell if r["policy"] == name])
            by_policy[name] = values.reshape(-1, len(ends)).mean(axis=0)
        middle = np.array([(begin + end) / 2 for begin, end in ends])
        title = f"{m:,} pages, {b:g} crawls per day"
        panels.append((title, Picture("", "", [plots.accuracy_over_time("", middle, by_policy)])))
    found.append(_joined(PICTURES[2], "Share of fresh requests over time, days", panels))
    return found


def _columns(rows: list[dict[str, Any]], by: str, value: Any) -> dict[str, list[Any]]:
    kept = [r for r in rows if r[by] == value]
    return {name: [r[name] for r in kept] for name in kept[0]}


def _joined(name: str, title: str, panels: list[tuple[str, Picture]]) -> Picture:
    """One picture of the first panel of several, with headings."""
    shown = [replace(p.panels[0], title=heading) for heading, p in panels[:MOST_PANELS]]
    return Picture(name, title, shown)
