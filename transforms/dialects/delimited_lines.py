"""Blocks of lines with a fixed number of fields, split by Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from transforms.batches.values import is_utf8
from transforms.dialects.text_blocks import as_text
from transforms.files.blocks import RawBlock


@dataclass(frozen=True)
class Fields:
    """The fields of a block.

    Attributes
    ----------
    table : pa.Table of n rows
        Columns "0", "1", ... of text, as the file has it: its bytes need not be UTF-8.
    line : (n,) int64
        Number of each row's line.
    wrong : list of (int, str)
        Number and text of lines with another number of fields.
    """

    table: pa.Table
    line: NDArray[np.int64]
    wrong: list[tuple[int, str]]


def split_fields(block: bytes, line: int, delimiter: str, count: int, use: list[int]) -> Fields:
    """Split whole lines at a delimiter that nothing escapes; empty lines are no rows.

    Parameters
    ----------
    block : bytes
    line : int
        Number of its first line.
    delimiter : str
        One character.
    count : int
        Fields that a line has.
    use : list of int
        Fields that are wanted.
    """
    wrong: list[tuple[int, str]] = []

    def skip(row: pa.csv.InvalidRow) -> str:
        wrong.append((row.number - 1, row.text))
        return "skip"

    if b"\r" in block:  # Arrow ends a line there, too
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    names = [str(i) for i in range(count)]
    wanted = [str(i) for i in use]
    # Arrow takes no table without lines, and cannot hand over a wrong one that is not UTF-8.
    if not block.strip(b"\n") or not is_utf8(block):
        return _split_slowly(block, line, delimiter, count, use)
    table = pa.csv.read_csv(
        pa.BufferReader(block),
        pa.csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=names),
        pa.csv.ParseOptions(delimiter=delimiter, quote_char=False, invalid_row_handler=skip),
        as_text(wanted),
    )
    numbers = filled_lines(block, line)
    kept = np.ones(len(numbers), np.bool_)
    kept[[row for row, _ in wrong]] = False
    return Fields(table, numbers[kept], [(int(numbers[row]), text) for row, text in wrong])


def texts_of(array: pa.Array) -> list[str]:
    """Texts as a file has them, whose bytes need not be UTF-8, for people and for Python; "" for none."""
    raw = array.cast(pa.binary()).to_pylist()
    return ["" if text is None else text.decode("utf-8", "replace") for text in raw]


def filled_lines(block: bytes, line: int) -> NDArray[np.int64]:
    """Numbers of the lines that are not empty; `line` is that of the first."""
    data = np.frombuffer(block, np.uint8)
    end = np.flatnonzero(data == 10)
    if len(data) and data[-1] != 10:
        end = np.append(end, len(data))
    length = np.diff(end, prepend=-1) - 1
    return line + np.flatnonzero(length > 0)


def _split_slowly(block: bytes, line: int, delimiter: str, count: int, use: list[int]) -> Fields:
    good: list[list[bytes]] = []
    numbers: list[int] = []
    wrong: list[tuple[int, str]] = []
    for number, raw in enumerate(block.split(b"\n"), line):
        fields = raw.split(delimiter.encode())
        if not raw:
            continue
        if len(fields) == count:
            good.append([fields[i] for i in use])
            numbers.append(number)
        else:
            wrong.append((number, raw.decode("utf-8", "replace")))
    columns = [pa.array([row[j] for row in good], pa.binary()).view(pa.string()) for j in range(len(use))]
    table = pa.table(columns, [str(i) for i in use])
    return Fields(table, np.array(numbers, np.int64), wrong)


def line_texts(block: bytes, line: int) -> tuple[pa.Array, NDArray[np.int64]]:
    """The lines of a block that are not empty, as text without their ends, and their numbers."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    data = np.frombuffer(block, np.uint8)
    end = np.flatnonzero(data == 10)
    if len(data) and data[-1] != 10:
        end = np.append(end, len(data))
    begin = np.concatenate([[0], end[:-1] + 1]).astype(np.int64) if len(end) else end
    offsets = np.append(begin, len(data)).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    # Texts with their line ends are a view of the block; cutting these off copies once.
    whole = pa.Array.from_buffers(pa.string(), len(begin), buffers)
    filled = np.flatnonzero(end > begin)
    return pc.ascii_rtrim(whole.take(pa.array(filled)), "\n"), line + filled


def pages_of(urls: pa.Array | pa.ChunkedArray, line: NDArray[np.int64]) -> Iterator[RawBlock]:
    """Raw blocks of pages of which nothing but the URL is known.

    Parameters
    ----------
    urls : n texts
    line : (n,) int64
        Number of each one's line.
    """
    for batch in pa.table({"url": urls}).combine_chunks().to_batches():
        yield RawBlock(batch, lambda: line)
