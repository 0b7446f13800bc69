"""Errors of inputs: files and options that a person has to mend."""

from __future__ import annotations

from collections.abc import Sequence

from policies.numerics.errors import RecrawlError


class InputError(RecrawlError):
    """An input that no row of can be used, or that must not be read in part. Names file and remedy."""


class UnreadableError(InputError):
    """A file that no input could read, whichever it is given to."""


class FolderError(InputError):
    """A folder that cannot be read: nobody knows what of an input is missing."""


class NotLinesError(UnreadableError):
    """A file of JSON that has one object on many lines."""


class NoSiteError(InputError):
    """A log that has paths only, of a site that nobody has told."""


class NoColumnError(InputError):
    """A table that lacks a column that its input needs; `have` are those that it has."""

    def __init__(self, message: str, have: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.have = tuple(have)
