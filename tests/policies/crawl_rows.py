"""Rows of a crawl log for tests of the fold, as dicts and as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from policies.history.history import STATUS_NONE, Observations
from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.history.visits import REWRITTEN
from policies.signals.counts import Signals

SECOND, DAY = 1_000_000, US_PER_DAY
START = 20_000 * DAY
FOREVER = 1 << 60

Row = dict[str, Any]


def row(page: int, at_us: int, **columns: Any) -> Row:
    base = {
        "status": 200,
        "digest": 0,
        "changed": -1,
        "not_modified": False,
        "last_modified": NO_TIME,
        "form": 0,
    }
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
        column("form", np.uint32),
    )


def signals_of(rows: list[tuple[int, int, int]]) -> Signals:
    array = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return Signals(array[:, 0].copy(), array[:, 1].copy(), array[:, 2].astype(np.int32))


TIMES = st.one_of(
    st.integers(0, 40).map(lambda d: d * DAY),
    st.integers(0, 40 * 24 * 60).map(lambda m: m * 60 * SECOND),
    st.integers(0, 600).map(lambda s: 3 * DAY + s * SECOND),
    st.integers(0, 40 * DAY),
)
STATUSES = st.sampled_from([200, 200, 200, 200, 301, 304, 304, 404, 410, 500, 429, -1, 0, STATUS_NONE])


@st.composite
def logs(draw: Any, max_rows: int = 40) -> tuple[int, list[Row]]:
    n = draw(st.integers(1, 3))
    plain = draw(st.booleans())
    forms = draw(st.sampled_from([st.just(0), st.sampled_from([0, 3, 3, 3, 35, 1, 17, 33, 3 | REWRITTEN])]))
    rows = []
    for _ in range(draw(st.integers(0, max_rows))):
        at = START + draw(TIMES)
        columns: Row = {"digest": draw(st.integers(0, 3)), "form": draw(forms)}
        if not plain:
            columns["status"] = draw(STATUSES)
            columns["changed"] = draw(st.sampled_from([-1, -1, -1, 0, 1]))
            columns["not_modified"] = draw(st.sampled_from([False, False, False, True]))
            ages = st.sampled_from(
                [None, None, -1, 0, 30 * SECOND, 60 * SECOND, 7200 * SECOND, DAY // 2, 3 * DAY]
            )
            age, fixed = draw(ages), draw(st.one_of(st.none(), st.integers(0, 20)))
            columns["last_modified"] = NO_TIME if age is None else at - age
            if fixed is not None:
                columns["last_modified"] = (
                    START + fixed * DAY + draw(st.sampled_from([0, SECOND, DAY // 4, 7 * DAY]))
                )
        rows.append(row(draw(st.integers(0, n - 1)), at, **columns))
    return n, rows
