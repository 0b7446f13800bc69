"""Nights for tests of what is made of a schedule: rows in, a committed folder out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from transforms.batches import schemas
from transforms.files.shard_files import write_shard
from transforms.files.sinks import write_json
from transforms.finished.nights import Night

START_US = 1_782_864_000_000_000  # 2026-07-01T00:00:00Z
HOUR_US = 3_600_000_000
# What every manifest of a night has.
MANIFEST: dict[str, Any] = {
    "status": "ok",
    "multiplier": 0.1,
    "budget_per_day": 1.0,
    "allocated_per_day": 1.0,
    "unspent_per_day": 0.0,
    "unspent_reason": "",
    "expected_freshness": 0.5,
    "expected_freshness_uniform": 0.5,
    "weight_by": "clicks",
    "search": {"status": "converged", "rounds": 1},
    "counters": {},
    "hosts_at_limit": [],
    "warnings": [],
    "options": {
        "as_of": "2026-07-01T00:00:00Z",
        "as_of_us": START_US,
        "objective": "periodic",
        "host_max_per_day": None,
        "host_min_gap_seconds": 0.0,
        "hosts": None,
    },
    "files": [],
}
Shards = Sequence[Sequence[dict[str, Any]]]


def crawl(url: str, due_us: int = 0, **more: Any) -> dict[str, Any]:
    """A row of schedule/, due `due_us` microseconds after the start."""
    host = more.pop("host", url.split("/")[2] if url.count("/") > 1 else "shop.test")
    row = {"url": url, "due_at": START_US + due_us, "host": host, "reason": "due"}
    return row | {"crawl_rate_per_day": 0.5, "weight": 1.0, "value": 0.25} | more


def write_night(folder: Path, shards: Shards, file_format: str = "parquet") -> Night:
    """A night with these rows, which are in order of time within a shard unless a test wants otherwise."""
    schema = schemas.SCHEDULE.remove_metadata()
    files = []
    for shard, rows in enumerate(shards):
        columns = []
        for f in schema:
            values = [{"shard": shard, "slot": slot, **row}[f.name] for slot, row in enumerate(rows)]
            columns.append(pa.array(values, pa.int64() if f.name == "due_at" else f.type).cast(f.type))
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        files.append(write_shard(str(folder), "schedule", shard, len(shards), batch, file_format).as_dict())
    options = MANIFEST["options"] | {"num_shards": len(shards)}
    write_json(str(folder), "manifest.json", MANIFEST | {"options": options, "files": files})
    return Night.open(str(folder))
