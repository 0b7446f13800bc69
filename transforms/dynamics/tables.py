"""Columns between the stages of `recrawl dynamics`, and of its results."""

from __future__ import annotations

import pyarrow as pa

from transforms.batches.schemas import named_schema

HOST = "host"
BY_ALL = 0
"""Number of the group of all pages; those of `--by` follow, one for each column."""

INTERVALS = named_schema(
    "dynamics_intervals",
    [
        ("page", pa.int32()),
        ("from_us", pa.int64()),
        ("to_us", pa.int64()),
        ("changed", pa.bool_()),
        ("last_from_us", pa.int64()),
        ("last_to_us", pa.int64()),
        ("dated_us", pa.int64()),
    ],
)
"""Times are UTC; `NO_TIME` as the end stands for the end of the list of changes."""

CLAIMS = named_schema("dynamics_claims", [("page", pa.int32()), ("who", pa.int8()), ("at_us", pa.int64())])

COUNTED = named_schema(
    "dynamics_counted",
    [
        ("by", pa.int32()),
        ("group", pa.string()),
        ("changes", pa.int64()),
        ("watched_us", pa.int64()),
        ("end_us", pa.int64()),
    ],
)
"""A row for each group of a shard, by which those that are shown are chosen."""

MOMENTS = named_schema(
    "dynamics_moments",
    [
        ("by", pa.int32()),
        ("group", pa.string()),
        ("pages", pa.int64()),
        ("saturated", pa.int64()),
        ("intervals", pa.int64()),
        ("changes", pa.int64()),
        ("rate", pa.float64()),
        ("rate_squares", pa.float64()),
        ("log_rate", pa.float64()),
        ("log_rate_squares", pa.float64()),
        ("watched_days", pa.float64()),
        ("value", pa.float64()),
        ("valued", pa.int64()),
    ],
)
"""Sums over the pages of a group of a shard; `value` is that of `--correlate`."""

_GROUP = [("by", pa.string()), ("group", pa.string())]
_PROFILE = [
    *_GROUP,
    ("estimate", pa.string()),
    ("{}", pa.int32()),
    ("share", pa.float64()),
    ("share_error", pa.float64()),
    ("probability", pa.float64()),
    ("changes", pa.int64()),
    ("told", pa.float64()),
]


def _profile(bin_name: str) -> pa.Schema:
    return pa.schema([(name.format(bin_name), kind) for name, kind in _PROFILE])


HOURS, WEEKDAYS = _profile("hour"), _profile("weekday")
WAITS = pa.schema(
    [
        *_GROUP,
        ("estimate", pa.string()),
        ("from_hours", pa.float64()),
        ("to_hours", pa.float64()),
        ("share", pa.float64()),
        ("share_error", pa.float64()),
        ("share_per_hour", pa.float64()),
        ("peak", pa.bool_()),
        ("changes", pa.int64()),
        ("resolution_hours", pa.float64()),
    ]
)
GROUPS = pa.schema(
    [
        *_GROUP,
        ("pages", pa.int64()),
        ("saturated_pages", pa.int64()),
        ("intervals", pa.int64()),
        ("changes_found", pa.int64()),
        ("found_per_crawl", pa.float64()),
        ("found_per_day", pa.float64()),
        ("rate_per_day", pa.float64()),
        ("rate_error", pa.float64()),
        ("value", pa.float64()),
    ]
)
