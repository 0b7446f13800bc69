"""`recrawl export`: options, folders, what it says; and what recrawl itself reads of the files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipelines.door.cli import main
from tests.transforms.schedules import HOUR_US, crawl, write_night
from transforms.finished.export_formats import FORMATS

ROOT = Path(__file__).resolve().parents[3]
ROWS = [
    crawl(f"https://shop.test/{i}", i * HOUR_US // 2, reason="new" if i == 1 else "due") for i in range(5)
]


@pytest.fixture
def night(tmp_path):
    write_night(tmp_path / "night", [ROWS[::2], ROWS[1::2]])
    return tmp_path / "night"


def run(capsys, *arguments) -> tuple[int, dict, str]:
    code = main(["export", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


def inspected(capsys, *arguments) -> dict:
    assert main(["inspect", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("where", ["", "schedule", "schedule/"])
def test_a_night_or_its_schedule(tmp_path, capsys, night, where):
    code, said, _ = run(capsys, f"{night}/{where}", "--to", "urls", "--output", tmp_path / "out")
    assert (code, said["format"], said["rows"], said["written"], said["rejected"]) == (0, "urls", 5, 5, {})
    assert [(f["path"], f["rows"]) for f in said["files"]] == [
        ("urls-2026-07-01T00.txt", 2),
        ("urls-2026-07-01T01.txt", 2),
        ("urls-2026-07-01T02.txt", 1),
    ]
    assert (
        tmp_path / "out" / "urls-2026-07-01T01.txt"
    ).read_text() == "https://shop.test/2\nhttps://shop.test/3\n"


def test_the_schedule_folder_one_stands_in(tmp_path, capsys, night, monkeypatch):
    monkeypatch.chdir(night)
    assert run(capsys, "schedule", "--to", "csv", "--output", tmp_path / "out")[1]["written"] == 5


def test_hours_of_another_night_do_not_stay(tmp_path, capsys, night):
    out = tmp_path / "out"
    assert run(capsys, night, "--to", "urls", "--output", out)[0] == 0
    write_night(tmp_path / "next", [[crawl("https://shop.test/9", 26 * HOUR_US)]])
    assert run(capsys, tmp_path / "next", "--to", "urls", "--output", out)[0] == 0
    assert os.listdir(out) == ["urls-2026-07-02T02.txt"]
    assert run(capsys, night, "--to", "heritrix", "--output", out)[0] == 0
    assert sorted(os.listdir(out)) == [f"heritrix-2026-07-01T0{h}.force" for h in range(3)]


@pytest.mark.parametrize("name", ["seeds.txt", "heritrix-.force", ".hidden", "_SUCCESS"])
def test_a_folder_with_other_files_is_left_alone(tmp_path, capsys, night, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("mine")
    code, said, err = run(capsys, night, "--to", "urls", "--output", out)
    assert (code, said, os.listdir(out)) == (2, {}, [name])
    assert f"holds {name}, which no export has written; give a new folder" in err


def test_what_cannot_be_written_is_told(tmp_path, capsys):
    write_night(tmp_path / "night", [[crawl("https://shop.test/a b"), crawl("https://shop.test/c", 1)]])
    code, said, err = run(capsys, tmp_path / "night", "--to", "nutch", "--output", tmp_path / "out")
    assert (code, said["rows"], said["written"], said["rejected"]) == (0, 2, 1, {"blank_in_url": 1})
    assert said["samples"] == [{"reason": "blank_in_url", "url": "https://shop.test/a b"}]
    assert "1 rejected, blank_in_url: such as 'https://shop.test/a b'" in err


@pytest.mark.parametrize("name", FORMATS)
def test_crawls_that_a_format_of_pages_cannot_say_are_told(tmp_path, capsys, name):
    rows = [crawl("https://shop.test/a", i) for i in range(3)]
    write_night(tmp_path / "night", [rows, [crawl("https://shop.test/b", 1)]])
    code, said, err = run(capsys, tmp_path / "night", "--to", name, "--output", tmp_path / "out")
    assert (code, said["crawls"]) == (0, 4)
    if FORMATS[name].first_only:
        assert said["rows"] == said["written"] == 2
        assert f"2 of 4 crawls left out: second and further crawls of a page, for which {name} has no" in err
    else:
        assert said["written"] == 4 and "left out" not in err


def test_an_empty_schedule_is_an_exit_code(tmp_path, capsys):
    write_night(tmp_path / "night", [[]])
    code, said, _ = run(capsys, tmp_path / "night", "--to", "urls", "--output", tmp_path / "out")
    assert (code, said["written"], said["files"]) == (3, 0, [])


def test_problems_are_told_at_once(tmp_path, capsys, night):
    code, _, err = run(capsys, night, "--bulk", "--to", "csv", "--nutch_default_seconds", "0")
    assert code == 2
    assert all(
        said in err
        for said in (
            "--output is missing",
            "--bulk: for --to stormcrawler, not csv",
            "--nutch_default_seconds=0: expected 1 to 2147483647",
        )
    )
    assert run(capsys, night, "--no_routing", "--to", "stormcrawler", "--output", tmp_path / "o")[0] == 2


def test_no_night_is_told(tmp_path, capsys):
    code, _, err = run(capsys, tmp_path, "--to", "csv", "--output", tmp_path / "out")
    assert code == 1 and "no finished night is there" in err


@pytest.mark.parametrize("name", FORMATS)
def test_the_screen_names_what_was_written(tmp_path, capsys, night, name):
    assert main(["export", str(night), "--to", name, "--output", str(tmp_path / "out")]) == 0
    what = "pages" if FORMATS[name].first_only else "crawls"
    assert f"5 of 5 {what} to " in capsys.readouterr().out


@pytest.mark.parametrize(("limit", "code"), [("-Sn 200", 0), ("-n 200", 1)])
def test_more_shards_than_open_files(tmp_path, limit, code):
    """The soft limit is raised; the hard one is named, with what to do."""
    write_night(tmp_path / "night", [[crawl(f"https://shop.test/{i}", i)] for i in range(220)])
    run = f"ulimit {limit} && exec '{sys.executable}' -m recrawl export night --to urls --output out"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-c", run], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    if code:
        assert (
            "220 files of schedule/ are read side by side" in done.stderr and "ulimit -n 348" in done.stderr
        )
    else:
        assert "220 of 220 crawls" in done.stdout


# What recrawl reads of its own exports: never a fetch that was not there.


def test_status_documents_are_no_fetches(tmp_path, capsys, night):
    run(capsys, night, "--to", "stormcrawler", "--output", tmp_path / "out")
    found = inspected(capsys, tmp_path / "out")
    assert (found["format"], found["rows"], found["accepted"]) == ("stormcrawler", 5, 0)
    assert found["rejected"] == {"never_fetched": 1, "no_fetch_time": 4} and len(found["left_out"]) == 2


def test_queues_are_no_fetches(tmp_path, capsys, night):
    run(capsys, night, "--to", "urlfrontier", "--output", tmp_path / "out")
    found = inspected(capsys, tmp_path / "out")
    assert (found["format"], found["rows"], found["accepted"]) == ("urlfrontier", 5, 0)
    assert found["rejected"] == {"no_fetch_time": 5} and found["left_out"] == ["no_fetch_time"]


@pytest.mark.parametrize("name", ["csv", "scrapy"])
def test_a_schedule_that_was_kept_can_be_read_as_a_log(tmp_path, capsys, night, name):
    """A crawler that takes each row and adds what it found: here nothing, at the time that was due."""
    run(capsys, night, "--to", name, "--output", tmp_path / "out")
    columns = ("--kind", "observations", "--observations_columns", "fetched_at=due_at")
    found = inspected(capsys, tmp_path / "out", *columns)
    assert (found["rows"], found["accepted"], found["pages"], found["hosts"]) == (5, 5, 5, 1)
    assert (found["first"], found["last"]) == ("2026-07-01T00:00:00Z", "2026-07-01T02:00:00Z")


def merged(stored: dict, change: dict) -> dict:
    """An update as OpenSearch makes it: objects within objects are merged, all else is replaced."""
    both = {k: merged(v, change[k]) for k, v in stored.items() if isinstance(v, dict) and k in change}
    return stored | change | both


@pytest.mark.parametrize("persisted", [False, True])
def test_a_date_that_recrawl_has_set_is_no_sign_of_a_fetch(tmp_path, capsys, night, persisted):
    """One interval before the next fetch there was one, but not where recrawl has moved it."""
    run(capsys, night, "--to", "stormcrawler", "--bulk", "--output", tmp_path / "out")
    stored = {"fetch%2EstatusCode": ["200"], "fetchInterval": ["1440"]}
    if persisted:
        stored["lastProcessedDate"] = ["2026-06-30T05:06:07.000Z"]
    index = []
    for body in map(
        json.loads, (tmp_path / "out" / "stormcrawler-00000.ndjson").read_text().splitlines()[1::2]
    ):
        document = {
            "url": body["upsert"]["url"],
            "status": "FETCHED",
            "nextFetchDate": "2026-07-01T05:06:07.000Z",
        }
        index.append(merged(document | {"metadata": stored}, body["doc"]))
    (tmp_path / "dump.jsonl").write_text("".join(json.dumps(d) + "\n" for d in index))
    found = inspected(capsys, tmp_path / "dump.jsonl")
    if persisted:
        assert (found["accepted"], found["first"], found["last"]) == (5, *["2026-06-30T05:06:07Z"] * 2)
    else:
        assert (found["accepted"], found["rejected"]) == (0, {"no_fetch_time": 5})
    # The topology stores a fetch with what metadata.persist lists: the date is its own again.
    for document in index:
        del document["metadata"]["recrawl%2Ereason"]
        document["nextFetchDate"] = "2026-07-02T05:06:07.000Z"
    (tmp_path / "dump.jsonl").write_text("".join(json.dumps(d) + "\n" for d in index))
    if not persisted:
        assert inspected(capsys, tmp_path / "dump.jsonl")["last"] == "2026-07-01T05:06:07Z"


@pytest.mark.parametrize("persisted", [False, True])
def test_dates_that_the_docs_put_off_are_no_sign_of_a_fetch(tmp_path, capsys, persisted):
    """The request of the first night, done to a document by hand: no fetch in 2099 comes of it."""
    text = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    request = json.loads(text.split("_update_by_query?conflicts=proceed' -d '")[1].split("'\n")[0])
    script, far = request["script"]["source"], request["script"]["params"]
    assert set(re.findall(r"params\.(\w+)", script)) == set(far)
    (before,) = request["query"]["range"]["nextFetchDate"].values()
    assert far["far"].startswith(before)  # what is put off is not found again
    kept = {"lastProcessedDate": ["2026-06-30T05:06:07.000Z"]} if persisted else {}
    metadata = kept | {"fetchInterval": ["1440"], far["name"]: far["why"]}
    document = {"url": "https://shop.test/", "status": "FETCHED", "nextFetchDate": far["far"]}
    (tmp_path / "dump.jsonl").write_text(json.dumps(document | {"metadata": metadata}) + "\n")
    found = inspected(capsys, tmp_path / "dump.jsonl")
    said = (found["accepted"], found["last"]) if persisted else (found["accepted"], found["rejected"])
    assert said == ((1, "2026-06-30T05:06:07Z") if persisted else (0, {"no_fetch_time": 1}))


ODD = [
    "https://shop.test/a?x=%22q%22&y=\u00e9",
    "https://shop.test/\\back'slash",
    'https://shop.test/"quoted",x',
]


@pytest.mark.parametrize("name", ["stormcrawler", "urlfrontier", "scrapy", "urls", "csv"])
def test_urls_come_back_as_they_went(tmp_path, capsys, name):
    """Each export that recrawl reads, too, as the list of pages that it is."""
    rows = [crawl(url, i) for i, url in enumerate([*ODD, "https://b\u00fccher.test/"])]
    write_night(tmp_path / "night", [rows])
    run(capsys, tmp_path / "night", "--to", name, "--output", tmp_path / "out")
    converted = tmp_path / "converted"
    arguments = ["convert", f"{tmp_path}/out/*", "--kind", "pages", "--output", str(converted)]
    assert main(arguments) == 0
    back = [pq.read_table(path) for path in converted.glob("*.parquet") if path.name != "rejected.parquet"]
    assert sorted(url for table in back for url in table["url"].to_pylist()) == sorted(r["url"] for r in rows)


def test_lists_are_catalogues_once_they_have_a_head(tmp_path, capsys, night):
    run(capsys, night, "--to", "urls", "--output", tmp_path / "out")
    texts = [p.read_text() for p in sorted((tmp_path / "out").iterdir())]
    (tmp_path / "pages.csv").write_text("url\n" + "".join(texts))
    assert inspected(capsys, tmp_path / "pages.csv", "--kind", "pages")["accepted"] == 5
