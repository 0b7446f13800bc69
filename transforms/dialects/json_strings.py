"""Objects that hold nothing but plain strings, one a line, read by where their quotes stand.

Most lines of capture indexes end in such an object. A JSON reader looks at every character of every value,
wanted or not; here quotes are searched for, and what stands between them is checked for all lines at once.
A line that is not entirely plain (an escape, a number, another name of a wanted field) is for a JSON reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_TEXT = pa.string()
_LONGEST = 31
_OTHER_NAME = 255


@dataclass(frozen=True)
class Plain:
    """Lines whose object is plain, k of n.

    Attributes
    ----------
    index : int64 (k,)
        Which lines.
    brace : int64 (k,)
        Where in the block their objects begin.
    columns : dict of str to pa.Array of text (k,)
        The wanted fields; null where an object lacks one.
    """

    index: Ints
    brace: Ints
    columns: Mapping[str, pa.Array]


def read_plain(block: bytes, end: Ints, fields: Mapping[str, tuple[str, ...]]) -> Plain:
    """Read the plain ones among the objects at the ends of lines.

    An object is plain if it begins with the line's first quote, all its values are strings without escapes
    in printable ASCII, at most one blank follows a colon or a comma, and no wanted field stands in it twice
    or under another name than its usual one. A JSON reader finds the same in such a line.

    Parameters
    ----------
    block : bytes
        Whole lines.
    end : int64 (n,), ascending
        Where lines end (exclusive, without the line feed), of all lines of the block.
    fields : mapping of str to tuple of str
        Columns, and the names that they may have, the usual one first; names may share no pair of length
        and first letter.
    """
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    last = np.searchsorted(quotes, end)
    first = np.append(0, last[:-1])
    index = np.flatnonzero((last > first) & ((last - first) % 4 == 0))
    tail = end[index]
    fits = (quotes[last[index] - 1] == tail - 2) & (data[tail - 1] == ord("}"))
    fits &= data[quotes[first[index]] - 1] == ord("{")
    odd = _odd(block, data, len(end))
    if odd is not None:
        before = np.searchsorted(odd, end)
        fits &= (before == np.append(0, before[:-1]))[index]
    index = index[fits]
    first, last = first[index], last[index]
    size = (last - first) // 4
    if int(size.sum()) * 4 != len(quotes):
        quotes = quotes[
            np.arange(int(size.sum()) * 4) + np.repeat(first - 4 * (np.cumsum(size) - size), size * 4)
        ]
    good, columns = _objects(block, data, quotes, size, fields)
    brace = quotes[4 * (np.cumsum(size) - size)] - 1
    return Plain(index[good], brace[good], columns)


def _odd(block: bytes, data: Bytes, lines: int) -> Ints | None:
    """Where characters stand that no plain line may have, None if nowhere."""
    feeds = lines - (not block.endswith(b"\n"))
    if block.isascii() and b"\\" not in block and np.count_nonzero(data < 32) == feeds:
        return None
    odd = (data < 32) & (data != 10) | (data >= 128) | (data == ord("\\"))
    return np.flatnonzero(odd)


def _objects(
    block: bytes, data: Bytes, quotes: Ints, size: Ints, fields: Mapping[str, tuple[str, ...]]
) -> tuple[Mask, dict[str, pa.Array]]:
    """Which of m objects are plain, by all their quotes and how many fields each has; and their columns."""
    name, value = quotes[0::4], quotes[2::4]
    length = quotes[1::4] - name - 1
    final = np.cumsum(size) - 1
    after = data[quotes[1::2] + 1]
    blank = data.take(quotes[1::2] + 2, mode="clip")
    gap = np.append(quotes[2::2], 0) - quotes[1::2]
    signs = np.empty(len(after), np.uint8)
    signs[0::2], signs[1::2] = ord(":"), ord(",")
    bad = (after != signs) | ((gap != 2) & ((gap != 3) | (blank != ord(" "))))
    bad[2 * final + 1] = False
    bad = bad[0::2] | bad[1::2]
    kind = _kinds(tuple(fields.values()))[np.minimum(length, _LONGEST) * 256 + data[name + 1]]
    bad |= kind == _OTHER_NAME
    line = np.repeat(np.arange(len(size)), size)
    wanted = {}
    for number, (field, names) in enumerate(fields.items(), 1):
        index = np.flatnonzero(kind == number)
        begin = name[index] + 1
        same = np.ones(len(index), np.bool_)
        for j, letter in enumerate(names[0].encode()[1:], 1):
            same &= data[begin + j] == letter
        if not same.all():
            index = index[same]
        at = line[index]
        bad[index[1:][at[1:] == at[:-1]]] = True
        wanted[field] = index
    good = np.ones(len(size), np.bool_)
    good[line[bad]] = False
    return good, {
        field: _column(slices(block, value[index] + 1, quotes[3::4][index]), line[index], good)
        for field, index in wanted.items()
    }


@cache
def _kinds(fields: tuple[tuple[str, ...], ...]) -> Bytes:
    """By length and first letter of a name: number of the field it may be, another name of one, or 0."""
    kinds = np.zeros((_LONGEST + 1) * 256, np.uint8)
    for number, names in enumerate(fields, 1):
        for i, name in enumerate(names):
            kinds[len(name) * 256 + ord(name[0])] = _OTHER_NAME if i else number
    return kinds


def slices(block: bytes, start: Ints, end: Ints, kind: pa.DataType = _TEXT) -> pa.Array:
    """Pieces of a block, as texts or binary values that lie one after the other in one buffer.

    Parameters
    ----------
    block : bytes
        Of less than 2 GiB.
    start, end : int64 (n,), ascending
        Where pieces begin and end; they do not overlap.
    """
    n = len(start)
    edges = np.empty(2 * n + 1, np.int32)
    edges[0], edges[1::2], edges[2::2] = 0, start, end
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(block)]
    both = pa.Array.from_buffers(kind, 2 * n, buffers)
    # Gaps and pieces take turns. Taking the pieces puts them one after the other, in one copy.
    return both.take(pa.array(np.arange(1, 2 * n, 2)))


def _column(texts: pa.Array, line: Ints, good: Mask) -> pa.Array:
    """The texts of good lines, null for those that have none; `line` tells whose each text is."""
    if len(line) == len(good) and good.all():
        return texts
    place = np.full(len(good), -1)
    place[line] = np.arange(len(line))
    place = place[good]
    return texts.take(pa.array(place, mask=place < 0))
