"""`recrawl discover`: links seen in, new targets and a schedule of sources out."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton

from pipelines.command import output_folder
from pipelines.command.errors import OptionsError
from pipelines.command.exit_codes import EXIT_EMPTY, EXIT_OK
from pipelines.command.instants import DAY_MICROSECONDS, format_instant
from pipelines.command.options_inputs import named_columns
from pipelines.command.version import __version__
from pipelines.discovery.summary import summary
from pipelines.nightly import nightly, report, submitting
from pipelines.nightly.arguments import LEAST_BUDGET
from pipelines.nightly.beam_options import Options
from pipelines.nightly.checks import Checks
from pipelines.nightly.progress import progress
from policies.discovery.names import POLICIES
from policies.discovery.pricing import Recrawling
from transforms import dialects
from transforms.batches.combining import Combine
from transforms.batches.counters import AddCounts
from transforms.batches.errors import InputError
from transforms.batches.steps import outputs
from transforms.discovery.commit import Said, WriteManifest
from transforms.discovery.planning import Plan, plan_all
from transforms.discovery.previous import Previous, find_previous
from transforms.discovery.reading import ReadLinks
from transforms.discovery.sources import FoldSources, Limits
from transforms.discovery.targets import FindTargets
from transforms.files.attempts import Attempt
from transforms.files.blocks import How
from transforms.files.filesystems import FileSystems, local_path
from transforms.files.replacing import MANIFEST, discard, remove_empty, settle
from transforms.files.shard_files import WriteShards
from transforms.files.sinks import FileInfo, read_json
from transforms.intake.layout import is_small
from transforms.intake.reading import Input
from transforms.intake.rejects import WriteRejected
from transforms.intake.sources import check_inputs
from transforms.rows.joining import given_names
from transforms.shards.catalogue import HostDefaults

KINDS = {"links": "links_seen", "sources": "sources", "hosts": "hosts"}
# A state is not cut anew: it may grow from the few shards of small inputs, and stay there.
SHARDS, FEW_SHARDS = 16, 4
BACKTESTED = {
    "oracle": "oracle knows what sources will show: it is in recrawl backtest-discovery only",
}
STEPS = (
    ("Read", "reading the links"),
    ("FindTargets", "finding new targets"),
    ("FoldSources", "following the links of sources"),
    ("ShareSums", "learning rates"),
    ("Count0", "searching the price"),
    ("ScheduleSources", "writing the schedule"),
)


@dataclass(frozen=True)
class Settings:
    """The checked options. Plain data."""

    inputs: tuple[Input, ...]
    state: str | None
    output: str
    overwrite: bool
    budget_per_day: float
    as_of_us: int
    horizon_us: int
    host_max_per_day: float | None
    host_min_gap_seconds: float
    least_hours: float
    capacity: float
    off_site: bool
    max_rejected_fraction: float
    num_shards: int | None
    rows_per_batch: int
    policy: str
    forget_days: float
    host_groups: bool = False
    recrawling: Recrawling | None = None
    """Of the night that the budget is shared with at one price."""
    why: str = ""
    """What decided the budget."""
    host_share: float = 1.0
    """Of the slots of a limited host that refreshes may take; a night has crawls there, too."""

    @classmethod
    def of(cls, parsed: argparse.Namespace) -> Settings:
        """Check everything at once.

        Raises
        ------
        OptionsError
        """
        check = Checks(parsed)

        def value(name: str, low: float, high: float, what: str) -> float:
            text = getattr(parsed, name)
            return check.value(f"--{name}={text}", text, low, high, what)

        if not (parsed.links or parsed.sources or parsed.state):
            check.problems.append("--links is missing: give links seen, e.g. --links='links/*.parquet'")
        inputs = _inputs(parsed, check.problems)
        budget = value("budget", 0, 1e15, "refreshes a day")
        if 0 < budget < LEAST_BUDGET:
            check.problems.append(f"--budget={parsed.budget}: expected 0, or at least {LEAST_BUDGET:g}")
        as_of = check.instant("as_of")
        hours = value("horizon_hours", 0.1, 8784, "hours")
        most = None
        if parsed.host_max_per_day is not None:
            most = value("host_max_per_day", 0, 1e15, "refreshes a day and host")
        shards = None if parsed.num_shards is None else check.number("num_shards", 1, 99_999, "shards")
        output = parsed.output.rstrip("/") or parsed.output[:1]
        if parsed.policy not in POLICIES:
            other = f". {why}" if (why := BACKTESTED.get(parsed.policy)) else ""
            expected = ", ".join(POLICIES)
            check.problems.append(f"--policy={parsed.policy}: expected one of {expected}{other}")
        made = cls(
            tuple(inputs),
            parsed.state,
            output,
            parsed.overwrite,
            budget,
            as_of or 0,
            round(hours * DAY_MICROSECONDS / 24) if hours == hours else 0,
            most,
            value("host_min_gap_seconds", 0, 1e7, "seconds"),
            value("least_hours", 1 / 60, 1000, "hours"),
            value("capacity", 1, 100, "times the even share"),
            parsed.off_site,
            value("max_rejected_fraction", 0, 1, "share of rows"),
            shards,
            check.number("rows_per_batch", 1, 10**8, "rows"),
            parsed.policy,
            value("forget_days", 1, 1e5, "days"),
            parsed.host_groups,
        )
        if parsed.state and (parsed.state.rstrip("/") + "/").startswith(output + "/"):
            check.problems.append(
                f"--state={parsed.state} lies in --output={output}: the run would replace what it reads; "
                "give another --output"
            )
        if check.problems:
            raise OptionsError(check.problems)
        return made

    def shards(self, previous: Previous) -> int:
        """Of this run, those of the one before.

        Raises
        ------
        OptionsError, InputError
        """
        before = previous.num_shards
        if before and self.num_shards not in (None, before):
            raise OptionsError(
                [f"--num_shards={self.num_shards}: the state has {before}, and is not cut anew; leave it out"]
            )
        return before or self.num_shards or (FEW_SHARDS if is_small(self.inputs, known=0) else SHARDS)

    def refreshes(self, previous: Previous) -> tuple[int, float]:
        """Whole refreshes of the horizon, and the rest."""
        carry = previous.carry if self.recrawling is None else 0.0
        exact = self.budget_per_day * self.horizon_us / DAY_MICROSECONDS + carry
        whole = int(exact + 1e-9)
        return whole, max(exact - whole, 0.0)

    def published(self, num_shards: int) -> dict[str, Any]:
        """What the manifest says of the options: what decides the results."""
        return {
            "inputs": {i.kind: i.patterns for i in self.inputs},
            "columns": {i.kind: dict(i.how.columns) for i in self.inputs if i.how.columns},
            "state": self.state,
            "as_of": format_instant(self.as_of_us),
            "as_of_us": self.as_of_us,
            "num_shards": num_shards,
            "recrawling": asdict(self.recrawling) if self.recrawling else None,
            **{
                name: getattr(self, name)
                for name in (
                    "budget_per_day", "horizon_us", "host_max_per_day", "host_min_gap_seconds", "least_hours",
                    "host_groups", "capacity", "off_site", "max_rejected_fraction", "policy", "forget_days",
                    "why", "host_share",
                )
            },
        }  # fmt: skip


def _inputs(parsed: argparse.Namespace, problems: list[str]) -> Iterator[Input]:
    options: tuple[tuple[str, str], ...] = ()
    if parsed.tracking_parameters:
        try:
            given_names(parsed.tracking_parameters)
            options = (("tracking_parameters", parsed.tracking_parameters),)
        except ValueError as error:
            problems.append(f"--tracking_parameters={error}: expected names of parameters, comma-separated")
    known = dialects.names("links_seen")
    if parsed.links_format not in known:
        problems.append(f"--links_format={parsed.links_format}: expected one of {', '.join(known)}")
    for name, kind in KINDS.items():
        columns: tuple[tuple[str, str], ...] = ()
        if name != "hosts":
            columns = named_columns(kind, getattr(parsed, f"{name}_columns") or "", problems, name)
        form = parsed.links_format if name == "links" else dialects.AUTO
        if patterns := getattr(parsed, name):
            yield Input(kind, patterns, True, How(dialects.CANONICAL if columns else form, columns, options))


check = Settings.of


def build_pipeline(
    pipeline: beam.Pipeline, settings: Settings, previous: Previous, attempt: Attempt
) -> dict[str, beam.PCollection]:
    """Wire the job: "manifest" (one FileInfo, the last thing to happen), "files", "counters"."""
    shards, only_listed = settings.shards(previous), any(i.kind == "sources" for i in settings.inputs)
    refreshes, carry = settings.refreshes(previous)
    plan = Plan(
        settings.as_of_us,
        settings.horizon_us,
        refreshes,
        settings.least_hours,
        settings.capacity,
        only_listed,
        settings.recrawling,
        settings.policy,
        previous.bandit,
    )
    gap = settings.host_min_gap_seconds
    hosts = HostDefaults(settings.host_max_per_day, gap, settings.horizon_us, settings.host_groups)
    limits = Limits(
        settings.as_of_us, hosts, only_listed, settings.forget_days, settings.policy, settings.host_share
    )
    start = pipeline | "Once" >> beam.Impulse()
    read = pipeline | "ReadLinks" >> ReadLinks(
        settings.inputs, previous.files, shards, settings.as_of_us, settings.off_site, settings.rows_per_batch
    )
    found = outputs(read["targets"] | "GroupTargets" >> beam.GroupByKey(), "FindTargets", FindTargets(shards))
    by_shard = (
        (read["sources"], found["found"])
        | "AllVisits" >> beam.Flatten().with_output_types(tuple[int, pa.RecordBatch])
        | "GroupSources" >> beam.GroupByKey()
    )
    folded = outputs(by_shard, "FoldSources", FoldSources(limits))
    planned = plan_all(folded["tables"], plan, start, settings.host_groups)
    written = [
        made | f"Write{name}" >> beam.ParDo(WriteShards(attempt, shards)).with_output_types(FileInfo)
        for name, made in (
            ("Targets", found["files"]),
            ("Sources", folded["files"]),
            ("Schedule", planned["files"]),
        )
    ]
    rejected = read["rejected"] | "WriteRejected" >> WriteRejected(attempt, shards)
    files = (*written, rejected) | "GatherFiles" >> beam.Flatten()
    counters = (
        (read["counts"], found["counts"], folded["counts"], planned["counts"])
        | "GatherCounts" >> beam.Flatten()
        | "AddCounts" >> Combine(AddCounts())
    )
    said = Said(__version__, settings.published(shards), settings.max_rejected_fraction, carry)
    sides = AsList(files), AsSingleton(counters), AsList(planned["worth"])
    manifest = start | "WriteManifest" >> beam.ParDo(
        WriteManifest(attempt, said), *sides, AsSingleton(planned["price"]), AsSingleton(planned["learned"])
    ).with_output_types(FileInfo)
    return {"manifest": manifest, "files": files, "counters": counters}


@contextmanager
def _named_as_given() -> Iterator[None]:
    """Messages about inputs, with the option's name."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("links_seen", "links")) from None


def run_job(settings: Settings, beam_arguments: Sequence[str] = ()) -> None:
    """Run to the end. A run that fails leaves what was in the folder before.

    Raises
    ------
    OptionsError, InputError, policies.numerics.errors.RecrawlError, submitting.RunnerError
    """
    nightly.finish_replacing(settings.output)
    previous = find_previous(settings.state, settings.as_of_us)
    with _named_as_given():
        for found in settings.inputs:
            check_inputs(found.kind, found.patterns, True, how=found.how)
        settings.shards(previous)
    output_folder.check(settings.output)
    options = Options(list(beam_arguments))
    runner = nightly.local_runner(options, lambda: is_small(settings.inputs, previous.links_known))
    pipeline = beam.Pipeline(runner=runner, options=options)
    with nightly.writing(settings.output):
        attempt, before = nightly.begin(settings.output, settings.overwrite)
    beside = attempt.folder != attempt.output
    try:
        build_pipeline(pipeline, settings, previous, attempt)
        submitting.finish(pipeline, given_up=lambda: settle(attempt, before) and None)
    except BaseException:
        if attempt.is_in_force():
            settle(attempt, before)
        if beside and not attempt.is_taken_over():
            discard(attempt.folder)
        raise
    with suppress(OSError):  # what is left is removed by the next run
        settle(attempt, before)
    if beside:
        discard(attempt.folder, failed=False)
    if (local := local_path(settings.output)) is not None:  # of a nightly job's folders some stay empty
        remove_empty(local)


def run(parsed: argparse.Namespace, beam_arguments: Sequence[str] = ()) -> int:
    """Run the command; returns the exit code."""
    settings = Settings.of(parsed)
    started = time.monotonic()
    with progress(sys.stderr, STEPS):
        run_job(settings, beam_arguments)
    manifest = read_json(FileSystems.join(settings.output, MANIFEST))
    print(summary(manifest, settings.output, time.monotonic() - started))
    report.also_on_stderr("discover", manifest["warnings"])
    return EXIT_OK if manifest["status"] == "ok" else EXIT_EMPTY
