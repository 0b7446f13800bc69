"""Between the state's arrays and its columns on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from policies.history.page_state import BIN_IDS, NO_TIME, PageState, starts_of
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.batches import schemas
from transforms.shards.coding import ShardPages

_HISTORY = tuple(schemas.STATE)[4:]
_BIN_SUMS = ("bin_weight", "bin_days", "bin_days_squared")


def times(values: IntArray) -> pa.Array:
    """Microseconds to UTC timestamps, `NO_TIME` to null."""
    return pa.array(values, mask=values == NO_TIME).cast(schemas.TIME)


def microseconds(column: pa.Array | pa.ChunkedArray) -> IntArray:
    """UTC timestamps to microseconds, null to `NO_TIME`."""
    return column.cast(pa.int64()).fill_null(NO_TIME).to_numpy()


def list_column(start: IntArray, values: np.ndarray | pa.Array) -> pa.Array:
    """Lists of which list i is ``values[start[i]:start[i + 1]]``."""
    return pa.ListArray.from_arrays(pa.array(start.astype(np.int32)), pa.array(values))


def matrix_column(values: np.ndarray) -> pa.Array:
    """Lists of one length, the rows of a matrix."""
    return list_column(np.arange(len(values) + 1) * values.shape[1], values.ravel())


def matrix_of(column: pa.ChunkedArray | pa.Array, width: int) -> np.ndarray:
    """What `matrix_column` made."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values = values.flatten() if pa.types.is_list(values.type) else values
    found: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(-1, width)
    return found


def values_of(column: pa.Array, fill: Any = 0) -> np.ndarray:
    """A column's values, or those of its lists; times in microseconds. Null is `NO_TIME`, or `fill`."""
    if pa.types.is_list(column.type):
        column = column.flatten()
    if pa.types.is_timestamp(column.type):
        return microseconds(column)
    return column.fill_null(pa.scalar(fill).cast(column.type)).to_numpy(zero_copy_only=False)


def _attribute(field: pa.Field) -> str:
    """Of `PageState`, which a column of the state holds."""
    name = {"digest_hash": "digest", "replaced_digest_hash": "replaced_digest"}.get(field.name, field.name)
    if name == "last_modified_seen_at":
        return "last_modified_seen_us"
    return f"{name}_us" if pa.types.is_timestamp(field.type) else name


def _column(field: pa.Field, values: np.ndarray, start: IntArray) -> pa.Array:
    if pa.types.is_list(field.type):
        return list_column(start, values)
    return times(values) if pa.types.is_timestamp(field.type) else pa.array(values)


def history_columns(pages: ShardPages, history: PageState) -> dict[str, pa.Array]:
    """The columns of `schemas.STATE` of a shard."""
    named = {"url": pages.url, "host": pages.host}
    hashes = {"url_hash": pa.array(pages.url_hash), "host_hash": pa.array(pages.host_hash)}
    known = {f.name: _column(f, getattr(history, _attribute(f)), history.bin_start) for f in _HISTORY}
    return named | hashes | known


def list_start(column: pa.Array) -> IntArray:
    """Where each list begins in what `flatten` gives, and the end: (n + 1,) int64."""
    offsets = np.asarray(column.offsets).astype(np.int64)
    return offsets - offsets[0]


def _bins(state: pa.RecordBatch) -> dict[str, Any]:
    start, bin_id, *sums = (
        list_start(state.column("bin_id")),
        *(state.column(n).flatten().to_numpy() for n in ("bin_id", *_BIN_SUMS)),
    )
    if len(bin_id) and bin_id.max() >= BIN_IDS:
        # Nights of an older version told bins apart by signals, too.
        page = np.repeat(np.arange(len(start) - 1), np.diff(start))
        key, slot = np.unique(page * BIN_IDS + bin_id % BIN_IDS, return_inverse=True)
        sums = [np.bincount(slot, values, len(key)) for values in sums]
        start, bin_id = starts_of(key // BIN_IDS, len(start) - 1), (key % BIN_IDS).astype(np.int32)
    return {"bin_start": start, "bin_id": bin_id, **dict(zip(_BIN_SUMS, sums, strict=True))}


def read_history(state: pa.RecordBatch) -> PageState:
    """The arrays of a shard's state rows, a batch with the columns of `schemas.STATE`."""
    plain = {_attribute(f): values_of(state.column(f.name)) for f in _HISTORY if not pa.types.is_list(f.type)}
    return PageState(**plain, **_bins(state))


def null_of_nan(column: pa.Array) -> pa.Array:
    """Numbers with null in place of NaN, which stands for "no log"."""
    values: FloatArray = column.to_numpy(zero_copy_only=False)
    return pa.array(values, mask=np.isnan(values))
