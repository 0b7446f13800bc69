"""The lines of each crawler in docs/crawlers.md, run as they stand there.

The crawlers are stand-ins that keep what they are given; recrawl, but for its start, and the shell are real.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.pipelines import dumps
from tests.pipelines.dumps import PAGES
from tests.pipelines.plain_runner import CHOICE, PLAIN
from tests.pipelines.started import recrawl
from transforms.intake.sources import ROWS, plan_files, read_split
from transforms.rows.normalise import KINDS

ROOT = Path(__file__).resolve().parents[3]
CRAWLERS = ("Nutch", "StormCrawler", "Heritrix", "Scrapy", "URLFrontier", "Web archives")
DUMPED, HOUR = "2026-07-01T00:10:20Z", "2026-07-01T05"
# Each call of a stand-in is one more file of arguments.
CALLED = 'printf "%s\\n" "$@" > "$CALLS/$(basename "$0").$(ls "$CALLS" | wc -l)"'
# What the bulk API answers goes where curl is told to lay it.
ANSWERED = CALLED + '\nwhile test "$1" != -o; do shift; done\nprintf "%s" "$ANSWER" > "$2"'
# URLFrontier's client and Wget say how it went, each in its own way.
SAID = CALLED + '\nprintf "%s\\n" "$ANSWER"\nexit "$CODE"'
CLOCK = f'case "$*" in "-u +%FT%TZ") echo {DUMPED};; "-u +%Y-%m-%dT%H") echo {HOUR};; *) exit 1;; esac'
GOOD = '{"errors":false}'
BAD = '{"errors":true,"items":[{"update":{"error":{"type":"routing_missing_exception"}}}]}'


def lines_of(crawler: str) -> list[str]:
    """The lines of a crawler."""
    text = (ROOT / "docs" / "crawlers.md").read_text(encoding="utf-8")
    section = text.split("\n## From a dump to the next schedule\n")[1].split("\n## ")[0]
    found = re.search(rf"^{crawler}, from .*?^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found, crawler
    return found[1].splitlines()


def shell(
    folder: Path, lines: list[str], answer: str = GOOD, code: int = 0, real: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run lines in a folder, with stand-ins for all that is not recrawl, of the shell or real."""
    programs, calls = folder / "programs", folder / "calls"
    programs.mkdir(exist_ok=True)
    calls.mkdir(exist_ok=True)
    for name, what in {
        "recrawl": f'exec {shlex.join(recrawl())} "$@"',
        "date": CLOCK,
        "curl": ANSWERED,
        **dict.fromkeys(("nutch", "scrapy"), CALLED),
        **dict.fromkeys(("java", "wget"), SAID),
    }.items():
        if name in real:
            continue
        (programs / name).write_text(f"#!/bin/sh\n{what}\n")
        (programs / name).chmod(0o755)
    environment = (
        {CHOICE: PLAIN}
        | os.environ
        | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CALLS": str(calls),
            "ANSWER": answer,
            "CODE": str(code),
        }
    )
    script = "set -euo pipefail\n" + "\n".join(lines)
    return subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)


def run(crawler: str, folder: Path, answer: str = GOOD) -> tuple[int, list[tuple[str, list[str]]]]:
    """Lay out a dump and run the lines there: observations in the dump, calls of the crawler."""
    rows = getattr(dumps, crawler.lower().split()[-1])(folder)
    done = shell(folder, lines_of(crawler), answer)
    assert done.returncode == 0, done.stdout + done.stderr
    called = [
        (p.name.split(".")[0], p.read_text().splitlines()) for p in sorted((folder / "calls").iterdir())
    ]
    return rows, called


def observed(folder: Path) -> int:
    """Rows that the night took; its instant is that of the dump."""
    manifest = json.loads((folder / "out" / "manifest.json").read_text())
    assert manifest["options"]["as_of"] == DUMPED
    return manifest["counters"]["observations_accepted"]


def schedule(folder: Path) -> list[dict]:
    return (
        pq.read_table(folder / "out" / "schedule")
        .sort_by([("due_at", "ascending"), ("shard", "ascending")])
        .to_pylist()
    )


@pytest.mark.parametrize("crawler", CRAWLERS)
def test_the_lines_plan_export_and_hand_over(crawler):
    lines = lines_of(crawler)
    assert [line.split()[:2] for line in lines[:2]] == [["recrawl", "nightly"], ["recrawl", "export"]]
    assert len(lines) > 2 and not any(line.startswith("recrawl") for line in lines[2:])


def test_nutch(tmp_path):
    rows, called = run("Nutch", tmp_path)
    assert observed(tmp_path) == rows
    budget = re.search(r"--budget (\d+)", lines_of("Nutch")[0])
    assert budget and [words for _, words in called] == [
        ["inject", "crawldb", "seeds", "-overwrite"],
        ["generate", "crawldb", "segments", "-topN", budget[1]],
    ]
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


@pytest.mark.parametrize(("answer", "good"), [(GOOD, True), (BAD, False), ("", False)])
def test_a_bulk_answer_with_errors_fails_and_is_shown(tmp_path, answer, good):
    """The bulk API answers 200 where it has refused documents."""
    (tmp_path / "bulk").mkdir()
    for part in range(2):
        (tmp_path / "bulk" / f"stormcrawler-0000{part}.ndjson").write_text("{}\n")
    done = shell(tmp_path, lines_of("StormCrawler")[2:], answer)
    assert (done.returncode == 0, done.stderr) == (good, "" if good else answer)
    assert len(list((tmp_path / "calls").iterdir())) == (2 if good else 1)


@pytest.mark.parametrize(("crawls", "action", "code"), [(False, True, 0), (True, True, 0), (True, False, 1)])
def test_an_hour_without_a_crawl_is_no_failure(tmp_path, crawls, action, code):
    file = tmp_path / "hours" / f"heritrix-{HOUR}.force"
    file.parent.mkdir()
    taken = tmp_path / "jobs" / "shop" / "action"
    if action:
        taken.mkdir(parents=True)
    if crawls:
        file.write_text("F+ https://shop.test/\n")
    done = shell(tmp_path, lines_of("Heritrix")[-1:])
    assert done.returncode == code, done.stderr
    assert (taken / file.name).exists() == (crawls and action)


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


def test_urlfrontier(tmp_path):
    """One line for each page that was known; the one that was only found is not observed."""
    rows, called = run("URLFrontier", tmp_path, f"Items sent {len(PAGES)} / acked {len(PAGES)}")
    assert observed(tmp_path) == rows
    queue = tmp_path / "queue" / "urlfrontier-urls.jsonl"
    put = ["-jar", "urlfrontier-client.jar", "PutURLs", "-f", "queue/urlfrontier-urls.jsonl"]
    assert called == [("java", put)]
    items = [json.loads(line)["known"] for line in queue.read_text().splitlines()]
    assert [item["info"]["key"] for item in items] == [item["info"]["url"].split("/")[2] for item in items]
    first = {row["url"]: row["due_at"] for row in reversed(schedule(tmp_path))}
    due = {item["info"]["url"]: int(item["refetchableFromDate"]) for item in items}
    assert due == {url: math.ceil(at.timestamp()) for url, at in first.items()} and set(due) == set(PAGES)


@pytest.mark.parametrize(
    ("answer", "good"),
    [
        ("Items sent 12 / acked 12", True),
        ("Items sent 11 / acked 11", False),
        ("Items sent 12 / acked 0", False),
    ],
)
def test_urls_that_a_frontier_did_not_take_fail(tmp_path, answer, good):
    """The client ends with 0 where it could not parse a line, and where there is no frontier."""
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "urlfrontier-urls.jsonl").write_text("{}\n" * 12)
    done = shell(tmp_path, lines_of("URLFrontier")[2:], answer)
    assert (done.returncode == 0, done.stdout) == (good, answer + "\n")


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_dates_of_a_frontier_are_put_off(tmp_path):
    """Each URL keeps its words and waits for 2099; to recrawl that is no fetch."""
    dumps.urlfrontier(tmp_path)
    text = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    found = re.search(r"```sh\n(jq .*?)```", text.split("\n## URLFrontier\n")[1], re.DOTALL)
    assert found
    done = shell(tmp_path, found[1].splitlines(), "Items sent 13 / acked 13")
    assert done.returncode == 0, done.stderr
    before = [json.loads(line) for line in (tmp_path / "dump.jsonl").read_text().splitlines()]
    after = [json.loads(line) for line in (tmp_path / "off.jsonl").read_text().splitlines()]
    assert len(after) == len(before) > len(PAGES)
    why = {"recrawl.reason": {"values": ["put off"]}}
    for old, new in zip(before, after, strict=True):
        info = (old.get("known") or old["discovered"])["info"]
        kept = info | {"metadata": info.get("metadata", {}) | why}
        assert new == {"known": {"info": kept, "refetchableFromDate": "4070908800"}}
    assert datetime.fromtimestamp(4070908800, UTC).isoformat() == "2099-01-01T00:00:00+00:00"
    read = [[batch.to_pylist() for _, batch in rows] for rows in (_rows(tmp_path / n) for n in NAMES)]
    assert read[0] == read[1] and len(read[0][0]) == len(PAGES)


NAMES = ("dump.jsonl", "off.jsonl")


def _rows(path: Path) -> list:
    (split,) = plan_files(str(path), "observations")
    return [found for found in read_split(split, KINDS["observations"]) if found[0] == ROWS]


def test_archives(tmp_path):
    rows, called = run("Web archives", tmp_path)
    assert observed(tmp_path) == rows
    [(name, words)] = called
    listed = tmp_path / words[words.index("-i") + 1]
    assert (name, listed.name) == ("wget", f"urls-{HOUR}.txt") and f"--warc-file=index/{HOUR}" in words
    due = [r["url"] for r in schedule(tmp_path) if f"{r['due_at']:%Y-%m-%dT%H}" == HOUR]
    assert listed.read_text().splitlines() == due and due


@pytest.mark.parametrize(
    ("crawls", "code", "calls", "good"),
    [(False, 3, 0, True), (True, 0, 1, True), (True, 8, 1, True), (True, 4, 1, True), (True, 3, 1, False)],
)
def test_pages_that_fail_are_no_failure_of_wget(tmp_path, crawls, code, calls, good):
    """Wget ends with 4 and above where hosts and pages did not answer, below where it could not work."""
    file = tmp_path / "hours" / f"urls-{HOUR}.txt"
    file.parent.mkdir()
    if crawls:
        file.write_text("https://shop.test/\n")
    done = shell(tmp_path, lines_of("Web archives")[2:], code=code)
    assert ((done.returncode == 0), len(list((tmp_path / "calls").iterdir()))) == (good, calls)
