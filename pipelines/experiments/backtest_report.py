"""What a backtest says: who is best at which budget, by how much, and what more budget buys."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.experiments.experiment import aligned, read_table, write_table
from pipelines.nightly.report import left_out
from policies.numerics.special import SURE
from policies.numerics.typing_ import FloatArray
from policies.simulation import statistics
from transforms.batches.tally import counted
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import read_json
from transforms.replay.backtesting import POLICIES
from transforms.rows.normalise import KINDS

WEEK = 7
DAY = np.timedelta64(1, "D")
LINE = 100
MIN_BLOCKS = 4
TESTED_BLOCKS = 6  # with fewer, the least p of a signed-rank test is 0.06
OFF_BUDGET = 0.005
ALIKE = 5e-5  # freshness that two digits of a percentage do not tell apart
FEW_CHANGES = 50


@dataclass(frozen=True)
class Cell:
    """A policy at a budget under one kind of weights.

    Attributes
    ----------
    accuracy, error : float
        Mean over repetitions, and its standard error.
    gain, gain_error : float
        Difference to the policy compared with, paired.
    p_value : float
        Wilcoxon signed-rank test of the differences of blocks of days, two-sided; NaN for fewer than six.
    blocks : int
    off_budget : float
        Crawls spent, relative to the budget, less 1.
    offer_freshness, found, harmonic_cost : float
        Means over repetitions.
    """

    accuracy: float
    error: float
    gain: float
    gain_error: float
    p_value: float
    blocks: int
    off_budget: float
    offer_freshness: float
    found: float
    harmonic_cost: float


@dataclass(frozen=True)
class Comparison:
    """All cells of one kind of weights.

    Attributes
    ----------
    weights, against : str
    budgets : list of float
    policies : list of str
    cells : dict of (policy, budget) to Cell
    repetitions : int
    """

    weights: str
    against: str
    budgets: list[float]
    policies: list[str]
    cells: dict[tuple[str, float], Cell]
    repetitions: int

    def best(self, budget: float) -> str:
        """The best policy that a crawler can follow."""
        real = [p for p in self.policies if not POLICIES[p].reference]
        return max(real, key=lambda p: self.cells[p, budget].accuracy)


def compare(results: pa.Table, days: pa.Table, against: str) -> list[Comparison]:
    """Put policies side by side.

    The error of a difference is that over blocks of days (weeks, where there are four), for the runs are on
    one history; and that over repetitions, where there are several; added in squares.
    """
    series: dict[tuple[str, str, float, int], tuple[FloatArray, FloatArray]] = {}
    runs: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for row in results.to_pylist():
        runs.setdefault((row["weights"], row["policy"], row["budget"]), []).append(row)
    names = ("weights", "policy", "budget", "repetition")
    keys = list(zip(*(days.column(n).to_pylist() for n in names), strict=True))
    fresh, held = (days.column(n).to_numpy() for n in ("fresh", "held"))
    starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
    for low, high in zip(starts, [*starts[1:], len(keys)], strict=True):
        series[keys[low]] = (fresh[low:high], held[low:high])
    found = []
    for weights in sorted({w for w, _, _ in runs}):
        policies = [p for p in POLICIES if any((weights, p, b) in runs for w, _, b in runs if w == weights)]
        budgets = sorted({b for w, _, b in runs if w == weights})
        cells = {
            (p, b): _cell(series, runs[weights, p, b], runs.get((weights, against, b)))
            for p in policies
            for b in budgets
        }
        repetitions = len(runs[weights, policies[0], budgets[0]])
        found.append(Comparison(weights, against, budgets, policies, cells, repetitions))
    return found


def _cell(
    series: dict[tuple[str, str, float, int], tuple[FloatArray, FloatArray]],
    mine: list[dict[str, Any]],
    base: list[dict[str, Any]] | None,
) -> Cell:
    def of(row: dict[str, Any]) -> tuple[FloatArray, FloatArray]:
        return series[row["weights"], row["policy"], row["budget"], row["repetition"]]

    accuracy = np.array([row["accuracy"] for row in mine])
    days = [of(row) for row in mine]
    together = sum(fresh / held.sum() for fresh, held in days) / len(days)
    whole = sum(held / held.sum() for _, held in days) / len(days)
    block = _blocks(len(whole))
    error = _both(over_blocks(together, whole), accuracy)
    there = np.bincount(block, whole) > 0  # pages may appear later than a block
    gain, gain_error, p = 0.0, 0.0, 1.0
    if base is not None and base is not mine:
        others = [of(row) for row in base]
        other = sum(fresh / held.sum() for fresh, held in others) / len(others)
        gains = accuracy - np.array([row["accuracy"] for row in base])
        gain = float(gains.mean())
        gain_error = _both(statistics.over_pages(together, whole, other=other, cluster=block)[1], gains)
        size = np.bincount(block, whole)[there]
        mine_of, other_of = (np.bincount(block, v)[there] / size for v in (together, other))
        p = statistics.paired(mine_of, other_of).p_value
    if there.sum() < TESTED_BLOCKS:
        p = float("nan")

    def mean(name: str) -> float:
        return float(np.mean([row[name] for row in mine]))

    off = max((row["spent"] / row["budget"] - 1.0 for row in mine), key=abs)
    return Cell(
        float(accuracy.mean()),
        error,
        gain,
        gain_error,
        p,
        int(there.sum()),
        off,
        mean("offer_freshness"),
        mean("found"),
        mean("harmonic_cost"),
    )


def _block_days(days: int) -> int:
    return WEEK if days >= MIN_BLOCKS * WEEK else 1


def _blocks(days: int) -> np.ndarray:
    return np.arange(days) // _block_days(days)


def over_blocks(fresh: FloatArray, held: FloatArray) -> float:
    """Standard error of the freshness of a run: days, (d,) each, in weeks where there are four of them."""
    return statistics.over_pages(fresh, held, cluster=_blocks(len(fresh)))[1]


def _both(of_days: float, values: FloatArray) -> float:
    if len(values) < 2:
        return of_days
    return float(np.hypot(of_days, statistics.summary(values).standard_error))


def summary_table(comparisons: Sequence[Comparison]) -> pa.Table:
    """The cells as a table."""
    rows = [
        {
            "weights": c.weights,
            "budget": budget,
            "policy": policy,
            "against": c.against,
            "repetitions": c.repetitions,
            **vars(c.cells[policy, budget]),
        }
        for c in comparisons
        for budget in c.budgets
        for policy in c.policies
    ]
    return pa.Table.from_pylist(rows)


def report(folder: str, against: str) -> str:
    """Read the results of a folder, write summary.parquet, and tell."""
    results, days = (read_table(folder, f"{name}.parquet") for name in ("results", "days"))
    about = read_json(FileSystems.join(folder, "results.json"))
    comparisons = compare(results, days, against)
    table = summary_table(comparisons)
    write_table(folder, "summary.parquet", table)
    parts = [head(folder)]
    for c in comparisons:
        parts += [_table(c), "\n".join(verdict(c))]
    parts += _off_budget([cell for c in comparisons for cell in c.cells.values()])
    parts += few_changes(about) + cautions(about, [b for c in comparisons for b in c.budgets])
    parts += about_errors(about)
    return "\n\n".join(parts)


def head(folder: str) -> str:
    """What was replayed."""
    about = read_json(FileSystems.join(folder, "results.json"))
    facts = about["facts"]
    some = "" if facts["pages"] == facts["pages_read"] else f" of {facts['pages_read']:,}"
    of_log = facts["source"] == "observations"
    drawn = f", {_percent(facts['drawn'])} of them drawn" if of_log else ""
    lines = [
        f"{facts['pages']:,} pages{some}, {facts['nights']} nights from {about['start'][:10]} on, scored "
        f"from {about['scored_from'][:10]} on; {facts['changes']:,} changes{drawn}."
    ]
    if of_log:
        lines.append(
            f"The log: {facts['crawls_per_page_day']:.3g} crawls per page and day, "
            f"{_percent(facts['found'])} of them found a change, {_percent(facts['dated'])} of these dated."
        )
    why = sorted(facts["left_out"], key=lambda r: (-r[1], r[0]))
    if why:
        lines.append("Pages left out: " + ", ".join(f"{n:,} {reason}" for reason, n in why) + ".")
    if lacking := about.get("policies_left_out"):  # older results do not say
        said = "; ".join(
            f"{' and '.join(p for p in lacking if lacking[p] == what)} without {what}"
            for what in dict.fromkeys(lacking.values())
        )
        lines.append(f"Policies left out: {said}.")
    lines += _unused_rows(about["rows"])
    return "\n".join(lines)


def _unused_rows(rows: dict[str, int]) -> list[str]:
    """Rows of each input that say nothing, and why."""
    found = []
    for total in (name for name, n in rows.items() if name.endswith("_rejected") and n):
        kind = total.removesuffix("_rejected")
        why = {k.removeprefix(f"{total}_"): n for k, n in rows.items() if k.startswith(f"{total}_") and n}
        said = ", ".join(f"{name} {n:,}" for name, n in sorted(why.items(), key=lambda r: (-r[1], r[0])))
        found.append(f"Rejected rows of --{kind}: {rows[total]:,}" + (f" ({said})." if said else "."))
    for kind in KINDS:
        found += [f"Rows of --{kind}: {text}." for text in left_out(kind, rows)]
    return found


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100.0 * share:.0f} %"


def _table(c: Comparison) -> str:
    """Freshness of the policy compared with, and differences of the others, in percentage points."""
    draws = f", {c.repetitions} draws" if c.weights == "zipf" else ""
    lines = [
        f"Fresh requests in percent, {c.weights} weights{draws}; below {c.against}, differences to it with "
        "standard errors"
    ]
    head = ["crawls per page and day", *(f"{b:g}" for b in c.budgets)]
    rows = [head]
    order = sorted(c.policies, key=lambda p: -sum(c.cells[p, b].accuracy for b in c.budgets))
    order.sort(key=lambda p: (p != c.against, POLICIES[p].reference))
    for policy in order:
        row = [policy + (" (reference)" if POLICIES[policy].reference else "")]
        for budget in c.budgets:
            cell = c.cells[policy, budget]
            if policy == c.against:
                text = f"{100 * cell.accuracy:.2f} ± {100 * cell.error:.2f}"
            else:
                text = f"{100 * cell.gain:+.2f} ± {100 * cell.gain_error:.2f}"
            if abs(cell.off_budget) > OFF_BUDGET:
                text += f" (spends {100 * (1 + cell.off_budget):.0f} %)"
            row.append(text)
        rows.append(row)
    return "\n".join([*lines, *aligned(rows)])


def verdict(c: Comparison) -> list[str]:
    """Who is best at each budget, and what more budget buys, in sentences."""
    lines = []
    for budget in c.budgets:
        best = c.best(budget)
        cell = c.cells[best, budget]
        fresh = [c.cells[p, budget].accuracy for p in c.policies if not POLICIES[p].reference]
        if len(fresh) > 1 and max(fresh) - min(fresh) < ALIKE:
            lines.append(f"At {budget:g}: no policy is ahead, all keep {100 * cell.accuracy:.2f} % fresh.")
            continue
        text = f"At {budget:g}: best is {best}, {100 * cell.accuracy:.2f} %"
        if best == c.against:
            rivals = [p for p in c.policies if p != best and not POLICIES[p].reference]
            if rivals:
                second = max(rivals, key=lambda p: c.cells[p, budget].accuracy)
                other = c.cells[second, budget]
                text += f"; next is {second}, {_lead(-other.gain, other.gain_error)}"
        else:
            text += f", ahead of {c.against} by {_lead(cell.gain, cell.gain_error, '')}"
        lines.append(text + ".")
    for low, high in zip(c.budgets, c.budgets[1:], strict=False):
        best = c.best(high)
        gained = c.cells[best, high].accuracy - c.cells[best, low].accuracy
        lines.append(
            f"{high / low:.3g} times the budget, {low:g} to {high:g}: {100 * gained:+.2f} points for {best}."
        )
    return lines


def _off_budget(cells: Sequence[Cell]) -> list[str]:
    """What "(spends ...)" in the tables means, if it stands there."""
    if all(abs(cell.off_budget) <= OFF_BUDGET for cell in cells):
        return []
    text = (
        "(spends X %): of the budget so much went to crawls in the scored nights; what a policy spends less, "
        "or more, is not set off. Rules may have no scale at which they spend all, and sitemaps too little "
        "reason to crawl."
    )
    return [textwrap.fill(text, LINE)]


def _lead(gain: float, error: float, behind: str = " behind") -> str:
    sure = "" if gain > SURE * error else ", which may be chance"
    return f"{100 * gain:.2f} ± {100 * error:.2f} points{behind}{sure}"


def cautions(about: dict[str, Any], budgets: Sequence[float] = ()) -> list[str]:
    """What the replay cannot tell, in paragraphs."""
    facts, found = about["facts"], []
    if facts["source"] == "observations":
        own = facts["crawls_per_page_day"]
        text = (
            "A crawl log shows whether a page changed between two crawls, not how often. More changes are "
            "drawn at the rate that is estimated for the page (another --seed draws others). Where changes "
            "come in bursts, or a page goes back to what it was, some are still missing and policies look "
            "fresher than they would be, a target cheaper; differences between policies suffer less. "
            f"That matters most above the log's own {own:.3g} crawls per page and day."
        )
        above = sorted({b for b in budgets if b > 1.05 * own})
        if above:
            text += f" That is so for {', '.join(f'{b:g}' for b in above)}."
        found.append(text)
    if facts["nights"] < 4 * WEEK:
        found.append(f"{facts['nights']} nights are few: policies that learn have hardly begun.")
    return [textwrap.fill(text, LINE) for text in found]


def few_changes(about: dict[str, Any]) -> list[str]:
    """That too few changes are known to tell policies apart, in a paragraph."""
    facts = about["facts"]
    seen = round(facts["changes"] * (1.0 - (facts["drawn"] or 0.0)))
    if not seen:
        return ["No page changes in this time: all copies stay fresh, and no policy can be ahead."]
    if seen >= FEW_CHANGES:
        return []
    text = (
        f"Only {counted(seen, 'change')} can be seen: which policy is ahead hangs on "
        f"{'it' if seen == 1 else 'these few'}. Give logs of more days, or of more pages."
    )
    return [textwrap.fill(text, LINE)]


def about_errors(about: dict[str, Any]) -> list[str]:
    """How far errors can be trusted, in paragraphs."""
    days = round((np.datetime64(about["end"][:19]) - np.datetime64(about["scored_from"][:19])) / DAY)
    size = _block_days(days)
    blocks, unit = -(-days // size), "weeks" if size == WEEK else "days"
    if blocks < TESTED_BLOCKS:
        text = (
            f"Errors are over {blocks} scored {unit}, and rough: with fewer than {TESTED_BLOCKS} no p can be "
            "below 0.06, so none is given. Logs of more weeks give more."
        )
    elif size < WEEK:
        text = (
            f"Errors are over {blocks} scored days, which hang together: they are rather too small. From "
            f"{MIN_BLOCKS * WEEK} scored days on they are over weeks."
        )
    else:
        return []
    return [textwrap.fill(text, LINE)]
