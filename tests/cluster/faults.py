"""Faults inside a worker. `inject/sitecustomize.py` has every Python that starts with `fault()` import this.

$RECRAWL_FAULT says what goes wrong, as "PLACE:DEED:MARK". It does so in the first process that comes to the
place, which leaves its number in the file MARK; where that is there, all goes well. "fail" does so always.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "RECRAWL_FAULT"
PLACES = ("read", "fold", "search", "write", "manifest")
DEEDS = ("kill", "stop", "work", "fail once", "fail")
WORK_SECONDS = 45.0  # twice the silence that tests allow


def fault(place: str, deed: str, mark: Path) -> dict[str, str]:
    """Environment variables that bring a fault into a worker."""
    assert place in PLACES and deed in DEEDS
    inject = Path(__file__).parent / "inject"
    return {"PYTHONPATH": f"{inject}{os.pathsep}{ROOT}", VARIABLE: f"{place}:{deed}:{mark}"}


def strike(deed: str, mark: str) -> None:
    """Do it, unless it has been done."""
    if deed == "fail":
        Path(mark).touch()
    else:
        draft = f"{mark}.{os.getpid()}.{threading.get_ident()}"  # a worker of Flink has a thread a slot
        Path(draft).write_text(str(os.getpid()))
        try:
            os.link(draft, mark)
        except FileExistsError:
            return
        finally:
            os.unlink(draft)
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif deed == "stop":
        # A signal to the process is another thread's to take, and this one would go on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif deed == "work":
        end = time.monotonic() + WORK_SECONDS
        while time.monotonic() < end:
            sum(range(1000))
    else:
        raise OSError("the test's fault")


def _between(function: Callable[..., Any], do: Callable[[], None]) -> Callable[..., Any]:
    """A generator function with something between its first output and the next."""

    @wraps(function)
    def struck(*args: Any, **kwargs: Any) -> Iterator[Any]:
        outputs = iter(function(*args, **kwargs))
        yield from itertools.islice(outputs, 1)
        do()
        yield from outputs

    return struck


def install(place: str, deed: str, mark: str) -> None:
    """Put a fault in its place."""
    from policies.optimum import search
    from transforms.files import sinks
    from transforms.intake import reading
    from transforms.night import folding

    def do() -> None:
        strike(deed, mark)

    if place == "read":
        reading.read_split = _between(reading.read_split, do)
    elif place == "fold":
        folding.FoldHistory.process = _between(folding.FoldHistory.process, do)
    elif place == "search":
        demand = search.demand

        @wraps(demand)
        def struck(*args: Any, **kwargs: Any) -> Any:
            do()
            return demand(*args, **kwargs)

        search.demand = struck
    else:  # the temporary file is whole, the final one is not there
        rename = sinks.FileSystems.rename

        def renamed(sources: list[str], targets: list[str]) -> None:
            if targets[0].endswith("manifest.json") == (place == "manifest"):
                do()
            rename(sources, targets)

        sinks.FileSystems.rename = staticmethod(renamed)


if VARIABLE in os.environ:
    install(*os.environ[VARIABLE].split(":", 2))
