"""The first night against DuckDB's window query of the same rows.

To set each crawl beside the one before it of its URL is the least that an estimate of change needs; a night
reads the same files, and ends with a schedule.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.measuring.rows import Row
from benchmarks.night.bench_job import command

OBSERVATIONS_PER_PAGE = 20
THREADS = 2

QUERY = """
SELECT count(*), sum(CASE WHEN digest <> before THEN 1 ELSE 0 END), sum(epoch(fetched_at - before_at))
FROM (SELECT digest, fetched_at, lag(digest) OVER one AS before, lag(fetched_at) OVER one AS before_at
      FROM read_parquet('{logs}') WINDOW one AS (PARTITION BY url ORDER BY fetched_at))
"""


def run(scale: float = 1.0) -> list[Row]:
    """Figures of `scale` x 100,000 pages, 20 observations each; a process each, wall seconds."""
    pages = max(int(100_000 * scale), 1000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = ("--pages", pages, "--observations", OBSERVATIONS_PER_PAGE * pages)
        command("recrawl", "synthesize", *size, "--output", folder / "corpus")
        logs = f"{folder}/corpus/logs/*.parquet"
        night = command("recrawl", "nightly", "--observations", logs, "--budget", pages,
                        "--as_of", "2026-07-01", "--output", folder / "night")  # fmt: skip
        query = command("benchmarks.night.bench_window_query", logs)
    return [
        Row("first night, wall", night.seconds, "s"),
        Row(f"DuckDB's window query, {THREADS} threads, wall", query.seconds, "s"),
        Row("the night over the query", night.seconds / query.seconds, "x", 1.0),
        Row("peak memory of the night", night.peak_bytes / 2**30, "GiB", 2.5 * scale / 10),
        Row("peak memory of the query", query.peak_bytes / 2**30, "GiB"),
    ]


def _query(logs: str) -> None:
    import duckdb

    duckdb.execute(f"SET threads = {THREADS}")
    print(duckdb.execute(QUERY.format(logs=logs)).fetchall())


if __name__ == "__main__":
    _query(sys.argv[1])
