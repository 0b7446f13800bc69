"""Errors of the command line."""

from __future__ import annotations


class OptionsError(ValueError):
    """Options that cannot work. The message lists every problem found, one a line."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class RunnerError(RuntimeError):
    """The runner gave the job up. What it said is the `__cause__`."""
