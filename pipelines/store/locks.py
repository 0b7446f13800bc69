"""One night at a time on a store: a lock of the kernel where there is one, else a lease in a file."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.command.errors import OptionsError
from pipelines.command.instants import format_instant
from pipelines.command.output_folder import why_not
from policies.numerics.errors import RecrawlError
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import read_json, write_json

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl = None  # type: ignore[assignment]

# A lease says until when it holds; its owner renews it four times as often.
LEASE_SECONDS = 1200.0
NAME_SECONDS = 1.0
Check = Callable[[], None]


class StoreBusyError(RecrawlError):
    """Another night is running on this store."""


def _busy(root: str, owner: Any) -> StoreBusyError:
    who = owner if isinstance(owner, dict) else {}
    until = f", its lease ends at {_instant(who['until'])}" if "until" in who else ""
    return StoreBusyError(
        f"--store={root}: another night is running: process {who.get('pid', '?')} on {who.get('host', '?')}, "
        f"since {who.get('started', '?')}{until}. Nothing was done; run it again when that one is over"
    )


def _instant(seconds: float) -> str:
    return format_instant(int(seconds) * 1_000_000)


def _owner(now: Callable[[], float]) -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _instant(now())}


@contextmanager
def locked(root: str, local: str | None, now: Callable[[], float]) -> Iterator[Check]:
    """Hold a store; yields a check that raises `StoreBusyError` where it is not held any more.

    Parameters
    ----------
    root : str
    local : str or None
        Its path on this machine.
    now : callable
        Seconds since 1970.

    Raises
    ------
    StoreBusyError
        With who holds it.
    OptionsError
        Where the store cannot be written or locked.
    """
    if local is not None and fcntl is not None:
        with _flock(root, local, now):
            yield lambda: None
    else:
        lease = _Lease(root, now)
        with lease.held():
            yield lease.check


@contextmanager
def _flock(root: str, local: str, now: Callable[[], float]) -> Iterator[None]:
    # The file stays: to remove a locked file would give two processes a lock each.
    path = os.path.join(local, "lock")
    try:
        # Nor is it another file by another name: who holds the lock empties it.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as e:
        if os.path.islink(path):
            raise _not_the_lock(root, path, "a link") from None
        raise OptionsError([f"--store={root}: {path} {why_not(root, e)}"]) from None
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            raise _not_the_lock(root, path, "no file")
        if known.st_nlink > 1:
            raise _not_the_lock(root, path, "a file with another name")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(root, _holder(file)) from None
        except OSError as e:
            raise OptionsError(
                [f"--store={root}: {path} cannot be locked: {e}. Give a file system that has locks"]
            ) from None
        _overwrite(file, json.dumps(_owner(now)))
        try:
            yield
        finally:
            _overwrite(file, "")


def _not_the_lock(root: str, path: str, what: str) -> OptionsError:
    return OptionsError(
        [f"--store={root}: {path} is {what}, and the lock would be written into it: remove it"]
    )


def _holder(file: Any) -> Any:
    """Who has locked the file; who has just locked it may not have written its name yet."""
    deadline = time.monotonic() + NAME_SECONDS
    while True:
        file.seek(0)
        owner = _parsed(file.read())
        if owner is not None or time.monotonic() > deadline:
            return owner
        time.sleep(NAME_SECONDS / 50)


def _overwrite(file: Any, text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


class _Lease:
    """A file that says who holds the store, and until when.

    Beam's file systems cannot create a file only if it is not there. Two that start at the same moment see
    each other by the token that is left, unless both have looked already.
    """

    def __init__(self, root: str, now: Callable[[], float]) -> None:
        self._root, self._now = root, now
        self._path = FileSystems.join(root, "lock")
        self._token = uuid.uuid4().hex
        self._owner = {**_owner(now), "token": self._token}

    def _read(self) -> dict[str, Any] | None:
        try:
            found = read_json(self._path)
        except (ValueError, OSError):  # being replaced just now
            return None
        return found if isinstance(found, dict) else None

    def _write(self) -> None:
        replace_json(self._root, "lock", {**self._owner, "until": self._now() + LEASE_SECONDS})

    def check(self) -> None:
        """Raise `StoreBusyError` where another has taken the lease, e.g. while this machine slept."""
        held = self._read()
        if held is not None and held.get("token") != self._token:
            raise _busy(self._root, held)

    def _renew(self, done: threading.Event) -> None:
        while not done.wait(LEASE_SECONDS / 4):
            try:
                self.check()
                self._write()
            except StoreBusyError:
                return
            except OSError:  # the next time will do
                continue

    @contextmanager
    def held(self) -> Iterator[None]:
        held = self._read()
        if held is not None and held.get("until", 0) > self._now():
            raise _busy(self._root, held)
        self._write()
        self.check()
        done = threading.Event()
        keeper = threading.Thread(target=self._renew, args=(done,), name="store-lease", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            done.set()
            keeper.join()
            if (self._read() or {}).get("token") == self._token:
                FileSystems.delete([self._path])


def replace_json(folder: str, name: str, value: Any) -> None:
    """Write a JSON document over one that may be there."""
    path = FileSystems.join(folder, name)
    if folder.startswith("hdfs://") and FileSystems.exists(path):  # its rename does not replace
        FileSystems.delete([path])
    write_json(folder, name, value)
