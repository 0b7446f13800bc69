"""Rows of a crawl log for tests of the fold, as dicts and as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.history import Observations
from policies.page_state import NO_TIME, US_PER_DAY
from policies.signal_counts import Signals

SECOND, DAY = 1_000_000, US_PER_DAY
START = 20_000 * DAY
FOREVER = 1 << 60

Row = dict[str, Any]


def row(page: int, at_us: int, **columns: Any) -> Row:
    base = {"status": 200, "digest": 0, "changed": -1, "not_modified": False, "last_modified": NO_TIME}
    return {"page": page, "at": at_us, **base, **columns}


def day(number: float, **columns: Any) -> Row:
    return row(0, START + round(number * DAY), **columns)


def observations(rows: list[Row]) -> Observations:
    def column(name: str, dtype: Any) -> Any:
        return np.array([r[name] for r in rows], dtype=dtype)

    return Observations(
        column("page", np.int64),
        column("at", np.int64),
        column("status", np.int16),
        column("digest", np.uint64),
        column("changed", np.int8),
        column("not_modified", np.bool_),
        column("last_modified", np.int64),
    )


def signals_of(rows: list[tuple[int, int, int]]) -> Signals:
    array = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Signals(array[:, 0].copy(), array[:, 1].copy(), array[:, 2].astype(np.int32))
