"""Formats that crawlers, archives and web servers write, each read as one kind of input.

A dialect is a module with a `DIALECT`, and with `PAGES` or `SOURCES` if its files list these as well. It
yields raw blocks with recrawl's own columns (or some of them), as `transforms.intake.formats` does of
canonical files; `transforms.rows.normalise` then checks values, whoever read them.

Uses `batches`, `files` and `rows`. Start here, then with `scrapy`, which is short.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from transforms.batches.tally import Counts
from transforms.rows.normalise import Kind

if TYPE_CHECKING:
    from transforms.files.blocks import Block

AUTO, CANONICAL = "auto", "canonical"
_MODULES: tuple[str, ...] = (
    "commoncrawl",
    "cdxj",
    "cdx_json",
    "cdx",
    "crawl_log",
    "heritrix_links",
    "scrapy_links",
    "fetched_files",
    "wat",
    "nutch_links",
    "nutch",
    "stormcrawler",
    "urlfrontier",
    "lambdacrawl",
    "changedetection",
    "scrapy",
    "w3c",
    "access_log",
    "search_console",
    "robots",
)
"""In the order in which they are asked whether a file is theirs."""


@dataclass(frozen=True)
class Source:
    """A file to read, and how.

    Attributes
    ----------
    path : str
    gzip : bool
    kind : Kind
    options : mapping of str to str
        What the file does not say of itself, such as the site of an access log.
    notes : Counts or None
        Gets what is left out.
    groups : tuple of int
        For dialects that are Parquet the first row group and the one after the last.
    row : int
        Number of the first row of the first row group.
    """

    path: str
    gzip: bool
    kind: Kind
    options: Mapping[str, str] = field(default_factory=dict)
    notes: Counts | None = None
    groups: tuple[int, int] = (0, 0)
    row: int = 0

    def leave_out(self, reason: str, rows: int) -> None:
        """Count rows that are sound and not of use: neither accepted nor rejected."""
        if rows and self.notes is not None:
            self.notes.add(f"{self.kind.name}_left_out_{reason}", rows)


@dataclass(frozen=True)
class Dialect:
    """A format.

    Attributes
    ----------
    name : str
        As in `--observations_format`.
    kind : str
        Of input: observations, requests, hosts, pages, links_seen, sources.
    what : str
        For people: whose it is.
    looks_like : function of (path, text)
        Whether the first bytes of a file, unpacked and without a byte order mark, are of this format. It must
        be sure: a canonical file is asked, too.
    read : function of a Source
        Raw blocks, and batches of `schemas.REJECTED`, in the order of the file, in bounded memory.
    by_groups : bool
        Whether files are Parquet, and `read` takes `Source.groups` of them at a time.
    """

    name: str
    kind: str
    what: str
    looks_like: Callable[[str, bytes], bool]
    read: Callable[[Source], Iterator[Block]]
    by_groups: bool = False


@functools.cache
def dialects() -> dict[tuple[str, str], Dialect]:
    """All dialects by kind of input and name; a dump of a store may be read as two kinds."""
    modules = [importlib.import_module(f"transforms.dialects.{name}") for name in _MODULES]
    found = [getattr(module, name, None) for module in modules for name in ("DIALECT", "PAGES", "SOURCES")]
    return {(dialect.kind, dialect.name): dialect for dialect in found if dialect is not None}


def names(kind: str) -> tuple[str, ...]:
    """What `--..._format` of an input may be."""
    return (AUTO, CANONICAL, *(name for of, name in dialects() if of == kind))


def detect(kind: str, path: str, text: bytes) -> str | None:
    """The dialect that a file begins like, None if none."""
    text = text.removeprefix(b"\xef\xbb\xbf")
    for dialect in dialects().values():
        if dialect.kind == kind and dialect.looks_like(path, text):
            return dialect.name
    return None
