"""`recrawl night`: nights on a store, for a scheduler that may start one twice, late, or not at all."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.command.errors import OptionsError
from pipelines.command.exit_codes import EXIT_EMPTY, EXIT_OK
from pipelines.command.instants import format_instant
from pipelines.command.output_folder import LEDGER
from pipelines.command.webhook import Told
from pipelines.nightly import nightly, report, submitting
from pipelines.nightly.options import Settings
from pipelines.nightly.progress import progress
from pipelines.store import partitions
from pipelines.store.in_force import said
from pipelines.store.metrics_and_page import write_beside
from pipelines.store.night_discovery import Finding
from pipelines.store.night_gaps import long_after, too_early
from pipelines.store.night_options import Asked, asked, split
from pipelines.store.partitions import LOGS, Before, Choice, Ledger
from pipelines.store.store import Night, Store, StoreError, night_id
from transforms.batches.tally import counted
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import make_folder, write_json


@dataclass(frozen=True)
class NightOptions(Asked):
    """Checked options of a run; `passed` are those of the nightly job and of Beam.

    Attributes
    ----------
    passed : list of str
    finding : Finding or None
        The discovery job, where it shares the budget.
    """

    passed: list[str] = field(default_factory=list)
    finding: Finding | None = None

    @property
    def name(self) -> str:
        return night_id(self.as_of_us)

    @property
    def as_of(self) -> str:
        return format_instant(self.as_of_us)

    def arguments(self, logs: dict[str, str], state: str | None, *more: str) -> list[str]:
        """Command line of the nightly job."""
        read = {kind: files for kind, files in logs.items() if kind != "links"}
        values = {"as_of": self.as_of, "output": self.store.folder(self.name), "state": state, **read}
        values["horizon_hours"] = self.horizon_hours
        return [*self.passed, *more, *(f"--{name}={value}" for name, value in values.items() if value)]


def parse(argv: Sequence[str]) -> NightOptions:
    """Check everything that can be checked before the store is touched.

    Raises
    ------
    OptionsError
        Listing every problem.
    """
    values, passed = split(argv)
    problems: list[str] = []
    own = asked(values, problems)
    options = NightOptions(**vars(own), passed=passed, finding=Finding.of(values, problems))
    arguments = options.arguments(options.logs, None)
    arguments += [f"--as_of={values.as_of}"] if values.as_of else []
    try:
        Settings(PipelineOptions(arguments))
        if options.finding is not None and not problems:
            options.finding.settings(arguments, options.logs.get("links"), None, {})
    except OptionsError as error:
        # Of its folder for tonight, what is wrong with the store is said already.
        problems += [p for p in error.problems if not p.startswith(f"--output={options.store.root}")]
    if problems:
        raise OptionsError(problems)
    return options


def run(argv: Sequence[str], say: Callable[[str], None] = print, told: Told | None = None) -> int:
    """Run the night that is due, or none; returns the exit code, and leaves in `told` what it came to.

    Raises
    ------
    OptionsError, StoreBusyError, policies.numerics.errors.RecrawlError, ...
        As `nightly.run` does. Notes of the exception say what stays in force.
    """
    options, told = parse(argv), told or Told()
    told.as_of, told.folder = options.as_of, options.store.folder(options.name)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file that collects both streams has their lines in order.
        sys.stdout.reconfigure(line_buffering=True)
    with _named_disk(options), options.store.lock():
        return _locked(options, say, told)


@contextmanager
def _named_disk(options: NightOptions) -> Iterator[None]:
    """A full disk fails a night as anything else does, also before or after the job itself."""
    try:
        yield
    except OSError as error:
        if not getattr(error, "__notes__", ()):
            error.add_note(what_stays(options, _last(options.store)))
        raise


def _last(store: Store) -> Night | None:
    try:
        return (store.nights() or [None])[-1]
    except (OSError, StoreError):
        return None


def _locked(options: NightOptions, say: Callable[[str], None], told: Told) -> int:
    store = options.store
    store.end_attempts()
    nights = store.nights()
    last = nights[-1] if nights else None
    repair(store, last)
    if last and options.as_of_us < last.as_of_us:
        raise OptionsError([too_early(options.as_of, options.as_of_us, nights)])
    if last and options.as_of_us == last.as_of_us:
        warnings = [*store.remove_remains(""), *store.keep(options.keep)]
        say(f"recrawl night: the night of {last.as_of} is committed: nothing to do ({last.folder})")
        if changed := changed_options(options, last):
            say(f"recrawl night: it was run with other options; these count from the next night: {changed}")
        _warn(warnings, say)
        told.outcome, told.warnings = "nothing_to_do", warnings
        return EXIT_OK
    try:
        return _run_due(options, last, say, told)
    except BaseException as error:
        error.add_note(what_stays(options, last))
        raise


def changed_options(options: NightOptions, last: Night) -> str:
    """Options that are not those of a committed night: what they are now, and were then."""
    before = last.manifest()["options"]
    settings = Settings(PipelineOptions(options.arguments(options.logs, None)))
    settings.follow(last.manifest())
    given = settings.published()
    # The wrapper chooses those of every night.
    chosen = {"as_of", "as_of_us", "state", "discovery", "allow_shrink", *LOGS}
    if given["num_shards"] is None:
        chosen.add("num_shards")
    shown = {"budget_per_day": "budget"}
    return ", ".join(
        f"--{shown.get(name, name)} {given[name]} (was {before[name]})"
        for name in sorted(given.keys() & before.keys() - chosen)
        if given[name] != before[name]
    )


def repair(store: Store, last: Night | None) -> None:
    """What a crash after the manifest left undone: the last committed night is the current one."""
    if last is None:
        store.unpoint()
    else:
        store.point_at(last, last.manifest())
        write_beside(last.folder, missing=True)


def _run_due(options: NightOptions, last: Night | None, say: Callable[[str], None], told: Told) -> int:
    store = options.store
    warnings = store.remove_remains(options.name)
    before = _before(last)
    choices = {
        kind: partitions.choose(kind, patterns, options.name, options.as_of_us, before, options.late_days)
        for kind, patterns in options.logs.items()
    }
    lines, found = _found(options, last, choices)
    for line in lines:
        say(line)
    early = (
        [] if last is None else long_after(options.as_of, last, _missed(options, last), options.names_night)
    )
    _warn(early, say)
    observations = choices["observations"]
    if last is None and not observations.files and not _has_pages(options):
        what = f"nothing to read: no file matches --observations={options.logs['observations']}"
        say(f"recrawl night: {what}. Nothing is committed")
        report.also_on_stderr("night", [what])
        told.outcome, told.warnings = "nothing_to_read", [what, *warnings]
        return EXIT_EMPTY
    warnings += found

    folder = store.folder(options.name)
    ledger = partitions.union((kind, options.logs[kind], choice) for kind, choice in choices.items())
    for kind, entries in (before.ledger.files if before else {}).items():
        ledger.files.setdefault(kind, entries)
    make_folder(folder)
    write_json(
        folder,
        LEDGER,
        {
            "as_of": options.as_of,
            "previous": last.name if last else None,
            "warnings": [*early, *found],
            **ledger.as_json(),
        },
        sealed=True,
    )
    logs = {kind: choice.pattern for kind, choice in choices.items() if choice.files}
    # Guards compare with a usual day; where no log is there at all, the schedule must still go on.
    more = [] if observations.fresh or last is None else ["--allow_shrink"]
    arguments = options.arguments(logs, FileSystems.join(last.folder, "state") if last else None, *more)
    started = time.monotonic()
    # What cron mails is what stands on standard error: only what a person should look at.
    with progress(sys.stderr if sys.stderr.isatty() and not told.quiet else sys.stdout):
        if options.finding is not None:
            found_in = options.finding.run(arguments, logs.get("links"), store.nights())
            arguments += [f"--discovery={found_in}"] if found_in else []
            if not found_in:
                given = options.logs["links"]
                warnings.append(f"--links={given}: no file, and no source is known: all crawls are of pages")
        nightly.run(arguments)
    tonight = Night(options.name, folder, options.as_of_us)
    if not FileSystems.exists(FileSystems.join(folder, "manifest.json")):
        raise submitting.RunnerError(f"{folder}: the runner is done, but there is no manifest.json")
    manifest = tonight.manifest()
    store.check_held()
    store.point_at(tonight, manifest)
    write_beside(folder)  # while the night before is there
    warnings += store.keep(options.keep)
    say(report.summary(manifest, folder, time.monotonic() - started))
    report.also_on_stderr("night", report.to_look_at(manifest))
    _warn(warnings, say)
    told.outcome, told.warnings = "committed", [*early, *report.to_look_at(manifest), *warnings]
    return EXIT_OK if manifest.get("status") == "ok" else EXIT_EMPTY


def _has_pages(options: NightOptions) -> bool:
    return bool(Settings(PipelineOptions(options.arguments(options.logs, None))).pages)


def _before(last: Night | None) -> Before | None:
    """The last night, with what it read. Without a list of files it read none that is known."""
    if last is None:
        return None
    found = last.noted()
    try:
        ledger = Ledger.from_json(found) if found else Ledger()
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as e:
        raise last.damaged_ledger(repr(e)) from None
    return Before(last.name, last.as_of_us, last.manifest(), ledger)


def _missed(options: NightOptions, last: Night) -> int:
    return -(-(options.as_of_us - last.as_of_us) // options.every_us) - 1


def _found(
    options: NightOptions, last: Night | None, choices: dict[str, Choice]
) -> tuple[list[str], list[str]]:
    """What to tell of the files of a night, and what to warn of."""
    lines, warnings = [f"recrawl night: {options.as_of} in {options.store.root}"], []
    if last is None:
        lines[0] += ", the first night"
    else:
        missed = _missed(options, last)
        lines[0] += f", after {last.as_of}"
        if missed:
            lines.append(f"  catching up on {counted(missed, 'missed night')}")
    for kind, choice in choices.items():
        again = f", {choice.again} of them again" if choice.again else ""
        lines.append(f"  {kind}: {counted(len(choice.files), 'new file')}{again}")
        if choice.missing:
            days = ", ".join(partitions.days_in_words(choice.missing))
            warnings.append(f"--{kind}: no file for {days}")
        elif last and not choice.files:
            warnings.append(f"--{kind}: no new file since the night of {last.as_of}")
    return lines, warnings


def _warn(warnings: list[str], say: Callable[[str], None]) -> None:
    for warning in warnings:
        say(f"WARNING: {warning}")
    report.also_on_stderr("night", warnings)


def what_stays(options: NightOptions, last: Night | None) -> str:
    """What a person needs to know of a night that failed."""
    if options.name in _committed(options.store):
        return (
            f"recrawl night: the night of {options.as_of} is committed, but what follows was not done. Run "
            "it again: it does the rest"
        )
    head = f"recrawl night: the night of {options.as_of} failed and is not committed. "
    if last is None:
        return head + "No night is committed yet, so there is no schedule. Mend the cause and run it again"
    return (
        head
        + f"In force stays {said(last)}. Mend the cause and run it again: it then reads all logs "
        + f"since {last.as_of}"
    )


def _committed(store: Store) -> set[str]:
    try:
        return {night.name for night in store.nights()}
    except (OSError, StoreError):
        return set()
