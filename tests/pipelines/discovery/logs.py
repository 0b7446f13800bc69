"""Logs of links seen, from histories of what sources showed, and jobs on them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.door import cli
from policies.discovery.presences import Presences
from tests.pipelines.plain_runner import chosen

HOUR, START = 3600, 1_767_052_800  # 2025-12-30
Row = tuple[str, str, int, int]
"""Source, target, seconds since 1970, status."""


def source_url(source: int) -> str:
    return f"https://www.site{source % 7}.test/section/{source}"


def rows_of(history: Presences, polls: np.ndarray) -> pa.Table:
    """What fetches of sources showed: a row a link. Targets are of the site of whoever shows them."""
    of, row = history.at(polls)
    source, target = history.poll_source[polls][of], history.target[row]
    seen = history.poll_us[polls][of]
    return pa.table(
        {
            "source": [source_url(s) for s in source.tolist()],
            "target": [
                f"https://www.site{s % 7}.test/article/{t}" for s, t in zip(source, target, strict=True)
            ],
            "seen_at": pa.array(seen, pa.timestamp("us", tz="UTC")),
            "status": np.full(len(seen), 200),
        }
    )


def write_csv(path: Path, rows: Iterable[Row]) -> Path:
    """Rows as a CSV."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("source", "target", "seen_at", "status"), *rows])
    return path


def discover(output: Path, *words: str | Path) -> int:
    """Run the job by the light runner; its exit code."""
    with chosen():
        return cli.main(["discover", *(str(w) for w in words), f"--output={output}"])


def iso(at_s: int) -> str:
    """As `--as_of` takes it."""
    return str(np.datetime64(at_s, "s")) + "Z"


def read(output: Path, folder: str, key: Sequence[str] = ()) -> list[dict[str, Any]]:
    """All rows of a folder, sorted."""
    found = [r for path in sorted((output / folder).glob("shard-*")) for r in pq.read_table(path).to_pylist()]
    return sorted(found, key=lambda r: [r[k] for k in key])


def manifest(output: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return found


def contents(output: Path, *folders: str) -> dict[str, bytes]:
    """Bytes of all files of some folders."""
    paths = [p for folder in folders for p in sorted((output / folder).rglob("shard-*"))]
    return {str(p.relative_to(output)): p.read_bytes() for p in paths}
