"""`recrawl explain`, `recrawl show`, and a night opened by a program: they say what the night has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import recrawl
from pipelines.door import cli
from pipelines.look.explain import duration, number, often, page_lines
from policies.numerics.errors import RecrawlError
from policies.objectives import objectives
from tests.pipelines.jobs import Night, at, command, crawls, nightly, seen

SHOP, NEWS = "https://shop.test", "https://news.test"
PAGE, FAST, UNASKED, NEW = f"{SHOP}/offer/", f"{NEWS}/ticker", f"{SHOP}/imprint", f"{SHOP}/new"
STEADY = [f"{host}/{i}" for host in (SHOP, NEWS) for i in range(12)]


def _log() -> list[dict[str, object]]:
    steady = [crawls(url, "AABBCC" * 5) for url in STEADY]
    fast = crawls(FAST, "".join(chr(65 + i % 26) for i in range(240)), every_days=0.125)
    pages = [crawls(PAGE, "AABBCCDDEE" * 3), fast, crawls(UNASKED, "A" * 30), *steady]
    return [row for rows in pages for row in rows]


@pytest.fixture(scope="module")
def night(tmp_path_factory) -> Night:
    asked = {PAGE: 40, FAST: 1, **dict.fromkeys(STEADY, 9)}
    requests = [{"url": u, "day": at(d)[:10], "clicks": n} for u, n in asked.items() for d in range(10, 30)]
    found = nightly(
        tmp_path_factory.mktemp("explain"),
        observations=_log(),
        requests=requests,
        pages=[{"url": NEW, "importance": 1}],
        hosts=[{"host": "shop.test", "max_per_day": 6}],
        budget=16,
    )
    assert found.code == 0, found.complaints
    return found


def _explained(night: Night, what: str) -> str:
    code, printed, complaints = command("explain", str(night.folder), what)
    assert (code, complaints) == (0, "")
    return printed


def test_a_page_says_what_the_night_has(night):
    page, text = night.page(PAGE), _explained(night, PAGE)
    assert often(page["crawl_rate_per_day"]) in text and f"clicked {number(page['weight'])} times" in text
    assert f"every {duration(1.0 / page['change_rate_per_day'])} (" in text
    assert f"{page['n_changes']} changes in {page['n_intervals']} visits" in text
    first = min(row["due_at"] for row in night.slots_of(PAGE)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert f"next crawl    {first}" in text
    assert "all that its limit of 6.0 allows" in text or "all that its limit of 6 allows" in text


def test_one_more_crawl_is_worth_what_freshness_gains(night):
    found = recrawl.open(str(night.folder)).explain(PAGE)
    page = found["page"]
    rates = np.array([page["crawl_rate_per_day"], page["crawl_rate_per_day"] + 1.0])
    change = np.full(2, page["change_rate_per_day"])
    fresh = objectives.get("periodic").freshness(rates, change)
    assert found["one_more_crawl_a_day"] == pytest.approx(page["weight"] * (fresh[1] - fresh[0]))
    assert number(found["one_more_crawl_a_day"]) in _explained(night, PAGE)


def test_who_is_never_crawled_learns_why(night):
    fast = _explained(night, FAST)
    assert "gets no crawl" in fast and "changes so often" in fast and "min_rate_per_day" in fast
    row = night.page(FAST)
    worth = number(row["weight"] / row["change_rate_per_day"])
    assert f"{worth} clicks a crawl" in fast and row["crawl_rate_per_day"] == 0.0
    assert row["weight"] / row["change_rate_per_day"] < night.manifest["multiplier"]
    unasked = _explained(night, UNASKED)
    assert ("nobody asks for it" in unasked) == (night.page(UNASKED)["weight"] == 0.0)


def test_the_summary_counts_those_who_are_asked_for_and_get_no_crawl(night):
    pages = night.rows("pages")
    starved = [row for row in pages if row["crawl_rate_per_day"] == 0.0 and row["weight"] > 0.0]
    said = night.manifest["starved"]
    assert said["pages"] == len(starved) > 0
    lost, asked = (sum(row["weight"] for row in rows) for rows in (starved, pages))
    assert said["weight_share"] == pytest.approx(lost / asked)
    assert said["by_limit"] == Counter(row["limit"] for row in starved)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory) -> Night:
    """A host at its limit, some of whose pages change too often for what they are asked."""
    rows = [row for i in range(9) for row in crawls(f"{SHOP}/{i}", "ABCDEFGHIJ"[: 2 + i], every_days=0.5)]
    asked = [{"url": f"{SHOP}/{i}", "day": at(2)[:10], "clicks": 200 // 3**i + 1} for i in range(9)]
    hosts = [{"host": "shop.test", "max_per_day": 1}]
    found = nightly(
        tmp_path_factory.mktemp("crowded"), observations=rows, requests=asked, hosts=hosts, budget=50
    )
    assert found.code == 0, found.complaints
    return found


def test_pages_of_a_full_host_learn_its_price_and_which_option_changes_it(crowded):
    held = [r["url"] for r in crowded.rows("pages") if r["crawl_rate_per_day"] == 0.0]
    assert crowded.manifest["starved"]["by_limit"] == {"host": len(held)} and held
    assert f"{len(held)} at the limit of their host" in crowded.printed
    text = _explained(crowded, held[0])
    (host,) = crowded.manifest["hosts_at_limit"]
    price = crowded.manifest["multiplier"] + host["multiplier"]
    assert f"the last crawl of its host keeps {number(price)}" in text
    assert "max_per_day or min_gap_seconds of its host in --hosts" in text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("counters", None, "no counters in it"),
        ("files", "all", "files is 'all', expected a list"),
        ("options", {}, "written by another version"),
        ("weight_by", None, "another version of recrawl (0"),
        ("hosts_at_limit", 3, "damaged, or"),
    ],
)
def test_a_manifest_of_another_make_costs_one_sentence(crowded, name, value, said, tmp_path):
    folder = tmp_path / "night"
    shutil.copytree(crowded.folder, folder)
    manifest = {k: v for k, v in crowded.manifest.items() if k != name}
    manifest |= {} if value is None else {name: value}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for words in (["show"], ["report"]):
        code, _, complaints = command(*words, str(folder))
        assert code == 1 and said in complaints and complaints.count("\n") == 1


def test_a_guess_is_called_one(night):
    text = _explained(night, NEW)
    assert "a guess" in text and "never seen twice" in text


def test_a_first_crawl_is_one_whatever_comes_after_it(night):
    found = json.loads(command("explain", str(night.folder), NEW, "--json")[1])
    assert found["page"]["limit"] == "new" and found["crawls"]
    found["page"]["crawl_rate_per_day"] = found["first_crawl_a_day"] = 0.0
    text = "\n".join(page_lines(found))
    assert "gets a first crawl, and no other yet" in text and "it was never crawled" in text
    assert "the last crawl of the budget keeps" in text and "given to others" not in text
    text = "\n".join(page_lines(found | {"crawls": []}))
    assert "gets no crawl" in text and "all crawls for new pages are given to others" in text
    text = "\n".join(page_lines(found | {"crawls": [], "first_crawl_a_day": 2.0 * found["price"]}))
    assert "to change it  a larger --budget" in text


def test_a_page_that_is_not_found_says_what_it_answers(tmp_path):
    last = {"moved": 301, "gone": 404, "fails": 503, "once": 200, "blind": 200}
    rows = [row for i in range(9) for row in crawls(f"{SHOP}/{i}", "AABBCCDDEE")]
    for day in range(10):
        for name, status in last.items():
            good = name not in ("moved", "blind") and day < 4
            rows.append(seen(f"{SHOP}/{name}", at(day), "A" if good else None, 200 if good else status))
    rows.append(seen(f"{SHOP}/once", at(9.5), None, 500))
    found = nightly(tmp_path, observations=rows, budget=14, as_of=at(10))
    assert found.code == 0, found.complaints
    assert "1 answered by redirects, 1 gone (404, 410), 2 whose last fetch failed" in found.printed
    moved, gone, fails, once, blind = (_explained(found, f"{SHOP}/{name}") for name in last)
    assert f"answers       301 since {at(0)[:19]}Z: a redirect" in moved
    assert "no visit could show a change" in moved and "without a digest" in moved and "max_rate" in moved
    assert f"answers       404 since {at(4)[:19]}Z: it is gone" in gone and "comes back" in gone
    assert f"failed since {at(4)[:19]}Z; the last, {at(9)[:19]}Z, with status 503" in fails
    assert "after twice as long as it has failed" in fails and "one more" not in fails
    told = json.loads(command("explain", str(found.folder), f"{SHOP}/fails", "--json")[1])
    for limit, rate, waits in (("none", 0.1, "not before twice as long"), ("starved", 0.0, "gets no crawl")):
        told["page"] |= {"limit": limit, "crawl_rate_per_day": rate, "expected_freshness": 0.0}
        text = "\n".join(page_lines(told))
        assert waits in text and "failed once" not in text and "one more" not in text
    assert "with status 500" in once and "as before: it failed once" in once
    assert "evidence      none" in blind and "answers" not in blind


def test_a_host_and_its_room(night):
    text = _explained(night, "shop.test")
    pages = [row for row in night.rows("pages") if row["host"] == "shop.test"]
    assert f"for {len(pages)} pages" in text and "max_per_day" in text
    top = max(pages, key=lambda row: row["crawl_rate_per_day"])
    assert text.splitlines()[-5].endswith(top["url"])
    assert "it has no limit" in _explained(night, "news.test")


@pytest.mark.parametrize(
    "near", [f"{SHOP}/offer", "http://shop.test/offer/", f"{SHOP}/OFFER/", f"{SHOP}/ofer/", f"{PAGE}?x=1#y"]
)
def test_a_near_miss_is_put_right(night, near):
    code, _, complaints = command("explain", str(night.folder), near)
    assert code == 1 and f"Did you mean {PAGE}" in complaints


def test_what_cannot_be_explained(night, tmp_path):
    for what, expected, said in (
        ("https://nowhere.test/", 1, "no page of nowhere.test"),
        ("https://www.shop.test/", 1, "no page of www.shop.test: it has shop.test"),
        ("https://shpo.test/offer/", 1, "no page of shpo.test: it has shop.test"),
        ("nowhere.example", 1, "hosts/ has all hosts of the night\n"),
        ("new.test", 1, "all hosts of the night. Did you mean news.test?"),
        ("ftp://shop.test/", 2, "not an absolute http or https URL"),
        ("shop.test/offer/", 2, "neither a URL"),
    ):
        code, _, complaints = command("explain", str(night.folder), what)
        assert code == expected and said in complaints
    code, _, complaints = command("explain", str(tmp_path), PAGE)
    assert code == 1 and "no finished night is there" in complaints


def test_programs_get_the_same_numbers(night):
    code, printed, _ = command("explain", str(night.folder), PAGE, "--json")
    found = json.loads(printed)
    assert code == 0 and found["page"]["crawl_rate_per_day"] == night.page(PAGE)["crawl_rate_per_day"]
    opened = recrawl.open(str(night.folder))
    assert opened.manifest == night.manifest
    assert opened.pages(["url"]).num_rows == len(night.rows("pages"))
    assert set(opened.pages(["url"], host="news.test").column("url").to_pylist()) == {
        FAST,
        *STEADY[12:],
    }
    due = opened.schedule(["due_at"]).column("due_at").to_pylist()
    assert due == sorted(due) and len(due) == night.manifest["slots"]
    assert opened.hosts().column("host").to_pylist().count("shop.test") == 1


@pytest.mark.parametrize("form", ["jsonl", "avro"])
def test_other_formats_open_as_well(form, tmp_path):
    again = nightly(tmp_path, form, observations=_log(), budget=7, output_format=form)
    assert again.code == 0 and not again.complaints
    opened = recrawl.open(str(again.folder))
    assert opened.explain(PAGE)["page"]["n_intervals"] == 29
    assert opened.schedule(["url"]).num_rows == opened.manifest["slots"]
    assert "it has no limit" in _explained(again, "shop.test") and "it has no limit" in _explained(
        again, PAGE
    )
    assert (again.folder / "report.html").is_file()


def test_a_store_opens_with_its_newest_night(night, tmp_path):
    for name in ("20260629T000000Z", "20260701T000000Z"):
        (tmp_path / "store" / "nights").mkdir(parents=True, exist_ok=True)
        shutil.copytree(night.folder, tmp_path / "store" / "nights" / name)
    assert recrawl.open(str(tmp_path / "store")).folder.endswith("20260701T000000Z")
    for file in (tmp_path / "store" / "nights").glob("*/pages/*"):
        file.write_bytes(b"torn")
    with pytest.raises(RecrawlError, match="cannot be read"):
        recrawl.open(str(tmp_path / "store")).pages()


def test_a_night_is_shown_as_it_was_told(night):
    code, printed, _ = command("show", str(night.folder))
    told = [line for line in night.printed.splitlines() if line.startswith("  ")]
    assert code == 0 and [line for line in printed.splitlines() if line.startswith("  ")] == told
    code, printed, _ = command("show", str(night.folder), "--json")
    assert code == 0 and json.loads(printed) == night.manifest


_EACH = """
import json, sys
from pipelines.door.cli import main
for words, expected in json.load(sys.stdin):
    try:
        code = main(words)
    except SystemExit as done:
        code = done.code
    assert code == expected and "apache_beam" not in sys.modules, (words, code)
"""


def test_who_only_looks_waits_for_no_beam(night, tmp_path):
    """Importing it takes longer than all the rest. One process for all: what one imports stays."""
    at, store, log = str(night.folder), tmp_path / "store", tmp_path / "log.jsonl"
    shutil.copytree(night.folder, store / "nights" / "20260701T000000Z")
    log.write_text("".join(json.dumps(row) + "\n" for row in _log()))
    commands = [
        (["--version"], 0),
        (["--help"], 0),
        *(([name, "--help"], 0) for name in cli.COMMANDS),
        (["explain", at, PAGE], 0),
        (["explain", at, PAGE + "x"], 1),
        (["show", at], 0),
        (["show", str(tmp_path)], 1),
        (["diff", at, at], 0),
        (["metrics", str(store)], 0),
        (["night", f"--store={store}", "--status"], 7),
        (["night", f"--store={store}", "--status", "--json"], 7),
        (["report", str(store), f"--output={tmp_path / 'report.html'}"], 0),
        (["export", at, "--to=csv", f"--output={tmp_path / 'csv'}"], 0),
        (["init", str(log), f"--output={tmp_path / 'recrawl.toml'}"], 0),
        (["completion", "bash"], 0),
    ]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _EACH], cwd=root, input=json.dumps(commands), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_numbers_in_words():
    assert [often(r) for r in (1.0, 2.0, 7.3, 0.5, 1 / 30, 1e-5)] == [
        "once a day",
        "twice a day",
        "7.3 times a day",
        "once in 2 days",
        "once in 30 days",
        "once in 270 years",
    ]
    assert [duration(d) for d in (30.0, 0.5, 1 / 48, 1e-4)] == [
        "30 days",
        "12 hours",
        "30 minutes",
        "8.6 seconds",
    ]
    assert [number(v) for v in (0.0, 0.0207, 3.14159, 123456.0)] == ["0", "0.021", "3.1", "120,000"]
