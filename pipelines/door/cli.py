"""The command line: `recrawl COMMAND`, or `python -m recrawl COMMAND`.

Help and version take no time: what a command needs is imported when it runs.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

from pipelines.command import printing, stopping
from pipelines.command.exit_codes import (
    BY_SIGNAL,
    EXIT_EMPTY,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_REJECTED,
    EXIT_SHRUNK,
    EXIT_USAGE,
)
from pipelines.command.json_lines import json_lines
from pipelines.command.version import __version__

__all__ = (
    "EXIT_EMPTY",
    "EXIT_FAILED",
    "EXIT_OK",
    "EXIT_REJECTED",
    "EXIT_SHRUNK",
    "EXIT_USAGE",
    "main",
)
COMMANDS = {
    "nightly": "the nightly job: logs in, tomorrow's schedule out",
    "night": "the nightly job on a store of nights, for a scheduler: new logs in, tonight's folder out",
    "discover": "the discovery job: links seen in, new pages and a schedule of sources out",
    "init": "look at logs, and write a configuration for `recrawl night`",
    "convert": "logs and dumps of any known format as Parquet with recrawl's columns",
    "inspect": "what logs and dumps hold, and what of them would be rejected",
    "export": "a schedule in the words of a crawler: seeds, status documents, queues, lists of URLs",
    "synthesize": "make a realistic corpus of logs of any size",
    "show": "a finished night in words",
    "explain": "why a page is crawled as it is, or never; or a host",
    "report": "a finished night, or a store of nights, as one web page",
    "metrics": "a store of nights for a monitor, in Prometheus' text format",
    "diff": "two nights side by side: what moved, and why",
    "dynamics": "when pages change: hours, weekdays, waits and groups, from a crawl log",
    "backtest": "which policy, and what budget, for your pages: a replay of your own log",
    "backtest-discovery": "which crawler finds new pages: a replay of what sources showed",
    "frontier": "the budget that a target freshness needs, for each policy",
    "simulate": "policies compared on drawn worlds, where the truth is known; no data needed",
    "reproduce": "the experiments of the papers: our numbers beside their claims",
    "completion": "a script by which a shell completes commands, options and paths",
}
JOBS = ("nightly", "night", "discover")
ONLY_PRINT = ("inspect", "show", "explain", "diff", "metrics", "completion", "")
CONFIG_HELP = (
    "TOML file with options, `name = value` a line: a list where an option takes several, true for one "
    "without a value. The command line wins; `recrawl init` writes one"
)
QUICK = ("explain",)
"""Commands that answer before what all others need would be imported."""
WITH_LISTS = ("discover", "backtest", "backtest-discovery", "frontier", "simulate")
EXIT_HELP = (
    "exit codes: 0 done; 1 failed; 2 options or configuration wrong; 3 done, but the schedule is empty; "
    "4 too many rows rejected; 5 history shrunk; 6 another night is running on the store (night), or another "
    "run has taken --output over; 7 the schedule in force has run out (night --status); 130, 143 ended by "
    "Ctrl-C, by SIGTERM (nightly and night: 1); 141 nobody read on what a command that only prints "
    "printed, as in `| head`. Of the nightly job nothing is committed after 1, 2, 4, 5 and 6."
)


class _Parser(argparse.ArgumentParser):
    """Where a required option is missing, names the one that was likely meant for it."""

    _words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit as argparse does.

        Raises
        ------
        OptionsError
            Options are missing, and there are words that no option takes.
        """
        command = self.prog.split()[-1]
        if command in COMMANDS and any(action.required for action in self._actions):
            from pipelines.door import dispatch

            dispatch.check_required(command, self, self._words)
        super().error(message)


def parser(command: str | None = None, alone: bool = False) -> argparse.ArgumentParser:
    """The parser of the command line; it knows the options of `command`, or of all commands.

    `alone`: no other command, as where the words begin with this one.
    """
    made = _Parser(
        prog="recrawl",
        description="Learns from crawl logs how pages change, and decides what a crawler fetches tomorrow.",
        epilog=EXIT_HELP,
    )
    made.add_argument("--version", action="version", version=f"recrawl {__version__}")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, what in COMMANDS.items():
        if alone and name != command:
            continue
        form = argparse.RawDescriptionHelpFormatter if name in WITH_LISTS else argparse.HelpFormatter
        one = commands.add_parser(name, help=what, allow_abbrev=False, formatter_class=form)
        if command == name and name in QUICK:
            _module(name).add_arguments(one)
        elif command is None or command == name:
            from pipelines.door import commands as known

            known.add_arguments(name, one, alone=command is not None)
            if name in JOBS:
                one.add_argument("--config", metavar="FILE", help=CONFIG_HELP)
                known.add_telling(name, one)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    arguments = [_underscored(word) for word in (sys.argv[1:] if argv is None else argv)]
    command = next((word for word in arguments if not word.startswith("-")), "")
    only_prints = command in ONLY_PRINT or (command == "night" and "--status" in arguments)
    with printing.lasting(only_prints):
        return _heard(command, arguments)


def _underscored(word: str) -> str:
    """Options are spelled with underscores; `--as-of` is understood, too."""
    name, equals, value = word.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value if word.startswith("--") else word


def _heard(command: str, arguments: list[str]) -> int:
    with ExitStack() as streams, stopping.heard() as heard:
        try:
            if command in JOBS and any(word.partition("=")[0] == "--config" for word in arguments):
                from pipelines.door.configuring import with_config

                arguments = with_config(command, arguments)
            if command in JOBS and _log_format(arguments) == "json":
                streams.enter_context(json_lines(out="--json" not in arguments))
            return _run(command, arguments)
        except (KeyboardInterrupt, Exception) as error:
            if isinstance(error, KeyboardInterrupt) or heard.number:
                return _interrupted(command, error, heard.number or signal.SIGINT)
            from pipelines.door import explaining

            explained = explaining.of_command(error, command, arguments)
            if explained is None:
                raise
            _complain(*explained)
            _print_notes(error)
            return explained[1]


def _log_format(arguments: Sequence[str]) -> str | None:
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--log_format", nargs="?")
    found: str | None = finder.parse_known_args(arguments)[0].log_format
    return found


def _run(command: str, arguments: list[str]) -> int:
    alone = command in COMMANDS and arguments[0] == command
    parsed, rest = parser(command, alone).parse_known_args(arguments)
    near = command in QUICK and "://" not in parsed.night
    if near and not rest and not _module(command).problems(parsed):
        return int(_module(command).run(parsed) or EXIT_OK)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    # Beam logs every error with its traceback before it raises it; what a person needs is printed.
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    logging.getLogger("root").setLevel(logging.CRITICAL)
    logging.getLogger("transforms").setLevel(logging.WARNING)
    from pipelines.door import dispatch

    return dispatch.run(parsed, rest, arguments[arguments.index(command) + 1 :])


def _module(command: str) -> Any:
    return importlib.import_module(f"pipelines.look.{command}")


def _interrupted(command: str, error: BaseException, number: int) -> int:
    if command in JOBS:
        print("recrawl: interrupted; nothing is committed", file=sys.stderr)
        _print_notes(error)
        return EXIT_FAILED
    print(stopping.INTERRUPTED, file=sys.stderr)
    return BY_SIGNAL + number


def _complain(message: str, _: int) -> None:
    lines = message.splitlines()
    head = "recrawl: " if len(lines) == 1 else f"recrawl: {len(lines)} problems\n  "
    print(head + "\n  ".join(lines), file=sys.stderr)


def _print_notes(error: BaseException) -> None:
    for note in getattr(error, "__notes__", ()):
        print(note, file=sys.stderr)
