"""Log loss and processor time with one part of the job taken out: the second table of docs/backtest.md.

    python -m benchmarks.replay.part_costs [--histories NAME ...] [--pages 100000] [--turns 3]
        [--parts PART ...]

Parts are those of `benchmarks.replay.ablation` and `benchmarks.signals.replay_signals`. *Log loss*: recrawl
crawls a history; the nights are then made again on the same crawls with the part taken out, and the outcome
of each crawl is scored by what the night before had foretold, with and without. Errors are those over pages
or over nights, whichever are larger. Signals are told of `docs_sitemap` alone. *Time*: a night of made-up
pages on state, by turns with all parts and without each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from benchmarks import compare
from benchmarks.measuring.histories import shared_folder
from benchmarks.replay import ablation
from benchmarks.replay.backtest_histories import HISTORIES, convert
from benchmarks.signals import replay_signals
from pipelines.door import cli
from policies.judging import recalibration
from policies.numerics.typing_ import BoolArray, FloatArray
from policies.simulation.metrics import US_PER_DAY
from transforms.files.blocks import How
from transforms.intake.reading import Input
from transforms.kept import predictions
from transforms.night import signal_use
from transforms.replay import job_nights
from transforms.replay.backtesting import scored_from
from transforms.replay.closed_loop import ClosedLoop, Crawls, Planned
from transforms.replay.job_nights import JobNights
from transforms.replay.night_modes import LearnedTrust, Mode
from transforms.replay.replaying import ReplaySettings, read_world
from transforms.replay.worlds import World

WITH_SIGNALS = "docs_sitemap"
LEAST = 1e-9


def _all_signals(block: Any, *_: Any) -> BoolArray:
    return np.ones(0 if block.signals is None else len(block.signals), np.bool_)


OF_FORECASTS: dict[str, Sequence[tuple[Any, str, Any]]] = {
    "forecasts that learn": (
        (recalibration.Track, "factors", lambda _: np.ones(recalibration.KINDS * recalibration.CELLS)),
        (predictions.ShardFactors, "__call__", lambda *_: None),
        (predictions.ShardFactors, "of", lambda *_: None),
    ),
}
OF_SIGNALS: dict[str, Sequence[tuple[Any, str, Any]]] = {
    **{name: (part,) for name, part in replay_signals.PARTS.items()},
    "search without signals": (
        (signal_use, "useful_signals", _all_signals),
        (job_nights, "useful_signals", _all_signals),
    ),
}
OF_SIGNALS["forecasts"] = (*OF_SIGNALS["forecasts"], (LearnedTrust, "predict", Mode.predict))
PARTS = ablation.PARTS | OF_FORECASTS | OF_SIGNALS


@contextmanager
def _without(part: str) -> Any:
    with ExitStack() as stack:
        for where, what, instead in PARTS.get(part, ()):
            stack.enter_context(mock.patch.object(where, what, instead))
        yield


def _nights(world: World, mode: type[Mode], budget: float, choose: Callable[[Planned], Planned]) -> Crawls:
    """The crawls of a history, which `choose` may put in place of a night's own."""
    chosen = type("Chosen", (mode,), {"choose": lambda _, planned, __: choose(planned)})
    planner = JobNights(world, chosen(world), budget, np.ones(len(world)))
    return ClosedLoop(world, planner).run().crawls


def log_loss(crawls: Crawls) -> FloatArray:
    """Of each crawl, nats."""
    p = np.clip(crawls.predicted, LEAST, 1.0 - LEAST)
    return -np.where(crawls.changed, np.log(p), np.log1p(-p))


def compared(
    world: World, mode: type[Mode], budget: float, parts: Sequence[str], warm_up: float = 0.4
) -> list[str]:
    """A line for each part: how much log loss the same crawls have more without it, per 1,000."""
    made: list[Planned] = []

    def keep(planned: Planned) -> Planned:
        made.append(planned)
        return planned

    whole = _nights(world, mode, budget, keep)
    scored = ~whole.free & (whole.at_us >= scored_from(world, warm_up))
    night = ((whole.at_us - world.start_us) // US_PER_DAY)[scored]
    before, n = log_loss(whole)[scored], int(np.count_nonzero(scored))
    lines = [f"{1000 * before.mean():.1f} of {n:,} crawls"]
    for part in parts:
        again = iter(made)
        with _without(part):
            crawls = _nights(world, mode, budget, lambda _, again=again: next(again))
        assert np.array_equal(crawls.at_us, whole.at_us) and np.array_equal(crawls.page, whole.page)
        more = log_loss(crawls)[scored] - before
        off = more - more.mean()
        squares = [np.square(np.bincount(by, off)).sum() for by in (night, whole.page[scored])]
        lines.append(f"{part}: {1000 * more.mean():+.2f} ± {1000 * np.sqrt(max(squares)) / n:.2f}")
    return lines


def _night(part: str, arguments: Sequence[str]) -> int:
    with _without(part):
        return cli.main(["nightly", *arguments])


def timed(pages: int, turns: int, parts: Sequence[str]) -> list[str]:
    """A line for each part: processor time of a night with it over that without."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = compare.corpus(folder / "first", pages, 30, 7 * pages, "2026-06-01")
        state = compare.corpus(folder / "state", pages, 1, pages, "2026-07-01")
        given = [f"--budget={pages}", "--allow_shrink"]
        compare.recrawl(compare.HERE, "nightly", *first, *given, "--as_of=2026-07-01", f"--output={folder}/a")
        given += [
            *state,
            "--as_of=2026-07-02",
            f"--state={folder}/a/state",
            f"--output={folder}/b",
            "--overwrite",
        ]
        costs: dict[str, list[float]] = {part: [] for part in ("nothing", *parts)}
        for turn in range(turns):
            order = list(costs)
            for part in order[turn % len(order) :] + order[: turn % len(order)]:
                line = [sys.executable, "-m", __spec__.name, "--night", part, *given]
                costs[part].append(compare.run(line).processor)
        own = costs.pop("nothing")
        lines = [f"{median(own):.1f} s of processor"]
        for part, without in costs.items():
            ratios = [whole / less for whole, less in zip(own, without, strict=True)]
            lines.append(f"{part}: {median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
        return lines


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] == ["--night"]:
        return _night(argv[1], argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--histories", nargs="*", choices=[[], *HISTORIES], default=list(HISTORIES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--pages", type=int, default=100_000, help="of the nights whose time is taken; 0: none"
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("build/part_costs"))
    options = parser.parse_args(argv)
    for name in options.histories:
        start, end, budgets = HISTORIES[name]
        inputs = [
            option[2:].split("=") for option in convert(shared_folder() / "data" / name, options.out / name)
        ]
        read = [Input(kind, files, True, How()) for kind, files in inputs]
        start_us, end_us = (int(np.datetime64(day, "us").astype(np.int64)) for day in (start, end))
        world = read_world(read, ReplaySettings(start_us, end_us)).world
        for budget in budgets:
            for mode, some in ((Mode, {**ablation.PARTS, **OF_FORECASTS}), (LearnedTrust, OF_SIGNALS)):
                parts = [part for part in options.parts if part in some]
                if parts and (mode is Mode or name == WITH_SIGNALS):
                    for line in compared(world, mode, budget, parts):
                        print(f"{name} {budget} {mode.name}: {line}", flush=True)
    if options.pages:
        for line in timed(options.pages, options.turns, options.parts):
            print(f"night of {options.pages:,} pages: {line}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
