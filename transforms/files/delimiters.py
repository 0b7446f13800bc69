"""What sets the columns of a table apart: commas, or semicolons or tabs, as spreadsheets export them."""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_BOM = b"\xef\xbb\xbf"


def header_of(text: bytes, delimiter: str) -> list[str]:
    """The names of the columns, by the first line of a table that is not empty."""
    lines = (line.decode("utf-8", "replace") for line in text.removeprefix(_BOM).splitlines(keepends=True))
    try:
        return [name.strip() for name in next(filter(None, csv.reader(lines, delimiter=delimiter)), [])]
    except csv.Error:
        return []


def as_known(header: Sequence[str], known: Collection[str]) -> list[str]:
    """The names of a header, those that differ from a known one by case alone as that: URL as url."""
    lower = [name.lower() for name in header]
    return [
        low if low in known and low not in header and lower.count(low) == 1 else name
        for name, low in zip(header, lower, strict=True)
    ]


def delimiter_of(path: str, text: bytes, key: str) -> str:
    """The delimiter of a table.

    Parameters
    ----------
    path : str
        A name that ends in .tsv says tabs, unless the header has none.
    text : bytes
        The beginning, unpacked, with the whole header.
    key : str
        A column that it must have.

    Returns
    -------
    str
        The first by which the header has that column; if there is none, that of which the header has most.
    """
    tabs = path.removesuffix(".gz").lower().endswith(".tsv")
    names = {
        mark: header_of(text, mark) for mark in sorted(DELIMITERS, key="\t,;".index if tabs else ",;\t".index)
    }
    return next(
        (mark for mark, found in names.items() if key in as_known(found, (key,))),
        max(names, key=lambda m: len(names[m])),
    )
