"""Words of a command line that no option takes: what was likely meant."""

from __future__ import annotations

import argparse
import difflib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipelines.command.errors import OptionsError
from pipelines.door.commands import LOCAL, arguments_of
from pipelines.nightly.arguments import LOCAL_RUNNERS
from pipelines.store import night_options

MAX_NAMED_WORDS = 5


@dataclass(frozen=True)
class Unknown:
    """What to say of words that no option takes.

    Attributes
    ----------
    problems : list of str
    meant : set of str
        Options that were likely meant: that they are missing is no news.
    """

    problems: list[str]
    meant: set[str]

    @contextmanager
    def and_checks(self) -> Iterator[None]:
        """Tell these problems with those that checks find inside, but for what follows from these.

        Raises
        ------
        OptionsError
        """
        problems = self.problems
        try:
            yield
        except OptionsError as error:
            follow = tuple(f"{option} is missing" for option in self.meant)
            problems = problems + [text for text in error.problems if not text.startswith(follow)]
        if problems:
            raise OptionsError(problems)


def unknown_words(
    words: list[str],
    add_arguments: Callable[[argparse.ArgumentParser], None],
    knows: str = "neither recrawl nor Beam knows",
) -> Unknown:
    """Look at words that are no options. A shell makes one pattern into many: they are one problem."""
    if not words:
        return Unknown([], set())
    own = argparse.ArgumentParser(add_help=False)
    add_arguments(own)
    known = own._option_string_actions
    found, stray, meant = [], [], set()
    takes_next = False
    for word in words:
        if not word.startswith("-"):
            if not takes_next:
                stray.append(word)
            takes_next = False
            continue
        name, equals, _ = word.partition("=")
        near = difflib.get_close_matches(name, known, 1)
        takes_next = not equals and not (near and known[near[0]].nargs == 0)
        meant.update(near)
        found.append(_said(word, knows, near))
    if len(stray) > 1 or any(os.path.exists(word) for word in stray):
        more = len(stray) - MAX_NAMED_WORDS
        named = ", ".join(stray[:MAX_NAMED_WORDS]) + (f" and {more} more" if more > 0 else "")
        found.append(
            f"{named}: no options; quote patterns, as in --observations='logs/*', or the shell expands them"
        )
    else:
        found += [_said(word, knows, difflib.get_close_matches(word, known, 1)) for word in stray]
    return Unknown(found, meant)


def _said(word: str, knows: str, near: Sequence[str]) -> str:
    return f"{word}: {knows} this option" + (f"; did you mean {near[0]}?" if near else "")


def unknown_of(command: str, rest: list[str]) -> Unknown:
    """What to say of words that the parser of a command does not know."""
    if command in LOCAL:
        return unknown_words(rest, arguments_of(command), f"recrawl {command} does not know")
    return unknown_words(unknown_options(rest), arguments_of(command))


def unknown_of_night(words: list[str]) -> Unknown:
    """The same of all words of `recrawl night`, whose own parser has not seen them."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    night_options.add_arguments(parser)
    return unknown_of("night", parser.parse_known_args(night_options.split(words)[1])[1])


def unknown_options(rest: list[str]) -> list[str]:
    """Options that neither recrawl nor Beam knows. A portable runner's server may know more: then none."""
    if not rest:
        return []
    # Only who may have misspelt something waits for Beam.
    from apache_beam.options.pipeline_options import PipelineOptions

    from pipelines.nightly.options import NightlyOptions

    known = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for options in PipelineOptions.__subclasses__():
        if options is not NightlyOptions:
            options._add_argparse_args(_Lenient(known))
    found, unknown = known.parse_known_args(rest)
    if str(getattr(found, "runner", None) or "").lower() not in LOCAL_RUNNERS:
        return []
    return unknown


class _Lenient:
    """A parser to which options may be added twice."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def add_argument(self, *names: str, **settings: Any) -> None:
        settings.pop("required", None)
        try:
            self._parser.add_argument(*names, **settings)
        except argparse.ArgumentError:
            pass

    def add_mutually_exclusive_group(self, **_: Any) -> _Lenient:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)
