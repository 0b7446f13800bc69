"""What each part of the estimate and of the plan buys: recrawl on real histories, with one part taken out.

    python -m benchmarks.replay.ablation [NAME ...] [--parts PART ...] [--weights equal|zipf]
        [--repetitions 3] [--draws 5] [--out FOLDER]

Histories, windows and budgets are those of `benchmarks.replay.backtest_histories`. Every part is taken out
alone; differences are to the whole, paired by period, in points of freshness (see
`pipelines.experiments.backtest_report`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring.histories import shared_folder
from benchmarks.replay.backtest_histories import HISTORIES, convert
from pipelines.door import cli
from pipelines.experiments.backtest_report import compare
from policies.clocks import exploring, pooled
from policies.clocks import kept as kept_clocks
from policies.clocks.profile import Profiles
from policies.history import volatile
from transforms.kept import flags
from transforms.night import folding


def _no_hours(self: Any, least: Any, *_: Any) -> tuple[Profiles, Any]:
    return Profiles.flat(), np.zeros(len(least))


_FIXED = ((exploring, "EXPLORED", 0.0), (exploring, "EXPLORED_MORE", 0.0))
_FIXED_AGE = ((exploring, "EXPLORED_YOUNG", 0.0),)
_NONE_OF_ALL = ((pooled.Pooled, "hours", lambda sample: pooled.HoursOfAll()),)
_NO_HOURS = ((kept_clocks.Kept, "_hours", _no_hours), *_FIXED, *_NONE_OF_ALL)
_NO_AGES = ((kept_clocks.Kept, "_ages", lambda *_: Profiles.flat()), *_FIXED_AGE)

# By part: what is put in place of what.
PARTS: dict[str, Sequence[tuple[Any, str, Any]]] = {
    "clocks": (*_NO_HOURS, *_NO_AGES),
    "clock of hours": _NO_HOURS,
    "clock of age": _NO_AGES,
    "hours of all": _NONE_OF_ALL,
    "exploring hours": _FIXED,
    "exploring ages": _FIXED_AGE,
    "volatile": ((flags.volatile, "weight_limit", lambda n, *_: np.full(len(n), volatile.NOT_VOLATILE)),),
    "alternating": ((folding, "set_aside", lambda after, found: (found, np.zeros(len(after), np.bool_))),),
}


def _difference(whole: Path, without: Path) -> str:
    tables = []
    for name in ("results", "days"):
        other = pq.read_table(without / f"{name}.parquet")
        # It stands in the comparison as another policy would.
        label = pa.array(["uniform"] * other.num_rows)
        other = other.set_column(other.schema.names.index("policy"), "policy", label)
        tables.append(pa.concat_tables([pq.read_table(whole / f"{name}.parquet"), other]))
    (found,) = compare(*tables, "recrawl")
    cells = [found.cells["uniform", budget] for budget in found.budgets]
    return " | ".join(f"{100 * c.gain:+.2f} ± {100 * c.gain_error:.2f}" for c in cells)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", choices=[[], *HISTORIES])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--weights", choices=("equal", "zipf"), default="equal")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--draws", type=int, default=5, help="draws of zipf weights")
    parser.add_argument("--out", type=Path, default=Path("build/ablation"))
    options = parser.parse_args(argv)
    shared = shared_folder()
    for name in options.names or HISTORIES:
        folder = shared / "data" / name
        if not folder.is_dir():
            print(f"{name}: skipped, {folder} is absent", file=sys.stderr)
            continue
        start, end, budgets = HISTORIES[name]
        inputs = convert(folder, options.out / name)
        for part in ("nothing", *options.parts):
            given = ["backtest", *inputs, f"--start={start}", f"--end={end}", f"--weights={options.weights}"]
            given += ["--policies=recrawl", "--budgets", *map(str, budgets), "--workers=1", "--no_plots"]
            given += [f"--draws={options.draws}"] if options.weights == "zipf" else []
            out = options.out / name / part.replace(" ", "-")
            given += [f"--repetitions={options.repetitions}", f"--output={out}"]
            with ExitStack() as stack:
                for where, what, instead in PARTS.get(part, ()):
                    stack.enter_context(mock.patch.object(where, what, instead))
                if cli.main(given):
                    return 1
            if part != "nothing":
                print(f"{name} without {part}: {_difference(out.with_name('nothing'), out)}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
