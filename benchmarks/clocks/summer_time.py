"""What it costs when a site's clock is put forward or back: its batch comes an hour earlier or later in UTC.

    python -m benchmarks.clocks.summer_time [--worlds 3] [--budget 1]

Drawn hosts of 120 pages, nine of ten of which change every day within a quarter of an hour. The batch moves
on night 40; it is compared, night by night, with a world in which it always came at the new hour.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from policies.clocks.profile import US_PER_DAY, US_PER_HOUR
from policies.numerics.typing_ import FloatArray
from policies.simulation.histories import ChangeHistory
from transforms.replay.closed_loop import ClosedLoop
from transforms.replay.job_nights import JobNights
from transforms.replay.night_modes import Mode
from transforms.replay.worlds import World, name_pages

PAGES, MOVES, NIGHTS = 120, 40, 75
START_US = {-1.0: 20_137 * US_PER_DAY, 1.0: 20_347 * US_PER_DAY}
"""Forty nights before clocks in Europe were put forward and back in 2025."""

BATCH_HOUR = 13.5


def batch_world(seed: int, moved_hours: float, on_night: int) -> World:
    """A batch that moves by some hours on a night."""
    rng = np.random.default_rng(seed)
    page, day = np.nonzero(rng.random((PAGES, NIGHTS)) < 0.9)
    hour = BATCH_HOUR + rng.random(len(page)) / 4.0 + np.where(day >= on_night, moved_hours, 0.0)
    start = START_US[moved_hours]
    at = start + day * US_PER_DAY + (hour * US_PER_HOUR).astype(np.int64)
    url = pa.array([f"https://host.test/{i:05d}" for i in range(PAGES)])
    first = np.full(PAGES, start - US_PER_DAY)
    history = ChangeHistory.from_events(start, start + NIGHTS * US_PER_DAY, first, page, at)
    return World(history, url, *name_pages(url))


def fresh_by_night(world: World, budget: float) -> FloatArray:
    """The share of pages that are fresh in each night, (nights,)."""
    crawls = ClosedLoop(world, JobNights(world, Mode(world), budget, np.ones(PAGES))).run().crawls
    at = world.history.start_us + np.arange(0, NIGHTS * US_PER_DAY, US_PER_HOUR // 4)
    fresh = np.zeros(len(at))
    for page in range(PAGES):
        mine = np.sort(crawls.at_us[crawls.page == page])
        seen = mine[np.maximum(np.searchsorted(mine, at, side="right") - 1, 0)]
        of = np.full(len(at), page)
        fresh += world.history.version(of, seen) == world.history.version(of, at)
    means: FloatArray = fresh.reshape(NIGHTS, -1).mean(axis=1) / PAGES
    return means


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worlds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=1.0)
    options = parser.parse_args(argv)
    for moved in (-1.0, 1.0):
        lost = np.mean(
            [
                fresh_by_night(batch_world(s, moved, 0), options.budget)
                - fresh_by_night(batch_world(s, moved, MOVES), options.budget)
                for s in range(options.worlds)
            ],
            axis=0,
        )[MOVES:]
        print(
            f"batch moves by {moved:+.0f} h: points lost in nights from then on",
            " ".join(f"{100 * v:.1f}" for v in lost),
            f"; together {100 * lost.sum():.1f} point nights",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
