"""`recrawl completion SHELL`: a script by which a shell completes commands, options and paths."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterator

SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = """\
Print a script by which a shell completes recrawl's commands, options and paths. It is made once, so that a
Tab does not start recrawl: bash reads it from ~/.local/share/bash-completion/completions/recrawl.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to read it")


def problems(parsed: argparse.Namespace) -> list[str]:
    """What is wrong with the options."""
    if importlib.util.find_spec("shtab") is None:
        return ["completion needs shtab, in the extra completion: pip install '.[completion]' in a checkout"]
    return []


def run(parsed: argparse.Namespace) -> None:
    """Print the script."""
    import shtab

    from pipelines.door import cli

    parser = cli.parser()
    for action in _values(parser):
        action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, parsed.shell))


def _values(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Arguments that take any text, which may be a path."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _values(one)
        elif action.nargs != 0 and action.choices is None:
            yield action
