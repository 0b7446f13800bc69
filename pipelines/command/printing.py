"""What commands print, to readers that may go away: `| head`, a `logger` that dies, a closed terminal."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pipelines.command.exit_codes import BY_SIGNAL
from policies.numerics.errors import RecrawlError

EXIT_UNREAD = BY_SIGNAL + signal.SIGPIPE
"""Of a command that stops since nobody reads on: 141, as shells know it of other tools."""
_STREAMS = ("stdout", "stderr")


class _Outlet(io.FileIO):
    """A descriptor that leads nowhere once its reader is gone; a command that only prints ends with that."""

    def __init__(self, number: int, only_prints: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._only_prints = only_prints

    def write(self, data: Any) -> int:
        """Write, or lose what is written.

        Raises
        ------
        SystemExit
            The reader is gone, and the command has no other result.
        RecrawlError
            Of a command that only prints: its output failed in another way, such as a full disk.
        """
        try:
            return super().write(data)
        except OSError as error:
            # Also what is still in buffers, and what processes that start later print.
            _lead_nowhere(self.fileno())
            if self._only_prints and not isinstance(error, BrokenPipeError):
                raise RecrawlError(
                    f"standard {('output', 'error')[self.fileno() - 1]} cannot be written: {error.strerror}; "
                    "what is printed is not complete"
                ) from None
            if self._only_prints:
                raise SystemExit(EXIT_UNREAD) from None
            return memoryview(data).nbytes


@contextmanager
def lasting(only_prints: bool) -> Iterator[None]:
    """Within it standard output and error may lose their readers.

    Parameters
    ----------
    only_prints : bool
        Whether the command has no result but what it prints. It then ends with `EXIT_UNREAD` where it prints
        on; any other goes on to its end, and what it prints is lost.
    """
    _open_closed()
    with ExitStack() as stack:
        for name in _STREAMS:
            stack.enter_context(_replaced(name, only_prints))
        yield


@contextmanager
def _replaced(name: str, only_prints: bool) -> Iterator[None]:
    """Only the streams of the process itself: not those of a test or a notebook."""
    before = getattr(sys, name)
    if before is not getattr(sys, f"__{name}__"):
        yield
        return
    outlet = io.BufferedWriter(_Outlet(_STREAMS.index(name) + 1, only_prints))
    if before is None:
        stream = io.TextIOWrapper(outlet, "utf-8", "backslashreplace")
    else:
        before.flush()
        stream = io.TextIOWrapper(
            outlet,
            before.encoding,
            before.errors,
            line_buffering=before.line_buffering,
            write_through=before.write_through,
        )
    setattr(sys, name, stream)
    try:
        yield
    finally:
        try:
            stream.flush()
        except RecrawlError as error:  # in time for nobody else to tell it
            print(f"recrawl: {error}", file=sys.__stderr__)
            raise SystemExit(1) from None
        finally:
            setattr(sys, name, before)


def _open_closed() -> None:
    """Where a standard stream is closed, a file of the night would take its number, and its messages."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            _lead_nowhere(number)


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(nowhere, number)
        os.close(nowhere)
