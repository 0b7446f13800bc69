"""The folder that a comparison writes to: can it be written, and what of an earlier run goes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from pipelines.command.errors import OptionsError
from pipelines.pictures.plots import FORMATS
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import make_folder, write_file

# Beam takes names with these for globs.
PATTERN_CHARACTERS = "*?["
# In the folder of a night on a store: which files it read.
LEDGER = "files.json"

TRIAL = ".recrawl-can-write"
TRIAL_BYTES = 1 << 16


def check_file(file: str) -> None:
    """Refuse to put a file in the place of a folder, or of a device such as /dev/stdout.

    Raises
    ------
    OptionsError
    """
    if os.path.exists(file) and not os.path.isfile(file):
        what = "a folder" if os.path.isdir(file) else "a device"
        raise OptionsError([f"--output={file}: is {what}; give the name of a file"])


def check(folder: str) -> None:
    """Make the folder and write to it, before hours of work are for nothing.

    Raises
    ------
    OptionsError
    """
    if any(c in PATTERN_CHARACTERS for c in folder):
        raise OptionsError(
            [f"--output={folder}: {' '.join(PATTERN_CHARACTERS)} make it a pattern; give another name"]
        )
    try:
        make_folder(folder)
        write_file(folder, TRIAL, bytes(TRIAL_BYTES), 1)
        FileSystems.delete([FileSystems.join(folder, TRIAL)])
    except (OSError, ValueError) as error:  # ValueError: no such file system
        raise OptionsError([f"--output={folder}: {why_not(folder, error)}"]) from None


def why_not(folder: str, error: OSError | ValueError) -> str:
    """Why a folder cannot be written to, and what to do, in words that follow its name."""
    if not folder:
        return "names nothing; give a folder"
    if os.path.exists(folder) and not os.path.isdir(folder):
        return "is a file; give a folder"
    if isinstance(error, ValueError):
        return str(error)
    # Beam puts the system's errors into errors of its own.
    number = error.errno or int((re.search(r"\[Errno (\d+)\]", str(error)) or ["", "0"])[1])
    reason = os.strerror(number) if number else str(error)
    return f"cannot be written: {reason}; make room, or give a folder that can be written"


def pictures(names: Iterable[str]) -> list[str]:
    """Files that pictures of these names are."""
    return [f"{name}.{form}" for name in names for form in FORMATS]


def clear(folder: str, names: Iterable[str]) -> None:
    """Remove files of these names: results and pictures of an earlier run must not stand beside new ones."""
    paths = [FileSystems.join(folder, name) for name in names]
    there = [path for path in paths if FileSystems.exists(path)]
    if there:
        FileSystems.delete(there)
