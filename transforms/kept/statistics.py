"""All statistics of pages, and the columns of files that follow.

To add one: a file with its class, and its name here. Its columns come last in the files.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from policies.numerics.typing_ import IntArray
from transforms.batches import schemas
from transforms.kept.answers import ShardAnswers
from transforms.kept.clocks import ShardClocks
from transforms.kept.flags import Alike, Alternating, OnRequest, Volatile, Weight
from transforms.kept.lastmods import ShardLastmods
from transforms.kept.predictions import ShardPredictions
from transforms.kept.protocol import Statistic
from transforms.kept.request_hours import ShardRequestHours
from transforms.kept.request_pairs import ShardRequestPairs
from transforms.kept.requests import ShardRequests
from transforms.kept.signals import ShardNews
from transforms.kept.silence import ShardSilence

# In the order in which they are made and folded, and of their columns. Dates that moved are signals, and
# whether a page is listened to says how it is judged.
STATISTICS: tuple[type[Statistic], ...] = (
    ShardLastmods,
    Volatile,
    Alike,
    Alternating,
    Weight,
    ShardNews,
    ShardPredictions,
    ShardSilence,
    ShardRequests,
    ShardRequestPairs,
    ShardRequestHours,
    ShardClocks,
    OnRequest,
    ShardAnswers,
)


def _with(base: pa.Schema, columns: str) -> pa.Schema:
    return pa.schema([*base, *(f for kind in STATISTICS for f in getattr(kind, columns))], base.metadata)


def state_schema() -> pa.Schema:
    """Columns of state/."""
    return _with(schemas.STATE, "STATE")


def slots_schema() -> pa.Schema:
    """Columns of slots/pages."""
    return _with(schemas.SLOTS_PAGES, "SLOTS")


def pages_schema() -> pa.Schema:
    """Columns of pages/, but for metadata."""
    return _with(schemas.PAGES_OUT, "PAGES")


def carried_folders() -> dict[str, pa.Schema]:
    """What a night leaves to the next one, by folder."""
    own = dict(folder for kind in STATISTICS for folder in kind.FOLDERS)
    return {"state": state_schema(), **own, "slots/pages": slots_schema(), "slots/hosts": schemas.SLOTS_HOSTS}


def may_lack() -> set[str]:
    """Columns that nights of an older version did not write; they are read as null."""
    later = (f.name for kind in STATISTICS if kind.LATER for f in (*kind.STATE, *kind.SLOTS))
    return {*schemas.ADDED_LATER, *later}


def said(counters: dict[str, int]) -> str:
    """What the summary says of pages."""
    found = [(counters.get(name, 0), text) for kind in STATISTICS for name, text in kind.SAID]
    return "".join(f", {n:,} {text}" for n, text in found if n)


def filled(
    schema: pa.Schema, given: Mapping[str, pa.Array], pages: pa.RecordBatch, rows: IntArray | None = None
) -> pa.RecordBatch:
    """A batch of the rows of a table of pages, or of some.

    Parameters
    ----------
    schema : Schema
    given : dict of str to Array
        Columns of these rows; others are those of `pages`, or null, or false where they are flags.
    pages : RecordBatch
    rows : (k,) int64, optional
    """
    n = pages.num_rows if rows is None else len(rows)

    def column(field: pa.Field) -> pa.Array:
        if field.name in given:
            return given[field.name]
        if field.name in pages.schema.names:
            whole = pages.column(field.name)
            return (whole if rows is None else whole.take(pa.array(rows))).cast(field.type)
        return pa.array(np.zeros(n, np.bool_)) if pa.types.is_boolean(field.type) else pa.nulls(n, field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in schema], schema=schema)
