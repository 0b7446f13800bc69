"""Policies of `recrawl discover`: each does what it says, with the same bytes on every run."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from policies.discovery import drawn, metrics
from policies.discovery.names import CHANCE, IN_TURN, PHAM, POLICIES, SAMPLED, THOMPSON
from policies.discovery.pham import Pham
from policies.discovery.replay import Run, replay
from policies.discovery.rules import RoundRobin, Thompson, Uniform
from tests.pipelines.discovery.logs import contents, discover, iso, manifest, read, rows_of
from tests.pipelines.discovery.test_closed_loop import WARM_UP_HOURS, followed


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """Three days of 20 sources, fetched hourly, and when they end."""
    history = drawn.draw(5, 0, 20, 72)
    table = rows_of(history, np.arange(len(history.poll_us)))
    path = tmp_path_factory.mktemp("log") / "links.parquet"
    pq.write_table(table, path)
    return path, int(np.asarray(table["seen_at"].cast(pa.int64())).max()) // 1_000_000 + 1


def planned(log: tuple[Path, int], out: Path, policy: str, *words: str, later_s: int = 0) -> Counter[str]:
    """Refreshes of each source in a day."""
    path, end = log
    given = (f"--links={path}", f"--as_of={iso(end + later_s)}", "--budget=100", "--num_shards=3")
    assert discover(out, *given, f"--policy={policy}", *words) == 0
    assert manifest(out)["options"]["policy"] == policy
    return Counter(row["url"] for row in read(out, "schedule"))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_plans_the_budget_and_the_same_bytes_on_every_run(
    policy: str, log: tuple[Path, int], tmp_path: Path
) -> None:
    count = planned(log, tmp_path / "a", policy)
    assert count.total() == 100
    planned(log, tmp_path / "b", policy, "--rows_per_batch=1000")
    assert contents(tmp_path / "a", "schedule", "sources") == contents(tmp_path / "b", "schedule", "sources")


def test_in_turn_all_sources_come_as_often(log: tuple[Path, int], tmp_path: Path) -> None:
    count = planned(log, tmp_path / "out", IN_TURN)
    assert set(count.values()) == {5}
    assert max(planned(log, tmp_path / "other", POLICIES[0]).values()) > 10


def test_draws_are_others_in_another_night(log: tuple[Path, int], tmp_path: Path) -> None:
    one, other = (planned(log, tmp_path / str(s), SAMPLED, later_s=s) for s in (0, 1))
    assert one != other
    mean = [planned(log, tmp_path / f"mean{s}", "elapsed", later_s=s) for s in (0, 1)]
    assert sum((mean[0] - mean[1]).values()) <= 2 < sum((one - other).values())


def test_the_job_in_turn_finds_what_a_crawler_in_turn_does(tmp_path: Path) -> None:
    history = drawn.draw(11, 0, 40, 120)
    items = history.items(np.array([3]), np.array([0], np.uint64))
    in_turn = metrics.judge(history, replay(history, RoundRobin(items), 1), WARM_UP_HOURS)
    found, refreshes = followed(history, 3, 24, tmp_path, f"--policy={IN_TURN}")
    job = metrics.judge(history, Run(found[None], refreshes[None, None]), WARM_UP_HOURS)
    assert job.coverage[0, 0] == pytest.approx(in_turn.coverage[0, 0], abs=0.03)


@pytest.mark.parametrize(
    ("policy", "rule", "hours"), [(CHANCE, Uniform, 12), (THOMPSON, Thompson, 12), (PHAM, Pham, 24)]
)
def test_the_job_finds_what_a_crawler_of_the_same_rule_does(
    policy: str, rule: Any, hours: int, tmp_path: Path
) -> None:
    """Half a day or a day ahead, with one price in place of so many refreshes an hour, it is near."""
    history = drawn.draw(11, 0, 40, 120)
    seeds = np.arange(8, dtype=np.uint64)
    items = history.items(np.full(8, 3), seeds)
    judged = metrics.judge(history, replay(history, rule(items), 8), WARM_UP_HOURS)
    found, refreshes = followed(history, 3, hours, tmp_path, f"--policy={policy}")
    job = metrics.judge(history, Run(found[None], refreshes[None, None]), WARM_UP_HOURS)
    assert job.coverage[0, 0] == pytest.approx(judged.coverage[:, 0].mean(), abs=0.04)
    if policy == PHAM:  # five runs, of which the last has not been told what it found
        tried = manifest(tmp_path / "night96")["shares_tried"]
        assert tried["pulls"] == [1.0, 1.0, 1.0, 1.0, 0.0] and tried["arm"] == 4
        assert tried["reward"][0] > 10.0 > max(tried["reward"][1:]) > 0.0


def test_yields_by_hour_are_kept_from_night_to_night_by_thompson_alone(
    log: tuple[Path, int], tmp_path: Path
) -> None:
    planned(log, tmp_path / "one", THOMPSON)
    table = pq.read_table(log[0])
    day = 86_400 * (log[1] // 86_400)
    more: list[str] = []
    for name, end in (("first", day), ("second", log[1])):
        words = (f"--as_of={iso(end)}", "--budget=100", "--num_shards=3", f"--policy={THOMPSON}", *more)
        assert discover(tmp_path / name, f"--links={log[0]}", *words) == 0
        more = [f"--state={tmp_path / name}"]
    one, two = (contents(tmp_path / name, "schedule", "state") for name in ("one", "second"))
    assert one == two
    kept = read(tmp_path / "one", "state/sources")
    # Lifetimes, which would take 40 bytes a source, are not.
    assert all(not any(row["count"]) and len({*row["exposure_hours"]}) == 1 for row in kept)
    assert max(row["exposure_hours"][0] for row in kept) > 10.0
    visits = sum(sum(row["hour_visits"]) for row in kept)
    assert visits == len(table.group_by(["source", "seen_at"]).aggregate([]))
    planned(log, tmp_path / "other", POLICIES[0], *more)
    assert not any("hour_new" in row for row in read(tmp_path / "other", "state/sources"))


def test_an_unknown_policy_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert discover(tmp_path, "--links=x.csv", "--as_of=2026-01-01", "--budget=1", "--policy=oracle") == 2
    said = capsys.readouterr().err
    assert "--policy=oracle: expected one of recrawl, waiting" in said and "backtest-discovery only" in said
