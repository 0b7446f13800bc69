"""Each format by the rules of the crawler that reads it."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from datetime import UTC, datetime

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transforms.frontier_messages import url_item
from tests.transforms.schedules import HOUR_US, START_US, crawl, write_night
from transforms.finished import export_formats, exporting, merging
from transforms.finished.export_formats import FORMATS, Wishes
from transforms.finished.exporting import export

ODD = [
    'https://a.test/"q"?a=1&b="2"',
    "https://a.test/back\\slash",
    "https://a.test/é/中",
    "https://a.test/tab\there",
    "https://a.test/line\nhttps://b.test/",
    "https://a.test/blank here",
    "https://a.test/null\x00",
    "https://a.test/sep\u2028arator",
    "https://a.test/nbsp\u00a0",
    "https://a.test/a,b;c|d",
    "https://a.test/p#frag",
]
BLANK = [u for u in ODD if re.search(r"[\s\x00-\x1f]", u)]
rates = st.one_of(st.floats(1e-12, 1e9), st.just(1 / 30), st.sampled_from([0.0, math.nan, math.inf]))


def made(tmp_path, rows, name, wishes=None, shards=1):
    """The texts of an export by file, and its account."""
    night = write_night(tmp_path / "night", [rows[i::shards] for i in range(shards)])
    out = tmp_path / name
    out.mkdir(exist_ok=True)
    account = export(night, name, str(out), wishes or Wishes())
    assert [f.path for f in account.files] == sorted(p.name for p in out.iterdir())
    return {p.name: p.read_bytes().decode() for p in sorted(out.iterdir())}, account


def injected(line: str) -> tuple[str, dict[str, str]]:
    """A line as Nutch's injector takes it: the key ends at the first tab; items without = are dropped."""
    url, _, rest = line.partition("\t")
    assert url == url.strip() and url and not url.startswith("#")
    items = dict(item.split("=", 1) for item in rest.strip().split("\t") if "=" in item)
    assert len(items) == (rest.count("\t") + 1 if rest else 0)  # none is dropped, none twice
    return url, items


def test_nutch_gets_whole_seconds_that_are_not_its_default(tmp_path):
    given = {"day": 1.0, "default": 1 / 30, "slow": 1e-9, "fast": 1e9, "none": math.nan, "zero": 0.0}
    rows = [crawl(f"https://a.test/{n}", i, crawl_rate_per_day=r) for i, (n, r) in enumerate(given.items())]
    rows.append(crawl("https://a.test/one", 99, value=1.0))
    rows.append(crawl("https://a.test/day", 100, crawl_rate_per_day=1.0))
    texts, account = made(tmp_path, rows, "nutch")
    lines = texts["nutch-seeds.txt"].splitlines()
    seeds = dict(map(injected, lines))
    assert len(lines) == len(seeds) == 7  # one seed a page: a second would only merge
    every = {u.rsplit("/", 1)[1]: s.get("nutch.fetchInterval") for u, s in seeds.items()}
    assert every == {
        "day": "86400",
        "default": "2592001",
        "slow": "2147483647",
        "fast": "1",
        "none": None,
        "zero": None,
        "one": "172800",
    }
    assert all(s.get("nutch.fetchInterval.fixed") == s.get("nutch.fetchInterval") for s in seeds.values())
    assert (account.rows, account.written, account.rejected) == (7, 7, {})


def test_nutch_generates_the_pages_of_tonight_first(tmp_path):
    """By score alone: above the default of other pages, and above all seeds of the nights before."""
    values = [1e-12, 1e-6, 0.1, 0.25, 0.5, 1.0, 3.0, 1e6, 1e12]
    odd = [0.0, -1.0, math.nan, -math.inf, 1e300, math.inf]
    nights = []
    for day in range(2):
        rows = [
            crawl(f"https://a.test/{i}", day * 24 * HOUR_US + i * HOUR_US, value=v)
            for i, v in enumerate(values + odd)
        ]
        texts, _ = made(tmp_path / str(day), rows, "nutch")
        seeds = [injected(line)[1]["nutch.score"] for line in texts["nutch-seeds.txt"].splitlines()]
        nights.append(np.array(seeds, np.float32))
    for scores in nights:
        assert (np.diff(scores[: len(values)]) > 0).all()  # of one night, by crawl value
    assert 1.0 < nights[0].min() and nights[0].max() < nights[1].min()
    start = START_US // (24 * HOUR_US)
    assert [(s.min(), s.max() // 1) for s in nights] == [(start, start), (start + 1, start + 1)]


def test_nutchs_default_is_an_option(tmp_path):
    texts, _ = made(tmp_path, [crawl("https://a.test/")], "nutch", Wishes(nutch_default_seconds=172_800))
    assert injected(texts["nutch-seeds.txt"].rstrip("\n"))[1]["nutch.fetchInterval"] == "172801"


@settings(max_examples=50, deadline=None)
@given(st.lists(rates, min_size=1, max_size=20))
def test_nutch_can_parse_every_number(tmp_path_factory, drawn):
    rows = [crawl(f"https://a.test/{i}", i, crawl_rate_per_day=r, value=r) for i, r in enumerate(drawn)]
    texts, _ = made(tmp_path_factory.mktemp("n"), rows, "nutch")
    for line in texts["nutch-seeds.txt"].splitlines():
        for name, value in injected(line)[1].items():
            if name == "nutch.score":
                assert re.fullmatch(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", value)
            else:
                assert re.fullmatch(r"\d+", value) and 0 < int(value) < 2**31 and int(value) != 2_592_000


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.lines])
def test_a_line_is_never_broken(tmp_path, name):
    rows = [crawl(u, i) for i, u in enumerate(ODD)]
    texts, account = made(tmp_path, rows, name)
    lines = "".join(texts.values()).splitlines()  # splits at more than any reader does
    assert [line.removeprefix("F+ ").split("\t")[0] for line in lines] == [u for u in ODD if u not in BLANK]
    assert account.rejected == {"blank_in_url": len(BLANK)}
    assert [url for _, url in account.samples] == BLANK
    assert account.rows == account.written + sum(account.rejected.values()) == len(ODD)


def test_no_cell_begins_as_a_formula_does(tmp_path):
    """Of a schedule from before such hosts were none: a spreadsheet would run them."""
    hosts = ["a.test", "=1+1", "+1.test", "-1.test", "@sum.test", "\tx.test", "a=1.test"]
    texts, account = made(tmp_path, [crawl(f"https://{h}/", i, host=h) for i, h in enumerate(hosts)], "csv")
    cells = [cell for line in texts["recrawl-schedule.csv"].splitlines() for cell in line.split(",")]
    assert not [c for c in cells if c.strip('"').startswith(("=", "+", "-", "@", "\t"))]
    assert account.rejected == {"formula_in_cell": 5} and account.written == 2


def test_stormcrawlers_documents(tmp_path):
    rows = [crawl(u, 1_500_000 * i + 1) for i, u in enumerate(ODD)]
    rows += [crawl("https://a.test/new", HOUR_US, reason="new", host="a.test")]
    rows += [crawl("https://a.test/new", 2 * HOUR_US, host="a.test")]
    texts, _ = made(tmp_path, rows, "stormcrawler")
    found = [json.loads(line) for line in texts["stormcrawler-status.jsonl"].split("\n")[:-1]]
    assert [d["_source"]["url"] for d in found] == [*ODD, "https://a.test/new"]
    for i, document in enumerate(found):
        source = document["_source"]
        assert document["_id"] == hashlib.sha256(source["url"].encode()).hexdigest()
        assert source["status"] == ("DISCOVERED" if source["url"].endswith("new") else "FETCHED")
        assert source["key"] == "a.test"
        assert all("." not in k and type(v) is list for k, v in source["metadata"].items())
        due = datetime.strptime(source["nextFetchDate"], "%Y-%m-%dT%H:%M:%S.%f%z")
        early = (rows[i]["due_at"] - due.timestamp() * 1e6) if i < len(ODD) else 0
        assert -1000 < early <= 0.5  # up to a millisecond late, never early


def test_bulk_requests_keep_what_the_topology_has_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "PART_PAGES", 3)
    rows = [crawl(f"https://a.test/{i % 5}", i) for i in range(7)]
    texts, account = made(tmp_path, rows, "stormcrawler", Wishes(bulk=True))
    assert [f.rows for f in account.files] == [3, 2]
    assert list(texts) == ["stormcrawler-00000.ndjson", "stormcrawler-00001.ndjson"]
    assert all(text.endswith("\n") for text in texts.values())  # the bulk API refuses a last line without
    lines = [json.loads(line) for line in "".join(texts.values()).splitlines()]
    for action, body in zip(lines[::2], lines[1::2], strict=True):
        source = body["upsert"]
        page = hashlib.sha256(source["url"].encode()).hexdigest()
        assert action == {"update": {"_id": page, "routing": "a.test"}}
        assert body == {"doc": {k: source[k] for k in ("nextFetchDate", "metadata")}, "upsert": source}
    texts, _ = made(tmp_path, rows, "stormcrawler", Wishes(bulk=True, routing=False))
    assert set(json.loads(texts["stormcrawler-00000.ndjson"].split("\n")[0])["update"]) == {"_id"}


def test_urlfrontier_never_reads_never(tmp_path):
    rows = [crawl(u, 1_000_000 * i + 1) for i, u in enumerate([*ODD, *ODD])]
    texts, _ = made(tmp_path, rows, "urlfrontier", Wishes(crawl_id='shop "1"'))
    item = url_item()
    found = [json_format.Parse(line, item()) for line in texts["urlfrontier-urls.jsonl"].split("\n")[:-1]]
    assert [i.known.info.url for i in found] == ODD  # each once, its first crawl: a second put would win
    for number, one in enumerate(found):
        assert one.WhichOneof("item") == "known"
        # 0, or none at all, would retire the page.
        assert one.known.refetchable_from_date == START_US // 1_000_000 + number + 1
        assert one.known.info.crawlID == 'shop "1"' and one.known.info.key
        assert {k: list(v.values) for k, v in one.known.info.metadata.items()} == {"recrawl.reason": ["due"]}


def test_heritrix_files_are_one_an_hour_and_hold_what_it_takes(tmp_path):
    longest = "https://a.test/" + "x" * (2083 - 15)
    escaped = "https://a.test/" + "é" * ((2083 - 15) // 6)
    rows = [crawl("https://a.test/1", 0), crawl(longest, 1), crawl(longest + "x", 2), crawl(escaped, 3)]
    rows += [
        crawl(escaped + "é", 4),
        crawl("https://a.test/1", HOUR_US - 1),
        crawl("https://a.test/1", 3 * HOUR_US),
    ]
    texts, account = made(tmp_path, rows, "heritrix")
    assert texts == {
        "heritrix-2026-07-01T00.force": f"F+ https://a.test/1\nF+ {longest}\nF+ {escaped}\nF+ https://a.test/1\n",
        "heritrix-2026-07-01T03.force": "F+ https://a.test/1\n",
    }
    assert account.rejected == {"url_too_long": 2}
    assert [f.rows for f in account.files] == [4, 1]


def test_scrapys_requests(tmp_path):
    rows = [crawl(u, i, value=math.nan if i else 0.5) for i, u in enumerate(ODD)]
    rows += [crawl(ODD[0], HOUR_US + 500_000), crawl(ODD[0], 23 * HOUR_US)]
    texts, _ = made(tmp_path, rows, "scrapy")
    found = [json.loads(line) for line in texts["scrapy-requests.jsonl"].split("\n")[:-1]]
    assert [r["url"] for r in found] == [r["url"] for r in rows]
    # Scrapy refuses a priority that is no int, and drops a second request of a page unless it is told not to.
    assert [r["priority"] for r in found] == [0] * len(ODD) + [-1, -23]
    assert all(type(r["priority"]) is int and r["dont_filter"] is True for r in found)
    assert found[-2]["due_at"] == "2026-07-01T01:00:00.500000Z"
    assert found[-2]["meta"]["crawl_at"] == (START_US + HOUR_US) // 1_000_000 + 1
    assert [r["meta"]["recrawl_value"] for r in found[:2]] == [0.5, None]


def test_csv_has_the_columns_of_the_schedule(tmp_path):
    rows = [crawl(u, 500_000 * i, value=i / 3) for i, u in enumerate(ODD)]
    texts, _ = made(tmp_path, rows, "csv")
    found = list(csv.DictReader(texts["recrawl-schedule.csv"].splitlines(keepends=True)))
    names = ["shard", "slot", "due_at", "url", "host", "crawl_rate_per_day", "reason", "weight", "value"]
    assert list(found[0]) == names
    assert [(r["url"], float(r["value"])) for r in found] == [(u, i / 3) for i, u in enumerate(ODD)]
    assert found[1]["due_at"] == "2026-07-01T00:00:00.500000Z"
    assert datetime.fromisoformat(found[1]["due_at"]) == datetime(2026, 7, 1, 0, 0, 0, 500_000, UTC)


@pytest.mark.parametrize("name", FORMATS)
def test_bytes_do_not_depend_on_batches(tmp_path, monkeypatch, name):
    rows = [crawl(ODD[i % len(ODD)] + str(i % 40), 1_800_000_000 * (i // 3)) for i in range(100)]
    whole, account = made(tmp_path / "a", rows, name, shards=3)
    monkeypatch.setattr(merging, "MERGED_ROWS", 7)
    monkeypatch.setattr(merging, "LEAST_ROWS", 2)
    pieces, again = made(tmp_path / "b", rows, name, shards=3)
    assert pieces == whole and again == account


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_schedule(tmp_path, name):
    texts, account = made(tmp_path, [], name)
    assert account.written == 0
    assert "".join(texts.values()).splitlines() == (
        [FORMATS[name].header.decode().rstrip()] if name == "csv" else []
    )


def test_a_format_is_found_by_its_name():
    assert {f.name for f in FORMATS.values()} == set(FORMATS)
    assert len({f.file for f in FORMATS.values()} | {export_formats.BULK_FILE}) == len(FORMATS) + 1
