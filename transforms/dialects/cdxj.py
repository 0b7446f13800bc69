"""CDXJ of pywb, ipwb, Common Crawl: a key, a time of 14 to 17 digits and a JSON object a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.dialects import Dialect, Source
from transforms.dialects.captures import OTHER_METHOD, Captures, observations, rows_with, url_of_key
from transforms.dialects.json_captures import FIELDS, lines_of, read_records
from transforms.formats import Block
from transforms.normalise import rejected_rows
from transforms.textformats import line_blocks

# Keys may hold blanks and braces: the first time in front of an object ends one.
_TIME = re.compile(rb"(?:^|[ \t])(\d{4,18})[ \t]+(?=\{)")
_HEADER = re.compile(rb"[!@#]|[ \t]?CDXJ?(?:[ \t]\S{1,40}){0,40}$")

Ints = NDArray[np.int64]


def looks_like(path: str, text: bytes) -> bool:
    """Whether a file begins like CDXJ: some of its first lines have a time and an object."""
    if text.startswith((b"PAR1", b"Obj\x01", b"{", b"[")):
        return False
    if path.lower().removesuffix(".gz").endswith(".cdxj"):
        return True
    lines = [line for line in text.split(b"\n")[:20] if line.strip()][:10]
    return any(_is_line(line) for line in lines)


def _is_line(line: bytes) -> bool:
    match = _TIME.search(line)
    return match is not None and len(match[1]) >= 8 and line[match.end() + 1 :].lstrip()[:1] in (b'"', b"}")


@dataclass
class _Lines:
    """The lines of a block.

    Attributes
    ----------
    start, end : int64 (n,)
    brace : int64 (n,)
        Where the object of a line begins, -1 if it has none.
    at : int64 (n,)
        Its time as a number.
    """

    start: Ints
    end: Ints
    brace: Ints
    at: Ints


def read(source: Source) -> Iterator[Block]:
    """Read a CDXJ file."""
    for item in line_blocks(source.path, source.gzip, _apart):
        if isinstance(item, pa.RecordBatch):
            yield item
            continue
        block, line = item
        yield from _read_block(source, block.removeprefix(b"\xef\xbb\xbf") if line == 1 else block, line)


def _apart(before: bytes, after: bytes) -> bool:
    return before.rstrip().endswith(b"}") and _is_line(before) and _is_line(after)


def _read_block(source: Source, block: bytes, line: int) -> Iterator[Block]:
    lines = _find(block)
    odd = np.flatnonzero(lines.brace < 0)
    bad = [i for i in odd.tolist() if not _read_oddly(block, lines, i)]
    if bad:
        yield _rejected(source, block, lines, bad, line)
    use = np.flatnonzero(lines.brace >= 0)
    if not len(use):
        return
    whole = block if block.endswith(b"\n") else block + b"\n"
    objects, keys = lines_of(whole, lines.brace[use], lines.end[use] + 1)
    not_get = rows_with(keys, OTHER_METHOD)
    for found in read_records(objects, FIELDS):
        index = use[found.index]
        if found.columns is None:
            yield _rejected(source, block, lines, index.tolist(), line)
            continue
        columns = dict(found.columns)
        if columns["url"].null_count:
            columns["url"] = _urls(source, columns["url"], block, lines, index)
        dense = index[-1] - index[0] == len(index) - 1
        yield from observations(
            source,
            Captures(
                line + int(index[0]) if dense else line + index,
                columns["url"],
                pa.array(lines.at[index]),
                columns["mime"],
                columns["status"],
                columns["digest"],
                None if not_get is None else not_get[found.index],
            ),
        )


def _find(block: bytes) -> _Lines:
    """The lines of a block, with their times where these stand right before the first brace."""
    data = np.frombuffer(block, np.uint8)
    end = np.flatnonzero(data == 10)
    if len(block) and data[-1] != 10:
        end = np.append(end, len(block))
    start = np.append(0, end[:-1] + 1) if len(end) else np.empty(0, np.int64)
    braces = np.append(np.flatnonzero(data == 123), len(block))
    first = braces[np.searchsorted(braces, start)]
    n = len(start)
    brace, at = np.full(n, -1), np.zeros(n, np.int64)
    todo = np.flatnonzero((first < end) & (first - start >= 15))
    for digits in (14, 17):
        if not len(todo):
            break
        begin = first[todo] - 1 - digits
        number = np.zeros(len(todo), np.int64)
        good = (begin >= start[todo]) & (data[first[todo] - 1] == 32)
        good &= (begin == start[todo]) | (data.take(begin - 1, mode="clip") == 32)
        for j in range(digits):
            digit = data.take(begin + j, mode="clip") - np.uint8(48)
            good &= digit < 10
            number *= 10
            number += digit
        done = todo[good]
        brace[done], at[done] = first[done], number[good]
        todo = todo[~good]
    return _Lines(start, end, brace, at)


def _read_oddly(block: bytes, lines: _Lines, i: int) -> bool:
    """Read one line in full; false if it is to be rejected."""
    raw = block[lines.start[i] : lines.end[i]].rstrip()
    if not raw.strip() or _HEADER.match(raw):
        return True
    match = _TIME.search(raw)
    if match is None:
        return False
    lines.brace[i], lines.at[i] = lines.start[i] + match.end(), int(match[1])
    return True


def _urls(source: Source, url: pa.Array, block: bytes, lines: _Lines, index: Ints) -> pa.Array:
    """URLs, made from the key where the object has none."""
    missing = np.flatnonzero(url.is_null())
    made = []
    for i in index[missing].tolist():
        raw = block[lines.start[i] : lines.brace[i]].strip()
        key = raw[: -len(str(lines.at[i]))].strip() if lines.at[i] else raw
        made.append(url_of_key(key.decode("utf-8", "replace")))
    if source.notes is not None:
        source.notes.add(f"{source.kind.name}_urls_from_keys", sum(u is not None for u in made))
    return pc.replace_with_mask(url, url.is_null(), pa.array(made, pa.string()))


def _rejected(source: Source, block: bytes, lines: _Lines, index: list[int], line: int) -> pa.RecordBatch:
    texts = [block[lines.start[i] : lines.end[i]][:400].decode("utf-8", "replace").strip() for i in index]
    return rejected_rows(source.path, [line + i for i in index], "not_cdxj", texts)


DIALECT = Dialect(
    "cdxj", "observations", "CDXJ files of web archives: pywb, ipwb, Common Crawl", looks_like, read
)
