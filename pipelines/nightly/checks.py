"""Options of commands that are not those of a night, turned into values."""

from __future__ import annotations

import argparse
import difflib
import math
import os
from collections.abc import Callable, Collection

from pipelines.command.instants import parse_instant


class Checks:
    """Checks options and gathers what is wrong."""

    def __init__(self, parsed: argparse.Namespace) -> None:
        self._parsed = parsed
        self.problems: list[str] = []

    def value(self, option: str, text: str, low: float, high: float, what: str) -> float:
        """A number in a range."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        problem = f"{option}: expected {what} from {low:g} to {high:g}"
        if not low <= value <= high and problem not in self.problems:
            self.problems.append(problem)
        return value

    def values(self, name: str, low: float, high: float, what: str) -> tuple[float, ...]:
        """Different numbers in a range, ascending."""
        words = self.words(name)
        return tuple(sorted({self.value(f"--{name}={w}", w, low, high, what) for w in words}))

    def whole(self, option: str, text: str, low: int, high: int, what: str) -> int:
        """A whole number in a range."""
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            self.problems.append(f"{option}: expected {what}, a whole number from {low} to {high}")
        return value

    def number(self, name: str, low: int, high: int, what: str) -> int:
        """The same of an option by its name."""
        text = getattr(self._parsed, name)
        return self.whole(f"--{name}={text}", text, low, high, what)

    def instant(self, name: str) -> int | None:
        """A time, microseconds UTC."""
        text = getattr(self._parsed, name)
        if not text:
            return None
        try:
            return parse_instant(text)
        except ValueError:
            self.problems.append(f"--{name}={text}: expected ISO 8601, e.g. 2026-07-01T00:00:00Z")
            return None

    def words(self, name: str) -> tuple[str, ...]:
        """Different words, separated by blanks or commas."""
        given = getattr(self._parsed, name) or ()
        found = tuple(dict.fromkeys(w for text in given for w in text.split(",") if w))
        if given and not found:
            self.problems.append(f"--{name}: names nothing")
        return found

    def names(
        self, option: str, known: Collection[str], more: Callable[[str], bool] | None = None
    ) -> tuple[str, ...]:
        """Words that are known, or of which `more` is true."""
        words = self.words(option)
        for word in words:
            if word not in known and not (more and more(word)):
                self.problems.append(f"--{option}: {word}: choose from {', '.join(known)}{near(word, known)}")
        return words

    @property
    def workers(self) -> int:
        """Processes to use: as many as there are cores, if not said otherwise."""
        if self._parsed.workers is None:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.number("workers", 1, 1024, "processes")


def near(word: str, known: Collection[str]) -> str:
    """What a wrong word may have meant, as the end of a sentence."""
    folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(word.casefold(), folded, 1)
    return f"; did you mean {folded[found[0]]}?" if found else ""
