"""Options of a job in a TOML file, `--config`: what stands on the command line wins."""

from __future__ import annotations

import argparse
import difflib
import re
import tomllib
from collections.abc import Sequence
from datetime import date
from typing import Any

from pipelines.command.errors import OptionsError
from pipelines.door.commands import arguments_of
from pipelines.door.unknown import unknown_options


def with_config(command: str, arguments: Sequence[str]) -> list[str]:
    """A command line with the options of its `--config` before its own.

    Raises
    ------
    OptionsError
        The file cannot be read, or has keys or values that no option takes: all of them.
    """
    after = list(arguments).index(command) + 1
    finder = argparse.ArgumentParser(prog=f"recrawl {command}", add_help=False, allow_abbrev=False)
    finder.add_argument("--config")
    found, rest = finder.parse_known_args(list(arguments[after:]))
    if found.config is None:
        return list(arguments)
    return [*arguments[:after], *_words(command, found.config, rest), *rest]


def _words(command: str, path: str, rest: list[str]) -> list[str]:
    try:
        with open(path, "rb") as file:
            text = file.read().decode()
        values = tomllib.loads(text)
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        if isinstance(error, UnicodeDecodeError):
            why = "not UTF-8 text; save it as UTF-8"
        hint = "; recrawl init writes one" if isinstance(error, FileNotFoundError) else ""
        raise OptionsError([f"--config={path}: cannot be read: {why}{hint}"]) from None
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    arguments_of(command)(parser)
    words: list[str] = []
    problems: list[str] = []
    for key, value in values.items():
        name = "--" + key.replace("-", "_")
        option = parser._option_string_actions.get(name)
        given, wrong = _as_words(name, option, value)
        if option is None and (given or [name])[0] in unknown_options([*(given or [name]), *rest]):
            near = difflib.get_close_matches(name, parser._option_string_actions, 1)
            hint = f"; did you mean {near[0].removeprefix('--')}?" if near else ""
            wrong = f"neither recrawl {command} nor Beam has an option of this name{hint}"
        words += given
        if wrong:
            problems.append(f"--config={path}: line {_line(text, key)}: {key}: {wrong}")
    if problems:
        raise OptionsError(problems)
    return words


def _as_words(name: str, option: argparse.Action | None, value: Any) -> tuple[list[str], str]:
    """What a key says in words of a command line; or what its value should be."""
    if isinstance(value, bool) and (option is None or option.nargs == 0):
        return [name] if value else [], ""
    if option is not None and option.nargs == 0:
        return [], f"{value!r} is not true or false, and the option takes no other value"
    if isinstance(value, dict):
        pairs = [f"{ours}={theirs}" for ours, theirs in value.items() if isinstance(theirs, str)]
        if name.endswith("_columns") and len(pairs) == len(value):
            return [f"{name}={','.join(pairs)}"], ""
        return (
            [],
            "a table is for columns alone, such as observations_columns = { fetched_at = 'crawl_time' }",
        )
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, bool | list | dict) for item in items):
        return [], f"{value!r} is not a text, a number or a list of them"
    texts = [item.isoformat() if isinstance(item, date) else str(item) for item in items]
    if option is None:  # Beam has options that are given once for each value
        return [f"{name}={text}" for text in texts], ""
    return [f"{name}={','.join(texts)}"], ""


def _line(text: str, key: str) -> int:
    """Of a key at the top of a document; 0 where its spelling hides it."""
    found = re.search(rf"(?m)^[ \t]*\[?[ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*[=.\]]", text)
    return text.count("\n", 0, found.start()) + 1 if found else 0
