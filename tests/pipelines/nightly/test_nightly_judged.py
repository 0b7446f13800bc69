"""Whole nights: what the manifest and the summary say of the night before."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipelines.jobs import Night, at, hosts_without_forecasts, nightly, seen

N_PAGES, N_HOSTS, FIRST_NIGHT = 240, 9, 20
DAY_US = 86_400_000_000


class _Truth:
    """Pages whose changes are drawn beforehand."""

    def __init__(self) -> None:
        rng = np.random.Generator(np.random.Philox(key=3))
        self.rng = rng
        self.changes: dict[str, np.ndarray] = {}
        for i in range(N_PAGES):
            times = np.sort(rng.random(rng.poisson(25 * rng.gamma(0.6, 0.8))) * 25)
            self.changes[f"https://h{i % N_HOSTS}.test/{i}"] = times

    def fetch(self, url: str, day: float) -> dict[str, Any]:
        """A fetch; hosts 1, 4 and 7 date their pages."""
        version = int(np.searchsorted(self.changes[url], day))
        row = seen(url, at(day), f"v{version}")
        if url[9] in "147" and version:
            row["last_modified"] = at(self.changes[url][version - 1])
        return row


def _schedule_as_log(night: Night, truth: _Truth) -> list[dict]:
    """What a crawler finds that follows the schedule, but for a few failures and fetches of its own."""
    origin = pa.scalar(at(0)[:-1], pa.string()).cast(pa.timestamp("us")).value
    rows = []
    for i, slot in enumerate(sorted(night.rows("schedule"), key=lambda r: (r["due_at"], r["url"]))):
        day = (slot["due_at"].timestamp() * 1e6 - origin) / DAY_US
        row = truth.fetch(slot["url"], day)
        rows.append(row | {"status": 503, "digest": None} if i % 25 == 7 else row)
    for i, url in enumerate(sorted(truth.changes)[:60]):
        rows.append(truth.fetch(url, FIRST_NIGHT + 0.98 + i / 1e4))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judged")


@pytest.fixture(scope="module")
def truth() -> _Truth:
    return _Truth()


@pytest.fixture(scope="module")
def first(folder: Path, truth: _Truth) -> Night:
    rows = [
        truth.fetch(url, float(day))
        for url in truth.changes
        for day in np.sort(truth.rng.random(1 + truth.rng.poisson(8))) * FIRST_NIGHT
    ]
    clicks = [
        {"url": url, "day": at(d)[:10], "clicks": 1 + i % 5}
        for i, url in enumerate(truth.changes)
        for d in range(10, FIRST_NIGHT)
    ]
    night = nightly(
        folder, "first", observations=rows, requests=clicks, as_of=at(FIRST_NIGHT), budget=100, num_shards=3
    )
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="module")
def log(first: Night, truth: _Truth) -> list[dict]:
    return _schedule_as_log(first, truth)


def _second(folder: Path, name: str, log: list[dict], first: Night, **options: Any) -> Night:
    night = nightly(
        folder,
        name,
        observations=log,
        as_of=at(FIRST_NIGHT + 1),
        budget=100,
        state=first.folder / "state",
        flags=["--allow_shrink"],
        **({"num_shards": 3} | options),
    )
    assert night.code == 0, night.complaints
    return night


@pytest.fixture(scope="module")
def second(folder: Path, log: list[dict], first: Night) -> Night:
    return _second(folder, "second", log, first)


def test_a_first_night_judges_nothing_and_says_nothing(first):
    judged = first.manifest["judged"]
    assert judged["crawls"] == 0 and judged["nights"] == []
    assert judged["not_judged"]["baseline"] == N_PAGES
    assert judged["not_judged"]["not_scheduled"] == first.counters["observations"] - N_PAGES - sum(
        n for reason, n in judged["not_judged"].items() if reason not in ("baseline", "not_scheduled")
    )
    assert "\n  judged" not in first.printed


def _chance_of_change(page: dict, state: dict, days: float) -> float:
    """By the rate's posterior on a dense grid; what the prior added follows from the mode and its error."""
    rate = page["change_rate_per_day"]
    information = (rate / page["change_rate_stderr"]) ** 2
    if not state["bin_weight"]:
        return 1 - (1 + rate * days / information) ** -information
    # Weights are landmark weights of a half-life of 12 changes.
    scale = 2.0 ** (state["n_changes"] // 12 - state["n_changes"] / 12)
    weight, gap, square = (scale * np.array(state[f"bin_{n}"]) for n in ("weight", "days", "days_squared"))
    spread = np.sqrt(np.maximum(square / weight - (gap / weight) ** 2, 0.0))
    gaps = np.concatenate([gap / weight - spread, gap / weight + spread])
    half = np.concatenate([weight, weight]) / 2
    x = rate * gaps
    q = x / np.expm1(x)
    by_time = information - (half * q * (x + q - 1)).sum()
    rates = np.exp(np.linspace(-30, 8, 4001))
    log = (by_time - (half * q).sum()) * np.log(rates) - by_time / rate * rates
    log += half @ np.log(-np.expm1(-np.maximum(np.outer(gaps, rates), 1e-200)))
    posterior = np.exp(log - log.max())
    return float(1 - (posterior * np.exp(-rates * days)).sum() / posterior.sum())


def test_the_manifest_has_what_a_loop_over_the_log_finds(first, second, log):
    """From `pages/` of the first night, its schedule, and the log of the day after."""
    pages = {r["url"]: r for r in first.rows("pages")}
    scheduled = {r["url"] for r in first.rows("schedule")}
    state = {r["url"]: r for r in first.rows("state")}
    known = {u: (r["baseline_at"].timestamp(), None) for u, r in state.items()}
    digests = {}  # the state has hashes: the digest of a page is what its last row of the first log had
    for row in _rows_of(first):
        digests[row["url"]] = row["digest"]
    by_url = defaultdict(list)
    for row in log:
        by_url[row["url"]].append(row)
    bins = np.zeros((10, 3))
    not_scheduled = failed = 0
    weighted, least = [], []
    for url, rows in by_url.items():
        last, digest = known[url][0], digests[url]
        for row in sorted(rows, key=lambda r: r["fetched_at"]):
            if row["status"] == 503:
                failed += 1
                continue
            now = pa.scalar(row["fetched_at"][:-1]).cast(pa.timestamp("us")).value / 1e6
            if now - last < 60:
                continue  # the same visit
            days, changed = (now - last) / 86_400, row["digest"] != digest
            last, digest = now, row["digest"]
            if url not in scheduled:
                not_scheduled += 1
                continue
            page = pages[url]
            p = _chance_of_change(page, state[url], days)
            bins[min(int(10 * p), 9)] += 1, p, changed
            weighted.append(page["weight"] * days)
            least.append(0.0 if changed else page["weight"] * days)
    judged = second.manifest["judged"]
    assert judged["crawls"] == bins[:, 0].sum() > 100
    assert judged["changes_found"] == bins[:, 2].sum() > 20
    assert judged["changes_predicted"] == pytest.approx(bins[:, 1].sum(), rel=1e-3)
    assert [b["crawls"] for b in judged["reliability"]] == list(bins[:, 0])
    assert [b["found"] for b in judged["reliability"]] == list(bins[:, 2])
    assert judged["not_judged"]["not_scheduled"] == not_scheduled > 20
    assert judged["not_judged"]["failed"] == failed > 2
    assert judged["freshness"]["at_least"] == pytest.approx(sum(least) / sum(weighted), rel=1e-5)
    assert judged["freshness"]["promised"] == first.manifest["expected_freshness_crawled"]


def _rows_of(night: Night) -> list[dict]:
    path = night.folder.parent / "inputs" / "first-observations.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(rows, key=lambda r: r["fetched_at"])


def test_every_row_of_the_log_is_judged_or_has_a_reason(second):
    judged = second.manifest["judged"]
    assert judged["crawls"] + sum(judged["not_judged"].values()) == second.counters["observations"]


def test_the_promise_is_of_the_pages_that_are_crawled(first):
    rows = [r for r in first.rows("pages") if r["crawl_rate_per_day"] > 0]
    weight = sum(r["weight"] for r in rows)
    assert first.manifest["expected_freshness_crawled"] == pytest.approx(
        sum(r["weight"] * r["expected_freshness"] for r in rows) / weight
    )
    assert first.manifest["expected_freshness_crawled"] >= first.manifest["expected_freshness"]


@pytest.mark.parametrize("options", [{"num_shards": 1}, {"num_shards": 7, "rows_per_batch": 16}])
def test_the_judgement_does_not_depend_on_the_cut(folder, log, first, second, options):
    other = _second(folder, f"cut-{options['num_shards']}", log[::-1], first, **options)
    assert other.manifest["judged"] == second.manifest["judged"]


def test_the_summary_has_a_line(second):
    judged = second.manifest["judged"]
    (line,) = [x for x in second.printed.splitlines() if x.startswith("  judged")]
    assert f"{judged['crawls']} crawls: {judged['changes_found']} changes found, " in line
    assert f"{judged['changes_predicted']:.0f} predicted (ratio {judged['ratio']:.2f} +- " in line
    assert f"; fresh {judged['freshness_of_time']['realised']:.2f} of the time" in line
    assert "drift" not in second.printed
    (line,) = [x for x in second.printed.splitlines() if x.startswith("  forecasts")]
    told = judged["corrected"]
    assert told["crawls"] == judged["by_rates"]["crawls"] > 100 and told["hosts"] == N_HOSTS
    # The first night had nothing to learn from: its forecasts are those by rates.
    assert told["log_loss"] == told["log_loss_by_rates"] > 0.0 and told["so_far"]["crawls"] == told["crawls"]
    assert "not corrected yet" in line


def test_slots_of_an_older_version_are_no_error(folder, log, first, second):
    """Judged from the night after on."""
    old = folder / "old"
    shutil.copytree(first.folder, old)
    (old / "manifest.json").unlink()
    shutil.rmtree(old / "slots")
    manifest = first.manifest
    for path in sorted((first.folder / "slots" / "pages").iterdir()):
        target = old / "slots" / "pages" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pq.read_table(path).select(["url_hash", "host_hash", "last_slot_at"]), target)
        for file in manifest["files"]:
            if file["path"] == f"slots/pages/{path.name}":
                file |= {"bytes": target.stat().st_size, "sha256": sha256(target.read_bytes()).hexdigest()}
    shutil.copytree(first.folder / "slots" / "hosts", old / "slots" / "hosts")
    del manifest["judged"], manifest["expected_freshness_crawled"]
    (old / "manifest.json").write_text(json.dumps(manifest))
    night = _second(folder, "after-old", log, Night(0, "", "", old))
    judged = night.manifest["judged"]
    assert judged["crawls"] == 0
    assert judged["not_judged"]["not_scheduled"] > second.manifest["judged"]["crawls"]
    assert judged["freshness"]["promised"] is None
    assert "no crawl yet of a scheduled page" in night.printed
    same = ("state", "schedule", "pages", "slots/pages")
    assert night.digests(*same) == second.digests(*same)
    assert hosts_without_forecasts(night) == hosts_without_forecasts(second)


def test_a_digest_that_differs_at_every_visit_is_a_warning(folder, log, first):
    """A new template with a token in it: every page seems to change at once."""
    noisy = [row | {"digest": row["digest"] and f"token-{i}"} for i, row in enumerate(log)]
    for row in noisy:
        row.pop("last_modified", None)
    night = _second(folder, "noisy", noisy, first)
    (text,) = [w for w in night.manifest["warnings"] if w.startswith("drift")]
    assert night.manifest["judged"]["changes_found"] == night.manifest["judged"]["crawls"]
    assert "digests" in text and f"WARNING: {text}" in night.printed
