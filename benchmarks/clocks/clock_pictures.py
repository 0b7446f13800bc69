"""Pictures of clocks that are learned from real histories, for docs/clocks.md.

    python -m benchmarks.clocks.clock_pictures [--pictures docs/pictures] [--out build/clock_pictures]

Each history is backtested once, as in `benchmarks.replay.ablation`; shown is what the last night knows of
the host that has most pages among those that follow a clock.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.measuring.histories import shared_folder
from benchmarks.replay.backtest_histories import HISTORIES, convert
from pipelines.door import cli
from pipelines.pictures.plots import Panel, Picture, Series, draw
from policies.clocks.profile import AGE_EDGES_HOURS, Profiles
from policies.history.page_state import PageState
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.kept.clocks import ShardClocks

BUDGETS = {"api_pypistats": 1.0, "prices_tcg": 1.0, "news_articles_nu": 0.3}


def learned(name: str, out: Path) -> tuple[Profiles, IntArray]:
    """The clocks of the last night of a history, and how many pages their hosts have."""
    start, end, _ = HISTORIES[name]
    found: list[tuple[Profiles, IntArray]] = []
    learn = ShardClocks.learn

    def watched(self: ShardClocks, history: PageState) -> PageState:
        after = learn(self, history)
        if len(self._profiles):
            size = np.diff(self._pages.host_start)[self._profiles.group]
            found.append((self._profiles, size))
        return after

    inputs = convert(shared_folder() / "data" / name, out / name)
    given = ["backtest", *inputs, f"--start={start}", f"--end={end}"]
    given += ["--policies=recrawl", f"--budgets={BUDGETS[name]}", "--weights=equal", "--no_plots"]
    given += ["--workers=1", "--repetitions=1", f"--output={out / name / 'run'}"]
    with mock.patch.object(ShardClocks, "learn", watched):
        if cli.main(given):
            raise SystemExit(1)
    return found[-1]


def hours_of(profiles: Profiles, pages: IntArray) -> FloatArray:
    """Speeds of the hours of the day of the largest host that has hours, (24,)."""
    largest = np.flatnonzero(profiles.by_hour)[pages[profiles.by_hour].argmax()]
    mean: FloatArray = profiles.hour[largest].reshape(-1, 24).mean(axis=0)
    return mean


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pictures", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--out", type=Path, default=Path("build/clock_pictures"))
    options = parser.parse_args(argv)
    hours = []
    for name in ("api_pypistats", "prices_tcg"):
        speed = hours_of(*learned(name, options.out))
        hours.append(Series(name, np.arange(24) + 0.5, speed))
    profiles, pages = learned("news_articles_nu", options.out)
    largest = np.flatnonzero(profiles.by_age)[pages[profiles.by_age].argmax()]
    edges = np.array((0.5, *AGE_EDGES_HOURS, 1024.0))
    ages = Series("news_articles_nu", np.sqrt(edges[:-1] * edges[1:]), profiles.age[largest])
    day = Panel("When pages change", "hour of the day (UTC)", "times the usual rate", hours, level=1.0)
    age = Panel(
        "How pages age", "hours since a page appeared", "times the usual rate", [ages], log_x=True, level=1.0
    )
    picture = Picture("clocks", "Clocks that are learned from crawl logs", [day, age])
    for file, content in draw(picture, ["png"]).items():
        (options.pictures / file).write_bytes(content)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
