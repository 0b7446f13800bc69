"""Microseconds an entry from rows of a schedule to the text of an export: `python -m benchmarks exports`."""

import numpy as np
import pyarrow as pa

from benchmarks.bench_sources import log
from benchmarks.rows import Row, show
from benchmarks.timing import best_ns
from transforms.batches import schemas
from transforms.finished.export_formats import FORMATS, Wishes, hours, refused
from transforms.finished.merging import MERGED_ROWS


def schedule(rows: int) -> pa.Table:
    """A night of crawls in the order of time."""
    rng = np.random.Generator(np.random.Philox(key=1))
    url = log(rows, rows)["url"].combine_chunks()
    rate = rng.exponential(size=rows)
    due_us = 1_767_225_600_000_000 + np.arange(rows, dtype=np.int64) * 86_400_000_000 // rows
    columns = {
        "shard": np.zeros(rows, np.int32),
        "slot": np.arange(rows),
        "due_at": pa.array(due_us, schemas.TIME),
        "url": url,
        "host": [text.split("/")[2] for text in url.to_pylist()],
        "crawl_rate_per_day": rate,
        "reason": np.where(rng.random(rows) < 0.1, "new", "due"),
        "weight": np.ones(rows),
        "value": rng.random(rows),
    }
    return pa.table(columns, schemas.SCHEDULE)


def run(scale: float = 1.0) -> list[Row]:
    """All rows; `scale` 1 is a million entries."""
    n = max(int(1_000_000 * scale), 10_000)
    table = schedule(n)
    wishes = Wishes(first_hour=int(hours(table)[0]))
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        rows = []
        for name, to in FORMATS.items():

            def write(to=to) -> None:  # type: ignore[no-untyped-def]
                for first in range(0, n, MERGED_ROWS):
                    piece = table.slice(first, MERGED_ROWS)
                    refused(piece, to)
                    to.text(piece, wishes)

            rows.append(Row(f"export to {name}", best_ns(write, n, 3) / 1000, "us/entry"))
        return rows
    finally:
        pa.set_cpu_count(threads)


if __name__ == "__main__":
    show(run())
