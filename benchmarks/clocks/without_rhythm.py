"""What clocks cost where pages change at any hour and do not age: freshness, and hosts that are given one.

    python -m benchmarks.clocks.without_rhythm [--worlds 10] [--nights 100] [--budget 0.5]

Drawn worlds of Poisson changes, twenty hosts of 30 pages, half of which appear during the run. Every world is
run with clocks and without; the difference is paired by world.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from benchmarks.replay.ablation import PARTS
from policies.clocks.profile import US_PER_DAY
from policies.history.page_state import PageState
from policies.simulation.histories import ChangeHistory
from transforms.kept.clocks import ShardClocks
from transforms.replay.backtesting import Trial, Weighting, play
from transforms.replay.worlds import World, name_pages

HOSTS, PAGES_OF_HOST = 20, 30
START_US = 20_600 * US_PER_DAY


def poisson_world(seed: int, nights: int) -> World:
    """Rates of a gamma distribution of shape 0.7 around the mean of their host."""
    rng = np.random.Generator(np.random.Philox(seed))
    n = HOSTS * PAGES_OF_HOST
    rate = rng.gamma(0.7, 1.0 / 0.7, n) * np.repeat(rng.choice((0.05, 0.3, 1.0, 4.0), HOSTS), PAGES_OF_HOST)
    first = np.where(rng.random(n) < 0.5, -1.0, rng.uniform(0.0, nights, n))
    count = rng.poisson(rate * (nights - np.maximum(first, 0.0)))
    page = np.repeat(np.arange(n), count)
    at = np.maximum(first[page], 0.0) + rng.random(len(page)) * (nights - np.maximum(first[page], 0.0))
    at_us, first_us = (START_US + (d * US_PER_DAY).astype(np.int64) for d in (at, first))
    order = np.lexsort((at_us, page))
    url = pa.array([f"https://h{i // PAGES_OF_HOST}.test/{i:05d}" for i in range(n)])
    history = ChangeHistory.from_events(
        START_US, START_US + nights * US_PER_DAY, first_us, page[order], at_us[order]
    )
    return World(history, url, *name_pages(url))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--worlds", type=int, default=10)
    parser.add_argument("--nights", type=int, default=100)
    parser.add_argument("--budget", type=float, default=0.5)
    options = parser.parse_args(argv)
    trial = Trial("recrawl", options.budget, (Weighting("equal"),))
    looked: list[tuple[int, int]] = []
    learn = ShardClocks.learn

    def watched(self: ShardClocks, history: PageState) -> PageState:
        found = learn(self, history)
        looked.append((int(self._profiles.by_hour.sum()), int(self._profiles.by_age.sum())))
        return found

    lost = []
    for seed in range(options.worlds):
        world = poisson_world(seed, options.nights)
        with mock.patch.object(ShardClocks, "learn", watched):
            whole: Any = play(world, trial)[0]
        with ExitStack() as stack:
            for where, what, instead in PARTS["clocks"]:
                stack.enter_context(mock.patch.object(where, what, instead))
            lost.append(play(world, trial)[0].accuracy - whole.accuracy)
        hours, ages = np.array(looked).T
        print(
            f"world {seed}: freshness {whole.accuracy:.4f}, lost by clocks {lost[-1]:+.5f}; of {len(looked)} "
            f"nights {int((hours > 0).sum())} had a host with hours, {int((ages > 0).sum())} with ages",
            flush=True,
        )
    error = np.std(lost, ddof=1) / np.sqrt(len(lost)) if len(lost) > 1 else float("nan")
    print(
        f"lost {np.mean(lost):+.5f} +- {error:.5f}; host nights with hours {hours.sum()}, ages {ages.sum()}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
