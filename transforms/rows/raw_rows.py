"""Rows of a file while their columns are read: what is wrong with which of them, and why."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transforms.batches import columns, times
from transforms.batches.zones import LocalClock

# Rows of a block that are shown in rejected/ although they count, at most.
MAX_NOTED = 100

Mask = NDArray[np.bool_]
Rows = int | NDArray[np.int64] | Callable[[], NDArray[np.int64]]
Made = tuple[dict[str, pa.Array], dict[str, pa.Array]]
"""Columns of a schema, and keys of hosts and pages."""


@dataclass
class RawRows:
    """A raw batch while its columns are read."""

    raw: pa.RecordBatch
    source: str
    row: Rows
    reason: NDArray[np.uint8] = field(init=False)
    causes: list[tuple[str, str]] = field(default_factory=lambda: [("", "")])
    noted: NDArray[np.uint8] | None = None
    left_out: Mask | None = None
    tracking: str = ""
    comma: bool = False
    clock: LocalClock = field(default_factory=LocalClock)
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.reason = np.zeros(self.raw.num_rows, np.uint8)

    def numbers(self) -> NDArray[np.int64]:
        if callable(self.row):
            return self.row()
        return self.row + np.arange(self.raw.num_rows) if isinstance(self.row, int) else self.row

    def column(self, name: str) -> pa.Array | None:
        at = self.raw.schema.get_field_index(name)
        return self.raw.column(at) if at >= 0 else None

    def reject(self, mask: Mask | None, reason: str, name: str) -> None:
        """Mark rows; the first reason of a row stands."""
        if mask is not None and mask.any():
            self.causes.append((reason, name))
            self.reason[mask & (self.reason == 0)] = len(self.causes) - 1

    def note(self, mask: Mask, reason: str, name: str) -> None:
        """Mark rows that count although a column of theirs is bad."""
        rows = np.flatnonzero(mask & (self.reason == 0))[:MAX_NOTED]
        if len(rows):
            self.causes.append((reason, name))
            self.noted = np.zeros(self.raw.num_rows, np.uint8)
            self.noted[rows] = len(self.causes) - 1

    def leave_out(self, mask: Mask | None, reason: str) -> None:
        """Drop rows that are sound and not of use: what else is wrong with them does not count."""
        if mask is not None:
            self.left_out = mask
            self.counts[f"left_out_{reason}"] = int(mask.sum())

    def numbers_of(self, reader: Callable[..., columns.Column]) -> Callable[[pa.Array], columns.Column]:
        """A reader of numbers that knows whether commas may begin fractions."""
        return functools.partial(reader, comma=self.comma)

    def nulls(self, kind: pa.DataType) -> pa.Array:
        return pa.nulls(self.raw.num_rows, kind)


def read(block: RawRows, name: str, reader, kind: pa.DataType, reason: str | None = None) -> pa.Array:  # type: ignore[no-untyped-def]
    """A column as `reader` reads it; nulls where there is none. Rows that it calls bad are rejected."""
    array = block.column(name)
    if array is None:
        return block.nulls(kind)
    values, bad = reader(array)
    block.reject(bad, reason or f"bad_{name}", name)
    return values


def read_time(block: RawRows, name: str) -> pa.Array:
    """A column of times; rows without one are rejected."""
    array = block.column(name)
    assert array is not None
    values, bad = times.parse_times(array, clock=block.clock)
    block.reject(bad, "bad_timestamp", name)
    if values.null_count:
        block.reject(np.asarray(values.is_null()), "bad_timestamp", name)
    return values
