"""The README's three lines of each crawler, run as they stand there.

The crawlers are stand-ins that keep what they are given; recrawl and the shell are real.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipelines import dumps
from tests.pipelines.dumps import PAGES

pytestmark = pytest.mark.slow  # eight starts of recrawl
ROOT = Path(__file__).resolve().parents[2]
CRAWLERS = ("Nutch", "StormCrawler", "Heritrix", "Scrapy")
HOUR = "2026-07-01T05"
RECRAWL = f'exec "{sys.executable}" -m pipelines.cli "$@"'
# Each call of a stand-in is one more file of arguments.
CALLED = 'printf "%s\\n" "$@" > "$CALLS/$(basename "$0").$(ls "$CALLS" | wc -l)"'


def lines_of(crawler: str) -> list[str]:
    """The lines of a crawler in the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("\n## From your crawler's dump to its next schedule\n")[1].split("\n## ")[0]
    found = re.search(rf"^{crawler}, from .*?^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found, crawler
    return found[1].splitlines()


def run(crawler: str, folder: Path) -> tuple[int, list[tuple[str, list[str]]]]:
    """Lay out a dump and run the lines there: observations in the dump, calls of the crawler."""
    rows = getattr(dumps, crawler.lower())(folder)
    programs, calls = folder / "programs", folder / "calls"
    programs.mkdir()
    calls.mkdir()
    clock = f'echo "{HOUR}"'
    for name, what in {
        "recrawl": RECRAWL,
        "date": clock,
        **dict.fromkeys(("nutch", "curl", "scrapy"), CALLED),
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{what}\n")
        (programs / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "CALLS": str(calls),
    }
    script = "set -euo pipefail\n" + "\n".join(lines_of(crawler))
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    called = [(p.name.split(".")[0], p.read_text().splitlines()) for p in sorted(calls.iterdir())]
    return rows, called


def observed(folder: Path) -> int:
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    return manifest["counters"]["observations_accepted"]


def schedule(folder: Path) -> list[dict]:
    return (
        pq.read_table(folder / "out" / "schedule")
        .sort_by([("due_at", "ascending"), ("shard", "ascending")])
        .to_pylist()
    )


@pytest.mark.parametrize("crawler", CRAWLERS)
def test_the_readme_has_three_lines(crawler):
    lines = lines_of(crawler)
    assert [line.split()[:2] for line in lines[:2]] == [["recrawl", "nightly"], ["recrawl", "export"]]
    assert len(lines) == 3


def test_nutch(tmp_path):
    rows, called = run("Nutch", tmp_path)
    assert observed(tmp_path) == rows
    assert called == [("nutch", ["inject", "crawldb", "seeds", "-overwrite"])]
    seeds = (tmp_path / "seeds" / "nutch-seeds.txt").read_text().splitlines()
    assert sorted(seed.split("\t")[0] for seed in seeds) == sorted(PAGES)


def test_stormcrawler(tmp_path):
    rows, called = run("StormCrawler", tmp_path)
    assert observed(tmp_path) == rows
    sent = [words[words.index("-T") + 1] for _, words in called]
    assert sent == ["bulk/stormcrawler-00000.ndjson"]
    lines = [json.loads(line) for line in (tmp_path / sent[0]).read_text().splitlines()]
    assert sorted(line["upsert"]["url"] for line in lines[1::2]) == sorted(PAGES)
    first = {row["url"]: row["due_at"] for row in reversed(schedule(tmp_path))}
    for line in lines[1::2]:
        assert line["doc"]["nextFetchDate"] >= f"{first[line['upsert']['url']]:%Y-%m-%dT%H:%M:%S}"


def test_heritrix(tmp_path):
    rows, _ = run("Heritrix", tmp_path)
    assert observed(tmp_path) == rows
    taken = tmp_path / "jobs" / "shop" / "action" / f"heritrix-{HOUR}.force"
    assert [p.name for p in taken.parent.iterdir()] == [taken.name]
    due = [r["url"] for r in schedule(tmp_path) if f"{r['due_at']:%Y-%m-%dT%H}" == HOUR]
    assert sorted(taken.read_text().splitlines()) == sorted(f"F+ {url}" for url in due) and due


def test_scrapy(tmp_path):
    rows, called = run("Scrapy", tmp_path)
    assert observed(tmp_path) == rows
    assert called == [("scrapy", ["crawl", "shop", "-a", "queue=queue/scrapy-requests.jsonl"])]
    with open(tmp_path / called[0][1][-1].removeprefix("queue=")) as lines:
        found = [json.loads(line) for line in lines]
    assert [r["url"] for r in found] == [r["url"] for r in schedule(tmp_path)]
