"""What a run is doing, while it does it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_RUNNER = "apache_beam.runners.portability.fn_api_runner.fn_runner"
_PLAIN = "pipelines.nightly.plain_runner"
_FLINK = "pipelines.nightly.flink"
_ELSEWHERE = "pipelines.nightly.submitting"
QUIET_SECONDS = 60.0
"""Between two counts that go to a file."""
Steps = tuple[tuple[str, str], ...]
# First step of a stage, as the runner names it, and what it means to a person.
_STEPS: Steps = (
    ("Read", "reading and sharding the logs"),
    ("FoldHistory", "folding histories"),
    ("FitPriors", "learning priors"),
    ("EstimateParameters", "estimating change and request rates"),
    ("Begin", "searching the multiplier"),
    ("ShardTotals", "dividing slots"),
    ("SequenceCrawls", "sequencing crawls and writing them"),
    ("WriteManifest", "writing the manifest"),
)


class _Progress(logging.Handler):
    """Turns the runner's stage messages into a few lines; those of a runner elsewhere are lines already."""

    def __init__(self, stream: TextIO, steps: Steps) -> None:
        super().__init__(logging.DEBUG)
        self._clock, self._steps = Clock(stream), steps
        self._next = 0

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.name == _ELSEWHERE:
            self._clock.say(message)
        elif message.startswith("Running "):
            for at in range(len(self._steps) - 1, self._next - 1, -1):
                if self._steps[at][0] in message:
                    self._clock.say(self._steps[at][1])
                    self._next = at + 1
                    return


class Clock:
    """Lines that say what a run is doing, with the seconds since it began."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = self._shown = time.monotonic()

    def say(self, text: str) -> None:
        """A line that stays."""
        print(f"{self._seconds()}  {text}", file=self._stream, flush=True)

    def count(self, done: int, total: int, what: str) -> None:
        """How far it is: on a terminal a line that the next one takes, elsewhere a line now and then."""
        line = f"{self._seconds()}  {done} of {total} {what}"
        if self._stream.isatty():
            gone = "\r\x1b[K" if done == total else ""
            print(f"\r\x1b[K{line}{gone}", end="", file=self._stream, flush=True)
        elif time.monotonic() - self._shown >= QUIET_SECONDS:
            print(line, file=self._stream, flush=True)
            self._shown = time.monotonic()

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._started:7.1f} s"


@contextmanager
def progress(stream: TextIO, steps: Steps = _STEPS) -> Iterator[None]:
    """Show what a run is doing: its stages where it runs in this process, or where Flink tells of them.

    `steps` has the first step of each stage that is shown, and what it means to a person.
    """
    handler = _Progress(stream, steps)
    loggers = [logging.getLogger(name) for name in (_RUNNER, _PLAIN, _FLINK, _ELSEWHERE)]
    before = [(logger, logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, level, propagate in before:
            logger.removeHandler(handler)
            logger.setLevel(level)
            logger.propagate = propagate
