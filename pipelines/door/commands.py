"""The commands: where each one is, its options, and what its help says.

Nothing here, nor what it imports, needs Beam.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

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
LOCAL = (
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


def module_of(command: str) -> Any:
    return importlib.import_module(f"pipelines.{_ROOMS[command]}.{command.replace('-', '_')}")


_ARGUMENTS = {
    "nightly": "nightly.arguments",
    "night": "store.night_options",
    "discover": "discovery.arguments",
    "dynamics": "dynamics.arguments",
    **{
        name: f"experiments.arguments.{name.replace('-', '_')}"
        for name in ("backtest", "backtest-discovery", "frontier", "simulate", "reproduce")
    },
}
"""Where options are apart from what they are for, which needs Beam."""
_LIST_POLICIES = ("backtest", "backtest-discovery", "frontier", "simulate")


def arguments_of(command: str) -> Callable[[argparse.ArgumentParser], None]:
    """What declares the options of a command."""
    apart = _ARGUMENTS.get(command)
    module = importlib.import_module(f"pipelines.{apart}") if apart else module_of(command)
    declare: Callable[[argparse.ArgumentParser], None] = module.add_arguments
    return declare


def add_arguments(command: str, parser: argparse.ArgumentParser, alone: bool = True) -> None:
    """Declare the options of a command, and what its help says: all of it where it is `alone`."""
    parser.description = _DESCRIPTIONS.get(command)
    arguments_of(command)(parser)
    if command == "nightly":
        parser.epilog = JOB_EXIT_HELP
    elif alone and command in _LIST_POLICIES:
        from pipelines.experiments.arguments.policies import epilog

        parser.epilog = epilog(command)


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
