"""States as earlier versions wrote them, in the columns of today."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from policies.clocks.kept import US_PER_MINUTE
from policies.history.page_state import starts_of
from transforms.batches import schemas
from transforms.kept.state import list_column, list_start, microseconds, times

_COUNTS = {"n_unchanged", "n_changed"}
"""Of signals in unchanged and in changed intervals, which nobody read."""


def intervals_of_today(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the intervals for clocks that have instants, all of whole minutes, in minutes."""
    if "from_at" not in rows.schema.names:
        return rows
    begin, end = (microseconds(rows.column(name)) // US_PER_MINUTE for name in ("from_at", "to_at"))
    found = {name: rows.column(name) for name in ("url_hash", "host_hash", "changed")}
    found |= {"to_minute": end, "minutes": end - begin}
    return pa.RecordBatch.from_pydict(found, schemas.STATE_CLOCKS)


def signals_of_today(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the signal state without columns that are kept no more; no pairs where a night looked for none.

    Rows of other columns are given back as they are.
    """
    names = set(rows.schema.names)
    if names >= _COUNTS:
        rows = rows.select([name for name in rows.schema.names if name not in _COUNTS])
        names -= _COUNTS
    new = [f for f in schemas.STATE_SIGNALS if f.name.startswith(("pair_", "near", "far", "recent"))]
    if names != set(schemas.STATE_SIGNALS.names) - {f.name for f in new}:
        return rows
    start = list_start(rows.column("source"))
    none = pa.array([[]] * rows.num_rows, pa.list_(pa.float64()))
    columns = {name: rows.column(name) for name in names}
    columns |= {f.name: none.cast(f.type) for f in new}
    columns["recent_hours"] = list_column(start, np.zeros(int(start[-1]), np.uint64))
    return pa.RecordBatch.from_arrays(
        [columns[f.name] for f in schemas.STATE_SIGNALS], schema=schemas.STATE_SIGNALS
    )


def of_last_version(rows: pa.RecordBatch) -> pa.RecordBatch:
    """`schemas.STATE_SIGNALS` from `schemas.STATE_SIGNALS_BEFORE`, all rows of a file.

    What is pending goes on; counts of ended intervals say too little and are left behind. A host's era begins
    with the oldest last signal there: later intervals of its pages are known in full.
    """
    url, host = rows.column("url_hash").to_numpy(), rows.column("host_hash").to_numpy()
    last_us = microseconds(rows.column("last_signal_at"))
    hosts, host_of = np.unique(host, return_inverse=True)
    since = np.full(len(hosts), np.iinfo(np.int64).max)
    np.minimum.at(since, host_of, last_us)
    first = np.ones(len(url), np.bool_)
    first[1:] = (url[1:] != url[:-1]) | (host[1:] != host[:-1])
    start = starts_of(np.cumsum(first) - 1, int(np.count_nonzero(first)))
    none = np.zeros(int(np.count_nonzero(first)))
    empty = pa.array([[]] * len(none), pa.list_(pa.float64()))
    zeros = np.zeros(len(url))
    columns: dict[str, Any] = {
        "url_hash": pa.array(url[first]),
        "host_hash": pa.array(host[first]),
        "since": times(since[host_of][first]),
        **{name: pa.array(none) for name in ("exposure_days", "dated_changes", "watched_days")},
        "source": list_column(start, rows.column("source")),
        "pending": list_column(start, rows.column("pending").to_numpy()),
        **{name: list_column(start, zeros) for name in ("unchanged", "total")},
        "last_signal_at": list_column(start, times(last_us)),
        "recent_hours": list_column(start, np.zeros(len(url), np.uint64)),
    }
    schema = schemas.STATE_SIGNALS
    return pa.RecordBatch.from_arrays(
        [columns.get(f.name, empty).cast(f.type) for f in schema], schema=schema
    )


OF_TODAY: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {
    "state/signals": signals_of_today,
    "state/clocks": intervals_of_today,
}
"""By folder, what brings rows of earlier versions into the columns of today."""
