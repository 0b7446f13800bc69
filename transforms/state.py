"""Between the state's arrays and its columns on disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from policies.page_state import NO_TIME, PageState
from policies.request_history import RequestState
from policies.typing_ import Int32Array, IntArray
from transforms import schemas
from transforms.coding import ShardPages


def times(values: IntArray) -> pa.Array:
    """Microseconds to UTC timestamps, `NO_TIME` to null."""
    return pa.array(values, mask=values == NO_TIME).cast(schemas.TIME)


def microseconds(column: pa.Array | pa.ChunkedArray) -> IntArray:
    """UTC timestamps to microseconds, null to `NO_TIME`."""
    return column.cast(pa.int64()).fill_null(NO_TIME).to_numpy()


def _lists(start: IntArray, values: np.ndarray) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(start.astype(np.int32)), pa.array(values))


def state_batch(
    pages: ShardPages, history: PageState, requests: RequestState, first_seen: Int32Array
) -> pa.RecordBatch:
    """The `schemas.STATE` rows of a shard."""
    columns = {
        "url": pages.url,
        "host": pages.host,
        "url_hash": pa.array(pages.url_hash),
        "host_hash": pa.array(pages.host_hash),
        "exposure_days": pa.array(history.exposure_days),
        "dated_changes": pa.array(history.dated_changes),
        "bin_id": _lists(history.bin_start, history.bin_id),
        "bin_weight": _lists(history.bin_start, history.bin_weight),
        "bin_days": _lists(history.bin_start, history.bin_days),
        "bin_days_squared": _lists(history.bin_start, history.bin_days_squared),
        "n_intervals": pa.array(history.n_intervals),
        "n_changes": pa.array(history.n_changes),
        "baseline_at": times(history.baseline_at_us),
        "last_success_at": times(history.last_success_at_us),
        "last_attempt_at": times(history.last_attempt_at_us),
        "digest_hash": pa.array(history.digest),
        "gone": pa.array(history.gone),
        "last_modified_at": times(history.last_modified_at_us),
        "first_seen_day": pa.array(first_seen),
        "request_week": _lists(requests.start, requests.week),
        "request_clicks": _lists(requests.start, requests.clicks),
        "request_impressions": _lists(requests.start, requests.impressions),
        "first_request_day": pa.array(requests.first_day),
        "last_request_day": pa.array(requests.last_day),
    }
    return pa.RecordBatch.from_arrays([columns[n] for n in schemas.STATE.names], schema=schemas.STATE)


def signals_batch(pages: ShardPages, history: PageState, sources: Sequence[str]) -> pa.RecordBatch:
    """The `schemas.STATE_SIGNALS` rows of a shard."""
    page = history.signal_page
    return pa.RecordBatch.from_arrays(
        [
            pa.array(pages.url_hash[page]),
            pa.array(pages.host_hash[page]),
            pa.array(list(sources), pa.string()).take(pa.array(history.signal_source)),
            times(history.signal_last_at_us),
            pa.array(history.signal_pending),
            pa.array(history.signal_unchanged),
            pa.array(history.signal_changed),
        ],
        schema=schemas.STATE_SIGNALS,
    )


def _start(column: pa.Array) -> IntArray:
    offsets = np.asarray(column.offsets).astype(np.int64)
    return offsets - offsets[0]


def read_state(
    state: pa.RecordBatch, signals: pa.Table | None, sources: Sequence[str], signal_page: IntArray
) -> tuple[PageState, RequestState, Int32Array]:
    """The arrays of a shard's state rows.

    Parameters
    ----------
    state : RecordBatch of `schemas.STATE`
    signals : Table of `schemas.STATE_SIGNALS`, or None
    sources : sequence of str, sorted
        The signal sources of tonight and of the state.
    signal_page : (k,) int64
        Row of `state` of each row of `signals`.
    """

    def flat(name: str) -> np.ndarray:
        return state.column(name).flatten().to_numpy()

    if signals is None or not signals.num_rows:
        empty = PageState.empty(0)
        carried = {
            n: getattr(empty, n)
            for n in (
                "signal_page",
                "signal_source",
                "signal_pending",
                "signal_unchanged",
                "signal_changed",
                "signal_last_at_us",
            )
        }
    else:
        code = np.searchsorted(
            np.asarray(sources, dtype=object), signals.column("source").to_numpy(zero_copy_only=False)
        )
        order = np.lexsort((code, signal_page))
        carried = {
            "signal_page": signal_page[order],
            "signal_source": code[order].astype(np.int32),
            "signal_pending": signals.column("pending").to_numpy()[order],
            "signal_unchanged": signals.column("in_unchanged").to_numpy()[order],
            "signal_changed": signals.column("in_changed").to_numpy()[order],
            "signal_last_at_us": microseconds(signals.column("last_signal_at"))[order],
        }
    history = PageState(
        exposure_days=state.column("exposure_days").to_numpy(),
        dated_changes=state.column("dated_changes").to_numpy(),
        n_intervals=state.column("n_intervals").to_numpy(),
        n_changes=state.column("n_changes").to_numpy(),
        baseline_at_us=microseconds(state.column("baseline_at")),
        last_success_at_us=microseconds(state.column("last_success_at")),
        last_attempt_at_us=microseconds(state.column("last_attempt_at")),
        digest=state.column("digest_hash").to_numpy(),
        gone=state.column("gone").to_numpy(zero_copy_only=False),
        last_modified_at_us=microseconds(state.column("last_modified_at")),
        bin_start=_start(state.column("bin_id")),
        bin_id=flat("bin_id"),
        bin_weight=flat("bin_weight"),
        bin_days=flat("bin_days"),
        bin_days_squared=flat("bin_days_squared"),
        **carried,
    )
    requests = RequestState(
        _start(state.column("request_week")),
        flat("request_week"),
        flat("request_clicks"),
        flat("request_impressions"),
        state.column("first_request_day").to_numpy(),
        state.column("last_request_day").to_numpy(),
    )
    return history, requests, state.column("first_seen_day").to_numpy()
