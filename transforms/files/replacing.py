"""The output folder of a night: emptied for a job, or replaced when the next night in it is complete.

What another night has left stays as it is while the new one is made in a folder beside it, `.next`. When that
has its manifest, its files take the place of the old ones; who is stopped on the way finishes later.

A try at a night begins with `fence`, `prepare` and its claim, and ends with `fence` again (`attempts`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from policies.numerics.errors import RecrawlError
from transforms.files.attempts import MARK, Attempt
from transforms.files.filesystems import FileSystems, local_path
from transforms.files.sinks import make_folder, read_json

OUTPUTS = ("pages", "hosts", "schedule", "state", "slots", "rejected")
# Those, and what only the discovery job writes.
FOLDERS = (*OUTPUTS, "sources", "targets")
MANIFEST = "manifest.json"
# The manifest as a web page and as metrics: written after it, and gone before it.
REPORT, METRICS = "report.html", "metrics.prom"
NEXT = ".next"
# What `sinks` names its files, and those that a night left which was stopped.
_TMP, _SHARD = r"\.tmp-[0-9a-f]+-", r"shard-\d+-of-\d+\."
OWN_FILE = re.compile(f"({_TMP})?{_SHARD}")
_BESIDE = "|".join(map(re.escape, (MANIFEST, REPORT, METRICS)))
_HALF = re.compile(f"{_TMP}({_BESIDE}|{_SHARD}.*)")
_HALF_FILE = re.compile(_TMP + _SHARD)
# One who has just looked at the mark may rename while files are listed: the second time finds what he made.
LOOKS = 2


class EmptyNightError(RecrawlError):
    """A night without a schedule would take the place of one that has one."""


class LinkError(OSError):
    """A link leads out of a folder in which files are to be deleted."""


def folder_of(output: str, overwrite: bool) -> str:
    """Where to make a night that is to be in `output`."""
    there = FileSystems.exists(FileSystems.join(output, MANIFEST))
    return FileSystems.join(output, NEXT) if there and not overwrite else output


def prepare(folder: str) -> None:
    """Empty a folder, its manifest first: from then on the old night is no longer committed.

    Raises
    ------
    OSError
    """
    check_links(folder)
    remove(FileSystems.join(folder, name) for name in (REPORT, METRICS, MANIFEST))
    for _ in range(LOOKS):
        remove(_half(folder))
        for name in FOLDERS:
            remove(_own_files(folder, name))
    for name in OUTPUTS:
        make_folder(FileSystems.join(folder, name))


def fence(output: str) -> None:
    """End every try at a night in a folder: from here on none of them writes or commits there.

    One that is complete by then, and half in its place, stays so.
    """
    remove([FileSystems.join(output, MARK)])
    beside = FileSystems.join(output, NEXT)
    folders = [output] if os.path.islink(local_path(beside) or "") else [output, beside]
    for folder in folders * LOOKS:
        sweep(folder)


def sweep(folder: str) -> None:
    """Delete what was written and not renamed."""
    for name in FOLDERS:
        remove(_own_files(folder, name, _HALF_FILE))
    remove(_half(folder))


def settle(attempt: Attempt, before: Any) -> bool:
    """End a try that may still be going on elsewhere; whether it has committed its night.

    `before` is the manifest in the output folder when it began, or None.
    """
    if not attempt.is_in_force():  # what is there now is another's
        return False
    fence(attempt.output)
    finish(attempt.output)
    try:
        found = read_json(FileSystems.join(attempt.output, MANIFEST))
    except ValueError:
        return False
    return found is not None and found != before


def check_links(folder: str) -> None:
    """Raise `LinkError` where a folder in a night's folder is a link: files behind it are not the night's."""
    local = local_path(folder)
    if local is None:
        return
    tops = [os.path.join(local, name) for name in (NEXT, *FOLDERS)]
    inside = (os.path.join(parent, n) for top in tops for parent, names, _ in os.walk(top) for n in names)
    for path in itertools.chain(tops, inside):
        if os.path.islink(path):
            raise LinkError(f"{path} is a link, and what is behind it would be deleted. Remove the link")


def _own_files(folder: str, name: str, written: re.Pattern[str] = OWN_FILE) -> list[str]:
    # Object stores have files only; deleting those of a folder serves everywhere. Only what a night writes
    # goes: the folder may be one that happens to hold other people's pages/.
    top = FileSystems.join(folder, name)
    if (local := local_path(top)) is not None:  # Beam's own listing fails where a file goes meanwhile
        walked = [] if os.path.islink(local) else os.walk(local)
        found = [os.path.join(parent, n) for parent, _, names in walked for n in names if written.match(n)]
        return [FileSystems.join(top, *os.path.relpath(path, local).split(os.sep)) for path in found]
    inside = [m.path for m in FileSystems.match(FileSystems.join(top, "**"))]
    return [path for path in inside if written.match(FileSystems.split(path)[1])]


def _half(folder: str) -> list[str]:
    """Manifests that were written and not renamed."""
    if (local := local_path(folder)) is not None:
        names = os.listdir(local) if os.path.isdir(local) else []
        return [os.path.join(local, name) for name in names if _HALF.fullmatch(name)]
    found = FileSystems.match(FileSystems.join(folder, f".tmp-*-{MANIFEST}"))
    return [m.path for m in found]


def remove(paths: Iterable[str]) -> None:
    """Delete files that are there. Beam would take a path for a pattern, and a folder with all in it."""
    for path in paths:
        local = local_path(path)
        if local is not None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(local)
        elif FileSystems.exists(path):
            FileSystems.delete([path])


def finish(output: str, check: Callable[[], None] = lambda: None) -> None:
    """Do what is left where a complete night was stopped while it took its place. Most often nothing is.

    `check` raises where another one does that now.
    """
    made = FileSystems.join(output, NEXT)
    if (manifest := read_json(FileSystems.join(made, MANIFEST))) is None:
        return
    check_links(output)
    names = [str(file["path"]) for file in manifest["files"]]
    check()
    remove(FileSystems.join(output, name) for name in (REPORT, METRICS, MANIFEST))
    kept = {FileSystems.join(output, *name.split("/")) for name in names}
    for name in FOLDERS:
        if name in OUTPUTS:
            make_folder(FileSystems.join(output, name))
        remove(path for path in _own_files(output, name) if path not in kept)
    for name in [*names, MANIFEST]:
        check()
        _move(FileSystems.join(made, *name.split("/")), FileSystems.join(output, *name.split("/")))
    if (local := local_path(made)) is not None:
        remove_empty(local)


def discard(made: str, failed: bool = True) -> None:
    """Remove a night beside another one: one that is the same to the byte, or one that failed.

    Of one that failed what it rejected stays for a look.
    """
    if FileSystems.exists(FileSystems.join(made, MANIFEST)):  # it is complete, and half in its place
        return
    for name in FOLDERS:
        if name != "rejected" or not failed:
            remove(_own_files(made, name))
    if (local := local_path(made)) is not None:
        remove_empty(local)


def is_done(attempt: Attempt, files: list[dict[str, Any]]) -> bool:
    """Whether the night with these files is committed, or can be without another manifest; then it is."""
    there = is_placed(attempt.output, files)
    if attempt.folder == attempt.output:
        return there and not attempt.is_in_force()  # else it is written again, to the same bytes
    if not there and is_placed(attempt.folder, files):
        finish(attempt.output, attempt.check)
        return True
    return there


def is_placed(output: str, files: list[dict[str, Any]]) -> bool:
    """Whether the night in a folder is the one with these files."""
    try:
        found = read_json(FileSystems.join(output, MANIFEST))
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("files") == files


def _move(path: str, to: str) -> None:
    if not FileSystems.exists(path):  # it was moved already
        return
    make_folder(FileSystems.split(to)[0])
    if path.startswith("hdfs://") and FileSystems.exists(to):  # its rename does not replace
        FileSystems.delete([to])
    try:
        FileSystems.rename([path], [to])
    except OSError:
        if FileSystems.exists(path) or not FileSystems.exists(to):
            raise
        # Else a try that was just ended has moved it as its last deed.


def remove_empty(folder: str) -> None:
    """Remove the folders in which nothing is left."""
    for parent, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(parent):
            with contextlib.suppress(OSError):  # somebody has put a file there
                os.rmdir(parent)


def schedule_there(output: str) -> dict[str, Any]:
    """The manifest of the night in a folder that has a schedule; else nothing."""
    try:
        found = read_json(FileSystems.join(output, MANIFEST))
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("status") == "ok" else {}


def check_empty(status: str, reason: str, replaced: dict[str, Any]) -> None:
    """Raise `EmptyNightError` where a night without a schedule would replace one that has one."""
    if status == "ok" or replaced.get("status") != "ok":
        return
    night = replaced.get("options", {}).get("as_of", "another night")
    crawls = replaced.get("counters", {}).get("slots_used", 0)
    raise EmptyNightError(
        f"the night would be empty ({reason}), and that of {night} has a schedule of {crawls:,} crawls, "
        "which stays. Mend the input, or give --overwrite to have the empty one"
    )
