"""Lines of JSON whose wanted fields lie at different depths, to a table with a known schema."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
from numpy.typing import NDArray

from transforms.batches.values import text_of
from transforms.dialects.delimited_lines import filled_lines
from transforms.rows.normalise import rejected_rows

_BOM = b"\xef\xbb\xbf"
_BLANK = " \t\r"
# Arrow takes "null" in place of an object for a record, and crashes where the schema is nested.
_NULL_RECORD = re.compile(rb'(?m)(?:^[\s,\[]*|[}\]"0-9el]\s*)null')


@dataclass(frozen=True)
class Records:
    """Records of a block: a table of n rows with the schema that was asked for, and each row's line."""

    table: pa.Table
    line: NDArray[np.int64]
    rejected: pa.RecordBatch | None


def parse(block: bytes, line: int, schema: pa.Schema, path: str) -> Records:
    """Read one object a line; lone brackets, and commas at line ends, are those of an array.

    Parameters
    ----------
    schema : pa.Schema
        Fields that are wanted, nested as they are in the records; leaves are text. A number where a text is
        wanted is its text, one value where a list is wanted a list of one and the other way round, a text
        where an object of one field is wanted that field, what is missing null.
    """
    if b"null" in block and _NULL_RECORD.search(block) is not None:
        return _parse_slowly(block, line, schema, path)
    typed = _with_numbers(schema, block)
    try:
        table = pa.json.read_json(
            pa.BufferReader(block),
            pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pa.json.ParseOptions(explicit_schema=typed, unexpected_field_behavior="ignore"),
        )
        numbers = filled_lines(block, line)
        if len(numbers) == table.num_rows:  # two objects of a line would be two rows
            table = table.select(schema.names)
            if typed is not schema:
                table = table.cast(schema)
            return Records(table.combine_chunks(), numbers, None)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        pass
    return _parse_slowly(block, line, schema, path)


def _with_numbers(schema: pa.Schema, block: bytes) -> pa.Schema:
    """The schema with whole numbers where the first record has them: Arrow takes none for a text."""
    try:
        record = json.loads(block.lstrip(b"\xef\xbb\xbf[, \t\r\n").split(b"\n", 1)[0].rstrip(b", \t\r"))
    except (ValueError, RecursionError):
        return schema
    if not isinstance(record, dict):
        return schema
    for i, field in enumerate(schema):
        if type(record.get(field.name)) is int and pa.types.is_string(field.type):
            schema = schema.set(i, pa.field(field.name, pa.int64()))
    return schema


def _parse_slowly(block: bytes, line: int, schema: pa.Schema, path: str) -> Records:
    records: list[dict[str, Any]] = []
    numbers: list[int] = []
    bad: list[int] = []
    samples: list[str] = []
    for number, raw in enumerate(block.split(b"\n"), line):
        text = raw.removeprefix(_BOM).decode("utf-8", "surrogateescape").strip(_BLANK).removesuffix(",")
        if text in ("", "[", "]"):
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        # A whole array on one line is as many records.
        for one in found if isinstance(found, list) and found else [found]:
            if isinstance(one, dict):
                records.append({f.name: _as(one.get(f.name), f.type) for f in schema})
                numbers.append(number)
            else:
                bad.append(number)
                samples.append(text)
    rejected = rejected_rows(path, bad, "bad_json", samples) if bad else None
    # A text that is not UTF-8 stays as it is, as in the fast way: its row is rejected where texts are read.
    columns = [pa.array([record[f.name] for record in records], _raw(f.type)).view(f.type) for f in schema]
    return Records(pa.table(columns, schema=schema), np.array(numbers, np.int64), rejected)


def _raw(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in place of texts."""
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _raw(f.type)) for f in kind])
    return pa.list_(_raw(kind.value_type)) if pa.types.is_list(kind) else pa.binary()


def _as(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if isinstance(value, dict):
            return {f.name: _as(value.get(f.name), f.type) for f in kind}
        return {kind[0].name: _as(value, kind[0].type)} if len(kind) == 1 and isinstance(value, str) else None
    if pa.types.is_list(kind):
        values = value if isinstance(value, list) else [value]
        return [_as(v, kind.value_type) for v in values]
    if isinstance(value, list) and len(value) == 1:  # as Scrapy's item loaders wrap values
        (value,) = value
    if isinstance(value, dict | list):
        return None
    return text_of(value)
