"""A store of nights: its layout, its lock, which night is current, and what is kept.

`DIR/nights/<YYYYMMDDTHHMMSSZ>/` is the output of one night; with a `manifest.json` it is committed. All else
that the store has, `latest.json` and the link `current`, follows from that and is repaired by the next run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from apache_beam.io.filesystems import FileSystems

from pipelines.locks import Check, locked, replace_json
from pipelines.nightly import OUTPUTS, OWN_FILE
from pipelines.options import OptionsError, format_instant
from policies.errors import RecrawlError
from transforms.inputs import local_path
from transforms.sinks import make_folder, read_json

LEDGER = "files.json"
_ID = re.compile(r"\d{8}T\d{6}Z")
_HALF = re.compile(r"/\.tmp-[0-9a-f]+-(latest\.json|lock)$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StoreError(RecrawlError):
    """The store cannot be used as it is. Names the file and the remedy."""


def night_id(as_of_us: int) -> str:
    """The name of a night's folder. `as_of_us` is of whole seconds."""
    return (_EPOCH + timedelta(microseconds=as_of_us)).strftime("%Y%m%dT%H%M%SZ")


def instant_of(name: str) -> int:
    """UTC microseconds of a night's folder name."""
    moment = datetime.strptime(name, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    return int((moment - _EPOCH).total_seconds()) * 1_000_000


@dataclass(frozen=True)
class Night:
    """One committed night.

    Attributes
    ----------
    name : str
        Of its folder.
    folder : str
    as_of_us : int
    """

    name: str
    folder: str
    as_of_us: int

    @property
    def as_of(self) -> str:
        return format_instant(self.as_of_us)

    def manifest(self) -> dict[str, Any]:
        """Its manifest.

        Raises
        ------
        StoreError
            Where it cannot be read.
        """
        path = FileSystems.join(self.folder, "manifest.json")
        try:
            found = read_json(path)
        except ValueError as e:
            raise StoreError(
                f"{path}: damaged: {e}. Restore it, or delete it: then that night is run again"
            ) from None
        if not isinstance(found, dict) or not isinstance(found.get("options"), dict):
            raise StoreError(f"{path}: not the manifest of a night. Restore it, or delete it")
        return found


class Store:
    """The nights below one folder, on any file system that Beam knows.

    Parameters
    ----------
    root : str
    now : callable
        Seconds since 1970, for locks on file systems that have none of their own.
    """

    def __init__(self, root: str, now: Callable[[], float]) -> None:
        self.root = root.rstrip("/") or "/"
        self._now = now
        self._local = local_path(self.root)
        self.check_held: Check = lambda: None

    def path(self, *parts: str) -> str:
        return FileSystems.join(self.root, *parts)

    def folder(self, name: str) -> str:
        return self.path("nights", name)

    def nights(self) -> list[Night]:
        """The committed nights, oldest first."""
        return [
            Night(name, self.folder(name), instant_of(name))
            for name in self._folders()
            if FileSystems.exists(FileSystems.join(self.folder(name), "manifest.json"))
        ]

    def _folders(self) -> list[str]:
        """Names of the folders of all nights, committed or not."""
        if self._local is not None:
            folder = os.path.join(self._local, "nights")
            names = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        else:
            base = self.path("nights") + "/"
            found = FileSystems.match([base + "**"])[0].metadata_list
            names = {m.path.removeprefix(base).split("/")[0] for m in found if m.path.startswith(base)}
        return sorted(name for name in names if _ID.fullmatch(name))

    # Which night is current

    def point_at(self, night: Night, manifest: dict[str, Any]) -> None:
        """Make a night the current one: `latest.json` and, on a local file system, the link `current`."""
        value = latest_of(night, manifest)
        if self.latest() != value:
            replace_json(self.root, "latest.json", value)
        if self._local is not None:
            _link(os.path.join("nights", night.name), os.path.join(self._local, "current"))

    def unpoint(self) -> None:
        """Where no night is committed, none is current."""
        self._delete([self.path("latest.json")])
        if self._local is not None and os.path.islink(link := os.path.join(self._local, "current")):
            os.unlink(link)

    def latest(self) -> dict[str, Any] | None:
        """What `latest.json` says, None where it says nothing that can be read."""
        try:
            found = read_json(self.path("latest.json"))
        except (ValueError, OSError):
            return None
        return found if isinstance(found, dict) else None

    # What is kept

    def remove_remains(self, besides: str) -> list[str]:
        """Remove what was not committed, except one night; returns warnings."""
        warnings = []
        try:
            found = FileSystems.match([self.path(".tmp-*")])[0].metadata_list
            self._delete([m.path for m in found if _HALF.search(m.path)])
        except OSError as e:
            warnings.append(f"{self.root}: what a run left half written could not be removed: {e}")
        committed = {night.name for night in self.nights()}
        for name in self._folders():
            if name not in committed and name != besides:
                warnings += self._remove(name)
        return warnings

    def keep(self, count: int) -> list[str]:
        """Remove all but the newest `count` committed nights; returns warnings."""
        return [warning for night in self.nights()[:-count] for warning in self._remove(night.name)]

    def _remove(self, name: str) -> list[str]:
        """Remove what recrawl wrote of a night, its manifest first."""
        folder = self.folder(name)
        try:
            self._delete([FileSystems.join(folder, "manifest.json")])
            found = [m.path for m in FileSystems.match([folder + "/**"])[0].metadata_list]
            self._delete([p for p in found if _is_own(p.replace(os.sep, "/").rsplit(f"/{name}/", 1)[-1])])
            if self._local is not None:
                _remove_empty(os.path.join(self._local, "nights", name))
        except OSError as e:
            return [f"{folder}: an old night that could not be removed: {e}"]
        return []

    def _delete(self, paths: list[str]) -> None:
        there = [path for path in paths if FileSystems.exists(path)]
        if there:
            FileSystems.delete(there)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the store. Raises as `locks.locked` does."""
        try:
            make_folder(self.root)
        except OSError as e:
            raise OptionsError([f"--store={self.root}: cannot be written: {e}"]) from None
        with locked(self.root, self._local, self._now) as self.check_held:
            yield


def latest_of(night: Night, manifest: dict[str, Any]) -> dict[str, Any]:
    """What `latest.json` says of a night; paths are relative to the store."""
    return {
        "night": night.name,
        "as_of": night.as_of,
        "until": format_instant(ends_at(night, manifest)),
        "status": manifest.get("status"),
        "folder": f"nights/{night.name}",
        "schedule": f"nights/{night.name}/schedule",
    }


def ends_at(night: Night, manifest: dict[str, Any]) -> int:
    """UTC microseconds at which a night's schedule has run out."""
    return night.as_of_us + round(float(manifest["options"].get("horizon_hours", 24)) * 3_600_000_000)


def _is_own(inside: str) -> bool:
    """Whether a file of a night's folder, by its path inside it, is one that recrawl writes."""
    name = inside.rsplit("/", 1)[-1]
    if "/" not in inside:
        return re.sub(r"^\.tmp-[0-9a-f]+-", "", name) in ("manifest.json", LEDGER)
    return inside.split("/")[0] in OUTPUTS and OWN_FILE.match(name) is not None


def _remove_empty(folder: str) -> None:
    """Remove the folders in which nothing is left."""
    for parent, _, _ in os.walk(folder, topdown=False):
        if not os.listdir(parent):
            os.rmdir(parent)


def _link(target: str, link: str) -> None:
    if os.path.islink(link) and os.readlink(link) == target:
        return
    temporary = f"{link}.tmp"  # one name: who holds the lock is alone, and what a crash left is replaced
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.replace(temporary, link)
