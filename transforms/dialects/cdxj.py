"""CDXJ of pywb, ipwb, Common Crawl: a key, a time of 14 to 17 digits and a JSON object a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from transforms.dialects import Dialect, Source
from transforms.dialects.captures import OTHER_METHOD, Captures, joined, observations, rows_with, url_of_key
from transforms.dialects.json_captures import FIELDS, read_records
from transforms.dialects.json_strings import Plain, read_plain, slices
from transforms.dialects.text_blocks import line_blocks, of_each
from transforms.files.blocks import Block
from transforms.rows.normalise import rejected_rows

# Keys may hold blanks and braces: the first time in front of an object ends one.
_TIME = re.compile(rb"(?:^|[ \t])(\d{4,18})[ \t]+(?=\{)")
_HEADER = re.compile(rb"[!@#]|[ \t]?CDXJ?(?:[ \t]\S{1,40}){0,40}$")

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


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
    """Lines of a block.

    Attributes
    ----------
    number : int64 (n,)
        As the file counts them.
    start, end : int64 (n,)
    brace : int64 (n,)
        Where the object of a line begins, -1 if it has none.
    at : int64 (n,)
        Its time as a number.
    """

    number: Ints
    start: Ints
    end: Ints
    brace: Ints
    at: Ints


def read(source: Source) -> Iterator[Block]:
    """Read a CDXJ file."""
    return of_each(line_blocks(source.path, source.gzip, _apart), partial(_read_block, source))


def _apart(before: bytes, after: bytes) -> bool:
    return before.rstrip().endswith(b"}") and _is_line(before) and _is_line(after)


def _read_block(source: Source, block: bytes, line: int) -> Iterator[Block]:
    """Read the plain lines by their quotes, and the rest in full."""
    block = block.removeprefix(b"\xef\xbb\xbf") if line == 1 else block
    data = np.frombuffer(block, np.uint8)
    end = np.flatnonzero(data == 10)
    if len(block) and data[-1] != 10:
        end = np.append(end, len(block))
    start = np.append(0, end[:-1] + 1)[: len(end)]
    plain = read_plain(block, end, FIELDS)
    good, at = _times(data, start[plain.index], plain.brace)
    good &= _simple(block, start[plain.index], plain)
    index, columns = plain.index, dict(plain.columns)
    if not good.all():
        index, at = index[good], at[good]
        columns = {name: array.filter(pa.array(good)) for name, array in columns.items()}
    pieces = [Captures(line + index, at=pa.array(at), **columns)] if len(index) else []
    others = end > start
    others[index] = False
    if others.any():
        rest = np.flatnonzero(others)
        none = np.full(len(rest), -1)
        lines = _Lines(line + rest, start[rest], end[rest], none, none.copy())
        for piece in _read_rest(source, block, lines):
            if isinstance(piece, Captures):
                pieces.append(piece)
            else:
                yield piece
    if pieces:
        yield from observations(source, joined(pieces))


def _simple(block: bytes, start: Ints, plain: Plain) -> Mask:
    """Which plain objects have a URL, and a key in front that holds nothing to look into."""
    simple = np.asarray(plain.columns["url"].is_valid())
    keys = slices(block, start, plain.brace)
    for mark in (b"{", OTHER_METHOD):
        marked = rows_with(keys, mark)
        if marked is not None:
            simple &= ~marked
    return simple


def _read_rest(source: Source, block: bytes, lines: _Lines) -> Iterator[Captures | pa.RecordBatch]:
    _find(block, lines)
    odd = np.flatnonzero(lines.brace < 0)
    bad = [i for i in odd.tolist() if not _read_oddly(block, lines, i)]
    if bad:
        yield _rejected(source, block, lines, bad)
    use = np.flatnonzero(lines.brace >= 0)
    if not len(use):
        return
    whole = block if block.endswith(b"\n") else block + b"\n"
    not_get = rows_with(slices(block, lines.start[use], lines.brace[use]), OTHER_METHOD)
    objects = slices(whole, lines.brace[use], lines.end[use] + 1, pa.binary())
    for found in read_records(objects, FIELDS):
        index = use[found.index]
        if found.columns is None:
            yield _rejected(source, block, lines, index.tolist())
            continue
        columns = dict(found.columns)
        if columns["url"].null_count:
            columns["url"] = _urls(source, columns["url"], block, lines, index)
        some = None if not_get is None else not_get[found.index]
        yield Captures(lines.number[index], at=pa.array(lines.at[index]), not_get=some, **columns)


def _find(block: bytes, lines: _Lines) -> None:
    """Set braces and times of lines that have their time right before the first brace."""
    data = np.frombuffer(block, np.uint8)
    braces = np.append(np.flatnonzero(data == 123), len(block))
    first = braces[np.searchsorted(braces, lines.start)]
    todo = np.flatnonzero(first < lines.end)
    good, at = _times(data, lines.start[todo], first[todo])
    lines.brace[todo[good]], lines.at[todo[good]] = first[todo[good]], at[good]


def _times(data: NDArray[np.uint8], start: Ints, brace: Ints) -> tuple[Mask, Ints]:
    """Which lines have 14 or 17 digits and a blank right before their object, and these as numbers."""
    good, at = np.zeros(len(start), np.bool_), np.zeros(len(start), np.int64)
    todo = np.flatnonzero(brace - start >= 15)
    for digits in (14, 17):
        if not len(todo):
            break
        begin = brace[todo] - 1 - digits
        number = np.zeros(len(todo), np.int64)
        fits = (begin >= start[todo]) & (data[brace[todo] - 1] == 32)
        fits &= (begin == start[todo]) | (data.take(begin - 1, mode="clip") == 32)
        for j in range(digits):
            digit = data.take(begin + j, mode="clip") - np.uint8(48)
            fits &= digit < 10
            number *= 10
            number += digit
        done = todo[fits]
        good[done], at[done] = True, number[fits]
        todo = todo[~fits]
    return good, at


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


def _rejected(source: Source, block: bytes, lines: _Lines, index: list[int]) -> pa.RecordBatch:
    texts = [block[lines.start[i] : lines.end[i]][:400].decode("utf-8", "replace").strip() for i in index]
    return rejected_rows(source.path, lines.number[index].tolist(), "not_cdxj", texts)


DIALECT = Dialect(
    "cdxj", "observations", "CDXJ files of web archives: pywb, ipwb, Common Crawl", looks_like, read
)
