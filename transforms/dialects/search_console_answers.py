"""Answers of Search Console's API as they came: laid out or not, one or many a file, or their rows alone.

A row is `{"keys":[...],"clicks":...}`, and has no object within it. So rows are found without reading the
whole of an answer, however long it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.batches.errors import InputError
from transforms.dialects import Source
from transforms.dialects.search_console_days import DAY
from transforms.files.blocks import Block, RawBlock
from transforms.files.unpacking import Problem
from transforms.rows.normalise import rejected_file, rejected_rows

API_ROW_LIMITS = (1000, 25_000)
"""Rows that an answer has at most: unless asked for more, and ever."""
CHUNK_BYTES = MAX_ROW_BYTES = 1 << 20
# A line end is in no string, so that one which is not closed ends there. Possessive: linear in any text.
_OPEN_STRING = rb'"(?>[^"\\\n]++|\\[^\n])*+'
_INSIDE = rb'\{(?>[^{}"]++|' + _OPEN_STRING + rb'")*+'
_OBJECT = re.compile(_INSIDE + rb"\}")
_TOKEN = re.compile(
    rb"(?P<object>" + _OBJECT.pattern + rb")"
    # What the end of the text may have cut.
    rb"|(?P<cut>(?:" + _INSIDE + rb")?(?:" + _OPEN_STRING + rb"\\?)?\Z)"
    rb"|(?P<begin>[\[{])|(?P<end>[\]}])"
    rb"|" + _OPEN_STRING + rb'"|[\s,:]++|[-+.\w]++|(?P<odd>[^\n])'
)
_COUNTS = ("clicks", "impressions")
_ABOUT = {"responseAggregationType", "metadata", "first_incomplete_date", "first_incomplete_hour"}
_ABOUT |= {"firstIncompleteDate", "firstIncompleteHour"}
URL = re.compile(r"https?://", re.IGNORECASE)
Row = tuple[int, dict[str, Any]]


def looks_like(text: bytes) -> bool:
    """Whether the first object that has none within it is a row of an answer, or all are about one."""
    if not text.lstrip().startswith((b"{", b"[")):
        return False
    about = False
    for found in _OBJECT.finditer(text):
        one = _loads(found[0])
        if not one or not one.keys() <= _ABOUT:
            return one is not None and _is_row(one)
        about = True
    return about


def _loads(text: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _is_row(one: dict[str, Any]) -> bool:
    return isinstance(one.get("keys"), list) and any(name in one for name in _COUNTS)


def read(
    source: Source, chunks: Iterator[bytes], problem: Problem, day: Callable[[], str]
) -> Iterator[Block]:
    """Rows of all answers of a file, in memory that does not grow with it.

    Parameters
    ----------
    chunks : iterator of bytes
        The file, unpacked.
    problem : Problem
        Why the chunks ended early.
    day : function
        The day on which rows count that have no date; asked only if there are such.

    Raises
    ------
    InputError
        If none or several of the keys of the first rows may be the page, or the date.
    """
    places: tuple[int, int, int | None] | None = None
    undated = ""
    total = 0
    for rows, refused in _objects(source.path, chunks, problem):
        if refused is not None:
            yield refused
        if not rows:
            continue
        if places is None:
            places = _places(source.path, [one["keys"] for _, one in rows])
            undated = day() if places[2] is None else ""
        width, page, date = places
        total += len(rows)
        wrong = [(number, one) for number, one in rows if len(one["keys"]) != width]
        if wrong:
            samples = [f"{len(one['keys'])} keys, expected {width}: {one['keys']}" for _, one in wrong]
            yield rejected_rows(source.path, [number for number, _ in wrong], "column_count", samples)
            rows = [(number, one) for number, one in rows if len(one["keys"]) == width]
        columns = {
            "url": [_text(one["keys"][page]) for _, one in rows],
            "day": [undated if date is None else _text(one["keys"][date]) for _, one in rows],
        }
        for name in _COUNTS:
            columns[name] = [_text(one.get(name)) for _, one in rows]
        batch = pa.RecordBatch.from_pydict({n: pa.array(c, pa.string()) for n, c in columns.items()})
        numbers = np.array([number for number, _ in rows], np.int64)
        yield RawBlock(batch, lambda numbers=numbers: numbers)  # type: ignore[misc]
    if total in API_ROW_LIMITS and source.notes is not None:
        source.notes.add(f"{source.kind.name}_gsc_truncated", 1)


def _objects(
    path: str, chunks: Iterator[bytes], problem: Problem
) -> Iterator[tuple[list[Row], pa.RecordBatch | None]]:
    """Rows and the number of the line on which each begins; beside them what is none.

    Each object that is no row is rejected, what is no JSON once a line.
    """
    rest, line, depth, sound, first, told = b"", 1, 0, True, True, 0
    for chunk in _larger(chunks):
        text = rest + (chunk.removeprefix(b"\xef\xbb\xbf") if first else chunk)
        first = False
        rows: list[Row] = []
        bad: list[tuple[int, str]] = []
        at = counted = 0
        for token in _TOKEN.finditer(text):
            kind = token.lastgroup
            if kind == "cut":
                break
            at = token.end()
            if kind == "begin":
                depth += 1
            elif kind == "end":
                depth -= 1
            elif kind is not None:
                line += text.count(b"\n", counted, token.start())
                counted = token.start()
                one = _loads(token[0]) if kind == "object" else None
                if one is not None and _is_row(one):
                    rows.append((line, one))
                elif kind == "object" and (one is None or not one.keys() <= _ABOUT):
                    bad.append((line, _line_at(text, token.start())))
                elif kind == "odd" and line != told:
                    bad.append((line, _line_at(text, token.start())))
                    sound, told = False, line
        rest = text[at:]
        line += text.count(b"\n", counted, at)
        lines, samples = [number for number, _ in bad], [sample for _, sample in bad]
        yield rows, rejected_rows(path, lines, "bad_json", samples) if bad else None
        if len(rest) > MAX_ROW_BYTES:
            sample = rest[:200].decode("utf-8", "replace")
            yield [], rejected_rows(path, [line], "line_too_long", [sample])
            line += rest.count(b"\n")
            rest, sound = b"", False
    if problem.reason:
        yield [], rejected_file(path, problem.reason, problem.sample)
    elif rest.strip() or (depth and sound):
        yield [], rejected_rows(path, [line], "truncated_file", [rest[:200].decode("utf-8", "replace")])


def _larger(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Chunks together, so that what is left over from one is not looked at for every few bytes more."""
    held: list[bytes] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _line_at(text: bytes, at: int) -> str:
    begin = max(text.rfind(b"\n", 0, at) + 1, at - 200)
    return text[begin : at + 200].split(b"\n", 1)[0].decode("utf-8", "replace")


def _places(path: str, keys: list[list[Any]]) -> tuple[int, int, int | None]:
    """How many keys a row has, and which of them is the page, and which, if any, the date.

    An answer does not name its dimensions. A search may be for a URL or a day, too, but most are for neither.
    """
    lengths = [len(row) for row in keys]
    width = max(set(lengths), key=lengths.count)
    rows = [row for row in keys if len(row) == width]
    page = _place(rows, URL.match)
    date = _place(rows, DAY.fullmatch)
    if len(page) != 1 or len(date) > 1:
        what = "which key is the page" if len(page) != 1 else "which key is the date"
        raise InputError(
            f"{path}: an answer of Search Console's API with {width} keys a row, {rows[0]!r:.200}, which "
            f"does not tell {what}. Ask it for the dimensions date and page, no others"
        )
    return width, page[0], date[0] if date else None


def _place(rows: list[list[Any]], is_one: Callable[[str], Any]) -> list[int]:
    """The keys that are such in more rows than others, and in more than half of all."""
    counts = [
        sum(isinstance(key, str) and bool(is_one(key)) for key in column)
        for column in zip(*rows, strict=True)
    ]
    most = max(counts, default=0)
    return [i for i, n in enumerate(counts) if n == most and 2 * n > len(rows)]


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "replace").decode()
