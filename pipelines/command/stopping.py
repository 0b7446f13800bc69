"""Ctrl-C and SIGTERM: a command ends at once, says so in one line, and leaves no process behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from pipelines.command.exit_codes import BY_SIGNAL

INTERRUPTED = "recrawl: interrupted; results are not complete"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
POLL_SECONDS = 0.2


@dataclass
class Heard:
    """The signal that came; 0: none."""

    number: int = 0


@contextmanager
def _handled(signals: Sequence[int], handler: Callable[[int], None]) -> Iterator[None]:
    """Only the main thread may set handlers; a signal that is ignored, as under nohup, stays ignored."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {n: old for n in signals if (old := signal.getsignal(n)) != signal.SIG_IGN}
    for number in before:
        signal.signal(number, lambda came, _: handler(came))
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def heard() -> Iterator[Heard]:
    """Within it SIGINT and SIGTERM raise KeyboardInterrupt, and which one came is kept.

    Beam turns an interrupt into an error of the step that it met, so the exception alone does not tell.
    """
    found = Heard()

    def stop(number: int) -> NoReturn:
        found.number = number
        raise KeyboardInterrupt

    with _handled(SIGNALS, stop):
        yield found


@contextmanager
def at_once() -> Iterator[None]:
    """Within it SIGINT and SIGTERM end this process on the spot.

    Unwinding would wait for Beam's workers, which end their work first, be it hours. They notice that this
    process is gone: `end_with`.
    """

    def stop(number: int) -> NoReturn:
        print(INTERRUPTED, file=sys.stderr, flush=True)
        os._exit(BY_SIGNAL + number)

    with _handled(SIGNALS, stop):
        yield


@contextmanager
def later() -> Iterator[None]:
    """Signals that come within it are heard at its end: a second Ctrl-C does not undo the first."""
    came: list[int] = []
    with _handled(SIGNALS, came.append):
        yield
    for number in came[:1]:
        signal.raise_signal(number)


def is_interrupt(error: BaseException | None) -> bool:
    """Whether an error is a signal's, or what others made of that."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes that are started within it hear no Ctrl-C: their parent does, and ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with(parent: int) -> None:
    """Let this process end soon after its parent, however that ended."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="end_with_parent", daemon=True).start()
