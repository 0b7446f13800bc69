"""What commands that compare policies share: options, a run on all cores, tables and pictures."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.command import output_folder, stopping
from pipelines.nightly import local_worker, submitting
from pipelines.nightly.beam_options import Options
from pipelines.nightly.nightly import local_runner
from pipelines.pictures import plots
from pipelines.pictures.plots import Picture
from transforms.files.filesystems import FileSystems
from transforms.files.sinks import FileInfo, read_json, write_file


def run_here(
    build: Callable[[beam.Pipeline], None], beam_arguments: Sequence[str], workers: int, output: str
) -> None:
    """Run a pipeline to its end, in processes of this machine unless another runner is asked for.

    Raises
    ------
    OptionsError, policies.numerics.errors.RecrawlError, submitting.RunnerError
    """
    output_folder.check(output)
    options = Options(list(beam_arguments))
    runner = local_runner(options)
    if runner is not None:
        options.view_as(DirectOptions).direct_num_workers = workers
        if workers > 1:
            runner = FnApiRunner(default_environment=local_worker.environment())
    pipeline = beam.Pipeline(runner=runner, options=options)
    build(pipeline)
    # A job elsewhere has to be cancelled, which takes its time.
    with stopping.at_once() if runner is not None else nullcontext():
        submitting.finish(pipeline, remedy="Results are not complete; run it again")


def problem_in(output: str, name: str) -> Any:
    """What a worker wrote of a problem, as a file of the results, which goes; None where there is none."""
    path = FileSystems.join(output, name)
    found = read_json(path)
    if found is not None:
        FileSystems.delete([path])
    return found


def write_table(folder: str, name: str, table: pa.Table) -> FileInfo:
    """Write a table as one Parquet file."""

    def write(target: Any) -> None:
        pq.write_table(table, target, compression="zstd")

    return write_file(folder, name, write, table.num_rows)


def read_table(folder: str, name: str) -> pa.Table:
    """A Parquet file of a folder on any of Beam's file systems."""
    with FileSystems.open(FileSystems.join(folder, name)) as file:
        # `pq.read_table` reads through a scanner whose threads may hold the bytes a little longer than it
        # lasts, whatever `use_threads` says. A thread that gives an object back while Python shuts down is
        # ended by an unwinding that Arrow's destructors do not let through: the process aborts, all done.
        return pq.ParquetFile(pa.BufferReader(file.read())).read(use_threads=False)


def results_as_json(folder: str) -> str:
    """What results.json says, and the rows of summary.parquet, as one document; what is no number is null."""
    rows = read_table(folder, "summary.parquet").to_pylist()
    summary = [
        {n: None if v != v or v in (math.inf, -math.inf) else v for n, v in row.items()} for row in rows
    ]
    found = read_json(FileSystems.join(folder, "results.json")) | {"summary": summary}
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines, the first column to the left, others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def show_pictures(folder: str, pictures: Callable[[], Sequence[Picture]]) -> None:
    """Draw pictures into a folder and name them; say so where matplotlib is missing."""
    paths = []
    try:
        for picture in pictures():
            for name, data in plots.draw(picture).items():
                write_file(folder, name, data, 1)
                paths.append(FileSystems.join(folder, name))
    except plots.NoPlotsError as error:
        print(error, file=sys.stderr)
    else:
        print("\n" + "\n".join(paths))
