"""`recrawl backtest-discovery`: which crawler finds new pages, on a history of what sources showed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton

from pipelines.command import output_folder
from pipelines.command.errors import OptionsError
from pipelines.command.instants import format_instant
from pipelines.command.options_inputs import named_columns
from pipelines.command.version import __version__
from pipelines.experiments import discovery_report
from pipelines.experiments.arguments.backtest_discovery import KINDS
from pipelines.experiments.experiment import problem_in, run_here, show_pictures, write_table
from pipelines.nightly.checks import Checks
from pipelines.nightly.progress import progress
from policies.discovery.presences import US_PER_HOUR
from transforms import dialects
from transforms.batches import schemas
from transforms.batches.counters import added
from transforms.batches.steps import Step
from transforms.files.blocks import How
from transforms.files.sinks import FileInfo, write_json
from transforms.intake.reading import Input, check_all
from transforms.replay.discovering import POLICIES, PlayDiscovery, Result, trials
from transforms.replay.link_histories import BuildLinkHistory, LinkHistory, LinkSettings
from transforms.replay.reading import ReadLogs
from transforms.replay.replaying import ReplayError

PROBLEM = "problem.json"
STEPS = (
    ("ReadLogFiles", "reading the links"),
    ("BuildLinkHistory", "cutting the history into steps"),
    ("PlayDiscovery", "following the crawlers"),
    ("WriteDiscovery", "writing results"),
)
OWN = (
    "results.parquet",
    "over_time.parquet",
    "summary.parquet",
    "results.json",
    *output_folder.pictures(discovery_report.PICTURES),
)


@dataclass(frozen=True)
class Settings:
    """The checked options. Plain data: it travels to workers."""

    inputs: tuple[Input, ...]
    output: str
    history: LinkSettings
    ks: tuple[int, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    workers: int
    plots: bool

    @classmethod
    def of(cls, parsed: argparse.Namespace) -> Settings:
        """Check everything at once.

        Raises
        ------
        OptionsError
        """
        check = Checks(parsed)
        inputs = []
        for kind in KINDS:
            columns = named_columns(kind, getattr(parsed, f"{kind}_columns") or "", check.problems)
            how = How(dialects.CANONICAL, columns) if columns else How()
            if patterns := getattr(parsed, kind):
                inputs.append(Input(kind, patterns, True, how))
        if parsed.pooled and parsed.no_pooled:
            check.problems.append("--pooled and --no_pooled: give one of them, or none for both budgets")
        words = check.words("k")
        ks = tuple(sorted({check.whole(f"--k={w}", w, 1, 1_000_000, "refreshes a step") for w in words}))
        step = check.value(f"--step_hours={parsed.step_hours}", parsed.step_hours, 1 / 60, 168, "hours")
        warm = check.value(f"--warmup_hours={parsed.warmup_hours}", parsed.warmup_hours, 0, 1e5, "hours")
        seed = check.number("seed", 0, 2**62, "seed")
        runs = check.number("repetitions", 1, 1000, "repetitions")
        start, end = check.instant("start"), check.instant("end")
        policies, workers = check.names("policies", POLICIES) or tuple(POLICIES), check.workers
        if start is not None and end is not None and start >= end:
            check.problems.append(f"--end={parsed.end}: not after --start={parsed.start}")
        if check.problems:
            raise OptionsError(check.problems)
        history = LinkSettings(
            start,
            end,
            round(step * US_PER_HOUR),
            round(warm * US_PER_HOUR),
            not parsed.pooled,
            not parsed.no_pooled,
            any(i.kind == "snapshots" for i in inputs),
        )
        seeds = tuple(range(seed, seed + runs))
        output = parsed.output.rstrip("/") or parsed.output
        return cls(tuple(inputs), output, history, ks, policies, seeds, workers, not parsed.no_plots)

    @property
    def warm_up_hours(self) -> float:
        """The same in hours."""
        return self.history.warm_up_us / US_PER_HOUR

    def published(self) -> dict[str, Any]:
        """What results.json says of the options: what decides the results."""
        return {
            "inputs": {i.kind: i.patterns for i in self.inputs},
            "columns": {i.kind: dict(i.how.columns) for i in self.inputs if i.how.columns},
            **asdict(self.history),
            "k": list(self.ks),
            "policies": list(self.policies),
            "seeds": list(self.seeds),
        }


check = Settings.of


class WriteDiscovery(Step):
    """Writes all results, in an order that no runner decides."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def process(
        self, _: Any, played: list[list[Result]], history: LinkHistory, counts: list[dict[str, int]]
    ) -> Iterator[FileInfo]:
        settings, output = self._settings, self._settings.output
        total = added(counts)
        if history.problem:
            said = ". ".join(filter(None, (history.problem, discovery_report.rejected(total))))
            yield write_json(output, PROBLEM, {"problem": said})
            return
        output_folder.clear(output, OWN)
        order = {name: at for at, name in enumerate(POLICIES)}
        rows = [r for some in played for r in some]
        rows.sort(key=lambda r: (discovery_report.by_domain(r.domain), r.k, order[r.policy], r.seed))
        whole, warm = history.whole, settings.warm_up_hours
        yield write_table(output, "results.parquet", discovery_report.results_table(rows))
        step_hours = whole.step_us / US_PER_HOUR
        yield write_table(
            output, "over_time.parquet", discovery_report.over_time_table(rows, step_hours, warm)
        )
        yield write_table(output, "summary.parquet", discovery_report.summary_table(rows, history))
        about = {
            "recrawl": __version__,
            "facts": {
                "sources": sum(history.sources_of),
                "domains": dict(zip(history.domains, history.sources_of, strict=True)),
                "presences": history.presences,
                "targets": len(set(whole.target.tolist())),
                "polls": history.polls,
                "polls_failed": history.failed,
                "sources_without_polls": history.unpolled,
                "steps": whole.steps,
                "steps_with_a_poll": float((whole.shown >= 0).mean()),
            },
            "rows": dict(sorted(total.items())),
            "start": format_instant(whole.start_us),
            "options": settings.published(),
        }
        yield write_json(output, "results.json", about)


def build_pipeline(pipeline: beam.Pipeline, settings: Settings) -> None:
    """Wire a backtest: rows to a history, the history to runs, runs to results."""
    read = pipeline | "ReadLogs" >> ReadLogs(settings.inputs)
    nothing = pa.RecordBatch.from_pylist([], schemas.LINKS)
    seed = pipeline | "NoRows" >> beam.Create([(0, nothing)]).with_output_types(tuple[int, pa.RecordBatch])
    history = AsSingleton(
        (read[ReadLogs.ROWS], seed)
        | "AllRows" >> beam.Flatten()
        | "OneHistory" >> beam.GroupByKey()
        | "BuildLinkHistory" >> beam.ParDo(BuildLinkHistory(settings.history)).with_output_types(LinkHistory)
    )
    both = settings.history
    played = (
        pipeline
        | "Trials" >> beam.Create(list(trials(settings.policies, both.by_domain, both.pooled)))
        | "SpreadTrials" >> beam.Reshuffle()
        | "PlayDiscovery"
        >> beam.ParDo(PlayDiscovery(settings.ks, settings.seeds, settings.warm_up_hours), history)
    )
    _ = (
        pipeline
        | "Once" >> beam.Create([None])
        | "WriteDiscovery"
        >> beam.ParDo(WriteDiscovery(settings), AsList(played), history, AsList(read[ReadLogs.COUNTS]))
    )


def run_pipeline(settings: Settings, beam_arguments: Sequence[str]) -> None:
    """Run to the end, in processes of this machine unless another runner is asked for.

    Raises
    ------
    OptionsError, policies.numerics.errors.RecrawlError, submitting.RunnerError
    """
    check_all(settings.inputs)
    with progress(sys.stderr, STEPS):
        run_here(
            lambda pipeline: build_pipeline(pipeline, settings),
            beam_arguments,
            settings.workers,
            settings.output,
        )
    if (found := problem_in(settings.output, PROBLEM)) is not None:
        raise ReplayError(found["problem"])


def run(parsed: argparse.Namespace, beam_arguments: Sequence[str] = ()) -> int:
    """Run the command; returns the exit code."""
    settings = Settings.of(parsed)
    run_pipeline(settings, beam_arguments)
    print(discovery_report.report(settings.output))
    if settings.plots:
        show_pictures(settings.output, lambda: discovery_report.pictures(settings.output))
    return 0
