"""`recrawl simulate`: policies on drawn worlds, where the truth is known."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsList

from pipelines.command import output_folder
from pipelines.command.errors import OptionsError
from pipelines.command.version import __version__
from pipelines.experiments import simulate_report
from pipelines.experiments.arguments.simulate import (
    AUTO,
    CHANGE_RATE,
    DEFAULT_POLICIES,
    FALSE_SIGNALS,
    NO_SIGNALS,
    NOISY_SIGNALS,
    RECALL,
    REQUESTS_OF,
    SHAPE,
    SIGNALS,
)
from pipelines.experiments.experiment import problem_in, run_here, show_pictures, write_table
from pipelines.experiments.result_schemas import OVER_TIME, SIMULATION
from pipelines.nightly.checks import Checks, near
from pipelines.nightly.progress import progress
from policies.simulation.drawn import (
    CLICKS,
    EQUAL,
    GAMMA,
    MOST_SEED,
    OFFERS,
    REQUESTS,
    UNIFORM,
    WORLDS,
    Model,
)
from policies.simulation.experiments import BASELINE
from transforms.batches.steps import Step
from transforms.files.sinks import FileInfo, write_json
from transforms.replay.backtesting import POLICIES
from transforms.replay.simulating import TOLD, WINDOWS, Failed, Outcome, Plan, RunCells, cells, is_told

PROBLEMS = "problems.json"
STEPS = (("RunCells", "following the policies"), ("WriteResults", "writing results"))
OWN = (
    "results.parquet",
    "over_time.parquet",
    "summary.parquet",
    "simulate.json",
    *output_folder.pictures(simulate_report.PICTURES),
)
MOST_PAGES = 200_000
MOST_PAGE_DAYS = 50_000_000
MOST_SLOTS = 20_000_000


@dataclass(frozen=True)
class Settings:
    """The checked options. Plain data: it travels to workers."""

    plan: Plan
    pages: tuple[int, ...]
    bandwidths: tuple[float, ...]
    repetitions: int
    policies: tuple[str, ...]
    against: str
    workers: int
    output: str
    plots: bool

    @classmethod
    def of(cls, parsed: argparse.Namespace) -> Settings:
        """Check everything at once.

        Raises
        ------
        OptionsError
        """
        checks = Checks(parsed)
        sizes = checks.words("pages")
        pages = tuple(sorted({checks.whole(f"--pages={w}", w, 1, MOST_PAGES, "pages") for w in sizes}))
        bandwidths = checks.values("bandwidth", 1e-3, 1e7, "crawls per day over all pages")
        days = checks.number("until", 2, 100_000, "days")
        warm_up = checks.value(f"--warm_up={parsed.warm_up}", parsed.warm_up, 0.0, 0.9, "share of the days")
        model = _model(checks, parsed)
        discard = model.delay
        if parsed.discard is not None:
            discard = checks.value(f"--discard={parsed.discard}", parsed.discard, 0.0, 1e5, "days")
        seed = checks.number("seed", 0, MOST_SEED, "seed")
        plan = Plan(model, days, warm_up, seed, discard, parsed.sampled)
        policies = _policies(checks, parsed, model)
        against = parsed.against or next(iter(policies), "")
        if against not in policies and not checks.problems:
            hint = near(against, policies) or ": add it there, or give another"
            checks.problems.append(f"--against={against}: not among --policies{hint}")
        settings = cls(
            plan,
            pages,
            bandwidths,
            checks.number("repetitions", 1, 100_000, "repetitions"),
            policies,
            against,
            checks.workers,
            parsed.output.rstrip("/") or parsed.output,
            not parsed.no_plots,
        )
        if not checks.problems:
            checks.problems += settings._too_much()
        if checks.problems:
            raise OptionsError(checks.problems)
        return settings

    def _too_much(self) -> list[str]:
        """Sizes that are fine by themselves and too large or too small together."""
        problems, days = [], self.plan.days
        if self.pages[-1] * days > MOST_PAGE_DAYS:
            problems.append(
                f"--pages={self.pages[-1]} for --until={days} days: more than {MOST_PAGE_DAYS:,} pages times "
                "days do not fit in memory: lower one of them"
            )
        if self.bandwidths[-1] * days > MOST_SLOTS:
            problems.append(
                f"--bandwidth={self.bandwidths[-1]:g} for --until={days} days: more than {MOST_SLOTS:,} "
                "crawls: lower one of them"
            )
        if self.bandwidths[0] * (days - self.plan.start) < 1.0:
            problems.append(
                f"--bandwidth={self.bandwidths[0]:g} in {days - self.plan.start:g} scored days: less than "
                "one crawl: raise it or --until"
            )
        return problems

    def published(self) -> dict[str, Any]:
        """What simulate.json says of the options: what decides the results."""
        values = asdict(self)
        for name in ("output", "workers", "plots"):
            del values[name]
        return values


check = Settings.of


def _model(checks: Checks, parsed: argparse.Namespace) -> Model:
    def one_of(option: str, known: Sequence[str]) -> str:
        value = str(getattr(parsed, option))
        if value not in known:
            checks.problems.append(f"--{option}={value}: choose from {', '.join(known)}{near(value, known)}")
        return value

    def number(option: str, low: float, high: float, what: str, default: float) -> float:
        text = getattr(parsed, option)
        return default if text is None else checks.value(f"--{option}={text}", text, low, high, what)

    def pair(option: str, low: float, high: float, what: str, default: tuple[float, float]) -> Any:
        text = getattr(parsed, option)
        if text is None:
            return default
        words = text.split(",")
        if len(words) != 2:
            checks.problems.append(f"--{option}={text}: expected two numbers, as {default[0]},{default[1]}")
            return default
        return tuple(checks.value(f"--{option}={text}", w, low, high, what) for w in words)

    kind = one_of("world", WORLDS)
    requests = one_of("requests", (AUTO, *REQUESTS))
    signals = one_of("signals", SIGNALS)
    for option, wanted in (("change_rate", kind != OFFERS), ("shape", kind == GAMMA)):
        if getattr(parsed, option) is not None and not wanted:
            checks.problems.append(f"--{option}: the world {kind} has none: leave it out, or take another")
    for option, kinds in (("recall", SIGNALS[1:]), ("false_signals", SIGNALS[2:])):
        if getattr(parsed, option) is not None and signals not in kinds:
            checks.problems.append(f"--{option}: no use with --signals={signals}: use {' or '.join(kinds)}")
    if requests == CLICKS and kind != OFFERS:
        checks.problems.append(f"--requests=clicks: the world {kind} has none: use --world=offers")
    recall = pair("recall", 1e-3, 1e3, "parameters of a Beta distribution", RECALL)
    low, high = pair("false_signals", 0.0, 1e3, "false signals per page and day", FALSE_SIGNALS)
    if low > high:
        checks.problems.append(f"--false_signals={parsed.false_signals}: the first is above the second")
    return Model(
        kind,
        REQUESTS_OF.get(kind, UNIFORM) if requests == AUTO else requests,
        number("change_rate", 1e-6, 1e3, "changes per page and day", CHANGE_RATE),
        number("shape", 0.05, 1e3, "shape of a gamma distribution", SHAPE),
        None if signals == NO_SIGNALS else recall,
        (low, high) if signals == NOISY_SIGNALS else (0.0, 0.0),
        checks.value(f"--delay={parsed.delay}", parsed.delay, 0.0, 1e5, "days"),
    )


def _policies(checks: Checks, parsed: argparse.Namespace, model: Model) -> tuple[str, ...]:
    """The policies: of those by default what the world allows, of those asked for all or a problem."""

    def known(name: str) -> bool:
        try:
            return is_told(name)
        except ValueError:
            return False

    if parsed.policies is None:
        return tuple(p for p in DEFAULT_POLICIES if not _missing(p, model))
    names = checks.names("policies", [*TOLD, *POLICIES], known)
    for name in names:
        missing = _missing(name, model)
        if missing:
            checks.problems.append(f"--policies: {name}: {missing}")
    return names


def _missing(policy: str, model: Model) -> str:
    """What a world lacks for a policy, and what to do; empty: nothing."""
    if policy == BASELINE and model.kind == OFFERS:
        return "exact for changes at random alone, and offers have hours: leave it out"
    needs = POLICIES[policy].needs if policy in POLICIES else ""
    if needs == "signals" and model.recall is None:
        return "there are none with --signals=none: use true or noisy, or leave it out"
    if needs == "weights" and model.requests == EQUAL:
        return "all pages weigh alike with --requests=equal: take others, or leave it out"
    if needs in ("metadata", "impressions") and model.kind != OFFERS:
        return f"the world {model.kind} has no {needs}: use --world=offers, or leave it out"
    return ""


class WriteResults(Step):
    """Writes all results, in an order that no runner decides."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def process(self, _: Any, found: list[Outcome | Failed]) -> Iterator[FileInfo]:
        settings = self._settings
        problems = sorted({f.why for f in found if isinstance(f, Failed)})
        if problems:
            yield write_json(settings.output, PROBLEMS, {"problems": problems})
            return
        output_folder.clear(settings.output, OWN)
        outcomes = [o for o in found if isinstance(o, Outcome)]
        order = {name: at for at, name in enumerate(settings.policies)}
        outcomes = sorted(outcomes, key=lambda o: (o.pages, o.bandwidth, order[o.policy], o.repetition))
        yield write_table(settings.output, "results.parquet", results_table(outcomes))
        yield write_table(settings.output, "over_time.parquet", over_time_table(outcomes, settings.plan.days))
        about = {"recrawl": __version__, "options": settings.published()}
        yield write_json(settings.output, "simulate.json", about)


def results_table(outcomes: Sequence[Outcome]) -> pa.Table:
    """One row a policy and repetition."""
    return pa.Table.from_pylist([{n: getattr(o, n) for n in SIMULATION.names} for o in outcomes], SIMULATION)


def over_time_table(outcomes: Sequence[Outcome], days: int) -> pa.Table:
    """One row a policy, repetition and part of the time."""
    edges = np.linspace(0.0, days, WINDOWS + 1)
    columns: dict[str, Any] = {
        name: np.repeat(np.array([getattr(o, name) for o in outcomes], object), WINDOWS).tolist()
        for name in ("policy", "pages", "bandwidth", "repetition")
    }
    columns["begin"], columns["end"] = (np.tile(e, len(outcomes)) for e in (edges[:-1], edges[1:]))
    columns["accuracy"] = np.concatenate([o.over_time for o in outcomes])
    return pa.table([pa.array(columns[f.name], f.type) for f in OVER_TIME], schema=OVER_TIME)


def build_pipeline(pipeline: beam.Pipeline, settings: Settings) -> None:
    """Wire a simulation: cells to outcomes, outcomes to files."""
    todo = list(cells(settings.policies, settings.pages, settings.bandwidths, settings.repetitions))
    outcomes = (
        pipeline
        | "Cells" >> beam.Create(todo, reshuffle=False)
        | "SpreadCells" >> beam.Reshuffle()
        | "RunCells" >> beam.ParDo(RunCells(settings.plan))
    )
    _ = (
        pipeline
        | "Once" >> beam.Create([None])
        | "WriteResults" >> beam.ParDo(WriteResults(settings), AsList(outcomes))
    )


def run(parsed: argparse.Namespace, beam_arguments: Sequence[str] = ()) -> int:
    """Run the command; returns the exit code."""
    settings = Settings.of(parsed)
    with progress(sys.stderr, STEPS):
        run_here(lambda p: build_pipeline(p, settings), beam_arguments, settings.workers, settings.output)
    if (found := problem_in(settings.output, PROBLEMS)) is not None:
        raise OptionsError(found["problems"])
    print(simulate_report.report(settings.output, settings.against))
    if settings.plots:
        show_pictures(settings.output, lambda: simulate_report.pictures(settings.output))
    return 0
