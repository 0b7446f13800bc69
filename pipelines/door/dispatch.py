"""What each command of the command line is made of: its options, the checks before it runs, the run.

Importing this takes a second, so `pipelines.door.cli` does it only where a command runs or is asked about.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.command import buckets, stopping
from pipelines.command.errors import OptionsError
from pipelines.command.exit_codes import EXIT_EMPTY, EXIT_FAILED, EXIT_OK
from pipelines.command.telling import Told, check_url, notify
from pipelines.nightly.options import LOCAL_RUNNERS, NightlyOptions, Settings, format_instant

MAX_NAMED_WORDS = 5
JOB_EXIT_HELP = (
    "exit codes: 0 done; 1 failed; 2 options or configuration wrong; 3 done, but the schedule is empty; "
    "4 too many rows rejected; 5 history shrunk; 6 another run has taken --output over. After 1, 2, 4, 5 "
    "and 6 nothing is committed, nor will it be later: a night that was in --output stays as it was."
)
_DESCRIPTIONS = {
    "nightly": "Read crawl logs, learn rates, and write tomorrow's crawl schedule.",
    "night": "Run the night that is due on a store: read what is new, commit, keep the newest nights. "
    "Safe to run twice, late, or after a crash.",
    "synthesize": "Make crawl, click and signal logs of a made-up site, reproducibly.",
}


# Commands that are no pipelines and take no options of Beam.
_LOCAL = (
    "completion", "convert", "diff", "explain", "export", "init", "inspect", "metrics", "report", "reproduce",
    "show", "synthesize",
)  # fmt: skip


_ROOMS = {
    "completion": "door",
    "convert": "look",
    "init": "look",
    "inspect": "look",
    "export": "look",
    "diff": "look",
    "show": "look",
    "explain": "look",
    "report": "webpage",
    "metrics": "store",
    "night": "store",
    "discover": "discovery",
    "dynamics": "dynamics",
    "synthesize": "corpus",
    "backtest": "experiments",
    "backtest-discovery": "experiments",
    "frontier": "experiments",
    "simulate": "experiments",
    "reproduce": "experiments",
}


def _module(command: str) -> Any:
    return importlib.import_module(f"pipelines.{_ROOMS[command]}.{command.replace('-', '_')}")


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
        return _telling(parsed, arguments, lambda words, told: _nightly(words, rest, told))
    if command == "night":
        return _telling(parsed, arguments, _night)
    buckets.prepare(arguments)
    if command in _LOCAL:
        return _local(parsed, rest)
    return _experiment(parsed, rest)


def check_required(command: str, parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Look for misspelled options among the words of a command of which argparse only says what is missing.

    Raises
    ------
    OptionsError
        Words that no option takes, and the required options for which none of them was meant.
    """
    required = [action for action in parser._actions if action.required]
    for action in required:
        action.required = False
    try:
        parsed, rest = parser.parse_known_args(words)
    finally:
        for action in required:
            action.required = True
    unknown = _unknown_of(command, rest)
    if unknown.problems:
        missing = [action for action in required if getattr(parsed, action.dest, None) in (None, [])]
        raise OptionsError(
            unknown.with_others(
                [f"{(a.option_strings or [a.metavar])[0]} is missing: {a.help}" for a in missing]
            )
        )


def _unknown_of(command: str, rest: list[str]) -> _Unknown:
    """What to say of words that the parser of a command does not know."""
    if command in _LOCAL:
        return _unknown_words(rest, _module(command).add_arguments, f"recrawl {command} does not know")
    return _unknown_words(unknown_options(rest), _module(command).add_arguments)


def unknown_options(rest: list[str]) -> list[str]:
    """Options that neither recrawl nor Beam knows. A portable runner's server may know more: then none."""
    if not rest:
        return []
    known = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for options in PipelineOptions.__subclasses__():
        if options is not NightlyOptions:
            options._add_argparse_args(_Lenient(known))
    found, unknown = known.parse_known_args(rest)
    if str(getattr(found, "runner", None) or "").lower() not in LOCAL_RUNNERS:
        return []
    return unknown


@dataclass(frozen=True)
class _Unknown:
    """What to say of words that no option takes.

    Attributes
    ----------
    problems : list of str
    meant : set of str
        Options that were likely meant: that they are missing is no news.
    """

    problems: list[str]
    meant: set[str]

    def with_others(self, others: Sequence[str]) -> list[str]:
        """These problems, and those of other checks that do not follow from them."""
        follow = tuple(f"{option} is missing" for option in self.meant)
        return self.problems + [text for text in others if not text.startswith(follow)]


def _unknown_words(
    words: list[str],
    add_arguments: Callable[..., None] = NightlyOptions._add_argparse_args,
    knows: str = "neither recrawl nor Beam knows",
) -> _Unknown:
    """Look at words that are no options. A shell makes one pattern into many: they are one problem."""
    if not words:
        return _Unknown([], set())
    own = argparse.ArgumentParser(add_help=False)
    add_arguments(own)
    known = own._option_string_actions
    found, stray, meant = [], [], set()
    takes_next = False
    for word in words:
        if not word.startswith("-"):
            if not takes_next:
                stray.append(word)
            takes_next = False
            continue
        name, equals, _ = word.partition("=")
        near = difflib.get_close_matches(name, known, 1)
        takes_next = not equals and not (near and known[near[0]].nargs == 0)
        meant.update(near)
        found.append(_said(word, knows, near))
    if len(stray) > 1 or any(os.path.exists(word) for word in stray):
        more = len(stray) - MAX_NAMED_WORDS
        named = ", ".join(stray[:MAX_NAMED_WORDS]) + (f" and {more} more" if more > 0 else "")
        found.append(
            f"{named}: no options; quote patterns, as in --observations='logs/*', or the shell expands them"
        )
    else:
        found += [_said(word, knows, difflib.get_close_matches(word, known, 1)) for word in stray]
    return _Unknown(found, meant)


def _said(word: str, knows: str, near: Sequence[str]) -> str:
    return f"{word}: {knows} this option" + (f"; did you mean {near[0]}?" if near else "")


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


def add_telling(command: str, parser: Any) -> None:
    """Options of jobs that say how and whom they tell."""
    if command in ("nightly", "night"):
        parser.add_argument(
            "--notify",
            metavar="URL",
            help="webhook that gets a JSON document after a failure, and after a night with warnings",
        )
        parser.add_argument("--quiet", action="store_true", help="say nothing but warnings and failures")
        parser.add_argument(
            "--log_format",
            choices=("text", "json"),
            default="text",
            help="json: each line that is said is an object of at, level and message (default: %(default)s)",
        )
    if command == "night":
        parser.add_argument(
            "--json",
            action="store_true",
            help="print what the run came to, or with --status the nights, as one JSON document; all else "
            "goes to standard error",
        )


def _telling(parsed: argparse.Namespace, arguments: list[str], work: Callable[[list[str], Told], int]) -> int:
    """Run a job, and tell whom its options name what it came to."""
    from pipelines.door import explaining
    from pipelines.store import night, status

    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_telling(parsed.command, own)
    words = own.parse_known_args(arguments)[1]
    as_json = getattr(parsed, "json", False)
    if getattr(parsed, "status", False):
        return _night(words, Told(), as_json)
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
            root = night.split(words)[0].store if parsed.command == "night" and told.folder else None
            document = told.document(parsed.command, code, message, status.in_force(root))
            if as_json:
                print(json.dumps(document, indent=1, ensure_ascii=False), flush=True)
            if parsed.notify:
                notify(parsed.notify, document)
    return code


def _nightly(argv: list[str], rest: list[str], told: Told) -> int:
    buckets.prepare(argv)
    unknown = _unknown_words(unknown_options(rest))
    problems, settings = unknown.problems, None
    try:
        # The sub-command's parser has split our options from Beam's; both go to Beam as they came.
        settings = Settings(PipelineOptions(argv))
    except OptionsError as error:
        problems = unknown.with_others(error.problems)
    if problems or settings is None:
        raise OptionsError(problems)
    told.as_of, told.folder = format_instant(settings.as_of_us), settings.output
    return _nightly_job(argv, settings.output, told)


def _nightly_job(argv: list[str], output: str, told: Told) -> int:
    from pipelines.nightly import nightly, report
    from pipelines.store.beside import write_beside
    from transforms.files.sinks import read_json

    started = time.monotonic()
    with report.progress(sys.stdout if told.quiet else sys.stderr):
        nightly.run(argv)
    manifest = read_json(os.path.join(output, "manifest.json"))
    if manifest is None:
        told.outcome = "handed_over"
        print(f"The job was handed to its runner; results will be in {output}.")
        return EXIT_OK
    print(report.summary(manifest, output, time.monotonic() - started))
    report.also_on_stderr("nightly", manifest["warnings"])
    told.outcome, told.warnings = "committed", manifest["warnings"]
    write_beside(output)
    return EXIT_OK if manifest["status"] == "ok" else EXIT_EMPTY


def _night(argv: list[str], told: Told, as_json: bool = False) -> int:
    night = _module("night")
    buckets.prepare(argv)
    values, passed = night.split(argv)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    night.add_arguments(parser)
    unknown = _unknown_words(unknown_options(parser.parse_known_args(passed)[1]), night.add_arguments)
    problems = unknown.problems
    try:
        night.parse(argv)
    except OptionsError as error:
        problems = unknown.with_others(error.problems)
    if problems:
        raise OptionsError(problems)
    if values.status:
        from pipelines.store.status import status

        return status(argv, as_json)
    return int(night.run(argv, told=told))


def _local(parsed: argparse.Namespace, rest: list[str]) -> int:
    command = _module(parsed.command)
    unknown = _unknown_of(parsed.command, rest)
    problems = unknown.problems
    if hasattr(command, "problems"):
        problems = unknown.with_others(command.problems(parsed))
    if problems:
        raise OptionsError(problems)
    return int(command.run(parsed) or EXIT_OK)


def _experiment(parsed: argparse.Namespace, rest: list[str]) -> int:
    command = _module(parsed.command)
    unknown = _unknown_of(parsed.command, rest)
    problems = unknown.problems
    try:
        command.check(parsed)
    except OptionsError as error:
        problems = unknown.with_others(error.problems)
    if problems:
        raise OptionsError(problems)
    if not getattr(parsed, "json", False):
        return int(command.run(parsed, rest))
    from pipelines.experiments.experiment import results_as_json

    with redirect_stdout(sys.stderr):
        code = int(command.run(parsed, rest))
    print(results_as_json(parsed.output), flush=True)
    return code
