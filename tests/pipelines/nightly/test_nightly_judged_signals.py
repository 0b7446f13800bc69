"""Whole nights with signals: judged alike for any number of shards, and by nights of an older version."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.pipelines.jobs import Night, at, hosts_without_forecasts, nightly, seen
from transforms.kept.statistics import slots_schema

N_PAGES, N_HOSTS, FIRST_NIGHT = 180, 9, 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judged-signals")


@pytest.fixture(scope="module")
def world() -> dict[str, np.ndarray]:
    """Times of changes; pages of hosts 0 to 5 announce most of them, those of hosts 0 to 2 twice."""
    rng = np.random.Generator(np.random.Philox(key=4))
    rates = rng.gamma(0.7, 0.6, N_PAGES)
    return {
        f"https://h{i % N_HOSTS}.test/{i}": np.sort(rng.random(rng.poisson(22 * rate)) * 22)
        for i, rate in enumerate(rates)
    }


def _signals(world: dict[str, np.ndarray], begin: float, end: float) -> list[dict]:
    rows = []
    for i, (url, changes) in enumerate(world.items()):
        for t in changes[(changes > begin) & (changes <= end)]:
            if i % N_HOSTS < 6:
                rows.append({"url": url, "signalled_at": at(float(t)), "source": "sitemap"})
            if i % N_HOSTS < 3:
                rows.append({"url": url, "signalled_at": at(float(t)), "source": "ping"})
    return rows


def _fetch(world: dict[str, np.ndarray], url: str, day: float) -> dict:
    return seen(url, at(day), f"v{int(np.searchsorted(world[url], day))}")


@pytest.fixture(scope="module")
def first(folder: Path, world: dict[str, np.ndarray]) -> Night:
    rng = np.random.Generator(np.random.Philox(key=5))
    log = [_fetch(world, url, float(d)) for url in world for d in np.sort(rng.random(7)) * FIRST_NIGHT]
    night = nightly(
        folder,
        "first",
        observations=log,
        signals=_signals(world, 0, FIRST_NIGHT),
        as_of=at(FIRST_NIGHT),
        budget=90,
        num_shards=3,
    )
    assert night.code == 0, night.complaints
    return night


def _second(folder: Path, world: dict[str, np.ndarray], name: str, first: Night, num_shards: int) -> Night:
    log = [
        _fetch(world, row["url"], FIRST_NIGHT + 0.02 + 0.9 * i / 90)
        for i, row in enumerate(sorted(first.rows("schedule"), key=lambda r: (r["due_at"], r["url"])))
    ]
    night = nightly(
        folder,
        name,
        observations=log,
        signals=_signals(world, FIRST_NIGHT, FIRST_NIGHT + 1),
        as_of=at(FIRST_NIGHT + 1),
        budget=90,
        state=first.folder / "state",
        flags=["--allow_shrink"],
        num_shards=num_shards,
    )
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="module")
def second(folder: Path, world: dict[str, np.ndarray], first: Night) -> Night:
    return _second(folder, world, "second", first, 3)


def _forecasts(night: Night) -> list[dict[str, Any]]:
    return [row for row in night.rows("slots/pages") if row["signal_source"] is not None]


def test_slots_keep_what_is_expected_of_the_sources_of_a_host(first):
    rows = _forecasts(first)
    assert len(rows) > 20
    assert {tuple(row["signal_source"]) for row in rows} == {("sitemap",), ("ping", "sitemap")}
    for row in rows:
        assert len(row["signal_weight"]) == len(row["signal_information"]) == len(row["signal_source"])
        assert row["unsignalled_rate_per_day"] > 0 and min(row["signal_weight"]) > 0


def test_crawls_after_a_signal_are_expected_to_find_a_change(second):
    judged = second.manifest["judged"]
    assert judged["crawls"] > 60 and judged["not_judged"]["not_scheduled"] == 0
    assert judged["crawls"] + sum(judged["not_judged"].values()) == second.counters["observations"]
    assert judged["changes_found"] == pytest.approx(judged["changes_predicted"], rel=0.25)


@pytest.mark.parametrize("num_shards", [1, 7])
def test_the_judgement_does_not_depend_on_the_cut(folder, world, first, second, num_shards):
    other = _second(folder, world, f"cut-{num_shards}", first, num_shards)
    assert other.manifest["judged"] == second.manifest["judged"]
    assert other.manifest["recalibration"] == second.manifest["recalibration"]
    assert (
        sum(other.manifest["recalibration"]["crawls"]) == second.manifest["judged"]["by_rates"]["crawls"] > 60
    )


def test_slots_without_what_was_expected_of_signals_are_judged_by_rates(folder, world, first, second):
    """As nights of before these columns wrote them."""
    old = folder / "old"
    shutil.copytree(first.folder, old)
    manifest = first.manifest
    for path in sorted((old / "slots" / "pages").iterdir()):
        pq.write_table(pq.read_table(path).select(slots_schema().names[:6]), path)
        for file in manifest["files"]:
            if file["path"] == f"slots/pages/{path.name}":
                file |= {"bytes": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()}
    (old / "manifest.json").write_text(json.dumps(manifest))
    night = _second(folder, world, "after-old", Night(0, "", "", old), 3)
    judged, new = night.manifest["judged"], second.manifest["judged"]
    assert (judged["crawls"], judged["changes_found"]) == (new["crawls"], new["changes_found"])
    assert judged["brier"] > new["brier"]
    same = ("state", "schedule", "pages")
    assert night.digests(*same) == second.digests(*same)
    assert hosts_without_forecasts(night) == hosts_without_forecasts(second)
