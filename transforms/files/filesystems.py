"""Where files are: on this machine, which needs nothing, or wherever a file system of Beam reaches.

Beam takes a second to import. Who only looks at a night that lies on this machine must not wait for it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

GLOB = re.compile(r"[*?\[]")
_SCHEME = re.compile(r"\s*[a-zA-Z][-a-zA-Z0-9+.]*://")
_TOKEN = re.compile(r"\*\*|[*?]|\[(!?)(\]?[^\]]*)\]|.", re.DOTALL)
_WILD = {"**": ".*", "*": r"[^/\\]*", "?": "."}
_AS_IT_IS = "uncompressed"
"""Of Beam, which else guesses from the name whether a file is packed."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of an input, its size in bytes, and when it was last changed.

    `modified` is in seconds since 1970, 0 where the file system does not say.
    """

    path: str
    size: int
    modified: float = field(default=0.0, compare=False)


def local_path(path: str) -> str | None:
    """The path on this machine, None if another file system holds it."""
    if "://" not in path:
        return path
    return path.removeprefix("file://") if path.startswith("file://") else None


def translate(pattern: str) -> str:
    """A glob as a regular expression, as Beam's file systems understand it: `**` is any depth, `*` one name.

    It has no anchors and needs `re.DOTALL`.
    """

    def one(found: re.Match[str]) -> str:
        if (inside := found[2]) is None:
            return _WILD.get(found[0]) or re.escape(found[0])
        inside = inside.replace("\\", r"\\")
        no = "^" if found[1] else "\\" if inside.startswith("^") else ""
        return f"[{no}{inside}]"

    return _TOKEN.sub(one, pattern)


def walked(pattern: str, leads_on: Callable[[str], bool], fail: Callable[[OSError], None]) -> list[InputFile]:
    """Files on this machine that a glob matches.

    Parameters
    ----------
    pattern : str
    leads_on : callable
        Whether to look into a folder that may be on the way to files that match.
    fail : callable
        What to do where a folder cannot be read.
    """
    if not GLOB.search(pattern):
        return _stated([pattern])
    parts = pattern.split("/")
    # Folders on the way to what matches, by their depth; below the first ** it may be anywhere.
    anywhere = [i for i, part in enumerate(parts) if "**" in part]
    own = anywhere[0] if anywhere else len(parts) - 1
    ways = [re.compile(translate("/".join(parts[: i + 1])), re.DOTALL) for i in range(own)]

    def is_on_the_way(folder: str) -> bool:
        depth = folder.count("/")
        return bool(ways[depth].fullmatch(folder)) if depth < own else bool(anywhere)

    matches, found = re.compile(translate(pattern), re.DOTALL), []
    for folder, inside, names in os.walk(os.path.dirname(GLOB.split(pattern)[0]) or "/", onerror=fail):
        below = ((name, os.path.join(folder, name)) for name in inside)
        inside[:] = [name for name, path in below if is_on_the_way(path) and leads_on(path)]
        paths = [os.path.join(folder, name) for name in names]
        try:
            found += _stated([path for path in paths if matches.fullmatch(path)])
        except OSError as error:
            fail(error)
    return found


def _stated(paths: list[str]) -> list[InputFile]:
    found = []
    for path in paths:
        try:
            known = os.stat(path)
        except FileNotFoundError:  # it was there a moment ago, or is a link to nothing
            continue
        found.append(InputFile(path, known.st_size, known.st_mtime))
    return found


@functools.cache
def _beam() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def _is_local(path: str) -> bool:
    return _SCHEME.match(path) is None


class FileSystems:
    """As Beam's class of that name, without globs where a path is meant, and without unpacking."""

    @staticmethod
    def check(path: str) -> None:
        """Whether a file system is known for a path.

        Raises
        ------
        ValueError
            None is.
        """
        if not _is_local(path):
            _beam().get_filesystem(path)

    @staticmethod
    def join(base: str, *names: str) -> str:
        return os.path.join(base, *names) if _is_local(base) else str(_beam().join(base, *names))

    @staticmethod
    def split(path: str) -> tuple[str, str]:
        """Folder and name; on this machine the whole path of the folder."""
        if _is_local(path):
            return os.path.split(os.path.abspath(path))
        folder, name = _beam().split(path)
        return folder, name

    @staticmethod
    def exists(path: str) -> bool:
        return os.path.exists(path) if _is_local(path) else bool(_beam().exists(path))

    @staticmethod
    def mkdirs(path: str) -> None:
        """Make a folder, and those that it is in.

        Raises
        ------
        OSError
            Also where it is there.
        """
        if _is_local(path):
            os.makedirs(path)
        else:
            _beam().mkdirs(path)

    @staticmethod
    def open(path: str) -> BinaryIO:
        """Open a file for reading its bytes as they are."""
        if _is_local(path):
            return open(path, "rb")
        source: BinaryIO = _beam().open(path, compression_type=_AS_IT_IS)
        return source

    @staticmethod
    def create(path: str) -> BinaryIO:
        """Open a file for writing; its folder is made."""
        if _is_local(path):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            return open(path, "wb")
        target: BinaryIO = _beam().create(path, compression_type=_AS_IT_IS)
        return target

    @staticmethod
    def rename(sources: Sequence[str], targets: Sequence[str]) -> None:
        """Give files other names, in place of what has these."""
        if all(map(_is_local, sources)):
            for source, target in zip(sources, targets, strict=True):
                os.rename(source, target)
        else:
            _beam().rename(list(sources), list(targets))

    @staticmethod
    def delete(paths: Sequence[str]) -> None:
        """Delete files, and folders with all in them.

        Raises
        ------
        OSError
            One is not there, or cannot be deleted; those after it stay.
        """
        if not all(map(_is_local, paths)):
            _beam().delete(list(paths))
            return
        for path in paths:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)

    @staticmethod
    def match(pattern: str) -> list[InputFile]:
        """Files that a glob matches.

        Raises
        ------
        OSError
            A folder on this machine that cannot be read.
        """
        if _is_local(pattern):
            whole = pattern if os.path.dirname(GLOB.split(pattern)[0]) else os.path.join(".", pattern)
            return walked(whole, lambda _: True, _raise)
        found = _beam().match([pattern])[0].metadata_list
        return [InputFile(m.path, m.size_in_bytes, m.last_updated_in_seconds or 0.0) for m in found]


def _raise(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error
