"""Two revisions in pairs: `python -m benchmarks compare REV [--jobs JOB ...] [--pages N] [--pairs N]`.

Each job runs as a process of its own, by turns of this tree and of the other revision, which goes first
changing from pair to pair; the other machine's load then meets both alike. Printed are the medians of this
tree and the ratios to the other with the least and the greatest of the pairs: below 1 this tree is better.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import NamedTuple

JOBS = ("small", "first", "state")
"""A night of 300 pages; a first night; and a night on its state, of all inputs both."""

HERE = Path(__file__).parents[1]


class Cost(NamedTuple):
    """Seconds of wall and processor, and peak bytes, of one process and its children."""

    wall: float
    processor: float
    peak: float


def checkout(revision: str, folder: Path) -> Path:
    """The files of a revision, in a folder of their own."""
    archive = subprocess.run(
        ["git", "-C", str(HERE), "archive", revision], check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def recrawl(tree: Path, *arguments: object) -> Cost:
    """What a command of a tree takes."""
    module = "recrawl" if (tree / "recrawl").is_dir() else "pipelines.cli"
    line = [sys.executable, "-P", "-m", module, *map(str, arguments)]
    return run(line, tree)


def run(line: Sequence[str], tree: Path = HERE) -> Cost:
    """What a process takes that imports from a tree."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(line, env=environment, stdout=log, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        if status:
            log.seek(0)
            raise RuntimeError(f"{' '.join(line)} failed:\n{log.read().decode()[-2000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024.0)


def corpus(folder: Path, pages: int, days: int, observations: int, start: str) -> list[str]:
    """Write a made-up corpus; returns the options of a night that name its inputs."""
    made = ("--pages", pages, "--observations", observations, "--days", days, "--start", start)
    recrawl(HERE, "synthesize", *made, "--output", folder)
    inputs = {"observations": "logs", "requests": "clicks", "signals": "signals"}
    found = [f"--{option}={folder}/{name}/*.parquet" for option, name in inputs.items()]
    return [*found, f"--pages={folder}/pages.parquet", f"--hosts={folder}/hosts.csv"]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=__doc__.split("\n")[0])
    parser.add_argument("revision")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS)
    parser.add_argument("--pages", type=int, default=200_000, help="of first and state")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trees = {"here": HERE, "there": checkout(options.revision, folder / "there")}
        pages, nights = options.pages, {}
        if "small" in options.jobs:
            nights["small"] = corpus(folder / "small", 300, 30, 6000, "2026-06-01")
        if {"first", "state"} & set(options.jobs):
            nights["first"] = corpus(folder / "first", pages, 30, 7 * pages, "2026-06-01")
            nights["state"] = corpus(folder / "state", pages, 1, pages, "2026-07-01")

        def night(job: str, tree: str) -> Cost:
            given = [*nights[job], f"--budget={300 if job == 'small' else pages}", "--allow_shrink"]
            day = 2 if job == "state" else 1
            given += [f"--as_of=2026-07-0{day}", f"--output={folder}/{tree}-{job}"]
            shutil.rmtree(folder / f"{tree}-{job}", ignore_errors=True)
            given += [f"--state={folder}/{tree}-first/state"] if job == "state" else []
            return recrawl(trees[tree], "nightly", *given)

        print(f"| job | wall, s | processor, s | peak, MB | to {options.revision}: wall | processor | peak |")
        print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for job in sorted(options.jobs, key=JOBS.index):
            if job == "state" and "first" not in options.jobs:
                for tree in trees:
                    night("first", tree)
            costs: dict[str, list[Cost]] = {tree: [] for tree in trees}
            for pair in range(options.pairs):
                for tree in sorted(trees, reverse=pair % 2 == 1):
                    costs[tree].append(night(job, tree))
            own = [median(values) for values in zip(*costs["here"], strict=True)]
            cells = [f"{own[0]:.1f}", f"{own[1]:.1f}", f"{own[2] / 1e6:.0f}"]
            for here, there in zip(
                zip(*costs["here"], strict=True), zip(*costs["there"], strict=True), strict=True
            ):
                ratios = [a / b for a, b in zip(here, there, strict=True)]
                cells.append(f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
            print(f"| {job} | {' | '.join(cells)} |", flush=True)
