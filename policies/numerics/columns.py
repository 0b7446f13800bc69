"""Dataclasses whose fields are all arrays of the same rows."""

from dataclasses import fields
from typing import Any, TypeVar

from policies.numerics.typing_ import BoolArray, IntArray

Columns = TypeVar("Columns")


def take(columns: Columns, rows: IntArray | BoolArray | slice) -> Columns:
    """The same columns of some rows, in that order (indices, a mask, a slice)."""
    of: Any = columns
    made: Columns = type(columns)(*(getattr(columns, field.name)[rows] for field in fields(of)))
    return made
