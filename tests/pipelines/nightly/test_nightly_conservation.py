"""Nothing is lost and nothing is made up: rows, slots, rates, files, and the counts of all of them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.nightly import nightly as job
from policies.history.history import DISPOSITIONS
from policies.sequencing.sequencing import REASONS
from policies.signals.counts import DISPOSITIONS as SIGNAL_DISPOSITIONS
from tests.pipelines.jobs import Night, at, write_rows
from tests.pipelines.site import make_site
from tests.transforms.counted import committed

SITE = make_site(n_pages=50, seed=5)
AS_OF = datetime(2026, 6, 29, tzinfo=UTC)  # the last days of the logs lie after it
BUDGET, HOURS = 35.7, 13
BAD: dict[str, list[dict[str, Any]]] = {
    "observations": [
        {"url": "mailto:a@b.test", "fetched_at": at(1)},
        {"url": "https://a.test/", "fetched_at": "?"},
    ],
    "requests": [
        {"url": "https://h0.test/", "day": at(1)[:10], "clicks": -1},
        {"url": "", "day": at(1)[:10]},
    ],
    "signals": [{"url": "https://h0.test/", "signalled_at": "soon"}],
    "pages": [{"url": "https://h0.test/", "importance": -2.0}],
}


def _rows(kind: str) -> list[dict[str, Any]]:
    rows = getattr(SITE, kind)
    return [{k: v for k, v in r.items() if k != "_day"} for r in rows]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, dict[str, int]]:
    """A night, and Beam's committed counters of it."""
    folder: Path = tmp_path_factory.mktemp("conservation")
    arguments = [
        f"--output={folder}/out",
        f"--as_of={AS_OF.isoformat()}",
        f"--budget={BUDGET}",
        "--num_shards=4",
        f"--horizon_hours={HOURS}",
        "--max_rejected_fraction=0.5",
        "--runner=DirectRunner",  # which counts; that of small nights does not
    ]
    for kind in ("observations", "requests", "signals", "pages", "hosts"):
        write_rows(folder / kind / "good.jsonl", _rows(kind))
        if kind in BAD:
            write_rows(folder / kind / "bad.jsonl", BAD[kind])
        arguments.append(f"--{kind}={folder}/{kind}/*.jsonl")
    with contextlib.redirect_stdout(io.StringIO()):
        result = job.run(arguments)
    return Night(0, "", "", folder / "out"), committed(result.metrics())


@pytest.fixture(scope="module")
def night(ran: tuple[Night, dict[str, int]]) -> Night:
    return ran[0]


@pytest.mark.parametrize("kind", ["observations", "requests", "signals", "pages", "hosts"])
def test_rows_in_are_accepted_or_rejected(kind, night):
    counters = night.counters
    n_bad = len(BAD.get(kind, []))
    assert counters[f"{kind}_accepted"] == len(_rows(kind))
    assert counters.get(f"{kind}_rejected", 0) == n_bad
    by_reason = {k: n for k, n in counters.items() if k.startswith(f"{kind}_rejected_")}
    assert sum(by_reason.values()) == n_bad
    assert len([r for r in night.rejected() if f"/{kind}/" in r["source"]]) == n_bad


def test_every_accepted_observation_has_one_disposition(night):
    counters = night.counters
    assert counters["observations"] == counters["observations_accepted"]
    assert sum(counters[name] for name in DISPOSITIONS) == counters["observations"]
    assert counters["after_as_of"] > 10 and counters["duplicate"] > 10 and counters["failed"] > 10


def test_every_accepted_request_and_signal_has_one_disposition(night):
    counters = night.counters
    fates = ("folded", "after_as_of", "too_old", "unmatched", "before_known")
    assert sum(counters[f"requests_{fate}"] for fate in fates) == counters["requests_accepted"]
    assert counters["requests_unmatched"] > 0 and counters["requests_after_as_of"] > 0
    assert sum(counters[f"{fate}"] for fate in SIGNAL_DISPOSITIONS) == counters["signals"]
    left_out = counters["signals_unmatched"] + counters["signals_before_known"]
    assert counters["signals"] + left_out == counters["signals_accepted"]
    assert counters["signals_unmatched"] > 0


def test_committed_counters_are_those_of_the_manifest(ran):
    """What travels as data and what Beam counts are two ways to one number."""
    night, beams = ran
    shared = {name: n for name, n in beams.items() if "/" not in name}
    assert shared == {name: n for name, n in night.counters.items() if n or name in shared}
    assert len(shared) > 40


def test_slots_are_the_budget(night):
    """The fraction of a slot is carried; hosts at their limit leave unspent budget, no empty slot."""
    counters, manifest = night.counters, night.manifest
    assert counters["slots_used"] == len(night.rows("schedule"))
    assert counters["slots_used"] + counters["slots_empty"] == counters["slots"] == manifest["slots"]
    assert manifest["slots"] == math.floor(manifest["allocated_per_day"] * HOURS / 24 + 1e-9)
    used = [reason for reason in REASONS if reason != "empty"]
    assert sum(counters[f"slots_{reason}"] for reason in used) == counters["slots_used"]


def test_rates_are_what_was_allocated(night):
    manifest = night.manifest
    rates = math.fsum(r["crawl_rate_per_day"] for r in night.rows("pages"))
    assert rates == pytest.approx(manifest["allocated_per_day"], rel=1e-9)
    assert manifest["allocated_per_day"] + manifest["unspent_per_day"] == pytest.approx(BUDGET, rel=1e-9)
    assert manifest["allocated_per_day"] == pytest.approx(BUDGET, rel=1e-9)


def test_freshness_is_what_the_pages_say(night):
    """The manifest's sums are those of the rows."""
    rows, manifest = night.rows("pages"), night.manifest
    assert manifest["weight_by"] == "clicks"
    weight = math.fsum(r["request_rate_per_day"] for r in rows)
    fresh = math.fsum(r["request_rate_per_day"] * r["expected_freshness"] for r in rows)
    assert manifest["expected_freshness"] == pytest.approx(fresh / weight, rel=1e-12)
    assert manifest["expected_freshness_uniform"] < manifest["expected_freshness"]


def test_pages_are_known_once_in_every_output(night):
    urls = night.urls()
    assert len(set(urls)) == len(urls) == night.counters["pages_known"]
    assert sorted(r["url"] for r in night.rows("state")) == urls
    assert {r["url"] for r in SITE.pages} == set(urls)
    by_limit = [n for name, n in night.counters.items() if name.startswith("pages_limit_")]
    assert sum(by_limit) == len(urls)
    assert night.counters["pages_new"] == sum(r["limit"] == "new" for r in night.rows("pages"))


def test_schedule_agrees_with_pages(night):
    pages = {r["url"]: r for r in night.rows("pages")}
    slots = night.rows("schedule")
    assert len({(r["shard"], r["slot"]) for r in slots}) == len(slots)
    for row in slots:
        page = pages[row["url"]]
        assert row["host"] == page["host"]
        assert row["crawl_rate_per_day"] == page["crawl_rate_per_day"]
        assert row["weight"] == page["request_rate_per_day"] and row["value"] == page["crawl_value"]
        assert AS_OF <= row["due_at"] < AS_OF + timedelta(hours=HOURS)
    for shard in {r["shard"] for r in slots}:
        own = [r for r in slots if r["shard"] == shard]
        assert [r["slot"] for r in own] == sorted(r["slot"] for r in own)
        assert [r["due_at"] for r in own] == sorted(r["due_at"] for r in own)


def test_metadata_passes_through(night):
    given = {r["url"]: (r["section"], r["owner"]) for r in SITE.pages}
    assert {r["url"]: (r["section"], r["owner"]) for r in night.rows("pages")} == given


def test_files_are_as_the_manifest_lists_them(night):
    listed = {f["path"]: f for f in night.manifest["files"]}
    on_disk = night.digests()
    del on_disk["manifest.json"]
    assert set(listed) == set(on_disk)
    for path, entry in listed.items():
        data = (night.folder / path).read_bytes()
        assert entry["bytes"] == len(data)
        assert entry["sha256"] == hashlib.sha256(data).hexdigest() == on_disk[path]
        assert entry["rows"] == pq.read_metadata(night.folder / path).num_rows
    for kind in ("pages", "schedule", "state", "state/signals", "slots/pages", "slots/hosts"):
        assert sum(p.rpartition("/")[0] == kind for p in listed) == 4, kind


def test_slots_are_remembered(night):
    """Every scheduled page has its last slot, every scheduled host too."""
    last = {}
    for row in night.rows("schedule"):
        last[row["url"]] = max(row["due_at"], last.get(row["url"], row["due_at"]))
    assert sorted(r["last_slot_at"] for r in night.rows("slots/pages")) == sorted(last.values())
    hosts = {r["host"] for r in night.rows("schedule")}
    assert len(night.rows("slots/hosts")) >= len(hosts)
