"""JSON Lines to Arrow tables in time and memory that grow with the bytes, whatever keys the records have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

# Where Arrow finds the types itself, some 20,000 brackets within each other end the process.
MAX_BRACKETS = 5000
# A table has a cell for each key of one record in all others: a few MB could take all memory.
MAX_CELLS = 1 << 27
# What Arrow finds the types of at once: so many bytes cannot make too many cells.
_PIECE_BYTES = 1 << 14

Types = dict[str, pa.DataType]


class TooWideError(ValueError):
    """Records have more different keys than fit into a table."""


def check_width(rows: int, columns: int) -> None:
    """Raise `TooWideError` where a table of so many rows and columns has more than `MAX_CELLS`."""
    if rows * columns > MAX_CELLS:
        raise TooWideError(
            f"{columns:,} different keys in {rows:,} records make over {MAX_CELLS:,} cells. Write what "
            "differs between records under few keys"
        )


def most_brackets(block: bytes) -> int:
    """The most brackets that a line opens: none is nested deeper."""
    data = np.frombuffer(block, np.uint8)
    opened = np.flatnonzero(np.isin(data, [ord("["), ord("{")]))
    ends = np.append(np.flatnonzero(data == 10), len(data))
    return int(np.diff(np.searchsorted(opened, ends), prepend=0).max())


def other_names(block: bytes, types: Types) -> list[str]:
    """Keys of the records beside those of `types`. Raises as Arrow does, and as `check_width`."""
    rows = block.count(b"\n") + 1
    check_width(rows, len(types))
    try:
        read_records(block, types, "error")
    except pa.ArrowInvalid:
        pass
    else:
        return []
    found = dict.fromkeys(types)
    start = 0
    while start < len(block):
        line_end = block.rfind(b"\n", start, start + _PIECE_BYTES) + 1 or block.find(b"\n", start) + 1
        piece = block[start : line_end or len(block)]
        if piece.strip():
            found |= dict.fromkeys(read_records(piece, types, "infer").schema.names)
        check_width(rows, len(found))
        start += len(piece)
    return [name for name in found if name not in types]


def read_records(block: bytes | pa.Buffer, types: Types, unexpected: str = "ignore") -> pa.Table:
    """Whole lines by Arrow, with columns of these types; `unexpected` is what to do with other keys."""
    return pa.json.read_json(
        pa.BufferReader(block),
        pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        pa.json.ParseOptions(
            explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior=unexpected
        ),
    )


_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def type_of(value: Any, depth: int = 2) -> pa.DataType:
    """The type of a column of which a value is known; exports of MongoDB have {"$date": ...} for one."""
    if isinstance(value, dict) and len(value) == 1 and depth:
        ((name, inner),) = value.items()
        if name.startswith("$"):
            return pa.struct([(name, type_of(inner, depth - 1))])
    return _TYPES.get(type(value), pa.string())


def unwrapped(table: pa.Table) -> pa.Table:
    """A table whose columns of MongoDB's typed values have the values alone."""
    types = table.schema.types
    if not any(map(pa.types.is_struct, types)):
        return table
    columns = table.columns
    for i, column in enumerate(columns):
        while pa.types.is_struct(column.type):
            column = pc.struct_field(column, [0])
        columns[i] = column
    return pa.table(columns, names=table.schema.names)
