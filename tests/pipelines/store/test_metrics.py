"""Metrics of nights: read by Prometheus' own parser, equal to the manifest, replaced in one step."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipelines.store import night_metrics
from pipelines.webpage.trends import rejected_share
from tests.pipelines.jobs import Night, at, command, crawls, nightly
from tests.pipelines.stores import Stored, job, midnight, set_clock

__all__ = ["job"]
DOCS = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


def parsed(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """By metric the values, by the values of its labels."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge" and family.documentation.endswith("."), family.name
        assert family.name not in found
        found[family.name] = {tuple(s.labels.values()): s.value for s in family.samples}
        assert all(s.timestamp is None for s in family.samples)
    return found


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> list[Night]:
    """Two nights, the second of which judges the first."""
    folder = tmp_path_factory.mktemp("nights")
    rows = [
        r for n in range(12) for r in crawls(f"https://{'ab'[n % 2]}.test/{n}", "ABCDEF"[: 2 + n % 5] * 3)
    ]
    first = nightly(folder, "one", as_of=at(16), observations=[*rows, {"url": "no"}], budget=6)
    later = crawls("https://a.test/0", "XY", 16.2, 0.3)
    second = nightly(folder, "two", as_of=at(17), observations=later, state=first.folder / "state", budget=6,
                     flags=["--allow_shrink"])  # fmt: skip
    assert first.committed and second.committed, second.complaints
    return [first, second]


def test_they_say_what_the_manifest_says(nights):
    for done in nights:
        said = parsed((done.folder / "metrics.prom").read_text())
        manifest, counters = done.manifest, done.counters
        expected = {
            "as_of_timestamp_seconds": manifest["options"]["as_of_us"] / 1e6,
            "schedule_end_timestamp_seconds": manifest["options"]["as_of_us"] / 1e6 + 86_400,
            "ok": 1,
            "pages": counters["pages_known"],
            "scheduled_crawls": counters["slots_used"],
            "budget_crawls_per_day": 6,
            "expected_freshness_ratio": manifest["expected_freshness"],
            "warnings": len(manifest["warnings"]),
        }
        for name, value in expected.items():
            assert said[f"recrawl_night_{name}"] == {(): value}, name
        limits = said["recrawl_night_pages_by_limit"]
        assert sum(limits.values()) == counters["pages_known"]
    first, second = (parsed((done.folder / "metrics.prom").read_text()) for done in nights)
    assert first["recrawl_night_rows_rejected"] == {("observations",): 1}
    assert first["recrawl_night_rejected_ratio"] == {(): rejected_share(nights[0].manifest)}
    # What is not known is left out, and comes when it is.
    assert "recrawl_night_drift" not in first
    judged = nights[1].manifest["judged"]
    assert second["recrawl_night_judged_crawls"] == {(): judged["crawls"]}
    assert second["recrawl_night_drift"] == {(): float(judged["drift"]["night"] or judged["drift"]["week"])}


def test_the_same_night_has_the_same_metrics(nights):
    text = (nights[1].folder / "metrics.prom").read_text()
    assert night_metrics.of_night(nights[1].manifest) == text


def test_docs_list_every_metric():
    text = DOCS.read_text()
    table = text[text.index("### Prometheus") :]
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    source = {"nights", "night_age_seconds", "schedule_left_seconds", "schedule_run_out", "warnings"}
    assert listed == {*night_metrics._NIGHT, *source}


@pytest.fixture
def store(tmp_path: Path) -> Stored:
    found = Stored(tmp_path)
    found.log("logs/day-0.jsonl", crawls("https://a.test/", "A"), at(0, 23))
    return found


def test_a_store_tells_its_last_night_and_whether_that_has_run_out(store, job, monkeypatch):
    job.warnings = ["look here"]
    assert store.run(midnight(1)).code == 0
    job.warnings = []
    assert store.run(midnight(2)).code == 0  # which warns that there is no new file
    for moment, age, left, out in (("2026-06-03T06:00:00Z", 6, 18, 0), ("2026-06-04T06:00:00Z", 30, 0, 1)):
        set_clock(monkeypatch, moment)
        code, text, _ = command("metrics", str(store.root))
        said = {name: values.get(()) for name, values in parsed(text).items()}
        assert code == 0 and said["recrawl_store_nights"] == 2
        assert said["recrawl_store_night_age_seconds"] == age * 3600
        assert said["recrawl_store_schedule_left_seconds"] == left * 3600
        assert said["recrawl_store_schedule_run_out"] == out
        assert said["recrawl_store_warnings"] == 1 and said["recrawl_night_warnings"] == 0
        assert said["recrawl_night_as_of_timestamp_seconds"] == 1_780_444_800


def test_a_store_without_nights_says_so(tmp_path):
    code, text, _ = command("metrics", str(tmp_path / "none"))
    assert code == 0 and parsed(text) == {"recrawl_store_nights": {(): 0.0}}


def test_a_file_is_replaced_in_one_step(store, job, tmp_path, monkeypatch):
    set_clock(monkeypatch, "2026-06-03T06:00:00Z")
    file = tmp_path / "collector" / "recrawl.prom"
    code, _, err = command("metrics", str(store.root), f"--output={file}")
    assert code == 2 and f"--output={file}: cannot be written: No such file" in err
    file.parent.mkdir()
    assert store.run(midnight(1)).code == 0
    seen: list[tuple[str, str]] = []
    rename = os.replace

    def watched(half: str, whole: str) -> None:
        seen.append((Path(half).name, Path(half).read_text()))
        rename(half, whole)

    monkeypatch.setattr(os, "replace", watched)
    assert command("metrics", str(store.root), f"--output={file}")[0] == 0
    ((name, text),) = seen
    # Collectors read what ends in .prom.
    assert not name.endswith(".prom") and text == file.read_text() and list(file.parent.iterdir()) == [file]


def test_metrics_go_with_their_night(store, job):
    for day in (1, 2, 3):
        assert store.run(midnight(day), keep=2).code == 0
    kept = sorted(p.parent.name for p in store.root.glob("nights/*/metrics.prom"))
    assert kept == store.committed() and len(kept) == 2
    (store.root / "nights" / kept[-1] / "metrics.prom").unlink()  # as after a crash
    assert store.run(midnight(3)).code == 0
    assert (store.root / "nights" / kept[-1] / "metrics.prom").exists()
