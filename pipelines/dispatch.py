"""What each command of the command line is made of: its options, the checks before it runs, the run.

Importing this takes a second, so `pipelines.cli` does it only where a command runs or is asked about.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.exit_codes import EXIT_EMPTY, EXIT_OK
from pipelines.options import LOCAL_RUNNERS, NightlyOptions, OptionsError, Settings
from pipelines.options_files import with_options_files

MAX_NAMED_WORDS = 5
JOB_EXIT_HELP = (
    "exit codes: 0 done; 1 failed; 2 options or configuration wrong; 3 done, but the schedule is empty; "
    "4 too many rows rejected; 5 history shrunk. After 1, 2, 4 and 5 there is no manifest.json."
)
_DESCRIPTIONS = {
    "nightly": "Read crawl logs, learn rates, and write tomorrow's crawl schedule.",
    "night": "Run the night that is due on a store: read what is new, commit, keep the newest nights. "
    "Safe to run twice, late, or after a crash.",
    "synthesize": "Make crawl, click and signal logs of a made-up site, reproducibly.",
}


def _module(command: str) -> Any:
    return importlib.import_module(f"pipelines.{command}")


def add_arguments(command: str, parser: argparse.ArgumentParser) -> None:
    """Declare the options of a command, and what its help says."""
    parser.description = _DESCRIPTIONS.get(command)
    if command == "nightly":
        parser.epilog = JOB_EXIT_HELP
        NightlyOptions._add_argparse_args(parser)
        return
    _module(command).add_arguments(parser)
    if command == "night":
        parser.epilog = _module(command).EXIT_HELP


def run(parsed: argparse.Namespace, rest: list[str], arguments: list[str]) -> int:
    """Run a command; its exit code.

    Parameters
    ----------
    parsed : argparse.Namespace
    rest : list of str
        What the command's parser does not know.
    arguments : list of str
        All words after the command's name.

    Raises
    ------
    OptionsError
        Options that cannot work, all of them.
    """
    command = parsed.command
    if command == "nightly":
        return _nightly(arguments, rest)
    if command == "night":
        return _night(arguments)
    if command in ("convert", "diff", "export", "inspect", "reproduce", "synthesize"):
        return _local(parsed, rest)
    return _experiment(parsed, rest)


def unknown_options(rest: list[str]) -> list[str]:
    """Options that neither recrawl nor Beam knows. A portable runner's server may know more: then none."""
    known = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for options in PipelineOptions.__subclasses__():
        if options is not NightlyOptions:
            options._add_argparse_args(_Lenient(known))
    found, unknown = known.parse_known_args(rest)
    if str(getattr(found, "runner", None) or "").lower() not in LOCAL_RUNNERS:
        return []
    return unknown


def _unknown(option: str, add_arguments: Callable[..., None] = NightlyOptions._add_argparse_args) -> str:
    own = argparse.ArgumentParser(add_help=False)
    add_arguments(own)
    near = difflib.get_close_matches(option.split("=")[0], own._option_string_actions, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{option}: neither recrawl nor Beam knows this option{hint}"


def _unknown_words(
    words: list[str], add_arguments: Callable[..., None] = NightlyOptions._add_argparse_args
) -> list[str]:
    """What to say of words that are no options. A shell makes one pattern into many: they are one problem."""
    options = [word for word in words if word.startswith("-")]
    stray = [word for word in words if not word.startswith("-")]
    found = [_unknown(option, add_arguments) for option in options]
    if len(stray) > 1 or any(os.path.exists(word) for word in stray):
        more = len(stray) - MAX_NAMED_WORDS
        named = ", ".join(stray[:MAX_NAMED_WORDS]) + (f" and {more} more" if more > 0 else "")
        found.append(
            f"{named}: no options; quote patterns, as in --observations='logs/*', or the shell expands them"
        )
    else:
        found += [_unknown(word, add_arguments) for word in stray]
    return found


class _Lenient:
    """A parser to which options may be added twice."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def add_argument(self, *names: str, **settings: Any) -> None:
        settings.pop("required", None)
        try:
            self._parser.add_argument(*names, **settings)
        except argparse.ArgumentError:
            pass

    def add_mutually_exclusive_group(self, **_: Any) -> _Lenient:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def _nightly(argv: list[str], rest: list[str]) -> int:
    problems = _unknown_words(unknown_options(rest))
    settings = None
    try:
        # The sub-command's parser has split our options from Beam's; both go to Beam as they came.
        settings = Settings(PipelineOptions(argv))
    except OptionsError as error:
        problems += error.problems
    if problems or settings is None:
        raise OptionsError(problems)
    return _nightly_job(argv, settings.output)


def _nightly_job(argv: list[str], output: str) -> int:
    from pipelines import nightly, report
    from transforms.sinks import read_json

    started = time.monotonic()
    with report.progress(sys.stderr):
        nightly.run(argv)
    manifest = read_json(os.path.join(output, "manifest.json"))
    if manifest is None:
        print(f"The job was handed to its runner; results will be in {output}.")
        return EXIT_OK
    print(report.summary(manifest, output, time.monotonic() - started))
    report.also_on_stderr("nightly", manifest["warnings"])
    return EXIT_OK if manifest["status"] == "ok" else EXIT_EMPTY


def _night(argv: list[str]) -> int:
    night = _module("night")
    argv = with_options_files(argv)
    _, passed = night.split(argv)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    night.add_arguments(parser)
    problems = _unknown_words(unknown_options(parser.parse_known_args(passed)[1]), night.add_arguments)
    try:
        night.parse(argv)
    except OptionsError as error:
        problems += error.problems
    if problems:
        raise OptionsError(problems)
    return int(night.main(argv))


def _local(parsed: argparse.Namespace, rest: list[str]) -> int:
    """Commands that are no pipelines and take no options of Beam."""
    command = _module(parsed.command)
    problems = [f"{option}: recrawl {parsed.command} does not know this option" for option in rest]
    if hasattr(command, "problems"):
        problems += command.problems(parsed)
    if problems:
        raise OptionsError(problems)
    return int(command.run(parsed) or EXIT_OK)


def _experiment(parsed: argparse.Namespace, rest: list[str]) -> int:
    command = _module(parsed.command)
    problems = _unknown_words(unknown_options(rest), command.add_arguments)
    try:
        command.check(parsed)
    except OptionsError as error:
        problems += error.problems
    if problems:
        raise OptionsError(problems)
    return int(command.run(parsed, rest))
