"""Each export as the program that it is for reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from pipelines.door.cli import main
from tests.consumers.conftest import Java
from tests.consumers.fetch import SCRAPY_PYTHON
from tests.pipelines.look.test_export_recipes import HOUR, lines_of, shell
from tests.transforms.dialects.reading import read
from tests.transforms.schedules import HOUR_US, START_US, crawl, write_night
from transforms.finished.export_formats import Wishes
from transforms.finished.exporting import export

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(300)]
needs_scrapy = pytest.mark.skipif(not SCRAPY_PYTHON.exists(), reason="needs Scrapy: make test-consumers")
URLS = [
    'https://a.test/"q"?a=1&b=%20',
    "https://a.test/é/中",
    "https://b.test/back\\slash",
    "https://b.test/a|b;c,d",
]
POINTS = """<plugin id="nutch-extensionpoints" name="points" version="1" provider-name="test">
<extension-point id="org.apache.nutch.scoring.ScoringFilter" name="scoring"/>
<extension-point id="org.apache.nutch.net.URLNormalizer" name="normalizer"/>
<extension-point id="org.apache.nutch.net.URLFilter" name="filter"/></plugin>"""
SCORING = """<plugin id="by-score" name="by score" version="1" provider-name="test">
<requires><import plugin="nutch-extensionpoints"/></requires>
<extension id="test.scoring" name="by score" point="org.apache.nutch.scoring.ScoringFilter">
<implementation id="ByScore" class="ByScore"/></extension></plugin>"""
FETCHED = datetime(2026, 6, 1, 2, 3, 4, tzinfo=UTC)


def written(tmp_path: Path, name: str, rows: list[dict], wishes: Wishes | None = None) -> Path:
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    export(write_night(tmp_path / "night", [rows]), name, str(out), wishes or Wishes())
    return out


class Nutch:
    """A CrawlDb of four pages that were fetched at `FETCHED`, to be fetched again after 30 days."""

    def __init__(self, java: Java, folder: Path) -> None:
        self.java, self.folder, self.db = java, folder, folder / "crawldb"
        (folder / "plugins" / "points").mkdir(parents=True)
        (folder / "plugins" / "points" / "plugin.xml").write_text(POINTS)
        (folder / "plugins" / "scoring").mkdir()
        (folder / "plugins" / "scoring" / "plugin.xml").write_text(SCORING)
        seconds = round(FETCHED.timestamp())
        pages = sorted(URLS, key=lambda url: url.encode())
        (folder / "pages.tsv").write_text("".join(f"{u}\t{seconds}\t2592000\t{'ab' * 16}\n" for u in pages))
        self("make", self.db, folder / "pages.tsv")

    def __call__(self, *words: object) -> list[list[str]]:
        return self.java("NutchDb", self.folder / "plugins", self.folder / "tmp", *words)

    def inspected(self, capsys, form: str) -> dict:
        """What recrawl reads of Nutch's own dump."""
        dump = self.folder / f"dump-{len(list(self.folder.iterdir()))}"
        self("dump", self.db, dump, form)
        capsys.readouterr()
        assert main(["inspect", *map(str, sorted(dump.glob("part-*"))), "--json"]) == 0
        return json.loads(capsys.readouterr().out)


def test_nutch_takes_every_seed(java, tmp_path):
    given = [1.0, 1 / 30, 1e-9, 1e9]
    rows = [
        crawl(u, i, crawl_rate_per_day=r, value=r) for i, (u, r) in enumerate(zip(URLS, given, strict=True))
    ]
    rows += [crawl(URLS[0], HOUR_US)]
    seeds = written(tmp_path, "nutch", rows)
    nutch = Nutch(java, tmp_path)
    nutch("inject", tmp_path / "new", seeds, "-")
    found = {url: rest for url, *rest in nutch("show", tmp_path / "new")}
    assert {u: int(rest[2]) for u, rest in found.items()} == dict(
        zip(URLS, [86_400, 2_592_001, 2**31 - 1, 1], strict=True)
    )
    for url in URLS:
        status, _, every, fixed = found[url]
        assert status == "db_unfetched" and float(fixed) == np.float32(int(every))
    by_value = sorted(URLS, key=dict(zip(URLS, given, strict=True)).get)
    assert sorted(URLS, key=lambda url: float(found[url][1])) == by_value


def test_nutch_generates_what_is_scheduled_before_what_is_due(java, tmp_path):
    """All pages of the CrawlDb are due, two are seeds of tonight, one was one of a night before."""
    nutch = Nutch(java, tmp_path)
    for day, pages in ((-1, URLS[:1]), (0, URLS[1:3])):
        rows = [crawl(u, day * 24 * HOUR_US, value=0.001 if day == 0 else 1000.0) for u in pages]
        out = tmp_path / f"out{day}"
        out.mkdir()
        export(write_night(tmp_path / f"night{day}", [rows]), "nutch", str(out), Wishes())
        nutch("inject", nutch.db, out, "-overwrite")
    for top in (2, 3, 4):
        found = {cells[0] for cells in nutch("generate", nutch.db, tmp_path / f"segments{top}", top)}
        assert found == set([*URLS[1:3], URLS[0], URLS[3]][:top])


def test_an_update_takes_values_that_are_not_nutchs_defaults(java, tmp_path):
    """The control is what would be written without the rule: it is passed over."""
    nutch = Nutch(java, tmp_path)
    (tmp_path / "seeds").mkdir()
    short = "".join(f"{u}\tnutch.score=7\tnutch.fetchInterval=100\n" for u in URLS)
    (tmp_path / "seeds" / "short.txt").write_text(short)
    nutch("inject", nutch.db, tmp_path / "seeds", "-update")
    control = f"{URLS[0]}\tnutch.score=1.0\tnutch.fetchInterval=2592000\n"
    (tmp_path / "seeds" / "short.txt").write_text(control)
    nutch("inject", nutch.db, tmp_path / "seeds", "-update")
    nutch(
        "inject",
        nutch.db,
        written(tmp_path, "nutch", [crawl(URLS[1], crawl_rate_per_day=1 / 30, value=1.0)]),
        "-update",
    )
    found = {url: rest for url, *rest in nutch("show", nutch.db)}
    assert found[URLS[0]][1:3] == ["7.0", "100"]
    assert found[URLS[1]][2] == "2592001" and float(found[URLS[1]][1]) > 7.0


@pytest.mark.parametrize(("form", "lost"), [("json", 0), ("csv", 1)])
def test_recrawl_reads_nutchs_own_dump(java, tmp_path, capsys, form, lost):
    """And why docs/crawlers.md has JSON, and injects with -overwrite.

    Nutch writes CSV by the low bytes of characters, so that a URL that is not ASCII is lost. After -update a
    dump tells of fetches that never were.
    """
    nutch = Nutch(java, tmp_path)
    said = nutch.inspected(capsys, form)
    good = len(URLS) - lost
    assert (said["format"], said["rows"], said["accepted"], said["pages"]) == ("nutch", 4, good, good)
    assert said["rejected"] == ({"not_nutch": lost} if lost else {})
    assert said["first"] == said["last"] == f"{FETCHED:%Y-%m-%dT%H:%M:%SZ}"
    assert said["evidence"] == {"digest": good}
    pages = [crawl(url, i, crawl_rate_per_day=1.0) for i, url in enumerate(URLS)]
    seeds = written(tmp_path, "nutch", pages)
    nutch("inject", nutch.db, seeds, "-update")
    assert nutch.inspected(capsys, form)["last"] == "2026-06-30T02:03:04Z"
    nutch("inject", nutch.db, seeds, "-overwrite")
    said = nutch.inspected(capsys, form)
    assert (said["rows"], said["accepted"], said["rejected"]["never_fetched"]) == (4, 0, good)


def test_heritrix_takes_every_line(java, tmp_path):
    longest = ["https://a.test/" + "x" * (2083 - 15), "https://a.test/" + "é" * ((2083 - 15) // 6)]
    pages = [u for u in URLS if "\\" not in u] + longest
    out = written(tmp_path, "heritrix", [crawl(u, i) for i, u in enumerate(pages)])
    found = java("HeritrixLines", *out.iterdir())
    assert len(found) == len(pages) and "refused" not in [cells[0] for cells in found]
    assert [cells[1:] for cells in found] == [["", "null"]] * len(pages)
    assert found[0][0].startswith("https://a.test/") and found[3][0] == longest[0]
    # One more character, and Heritrix would not: these are left out of the files.
    (tmp_path / "beyond.force").write_text("".join(f"F+ {u}{u[-1]}\n" for u in longest))
    assert [cells[0] for cells in java("HeritrixLines", tmp_path / "beyond.force")] == ["refused", "refused"]


def test_urlfrontier_takes_every_line(java, tmp_path):
    out = written(
        tmp_path,
        "urlfrontier",
        [crawl(u, i * 1_000_000) for i, u in enumerate(URLS)],
        Wishes(crawl_id="shop"),
    )
    found = java("FrontierItems", out / "urlfrontier-urls.jsonl")
    start = START_US // 1_000_000
    assert found == [["KNOWN", u, u.split("/")[2], str(start + i), "shop"] for i, u in enumerate(URLS)]


def test_recrawl_reads_urlfrontiers_own_words(java, tmp_path, capsys):
    """A page with StormCrawler's metadata, one without, one never due again, one that was only found."""
    kept = "lastProcessedDate=2026-06-01T02:03:04.000Z\tsignature=9e10\tfetch.statusCode=200"
    more = ["1782864486\tdepth=1", f"0\t{kept}", "-"]
    lines = [f"{u}\t{rest}\n" for u, rest in zip(URLS, [f"1782864486\t{kept}", *more], strict=True)]
    (tmp_path / "items.tsv").write_text("".join(lines))
    dump = tmp_path / "dump.jsonl"
    dump.write_text("".join(cells[0] + "\n" for cells in java("FrontierDump", tmp_path / "items.tsv")))
    capsys.readouterr()
    assert main(["inspect", str(dump), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["rows"], said["accepted"], said["evidence"]) == (
        "urlfrontier",
        4,
        2,
        {"digest": 2},
    )
    assert said["rejected"] == {"no_fetch_time": 1, "never_fetched": 1}
    assert said["first"] == said["last"] == f"{FETCHED:%Y-%m-%dT%H:%M:%SZ}"


SPIDER = """
import json, sys
from scrapy.utils.request import request_from_dict
for line in open(sys.argv[1], encoding="utf-8"):
    request = request_from_dict(json.loads(line))
    print(json.dumps([request.url, request.priority, request.dont_filter, request.meta]))
"""


@needs_scrapy
def test_scrapy_takes_every_line(tmp_path):
    rows = [crawl(u, i * HOUR_US, value=float("nan")) for i, u in enumerate([*URLS, "https://a.test/p"])]
    out = written(tmp_path, "scrapy", rows)
    command = [str(SCRAPY_PYTHON), "-c", SPIDER, str(out / "scrapy-requests.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(priority, again) for _, priority, again, _ in found] == [(-i, True) for i in range(5)]
    assert [meta["crawl_at"] for *_, meta in found] == [START_US // 1_000_000 + 3600 * i for i in range(5)]
    assert found[4][0] == "https://a.test/p" and found[0][3]["recrawl_value"] is None


class Shop(BaseHTTPRequestHandler):
    """Pages of one shop; one is not there."""

    def do_GET(self) -> None:
        body = self.path.encode()
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.skipif(shutil.which("wget") is None, reason="needs wget")
def test_wget_fetches_the_list_of_an_hour_and_indexes_it(tmp_path, capsys):
    """The last lines of docs/crawlers.md: a page, or a host, that is not there costs no other page."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}"
    (tmp_path / "index").mkdir()
    (tmp_path / "hours").mkdir()
    pages = [f"{site}/1?a=b&c=%C3%A9", f"{site}/none", "http://127.0.0.1:1/", f"{site}/2"]
    (tmp_path / "hours" / f"urls-{HOUR}.txt").write_text("".join(f"{u}\n" for u in pages))
    try:
        done = shell(tmp_path, lines_of("Web archives")[2:], real=("wget",))
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "index"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["rows"], said["accepted"], said["rejected"]) == ("cdx", 3, 3, {})
    assert said["evidence"] == {"digest": 3, "status": 1}
    found = read(tmp_path / "index" / f"{HOUR}.cdx")
    assert found.seen("url", "status") == [(pages[0], 200), (pages[1], 404), (pages[3], 200)]
