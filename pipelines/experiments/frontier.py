"""`recrawl frontier`: the budget that a target freshness needs, for each policy."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.command import output_folder
from pipelines.command.errors import OptionsError
from pipelines.experiments import backtest, backtest_report, pages
from pipelines.experiments.backtest import ROOM, Settings, least_budget, scorings_of
from pipelines.experiments.experiment import aligned, read_table, write_table
from pipelines.experiments.result_schemas import FRONTIER
from policies.numerics.typing_ import FloatArray
from transforms.batches.steps import Step
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import FileInfo, read_json
from transforms.replay.backtesting import POLICIES, Scored, available
from transforms.replay.frontier import Answer, FindBudgets, Question
from transforms.replay.replaying import Facts, Replayed, ReplayError

SPAN = 100.0
"""How far below the log's own rate, or around the rate of changes, budgets are looked for."""
OWN = ("frontier.parquet",)


def check(parsed: argparse.Namespace) -> tuple[Settings, tuple[float, ...], float | None]:
    """Settings, targets and the largest budget, checked.

    Raises
    ------
    OptionsError
    """
    problems = []
    targets, most = [], None
    for text in parsed.target:
        value = _number(text)
        if not 0 < value < 1:
            problems.append(f"--target={text}: expected a share above 0 and below 1, e.g. 0.9")
        targets.append(value)
    if parsed.most is not None:
        most = _number(parsed.most)
        if not 1e-6 <= most <= 1e4:
            problems.append(f"--most={parsed.most}: expected crawls per page and day from 1e-06 to 10000")
    try:
        settings = Settings.of(parsed)
    except OptionsError as error:
        problems += error.problems
    if problems:
        raise OptionsError(problems)
    return settings, tuple(sorted(set(targets))), most


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class _Questions:
    """From settings to questions; plain data, it travels to workers."""

    def __init__(self, targets: Sequence[float], most: float | None) -> None:
        self._targets, self._most = tuple(targets), most

    def ask(self, settings: Settings, replayed: Replayed) -> Iterator[Question]:
        if replayed.problem:
            return
        least = ROOM * least_budget(replayed, settings.warm_up)
        if self._most is not None and self._most < least:
            raise ReplayError(
                f"--most={self._most:g}: less than one crawl in the scored nights; give at least {least:.2g}"
            )
        low, high = self.range(replayed.facts, least)
        scorings = scorings_of(settings, replayed)
        for policy in available(replayed.world, settings.policies, scorings):
            for weighting in scorings:
                yield Question(policy, weighting, self._targets, low, high)

    def range(self, facts: Facts, least: float) -> tuple[float, float]:
        """Budgets to look between; `least` is one at which there are crawls at all."""
        if facts.source == "observations":
            high = self._most or facts.crawls_per_page_day
            return max(high / SPAN, least), max(high, least)
        rate = facts.changes / max(facts.pages * facts.nights, 1)
        high = self._most or 16.0 * rate
        return max(min(rate, high) / SPAN, least), max(high, least)


class WriteFrontier(Step):
    """Writes answers, and all runs as a backtest does."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def process(
        self, _: Any, answers: list[Answer], replayed: Replayed, counts: list[dict[str, int]]
    ) -> Iterator[FileInfo]:
        order = {name: at for at, name in enumerate(POLICIES)}
        answers = sorted(
            answers,
            key=lambda a: (
                a.question.weighting.name,
                a.target,
                order[a.question.policy],
                a.question.weighting.repetition,
            ),
        )
        runs: dict[tuple[str, str, int, float], Scored] = {}
        for answer in answers:
            runs |= {(s.policy, s.weights, s.repetition, s.budget): s for s in answer.runs}
        table = pa.Table.from_pylist([_row(a) for a in answers], FRONTIER)
        if not replayed.problem:
            output_folder.clear(self._settings.output, OWN)
            yield write_table(self._settings.output, "frontier.parquet", table)
        yield from backtest.WriteResults(self._settings).process(None, list(runs.values()), replayed, counts)


def _row(answer: Answer) -> dict[str, Any]:
    question, most, nearest = answer.question, answer.runs[-1], answer.nearest
    error = backtest_report.over_blocks(nearest.fresh, nearest.held)
    return {
        "policy": question.policy,
        "weights": question.weighting.name,
        "repetition": question.weighting.repetition,
        "target": answer.target,
        "budget": answer.budget,
        "budget_per_day": answer.budget * most.pages,
        "standard_error": answer.budget * error / answer.per_e_fold,
        "per_e_fold": answer.per_e_fold,
        "accuracy_error": error,
        "most_accuracy": most.accuracy,
        "most_budget": most.budget,
        "runs": len(answer.runs),
    }


def report(folder: str, against: str) -> str:
    """What each policy needs."""
    rows = read_table(folder, "frontier.parquet").to_pylist()
    parts = [backtest_report.head(folder)]
    for weights in sorted({r["weights"] for r in rows}):
        mine = [r for r in rows if r["weights"] == weights]
        targets = sorted({r["target"] for r in mine})
        lines = [["crawls per page and day for", *(f"{100 * t:g} % fresh" for t in targets)]]
        for policy in dict.fromkeys(r["policy"] for r in mine):
            lines.append([policy, *(_cell(mine, policy, t, against) for t in targets)])
        parts.append("\n".join([f"Budget needed, {weights} weights", *aligned(lines)]))
    about = read_json(FileSystems.join(folder, "results.json"))
    parts += backtest_report.few_changes(about)
    parts += backtest_report.cautions(about) + backtest_report.about_errors(about)
    return "\n\n".join(parts)


def _cell(rows: list[dict[str, Any]], policy: str, target: float, against: str) -> str:
    def of(name: str, field: str) -> FloatArray:
        return np.array([r[field] for r in rows if r["policy"] == name and r["target"] == target])

    budget, base = of(policy, "budget"), of(against, "budget")
    if np.isnan(budget).any():
        most = of(policy, "most_accuracy").mean()
        return f"more than {of(policy, 'most_budget').max():.3g} ({100 * most:.1f} %)"
    if np.isnan(of(policy, "per_e_fold")).any():
        return f"at most {budget.mean():.3g}"  # the least that was tried was enough
    text = with_error(float(budget.mean()), _error(budget, of(policy, "standard_error")))
    known = not np.isnan(of(against, "per_e_fold")).any()
    if policy != against and len(base) == len(budget) and known:
        text += f"  ({np.exp(np.log(budget / base).mean()):.2f} x)"
    return text


def _error(budget: FloatArray, of_days: FloatArray) -> float:
    """Of the mean over repetitions: what days tell is common to them, what they differ by is added."""
    spread = budget.std(ddof=1) / np.sqrt(len(budget)) if len(budget) > 1 else 0.0
    return float(np.hypot(of_days.mean(), spread))


def with_error(value: float, error: float) -> str:
    """Both to one digit of the error, or two where that is 1: `0.123 ± 0.004`; three digits without one."""
    if not 0 < error < math.inf:
        return f"{value:.3g}"
    digits = -math.floor(math.log10(error)) + (f"{error:.0e}"[0] == "1")
    digits = max(digits, 0)
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def page(folder: str, against: str) -> str:
    """Write the answers as a web page; returns its path."""
    rows, runs = read_table(folder, "frontier.parquet").to_pylist(), read_table(folder, "results.parquet")
    sections = []
    for weights in sorted({r["weights"] for r in rows}):
        mine = [r for r in rows if r["weights"] == weights]
        answers = []
        for policy, target in sorted({(r["policy"], r["target"]) for r in mine}):
            budget, error = answer(mine, policy, target)
            text = _cell(mine, policy, target, against)
            answers.append(pages.Needed(policy, target, budget, error, text))
        table = runs.filter(pc.equal(runs.column("weights"), weights))
        sections.append(pages.needed(answers, table, weights))
    return pages.write(folder, "recrawl frontier: the budget that a target needs", sections)


def answer(rows: list[dict[str, Any]], policy: str, target: float) -> tuple[float, float]:
    """Budget that a policy needs and its standard error; infinite where none that was tried is enough."""
    mine = [r for r in rows if r["policy"] == policy and r["target"] == target]
    budget, of_days = (np.array([r[name] for r in mine]) for name in ("budget", "standard_error"))
    if np.isnan(budget).any():
        return math.inf, math.nan
    return float(budget.mean()), _error(budget, of_days)


def run(parsed: argparse.Namespace, beam_arguments: Sequence[str] = ()) -> int:
    """Run the command; returns the exit code."""
    settings, targets, most = check(parsed)
    backtest.run_pipeline(
        settings,
        beam_arguments,
        make=_Questions(targets, most).ask,
        play=FindBudgets(settings.warm_up),
        write=WriteFrontier(settings),
    )
    print(report(settings.output, backtest.compared_with(settings.output)))
    if settings.plots:
        print(f"\n{page(settings.output, backtest.compared_with(settings.output))}")
    return 0
