"""StormCrawler's status index in a real OpenSearch: what it makes of a bulk, and what recrawl reads of it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.door.cli import main
from tests.consumers.fetch import HERE, OPENSEARCH_JARS
from tests.pipelines import dumps
from tests.pipelines.dumps import PAGES
from tests.pipelines.look.test_export_recipes import ROOT, lines_of, schedule, shell
from tests.transforms.schedules import HOUR_US, crawl, write_night
from transforms.finished.export_formats import Wishes
from transforms.finished.exporting import export

pytestmark = [pytest.mark.consumers, pytest.mark.timeout(300)]
KEYWORD = {"type": "keyword"}
# As StormCrawler's own set-up makes it, but for replicas, which one node cannot hold.
MAPPING: dict[str, Any] = {
    "dynamic_templates": [
        {"metadata": {"path_match": "metadata.*", "match_mapping_type": "string", "mapping": KEYWORD}}
    ],
    "properties": {
        "key": KEYWORD,
        "nextFetchDate": {"type": "date", "format": "date_optional_time"},
        "status": KEYWORD,
        "url": KEYWORD,
    },
}
PLANNED = "recrawl%2Ereason"
FAR = "2099-01-01T00:00:00.000Z"
FOUND = "https://shop.test/found"


class Index:
    """An index `status` of ten shards in an OpenSearch of one node."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: str | dict | None = None) -> dict:
        text = json.dumps(body) if isinstance(body, dict) else body
        where = f"http://localhost:{self.port}/{path}"
        request = urllib.request.Request(where, text and text.encode(), method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def make(self, *, required: bool = False, **settings: Any) -> None:
        settings |= {"number_of_shards": 10, "number_of_replicas": 0}
        mapping = MAPPING | ({"_routing": {"required": True}} if required else {})
        self.ask("PUT", "status", {"settings": {"index": settings}, "mappings": mapping})

    def fill(self, documents: list[dict]) -> None:
        """Store documents as StormCrawler does: by the hash of the URL, beside those of the same key."""
        lines = []
        for document in documents:
            name = hashlib.sha256(document["url"].encode()).hexdigest()
            lines += [{"index": {"_id": name, "routing": document["key"]}}, document]
        sent = "".join(json.dumps(line) + "\n" for line in lines)
        assert not self.ask("POST", "status/_bulk?refresh=true", sent)["errors"]

    def search(self, query: dict | None = None, routing: str = "") -> dict:
        self.ask("POST", "status/_refresh")
        body = {"size": 10_000, "query": query or {"match_all": {}}}
        return self.ask("POST", "status/_search" + (f"?routing={routing}" if routing else ""), body)

    def documents(self, query: dict | None = None, routing: str = "") -> dict[str, dict]:
        """What a search finds, by URL: each once."""
        hits = self.search(query, routing)["hits"]["hits"]
        found = {hit["_source"]["url"]: hit["_source"] for hit in hits}
        assert len(found) == len(hits)
        return found

    def here(self, lines: list[str]) -> list[str]:
        return [line.replace("localhost:9200", f"localhost:{self.port}") for line in lines]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    if not OPENSEARCH_JARS.exists() or shutil.which("javac") is None or shutil.which("curl") is None:
        pytest.skip("needs a JDK, curl and the jars of OpenSearch: make test-consumers")
    home = tmp_path_factory.mktemp("opensearch")
    source = str(HERE / "opensearch" / "OneNode.java")
    jars = f"{OPENSEARCH_JARS}/*"
    subprocess.run(["javac", "-nowarn", "-d", str(home), "-cp", jars, source], check=True)
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{home}:{jars}", "OneNode", str(home)]
    with open(home / "errors", "w") as errors:
        node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert node.stdin is not None and node.stdout is not None
    try:
        said = node.stdout.readline()
        assert said, (home / "errors").read_text()[-3000:]
        yield int(said)
    finally:
        node.stdin.close()
        try:
            node.wait(60)
        except subprocess.TimeoutExpired:
            node.kill()


@pytest.fixture
def index(port: int) -> Iterator[Index]:
    index = Index(port)
    yield index
    index.ask("DELETE", "status")


def crawled(folder: Path) -> list[dict]:
    """Documents of all pages, with their fetch times but for the last; and of one that was only found."""
    folder.mkdir()
    dumps.stormcrawler(folder)
    lines = (folder / "status" / "2026-06-30.jsonl").read_text().splitlines()
    documents = [json.loads(line)["_source"] for line in lines]
    for document in documents:
        document["metadata"]["url%2Epath"] = ["https://shop.test/", "https://shop.test/a"]
    del documents[-1]["metadata"]["lastProcessedDate"]
    documents[-1]["metadata"]["fetchInterval"] = ["43200"]
    new = {
        "url": FOUND,
        "status": "DISCOVERED",
        "key": "shop.test",
        "nextFetchDate": "2026-06-20T00:00:00.000Z",
    }
    return [*documents, new]


def dumped(index: Index, path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(index.search()) + "\n")
    return path


def scrolled(index: Index, path: Path) -> Path:
    """All documents, three to an answer, an answer a line: as those do who have more than a search gives."""
    index.ask("POST", "status/_refresh")
    answers = [index.ask("POST", "status/_search?scroll=1m", {"size": 3})]
    while answers[-1]["hits"]["hits"]:
        more = {"scroll": "1m", "scroll_id": answers[-1]["_scroll_id"]}
        answers.append(index.ask("POST", "_search/scroll", more))
    index.ask("DELETE", "_search/scroll", {"scroll_id": answers[-1]["_scroll_id"]})
    path.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    return path


def inspected(path: Path, capsys: pytest.CaptureFixture[str]) -> dict:
    capsys.readouterr()
    assert main(["inspect", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def exported(folder: Path, rows: list[dict], wishes: Wishes) -> None:
    (folder / "bulk").mkdir()
    export(write_night(folder / "night", [rows]), "stormcrawler", str(folder / "bulk"), wishes)


def send(index: Index, folder: Path) -> subprocess.CompletedProcess[str]:
    return shell(folder, index.here(lines_of("StormCrawler")[2:]), real=("curl",))


def test_the_readmes_lines_move_the_pages_of_tonight_and_nothing_else(index, tmp_path, capsys):
    """From a search of the index to the index, with a budget that is enough for three pages of eight."""
    index.make()
    index.fill(crawled(tmp_path / "crawl"))
    before = index.documents()
    said = inspected(dumped(index, tmp_path / "status" / "2026-06-30.jsonl"), capsys)
    assert (said["format"], said["rows"], said["accepted"]) == ("stormcrawler", 8, 7)
    assert said["rejected"] == {"never_fetched": 1} and said["evidence"] == {"digest": 7}
    lines = [line.replace("--budget 50000", "--budget 3") for line in lines_of("StormCrawler")]
    done = shell(tmp_path, index.here(lines), real=("curl",))
    assert done.returncode == 0, done.stdout + done.stderr
    first = {row["url"]: row for row in reversed(schedule(tmp_path))}
    assert 0 < len(first) < 7
    after = index.documents()
    assert after.keys() == before.keys()
    for url, document in after.items():
        expected = before[url]
        if url in first:
            # In whole milliseconds, never before it is due.
            due = first[url]["due_at"] + timedelta(microseconds=999)
            reason = expected["metadata"] | {PLANNED: [first[url]["reason"]]}
            expected = expected | {
                "nextFetchDate": f"{due:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
                "metadata": reason,
            }
        assert document == expected
    planned = {"exists": {"field": f"metadata.{PLANNED}"}}
    assert index.documents(planned).keys() == first.keys()
    end = {"range": {"nextFetchDate": {"gte": "2026-07-01T00:10:20Z", "lte": "2026-07-02T00:10:21Z"}}}
    assert index.documents(end).keys() == first.keys()
    # A search of one key asks the one shard on which StormCrawler looks for it.
    for key in ("shop.test", "other.test"):
        own = {url for url in before if url.split("/")[2] == key}
        assert index.documents(routing=key).keys() >= own
    # Read again: a page's fetch is where it was, and one whose only sign of it was the date has none.
    again = inspected(scrolled(index, tmp_path / "again.jsonl"), capsys)
    lost = int(PAGES[-1] in first)
    assert again["accepted"] == 7 - lost
    assert again["rejected"] == {"never_fetched": 1} | ({"no_fetch_time": 1} if lost else {})
    # Its fetch, by its date and interval, is the first of all.
    dated = min(dumps.fetched_at(i) for i in range(len(PAGES) - 1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert said["first"] == "2026-06-20T00:00:00Z" < dated
    assert (again["first"], again["evidence"]) == (dated if lost else said["first"], {"digest": 7 - lost})


def test_pages_that_the_index_does_not_have_are_made_where_they_belong(index, tmp_path):
    index.make()
    index.fill(crawled(tmp_path / "crawl")[:2])
    rows = [crawl(PAGES[0]), crawl('https://other.test/é?a="b"', 2), crawl(FOUND, HOUR_US, reason="new")]
    exported(tmp_path, rows, Wishes(bulk=True))
    done = send(index, tmp_path)
    assert done.returncode == 0, done.stderr
    found = index.documents()
    assert found.keys() == {PAGES[0], PAGES[1], *(row["url"] for row in rows)}
    assert found[FOUND] == {
        "url": FOUND,
        "status": "DISCOVERED",
        "key": "shop.test",
        "nextFetchDate": "2026-07-01T01:00:00.000Z",
        "metadata": {PLANNED: ["new"]},
    }
    # StormCrawler's next word on the page meets the same document.
    index.fill([found[FOUND] | {"status": "FETCHED"}])
    assert index.documents({"term": {"url": FOUND}})[FOUND]["status"] == "FETCHED"
    # Again the same night: nothing more.
    assert send(index, tmp_path).returncode == 0 and len(index.documents()) == 4


@pytest.mark.parametrize("fault", ["no routing", "read only", "mapping"])
def test_errors_in_the_answer_stop_the_recipe_and_are_shown(index, tmp_path, fault):
    """OpenSearch answers 200 to all of them."""
    index.make(required=fault == "no routing")
    index.fill(crawled(tmp_path / "crawl"))
    before = index.documents()
    pages = [*PAGES[:2], "https://shop.test/more"]
    exported(
        tmp_path, [crawl(u, i) for i, u in enumerate(pages)], Wishes(bulk=True, routing=fault != "no routing")
    )
    expected = {"no routing": "routing_missing_exception", "read only": "cluster_block_exception"}
    if fault == "read only":
        index.ask("PUT", "status/_settings", {"index": {"blocks.write": True}})
    if fault == "mapping":
        # One of three: the others are done all the same.
        file = tmp_path / "bulk" / "stormcrawler-00000.ndjson"
        file.write_text(file.read_text().replace("2026-07-01", "tomorrow", 1))
    done = send(index, tmp_path)
    assert done.returncode != 0
    answer = json.loads(done.stderr)
    assert answer["errors"] is True
    kinds = [item["update"]["error"]["type"] for item in answer["items"] if item]
    wanted = expected.get(fault, "mapper_parsing_exception")
    assert kinds == [wanted] * (1 if fault == "mapping" else 3)
    if fault != "mapping":
        assert index.documents() == before
    else:
        assert index.documents()[PAGES[0]] == before[PAGES[0]]


def test_without_routing_an_index_that_routes_has_pages_twice(index, tmp_path):
    """Why the export routes unless told otherwise: nothing in the answer tells."""
    index.make()
    index.fill(crawled(tmp_path / "crawl"))
    exported(tmp_path, [crawl(u, i) for i, u in enumerate(PAGES)], Wishes(bulk=True, routing=False))
    assert send(index, tmp_path).returncode == 0
    assert len(index.search()["hits"]["hits"]) > len(PAGES) + 1


def test_no_opensearch_is_a_failure(tmp_path):
    exported(tmp_path, [crawl(PAGES[0])], Wishes(bulk=True))
    lines = [line.replace("localhost:9200", "localhost:1") for line in lines_of("StormCrawler")[2:]]
    assert shell(tmp_path, lines, real=("curl",)).returncode != 0


def test_dates_are_put_off_once_and_those_of_tonight_set_after_it(index, tmp_path, capsys):
    """The request of docs/exports.md, as it stands there."""
    index.make()
    index.fill(crawled(tmp_path / "crawl"))
    before = index.documents()
    text = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    [found] = re.findall(r"^```sh\n(curl[^`]*_update_by_query[^`]*)```$", text, re.MULTILINE)
    lines = index.here(found.splitlines())
    for moved in (8, 0):
        index.search()
        done = shell(tmp_path, lines, real=("curl",))
        assert done.returncode == 0 and json.loads(done.stdout)["updated"] == moved, done.stderr
    why = {PLANNED: ["put off"]}
    for url, document in index.documents().items():
        kept = before[url].get("metadata", {})
        assert document == before[url] | {"nextFetchDate": FAR, "metadata": kept | why}
    # The date is no sign of a fetch any more, which only the last page had.
    said = inspected(dumped(index, tmp_path / "far.jsonl"), capsys)
    assert (said["accepted"], said["rejected"]) == (6, {"never_fetched": 1, "no_fetch_time": 1})
    exported(tmp_path, [crawl(PAGES[0]), crawl(FOUND)], Wishes(bulk=True))
    assert send(index, tmp_path).returncode == 0
    soon = index.documents({"range": {"nextFetchDate": {"lt": "2099-01-01"}}})
    assert soon.keys() == {PAGES[0], FOUND} and soon[FOUND]["status"] == "DISCOVERED"
