"""The whole job against the same kernels without Beam.

Scale 1 is 100,000 pages with 20 observations each; 10 is the size that the README quotes. Every run is a
process of its own, so that its wall time and its peak memory are its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import apache_beam as beam
import numpy as np
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from benchmarks.measuring.rows import Row
from policies.optimum import search
from transforms.batches.coders import RecordBatchCoder, ShardTables
from transforms.intake.reading import packed
from transforms.intake.sources import ROWS, plan_files, read_split
from transforms.night.solving import SolveMultiplier, block_to_tables
from transforms.rows.normalise import KINDS
from transforms.shards.sharding import Layout, ShardBuffer

OBSERVATIONS_PER_PAGE = 20


@dataclass(frozen=True)
class Run:
    """Wall seconds and peak memory of one process."""

    seconds: float
    peak_bytes: int


def command(module: str, *arguments: object) -> Run:
    """Run `python -m module arguments`; its output is thrown away unless it fails."""
    line = [sys.executable, "-m", module, *map(str, arguments)]
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(line, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        if status:
            log.seek(0)
            raise RuntimeError(f"{' '.join(line)} failed:\n{log.read().decode()[-2000:]}")
    return Run(seconds, usage.ru_maxrss * 1024)


def run(scale: float = 1.0) -> list[Row]:
    """Figures of `scale` x 100,000 pages."""
    pages = max(int(100_000 * scale), 1000)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def corpus(where: str, observations: int, *arguments: object) -> str:
            command("recrawl", "synthesize", "--pages", pages, "--observations", observations,
                    *arguments, "--output", folder / where)  # fmt: skip
            return f"{folder}/{where}/logs/*.parquet"

        def night(module: str, logs: str, where: str, *arguments: object) -> Run:
            return command(*module.split(), "--observations", logs, "--budget", pages, *arguments,
                           "--output", folder / where)  # fmt: skip

        even = corpus("even", OBSERVATIONS_PER_PAGE * pages)
        giant = corpus("giant", OBSERVATIONS_PER_PAGE * pages, "--giant_host_fraction", 0.3)
        next_day = corpus("next", pages, "--days", 1, "--start", "2026-07-01")
        job = "recrawl nightly"
        start = command("recrawl", "--version")
        plain = night("benchmarks.night.without_beam", even, "plain", "--as_of", "2026-07-01")
        whole = night(job, even, "whole", "--as_of", "2026-07-01")
        skewed = night(job, giant, "skewed", "--as_of", "2026-07-01")
        second = night(job, next_day, "second", "--as_of", "2026-07-02", "--allow_shrink",
                       "--state", folder / "whole" / "state")  # fmt: skip
        rows_read = OBSERVATIONS_PER_PAGE * pages
        rows += [
            Row("imports and command line, alone", start.seconds, "s"),
            Row("job, all observations", whole.seconds, "s", 30.0 * pages / 1e6 if pages >= 1e6 else None),
            Row("job, us per observation", 1e6 * whole.seconds / rows_read, "us", 1.5),
            Row("job against kernels without Beam, wall", whole.seconds / plain.seconds, "x", 1.3),
            Row("peak memory of the job", whole.peak_bytes / 2**30, "GiB", 4.0 if pages >= 1e6 else None),
            Row(
                "peak memory per observation",
                whole.peak_bytes / rows_read,
                "B",
                130 + 400 / OBSERVATIONS_PER_PAGE,
            ),
            Row("a host with 30 % of pages against even, wall", skewed.seconds / whole.seconds, "x", 1.5),
            Row(
                "a host with 30 % of pages against even, memory",
                skewed.peak_bytes / whole.peak_bytes,
                "x",
                1.5,
            ),
            Row("night on top of state, us per page", 1e6 * second.seconds / pages, "us", 8.0),
            Row("shuffled per observation", _shuffled_bytes(even), "B", 40.0),
        ]
    return rows + _solve(pages)


def _shuffled_bytes(logs: str) -> float:
    coder, buffer = RecordBatchCoder(), ShardBuffer(Layout(16, {}), 1 << 18)
    sizes, rows = 0, 0
    for split in plan_files(logs.replace("*", "*-0[1-5]"), "observations"):
        for tag, batch in read_split(split, KINDS["observations"]):
            if tag == ROWS:
                rows += batch.num_rows
                sizes += sum(len(coder.encode(packed(part))) for _, part in buffer.add(batch))
    sizes += sum(len(coder.encode(packed(part))) for _, part in buffer.flush())
    return sizes / max(rows, 1)


def _solve(pages: int) -> list[Row]:
    """The search as a pipeline: what it takes beyond handing over the same elements and doing nothing."""
    rng = np.random.default_rng(0)
    n = pages // 16
    tables = [
        block_to_tables(i, search.PageBlock(rng.gamma(0.5, 0.1, n) + 1e-6, rng.pareto(1.2, n) + 0.1))
        for i in range(16)
    ]

    def seconds(solve: bool) -> float:
        begun = time.perf_counter()
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            blocks = (
                pipeline
                | beam.Create(range(16))
                | beam.Map(tables.__getitem__).with_output_types(ShardTables)
            )
            if solve:
                blocks | "Solve" >> SolveMultiplier("periodic", pages / 10, 16)
        return time.perf_counter() - begun

    seconds(True)
    return [
        Row("solve as a pipeline, per page", 1e9 * (seconds(True) - seconds(False)) / (16 * n), "ns", 450.0)
    ]
