"""Records of captures as JSON objects, one a line, under any of the names that tools give their fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from transforms import columns
from transforms.formats import scalars

# The usual name first. "s" is the status, but a length in records that have an offset and no other length.
FIELDS: dict[str, tuple[str, ...]] = {
    "url": ("url", "original", "original_uri", "u"),
    "mime": ("mime", "mimetype", "mime_type", "m"),
    "status": ("status", "statuscode", "status_code", "s"),
    "digest": ("digest", "payload_digest", "d", "sha", "locator"),
}
LINE_FIELDS = FIELDS | {"at": ("timestamp", "t"), "key": ("urlkey", "k")}
_PIECE = 256
_LENGTHS = ("length", "l")
_OFFSET = "o"
# Of ipwb: urn:ipfs/HEADER/PAYLOAD.
_LOCATOR = re.compile(r"^urn:ipfs/[^/]*/")

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Records:
    """Some of the lines, and what they hold.

    Attributes
    ----------
    index : int64 (k,)
        Which lines.
    columns : dict of str to pa.Array (k,), or None
        By the keys of `FIELDS`; None if the lines hold no objects.
    """

    index: Ints
    columns: Mapping[str, pa.Array] | None


def read_records(
    text: NDArray[np.uint8], starts: Ints, ends: Ints, fields: Mapping[str, tuple[str, ...]]
) -> Iterator[Records]:
    """Read lines that hold an object each, with blanks around it.

    Parameters
    ----------
    text : uint8, contiguous
    starts, ends : int64 (n,)
        Where lines begin and end in it; what lies between them is blank.
    fields : mapping of str to tuple of str
        Columns, and the names that they may have.
    """
    n = len(starts)
    if not n:
        return
    whole = _by_arrow(text, starts, ends, fields)
    if whole is not None:
        yield Records(np.arange(n), whole)
        return
    for a in range(0, n, _PIECE):
        index = np.arange(a, min(n, a + _PIECE))
        found = _by_arrow(text, starts[index], ends[index], fields)
        if found is not None:
            yield Records(index, found)
        else:
            yield from _one_by_one(text, starts, ends, index, fields)


def _by_arrow(
    text: NDArray[np.uint8], starts: Ints, ends: Ints, fields: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.Array] | None:
    """All lines in one call; None if some line is no object or a field is of several types."""
    block = pa.py_buffer(text)[int(starts[0]) : int(ends[-1])]
    for status in (pa.string(), pa.int64()):
        try:
            return _coalesced(block, len(starts), status, fields)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            continue
    return None


def _coalesced(
    block: pa.Buffer, n: int, status: pa.DataType, fields: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.Array] | None:
    usual = {names[0]: status if field == "status" else pa.string() for field, names in fields.items()}
    table = _parse(block, usual)
    if table.num_rows != n:
        return None
    # Other names are looked for only where the usual one does not say it all.
    lacking = [f for f, names in fields.items() if table.column(names[0]).null_count]
    other = [name for f in lacking for name in fields[f][1:]]
    if other:
        raw = memoryview(block).tobytes()
        other = [name for name in other if f'"{name}"'.encode() in raw]
    if other:
        types = {name: status if name in fields["status"] else pa.string() for name in other}
        if "s" in other:
            # Their types are of no interest; text that is a number would stop the parser.
            types |= {name: pa.string() for name in (_OFFSET, *_LENGTHS)}
        try:
            table = _parse(block, usual | types)
        except pa.ArrowInvalid:
            return None
    made = {}
    for field, names in fields.items():
        there = [name for name in names if name in table.schema.names]
        made[field] = _first([_meaning(table, name) for name in there])
    return made


def _parse(block: pa.Buffer, types: dict[str, pa.DataType]) -> pa.Table:
    return pa.json.read_json(
        pa.BufferReader(block),
        pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
        pa.json.ParseOptions(
            explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="ignore"
        ),
    )


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _meaning(table: pa.Table, name: str) -> pa.Array:
    array = _array(table, name)
    if name == "s":
        no_length = pc.and_(*(pc.is_null(_array(table, length)) for length in _LENGTHS))
        is_length = pc.and_(pc.is_valid(_array(table, _OFFSET)), no_length)
        return pc.replace_with_mask(array, is_length, pa.scalar(None, array.type))
    return pc.replace_substring_regex(array, _LOCATOR.pattern, "") if name == "locator" else array


def _first(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 or not arrays[0].null_count else pc.coalesce(*arrays)


def _one_by_one(
    text: NDArray[np.uint8], starts: Ints, ends: Ints, index: Ints, fields: Mapping[str, tuple[str, ...]]
) -> Iterator[Records]:
    good: list[int] = []
    bad: list[int] = []
    records: list[dict[str, Any]] = []
    for i in index.tolist():
        record = loads(text[starts[i] : ends[i]].tobytes())
        if isinstance(record, dict):
            good.append(i)
            records.append(record)
        else:
            bad.append(i)
    if good:
        yield Records(np.array(good, np.int64), of_dicts(records, fields))
    if bad:
        yield Records(np.array(bad, np.int64), None)


def loads(raw: bytes) -> Any:
    """What a text holds, None if it is no JSON."""
    try:
        return json.loads(raw.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None


def of_dicts(
    records: Sequence[Mapping[str, Any]], fields: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.Array]:
    """The columns of records that are read one by one, as text."""
    made = {}
    for field, names in fields.items():
        array = scalars([_value(record, names) for record in records])
        made[field] = array if columns.is_text(array.type) else array.cast(pa.string())
    return made


def _value(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        value = record.get(name)
        if value is None:
            continue
        if name == "s" and _OFFSET in record and not any(length in record for length in _LENGTHS):
            return None
        return _LOCATOR.sub("", str(value)) if name == "locator" else value
    return None
