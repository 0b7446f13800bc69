"""`recrawl diff` between nights that follow signals: what trust in them moved, and the slots they gave."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.corpus.corpus import CorpusSpec
from pipelines.corpus.synthesize import synthesize
from policies.optimum.attribution import SignalQuality
from policies.sequencing.sequencing import REASONS
from policies.signalled.value import crawl_rate
from tests.pipelines.jobs import Night, at, nightly
from tests.pipelines.look.test_diff import diff, document, main_cause

FIRST, SECOND = 12, 13
SPEC = CorpusSpec(
    pages=800, hosts=12, days=SECOND + 2, observations=9000, first_day=20_605, requests_per_day=800.0, seed=7
)


class Nights:
    """Two nights that follow each other on a made-up web, and other ways to have run the second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.web = folder / "web"
        synthesize(SPEC, self.web)
        self.first = self.run("first", range(1, FIRST + 1), as_of=at(FIRST))
        self.second = self.later("second")

    def run(self, name: str, days: range, **options: Any) -> Night:
        def files(kind: str) -> str:
            return ",".join(str(self.web / kind / f"2026-06-{day:02d}.parquet") for day in days)

        usual: dict[str, Any] = {
            "observations": files("logs"),
            "requests": files("clicks"),
            "signals": files("signals"),
            "pages": str(self.web / "pages.parquet"),
            "budget": 250,
        }
        night = nightly(self.folder, name, **(usual | options))
        assert night.code == 0, night.complaints
        return night

    def later(self, name: str, **options: Any) -> Night:
        usual = {"as_of": at(SECOND), "state": self.first.folder / "state", "flags": ["--allow_shrink"]}
        return self.run(name, range(SECOND, SECOND + 1), **(usual | options))


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    return Nights(tmp_path_factory.mktemp("signals"))


def size(found: dict[str, Any]) -> dict[str, float]:
    return {c["cause"]: c["up_per_day"] - c["down_per_day"] for c in found["causes"]}


def _unlimited(limit: str, *both: Night) -> float:
    """Crawls a day that a rule can have held back: what its pages would get at the dearest of both nights."""
    known = [{r["url"]: r for r in n.rows("pages")} for n in both]
    held = {url for rows in known for url, r in rows.items() if r["limit"] == limit}
    multipliers = [n.manifest["multiplier"] for n in both]
    total = 0.0
    for rows in ([of[url] for of in known if url in of] for url in held):
        mixed = product(rows, rows, rows, multipliers)
        names = ("change_rate_per_day", "weight", "signal_precision", "signal_recall")
        inputs = [[x[names[0]], y[names[1]] / m, *(z[n] or 0.0 for n in names[2:])] for x, y, z, m in mixed]
        change, worth, precision, recall = np.array(inputs).T
        total += crawl_rate(SignalQuality(precision, recall).pages(change, worth), 1.0).max()
    return total


def test_a_night_later(nights):
    """Parts add up for all, for hosts and for pages; nobody is held by a limit that there is not."""
    found = document(nights.first.folder, nights.second.folder)
    one, two = found["crawl_rate_per_day"]
    assert sum(c["net_per_day"] for c in found["causes"]) == pytest.approx(two - one, abs=1e-9)
    by = size(found)
    assert by["signals"] > 0.01 and by["change_observed"] > 0.01 and by["aim"] == 0.0
    both = (nights.first, nights.second)
    with_caps = [r for n in both for r in n.rows("pages") if r["limit"] == "cap"]
    assert by["page_limit"] <= sum(r["crawl_rate_per_day"] for r in with_caps) + 1e-6
    for rule in ("volatile", "silent"):
        assert 0.1 < by[rule] <= _unlimited(rule, *both)
    for row in found["hosts_by_slots"]:
        step = row["crawl_rate_per_day"][1] - row["crawl_rate_per_day"][0]
        assert sum(row["causes_per_day"].values()) == pytest.approx(step, abs=1e-9)
    known = [
        {r["url"]: r["crawl_rate_per_day"] for r in n.rows("pages")} for n in (nights.first, nights.second)
    ]
    for row in found["pages_by_rate"]:
        step = known[1].get(row["url"], 0.0) - known[0].get(row["url"], 0.0)
        assert sum(row["causes_per_day"].values()) == pytest.approx(step, abs=1e-9)
    text = diff(nights.first.folder, nights.second.folder)
    folders = [line for line in text.splitlines() if str(nights.folder) in line]
    assert all(len(line) <= 110 for line in text.splitlines() if line not in folders)
    assert "NOTE" not in text


def test_slots_by_signal_are_counted(nights):
    found = document(nights.first.folder, nights.second.folder)
    for i, night in enumerate((nights.first, nights.second)):
        reasons = [r["reason"] for r in night.rows("schedule")]
        assert {n: found["slots_by_reason"][n][i] for n in REASONS[1:]} == {
            n: reasons.count(n) for n in REASONS[1:]
        }
    assert found["slots_by_reason"]["signal"][1] > 0


def test_a_page_with_signals(nights):
    """Trust is shown beside the rates; a page without any has no line on it."""
    rows = {r["url"]: r for r in nights.second.rows("pages")}
    with_signals = [u for u, r in rows.items() if r["signal_precision"] and r["crawl_rate_per_day"] > 0.0]
    url = max(with_signals, key=lambda u: rows[u]["crawl_rate_per_day"])
    found = document(nights.first.folder, nights.second.folder, "--url", url)
    for name in ("signal_precision", "signal_recall", "signal_rate_per_day", "signals_since_crawl"):
        assert found["page"]["columns"][name][1] == rows[url][name], name
    assert "  signal precision  " in diff(nights.first.folder, nights.second.folder, "--url", url)
    before = {r["url"]: r for r in nights.first.rows("pages")}
    silent = next(
        u for u, r in rows.items() if r["signal_precision"] is None is before[u]["signal_precision"]
    )
    said = diff(nights.first.folder, nights.second.folder, "--url", silent)
    assert "  signal" not in said and "  limit  " in said


def test_following_signals_is_the_signals_doing(nights):
    """The same night with and without: change rates differ as well, since signals tell of changes."""
    without = nights.later("without", objective="periodic")
    text = diff(without.folder, nights.second.folder)
    assert "objective periodic -> signals" in text and "NOTE" not in text
    found = document(without.folder, nights.second.folder)
    by = size(found)
    assert by["signals"] > 1.0 and by["aim"] == by["weight"] == 0.0
    assert main_cause(text).startswith(("signals", "change rate, learned"))
    mirrored = document(nights.second.folder, without.folder)
    for one in found["causes"]:
        (two,) = [c for c in mirrored["causes"] if c["cause"] == one["cause"]]
        assert two["net_per_day"] == pytest.approx(-one["net_per_day"], abs=1e-9)


@pytest.mark.parametrize("options", [{"output_format": "jsonl"}, {"num_shards": 3}], ids=str)
def test_other_files_of_the_same_night(options, nights):
    other = nights.later("other-" + "-".join(options), **options)
    assert main_cause(diff(nights.second.folder, other.folder)) == "none: no crawl rate moved"


def test_a_night_of_an_older_version(nights):
    """Its pages/ has no columns of signals, and its manifest none of the options that came with them."""
    old = nights.later("old", objective="periodic")
    expected = document(old.folder, nights.second.folder)
    files = sorted((old.folder / "pages").glob("*.parquet"))
    for path in files:
        table = pq.read_table(path)
        lacking = [n for n in table.schema.names if n.startswith("signal") or n in ("volatile", "soft_404")]
        pq.write_table(table.drop_columns(lacking), path)
    manifest = old.manifest
    for name in ("max_signal_shift", "hour_capacity", "signal_delay_minutes", "sitemaps", "lower_soft_404"):
        manifest["options"].pop(name, None)
    (old.folder / "manifest.json").write_text(json.dumps(manifest))
    found = document(old.folder, nights.second.folder)
    assert found["causes"] == expected["causes"] and found["missing_columns"] == []
    assert found["slots_by_reason"]["signal"][0] == 0
