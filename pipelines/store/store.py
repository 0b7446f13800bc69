"""A store of nights: its layout, its lock, which night is current, and what is kept.

`DIR/nights/<YYYYMMDDTHHMMSSZ>/` is the output of one night; with a `manifest.json` it is committed. All else
that the store has, `latest.json` and the link `current`, follows from that and is repaired by the next run.
The store itself may be behind a link; no link in it is followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pipelines.command.errors import OptionsError
from pipelines.command.instants import format_instant
from pipelines.command.output_folder import LEDGER, PATTERN_CHARACTERS, why_not
from pipelines.store.locks import Check, locked, replace_json
from pipelines.store.partitions import LOGS
from policies.numerics.errors import RecrawlError
from transforms.files.attempts import MARK
from transforms.files.filesystems import FileSystems, local_path
from transforms.files.replacing import (
    MANIFEST,
    METRICS,
    OUTPUTS,
    OWN_FILE,
    REPORT,
    fence,
    remove,
    remove_empty,
)
from transforms.files.sinks import make_folder, read_json
from transforms.finished.manifest_shape import HOURS, NUMBER, TEXT, Many, Maybe, misfits

_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_HALF = re.compile(r"\.tmp-[0-9a-f]+-(latest\.json|lock)")
_HALF_LEDGER = re.compile(rf"{_ID.pattern}/\.tmp-[0-9a-f]+-{re.escape(LEDGER)}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StoreError(RecrawlError):
    """The store cannot be used as it is. Names the file and the remedy."""


def night_id(as_of_us: int) -> str:
    """The name of a night's folder. `as_of_us` is of whole seconds."""
    return (_EPOCH + timedelta(microseconds=as_of_us)).strftime("%Y%m%dT%H%M%SZ")


def name_problems(root: str) -> list[str]:
    """What is wrong with the name of a store: inside it, names are patterns and lists of files."""
    if bad := sorted({c for c in root if c in PATTERN_CHARACTERS + ","}):
        return [
            f"--store={root}: a folder with {' '.join(bad)} in its name would be taken for a pattern or a "
            "list; give it another name"
        ]
    return []


def instant_of(name: str) -> int:
    """UTC microseconds of a night's folder name. ValueError where there is no such moment."""
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
            Where it cannot be read, or has values that no night writes.
        """
        path = FileSystems.join(self.folder, "manifest.json")
        try:
            found = read_json(path)
        except (ValueError, IsADirectoryError) as e:
            raise StoreError(
                f"{path}: damaged: {e}. Restore it, or delete it: then that night is run again"
            ) from None
        if not isinstance(found, dict) or not isinstance(found.get("options"), dict):
            raise StoreError(f"{path}: not the manifest of a night. Restore it, or delete it")
        if (wrong := next(misfits(found, _READ), None)) is not None:
            raise StoreError(
                f"{path}: damaged: {wrong}. Restore it, or delete it: then that night is run again"
            )
        return found

    def noted(self) -> dict[str, Any]:
        """What it has written down of the files it read; nothing where it has not.

        Raises
        ------
        StoreError
            Where that cannot be read.
        """
        try:
            found = read_json(FileSystems.join(self.folder, LEDGER))
        except (ValueError, IsADirectoryError) as e:
            raise self.damaged_ledger(str(e)) from None
        if found is None:
            return {}
        if not isinstance(found, dict) or not isinstance(found.get("warnings", []), list):
            raise self.damaged_ledger("not what a night writes")
        return found

    def damaged_ledger(self, why: str) -> StoreError:
        path = FileSystems.join(self.folder, LEDGER)
        return StoreError(
            f"{path}: damaged: {why}. Restore it, or delete it: then all logs that match are read again, "
            "which only takes time"
        )


_READ = {
    "options": {"horizon_hours?": HOURS, **{f"{kind}?": Maybe(TEXT) for kind in LOGS}},
    "counters?": Many(NUMBER),
    "status?": TEXT,
    "warnings?": [TEXT],
    "expected_freshness?": Maybe(NUMBER),
}
"""What the wrapper reads of a manifest: that it can be told does not matter to the next night."""


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
        self._of_their_instant: set[str] = set()
        self.check_held: Check = lambda: None

    def path(self, *parts: str) -> str:
        return FileSystems.join(self.root, *parts)

    def folder(self, name: str) -> str:
        return self.path("nights", name)

    def nights(self) -> list[Night]:
        """The committed nights, oldest first."""
        return [
            night
            for night in self._with_manifest()
            if night.name in self._of_their_instant or self._of_other_instant(night) is None
        ]

    def _with_manifest(self) -> list[Night]:
        return [
            Night(name, self.folder(name), instant_of(name))
            for name in self._folders()
            if _is_instant(name) and FileSystems.exists(FileSystems.join(self.folder(name), "manifest.json"))
        ]

    def _of_other_instant(self, night: Night) -> str | None:
        """The instant that the manifest in a night's folder gives, if it is another than the folder's."""
        try:
            as_of = read_json(FileSystems.join(night.folder, "manifest.json"))["options"]["as_of"]
        except (ValueError, OSError, LookupError, TypeError):
            return None  # who needs that manifest says what is wrong with it
        if as_of == night.as_of:
            self._of_their_instant.add(night.name)
            return None
        return str(as_of)

    def _folders(self) -> list[str]:
        """Names that are those of nights, committed or not; links are none."""
        if self._local is not None:
            self._refuse_link("nights")
            names = self._names("nights")
        else:
            names = {inside.split("/")[0] for inside in self._below("nights")}
        return sorted(name for name in names if _ID.fullmatch(name) and not self._is_link("nights", name))

    def _names(self, folder: str) -> set[str]:
        """What a folder of a local store has."""
        path = os.path.join(self._local or "", folder)
        return set(os.listdir(path)) if self._local is not None and os.path.isdir(path) else set()

    def _is_link(self, *parts: str) -> bool:
        return self._local is not None and os.path.islink(os.path.join(self._local, *parts))

    def _refuse_link(self, *parts: str) -> None:
        if self._is_link(*parts):
            raise StoreError(
                f"{self.path(*parts)} is a link: nights are written and deleted in the store alone. Put the "
                "folder itself there, or remove the link"
            )

    def _below(self, *parts: str) -> list[str]:
        """Files below a folder, by their paths inside it, with `/`. Whatever the folder is called."""
        if self._local is not None:
            top = os.path.join(self._local, *parts)
            found = [os.path.join(parent, name) for parent, _, names in os.walk(top) for name in names]
            return sorted(os.path.relpath(path, top).replace(os.sep, "/") for path in found)
        base = self.path(*parts) + "/"
        # Beam has no escapes: what the pattern matches besides is left out here.
        pattern = re.sub(f"[{re.escape(PATTERN_CHARACTERS)}\\\\]", "?", base) + "**"
        matched = FileSystems.match(pattern)
        return sorted(m.path.removeprefix(base) for m in matched if m.path.startswith(base))

    def damage(self) -> list[str]:
        """Warnings of what people have put, or copied, where the store has its own."""
        found = [
            f"{self.folder(name)} is ignored: it is a link, and the store follows none; put the folder "
            "itself there, or remove the link"
            for name in self._names("nights")
            if _ID.fullmatch(name) and self._is_link("nights", name)
        ]
        for name in self._folders():
            folder = self.folder(name)
            if self._local is not None and os.path.isfile(os.path.join(self._local, "nights", name)):
                found.append(f"{folder} is a file, not the folder of a night; remove it")
            elif not _is_instant(name):
                found.append(f"{folder} is ignored: there is no such date; remove it")
        for night in self._with_manifest():
            if (as_of := self._of_other_instant(night)) is not None:
                found.append(
                    f"{night.folder} is ignored: its manifest is of {as_of}. Give the folder the name of "
                    "that night, or remove it"
                )
        found += [
            f"{self.path(name)} is a folder, not {what}; remove it, the next run makes {what}"
            for name, what in (("current", "the link"), ("latest.json", "the file"))
            if self._is_folder(name)
        ]
        return found

    def _is_folder(self, name: str) -> bool:
        """Whether there is a real folder, which a copy that follows links leaves."""
        path = os.path.join(self._local or "", name)
        return self._local is not None and os.path.isdir(path) and not os.path.islink(path)

    # Which night is current

    def point_at(self, night: Night, manifest: dict[str, Any]) -> None:
        """Make a night the current one: `latest.json` and, on a local file system, the link `current`.

        Where a folder has the name of one, that is left: both follow from the nights.
        """
        value = latest_of(night, manifest)
        if self.latest() != value and not self._is_folder("latest.json"):
            replace_json(self.root, "latest.json", value)
        if self._local is not None:
            link = os.path.join(self._local, "current")
            _link(os.path.join("nights", night.name), link, self._is_folder("current"))

    def unpoint(self) -> None:
        """Where no night is committed, none is current."""
        if not self._is_folder("latest.json"):
            self._delete([self.path("latest.json")])
        if self._local is not None and os.path.islink(link := os.path.join(self._local, "current")):
            os.unlink(link)

    def latest(self) -> dict[str, Any] | None:
        """What `latest.json` says, None where it says nothing that can be read."""
        if self._is_link("latest.json"):
            return None
        try:
            found = read_json(self.path("latest.json"))
        except (ValueError, OSError):
            return None
        return found if isinstance(found, dict) else None

    # What is kept

    def end_attempts(self) -> None:
        """End tries at nights whose runs are gone, but whose jobs may still be at work on a cluster.

        Who holds the lock is alone: whatever is under way here is of a run that was killed.
        """
        for folder in map(self.folder, self._folders()):
            there = {n for n in (MARK, MANIFEST) if FileSystems.exists(FileSystems.join(folder, n))}
            if there != {MANIFEST}:
                fence(folder)

    def remove_remains(self, besides: str) -> list[str]:
        """Remove what was not committed, except one night; returns warnings, also those of `damage`.

        Raises
        ------
        StoreError
            Where that night cannot be put in its place.
        """
        self._check_place(besides)
        warnings = self.damage()
        try:
            self._delete([self.path(name) for name in self._at_root() if _HALF.fullmatch(name)])
            # The ledger is written by who holds the lock alone.
            half = [inside for inside in self._below("nights") if _HALF_LEDGER.fullmatch(inside)]
            self._delete([self.path("nights", *inside.split("/")) for inside in half])
        except OSError as e:
            warnings.append(f"{self.root}: what a run left half written could not be removed: {e}")
        kept = {night.name for night in self._with_manifest()}
        for name in self._folders():
            if _is_instant(name) and name not in kept and name != besides:
                warnings += self._remove(name)
        return warnings

    def _at_root(self) -> list[str]:
        if self._local is not None:
            return sorted(os.listdir(self._local))
        return [inside for inside in self._below() if "/" not in inside]

    def _check_place(self, name: str) -> None:
        """Raise `StoreError` where a night of that name would replace what is not recrawl's, or cannot be."""
        if not name:
            return
        if self._local is not None:
            for parts in (("nights",), ("nights", name)):
                self._refuse_link(*parts)
                if os.path.isfile(os.path.join(self._local, *parts)):
                    raise StoreError(
                        f"{self.path(*parts)} is a file, and the place of a folder: move it away"
                    )
        night = Night(name, self.folder(name), instant_of(name))
        as_of = self._of_other_instant(night)
        if as_of is not None:
            raise StoreError(
                f"{night.folder}: its manifest is of {as_of}, and tonight's would replace it. Give the "
                "folder the name of that night, or remove it"
            )

    def keep(self, count: int) -> list[str]:
        """Remove all but the newest `count` committed nights; returns warnings."""
        return [warning for night in self.nights()[:-count] for warning in self._remove(night.name)]

    def _remove(self, name: str) -> list[str]:
        """Remove what recrawl wrote of a night, its manifest first."""
        folder = self.folder(name)
        try:
            self._delete([FileSystems.join(folder, "manifest.json")])
            own = [inside for inside in self._below("nights", name) if _is_own(inside)]
            self._delete([FileSystems.join(folder, *inside.split("/")) for inside in own])
            if self._local is not None:
                remove_empty(os.path.join(self._local, "nights", name))
        except OSError as e:
            return [f"{folder}: an old night that could not be removed: {e}"]
        return []

    def _delete(self, paths: list[str]) -> None:
        """Delete files that are there."""
        far = [path for path in paths if local_path(path) is None and set(path) & set(PATTERN_CHARACTERS)]
        if far:
            raise OSError(f"{far[0]} would be taken for a pattern")
        remove(paths)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the store. Raises as `locks.locked` does."""
        try:
            make_folder(self.root)
        except OSError as e:
            raise OptionsError([f"--store={self.root}: {why_not(self.root, e)}"]) from None
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


def _is_instant(name: str) -> bool:
    try:
        instant_of(name)
    except ValueError:
        return False
    return True


def _is_own(inside: str) -> bool:
    """Whether a file of a night's folder, by its path inside it, is one that recrawl writes."""
    name = inside.rsplit("/", 1)[-1]
    if "/" not in inside:
        return re.sub(r"^\.tmp-[0-9a-f]+-", "", name) in (MARK, MANIFEST, REPORT, METRICS, LEDGER)
    return inside.split("/")[0] in OUTPUTS and OWN_FILE.match(name) is not None


def _link(target: str, link: str, in_the_way: bool) -> None:
    temporary = f"{link}.tmp"  # one name: who holds the lock is alone, and what a crash left is replaced
    if os.path.islink(temporary):
        os.unlink(temporary)
    if in_the_way or (os.path.islink(link) and os.readlink(link) == target):
        return
    os.symlink(target, temporary)
    os.replace(temporary, link)
