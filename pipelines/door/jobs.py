"""Commands that are pipelines: the checks before one, its run, and who is told of it. This needs Beam."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.command import stopping
from pipelines.command.exit_codes import EXIT_EMPTY, EXIT_FAILED, EXIT_OK
from pipelines.command.instants import format_instant
from pipelines.command.webhook import Told, check_url, notify
from pipelines.door import explaining
from pipelines.door.commands import add_telling, module_of
from pipelines.door.unknown import unknown_of, unknown_of_night
from pipelines.nightly import nightly, report
from pipelines.nightly.options import Settings
from pipelines.nightly.progress import progress
from pipelines.store import in_force, night, night_options
from pipelines.store.metrics_and_page import write_beside
from transforms.files.sinks import read_json


def run(parsed: argparse.Namespace, rest: list[str], arguments: list[str]) -> int:
    """Run a job, as `dispatch.run` does any command."""
    if parsed.command == "nightly":
        return _telling(parsed, arguments, lambda words, told: _nightly(words, rest, told))
    if parsed.command == "night":
        return _telling(parsed, arguments, _night)
    return _experiment(parsed, rest)


def _telling(parsed: argparse.Namespace, arguments: list[str], work: Callable[[list[str], Told], int]) -> int:
    """Run a job, and tell whom its options name what it came to."""
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_telling(parsed.command, own)
    words = own.parse_known_args(arguments)[1]
    as_json = getattr(parsed, "json", False)
    if parsed.notify:
        check_url(parsed.notify)
    told = Told(quiet=parsed.quiet)
    code, message = EXIT_FAILED, None
    try:
        with ExitStack() as stack:
            if parsed.quiet:
                stack.enter_context(
                    redirect_stdout(stack.enter_context(open(os.devnull, "w", encoding="utf-8")))
                )
            elif as_json:
                stack.enter_context(redirect_stdout(sys.stderr))
            code = work(words, told)
    except (KeyboardInterrupt, Exception) as error:
        if stopping.is_interrupt(error):
            found = ("interrupted; nothing is committed", EXIT_FAILED)
        else:
            found = explaining.of_command(error, parsed.command, words)
        message, code = found or (f"{type(error).__name__}: {error}", EXIT_FAILED)
        raise
    finally:
        if as_json or parsed.notify:
            # Where options are wrong, the store may be what is wrong with them.
            root = night_options.split(words)[0].store if parsed.command == "night" and told.folder else None
            document = told.document(parsed.command, code, message, in_force.in_force(root))
            if as_json:
                print(json.dumps(document, indent=1, ensure_ascii=False), flush=True)
            if parsed.notify:
                notify(parsed.notify, document)
    return code


def _nightly(argv: list[str], rest: list[str], told: Told) -> int:
    with unknown_of("nightly", rest).and_checks():
        # The sub-command's parser has split our options from Beam's; both go to Beam as they came.
        settings = Settings(PipelineOptions(argv))
    told.as_of, told.folder = format_instant(settings.as_of_us), settings.output
    return _nightly_job(argv, settings.output, told)


def _nightly_job(argv: list[str], output: str, told: Told) -> int:
    started = time.monotonic()
    with progress(sys.stdout if told.quiet else sys.stderr):
        nightly.run(argv)
    manifest = read_json(os.path.join(output, "manifest.json"))
    if manifest is None:
        told.outcome = "handed_over"
        print(f"The job was handed to its runner; results will be in {output}.")
        return EXIT_OK
    print(report.summary(manifest, output, time.monotonic() - started))
    told.outcome, told.warnings = "committed", report.to_look_at(manifest)
    report.also_on_stderr("nightly", told.warnings)
    write_beside(output)
    return EXIT_OK if manifest["status"] == "ok" else EXIT_EMPTY


def _night(argv: list[str], told: Told) -> int:
    with unknown_of_night(argv).and_checks():
        night.parse(argv)
    return int(night.run(argv, told=told))


def _experiment(parsed: argparse.Namespace, rest: list[str]) -> int:
    command = module_of(parsed.command)
    with unknown_of(parsed.command, rest).and_checks():
        command.check(parsed)
    if not getattr(parsed, "json", False):
        return int(command.run(parsed, rest))
    from pipelines.experiments.experiment import results_as_json  # a night needs nothing of it

    with redirect_stdout(sys.stderr):
        code = int(command.run(parsed, rest))
    print(results_as_json(parsed.output), flush=True)
    return code
