"""`recrawl dynamics`: at which hours and weekdays pages change, after what waits, and in which groups."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsList, AsSingleton

from pipelines.command import options_inputs, output_folder
from pipelines.command.errors import OptionsError
from pipelines.dynamics import page, summary
from pipelines.dynamics.arguments import INPUTS
from pipelines.experiments.experiment import run_here, show_pictures
from pipelines.nightly.checks import Checks
from pipelines.nightly.progress import progress
from policies.clocks.kept import LONGEST_US
from transforms.batches.coders import ShardTables
from transforms.batches.combining import CombineShards
from transforms.batches.steps import outputs
from transforms.batches.zones import zone_of
from transforms.dynamics import writing
from transforms.dynamics.folding import FoldShard, Wanted
from transforms.dynamics.summing import AddParts, ChooseGroups, Shown, SumShard
from transforms.files.attempts import Attempt
from transforms.files.blocks import How
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import FileInfo
from transforms.intake.reading import Input, ReadInputs, check_all
from transforms.intake.rejects import WriteRejected
from transforms.kept.carrying import Previous
from transforms.shards.sharding import Layout

ANY_LENGTH_US = 1 << 62
STEPS = (
    ("ReadFiles", "reading the logs"),
    ("FoldShard", "finding intervals"),
    ("SumShard", "adding up"),
    ("MakeProfiles", "making profiles"),
    ("WriteDynamics", "writing results"),
)
OWN = (
    *(f"{name}.parquet" for name in ("hours", "weekdays", "intervals", "groups")),
    writing.RESULTS,
    page.NAME,
    *output_folder.pictures(summary.PICTURES),
)


@dataclass(frozen=True)
class Settings:
    """The checked options. Plain data."""

    inputs: tuple[Input, ...]
    output: str
    wanted: Wanted
    most_groups: int
    timezone: str
    max_rejected_fraction: float
    num_shards: int
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
        if not (parsed.observations or parsed.changes):
            check.problems.append("--observations is missing: give a crawl log, or --changes")
        by = check.words("by")
        wanted = Wanted(by, parsed.timezone_column or "", parsed.correlate or "")
        needed = [n for n in (*by, wanted.zone, wanted.value) if n and n != "host"]
        if needed and not parsed.pages:
            check.problems.append(f"--pages is missing: it has the columns {', '.join(needed)}")
        try:
            zone_of(parsed.timezone)
        except ValueError as error:
            check.problems.append(f"--timezone={error}: no such zone; give one like Europe/Berlin")
        hows = options_inputs.hows(vars(parsed), check.problems)
        share = parsed.max_rejected_fraction
        made = cls(
            tuple(Input(k, v, True, hows.get(k, How())) for k in INPUTS if (v := getattr(parsed, k))),
            parsed.output.rstrip("/") or parsed.output,
            wanted,
            check.number("most_groups", 0, 100, "groups"),
            parsed.timezone,
            check.value(f"--max_rejected_fraction={share}", share, 0, 1, "share of rows"),
            check.number("num_shards", 1, 99_999, "shards"),
            check.workers,
            not parsed.no_plots,
        )
        if check.problems:
            raise OptionsError(check.problems)
        return made

    def published(self) -> dict[str, Any]:
        """What decides the results."""
        return {
            "inputs": {i.kind: i.patterns for i in self.inputs},
            **asdict(self.wanted),
            "most_groups": self.most_groups,
            "timezone": self.timezone,
            "max_rejected_fraction": self.max_rejected_fraction,
        }


check = Settings.of


def _numbers(shown: Shown) -> range:
    return range(len(shown.groups))


def build_pipeline(pipeline: beam.Pipeline, settings: Settings, attempt: Attempt) -> None:
    """Wire the job: rows to intervals by shard, these to sums, sums to profiles, all to files."""
    shards, wanted = settings.num_shards, settings.wanted
    listed = not any(i.kind == "observations" for i in settings.inputs)
    longest_us = ANY_LENGTH_US if listed else LONGEST_US
    read = pipeline | "Read" >> ReadInputs(settings.inputs, Previous(), Layout(shards, {}), 1 << 18)
    by_shard = read[ReadInputs.ROWS] | "GroupShards" >> beam.GroupByKey()
    folded = outputs(by_shard, "FoldShard", FoldShard(wanted), AsList(read[ReadInputs.METADATA]))
    shown = AsSingleton(
        folded["counted"]
        | "GatherGroups" >> beam.GroupByKey()
        | "ChooseGroups" >> beam.ParDo(ChooseGroups(settings.most_groups)).with_output_types(Shown)
    )
    summed = outputs(folded["tables"], "SumShard", SumShard(settings.timezone, longest_us), shown)
    part = AsSingleton(summed["parts"] | "AddParts" >> CombineShards(AddParts(), shards))
    profiles = (
        pipeline
        | "Once" >> beam.Create([None])
        | "NameGroups" >> beam.FlatMap(lambda _, chosen: _numbers(chosen), shown).with_output_types(int)
        | "SpreadGroups" >> beam.Reshuffle()
        | "MakeProfiles"
        >> beam.ParDo(writing.MakeProfiles(wanted.by), part, shown).with_output_types(ShardTables)
    )
    counts = (read[ReadInputs.COUNTS], folded["counts"], summed["counts"]) | "Counts" >> beam.Flatten()
    rejected = read[ReadInputs.REJECTED] | "WriteRejected" >> WriteRejected(attempt, shards)
    write = writing.WriteDynamics(
        settings.output, wanted.by, settings.published(), settings.max_rejected_fraction
    )
    _ = (
        pipeline
        | "End" >> beam.Create([None])
        | "WriteDynamics"
        >> beam.ParDo(
            write, AsList(profiles), AsList(summed["moments"]), AsList(counts), AsList(rejected)
        ).with_output_types(FileInfo)
    )


def run_pipeline(settings: Settings, beam_arguments: Sequence[str] = ()) -> None:
    """Run to the end.

    Raises
    ------
    OptionsError, InputError, policies.numerics.errors.RecrawlError, submitting.RunnerError
    """
    check_all(settings.inputs)
    output_folder.check(settings.output)
    old = FileSystems.match(FileSystems.join(settings.output, "rejected", "shard-*"))
    output_folder.clear(settings.output, [*OWN, *(f.path for f in old)])
    attempt = Attempt(uuid.uuid4().hex, settings.output, settings.output)
    attempt.claim()
    try:
        with progress(sys.stderr, STEPS):
            run_here(
                lambda pipeline: build_pipeline(pipeline, settings, attempt),
                beam_arguments,
                settings.workers,
                settings.output,
            )
    finally:
        with suppress(OSError):
            FileSystems.delete([attempt.mark])


def run(parsed: argparse.Namespace, beam_arguments: Sequence[str] = ()) -> int:
    """Run the command; returns the exit code."""
    settings = Settings.of(parsed)
    run_pipeline(settings, beam_arguments)
    found = summary.Results.read(settings.output)
    print(summary.text(found, settings.output))
    if settings.plots:
        show_pictures(settings.output, lambda: summary.pictures(found))
    page.write(found, settings.output)
    return 0
