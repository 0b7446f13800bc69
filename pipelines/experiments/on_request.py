"""`recrawl backtest --on_request`: whether a request should trigger a crawl, and what each rule saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipelines.command import output_folder
from pipelines.command.version import __version__
from pipelines.experiments.experiment import aligned, read_table, show_pictures, write_table
from pipelines.experiments.figures import trained
from pipelines.pictures.plots import Panel, Picture, Series
from policies.on_request.savings import SHARES, saving, savings_by_period
from policies.on_request.strategies import RULES, UNIFORM
from transforms.batches.counters import added
from transforms.batches.schemas import TIME
from transforms.batches.steps import Step
from transforms.files.sinks import FileInfo, write_json
from transforms.replay.on_request import Answer, PlayRequests, Question, questions
from transforms.replay.replaying import Replayed

PICTURE: Final = "on_request"
OWN: Final = ("results.parquet", "summary.parquet", "results.json", *output_folder.pictures((PICTURE,)))
PROBLEM: Final = "problem.json"
RESULTS: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("level", pa.float64()),
        ("repetition", pa.int32()),
        ("period", pa.int32()),
        ("begin", TIME),
        ("requests", pa.int64()),
        ("resources", pa.float64()),
        ("freshness", pa.float64()),
    ]
)
SUMMARY: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("uniform_resources", pa.float64()),
        ("saved", pa.float64()),
        ("saved_low", pa.float64()),
        ("saved_high", pa.float64()),
        ("periods", pa.int64()),
        ("periods_reached", pa.int64()),
    ]
)


def rules() -> list[str]:
    """Rules that can be played here."""
    return [name for name, rule in RULES.items() if not rule.by_network or trained.has_keras()]


def unplayable(policies: Sequence[str]) -> list[str]:
    """Why some of these rules cannot be played here."""
    missing = [name for name in policies if name in RULES and name not in rules()]
    return [f"--policies: {name} needs Keras: pip install '.[keras]', or leave it out" for name in missing]


def parts(settings: Any) -> dict[str, Any]:
    """What of a backtest's pipeline is its own, by the names of `backtest.build_pipeline`."""
    return {
        "make": Ask(settings.policies, settings.repetitions).make,
        "play": PlayRequests(settings.warm_up, settings.requests_per_page_day, trained.network),
        "write": WriteAnswers(settings.output, settings.published()),
    }


class Ask:
    """Makes the questions of a backtest; plain data, it travels to workers."""

    def __init__(self, policies: Sequence[str], repetitions: int) -> None:
        # What is saved is saved against uniform crawling.
        self._policies, self._repetitions = tuple(dict.fromkeys((UNIFORM, *policies))), repetitions

    def make(self, settings: Any, replayed: Replayed) -> Iterator[Question]:
        """One for each strategy and repetition; none where there is no world."""
        if not replayed.problem:
            yield from questions(self._policies, self._repetitions)


class WriteAnswers(Step):
    """Writes results.parquet, summary.parquet and results.json, in an order that no runner decides."""

    def __init__(self, output: str, options: dict[str, Any]) -> None:
        self._output, self._options = output, options

    def process(
        self, _: Any, answers: list[Answer], replayed: Replayed, counts: list[dict[str, int]]
    ) -> Iterator[FileInfo]:
        if replayed.problem:
            yield write_json(self._output, PROBLEM, {"problem": replayed.problem})
            return
        output_folder.clear(self._output, OWN)
        order = {name: at for at, name in enumerate(RULES)}
        answers = sorted(answers, key=lambda a: (order[a.question.policy], a.question.repetition))
        yield write_table(self._output, "results.parquet", results(answers))
        yield write_table(self._output, "summary.parquet", summary(answers))
        total = added(counts)
        about = {"recrawl": __version__, "facts": asdict(replayed.facts), "rows": dict(sorted(total.items()))}
        about["requests"] = "of --requests" if replayed.world.asked is not None else "drawn"
        yield write_json(self._output, "results.json", about | {"options": self._options})


def results(answers: Sequence[Answer]) -> pa.Table:
    """A row a strategy, level, repetition and period."""
    parts = []
    for a in answers:
        levels, periods = a.resources.shape
        rows = levels * periods
        columns = {
            "policy": [a.question.policy] * rows,
            "level": np.repeat(RULES[a.question.policy].levels, periods),
            "repetition": np.full(rows, a.question.repetition),
            "period": np.tile(np.arange(periods), levels),
            "begin": pa.array(np.tile(a.begin_us, levels)).cast(TIME),
            "requests": np.tile(a.requests, levels),
            "resources": a.resources.ravel(),
            "freshness": a.freshness.ravel(),
        }
        parts.append(pa.table([pa.array(columns[f.name], f.type) for f in RESULTS], schema=RESULTS))
    return pa.concat_tables(parts)


def summary(answers: Sequence[Answer]) -> pa.Table:
    """What each strategy saves at the freshness of uniform crawling."""
    base = {a.question.repetition: a for a in answers if a.question.policy == UNIFORM}
    rows = []
    for name in dict.fromkeys(a.question.policy for a in answers):
        mine = [a for a in answers if a.question.policy == name]
        if name == UNIFORM:
            continue
        saved = [
            savings_by_period(*((q.resources, q.freshness) for q in (base[a.question.repetition], a)))
            for a in mine
        ]
        for share, values in zip(SHARES, np.concatenate(saved, axis=1), strict=True):
            s = saving(values)
            rows.append((name, share, s.mean, s.low, s.high, len(values), s.periods))
    return pa.Table.from_pylist([dict(zip(SUMMARY.names, row, strict=True)) for row in rows], SUMMARY)


def show(folder: str, plots: bool) -> int:
    """Print the tables, and draw; returns the exit code."""
    print(report(folder))
    if plots:
        show_pictures(folder, lambda: pictures(folder))
    return 0


def report(folder: str) -> str:
    """The tables for a terminal: what is saved, and freshness against resources."""
    rows = read_table(folder, "summary.parquet").to_pylist()
    by_policy: dict[str, list[str]] = {}
    for r in rows:
        text = f"{100 * r['saved']:.0f} [{100 * r['saved_low']:.0f}, {100 * r['saved_high']:.0f}]"
        missed = r["periods"] - r["periods_reached"]
        by_policy.setdefault(r["policy"], []).append(f"{text}*" if missed else text)
    heads = ["crawls saved, % [95 %]", *(f"uniform {100 * s:g} %" for s in SHARES)]
    lines = aligned([heads, *([name, *cells] for name, cells in by_policy.items())])
    if any(r["periods"] > r["periods_reached"] for r in rows):
        lines.append("* not reached in some periods, which count as nothing saved")
    curves = []
    for name, points in _curves(folder).items():
        some = points[:: max(1, len(points) // 5)]
        curves.append([name, ", ".join(f"{fresh:.3f} at {spent:.2f}" for spent, fresh in some)])
    return "\n".join([*lines, "", "freshness at requests, by crawls for each", *aligned(curves)])


def _curves(folder: str) -> dict[str, list[tuple[float, float]]]:
    """Mean resources and freshness of each level, by requests."""
    table = read_table(folder, "results.parquet")
    found: dict[str, dict[float, list[tuple[float, float, float]]]] = {}
    for r in table.select(["policy", "level", "requests", "resources", "freshness"]).to_pylist():
        row = float(r["requests"]), r["requests"] * r["resources"], r["requests"] * r["freshness"]
        found.setdefault(r["policy"], {}).setdefault(r["level"], []).append(row)
    curves = {}
    for name, levels in found.items():
        sums = [np.sum(rows, axis=0) for rows in levels.values()]
        curves[name] = sorted((float(s[1] / s[0]), float(s[2] / s[0])) for s in sums if s[0])
    return curves


def pictures(folder: str) -> list[Picture]:
    """Freshness against resources (Han et al. 2019, Figures 10 and 11 in one)."""
    series = [
        Series(name, *(np.array(v) for v in zip(*points, strict=True)))
        for name, points in _curves(folder).items()
    ]
    panel = Panel("", "crawls for each request", "freshness at requests", series)
    return [Picture(PICTURE, "Crawls that requests trigger", [panel], across=1)]
