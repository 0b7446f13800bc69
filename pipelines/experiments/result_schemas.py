"""Columns and rows of the tables that `recrawl backtest`, `frontier` and `simulate` write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from transforms.batches import schemas
from transforms.batches.schemas import TIME
from transforms.replay.backtesting import Scored

_SCORES = [
    ("accuracy", pa.float64()),
    ("offer_freshness", pa.float64()),
    ("harmonic_cost", pa.float64()),
    ("crawls", pa.int64()),
    ("spent", pa.float64()),
    ("found", pa.float64()),
]
BACKTEST: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("budget", pa.float64()),
        ("budget_per_day", pa.float64()),
        ("weights", pa.string()),
        ("repetition", pa.int32()),
        ("pages", pa.int64()),
        *_SCORES,
    ]
)
"""results.parquet of a backtest: a row a run."""

DAYS: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("budget", pa.float64()),
        ("weights", pa.string()),
        ("repetition", pa.int32()),
        ("day", TIME),
        ("fresh", pa.float64()),
        ("held", pa.float64()),
    ]
)
"""days.parquet of a backtest: a row a run and scored day."""

FRONTIER: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("weights", pa.string()),
        ("repetition", pa.int32()),
        ("target", pa.float64()),
        ("budget", pa.float64()),
        ("budget_per_day", pa.float64()),
        ("standard_error", pa.float64()),
        ("per_e_fold", pa.float64()),
        ("accuracy_error", pa.float64()),
        ("most_accuracy", pa.float64()),
        ("most_budget", pa.float64()),
        ("runs", pa.int32()),
    ]
)
"""frontier.parquet: a row a policy, target and repetition."""

SIMULATION: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("pages", pa.int64()),
        ("bandwidth", pa.float64()),
        ("budget", pa.float64()),
        ("repetition", pa.int32()),
        *_SCORES,
        ("requests", pa.int64()),
        ("fresh_requests", pa.int64()),
    ]
)
"""results.parquet of a simulation: a row a policy and repetition."""

OVER_TIME: Final = pa.schema(
    [
        ("policy", pa.string()),
        ("pages", pa.int64()),
        ("bandwidth", pa.float64()),
        ("repetition", pa.int32()),
        ("begin", pa.float64()),
        ("end", pa.float64()),
        ("accuracy", pa.float64()),
    ]
)
"""over_time.parquet of a simulation: the same in parts of the time."""


def results_table(scored: Sequence[Scored]) -> pa.Table:
    """One row a run and weighting."""
    rows = [{n: getattr(s, n, None) for n in BACKTEST.names} for s in scored]
    for row, s in zip(rows, scored, strict=True):
        row["budget_per_day"] = s.budget * s.pages
    return pa.Table.from_pylist(rows, BACKTEST)


def days_table(scored: Sequence[Scored], begin_us: int) -> pa.Table:
    """One row a run, weighting and scored day."""
    size = [len(s.fresh) for s in scored]
    day = begin_us + np.concatenate([np.arange(n) for n in size]) * 86_400_000_000
    columns = {
        "policy": np.repeat(np.array([s.policy for s in scored], object), size),
        "budget": np.repeat([s.budget for s in scored], size),
        "weights": np.repeat(np.array([s.weights for s in scored], object), size),
        "repetition": np.repeat(np.array([s.repetition for s in scored], np.int32), size),
        "day": pa.array(day).cast(schemas.TIME),
        "fresh": np.concatenate([s.fresh for s in scored]),
        "held": np.concatenate([s.held for s in scored]),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in DAYS], schema=DAYS)
