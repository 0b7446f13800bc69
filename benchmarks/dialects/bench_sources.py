"""Nanoseconds per row from files to canonical batches, on one core."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from benchmarks.measuring.rows import Row
from benchmarks.measuring.timing import best_ns
from transforms.batches.digests import digests as read_digests
from transforms.batches.texts import Texts
from transforms.batches.urls import HostTable, hash_urls, trim
from transforms.files.filesystems import InputFile
from transforms.intake.formats import plan, read
from transforms.intake.sources import read_split
from transforms.rows.normalise import KINDS, normalise

KIND = KINDS["observations"]


def log(rows: int, pages: int, seed: int = 1) -> pa.Table:
    """A crawl log: URLs of about 60 bytes on power-law hosts, SHA-1 digests, sorted by time."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    host = np.minimum(rng.zipf(1.3, pages), 50_000)
    item = rng.integers(0, 10**9, pages)
    numbers = [pc.cast(pa.array(a), pa.string()) for a in (host, item)]
    urls = pc.binary_join_element_wise(
        "https://www.site-", numbers[0], ".example.com/catalog/item-", numbers[1], ".html", ""
    )
    digests = pa.array([rng.bytes(20).hex() for _ in range(min(rows, 200_000))])
    times = 1767225600_000_000 + np.sort(rng.integers(0, 20 * 86400_000_000, rows))
    return pa.table(
        {
            "url": urls.take(pa.array(rng.integers(0, pages, rows))),
            "fetched_at": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
            "status": pa.array(rng.choice([200, 200, 200, 304, 404, 500], rows).astype(np.int16)),
            "digest": digests.take(pa.array(rng.integers(0, len(digests), rows))),
        }
    )


def _drain(path: Path, table: HostTable) -> int:
    splits = plan(InputFile(str(path), os.path.getsize(path)))
    return sum(b.num_rows for split in splits for _, b in read_split(split, KIND, None, table))


def run(scale: float = 1.0) -> list[Row]:
    """All rows; `scale` 1 is two million observations of half a million pages."""
    n = max(int(2_000_000 * scale), 10_000)
    threads = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        return _run(n)
    finally:
        pa.set_cpu_count(threads)


def _run(n: int) -> list[Row]:
    data = log(n, n // 4)
    table = HostTable()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        pq.write_table(data, path)
        splits = plan(InputFile(str(path), os.path.getsize(path)))
        blocks = [b.batch for s in splits for b in read(s, KIND) if not isinstance(b, pa.RecordBatch)]
        urls = [b.column("url") for b in blocks]
        hashed = [(hash_urls(u)[1], Texts(u)) for u in urls]
        normalised = [normalise(KIND, b, "", 0, table) for b in blocks]
        del normalised

        def row(name: str, call: Callable[[], object], target: float | None = None) -> None:
            rows.append(Row(name, best_ns(call, n), "ns/row", target))

        row("read Parquet", lambda: [b for s in splits for b in read(s, KIND)], 180.0)
        row("hash URLs and authorities", lambda: [hash_urls(u) for u in urls], 100.0)
        row("authorities to hosts", lambda: [table.find(*h) for h in hashed], 22.0)
        row("look for blanks around URLs", lambda: [trim(u) for u in urls])
        row("hash digests", lambda: [read_digests(b.column("digest")) for b in blocks])
        row("normalise a block, all of it", lambda: [normalise(KIND, b, "", 0, table) for b in blocks])
        row("Parquet to canonical batches", lambda: _drain(path, table), 400.0)

        n = n // 8
        data = data.slice(0, n)
        pyarrow.csv.write_csv(data, Path(folder) / "log.csv")
        seconds = pc.cast(data["fetched_at"], pa.int64()).to_numpy() // 1_000_000
        texts = [
            data["url"].to_pylist(),
            seconds.tolist(),
            data["status"].to_pylist(),
            data["digest"].to_pylist(),
        ]
        with open(Path(folder) / "log.jsonl", "w") as f:
            f.writelines(
                f'{{"url":"{u}","fetched_at":{t},"status":{s},"digest":"{d}"}}\n'
                for u, t, s, d in zip(*texts, strict=True)
            )
        for name, file in (("CSV, ISO 8601", "log.csv"), ("JSON Lines, epoch", "log.jsonl")):
            file_path = Path(folder) / file
            us = best_ns(lambda p=file_path: _drain(p, table), n) / 1000  # type: ignore[misc]
            rows.append(Row(f"{name} to canonical batches", us, "us/row"))
    return rows
