"""Nights with `--sequencer=greedy`: budget, politeness, determinism, how fresh a closed loop keeps pages."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.simulation.metrics import zipf_weights
from tests.pipelines.experiments.test_closed_loop import START, US_PER_DAY, freshness, poisson, world_of
from tests.pipelines.jobs import Night, at, crawls, nightly, seen
from transforms.replay.closed_loop import ClosedLoop, Run
from transforms.replay.job_nights import JobNights, JobOptions
from transforms.replay.night_modes import LearnedTrust, Mode
from transforms.replay.worlds import World

BUDGET = 90
GAP_SECONDS = 1800.0
HOSTS = [
    {"host": "slow.test", "min_gap_seconds": GAP_SECONDS, "max_per_day": None},
    {"host": "small.test", "min_gap_seconds": None, "max_per_day": 6},
]


def _first_rows() -> list[dict[str, Any]]:
    rows = []
    for i, host in enumerate(["slow.test"] * 30 + ["small.test"] * 20 + ["free.test"] * 60):
        digests = ("ABCDEFGH", "AAABBBBB", "AAAAAAAA")[i % 3]
        rows += crawls(f"https://{host}/{i}", digests, first_day=21 + (i % 17) / 17, every_days=1.1)
    return rows


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> list[Night]:
    folder: Path = tmp_path_factory.mktemp("greedy")
    rng = np.random.Generator(np.random.Philox(key=4))
    pages = [
        {"url": "https://free.test/50", "min_rate_per_day": 4.0, "max_rate_per_day": None},
        {"url": "https://free.test/51", "min_rate_per_day": None, "max_rate_per_day": 0.25},
        *({"url": f"https://free.test/new-{i}"} for i in range(10)),
    ]
    rows, done = _first_rows(), []
    for i in range(3):
        signals = {"signals": [{"url": "https://free.test/52", "signalled_at": at(30 + i - 0.1)}]}
        options: dict[str, Any] = {"state": done[-1].folder / "state"} if done else {}
        options |= signals | {"pages": pages, "hosts": HOSTS, "budget": BUDGET, "as_of": at(30 + i)}
        options |= {"observations": rows, "num_shards": 2, "sequencer": "greedy"}
        night = nightly(folder, f"night-{i}", flags=["--allow_shrink"], **options)
        assert night.code == 0, night.complaints
        done.append(night)
        if i == 2:
            again = nightly(folder, "again", flags=["--allow_shrink"], rows_per_batch=7, **options)
            done.append(again)
        rows = [
            seen(r["url"], r["due_at"].isoformat(), "same" if rng.random() < 0.6 else str(rng.random()))
            for r in night.rows("schedule")
        ]
    return done


def test_the_budget_is_spent_and_the_manifest_tells_how(nights):
    for night in nights:
        assert night.manifest["options"]["sequencer"] == "greedy"
        assert night.counters["slots_empty"] == 0
        assert len(night.rows("schedule")) == night.manifest["slots"] == BUDGET


def test_gaps_limits_floors_and_caps_hold_across_nights(nights):
    rows = [r for n in nights[:3] for r in n.rows("schedule")]
    slow = sorted(r["due_at"] for r in rows if r["host"] == "slow.test")
    assert len(slow) > 10
    assert min((b - a).total_seconds() for a, b in pairwise(slow)) >= GAP_SECONDS
    for night in nights:
        assert Counter(r["host"] for r in night.rows("schedule"))["small.test"] <= 6
    often = sorted(r["due_at"] for r in rows if r["url"] == "https://free.test/50")
    assert len(often) >= 11
    assert max((b - a).total_seconds() for a, b in pairwise(often)) < 86_400 / 4 + 3 * 86_400 / BUDGET
    assert sum(r["url"] == "https://free.test/51" for r in rows) <= 1


def test_new_pages_and_signals_have_their_reasons(nights):
    first = nights[0].rows("schedule")
    assert sum(r["reason"] == "new" for r in first) == 10
    assert {r["reason"] for n in nights for r in n.rows("schedule")} <= {"due", "overdue", "signal", "new"}


def test_owed_tells_how_many_crawls_there_are(nights):
    for night in nights:
        counts = Counter(r["url"] for r in night.rows("schedule"))
        for page in night.rows("pages"):
            if page["limit"] != "new":
                assert counts[page["url"]] == pytest.approx(page["crawl_rate_per_day"] + page["owed"])


def test_any_batch_size_gives_the_same_bytes(nights):
    kinds = ("schedule", "pages", "slots", "state")
    assert nights[2].digests(*kinds) == nights[3].digests(*kinds)


def _follow(world: World, mode: Mode, sequencer: str, weight: np.ndarray) -> Run:
    options = JobOptions(sequencer=sequencer)
    return ClosedLoop(world, JobNights(world, mode, 0.5, weight, options)).run()


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode, LearnedTrust])
def test_a_closed_loop_is_as_fresh_as_with_even_distances(mode):
    n, days = 200, 18
    changes = poisson(n, days, 0.4, seed=7)
    signals = [(page, day + 0.01) for page, day in changes[::2]] if mode is LearnedTrust else ()
    world, weight = world_of(n, days, changes, signals), zipf_weights(n, 3)
    score = {}
    for sequencer in ("lds", "greedy"):
        run = _follow(world, mode(world), sequencer, weight)
        assert run.slots.sum() == n // 2 * days
        assert run.crawls.at_us.min() >= START - US_PER_DAY
        fresh, held = freshness(world, run.crawls, weight)
        score[sequencer] = fresh[9:].sum() / held[9:].sum()
    assert score["greedy"] > score["lds"] - 0.015, score
