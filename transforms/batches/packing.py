"""Times in four bytes for the shuffle: offsets from the batch's first, in the coarsest unit that is exact."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from transforms.batches.schemas import TIME

_UNITS_US = (1_000_000, 1_000, 1)
_ORIGIN, _UNIT = b"origin_us", b"unit_us"


def pack_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace each time column by its offsets where they fit 32 bits; other batches stay as they are."""
    for at, field in enumerate(batch.schema):
        if field.type == TIME:
            packed = _pack(batch.column(at))
            if packed is not None:
                offsets, origin, unit = packed
                metadata = {_ORIGIN: str(origin).encode(), _UNIT: str(unit).encode()}
                batch = batch.set_column(at, pa.field(field.name, pa.uint32(), metadata=metadata), offsets)
    return batch


def _pack(column: pa.Array) -> tuple[pa.Array, int, int] | None:
    if column.null_count == len(column):
        return None
    valid = None if not column.null_count else np.asarray(column.is_valid())
    values = column.cast(pa.int64()).fill_null(0).to_numpy()
    known = values if valid is None else values[valid]
    origin = int(known.min())
    span = int(known.max()) - origin
    offset = known - origin
    for unit in _UNITS_US:
        if span // unit < 1 << 32 and not (offset % unit).any():
            if valid is None:
                return pa.array((offset // unit).astype(np.uint32)), origin, unit
            wide = np.zeros(len(values), np.uint32)
            wide[valid] = offset // unit
            return pa.array(wide, mask=~valid), origin, unit
    return None


def unpack_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The inverse of `pack_times`."""
    for at, field in enumerate(batch.schema):
        if field.metadata and _ORIGIN in field.metadata:
            column = batch.column(at)
            valid = None if not column.null_count else np.asarray(column.is_valid())
            values = column.fill_null(0).to_numpy().astype(np.int64)
            values *= int(field.metadata[_UNIT])
            values += int(field.metadata[_ORIGIN])
            times = pa.array(values, mask=None if valid is None else ~valid).cast(TIME)
            batch = batch.set_column(at, pa.field(field.name, TIME), times)
    return batch
