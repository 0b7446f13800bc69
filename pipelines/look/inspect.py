"""`recrawl inspect FILES`: what logs and dumps hold, before a night reads them."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from pipelines.command import options_inputs
from pipelines.command.errors import OptionsError
from pipelines.look.inspect_report import Group, night_as_json, night_as_text
from transforms.batches.errors import InputError
from transforms.files.blocks import How
from transforms.files.filesystems import InputFile
from transforms.files.inputs import match_files
from transforms.finished.nights import Night, NightError
from transforms.intake.inspecting import Account, account, kinds_of
from transforms.intake.sources import check_names
from transforms.rows.normalise import KINDS

DESCRIPTION = """\
Read files to their end and say what they hold: format, rows, time span, pages, hosts, evidence of changes,
and what would be rejected and why; files of one format together. Nothing is written. Memory does not grow
with the files.
"""
EXIT_HELP = "exit codes: 0 all could be read; 1 some could not, or not to the end; 2 options wrong."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    parser.add_argument("files", nargs="+", metavar="FILES", help="files, folders or globs")
    parser.add_argument(
        "--kind",
        choices=tuple(KINDS),
        help="read them as this input (default: told by what they hold)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a file, a line each")
    options_inputs.add_arguments(parser)


def run(parsed: argparse.Namespace) -> int:
    """Inspect and print; 1 where a file could not be read to its end.

    Raises
    ------
    OptionsError
    """
    problems: list[str] = []
    hows = options_inputs.hows(vars(parsed), problems)
    if problems:
        raise OptionsError(problems)
    failed = 0
    groups: dict[tuple[str, ...], Group] = {}
    of_kind: dict[str, list[InputFile]] = {}
    finished = {} if parsed.kind else _finished(parsed.files)
    for night in finished.values():
        print(night_as_json(night) if parsed.json else night_as_text(night))
    others = [name for name in parsed.files if name not in finished]
    for file, kinds, found in looked_at(others, hows, parsed.kind):
        if kinds:
            of_kind.setdefault(kinds[0], []).append(file)
        if isinstance(found, InputError):
            failed += 1
            if parsed.json:
                nothing = {"format": None, "rows": 0, "accepted": 0, "rejected": {}, "error": str(found)}
                print(json.dumps({"file": file.path} | nothing, ensure_ascii=False))
            print(f"recrawl: {found}", file=sys.stderr)
            continue
        failed += bool(found.damaged)
        key = (found.kind, found.format, *kinds[1:])
        if parsed.json:
            print(_as_json(found), flush=True)
        elif key in groups:
            groups[key].add(found)
        else:
            groups[key] = Group(found, kinds[1:], parsed.own_user_agent or "", hows.get(found.kind, How()))
    for group in sorted(groups.values(), key=lambda g: g.of_robots):
        print(group.as_text())
    return 1 if failed + misnamed(of_kind, hows) else 0


def looked_at(
    names: Sequence[str], hows: Mapping[str, How], kind: str | None = None
) -> Iterator[tuple[InputFile, list[str], Account | InputError]]:
    """File by file the kinds of input that it may be, the likeliest first, and what it holds, or why nothing.

    What nights have left in folders that are named is no input, and left out.

    Raises
    ------
    InputError
        A name that no file has.
    """
    for file in match_files(",".join(names), kind or "files", named=False) if names else ():
        if _of_a_night(file.path, names):
            continue
        kinds: list[str] = []
        try:
            kinds = [kind] if kind else kinds_of(file, hows)
            found: Account | InputError = account(file, kinds[0], hows.get(kinds[0], How()))
        except InputError as error:
            found = error
        yield file, kinds, found


def _of_a_night(path: str, names: Sequence[str]) -> bool:
    """Whether a file is of a finished night, or of a store, that lies below a folder that is named."""
    folder, name = os.path.split(path)
    nights = [folder for folder in PurePath(path).parents if _is_night(str(folder))]
    if name == "latest.json" and os.path.isdir(os.path.join(folder, "nights")):
        return True
    above = [name for name in names if os.path.isdir(name) and not _is_night(name)]
    return any(folder.is_relative_to(name) for folder in nights for name in above)


@functools.cache
def _is_night(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "manifest.json")) and os.path.isdir(
        os.path.join(folder, "state")
    )


def _finished(names: Sequence[str]) -> dict[str, Night]:
    """The folders that are what a night has left, or a store with its newest: their files are no input."""
    found = {}
    for name in names:
        try:
            found[name] = Night.open(name)
        except NightError:
            continue
    return found


def misnamed(of_kind: Mapping[str, Sequence[InputFile]], hows: Mapping[str, How]) -> int:
    """How many inputs lack a column that was given by name; says which."""
    failed = 0
    for kind, files in of_kind.items():
        try:
            check_names(kind, files, hows.get(kind))
        except InputError as error:
            failed += 1
            print(f"recrawl: {error}", file=sys.stderr)
    return failed


def _as_json(found: Account) -> str:
    said: dict[str, Any] = {
        "file": found.file,
        "kind": found.kind,
        "format": found.format,
        "rows": found.rows,
        "accepted": found.accepted,
        # What is left out is no fault of the file; both are told by reason.
        "rejected": dict(sorted((found.rejected + found.left_out).items())),
        "left_out": sorted(found.left_out),
        "damaged": found.damaged,
        "no_site": found.no_site,
        "local_times": found.noted["local_times"],
        "first": found.first,
        "last": found.last,
        "pages": len(found.pages),
        "hosts": len(found.hosts),
        "twins": len(found.twins),
        "evidence": dict(sorted((+found.evidence).items())),
    }
    return json.dumps(said, ensure_ascii=False, allow_nan=False)
