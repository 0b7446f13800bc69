"""`recrawl convert FILES`: logs and dumps of any known format as Parquet with recrawl's columns."""

from __future__ import annotations

import argparse
import posixpath
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.command import options_inputs, output_folder
from pipelines.command.errors import OptionsError
from pipelines.look.inspect import misnamed
from transforms.batches import schemas
from transforms.batches.errors import InputError
from transforms.files.blocks import How
from transforms.files.filesystems import InputFile
from transforms.files.inputs import list_files, match_files
from transforms.files.sinks import write_file
from transforms.intake.converting import Converted, convert
from transforms.intake.inspecting import kinds_of

DESCRIPTION = """\
Rewrite files as Parquet with recrawl's own columns: one file for each input file, and rejected.parquet with
what could not be used and why. A night reads all formats itself: this is for looking at what it sees, and for
logs that many nights will read. One file at a time, in bounded memory.
"""
EXIT_HELP = "exit codes: 0 done; 1 some files could not be read; 2 options wrong; 4 no row was accepted."
KINDS = ("observations", "requests", "signals", "pages", "hosts")
NO_ROWS = 4
REJECTED = "rejected.parquet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.epilog = EXIT_HELP
    parser.add_argument("files", nargs="+", metavar="FILES", help="files, folders or globs")
    parser.add_argument("--output", metavar="DIR", help="new folder for the Parquet files (required)")
    parser.add_argument("--kind", choices=KINDS, help="what they are (default: told by what they hold)")
    options_inputs.add_arguments(parser)


def run(parsed: argparse.Namespace) -> int:
    """Convert all files.

    Raises
    ------
    OptionsError
        An option is wrong, or the folder has results of an earlier run.
    """
    problems: list[str] = (
        [] if parsed.output else ["--output is missing: give a folder for the Parquet files"]
    )
    hows = options_inputs.hows(vars(parsed), problems)
    if problems:
        raise OptionsError(problems)
    output_folder.check(parsed.output)
    _refuse_results(parsed.output)
    failed, done, rejects = 0, Converted(), []
    taken: set[str] = {REJECTED}
    of_kind: dict[str, list[InputFile]] = {}
    for file in match_files(",".join(parsed.files), parsed.kind or "files", named=False):
        try:
            kinds = [parsed.kind] if parsed.kind else [k for k in kinds_of(file, hows) if k in KINDS]
            if not kinds:
                raise InputError(f"{file.path}: nothing that a night reads; say what it is with --kind")
            of_kind.setdefault(kinds[0], []).append(file)
            name = _name(file.path, taken)
            found = convert(file, kinds[0], hows.get(kinds[0], How()), parsed.output, name)
        except InputError as error:
            failed += 1
            print(f"recrawl: {error}", file=sys.stderr)
            continue
        done.accepted += found.accepted
        rejects += found.rejects
        print(_line(file.path, kinds[0], name, found), flush=True)
    if rejects:
        table = pa.Table.from_batches(rejects, schemas.REJECTED)
        write_file(parsed.output, REJECTED, lambda out: pq.write_table(table, out), table.num_rows)
    if failed + misnamed(of_kind, hows):
        return 1
    return 0 if done.accepted else NO_ROWS


def _refuse_results(folder: str) -> None:
    """Logs of all days have one name: the results of one run must not go for those of the next."""
    there = sorted(posixpath.basename(file.path) for file in list_files(f"{folder.rstrip('/')}/*.parquet"))
    if there:
        more = f" and {len(there) - 1:,} more" if there[1:] else ""
        raise OptionsError(
            [
                f"--output={folder}: holds {there[0]}{more}, which this run could overwrite; give a new "
                "folder for each run, or remove them first"
            ]
        )


def _name(path: str, taken: set[str]) -> str:
    """A name for the result that no other file of the run has."""
    base = posixpath.basename(path).removesuffix(".gz").removesuffix(".parquet") or "file"
    name, n = f"{base}.parquet", 1
    while name in taken:
        n += 1
        name = f"{base}-{n}.parquet"
    taken.add(name)
    return name


def _line(path: str, kind: str, name: str, found: Converted) -> str:
    counts = sorted((found.rejected | found.left_out).items())
    other = "".join(f", {n:,} {reason}" for reason, n in counts)
    written = name if found.file else "no file"
    return f"{path}: {found.accepted:,} {kind} to {written}{other}"
