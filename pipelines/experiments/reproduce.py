"""`recrawl reproduce FIGURE`: a paper's experiment with its parameters, ours beside the paper's claims."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.command import output_folder, stopping
from pipelines.command.errors import OptionsError
from pipelines.experiments import figures, given_history, reproduced
from pipelines.experiments.figures.records import Columns, Figure, Made
from pipelines.nightly.progress import Clock
from pipelines.pictures import plots
from policies.numerics.errors import RecrawlError
from transforms.files.sinks import write_file

LIST: Final = "list"
MAX_REPETITIONS, MAX_WORKERS = 10_000, 64
LEAST_TIME: Final = 4.0
INT32: Final = ("repetition",)
MORE: Final = ("calibration", "over_time", "pages", "rates")
"""Names of tables that some figures have besides the results."""


def _pages(text: str | None, figure: Figure, found: list[str]) -> list[int]:
    if text is None:
        return list(figure.pages)
    try:
        pages = [int(word) for word in text.split(",")]
    except ValueError:
        found.append(f"--pages={text}: give whole numbers with commas between, e.g. --pages=100,500")
        return []
    fewest = 20
    wrong = [n for n in pages if not fewest <= n <= figure.most_pages]
    if wrong:
        found.append(f"--pages={text}: {wrong[0]} is not within {fewest} and {figure.most_pages}")
    return sorted(set(pages))


def _document_problem(path: str) -> str | None:
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        return f"--document={path}: is a folder; give a Markdown file"
    if not os.path.isdir(folder):
        return f"--document={path}: there is no folder {folder}: make it, or give another file"
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        return f"--document={path}: cannot be written; give another file, or the right to write it"
    return None


def own() -> list[str]:
    """Names of all files that the command may have left in its folder, of any figure."""
    tables = [f"{name}.parquet" for name in ("results", *MORE)]
    return [*tables, "report.md", *output_folder.pictures(figures.names())]


def _problems(parsed: argparse.Namespace) -> list[str]:
    """What is wrong with the options, of a figure that there is."""
    found: list[str] = []
    figure = figures.get(parsed.figure)
    if not parsed.changes:
        _pages(parsed.pages, figure, found)
    elif figure.tasks_of is None:
        found.append(f"--changes: {figure.name} is made of drawn pages only; leave it out")
    if not parsed.output:
        found.append("--output is missing: give a folder for results, report and pictures")
    for name, value, most in (
        ("repetitions", parsed.repetitions, MAX_REPETITIONS),
        ("workers", parsed.workers, MAX_WORKERS),
    ):
        if value is not None and not 1 <= value <= most:
            found.append(f"--{name}={value}: give a number from 1 to {most}")
    if parsed.document and (problem := _document_problem(parsed.document)):
        found.append(problem)
    if not 0 <= parsed.seed < 2**31:
        found.append(f"--seed={parsed.seed}: give a number from 0 to {2**31 - 1}")
    if parsed.until is not None:
        if figure.until is None:
            found.append(f"--until: {figure.name} has a fixed number of days; leave it out")
        elif not LEAST_TIME <= parsed.until <= 100.0 * figure.until:
            found.append(
                f"--until={parsed.until:g}: give {LEAST_TIME:g} to {100.0 * figure.until:g} time units"
            )
    return found


def problems(parsed: argparse.Namespace) -> list[str]:
    """What is wrong with the options."""
    if parsed.figure == LIST:
        return []
    try:
        return _problems(parsed)
    except ValueError as error:
        return [str(error)]


def _parts(run: Callable[[Any], Any], tasks: list[Any], workers: int, clock: Clock) -> Iterator[Any]:
    """Parts of all tasks, in order of the tasks."""
    if workers == 1 or len(tasks) == 1:
        for done, task in enumerate(tasks, 1):
            yield run(task)
            clock.count(done, len(tasks), "parts")
        return
    # Spawned, not forked: libraries of the parent have threads.
    context = multiprocessing.get_context("spawn")
    size = min(workers, len(tasks))
    with ProcessPoolExecutor(size, context, stopping.end_with, (os.getpid(),)) as pool:
        try:
            with stopping.deaf_children():
                pending = {pool.submit(run, task): number for number, task in enumerate(tasks)}
            parts: list[Any] = [None] * len(tasks)
            for done, future in enumerate(as_completed(pending), 1):
                parts[pending[future]] = future.result()
                clock.count(done, len(tasks), "parts")
        except BrokenProcessPool:
            raise RecrawlError(
                f"one of {size} worker processes died, usually for want of memory: give fewer --workers or "
                "--pages"
            ) from None
        except BaseException:
            for process in multiprocessing.active_children():  # else a part is waited for, be it an hour
                process.kill()
            pool.shutdown(cancel_futures=True)
            raise
    yield from parts


def table_of(columns: Columns) -> pa.Table:
    """An Arrow table of columns: text as strings, repetitions as int32, other whole numbers as int64."""
    arrays = {}
    for name, values in columns.items():
        some = np.asarray(values)
        if some.dtype.kind in "OU":
            arrays[name] = pa.array([str(value) for value in some.tolist()], pa.string())
        elif some.dtype.kind in "iu":
            arrays[name] = pa.array(some, pa.int32() if name in INT32 else pa.int64())
        elif some.dtype.kind == "b":
            arrays[name] = pa.array(some, pa.bool_())
        else:
            arrays[name] = pa.array(some.astype(np.float64), pa.float64())
    return pa.table(arrays)


def _write_tables(folder: str, made: Made) -> None:
    for name, columns in {"results": made.columns, **made.more}.items():
        table = table_of(columns)
        write_file(
            folder,
            f"{name}.parquet",
            lambda out, table=table: pq.write_table(table, out, compression="zstd"),  # type: ignore[misc]
            table.num_rows,
        )


def run(parsed: argparse.Namespace) -> int:
    """Make a figure, or name all of them.

    Raises
    ------
    OptionsError
        Options that cannot work.
    """
    found = problems(parsed)
    if found:
        raise OptionsError(found)
    if parsed.figure == LIST:
        print(reproduced.listing(list(figures.all_figures().values())))
        return 0
    figure = figures.get(parsed.figure)
    repetitions = parsed.repetitions or figure.repetitions
    until = parsed.until or figure.until
    output_folder.check(parsed.output)
    clock = Clock(sys.stderr)
    pages: list[int] = []
    if parsed.changes and figure.tasks_of is not None:
        clock.say("reading the history")
        given, horizon_hours = given_history.read(parsed)
        repetitions = parsed.repetitions or 1
        tasks = figure.tasks_of(given, repetitions, parsed.seed, horizon_hours)
    else:
        pages = _pages(parsed.pages, figure, [])
        tasks = figure.tasks(pages, repetitions, until or 0.0, parsed.seed, parsed.workers)
    clock.say(f"running {figure.name}")
    made = figure.make(list(_parts(figure.run, tasks, parsed.workers, clock)))
    clock.say("writing results")
    output_folder.clear(parsed.output, own())
    _write_tables(parsed.output, made)
    pictures: dict[str, bytes] = {}
    if not parsed.no_plots:
        try:
            for picture in made.pictures:
                pictures |= plots.draw(picture)
        except plots.NoPlotsError as error:
            print(f"recrawl: {error}", file=sys.stderr)
    for name, data in pictures.items():
        write_file(parsed.output, name, data, 1)
    command = reproduced.command(figure, pages, repetitions, until, parsed.seed)
    if parsed.changes:
        command = given_history.command(figure.name, parsed)
    shown = reproduced.report(figure, made, command, list(pictures))
    write_file(parsed.output, "report.md", shown.encode(), 1)
    print(reproduced.on_screen(figure, made))
    print(f"\n{parsed.output}: results.parquet, report.md" + (", pictures" if pictures else ""))
    if parsed.document:
        try:
            reproduced.put(parsed.document, figure, made, command, pictures, figures.names())
        except OSError as error:
            raise RecrawlError(
                f"--document={parsed.document}: {error.strerror}; the report is in {parsed.output}/report.md"
            ) from error
    return 0
