"""What `recrawl backtest-discovery` writes and prints: results, means over domains, regret over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipelines.experiments.experiment import aligned, read_table
from pipelines.pictures.plots import Panel, Picture, Series
from policies.discovery import metrics
from policies.numerics.typing_ import FloatArray
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import read_json
from transforms.replay.discovering import DEFAULT, ORACLE, Result
from transforms.replay.link_histories import ALL, LinkHistory

EACH: Final = "each"
"""In the summary: the mean over domains that have a budget each."""
PICTURES: Final = ("regret-each", "regret-all")
METRICS: Final = (
    "coverage", "found_within_3h", "found_within_1h", "found_within_6h", "found_within_24h",
    "coverage_from_start", "htd_p90", "overhead", "regret",
)  # fmt: skip
RESULTS: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("domain", pa.string()),
        ("k", pa.int64()),
        ("seed", pa.int64()),
        ("coverage", pa.float64()),
        ("found_within_3h", pa.float64()),
        ("overhead", pa.float64()),
        ("htd_p90", pa.float64()),
        ("refreshes", pa.int64()),
        ("found_within_1h", pa.float64()),
        ("found_within_6h", pa.float64()),
        ("found_within_24h", pa.float64()),
        ("coverage_from_start", pa.float64()),
        ("regret", pa.float64()),
    ]
)
OVER_TIME: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("domain", pa.string()),
        ("k", pa.int64()),
        ("seed", pa.int64()),
        ("hours", pa.float64()),
        ("found", pa.int64()),
        ("regret", pa.float64()),
    ]
)
SUMMARY: Final = pa.schema(
    [
        ("budget", pa.string()),
        ("k", pa.int64()),
        ("policy", pa.string()),
        ("domains", pa.int64()),
        *(
            (f"{name}{end}", pa.float64())
            for name in METRICS
            for end in ("", "_standard_error", "_low", "_high")
        ),
        ("less_recrawl", pa.float64()),
        ("less_recrawl_low", pa.float64()),
        ("less_recrawl_high", pa.float64()),
    ]
)
_HEAD: Final = (
    "", "coverage", "less recrawl", "within 3 h", "1, 6, 24 h", "from start", "90 %", "refreshes", "regret",
)  # fmt: skip
_POINTS: Final = 60  # of a run in over_time.parquet


def by_domain(domain: str) -> tuple[bool, str]:
    """Sorts domains by name, and all of them together last."""
    return domain == ALL, domain


def _oracles(rows: Sequence[Result]) -> dict[tuple[str, int, int], Result]:
    return {(r.domain, r.k, r.seed): r for r in rows if r.policy == ORACLE}


def _regret(row: Result, oracles: dict[tuple[str, int, int], Result]) -> FloatArray:
    best = oracles.get((row.domain, row.k, row.seed))
    return np.full(len(row.found), np.nan) if best is None else metrics.regret(row.found, best.found)


def results_table(rows: Sequence[Result]) -> pa.Table:
    """A row a run and domain."""
    oracles = _oracles(rows)
    found = [
        {name: getattr(r, name, None) for name in RESULTS.names} | {"regret": float(_regret(r, oracles)[-1])}
        for r in rows
    ]
    return pa.Table.from_pylist(found, RESULTS)


def over_time_table(rows: Sequence[Result], step_hours: float, warm_up_hours: float) -> pa.Table:
    """What was found up to some hours after the warm-up, and regret against the Oracle."""
    oracles, parts = _oracles(rows), []
    for r in rows:
        begin = min(int(np.ceil(warm_up_hours / step_hours)), len(r.found) - 1)
        steps = np.unique(np.linspace(begin, len(r.found) - 1, _POINTS).round().astype(np.int64))
        n, regret = len(steps), _regret(r, oracles)[steps]
        columns = [[r.policy] * n, [r.domain] * n, [r.k] * n, [r.seed] * n]
        hours = (steps + 1 - begin) * step_hours
        parts.append(pa.table([*columns, hours, r.found[steps], regret], schema=OVER_TIME))
    return pa.concat_tables(parts) if parts else OVER_TIME.empty_table()


def _groups(rows: Sequence[Result], history: LinkHistory) -> Iterator[tuple[str, list[Result]]]:
    """Rows that are averaged: of domains with more than one source, in which there is a choice; of all."""
    choice = {d for d, n in zip(history.domains, history.sources_of, strict=True) if n > 1}
    each = [r for r in rows if r.domain != ALL]
    yield EACH, [r for r in each if r.domain in choice] or each
    yield ALL, [r for r in rows if r.domain == ALL]


def summary_table(rows: Sequence[Result], history: LinkHistory) -> pa.Table:
    """Means over domains, each the mean of its seeds, with bootstrap intervals over domains."""
    oracles, out = _oracles(rows), []
    for budget, mine in _groups(rows, history):
        for k in sorted({r.k for r in mine}):
            base = _means([r for r in mine if r.k == k and r.policy == DEFAULT], oracles)
            for policy in dict.fromkeys(r.policy for r in mine):
                found = _means([r for r in mine if r.k == k and r.policy == policy], oracles)
                row: dict[str, Any] = {"budget": budget, "k": k, "policy": policy, "domains": len(found)}
                for i, name in enumerate(METRICS):
                    values = np.array([v[i, 0] for v in found.values()])
                    row[name] = _mean(values)
                    row[f"{name}_standard_error"] = _mean(np.array([v[i, 1] for v in found.values()]), True)
                    row[f"{name}_low"], row[f"{name}_high"] = metrics.bootstrap(values)
                both = [d for d in found if d in base]
                less = np.array([found[d][0, 0] - base[d][0, 0] for d in both])
                row["less_recrawl"] = _mean(less)
                row["less_recrawl_low"], row["less_recrawl_high"] = metrics.bootstrap(less)
                out.append(row)
    return pa.Table.from_pylist(out, SUMMARY)


def _means(rows: Sequence[Result], oracles: dict[tuple[str, int, int], Result]) -> dict[str, FloatArray]:
    """By domain the means over seeds of all metrics, and their standard errors: (metrics, 2)."""
    out = {}
    for domain, some in groupby(rows, lambda r: r.domain):
        values = np.array(
            [[*(getattr(r, name) for name in METRICS[:-1]), _regret(r, oracles)[-1]] for r in some]
        )
        finite = np.where(np.isfinite(values), values, np.nan)
        error = np.full(finite.shape[1], np.nan)
        if len(finite) > 1:
            error = finite.std(axis=0, ddof=1) / np.sqrt(len(finite))
        out[domain] = np.stack([finite.mean(axis=0), error], axis=1)
    return out


def _mean(values: FloatArray, errors: bool = False) -> float:
    """Mean of those that there are, or the standard error of that mean from those of its parts."""
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan")
    return float(np.sqrt((values**2).sum()) / len(values)) if errors else float(values.mean())


def rejected(rows: dict[str, int]) -> str:
    """How many rows were rejected and why; nothing if none was."""
    bad = {k.replace("_rejected_", ": "): n for k, n in sorted(rows.items()) if "_rejected_" in k}
    return "Rejected rows: " + ", ".join(f"{k} {n:,}" for k, n in bad.items()) if bad else ""


def report(folder: str) -> str:
    """Tables for a terminal."""
    about = read_json(FileSystems.join(folder, "results.json"))
    facts, rows = about["facts"], about["rows"]
    polled = f"{facts['polls']:,} polls"
    if facts["polls_failed"]:
        polled += f" and {facts['polls_failed']:,} failed ones"
    parts = [
        f"{facts['sources']:,} sources of {len(facts['domains']):,} domains, {facts['targets']:,} targets, "
        f"{facts['presences']:,} presences, {polled};\n{facts['steps']:,} steps from {about['start']} on; of "
        f"refreshes {1.0 - facts['steps_with_a_poll']:.0%} would fail for want of a poll."
    ]
    if facts["sources_without_polls"]:
        parts.append(f"Left out: {facts['sources_without_polls']:,} sources without a poll in --snapshots.")
    if bad := rejected(rows):
        parts.append(f"{bad}.")
    table = read_table(folder, "summary.parquet").to_pylist()
    for (budget, k), some in groupby(table, lambda r: (r["budget"], r["k"])):
        parts.append(_table(budget, k, list(some)))
    parts.append(
        "± is the standard error over seeds, [ ] holds 95 % of draws of domains. Scored are targets first\n"
        "shown after the warm-up: within 3 h (and 1, 6, 24), the share of all found so soon; from start,\n"
        "coverage with targets of the warm-up; 90 %, hours to discovery of that part of the found ones;\n"
        "refreshes, for each one found; regret, percent of the Oracle's. Crawlers named skip-first learn\n"
        "nothing from the first refresh of a source."
    )
    return "\n\n".join(parts)


def _table(budget: str, k: int, rows: list[dict[str, Any]]) -> str:
    if budget == ALL:
        head = f"One budget for all sources, k = {k}"
    else:
        head = f"A budget for each domain, k = {k}: means over {rows[0]['domains']} domains"
    lines = [list(_HEAD)]
    for r in sorted(rows, key=lambda r: (r["policy"] != ORACLE, -r["coverage"])):
        less = "" if r["policy"] == DEFAULT or np.isnan(r["less_recrawl"]) else f"{r['less_recrawl']:+.3f}"
        if less and not np.isnan(r["less_recrawl_low"]):
            less += f" [{r['less_recrawl_low']:+.3f}, {r['less_recrawl_high']:+.3f}]"
        lines.append(
            [
                r["policy"],
                _cell(r, "coverage", 3),
                less,
                _cell(r, "found_within_3h", 3),
                ", ".join(f"{r[f'found_within_{hours}h']:.2f}" for hours in (1, 6, 24)),
                f"{r['coverage_from_start']:.3f}",
                f"{r['htd_p90']:.1f}",
                f"{r['overhead']:.2f}",
                f"{r['regret']:.1f}",
            ]
        )
    return "\n".join([head, *aligned(lines)])


def _cell(row: dict[str, Any], name: str, places: int) -> str:
    text, error = f"{row[name]:.{places}f}", row[f"{name}_standard_error"]
    return text if np.isnan(error) else f"{text} ± {error:.{places}f}"


def pictures(folder: str) -> list[Picture]:
    """Regret against the Oracle over time, a panel for each k."""
    rows = read_table(folder, "over_time.parquet").to_pydict()
    domain, policy = (np.asarray(rows[name], object) for name in ("domain", "policy"))
    k, hours, regret = (np.asarray(rows[name], np.float64) for name in ("k", "hours", "regret"))
    found = []
    for budget in (EACH, ALL):
        mine = ((domain == ALL) == (budget == ALL)) & (policy != ORACLE) & ~np.isnan(regret)
        panels = []
        for one in np.unique(k[mine]):
            series = []
            for name in dict.fromkeys(policy[mine].tolist()):
                here = mine & (k == one) & (policy == name)
                at = np.unique(hours[here])
                mean = np.array([regret[here & (hours == x)].mean() for x in at])
                series.append(Series(str(name), at / 24.0, mean, style="bare"))
            panels.append(Panel(f"k = {one:g}", "days", "regret, percent", series))
        if panels:
            title = "one budget for all" if budget == ALL else "a budget for each domain"
            found.append(Picture(f"regret-{budget}", f"Regret against the Oracle, {title}", panels))
    return found
