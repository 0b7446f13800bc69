"""What it does to freshness to correct rates, and not only what is said of them, by what came of forecasts.

    python -m benchmarks.judging.corrected_rates [NAME ...] [--weights zipf] [--by cells host both]

A closed loop as in `benchmarks.replay.ablation`, with the rates that a night plans by multiplied by the
factors of `policies.judging`: those of cells (of all intervals of a page's calm), those of hosts, or both,
each where it is used. What the next night judges are rates without them, as in the job.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.measuring.histories import shared_folder
from benchmarks.replay.ablation import _difference
from benchmarks.replay.backtest_histories import HISTORIES, convert
from pipelines.door import cli
from policies.judging import recalibration
from policies.judging.host_factors import COLUMNS, HostTrack, pays
from policies.judging.recalibration import CALM, KINDS, NO_CELL, PLAIN, Track, calm_cells
from policies.numerics.typing_ import FloatArray
from transforms.batches.coders import ShardTables
from transforms.night.scheduling import ScheduledShard
from transforms.replay.job_nights import JobFold

BY = ("cells", "host", "both")


def calm_factors(track: Track) -> FloatArray:
    """Of each calm, whatever was expected of the interval: (CALM,)."""
    sums = np.column_stack([track.crawls, track.found, track.predicted])
    sums = sums.reshape(KINDS, CALM, -1, sums.shape[1])[PLAIN].sum(axis=1)
    return recalibration._solve(sums, recalibration._solve(sums.sum(axis=0), np.ones(())))


def corrected(by: str, track: Track, estimated: ShardTables) -> ShardTables:
    """A shard with other rates; the column `rate_factor` says by how much."""
    pages, hosts = (estimated.tables[n] for n in ("pages", "hosts"))
    rate, calm_days, host = (
        pages.column(n).to_numpy() for n in ("change_rate_per_day", "calm_days", "host_code")
    )
    by_clock = rate / pages.column("clock_speed").to_numpy() if "clock_speed" in pages.schema.names else rate
    calm, of = calm_cells(calm_days, by_clock), HostTrack(*(hosts.column(n).to_numpy() for n in COLUMNS))
    factor = np.ones(len(rate))
    if by != "host":
        factor *= np.where(
            (calm != NO_CELL) & pays(of.gain)[host], calm_factors(track)[np.maximum(calm, 0)], 1.0
        )
    if by != "cells":
        factor *= of.used_factors()[host]
    at = pages.schema.get_field_index("change_rate_per_day")
    pages = pages.set_column(at, pages.schema.field(at), pa.array(rate * factor))
    pages = pages.append_column("rate_factor", pa.array(factor))
    return ShardTables(estimated.shard, {**estimated.tables, "pages": pages})


def _patched(by: str) -> ExitStack:
    fold, by_clock = JobFold.fold, ScheduledShard._by_clock

    def with_factors(self: JobFold, *given: Any) -> Any:
        folded, estimated = fold(self, *given)
        return folded, corrected(by, self._track, estimated)

    def without(self: ScheduledShard) -> FloatArray:
        return by_clock(self) / self._pages.column("rate_factor").to_numpy()

    stack = ExitStack()
    stack.enter_context(mock.patch.object(JobFold, "fold", with_factors))
    stack.enter_context(mock.patch.object(ScheduledShard, "_by_clock", without))
    return stack


def main(argv: Sequence[str] | None = None) -> int:
    """Print how many fresh requests, in points, each kind of correction gains."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("names", nargs="*", choices=[[], *HISTORIES], default=list(HISTORIES))
    parser.add_argument("--by", nargs="+", choices=BY, default=list(BY))
    parser.add_argument("--weights", choices=("equal", "zipf"), default="equal")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--draws", type=int, default=5, help="draws of zipf weights")
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--out", type=Path, default=Path("build/corrected_rates"))
    options = parser.parse_args(argv)
    for name in options.names:
        start, end, budgets = HISTORIES[name]
        inputs = convert(shared_folder() / "data" / name, options.out / name)
        for by in ("nothing", *options.by):
            given = ["backtest", *inputs, f"--start={start}", f"--end={end}", f"--weights={options.weights}"]
            given += [
                "--policies=recrawl",
                "--workers=1",
                "--no_plots",
                f"--repetitions={options.repetitions}",
            ]
            given += ["--budgets", *map(str, options.budgets or budgets)]
            given += [f"--draws={options.draws}"] if options.weights == "zipf" else []
            out = options.out / f"{name}-{options.weights}" / by
            with ExitStack() if by == "nothing" else _patched(by):
                if cli.main([*given, f"--output={out}"]):
                    return 1
            if by != "nothing":
                gain = _difference(out.with_name("nothing"), out)
                print(f"{name} {options.weights} by {by}: {gain}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
