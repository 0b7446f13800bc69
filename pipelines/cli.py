"""The command line: `recrawl COMMAND`, or `python -m pipelines.cli COMMAND`."""

from __future__ import annotations

import argparse
import difflib
import errno
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from pipelines import (
    __version__,
    backtest,
    diff,
    frontier,
    night,
    nightly,
    report,
    reproduce,
    simulate,
    synthesize,
)
from pipelines.locks import StoreBusyError
from pipelines.options import LOCAL_RUNNERS, NightlyOptions, OptionsError, Settings
from pipelines.options_files import with_options_files
from pipelines.waiting import RunnerError
from policies.errors import InfeasibleError, RecrawlError
from transforms.carrying import StateError
from transforms.commit import HistoryShrunkError, TooManyRejectedError
from transforms.inputs import InputError
from transforms.sinks import read_json

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_EMPTY, EXIT_REJECTED, EXIT_SHRUNK = range(6)
EXIT_HELP = (
    "exit codes: 0 done; 1 failed; 2 options or configuration wrong; 3 done, but the schedule is empty; "
    "4 too many rows rejected; 5 history shrunk. After 1, 2, 4 and 5 there is no manifest.json."
)
_CODES: tuple[tuple[type[Exception], int], ...] = (
    (StoreBusyError, night.EXIT_BUSY),
    (TooManyRejectedError, EXIT_REJECTED),
    (HistoryShrunkError, EXIT_SHRUNK),
    (InputError, EXIT_USAGE),
    (OptionsError, EXIT_USAGE),
    (StateError, EXIT_USAGE),
    (InfeasibleError, EXIT_USAGE),
    (RecrawlError, EXIT_FAILED),
)
MAX_NAMED_WORDS = 5
# No place to write: the fault of no program.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_WHERE = re.compile(r" \[while running .*\]$", re.DOTALL)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recrawl",
        description="Learns from crawl logs how pages change, and decides what a crawler fetches tomorrow.",
        epilog=EXIT_HELP,
    )
    parser.add_argument("--version", action="version", version=f"recrawl {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    job = commands.add_parser(
        "nightly",
        help="the nightly job: logs in, tomorrow's schedule out",
        description="Read crawl logs, learn rates, and write tomorrow's crawl schedule.",
        epilog=EXIT_HELP,
        allow_abbrev=False,
    )
    NightlyOptions._add_argparse_args(job)
    wrapper = commands.add_parser(
        "night",
        help="the nightly job on a store of nights, for a scheduler: new logs in, tonight's folder out",
        description="Run the night that is due on a store: read what is new, commit, keep the newest nights. "
        "Safe to run twice, late, or after a crash.",
        epilog=night.EXIT_HELP,
        allow_abbrev=False,
    )
    night.add_arguments(wrapper)
    made = commands.add_parser(
        "synthesize",
        help="make a realistic corpus of logs of any size",
        description="Make crawl, click and signal logs of a made-up site, reproducibly.",
    )
    synthesize.add_arguments(made)
    compared = commands.add_parser(
        "diff", help="two nights side by side: what moved, and why", allow_abbrev=False
    )
    diff.add_arguments(compared)
    replayed = commands.add_parser(
        "backtest",
        help="which policy, and what budget, for your pages: a replay of your own log",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    backtest.add_arguments(replayed)
    needed = commands.add_parser(
        "frontier",
        help="the budget that a target freshness needs, for each policy",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    frontier.add_arguments(needed)
    drawn = commands.add_parser(
        "simulate",
        help="policies compared on drawn worlds, where the truth is known; no data needed",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    simulate.add_arguments(drawn)
    made_again = commands.add_parser(
        "reproduce", help="the experiments of the papers: our numbers beside their claims", allow_abbrev=False
    )
    reproduce.add_arguments(made_again)
    return parser


def _unknown_options(rest: list[str]) -> list[str]:
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
            f"{named}: no options; quote patterns, as in --sitemaps='maps/*', or the shell expands them"
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


def _nightly(argv: list[str]) -> int:
    # `parse_known_args` of the sub-command has split our options from Beam's; both go to Beam as they came.
    settings = Settings(PipelineOptions(argv))
    started = time.monotonic()
    with report.progress(sys.stderr):
        nightly.run(argv)
    manifest = read_json(os.path.join(settings.output, "manifest.json"))
    if manifest is None:
        print(f"The job was handed to its runner; results will be in {settings.output}.")
        return EXIT_OK
    print(report.summary(manifest, settings.output, time.monotonic() - started))
    report.also_on_stderr("nightly", manifest["warnings"])
    return EXIT_OK if manifest["status"] == "ok" else EXIT_EMPTY


def _night(argv: list[str]) -> int:
    argv = with_options_files(argv)
    _, passed = night.split(argv)
    rest = _parser().parse_known_args(["night", *passed])[1]
    problems = _unknown_words(_unknown_options(rest), night.add_arguments)
    try:
        night.parse(argv)
    except OptionsError as error:
        problems += error.problems
    if problems:
        raise OptionsError(problems)
    return night.main(argv)


def _local(parsed: argparse.Namespace, rest: list[str]) -> int:
    """Commands that are no pipelines and take no options of Beam."""
    command = {"diff": diff, "reproduce": reproduce}[parsed.command]
    problems = [f"{option}: recrawl {parsed.command} does not know this option" for option in rest]
    problems += command.problems(parsed)
    if problems:
        raise OptionsError(problems)
    try:
        command.run(parsed)
    except KeyboardInterrupt:
        print("recrawl: interrupted", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_OK


def _experiment(parsed: argparse.Namespace, rest: list[str]) -> int:
    command = {"backtest": backtest, "frontier": frontier, "simulate": simulate}[parsed.command]
    problems = _unknown_words(_unknown_options(rest), command.add_arguments)
    try:
        command.check(parsed)
    except OptionsError as error:
        problems += error.problems
    if problems:
        raise OptionsError(problems)
    return command.run(parsed, rest)


def explain(error: BaseException, where: str = "--output") -> tuple[str, int] | None:
    """The message and exit code of an error that is meant for a person, however deep Beam wrapped it.

    `where` is what holds the results.
    """
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        current = todo.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        for kind, code in _CODES:
            if isinstance(current, kind):
                return _WHERE.sub("", str(current)), code
        if isinstance(current, OSError) and current.errno in _DISK:
            return _disk(where, current.strerror or str(current)), EXIT_FAILED
        todo += [current.__cause__, current.__context__]
    # Errors of other processes arrive as text.
    text = str(error.__cause__ if isinstance(error, RunnerError) else error)
    for kind, code in _CODES:
        for found in (kind, *kind.__subclasses__()):
            match = re.search(rf"{found.__name__}: (.*?)(?: \[while running|\n|$)", text)
            if match:
                return match.group(1), code
    for number in _DISK:
        if f"[Errno {number}]" in text:
            return _disk(where, os.strerror(number)), EXIT_FAILED
    return (str(error), EXIT_FAILED) if isinstance(error, RunnerError) else None


def _disk(where: str, reason: str) -> str:
    return (
        f"{where}: {reason}. Nothing is committed: make room or give another folder, and run the night again"
    )


def _where(command: str, arguments: list[str]) -> str:
    """The option that says where results go; that of a store with its folder."""
    if command != "night":
        return "--output"
    try:
        return f"--store={night.split(with_options_files(arguments))[0].store}"
    except OptionsError:
        return "--store"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    parsed, rest = parser.parse_known_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    # Beam logs every error with its traceback before it raises it; what a person needs is printed below.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    logging.getLogger("root").setLevel(logging.CRITICAL)
    try:
        if parsed.command == "synthesize":
            if rest:
                parser.error(f"unknown options: {' '.join(rest)}")
            return synthesize.run(parsed)
        if parsed.command in ("diff", "reproduce"):
            return _local(parsed, rest)
        if parsed.command in ("backtest", "frontier", "simulate"):
            return _experiment(parsed, rest)
        if parsed.command == "night":
            return _night(arguments[arguments.index(parsed.command) + 1 :])
        unknown = _unknown_options(rest)
        problems = _unknown_words(unknown)
        try:
            Settings(PipelineOptions(arguments[1:]))
        except OptionsError as error:
            problems += error.problems
        if problems:
            raise OptionsError(problems)
        return _nightly(arguments[arguments.index(parsed.command) + 1 :])
    except KeyboardInterrupt as error:
        if parsed.command in ("backtest", "frontier", "simulate"):
            print("recrawl: interrupted; results are not complete", file=sys.stderr)
            return EXIT_FAILED
        print("recrawl: interrupted; there is no manifest.json, so nothing is committed", file=sys.stderr)
        _print_notes(error)
        return EXIT_FAILED
    except Exception as error:
        explained = explain(error, _where(parsed.command, arguments))
        if explained is None:
            raise
        message, code = explained
        lines = message.splitlines()
        head = "recrawl: " if len(lines) == 1 else f"recrawl: {len(lines)} problems\n  "
        print(head + "\n  ".join(lines), file=sys.stderr)
        _print_notes(error)
        return code


def _print_notes(error: BaseException) -> None:
    for note in getattr(error, "__notes__", ()):
        print(note, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
