"""Between the state's arrays and its columns on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from policies.history.page_state import BIN_IDS, NO_TIME, PageState, starts_of
from policies.history.request_history import RequestState
from policies.numerics.typing_ import Int32Array, IntArray
from transforms.batches import schemas
from transforms.shards.coding import ShardPages

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


def state_batch(
    pages: ShardPages,
    history: PageState,
    requests: RequestState,
    first_seen: Int32Array,
    failing_since_us: IntArray,
) -> pa.RecordBatch:
    """The `schemas.STATE` rows of a shard."""
    columns = {
        "url": pages.url,
        "host": pages.host,
        "url_hash": pa.array(pages.url_hash),
        "host_hash": pa.array(pages.host_hash),
        "exposure_days": pa.array(history.exposure_days),
        "dated_changes": pa.array(history.dated_changes),
        "bin_id": list_column(history.bin_start, history.bin_id),
        "bin_weight": list_column(history.bin_start, history.bin_weight),
        "bin_days": list_column(history.bin_start, history.bin_days),
        "bin_days_squared": list_column(history.bin_start, history.bin_days_squared),
        "n_intervals": pa.array(history.n_intervals),
        "n_changes": pa.array(history.n_changes),
        "baseline_at": times(history.baseline_at_us),
        "last_success_at": times(history.last_success_at_us),
        "last_attempt_at": times(history.last_attempt_at_us),
        "digest_hash": pa.array(history.digest),
        "digest_form": pa.array(history.digest_form),
        "replaced_digest_hash": pa.array(history.replaced_digest),
        "n_returns": pa.array(history.n_returns),
        "gone": pa.array(history.gone),
        "last_modified_at": times(history.last_modified_at_us),
        "last_modified_seen_at": times(history.last_modified_seen_us),
        "last_change_at": times(history.last_change_at_us),
        "failing_since_at": times(failing_since_us),
        "first_seen_day": pa.array(first_seen),
        "request_week": list_column(requests.start, requests.week),
        "request_clicks": list_column(requests.start, requests.clicks),
        "request_impressions": list_column(requests.start, requests.impressions),
        "first_request_day": pa.array(requests.first_day),
        "last_request_day": pa.array(requests.last_day),
    }
    return pa.RecordBatch.from_arrays([columns[n] for n in schemas.STATE.names], schema=schemas.STATE)


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


def read_state(state: pa.RecordBatch) -> tuple[PageState, RequestState, Int32Array]:
    """The arrays of a shard's state rows, a batch of `schemas.STATE`."""

    def flat(name: str) -> np.ndarray:
        return state.column(name).flatten().to_numpy()

    def added(name: str) -> np.ndarray:
        """A column that is null where an older version wrote the state."""
        return state.column(name).fill_null(0).to_numpy()

    history = PageState(
        exposure_days=state.column("exposure_days").to_numpy(),
        dated_changes=state.column("dated_changes").to_numpy(),
        n_intervals=state.column("n_intervals").to_numpy(),
        n_changes=state.column("n_changes").to_numpy(),
        baseline_at_us=microseconds(state.column("baseline_at")),
        last_success_at_us=microseconds(state.column("last_success_at")),
        last_attempt_at_us=microseconds(state.column("last_attempt_at")),
        digest=state.column("digest_hash").to_numpy(),
        digest_form=added("digest_form"),
        replaced_digest=added("replaced_digest_hash"),
        n_returns=added("n_returns"),
        gone=state.column("gone").to_numpy(zero_copy_only=False),
        last_modified_at_us=microseconds(state.column("last_modified_at")),
        last_modified_seen_us=microseconds(state.column("last_modified_seen_at")),
        last_change_at_us=microseconds(state.column("last_change_at")),
        **_bins(state),
    )
    requests = RequestState(
        list_start(state.column("request_week")),
        flat("request_week"),
        flat("request_clicks"),
        flat("request_impressions"),
        state.column("first_request_day").to_numpy(),
        state.column("last_request_day").to_numpy(),
    )
    return history, requests, state.column("first_seen_day").to_numpy()
