"""What each command of the command line is made of: its options, the checks before it runs, the run.

Nothing here, nor what it imports, needs Beam; `pipelines.door.jobs` runs what does.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pipelines.command import buckets
from pipelines.command.errors import OptionsError
from pipelines.command.exit_codes import EXIT_OK
from pipelines.door.commands import LOCAL, add_telling, module_of
from pipelines.door.unknown import unknown_of, unknown_of_night
from pipelines.store import status


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
    buckets.prepare(arguments)
    if command == "night" and parsed.status:
        return _status(arguments, parsed.json)
    if command in LOCAL:
        return _local(parsed, rest)
    from pipelines.door import jobs

    return jobs.run(parsed, rest, arguments)


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
    unknown = unknown_of(command, rest)
    if unknown.problems:
        missing = [action for action in required if getattr(parsed, action.dest, None) in (None, [])]
        with unknown.and_checks():
            raise OptionsError(
                [f"{(a.option_strings or [a.metavar])[0]} is missing: {a.help}" for a in missing]
            )


def _local(parsed: argparse.Namespace, rest: list[str]) -> int:
    command = module_of(parsed.command)
    with unknown_of(parsed.command, rest).and_checks():
        if problems := command.problems(parsed) if hasattr(command, "problems") else []:
            raise OptionsError(problems)
    return int(command.run(parsed) or EXIT_OK)


def _status(arguments: list[str], as_json: bool) -> int:
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_telling("night", own)
    words = own.parse_known_args(arguments)[1]
    with unknown_of_night(words).and_checks():
        pass
    return status.status(words, as_json)
