"""`--log_format json`: each line that a command says as a JSON object, for collectors of logs."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TextIO

_WARNING = re.compile(r"^(?:recrawl[\w -]*: )?WARNING:? ")


class _Lines(io.TextIOBase):
    """A stream whose lines become objects: at, level, message."""

    def __init__(self, inner: TextIO, level: str) -> None:
        self._inner, self._level, self._rest = inner, level, ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._say(line)
        return len(text)

    def _say(self, line: str) -> None:
        if not line.strip():
            return
        warns = _WARNING.match(line)
        said = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": "warning" if warns else self._level,
            "message": line[warns.end() :] if warns else line,
        }
        self._inner.write(json.dumps(said, ensure_ascii=False) + "\n")

    def flush(self) -> None:
        self._inner.flush()

    def finish(self) -> None:
        """Say what has no end of line yet."""
        self.write("\n")
        self.flush()

    def fileno(self) -> int:
        return self._inner.fileno()


@contextmanager
def json_lines(out: bool) -> Iterator[None]:
    """Within it lines on standard error, and where `out` is true on standard output, are JSON objects."""
    before = sys.stdout, sys.stderr
    err = _Lines(sys.stderr, "error")
    sys.stderr = err  # type: ignore[assignment]
    made = [err]
    if out:
        made.append(_Lines(sys.stdout, "info"))
        sys.stdout = made[-1]  # type: ignore[assignment]
    try:
        yield
    finally:
        for stream in made:
            stream.finish()
        sys.stdout, sys.stderr = before
