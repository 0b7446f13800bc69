"""Writing: files that are put in place by a rename, and documents of JSON.

A bundle that is retried, or that runs twice, writes to a name of its own and renames; whoever renames last
leaves the same bytes. The manifest is written after everything else: it is the commit.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import uuid
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from transforms.files.attempts import Attempt
from transforms.files.filesystems import FileSystems

SEAL = "sha256"
_SEALED = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n}\n\Z')


@dataclass(frozen=True)
class FileInfo:
    """One file of the output.

    Attributes
    ----------
    path : str
        Relative to the output folder.
    rows, bytes : int
    sha256 : str
        Of the file's bytes, in hex.
    """

    path: str
    rows: int
    bytes: int
    sha256: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class _Hashing(io.RawIOBase):
    """A write-only file that counts and hashes what passes."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._target.write(data)
        self.hash.update(data)
        self.size += len(data) if isinstance(data, bytes) else memoryview(data).nbytes
        return len(data)


def make_folder(path: str) -> None:
    """Make a folder where the filesystem knows folders; one that is there is fine."""
    try:
        FileSystems.mkdirs(path)
    except OSError:
        if not FileSystems.exists(path) or os.path.isfile(path):
            raise


def write_file(folder: str, name: str, data: Any, rows: int, attempt: Attempt | None = None) -> FileInfo:
    """Write `folder/name` under a temporary name and rename it.

    Parameters
    ----------
    folder : str
        The output folder, on any Beam filesystem.
    name : str
        Relative path of the file.
    data : bytes or callable
        The bytes, or a function that writes them to the binary file it is given.
    rows : int
        For the manifest.
    attempt : Attempt, optional
        The try at a night that the file is of.

    Raises
    ------
    StoppedError
        Where that is not in force any more; then the file is not there, or as it was.
    """
    final = FileSystems.join(folder, *name.split("/"))
    parent, base = FileSystems.split(final)
    of = "" if attempt is None else attempt.name
    temporary = FileSystems.join(parent, f".tmp-{of}{uuid.uuid4().hex}-{base}")
    make_folder(parent)
    try:
        # Parquet is compressed by page; Beam must not guess a codec from the name.
        with FileSystems.create(temporary) as target:
            sink = _Hashing(target)
            if callable(data):
                data(sink)
            else:
                sink.write(data)
        if attempt is not None:
            attempt.check()
        FileSystems.rename([temporary], [final])
    except BaseException as error:
        with contextlib.suppress(OSError):  # whoever ends a try removes its files, too
            if FileSystems.exists(temporary):
                FileSystems.delete([temporary])
        if attempt is not None and isinstance(error, OSError):
            attempt.check()  # says it better, where its file or folder was taken away
        raise
    return FileInfo(name, rows, sink.size, sink.hash.hexdigest())


def write_json(
    folder: str, name: str, value: Any, sealed: bool = False, attempt: Attempt | None = None
) -> FileInfo:
    """Write a JSON document, keys in the order given; NaN and infinities become null.

    One that is sealed has the SHA-256 of all before it as its last value, which `read_json` checks.
    """
    text = json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False)
    if sealed:
        body = text.removesuffix("\n}")
        text = f'{body},\n "{SEAL}": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}'
    return write_file(folder, name, (text + "\n").encode(), 1, attempt)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def read_json(path: str) -> Any:
    """The JSON document at `path`, or None where there is none. ValueError where it is damaged."""
    if not FileSystems.exists(path):
        return None
    with FileSystems.open(path) as source:
        data = source.read()
    try:
        value = json.loads(data)
    except RecursionError:
        raise ValueError("brackets within brackets without end") from None
    # One that somebody has rewritten is laid out otherwise, and no longer sealed.
    found = _SEALED.search(data)
    if found and hashlib.sha256(data[: found.start()]).hexdigest().encode() != found[1]:
        raise ValueError(f"its {SEAL} is not that of its text (who has edited it removes that line)")
    return value
