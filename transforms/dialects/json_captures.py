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

from transforms.batches import columns
from transforms.batches.texts import Texts
from transforms.batches.values import scalars
from transforms.dialects import json_records

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


def read_records(objects: pa.Array, fields: Mapping[str, tuple[str, ...]]) -> Iterator[Records]:
    """Read lines that hold an object each.

    Parameters
    ----------
    objects : pa.Array of n binary values
        The lines, with their ends; in one buffer, one after the other.
    fields : mapping of str to tuple of str
        Columns, and the names that they may have.
    """
    n = len(objects)
    if not n:
        return
    whole = _by_arrow(objects, fields)
    if whole is not None:
        yield Records(np.arange(n), whole)
        return
    for a in range(0, n, _PIECE):
        piece = objects.slice(a, _PIECE)
        found = _by_arrow(piece, fields)
        if found is not None:
            yield Records(np.arange(a, a + len(piece)), found)
        else:
            yield from _one_by_one(piece, a, fields)


def _bytes_of(objects: pa.Array) -> pa.Buffer:
    texts = Texts(objects)
    return objects.buffers()[2][int(texts.start[0]) : int(texts.start[-1] + texts.size[-1])]


def _by_arrow(objects: pa.Array, fields: Mapping[str, tuple[str, ...]]) -> dict[str, pa.Array] | None:
    """All lines in one call; None if some line is no object or a field is of several types."""
    for status in (pa.string(), pa.int64()):
        try:
            return _coalesced(objects, status, fields)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            continue
    return None


def _coalesced(
    objects: pa.Array, status: pa.DataType, fields: Mapping[str, tuple[str, ...]]
) -> dict[str, pa.Array] | None:
    usual = {names[0]: status if field == "status" else pa.string() for field, names in fields.items()}
    block = _bytes_of(objects)
    table = json_records.read_records(block, usual)
    if table.num_rows != len(objects):
        return None
    # Other names are looked for only where the usual one does not say it all.
    other: list[str] = []
    for names in fields.values():
        null = np.flatnonzero(np.asarray(_array(table, names[0]).is_null()))
        if len(null) and len(names) > 1:
            lacking = block if len(null) == len(objects) else _bytes_of(objects.take(pa.array(null)))
            raw = lacking.to_pybytes()
            other += [name for name in names[1:] if f'"{name}"'.encode() in raw]
    if other:
        types = {name: status if name in fields["status"] else pa.string() for name in other}
        if "s" in other:
            types |= {name: pa.string() for name in (_OFFSET, *_LENGTHS)}
        table = json_records.read_records(block, usual | types)
    made = {}
    for field, names in fields.items():
        there = [name for name in names if name in table.schema.names]
        made[field] = _first([_meaning(table, name) for name in there])
    return made


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


def _one_by_one(objects: pa.Array, first: int, fields: Mapping[str, tuple[str, ...]]) -> Iterator[Records]:
    good: list[int] = []
    bad: list[int] = []
    records: list[dict[str, Any]] = []
    for i, raw in enumerate(objects.to_pylist()):
        record = loads(raw)
        if isinstance(record, dict):
            good.append(first + i)
            records.append(record)
        else:
            bad.append(first + i)
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
