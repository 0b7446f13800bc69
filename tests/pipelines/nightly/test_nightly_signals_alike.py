"""Nights with signals that must be alike: in any number of shards, cut into nights, or without signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines.jobs import Night
from tests.pipelines.signalled import Host, World, after, ping

DAY, BUDGET = 20, 60
HOSTS = {
    **{f"h{i}.test": Host(8, 0.2, 0.8, 0.6, source="ping" if i % 2 else "sitemap") for i in range(12)},
    **{f"q{i}.test": Host(8, 0.2) for i in range(8)},
    "giant.test": Host(120, 0.15, 0.7, 0.5, false_per_day=0.02, source="indexnow"),
}
OF_SIGNALS = ("signal_rate_per_day", "signal_precision", "signal_recall", "signals_since_crawl")


@pytest.fixture(scope="module")
def world() -> World:
    """Every page of the giant host is pinged before its first crawl: no part of it begins to listen later."""
    world = World(HOSTS, seed=4)
    for url, told in world.signals.items():
        told.insert(0, (0.0, HOSTS[url.split("/")[2]].source)) if "giant" in url else None
    return world


@pytest.fixture(scope="module")
def log(world: World) -> list[dict[str, Any]]:
    return world.first_log(DAY, 0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alike")


@pytest.fixture(scope="module", params=["whole", "split"])
def shards(request, world, log, folder) -> list[Night]:
    """The same night in 1, 3 and 7 shards; the large host whole, or split where there are several."""
    above = {"whole": 10**9, "split": 30}[request.param]
    signals = world.announced(-1, DAY)
    return [
        after(
            folder,
            f"{request.param}{n}",
            None,
            DAY,
            log,
            signals=signals,
            budget=BUDGET,
            num_shards=n,
            split_hosts_above=above,
            hosts=[{"host": "h0.test", "max_per_day": 2, "min_gap_seconds": 60}],
        )
        for n in (1, 3, 7)
    ]


def _pages(night: Night) -> dict[str, dict[str, Any]]:
    return {r["url"]: r for r in night.rows("pages")}


def _trust(night: Night) -> dict[tuple[str, str], list[dict[str, Any]]]:
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in night.rows("hosts"):
        if row["source"]:
            found.setdefault((row["host"], row["source"]), []).append(row)
    return found


def test_the_number_of_shards_changes_neither_trust_nor_the_multiplier(shards):
    one, *others = shards
    pages, trust = _pages(one), _trust(one)
    assert sum(p["signal_precision"] is not None for p in pages.values()) > 100
    for night in others:
        more = _pages(night)
        for url, page in pages.items():
            for name in ("change_rate_per_day", *OF_SIGNALS[:3]):
                assert more[url][name] == page[name], (url, name)
            assert more[url]["signals_since_crawl"] == page["signals_since_crawl"]
        for key, (row,) in trust.items():
            for part in _trust(night)[key]:
                for name in ("signal_precision", "signal_precision_stderr"):
                    assert part[name] == row[name], (key, name)
        for name in ("multiplier", "expected_freshness"):
            assert night.manifest[name] == pytest.approx(one.manifest[name], rel=1e-9), name


def test_budgets_and_totals_are_exact(shards):
    for night in shards:
        manifest, slots = night.manifest, night.rows("schedule")
        assert manifest["slots"] == night.counters["slots"] == BUDGET
        assert night.counters["slots_used"] == len(slots)
        assert len(slots) + night.counters["slots_empty"] == BUDGET
        rates = sum(p["crawl_rate_per_day"] for p in night.rows("pages"))
        assert rates == pytest.approx(manifest["allocated_per_day"], rel=1e-9)
        assert rates == pytest.approx(BUDGET, rel=1e-9)
        per_host: dict[str, int] = {}
        for row in slots:
            per_host[row["host"]] = per_host.get(row["host"], 0) + 1
        assert per_host.get("h0.test", 0) <= 2
        said = {}
        for row in night.rows("hosts"):
            said.setdefault(row["host"], {})[row["slots"], row["crawl_rate_per_day"]] = None
        if not manifest["split_hosts"]:
            assert {h: next(iter(v))[0] for h, v in said.items()} == {h: per_host.get(h, 0) for h in said}
        reasons = {r["reason"] for r in slots}
        assert night.counters["slots_signal"] == sum(r["reason"] == "signal" for r in slots)
        assert reasons <= {"due", "overdue", "signal", "new", "filler"}


def test_the_manifest_says_what_signals_are_worth(shards):
    for night in shards:
        said = night.manifest["signals"]
        assert said["expected_freshness"] == pytest.approx(night.manifest["expected_freshness"], rel=1e-12)
        assert said["expected_freshness"] > said["expected_freshness_without"] > 0.0
        assert said["crawls_saved_per_day_at_least"] > 0.0
        sources = {s["source"]: s for s in said["sources"]}
        assert list(sources) == ["indexnow", "ping", "sitemap"]
        assert sources["ping"]["hosts"] == sources["sitemap"]["hosts"] == 6
        assert 100 <= sources["indexnow"]["pages"] <= 120
        for source in sources.values():
            assert 0.0 < source["signal_precision"] < 1.0 and 0.0 < source["signal_recall"] < 1.0
        pending = sum(p["signals_since_crawl"] or 0 for p in night.rows("pages"))
        assert pending <= sum(s["signals_since_crawl"] for s in sources.values())
        assert len(said["hosts"]) >= 13
        paths = {f["path"].split("/")[0] for f in night.manifest["files"]}
        assert "hosts" in paths


# ---- a job without signals


def test_without_signals_the_objective_makes_no_difference(world, log, folder):
    """The same bytes, but for what is said of signals."""
    plain, signals = (
        after(folder, f"none-{o}", None, DAY, log, objective=o, budget=BUDGET)
        for o in ("periodic", "signals")
    )
    kinds = ("pages", "schedule", "state", "slots", "hosts")
    assert plain.digests(*kinds) == signals.digests(*kinds)
    assert plain.manifest["multiplier"] == signals.manifest["multiplier"]
    assert plain.manifest["signals"] is None
    said = signals.manifest["signals"]
    assert said["sources"] == said["hosts"] == [] and said["crawls_saved_per_day_at_least"] == 0.0
    assert said["expected_freshness"] == said["expected_freshness_without"]
    assert all(row[name] is None for row in signals.rows("pages") for name in OF_SIGNALS)


# ---- nights


@pytest.fixture(scope="module")
def nights(world, folder, log) -> tuple[Night, Night, Night]:
    """One night of all rows, and the last two of three that cut the same log."""
    rows = sorted(log, key=lambda r: r["fetched_at"])
    day = {id(r): world_day for r, world_day in zip(rows, np.searchsorted([8, 15], _days(rows)), strict=True)}
    common = {"budget": BUDGET, "num_shards": 3}
    one = after(folder, "one", None, DAY, rows, signals=world.announced(-1, DAY), **common)
    night = None
    steps = []
    for i, (begin, end) in enumerate([(-1, 8), (8, 15), (15, DAY)]):
        part = [r for r in rows if day[id(r)] == i]
        told = world.announced(begin, end)
        night = after(folder, f"step{i}", night, end, part, signals=told, **common)
        steps.append(night)
    return one, steps[1], steps[2]


def _days(rows: list[dict[str, Any]]) -> np.ndarray:
    at = np.array([r["fetched_at"][:-1] for r in rows], "datetime64[ms]")
    return (at - np.datetime64("2026-06-01")).astype(np.int64) / 86_400_000


def test_three_nights_leave_the_state_of_one(nights):
    one, _, last = nights
    for kind in ("state", "state/signals"):
        tables = [
            n.table(kind).sort_by([("host_hash", "ascending"), ("url_hash", "ascending")])
            for n in (one, last)
        ]
        assert tables[0].num_rows > 0 and tables[0].equals(tables[1]), kind
    assert one.manifest["multiplier"] == last.manifest["multiplier"]
    a, b = _pages(one), _pages(last)
    for url in a:
        for name in ("change_rate_per_day", "crawl_rate_per_day", *OF_SIGNALS):
            assert a[url][name] == b[url][name], (url, name)


def test_auto_follows_the_night_before(nights, world, folder):
    """Signals once, signals always: a night whose signals are missing does not forget what it has learned."""
    _, _, last = nights
    assert last.manifest["options"]["objective"] == "signals"
    some = [world.fetch(url, DAY + 0.5) for url in list(world.changes)[:5]]
    quiet = after(folder, "quiet", last, DAY + 1, some, budget=BUDGET, num_shards=3)
    assert quiet.manifest["options"]["objective"] == "signals"
    assert quiet.manifest["signals"]["sources"]
    told = after(
        folder,
        "told",
        last,
        DAY + 1,
        some,
        budget=BUDGET,
        num_shards=3,
        objective="periodic",
        signals=[ping("https://h1.test/0", DAY + 0.5)],
    )
    assert told.manifest["signals"] is None and told.counters["signals_counted"] == 1
    assert {r["signal_precision"] for r in told.rows("pages")} == {None}
