"""Predicted and found changes by decile of the prediction, in a closed loop on a real history.

    python -m benchmarks.judging.calibration [NAME:BUDGET ...] [--out FOLDER]

Judged are the crawls of the second half of the nights, as the job judges them. Crawls of one night hang
together, since batches run or fail for all pages: errors are those of independent crawls or of nights,
whichever is larger. Histories and windows are those of `benchmarks.replay.backtest_histories`,
weights are equal.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.measuring.histories import shared_folder
from benchmarks.replay.backtest_histories import HISTORIES, convert
from pipelines.door import cli
from policies.history.page_state import US_PER_DAY
from policies.judging.calibration import Judge

DECILES = 10
CASES = ("news_articles_nu:0.1", "api_pypistats:0.3", "api_pypistats:1")


def judged(inputs: Sequence[str], name: str, budget: str, out: Path) -> list[np.ndarray]:
    """Prediction, whether there was a change, and the night's number of all crawls of a run."""
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    nights = dict[int, int]()
    call = Judge.__call__

    def recorded(self: Judge, first_page: int, intervals: Any, clocks: Any = None) -> None:
        row = self._forecast.row[intervals.page + first_page]
        rows = np.flatnonzero(row >= 0)
        if clocks is None and rows.size:
            days = intervals.length_us[rows] / US_PER_DAY
            p = -np.expm1(self._forecast.log_unchanged(row[rows], days))
            night = nights.setdefault(id(self), len(nights))
            found.append((p, intervals.changed[rows], np.full(rows.size, night)))
            kept.append(self)
        call(self, first_page, intervals, clocks)

    kept: list[Judge] = []  # so that no two have one id
    start, end, _ = HISTORIES[name]
    given = ["backtest", *inputs, f"--start={start}", f"--end={end}", "--weights=equal", "--no_plots"]
    given += ["--policies=recrawl", f"--budgets={budget}", "--workers=1", f"--output={out}"]
    with mock.patch.object(Judge, "__call__", recorded):
        cli.main(given)
    return [np.concatenate(column) for column in zip(*found, strict=True)]


def deciles(p: np.ndarray, changed: np.ndarray, night: np.ndarray) -> list[tuple[int, float, float, float]]:
    """Crawls, mean prediction, share found and its distance in errors, by decile."""
    rows = []
    for some in np.array_split(np.argsort(p, kind="stable"), DECILES):
        off = changed[some] - p[some]
        alone = np.sqrt((p[some] * (1.0 - p[some])).sum())
        by_night = np.sqrt((np.bincount(night[some], off) ** 2).sum())
        z = off.sum() / max(alone, by_night)
        rows.append((len(some), float(p[some].mean()), float(changed[some].mean()), float(z)))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table of each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--out", type=Path, default=Path("build/calibration"))
    options = parser.parse_args(argv)
    for case in options.cases:
        name, _, budget = case.partition(":")
        inputs = convert(shared_folder() / "data" / name, options.out / name)
        p, changed, night = judged(inputs, name, budget, options.out / case.replace(":", "-"))
        late = night >= (night.max() + 1) // 2
        rows = deciles(p[late], changed[late], night[late])
        print(f"\n{case} crawls a page and day: {sum(abs(z) > 2.0 for *_, z in rows)} of 10 deciles off")
        for i, (n, mean, share, z) in enumerate(rows):
            print(f"| {i + 1} | {n:,} | {mean:.3f} | {share:.3f} | {z:+.1f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
