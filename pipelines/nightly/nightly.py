"""The nightly job: logs in, tomorrow's crawl schedule out."""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions
from apache_beam.pvalue import AsList, AsSingleton
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.command import stopping
from pipelines.command.errors import OptionsError
from pipelines.command.instants import DAY_MICROSECONDS
from pipelines.command.output_folder import LEDGER, why_not
from pipelines.command.version import __version__
from pipelines.nightly import submitting
from pipelines.nightly.arguments import LOCAL_RUNNERS
from pipelines.nightly.beam_options import Options
from pipelines.nightly.discovered import Discovered
from pipelines.nightly.options import Settings
from pipelines.nightly.plain_runner import PlainRunner
from policies.history.page_state import Forgetting
from transforms.batches.coders import ShardTables
from transforms.batches.steps import each, outputs
from transforms.files.attempts import Attempt
from transforms.files.blocks import How
from transforms.files.filesystems import FileSystems
from transforms.files.inputs import match_files
from transforms.files.replacing import (
    MANIFEST,
    OUTPUTS,
    LinkError,
    check_links,
    discard,
    fence,
    finish,
    folder_of,
    schedule_there,
    settle,
)
from transforms.files.replacing import prepare as prepare_output
from transforms.files.shard_files import WriteShards
from transforms.files.sinks import FileInfo, read_json
from transforms.intake.layout import choose_layout, is_small
from transforms.intake.reading import Input, ReadInputs
from transforms.intake.rejects import WriteRejected
from transforms.intake.sources import check_inputs
from transforms.kept.carrying import Previous, find_previous
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.night.commit import WriteManifest
from transforms.night.dividing import Night, TotalShards
from transforms.night.folding import FoldHistory
from transforms.night.guards import KINDS, Guards
from transforms.night.learning import EstimateParameters, LearnGroupMeans, LearnPriors
from transforms.night.scheduling import SequenceCrawls
from transforms.night.shared_limits import ShareHostLimits, limit_parts
from transforms.night.signal_use import follow_useful
from transforms.night.solving import SolveMultiplier
from transforms.shards.catalogue import HostDefaults
from transforms.shards.sharding import Layout


def night_of(settings: Settings, layout: Layout) -> Night:
    """What sequencing needs to know of the options."""
    return Night(
        settings.as_of_us,
        settings.horizon_us,
        settings.objective,
        layout,
        settings.request_share.planned_per_day,
        settings.max_signal_shift,
        settings.sequencer,
        settings.hour_capacity,
        settings.request_share,
        settings.half_life_changes or math.inf,
    )


def fold_settings(settings: Settings, layout: Layout, previous: Previous) -> FoldSettings:
    """What folding needs to know of the options and of the night before."""
    return FoldSettings(
        settings.as_of_us,
        Forgetting(settings.half_life_changes or None, settings.half_life_days),
        RequestClock(settings.as_of_us // DAY_MICROSECONDS, settings.request_half_life_days),
        HostDefaults(
            settings.host_max_per_day,
            settings.host_min_gap_seconds,
            settings.horizon_us,
            settings.host_groups,
        ),
        settings.group_columns,
        layout.num_shards,
        frozenset(layout.parts),
        previous.multiplier,
        sitemap_pages=settings.sitemap_pages,
        signal_delay_us=round(settings.signal_delay_minutes * 60_000_000),
        clock_factors=previous.clock_factors,
        hours_of_all=previous.hours_of_all,
        lower_soft_404=settings.lower_soft_404,
        night_before_us=previous.as_of_us,
        with_lastmods=bool(settings.sitemaps) or previous.has_lastmods,
        page_limits_per_day=(
            settings.page_min_per_day or 0.0,
            math.inf if settings.page_max_per_day is None else settings.page_max_per_day,
        ),
    )


def inputs_of(settings: Settings, discovered: Discovered) -> list[Input]:
    """The inputs that the options name."""
    named = ((kind, getattr(settings, kind)) for kind in KINDS if kind != "pages")
    found = [
        Input(kind, patterns, True, settings.how.get(kind, How())) for kind, patterns in named if patterns
    ]
    return [*found, *discovered.inputs(settings.pages)]


def build_pipeline(
    pipeline: beam.Pipeline,
    options: PipelineOptions,
    previous: Previous | None = None,
    layout: Layout | None = None,
    attempt: Attempt | None = None,
) -> dict[str, beam.PCollection]:
    """Wire the job.

    Parameters
    ----------
    pipeline : Pipeline
    options : PipelineOptions
        With those of `NightlyOptions`.
    previous : Previous, optional
        The previous night; looked up where `--state` says if None.
    layout : Layout, optional
        Where pages lie, from `choose_layout`; every host whole if None.
    attempt : Attempt, optional
        The try that this is; by default one in `--output` that nobody has put in force, so it writes nothing.

    Returns
    -------
    dict of str to PCollection
        "manifest" (one FileInfo, the last thing to happen), "files", "counts", "result", "rejected".
    """
    settings = Settings(options)
    if previous is None:
        previous = previous_of(settings)
    settings.follow(previous.manifest)
    discovered = Discovered.of(settings)
    layout = layout or Layout(settings.num_shards or 1, {})
    settings.num_shards = layout.num_shards
    shards, objective = layout.num_shards, settings.objective
    with_signals = objective == "signals"
    budget = settings.request_share.planned_per_day
    attempt = attempt or Attempt("", settings.output, settings.output)
    night, chosen = night_of(settings, layout), fold_settings(settings, layout, previous)

    once = pipeline | "Once" >> beam.Impulse()
    read = pipeline | "ReadInputs" >> ReadInputs(
        inputs_of(settings, discovered), previous, layout, settings.rows_per_batch
    )
    by_shard = read[ReadInputs.ROWS] | "GroupByShard" >> beam.GroupByKey()
    folded = outputs(by_shard, "FoldHistory", FoldHistory(chosen), AsList(read[ReadInputs.METADATA]))
    tables = folded["tables"]
    learned = folded["overview"] | "LearnPriors" >> LearnPriors(
        chosen.clock, settings.weight_by, shards, with_signals
    )
    groups = _group_means(tables, learned, settings, layout)
    shared = bool(layout.parts) or settings.host_groups
    estimates = EstimateParameters(chosen.clock, shared), AsSingleton(learned), *groups
    estimated = outputs(tables, "EstimateParameters", *estimates)
    blocks = estimated["blocks"]
    blocks, shares = _share_limits(blocks, settings, layout, once) if shared else (blocks, None)
    blocks, without = _follow_useful(blocks, settings, shards, once) if with_signals else (blocks, None)
    solving = blocks | "SolveMultiplier" >> SolveMultiplier(objective, budget, shards, once)
    totals = AsList(blocks | "DivideSlots" >> TotalShards(night, solving["told"]))
    priors, solved = map(AsSingleton, (learned, solving["result"]))
    sequencing = SequenceCrawls(night, previous.carry), priors, solved, totals, shares, without
    sequenced = outputs(estimated["estimated"], "SequenceCrawls", *sequencing)

    formats = dict.fromkeys(("pages", "hosts", "schedule"), settings.output_format)
    files = (
        folded["files"] | "WriteState" >> _writing_shards(attempt, shards),
        sequenced["files"] | "WriteNight" >> _writing_shards(attempt, shards, formats),
        read[ReadInputs.REJECTED] | "WriteRejected" >> WriteRejected(attempt, shards),
    ) | "GatherFiles" >> beam.Flatten()
    reports = sequenced["report"]
    reported = reports | "ReportCounts" >> each(attrgetter("counts")).with_output_types(dict[str, int])
    counts = (read[ReadInputs.COUNTS], folded["counts"], reported) | "GatherCounts" >> beam.Flatten()
    guards, said = guards_of(settings, previous), discovered.said()
    commit = WriteManifest(attempt, __version__, settings.published(), guards, night, previous.carry, said)
    told = AsList(files), AsList(counts), AsList(reports), solved, priors, totals, without
    manifest = once | "WriteManifest" >> beam.ParDo(commit, *told).with_output_types(FileInfo)
    return {
        "manifest": manifest,
        "files": files,
        "counts": counts,
        "result": solving["result"],
        "rejected": read[ReadInputs.REJECTED],
    }


def _writing_shards(attempt: Attempt, shards: int, formats: dict[str, str] | None = None) -> beam.ParDo:
    return beam.ParDo(WriteShards(attempt, shards, formats)).with_output_types(FileInfo)


def _group_means(tables: Any, learned: Any, settings: Settings, layout: Layout) -> list[AsList]:
    """What rounds tell of groups that reach over shards; nothing where every host is whole and a group."""
    if not settings.group_columns and not layout.parts:
        return []
    giants = None if settings.group_columns else frozenset(layout.parts)
    told: list[AsList] = tables | "LearnGroupMeans" >> LearnGroupMeans(learned, giants)
    return told


def _share_limits(blocks: Any, settings: Settings, layout: Layout, once: Any) -> tuple[Any, Any]:
    """Shards with their part of the limits of hosts that reach over shards, and these parts."""
    if not settings.limits_hosts:
        return blocks, None
    objective, budget = settings.objective, settings.request_share.planned_per_day
    sharing = ShareHostLimits(
        frozenset(layout.parts), objective, budget, layout.num_shards, settings.host_groups, once
    )
    shared = blocks | "ShareHostLimits" >> sharing
    limited = each(limit_parts, objective, budget, *shared["told"]).with_output_types(ShardTables)
    return blocks | "LimitParts" >> limited, AsSingleton(shared["shares"])


def _follow_useful(blocks: Any, settings: Settings, shards: int, once: Any) -> tuple[Any, Any]:
    """Shards with the signals that are worth waiting for, and the search without signals.

    Its price tells which are, and its freshness what they buy.
    """
    solving = SolveMultiplier("periodic", settings.request_share.planned_per_day, shards, once)
    without = blocks | "SolveWithoutSignals" >> solving
    horizon_days = settings.horizon_us / DAY_MICROSECONDS
    following = each(follow_useful, horizon_days, *without["priced"])
    followed = blocks | "FollowUseful" >> following.with_output_types(ShardTables)
    return followed, AsSingleton(without["result"])


def guards_of(settings: Settings, previous: Previous) -> Guards:
    """When the night is not committed."""
    in_store = FileSystems.exists(FileSystems.join(settings.output, LEDGER))
    return Guards(
        settings.max_rejected_fraction,
        settings.allow_shrink,
        settings.as_of_us,
        bool(settings.state),
        previous.manifest or {},
        in_store,
        replaced_by(settings, previous.manifest if in_store else None),
    )


def replaced_by(settings: Settings, in_force: dict[str, Any] | None) -> dict[str, Any]:
    """The manifest of the night that must not be replaced by an empty one, if there is any.

    `in_force` is that of the last night where `--output` has only this one. Where the budget is less than a
    crawl, most nights are empty, as asked for.
    """
    if settings.overwrite or settings.budget_per_day * settings.horizon_us < DAY_MICROSECONDS:
        return {}
    return schedule_there(settings.output) if in_force is None else in_force


def previous_of(settings: Settings) -> Previous:
    """The night that `--state` names, checked."""
    half_lives = {
        "half_life_changes": settings.half_life_changes,
        "half_life_days": settings.half_life_days,
    }
    return find_previous(settings.state, settings.as_of_us, half_lives)


def refuse_to_overwrite(settings: Settings, previous: Previous, inputs: list[Input]) -> None:
    """Stop where an input lies in a folder that is emptied or replaced.

    Raises
    ------
    OptionsError
    """
    folders = tuple(os.path.join(_real(settings.output), name, "") for name in OUTPUTS)
    read = {i.kind: [f.path for f in match_files(i.patterns, i.kind, i.required)] for i in inputs}
    read["state"] = [file[1] for file in previous.files]
    problems = [
        f"--{option}: {path} lies in --output={settings.output}: the night would delete what it reads; give "
        "another --output"
        for option, paths in read.items()
        for path in [p for p in paths if _real(p).startswith(folders)][:1]
    ]
    if problems:
        raise OptionsError(problems)


def _real(path: str) -> str:
    """The one spelling of a local path; any other as it is."""
    return path if "://" in path else os.path.realpath(path)


def run(argv: Sequence[str] | None = None, wait: bool = True) -> Any:
    """Run the job with command-line options.

    Parameters
    ----------
    argv : sequence of str, optional
    wait : bool
        Return when the job is done, not when its runner has taken it.

    Returns
    -------
    PipelineResult

    Raises
    ------
    OptionsError, policies.numerics.errors.RecrawlError, transforms.intake.sources.InputError,
    submitting.RunnerError
    """
    options = Options(list(argv) if argv is not None else None)
    settings = Settings(options)
    finish_replacing(settings.output)
    previous = previous_of(settings)
    inputs = inputs_of(settings, Discovered.of(settings))
    for found in inputs:  # before anything is written
        check_inputs(found.kind, found.patterns, found.required, how=found.how)
    refuse_to_overwrite(settings, previous, inputs)
    layout = choose_layout(inputs, previous, settings.num_shards, settings.split_hosts_above)
    try:
        runner = local_runner(options, lambda: is_small(inputs, previous.pages_known))
        pipeline = beam.Pipeline(runner=runner, options=options)
    except ValueError as e:
        raise OptionsError([f"--runner={options.view_as(StandardOptions).runner}: {e}"]) from None
    with writing(settings.output):
        attempt, before = begin(settings.output, settings.overwrite)
    beside = attempt.folder != attempt.output
    committed = False

    def end() -> None:
        nonlocal committed
        with stopping.later():
            committed = settle(attempt, before)

    try:
        build_pipeline(pipeline, options, previous, layout, attempt)
        result = submitting.finish(pipeline, wait, given_up=end)
    except BaseException as error:
        if attempt.is_in_force():  # no runner has had it yet
            end()
        if committed and (isinstance(error, submitting.RunnerError) or stopping.is_interrupt(error)):
            submitting.say("the night was complete just before")
            return None
        if beside and not attempt.is_taken_over():
            discard(attempt.folder)
        raise
    if wait:
        with suppress(OSError):  # what is left is removed by the next run
            settle(attempt, before)
        if beside:
            discard(attempt.folder, failed=False)
    return result


def begin(output: str, overwrite: bool) -> tuple[Attempt, Any]:
    """A new try at a night, the one in force, and the manifest that is there before it."""
    check_links(output)
    fence(output)
    finish(output)
    folder = folder_of(output, overwrite)
    attempt = Attempt(uuid.uuid4().hex, output, folder)
    prepare_output(folder)
    before = read_json(FileSystems.join(output, MANIFEST)) if folder != output else None
    attempt.claim()
    return attempt, before


def finish_replacing(output: str) -> None:
    """Put a complete night in its place where a run was stopped in the middle of that."""
    with writing(output):
        finish(output)


@contextmanager
def writing(output: str) -> Iterator[None]:
    """What cannot be written is told of the option."""
    try:
        yield
    except LinkError:
        raise
    except (OSError, ValueError) as e:
        raise OptionsError([f"--output={output}: {why_not(output, e)}"]) from None


def local_runner(options: PipelineOptions, small: Callable[[], bool] | None = None) -> Any:
    """A runner in this process where none, or "DirectRunner", is asked for; else None, and Beam decides.

    Beam's own choice would try to start another engine first. It has a worker thread per core, unless the
    options say otherwise: the kernels release the interpreter's lock. Jobs that know whether they are `small`
    have a plainer one, of one thread where they are, unless a runner is named or told what to do.
    """
    name = str(options.view_as(StandardOptions).runner or "")
    if name.lower() not in LOCAL_RUNNERS:
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    direct = options.view_as(DirectOptions)
    asked = name or direct.get_all_options(drop_default=True, current_only=True)
    if small is not None and not asked:
        return PlainRunner(1 if small() else cores)
    if "direct_num_workers" not in direct.get_all_options(drop_default=True, current_only=True):
        direct.direct_num_workers = cores
    return FnApiRunner()
