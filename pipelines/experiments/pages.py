"""Results of `recrawl backtest` and `recrawl frontier` as web pages, of the family of a night's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pipelines.experiments import backtest_report
from pipelines.experiments.backtest_report import Cell, Comparison
from pipelines.experiments.experiment import read_table
from pipelines.pictures.colours import role_of
from pipelines.webpage import parts
from pipelines.webpage.dots import Dot, Dots
from pipelines.webpage.parts import (
    Chart,
    Line,
    Section,
    Table,
    Tile,
    count,
    marks_around,
    share,
    signed,
    words,
)
from pipelines.webpage.rendering import rendered
from policies.numerics.special import HALF_95
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import read_json, write_file
from transforms.replay.backtesting import POLICIES

NAME = "report.html"
RATE = "crawls per page and day"


def write(folder: str, title: str, sections: Sequence[Section]) -> str:
    """Write the page of some results, with what was replayed and what that cannot tell; returns its path."""
    about = read_json(FileSystems.join(folder, "results.json"))
    first, *rest = backtest_report.head(folder).splitlines()
    text = rendered(
        title,
        first,
        [*sections, _replayed(about, rest)],
        f"recrawl {about['recrawl']} from the tables beside it",
    )
    write_file(folder, NAME, text.encode(), 1)
    return FileSystems.join(folder, NAME)


def _replayed(about: dict[str, Any], lines: list[str]) -> Section:
    """What the results are from, and what a replay cannot tell."""
    budgets = [float(b) for b in about["options"].get("budgets") or ()]
    paragraphs = [*backtest_report.few_changes(about), *backtest_report.cautions(about, budgets)]
    paragraphs += backtest_report.about_errors(about)
    notes = lines + [text.replace("\n", " ") for text in paragraphs]
    return Section("replayed", "What was replayed, and what it cannot tell", notes)


def backtest(folder: str, against: str) -> str:
    """Write the page of a backtest; returns its path."""
    results, days = (read_table(folder, f"{name}.parquet") for name in ("results", "days"))
    comparisons = backtest_report.compare(results, days, against)
    return write(
        folder, "recrawl backtest: which policy, and what budget", [_compared(c) for c in comparisons]
    )


def _compared(c: Comparison) -> Section:
    """Who is best at which budget, by how much, and what more budget buys."""
    section = Section(f"weights-{c.weights}", f"Fresh requests, {c.weights} weights")
    for budget in c.budgets:
        best = c.best(budget)
        cell = c.cells[best, budget]
        lead = f"{share(cell.accuracy).text} ± {100 * cell.error:.1f}"
        if best != c.against:
            lead += f", {100 * cell.gain:+.2f} ± {100 * cell.gain_error:.2f} points to {c.against}"
        section.tiles.append(Tile(f"Best at {budget:g} {RATE}", words(best), lead))
    section.notes.extend(backtest_report.verdict(c))
    if len(c.budgets) > 1:
        section.charts.append(_curves(c))
    section.charts.extend(_differences(c, budget) for budget in c.budgets)
    section.tables.append(_numbers(c, c.budgets))
    return section


def _order(c: Comparison, budgets: Sequence[float]) -> list[str]:
    """From the best down, over some budgets."""
    return sorted(c.policies, key=lambda p: -sum(c.cells[p, b].accuracy for b in budgets))


def _curves(c: Comparison) -> Chart:
    """Freshness by budget, of the best policy of each kind."""
    order = _order(c, c.budgets)
    # One of each colour, so that lines are told apart; that which others are compared with is always there.
    best = {_role(p): p for p in reversed(order) if not POLICIES[p].reference}
    named = {**best, _role(c.against): c.against}.values()
    lines = []
    for policy in order:
        cells = [c.cells[policy, b] for b in c.budgets]
        y = [cell.accuracy for cell in cells]
        if policy in named:
            lines.append(Line(policy, _role(policy), c.budgets, y, [_range(x) for x in cells], "band"))
        else:
            lines.append(Line("", "plain", c.budgets, y, style="thin"))
    lines.sort(key=lambda line: line.style == "band")
    rest = len(order) - len(named)
    others = f"thin lines are the other {rest}" if rest else "there are no others"
    return Chart(
        "Freshness by budget",
        f"Bands are 95 % ranges. Named is the best of each kind; {others}.",
        f"budget, {RATE}",
        "Share of requests that find a fresh copy",
        lines,
        _numbers(c, c.budgets),
        percent=True,
        ticks=[(b, f"{b:g}") for b in c.budgets],
        log_x=True,
        from_zero=False,
    )


def _differences(c: Comparison, budget: float) -> Dots:
    """What each policy gains or loses at a budget."""
    rows = []
    for policy in _order(c, [budget]):
        cell = c.cells[policy, budget]
        gain, error = 100.0 * cell.gain, 100.0 * _half(cell.gain_error)
        text = f"{gain:+.1f} ± {100.0 * cell.gain_error:.1f}".replace("-", "−")
        if policy == c.against:
            text = f"{100.0 * cell.accuracy:.1f} %"
        name = policy + " *" * POLICIES[policy].reference
        rows.append(Dot(name, _role(policy), gain, gain - error, gain + error, text))
    return Dots(
        f"Difference to {c.against} at {budget:g}",
        f"Right of the dashed line is better than {c.against}. Bars are 95 % ranges of paired differences; "
        "the numbers have standard errors. Those with * are told what no crawler can know.",
        "difference, points of fresh requests",
        rows,
        _numbers(c, [budget]),
        rule=0.0,
    )


def _numbers(c: Comparison, budgets: Sequence[float]) -> Table:
    rows = [
        [
            words(policy),
            count(budget),
            share(cell.accuracy),
            _points(cell.error),
            signed(round(100.0 * cell.gain, 2)),
            _points(cell.gain_error),
            count(None if math.isnan(cell.p_value) else cell.p_value),
            share(1.0 + cell.off_budget),
        ]
        for policy in _order(c, budgets)
        for budget in budgets
        for cell in [c.cells[policy, budget]]
    ]
    columns = (
        "policy",
        RATE,
        "fresh",
        "error, points",
        f"to {c.against}, points",
        "error of that",
        "p",
        "of budget spent",
    )
    return Table("Fresh requests by policy and budget", columns, rows)


def _points(value: float) -> parts.Cell:
    return count(round(100.0 * value, 2))


def _range(cell: Cell) -> tuple[float, float]:
    half = _half(cell.error)
    return max(0.0, cell.accuracy - half), min(1.0, cell.accuracy + half)


def _half(error: float) -> float:
    """Of a 95 % range; none where the error is not known."""
    return HALF_95 * error if math.isfinite(error) else 0.0


def _role(policy: str) -> str:
    return role_of(policy) or "plain"


@dataclass(frozen=True)
class Needed:
    """What a policy needs for a target.

    Attributes
    ----------
    policy : str
    target : float
    budget, error : float
        Crawls per page and day, and the standard error; infinite where no budget that was tried is enough.
    text : str
        The same in words.
    """

    policy: str
    target: float
    budget: float
    error: float
    text: str


def needed(answers: Sequence[Needed], runs: pa.Table, weights: str) -> Section:
    """What each policy needs for each target, under one kind of weights.

    Parameters
    ----------
    answers : sequence of Needed
    runs : table
        All replays: `policy`, `budget`, `accuracy`.
    weights : str
    """
    section = Section(f"weights-{weights}", f"Budget needed, {weights} weights")
    for target in sorted({a.target for a in answers}):
        mine = [a for a in answers if a.target == target]
        mine.sort(key=lambda a: (a.budget, a.policy))
        numbers = Table(
            f"Budget for {100 * target:g} % fresh",
            ("policy", RATE, "±"),
            [[words(a.policy), _rate(a.budget), _rate(a.error)] for a in mine],
        )
        if math.isfinite(mine[0].budget):
            section.tiles.append(
                Tile(f"Least for {100 * target:g} % fresh", words(mine[0].policy), f"{mine[0].text} {RATE}")
            )
        dots = [
            Dot(
                a.policy,
                _role(a.policy),
                a.budget,
                a.budget - _half(a.error),
                a.budget + _half(a.error),
                a.text,
            )
            for a in mine
        ]
        section.charts.append(
            Dots(
                f"Budget for {100 * target:g} % fresh requests",
                "Left is cheaper. Bars are 95 % ranges; the numbers have standard errors. A policy without a "
                "dot does not come so far at the largest budget that was tried.",
                RATE,
                dots,
                numbers,
                log_x=True,
            )
        )
    section.charts.append(_search(answers, runs))
    return section


def _rate(value: float) -> parts.Cell:
    return count(value if math.isfinite(value) else None)


def _search(answers: Sequence[Needed], runs: pa.Table) -> Chart:
    """All replays of the search, the targets, and the answers."""
    rows = sorted(runs.to_pylist(), key=lambda r: (r["policy"], r["budget"]))
    low, high = (f([r["budget"] for r in rows]) for f in (min, max))
    lines = [
        Line(f"{100 * target:g} %", "black", (low, high), (target, target), style="rule")
        for target in sorted({a.target for a in answers})
    ]
    for policy in dict.fromkeys(a.policy for a in answers):
        mine = [r for r in rows if r["policy"] == policy]
        x, y = ([r[name] for r in mine] for name in ("budget", "accuracy"))
        lines.append(Line(policy, _role(policy), x, y, style="points"))
    for a in answers:
        if math.isfinite(a.budget):
            ends = [(max(low, a.budget - _half(a.error)), min(high, a.budget + _half(a.error)))]
            lines.append(Line("", _role(a.policy), [a.budget], [a.target], ends, "rings", across=True))
    return Chart(
        "The search",
        "Dots are the replays that were made, rings the answers on the line of a target, with 95 % ranges.",
        f"budget, {RATE}",
        "Share of requests that find a fresh copy",
        lines,
        Table(
            "Replays",
            ("policy", RATE, "fresh"),
            [[words(r["policy"]), count(r["budget"]), share(r["accuracy"])] for r in rows],
        ),
        percent=True,
        ticks=_ticks(low, high),
        log_x=True,
        from_zero=False,
    )


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    inside = [m for m in marks_around(low, high) if low * (1 - 1e-9) <= m <= high * (1 + 1e-9)] or [low]
    every = -(-len(inside) // 5)
    return [(m, f"{m:g}") for m in inside[::every]]
