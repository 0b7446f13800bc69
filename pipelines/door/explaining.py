"""What a person is told of an error, and the exit code that it has."""

from __future__ import annotations

import argparse
import errno
import os
import re

from pipelines.command.buckets import is_of_bucket
from pipelines.command.errors import OptionsError, RunnerError
from pipelines.command.exit_codes import EXIT_BUSY, EXIT_FAILED, EXIT_REJECTED, EXIT_SHRUNK, EXIT_USAGE
from pipelines.store import night_options
from pipelines.store.locks import StoreBusyError
from pipelines.store.store import StoreError
from policies.numerics.errors import InfeasibleError, RecrawlError
from transforms.batches.errors import InputError
from transforms.files.attempts import StoppedError
from transforms.files.replacing import EmptyNightError, LinkError
from transforms.kept.errors import StateError
from transforms.night.errors import HistoryShrunkError, TooManyRejectedError

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (StoreBusyError, EXIT_BUSY),
    (StoppedError, EXIT_BUSY),
    (TooManyRejectedError, EXIT_REJECTED),
    (HistoryShrunkError, EXIT_SHRUNK),
    (InputError, EXIT_USAGE),
    (OptionsError, EXIT_USAGE),
    (StateError, EXIT_USAGE),
    (StoreError, EXIT_USAGE),
    (EmptyNightError, EXIT_USAGE),
    (LinkError, EXIT_USAGE),
    (InfeasibleError, EXIT_USAGE),
    (RecrawlError, EXIT_FAILED),
)
# No place to write: the fault of no program.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_WHERE = re.compile(r" \[while running .*\]$", re.DOTALL)
NIGHT_AGAIN = "Nothing is committed: make room or give another folder, and run the night again"
AGAIN = "Results are not complete: make room or give another folder, and run it again"


def explain(
    error: BaseException, where: str = "--output", again: str = NIGHT_AGAIN
) -> tuple[str, int] | None:
    """The message and exit code of an error that is meant for a person, however deep Beam wrapped it.

    `where` is what holds the results, `again` what to do where there is no room for them.
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
            return _disk(where, current.strerror or str(current), again), EXIT_FAILED
        # Beam may say path by path what it has met.
        met = {where: current} | (getattr(current, "exception_details", None) or {})
        for place, found in met.items():
            if isinstance(found, BaseException) and is_of_bucket(found):
                said = str(found.args[0] if found.args else found).rstrip(".")
                return (
                    f"{place}: {said}. Look at the bucket's name, its region, and the credentials",
                    EXIT_FAILED,
                )
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
            return _disk(where, os.strerror(number), again), EXIT_FAILED
    return (str(error), EXIT_FAILED) if isinstance(error, RunnerError) else None


def _disk(where: str, reason: str, again: str) -> str:
    return f"{where}: {reason}. {again}"


def of_command(error: BaseException, command: str, arguments: list[str]) -> tuple[str, int] | None:
    """The same for a command and all words of its command line: it names its own folder and remedy."""
    if command == "nightly":
        return explain(error)
    if command == "night":
        return explain(error, _store(arguments))
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--output", default="")
    return explain(error, f"--output={finder.parse_known_args(arguments)[0].output}", AGAIN)


def _store(arguments: list[str]) -> str:
    """The option that says where the store is, with its folder."""
    try:
        return f"--store={night_options.split(arguments)[0].store}"
    except OptionsError:
        return "--store"
