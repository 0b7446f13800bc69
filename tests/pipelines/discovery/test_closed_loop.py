"""The job's schedule, followed by a crawler, finds what recrawl finds in a backtest at the same budget."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from policies.discovery import drawn, metrics
from policies.discovery.planner import Planner
from policies.discovery.presences import US_PER_HOUR, Presences
from policies.discovery.replay import Run, replay
from policies.discovery.rules import RoundRobin
from policies.numerics.typing_ import IntArray
from tests.pipelines.discovery.logs import HOUR, discover, iso, read, rows_of, source_url

WARM_UP_HOURS = 24.0


def followed(
    history: Presences, k: int, hours: int, folder: Path, *options: str
) -> tuple[IntArray, IntArray]:
    """When a crawler that follows the job finds each target, and its refreshes, by step.

    A job every so many hours plans as many; it reads what the crawler has seen since.
    """
    found, refreshes = np.full(history.targets, history.steps), np.zeros(history.steps, np.int64)
    number = {source_url(s): s for s in range(history.sources)}
    (folder / "sources.csv").write_text("\n".join(["url", *number]))
    words = [f"--budget={24 * k}", f"--horizon_hours={hours}", "--num_shards=2", "--least_hours=1", *options]
    more: list[str] = []
    for step in range(0, history.steps, hours):
        out = folder / f"night{step}"
        when = f"--as_of={iso(history.start_us // 1_000_000 + step * HOUR)}"
        assert discover(out, *words, when, f"--sources={folder}/sources.csv", *more) == 0
        polls, failed = [], []
        for row in read(out, "schedule", ("due_at",)):
            source, at_us = number[row["url"]], int(row["due_at"].timestamp() * 1e6)
            at = (at_us - history.start_us) // US_PER_HOUR
            refreshes[at] += 1
            poll = int(history.shown[at, source])
            if poll < 0:
                failed.append((row["url"], "", at_us, 503))
                continue
            polls.append(poll)
            target = history.target[history.at(np.array([poll]))[1]]
            found[target] = np.minimum(found[target], at)
        seen = rows_of(history, np.unique(np.array(polls, np.int64)))
        columns = zip(*failed, strict=True) if failed else [[]] * 4
        errors = pa.table(
            [pa.array(list(c), t) for c, t in zip(columns, seen.schema.types, strict=True)], seen.schema.names
        )
        pq.write_table(pa.concat_tables([seen, errors]), folder / f"links{step}.parquet")
        more = [f"--state={out}", f"--links={folder}/links{step}.parquet"]
    return found, refreshes


@pytest.mark.parametrize("k", [1, 3])
def test_the_job_finds_what_the_backtest_does(k: int, tmp_path: Path) -> None:
    history = drawn.draw(11, 0, 40, 168)
    items = history.items(np.array([k]), np.array([0], np.uint64))
    ours, in_turn = (
        metrics.judge(history, replay(history, make(items), 1), WARM_UP_HOURS)
        for make in (Planner, RoundRobin)
    )
    found, refreshes = followed(history, k, 24, tmp_path)
    job = metrics.judge(history, Run(found[None], refreshes[None, None]), WARM_UP_HOURS)
    assert refreshes.sum() == ours.refreshes.sum() + 24 * k
    # It plans a day ahead, and does not see what came in between: that costs more of what is found at once.
    assert job.coverage[0, 0] > ours.coverage[0, 0] - 0.02
    assert job.within[1, 0, 0] > ours.within[1, 0, 0] - 0.06
    assert job.coverage[0, 0] > in_turn.coverage[0, 0] + 0.05
