"""The output folder of a night: emptied for a job, or replaced when the next night in it is complete.

What another night has left stays as it is while the new one is made in a folder beside it, `.next`. When that
has its manifest, its files take the place of the old ones; who is stopped on the way finishes later.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from typing import Any

from apache_beam.io.filesystems import FileSystems

from policies.errors import RecrawlError
from transforms.inputs import local_path
from transforms.sinks import make_folder, read_json

OUTPUTS = ("pages", "hosts", "schedule", "state", "slots", "rejected")
MANIFEST = "manifest.json"
NEXT = ".next"
# What `sinks` names its files, and those that a night left which was stopped.
OWN_FILE = re.compile(r"(\.tmp-[0-9a-f]+-)?shard-\d+-of-\d+\.")


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
    # The second: of a night that was killed between writing its manifest and naming it.
    for found in FileSystems.match([FileSystems.join(folder, n) for n in (MANIFEST, f".tmp-*-{MANIFEST}")]):
        remove([m.path for m in found.metadata_list])
    for name in OUTPUTS:
        remove(_own_files(folder, name))
        make_folder(FileSystems.join(folder, name))


def check_links(folder: str) -> None:
    """Raise `LinkError` where a folder in a night's folder is a link: files behind it are not the night's."""
    local = local_path(folder)
    if local is None:
        return
    tops = [os.path.join(local, name) for name in (NEXT, *OUTPUTS)]
    inside = (os.path.join(parent, n) for top in tops for parent, names, _ in os.walk(top) for n in names)
    for path in itertools.chain(tops, inside):
        if os.path.islink(path):
            raise LinkError(f"{path} is a link, and what is behind it would be deleted. Remove the link")


def _own_files(folder: str, name: str) -> list[str]:
    # Object stores have files only; deleting those of a folder serves everywhere. Only what a night writes
    # goes: the folder may be one that happens to hold other people's pages/.
    inside = FileSystems.match([FileSystems.join(folder, name, "**")])[0].metadata_list
    return [m.path for m in inside if OWN_FILE.match(FileSystems.split(m.path)[1])]


def remove(paths: Iterable[str]) -> None:
    """Delete files that are there. Beam would take a path for a pattern, and a folder with all in it."""
    for path in paths:
        local = local_path(path)
        if local is None:
            if FileSystems.exists(path):
                FileSystems.delete([path])
        elif os.path.lexists(local):
            os.unlink(local)


def finish(output: str) -> None:
    """Do what is left where a complete night was stopped while it took its place. Most often nothing is."""
    made = FileSystems.join(output, NEXT)
    if (manifest := read_json(FileSystems.join(made, MANIFEST))) is None:
        return
    check_links(output)
    names = [str(file["path"]) for file in manifest["files"]]
    remove([FileSystems.join(output, MANIFEST)])
    kept = {FileSystems.join(output, *name.split("/")) for name in names}
    for name in OUTPUTS:
        make_folder(FileSystems.join(output, name))
        remove(path for path in _own_files(output, name) if path not in kept)
    for name in [*names, MANIFEST]:
        _move(FileSystems.join(made, *name.split("/")), FileSystems.join(output, *name.split("/")))
    if (local := local_path(made)) is not None:
        remove_empty(local)


def discard(made: str, failed: bool = True) -> None:
    """Remove a night beside another one: one that is the same to the byte, or one that failed.

    Of one that failed what it rejected stays for a look.
    """
    if FileSystems.exists(FileSystems.join(made, MANIFEST)):  # it is complete, and half in its place
        return
    for name in OUTPUTS:
        if name != "rejected" or not failed:
            remove(_own_files(made, name))
    if (local := local_path(made)) is not None:
        remove_empty(local)


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
    FileSystems.rename([path], [to])


def remove_empty(folder: str) -> None:
    """Remove the folders in which nothing is left."""
    for parent, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(parent):
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
