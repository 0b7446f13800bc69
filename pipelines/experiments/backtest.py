"""`recrawl backtest`: which policy, and what budget, for a team's own pages."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton

from pipelines.command import options_inputs, output_folder
from pipelines.command.errors import OptionsError
from pipelines.command.instants import format_instant
from pipelines.command.version import __version__
from pipelines.experiments import backtest_report, on_request, pages
from pipelines.experiments.arguments.backtest import DEFAULT_POLICIES
from pipelines.experiments.arguments.shared import WEIGHTS
from pipelines.experiments.experiment import (
    problem_in,
    run_here,
    write_table,
)
from pipelines.experiments.result_schemas import days_table, results_table
from pipelines.nightly.checks import Checks, near
from pipelines.nightly.progress import progress
from policies.on_request.strategies import RULES
from transforms.batches import schemas
from transforms.batches.counters import added
from transforms.batches.steps import Step
from transforms.files.blocks import How
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import FileInfo, read_json, write_json
from transforms.intake.reading import Input, check_all
from transforms.replay.backtesting import (
    EQUAL,
    ESTIMATORS,
    NEEDS,
    POLICIES,
    ZIPF,
    PlayTrials,
    Scored,
    Trial,
    arms,
    available,
    lacking,
    scored_from,
    trials,
    weightings,
)
from transforms.replay.reading import ReadLogs
from transforms.replay.replaying import BuildWorld, Facts, Replayed, ReplayError, ReplaySettings

ROOM = 1.1  # for rounding: above the least budget
LOG_BUDGETS, CHANGE_BUDGETS = (0.25, 0.5, 1.0), (0.25, 0.5, 1.0, 2.0)
PROBLEM = "problem.json"
STEPS = (
    ("ReadLogFiles", "reading the logs"),
    ("BuildWorld", "finding when pages changed"),
    ("PlayTrials", "following the policies"),
    ("WriteResults", "writing results"),
)
OWN = (
    "days.parquet",
    "results.parquet",
    "summary.parquet",
    "results.json",
    pages.NAME,
)
KINDS = ("changes", "observations", "requests", "signals", "pages")


@dataclass(frozen=True)
class Settings:
    """The checked options. Plain data: it travels to workers.

    Attributes
    ----------
    inputs : tuple of Input
    budgets : tuple of float
        Empty: parts of the rate that the inputs have.
    against : str
        Empty: the first of the policies that the inputs allow.
    """

    inputs: tuple[Input, ...]
    output: str
    replay: ReplaySettings
    sample: float
    budgets: tuple[float, ...]
    policies: tuple[str, ...]
    weights: tuple[str, ...]
    draws: int
    repetitions: int
    warm_up: float
    against: str
    workers: int
    plots: bool
    on_request: bool = False
    requests_per_page_day: float = 0.0

    @classmethod
    def of(cls, parsed: argparse.Namespace) -> Settings:
        """Check everything at once.

        Raises
        ------
        OptionsError
        """
        check = Checks(parsed)
        given = [k for k in ("changes", "observations") if getattr(parsed, k)]
        if len(given) != 1:
            check.problems.append("--observations and --changes: give one of them, what is to be replayed")
        hows = options_inputs.hows(vars(parsed), check.problems)
        inputs = tuple(Input(k, v, True, hows.get(k, How())) for k in KINDS if (v := getattr(parsed, k)))
        asked = getattr(parsed, "on_request", False)
        if asked and list(parsed.policies) == list(DEFAULT_POLICIES):
            parsed.policies = on_request.rules()
        asked_per_day = getattr(parsed, "requests_per_page_day", "0")
        budgets: tuple[float, ...] = ()
        if asked and parsed.budgets:
            check.problems.append(
                "--budgets: the rules of --on_request have levels of their own; leave it out"
            )
        elif hasattr(parsed, "budgets"):
            budgets = check.values("budgets", 1e-6, 1e4, "crawls per page and day")
        replay = ReplaySettings(
            check.instant("start"),
            check.instant("end"),
            check.number("max_pages", 1, 10_000_000, "pages"),
            check.number("seed", 0, 2**63 - 1, "seed"),
        )
        settings = cls(
            inputs,
            parsed.output.rstrip("/") or parsed.output,
            replay,
            check.value(f"--sample={parsed.sample}", parsed.sample, 1e-9, 1.0, "share of pages"),
            budgets,
            check.names("policies", RULES)
            if asked
            else arms(check.names("policies", POLICIES), check.names("estimators", ESTIMATORS)),
            check.names("weights", WEIGHTS),
            check.number("draws", 1, 1000, "draws"),
            check.number("repetitions", 1, 1000, "repetitions"),
            check.value(f"--warm_up={parsed.warm_up}", parsed.warm_up, 0.0, 0.9, "share of nights"),
            parsed.against or "",
            check.workers,
            not parsed.no_plots,
            asked,
            check.value(f"--requests_per_page_day={asked_per_day}", asked_per_day, 0, 1e6, "requests"),
        )
        if asked:
            check.problems += on_request.unplayable(settings.policies)
        if asked and settings.against:
            check.problems.append("--against: --on_request compares with uniform crawling; leave it out")
        elif settings.against and settings.against not in settings.policies:
            check.problems.append(
                f"--against={settings.against}: not among --policies: add it there, or give another "
                f"--against{near(settings.against, settings.policies)}"
            )
        if check.problems:
            raise OptionsError(check.problems)
        return settings

    def published(self) -> dict[str, Any]:
        """What results.json says of the options: what decides the results."""
        values = asdict(self)
        for name in ("output", "workers", "plots", "inputs"):
            del values[name]
        values["inputs"] = {i.kind: i.patterns for i in self.inputs}
        values["formats"] = {i.kind: asdict(i.how) for i in self.inputs if i.how != How()}
        return values


check = Settings.of


def budgets_of(settings: Settings, facts: Facts, least: float) -> list[float]:
    """Budgets, crawls per page and day: the given ones, or parts of the rate of the log or of changes.

    Of these none is below `least`, at which there is one crawl.
    """
    if settings.budgets:
        return list(settings.budgets)
    parts, rate = CHANGE_BUDGETS, facts.changes / max(facts.pages * facts.nights, 1)
    if facts.source == "observations":
        parts, rate = LOG_BUDGETS, facts.crawls_per_page_day
    return sorted({_rounded(max(rate * part, ROOM * least)) for part in parts})


def _rounded(value: float) -> float:
    """Two digits."""
    return float(f"{value:.1e}")


def least_budget(replayed: Replayed, warm_up: float) -> float:
    """The budget, crawls per page and day, that is one crawl in the scored nights."""
    world = replayed.world
    return 1.0 / world.history.paid_days(scored_from(world, warm_up), world.end_us)


def scorings_of(settings: Settings, replayed: Replayed) -> list[Any]:
    """Weightings, "auto" resolved."""
    has = replayed.world.weights
    best = next((name for name in ("clicks", "impressions", "importance") if name in has), EQUAL)
    names = dict.fromkeys(best if name == "auto" else name for name in settings.weights)
    return weightings(list(names), settings.draws, settings.repetitions)


def _against(settings: Settings, replayed: Replayed) -> str:
    """The policy to compare with.

    Raises
    ------
    ReplayError
        The inputs do not allow it, or any policy at all.
    """
    allowed = available(replayed.world, settings.policies, scorings_of(settings, replayed))
    if allowed and (not settings.against or settings.against in allowed):
        return settings.against or allowed[0]
    wanted = (settings.against,) if settings.against else settings.policies
    lacks = "; ".join(dict.fromkeys(f"{p} needs {NEEDS[POLICIES[p].needs]}" for p in wanted))
    option = "against" if settings.against else "policies"
    raise ReplayError(f"--{option}: {lacks}. Give that, or another policy")


class _Fits:
    """Whether a world fits the options; plain data, it travels to workers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check(self, replayed: Replayed) -> None:
        """Raises ReplayError."""
        world, settings, facts = replayed.world, self._settings, replayed.facts
        if facts.source == "observations" and not facts.changes:
            # From a list of changes that is known; a log that shows none does not show that there are none.
            raise ReplayError(
                "no page has two crawls that can be compared: give the logs, or dumps, of several nights "
                "together"
                if math.isnan(facts.found)
                else "no crawl in the window found a change, so all policies would look alike: see that "
                "digests in the log differ where contents do, or give logs of more days"
            )
        for name in settings.weights:
            if name not in ("auto", EQUAL, ZIPF) and name not in world.weights:
                option = "--pages" if name == "importance" else "--requests"
                raise ReplayError(
                    f"--weights={name}: no input has {name} above 0 of a page that is replayed: give {option}"
                )
        held = world.history.held_days(scored_from(world, settings.warm_up), world.end_us)
        for name in dict.fromkeys(w.name for w in scorings_of(settings, replayed)):
            if name in world.weights and not (world.weights[name] * held).sum() > 0:
                raise ReplayError(
                    f"{name}: 0 for all pages of the scored nights, so nobody would notice how fresh they "
                    "are: give --weights=equal"
                )
        paid = world.history.paid_days(scored_from(world, settings.warm_up), world.end_us)
        for budget in settings.budgets:
            if budget * paid < 1:
                raise ReplayError(
                    f"--budgets={budget:g}: less than one crawl in the scored nights; give at least "
                    f"{ROOM / paid:.2g}"
                )
        if not settings.on_request:
            _against(settings, replayed)


def make_trials(settings: Settings, replayed: Replayed) -> Iterator[Trial]:
    """All runs of a backtest."""
    if replayed.problem:
        return
    names = available(replayed.world, settings.policies, scorings_of(settings, replayed))
    budgets = budgets_of(settings, replayed.facts, least_budget(replayed, settings.warm_up))
    yield from trials(names, budgets, scorings_of(settings, replayed))


class WriteResults(Step):
    """Writes all results, in an order that no runner decides."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def process(
        self, _: Any, scored: list[Scored], replayed: Replayed, counts: list[dict[str, int]]
    ) -> Iterator[FileInfo]:
        output = self._settings.output
        if replayed.problem:
            yield write_json(output, PROBLEM, {"problem": replayed.problem})
            return
        output_folder.clear(output, OWN)
        order = {name: at for at, name in enumerate(POLICIES)}
        scored = sorted(scored, key=lambda s: (s.weights, s.budget, order[s.policy], s.repetition))
        begin = scored_from(replayed.world, self._settings.warm_up)
        yield write_table(output, "days.parquet", days_table(scored, begin))
        yield write_table(output, "results.parquet", results_table(scored))
        total = added(counts)
        facts = {
            k: None if isinstance(v, float) and math.isnan(v) else v
            for k, v in asdict(replayed.facts).items()
        }
        about = {
            "recrawl": __version__,
            "facts": facts,
            "policies_left_out": lacking(
                replayed.world, self._settings.policies, scorings_of(self._settings, replayed)
            ),
            "rows": dict(sorted(total.items())),
            "start": format_instant(replayed.world.start_us),
            "end": format_instant(replayed.world.end_us),
            "scored_from": format_instant(begin),
            "options": self._settings.published() | {"against": _against(self._settings, replayed)},
        }
        yield write_json(output, "results.json", about)


def build_pipeline(
    pipeline: beam.Pipeline,
    settings: Settings,
    make: Callable[[Settings, Replayed], Iterator[Any]] = make_trials,
    play: beam.DoFn | None = None,
    write: beam.DoFn | None = None,
) -> None:
    """Wire a backtest: logs to a world, the world to runs, runs to results."""
    read = pipeline | "ReadLogs" >> ReadLogs(settings.inputs, settings.sample)
    nothing = pa.RecordBatch.from_pylist([], schemas.CHANGES)
    seed = pipeline | "NoRows" >> beam.Create([(0, nothing)]).with_output_types(tuple[int, pa.RecordBatch])
    replayed = AsSingleton(
        (read[ReadLogs.ROWS], seed)
        | "AllRows" >> beam.Flatten()
        | "OneWorld" >> beam.GroupByKey()
        | "BuildWorld"
        >> beam.ParDo(BuildWorld(settings.replay, _Fits(settings).check)).with_output_types(Replayed)
    )
    scored = (
        pipeline
        | "Settings" >> beam.Create([settings])
        | "MakeTrials" >> beam.FlatMap(make, replayed)
        | "SpreadTrials" >> beam.Reshuffle()
        | "PlayTrials" >> beam.ParDo(play or PlayTrials(settings.warm_up), replayed)
    )
    _ = (
        pipeline
        | "Once" >> beam.Create([None])
        | "WriteResults"
        >> beam.ParDo(
            write or WriteResults(settings), AsList(scored), replayed, AsList(read[ReadLogs.COUNTS])
        )
    )


def run_pipeline(settings: Settings, beam_arguments: Sequence[str], **parts: Any) -> None:
    """Run to the end, in processes of this machine unless another runner is asked for.

    Raises
    ------
    OptionsError, policies.numerics.errors.RecrawlError, submitting.RunnerError
    """
    check_all(settings.inputs)
    with progress(sys.stderr, STEPS):
        run_here(
            lambda pipeline: build_pipeline(pipeline, settings, **parts),
            beam_arguments,
            settings.workers,
            settings.output,
        )
    if (found := problem_in(settings.output, PROBLEM)) is not None:
        raise ReplayError(found["problem"])


def compared_with(folder: str) -> str:
    """The policy that the results of a folder are compared with."""
    return str(read_json(FileSystems.join(folder, "results.json"))["options"]["against"])


def run(parsed: argparse.Namespace, beam_arguments: Sequence[str] = ()) -> int:
    """Run the command; returns the exit code."""
    settings = Settings.of(parsed)
    run_pipeline(settings, beam_arguments, **(on_request.parts(settings) if settings.on_request else {}))
    if settings.on_request:
        return on_request.show(settings.output, settings.plots)
    against = compared_with(settings.output)
    print(backtest_report.report(settings.output, against))
    if settings.plots:
        print(f"\n{pages.backtest(settings.output, against)}")
    return 0
