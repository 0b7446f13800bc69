"""Single values, as files of any format have them, to columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


def scalars(values: Sequence[Any]) -> pa.Array:
    """A column of Python values: of their type if they share one, else their texts."""
    kinds = {type(v) for v in values} - {type(None)}
    try:
        if len(kinds) <= 1 and kinds <= {str, bytes, bool, float}:
            return pa.array(values)
        if kinds == {int}:
            return pa.array(values, pa.int64())
        if kinds == {int, float}:
            return pa.array(values, pa.float64())
        if len(kinds) == 1 and not kinds & {list, dict, tuple, int}:
            return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError):
        pass
    return pa.array([text_of(v) for v in values], pa.binary()).view(pa.string())


# As a text, a number like 12.345 may be taken for one with its thousands set apart.
_GROUPED = re.compile(r"-?\d{1,3}\.\d{3}")


def text_of(value: Any) -> bytes | None:
    """A value as bytes of UTF-8, but for those that are not."""
    # Scrapy's item loaders wrap a value into a list of one.
    if isinstance(value, list | tuple) and len(value) == 1:
        value = value[0]
    # Exports of MongoDB name the types of values, such as {"$date": {"$numberLong": "1780272000000"}}.
    while isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        (value,) = value.values()
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float) and _GROUPED.fullmatch(repr(value)):
        return f"{value!r}0".encode()
    text = (
        value if isinstance(value, str) else value.isoformat() if hasattr(value, "isoformat") else str(value)
    )
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def is_utf8(text: bytes | str) -> bool:
    """Whether bytes are UTF-8, or a text can be written as such."""
    try:
        return text.isascii() or bool(text.decode() if isinstance(text, bytes) else text.encode())
    except UnicodeError:
        return False
