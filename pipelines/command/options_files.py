"""Options of a command in files, for schedulers whose command lines are hard to read."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from pipelines.command.errors import OptionsError


def with_options_files(argv: Sequence[str]) -> list[str]:
    """The command line with the options of its options files before it.

    Raises
    ------
    OptionsError
        If a file cannot be read.
    """
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--options_file", action="append", default=[])
    found, rest = finder.parse_known_args(list(argv))
    before: list[str] = []
    for path in found.options_file:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as e:
            raise OptionsError([f"--options_file={path}: cannot be read: {e}"]) from None
        for number, line in enumerate(lines, 1):
            try:
                words = shlex.split(line, comments=True)
            except ValueError as e:
                raise OptionsError([f"--options_file={path}: line {number}: {e}"]) from None
            if words and not (words[0].startswith("--") and len(words) <= 2):
                raise OptionsError(
                    [f"--options_file={path}: line {number}: expected one '--name value' or '--name=value'"]
                )
            before += words
    return [*before, *rest]
