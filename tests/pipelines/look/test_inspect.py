"""`recrawl inspect`: what files hold."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipelines.door.cli import main
from pipelines.look.inspect_report import LEFT_OUT
from tests.pipelines.jobs import crawls, nightly
from tests.transforms.dialects.test_nutch import DUMP as NUTCH
from tests.transforms.read_files import OBSERVATIONS, write_file
from transforms.batches.hashing import hash_texts
from transforms.intake.inspecting import SKETCHED, Distinct
from transforms.intake.twins import KEPT, Twins
from transforms.rows.bots import REASONS

ROOT = Path(__file__).parents[3]


def inspect(capsys, *arguments: object) -> tuple[int, list[dict]]:
    code = main(["inspect", *map(str, arguments), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_row_is_accepted_or_has_a_reason(tmp_path, capsys):
    rows = [*OBSERVATIONS, {"url": "ftp://a.test/", "fetched_at": 1767323045}, {"url": "https://a.test/"}]
    text = "".join(json.dumps(r) + "\n" for r in rows) + "no json\n"
    code, (said,) = inspect(capsys, write_file(tmp_path / "a.jsonl", [], text))
    assert code == 0
    assert (said["kind"], said["format"], said["rows"], said["accepted"]) == ("observations", "jsonl", 53, 50)
    assert said["rejected"] == {"bad_url": 1, "bad_timestamp": 1, "bad_json": 1}
    assert (said["pages"], said["hosts"]) == (50, 7)
    assert said["first"] == "2026-01-02T03:04:05Z" and said["last"] == "2026-01-02T03:04:54Z"
    assert said["evidence"] == {"digest": 50}


def test_files_of_many_formats_one_object_each(tmp_path, capsys):
    log = (
        "2026-01-01T02:03:05.010Z   200       5120 https://shop.test/p/1 L https://shop.test/ text/html #012 "
        "20260101020304500+310 sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA - -\n"
        "2026-01-01T02:03:05.010Z   200       5120 dns:shop.test P - text/dns #01 20260101020304500+9 - - -\n"
    )
    (tmp_path / "crawl.log").write_text(log)
    (tmp_path / "clicks.csv").write_text(
        "url,day,clicks\nhttps://a.test/,2026-01-01,3\nhttps://a.test/,x,3\n"
    )
    (tmp_path / "pages.csv.gz").write_bytes(gzip.compress(b"url,importance\nhttps://a.test/,3\n"))
    (tmp_path / "empty.csv").write_text("")
    code, said = inspect(
        capsys, *(tmp_path / n for n in ("crawl.log", "clicks.csv", "pages.csv.gz", "empty.csv"))
    )
    found = {s["file"].rsplit("/", 1)[1]: s for s in said}
    assert code == 0
    assert all(s["rows"] == s["accepted"] + sum(s["rejected"].values()) for s in said)
    assert found["crawl.log"]["format"] == "heritrix"
    assert found["crawl.log"]["rejected"] == {"prerequisite": 1}
    assert found["crawl.log"]["left_out"] == ["prerequisite"]
    assert (found["clicks.csv"]["kind"], found["clicks.csv"]["rejected"]) == (
        "requests",
        {"bad_timestamp": 1},
    )
    assert (found["pages.csv.gz"]["kind"], found["pages.csv.gz"]["rows"]) == ("pages", 1)
    assert (found["empty.csv"]["format"], found["empty.csv"]["rows"]) == ("empty", 0)


def test_a_folder_is_looked_through_for_everything_that_a_night_reads(tmp_path, capsys):
    urls = "<url><loc>https://a.test/</loc><lastmod>2026-01-01</lastmod></url>" * 2
    (tmp_path / "sitemap.xml").write_text(f"<urlset>{urls}</urlset>")
    (tmp_path / "part-00000").write_text(NUTCH)
    (tmp_path / "part-r-00001").write_text(NUTCH)
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "notes").write_text("no data")
    write_file(tmp_path / "a.jsonl", OBSERVATIONS)
    code, said = inspect(capsys, tmp_path)
    assert code == 0
    assert [(s["file"].rsplit("/", 1)[1], s["format"], s["kind"]) for s in said] == [
        ("a.jsonl", "jsonl", "observations"),
        ("part-00000", "nutch", "observations"),
        ("part-r-00001", "nutch", "observations"),
        ("sitemap.xml", "sitemap", "sitemaps"),
    ]
    assert said[3]["rows"] == 2


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path, capsys):
    write_file(tmp_path / "a.jsonl", OBSERVATIONS)
    (tmp_path / "b.csv").write_text("name,size\nx,1\n")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(json.dumps(OBSERVATIONS[0]).encode() * 9)[:-9])
    code, said = inspect(capsys, tmp_path / "a.jsonl", tmp_path / "b.csv", tmp_path / "c.jsonl.gz")
    assert code == 1
    assert said[0]["accepted"] == 50 and "nothing that a night reads" in said[1]["error"]
    assert said[2]["damaged"][0].startswith("truncated")
    assert [inspect(capsys, tmp_path / f["file"].rsplit("/")[-1])[0] for f in said] == [0, 1, 1]


def test_the_screen_shows_the_lines_that_are_wrong(tmp_path, capsys):
    text = "url,fetched_at,digest\n" + "https://a.test/,2026-01-01,d\n" * 3 + "https://a.test/,soon,d\n" * 5
    text += "https://a.test/e\u202emoc\x1b[1m,2026-01-01,d\n"
    assert main(["inspect", str(write_file(tmp_path / "a.csv", [], text))]) == 0
    shown = capsys.readouterr().out
    assert "bad_url: https://a.test/e\\u202emoc\\x1b[1m" in shown
    assert "rows       9, 3 accepted" in shown and "rejected   5 bad_timestamp" in shown
    assert shown.count("bad_timestamp: ") == 3 and "row 5: bad_timestamp" in shown and "=soon" in shown


@pytest.mark.parametrize("n", [10, SKETCHED, 8 * SKETCHED])
def test_distinct_values_are_counted_in_bounded_memory(n):
    rng = np.random.Generator(np.random.Philox(n))
    hashes = rng.integers(0, 2**64, n, dtype=np.uint64)
    found = Distinct()
    for part in np.array_split(np.concatenate([hashes, hashes]), 50):
        found.add(part)
        assert len(found._least) <= SKETCHED
    # Four standard errors of the estimate.
    assert len(found) == pytest.approx(n, rel=0 if n <= SKETCHED else 4 / 256)


def test_pages_under_several_urls_are_counted(tmp_path, capsys):
    at = "https://a.test"
    urls = [f"{at}/1", "http://a.test/1", f"{at}/1/", f"{at}/X", f"{at}/x", f"{at}/y", f"{at}/?a=1", at]
    rows = [{"url": url, "fetched_at": 1767323045 + i} for i, url in enumerate(urls * 2)]
    paths = [write_file(tmp_path / f"{i}.jsonl", rows[i::2]) for i in range(2)]
    assert main(["inspect", *map(str, paths)]) == 0
    assert "2 pages seem to stand under several URLs" in capsys.readouterr().out
    _, said = inspect(capsys, *paths)
    assert [file["twins"] for file in said] == [1, 0]


def test_pages_under_several_urls_are_counted_in_bounded_memory():
    twins, others = Twins(), Twins()
    for found, scheme, step in ((twins, "http", 1), (others, "https", 4)):
        url = pa.array([f"{scheme}://a.test/{i}" for i in range(0, 3 * KEPT, step)])
        for begin in range(0, len(url), 50_000):
            some = url.slice(begin, 50_000)
            found.add(some, pa.array(hash_texts(some)))
    few = Twins()
    few.add(url.slice(0, 9), pa.array(hash_texts(url.slice(0, 9))))
    twins.merge(others)
    few.merge(twins)
    assert few._kept.equals(twins._kept) and len(few) == len(twins)
    assert twins._kept.num_rows <= 1.3 * KEPT
    expected = 3 * KEPT / 4
    assert abs(len(twins) - expected) < 4.0 * 3.0 * (KEPT * 0.25 * 0.75) ** 0.5


def test_the_options_that_name_columns_and_formats_say_what_a_file_is(tmp_path, capsys):
    """A table of pages has a URL, too; what else it has is for the options to say."""
    row = {"url": "https://a.test/", "date": "2026-06-20", "hash": "x", "visits": 3}
    path = write_file(tmp_path / "a.jsonl", [row])
    dump = tmp_path / "part-00000"
    dump.write_text(NUTCH)
    for options, kind in (
        ([], "pages"),
        (["--observations_columns", "fetched_at=date,digest=hash"], "observations"),
        (["--requests_columns", "day=date,clicks=visits"], "requests"),
    ):
        _, said = inspect(capsys, path, *options)
        assert said[0]["kind"] == kind, options
        out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        main(["convert", str(path), *options, "--output", str(out)])
        assert f" {kind} to " in capsys.readouterr().out
    _, said = inspect(capsys, path, "--observations_format", "scrapy")
    assert "observations need a column fetched_at" in said[0]["error"]
    # A format that is named for one input leaves files of another what they are.
    _, said = inspect(capsys, dump, "--requests_format", "access_log")
    assert said[0]["format"] == "nutch"


def test_one_of_a_thing_is_one(tmp_path, capsys):
    text = "url,fetched_at,not_modified\nhttps://a.test/,2026-01-01,true\n"
    assert main(["inspect", str(write_file(tmp_path / "a.csv", [], text))]) == 0
    shown = capsys.readouterr().out
    assert "1 page on 1 host," in shown and "evidence   1 told that nothing has changed" in shown


def test_evidence_that_adds_up_to_more_than_the_rows_is_said_to(tmp_path, capsys):
    text = "url,fetched_at,status,digest\nhttps://a.test/,2026-01-01,404,A\nhttps://a.test/,2026-01-02,200,\n"
    assert main(["inspect", str(write_file(tmp_path / "a.csv", [], text))]) == 0
    said = "1 with a digest; 1 with 304, 404 or 410 (a row may have several); 1 without any"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("command", [["inspect"], ["convert", "--output"]])
def test_json_laid_out_for_people_is_refused_in_one_sentence(tmp_path, capsys, command):
    path = tmp_path / "search.json"
    hits = [{"_source": {"url": "https://a.test/", "status": "FETCHED", "metadata": {}}}] * 9
    path.write_text(json.dumps({"took": 1, "hits": {"hits": hits}}, indent=2))
    more = [str(tmp_path / "out")] if command[1:] else []
    assert main([*command, *more, str(path)]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "jq -c '.hits.hits[]'" in said
    path.write_text(json.dumps([{"url": "https://a.test/", "fetched_at": 1}] * 2, indent=2))
    assert main([*command, *more, str(path)]) == 1
    assert "jq -c '.[]'" in capsys.readouterr().err


def test_a_dump_of_a_store_is_also_a_list_of_pages(tmp_path, capsys):
    (tmp_path / "part-00000").write_text(NUTCH)
    assert main(["inspect", str(tmp_path)]) == 0
    assert "observations, nutch (or as pages: --kind)" in capsys.readouterr().out
    _, said = inspect(capsys, tmp_path, "--kind", "pages")
    assert (said[0]["format"], said[0]["accepted"]) == ("nutch", 6)


def test_a_log_without_its_site_is_counted_and_says_what_a_night_needs(tmp_path, capsys):
    agent = '"-" "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"'
    lines = [
        f'192.0.2.1 - - [01/Jan/2026:00:00:0{i} +0000] "GET /p/{i % 3} HTTP/1.1" 200 9 {agent}'
        for i in range(9)
    ]
    log = tmp_path / "access.log"
    log.write_text("\n".join([*lines, "no line of a log"]))
    code, (said,) = inspect(capsys, log)
    assert (code, said["format"], said["no_site"]) == (0, "access_log", True)
    assert (said["rows"], said["accepted"], said["rejected"], said["pages"]) == (10, 9, {"bad_line": 1}, 3)
    assert main(["inspect", str(log)]) == 0
    assert "--requests_site" in capsys.readouterr().out
    code, (said,) = inspect(capsys, log, "--requests_site", "https://shop.test")
    assert (code, said["accepted"], said["no_site"]) == (0, 9, False)


@pytest.mark.parametrize("head", ["", "\ufeff", "\n \n"])
def test_bare_urls_are_a_sitemap(tmp_path, capsys, head):
    (tmp_path / "urls.txt").write_text(f"{head}https://a.test/1\r\nhttps://a.test/2\r\n")
    code, (said,) = inspect(capsys, tmp_path)
    assert (code, said["kind"], said["rows"], said["accepted"]) == (0, "sitemaps", 2, 2)


def test_a_file_that_cannot_be_read_has_all_fields_too(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("words, and more words\n")
    code, (said,) = inspect(capsys, tmp_path / "notes.txt")
    assert code == 1
    assert {name: said[name] for name in ("format", "rows", "accepted", "rejected")} == {
        "format": None,
        "rows": 0,
        "accepted": 0,
        "rejected": {},
    }


def test_every_reason_to_leave_a_row_out_is_spelled_out():
    sources = [path.read_text() for path in (ROOT / "transforms").rglob("*.py")]
    named = {r for s in sources for r in re.findall(r"""leave_out\([^()"]*"([a-z_]+)\"""", s)}
    named |= {r for s in sources for r in re.findall(r"""leave_out\(.*?, "([a-z_]+)"\)""", s)} | set(
        REASONS[1:]
    )
    assert len(named) > 12
    assert named <= set(LEFT_OUT)


@pytest.mark.parametrize("kind", [[], ["--kind", "observations"]])
@pytest.mark.parametrize("command", [["inspect"], ["convert", "--output", "out"]])
def test_a_folder_without_data_names_no_option_that_is_not_there(
    command, kind, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert main([*command, "empty", *kind]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("recrawl: no data file in this folder: empty (data files end in ")


def _robots(folder: Path, delays: dict[str, str]) -> Path:
    for host, delay in delays.items():
        rules = f"User-agent: OurBot\nCrawl-delay: {delay}\n\nUser-agent: *\nCrawl-delay: 1\n"
        (folder / f"{host}.txt").write_text(rules if delay else "User-agent: *\nDisallow: /x\n")
    return folder


def test_robots_files_of_a_call_are_one_block_with_their_delays(tmp_path, capsys):
    delays = {f"a{i:02}.test": str(5 + i) for i in range(30)}
    delays |= {f"b{i}.test": "" for i in range(6)} | {f"c{i}.test": "1e9" for i in range(4)}
    folder = _robots(tmp_path, delays)
    assert main(["inspect", str(folder), "--own_user_agent", "OurBot"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{folder}/a00.test.txt to {folder}/c3.test.txt",
        "  read as    hosts, robots: 40 files, groups of OurBot, of * where a file has none",
        "  delays     30 hosts: 5 to 34 s, the longest of a29.test",
        "  left out   6 files without a crawl delay",
        "  rejected   4 crawl_delay",
        *(
            f"             {folder}/c{i}.test.txt: row 1: crawl_delay: c{i}.test: Crawl-delay of 1e+09 s, "
            "at most 86400 s are believed"
            for i in range(3)
        ),
    ]
    assert main(["inspect", str(folder)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:4] == [
        "  read as    hosts, robots: 40 files, groups of *",
        "             (--own_user_agent reads those of your own crawler)",
        "  delays     34 hosts: 1 s",
    ]
    code, objects = inspect(capsys, folder, "--own_user_agent", "OurBot")
    assert code == 0 and len(objects) == 40
    assert sum(o["accepted"] for o in objects) == 30 and "gaps" not in objects[0]


def test_they_stand_behind_other_files(tmp_path, capsys):
    _robots(tmp_path, {"z.test": "3"})
    (tmp_path / "clicks.csv").write_text("url,day,clicks\nhttps://a.test/,2026-01-01,3\n")
    write_file(tmp_path / "zz.jsonl", OBSERVATIONS)
    assert main(["inspect", str(tmp_path), "--own_user_agent", "OurBot"]) == 0
    said = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [Path(line).name for line in said] == ["clicks.csv", "zz.jsonl", "z.test.txt"]


def test_files_of_one_format_are_one_block_with_their_sums(tmp_path, capsys):
    """In any order of their times; pages that several have count once."""
    texts = {
        "a.csv": "url,day,clicks\nhttps://a.test/,2026-01-03,3\nhttps://a.test/1,2026-01-04,3\nhttps://a.test/,x,1\n",
        "b.csv": "url,day,clicks\nhttps://a.test/,2026-01-01,3\nhttps://b.test/,2026-01-02,3\nftp://b.test/,x,1\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert main(["inspect", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/a.csv to {tmp_path}/b.csv",
        "  read as    requests, csv: 2 files (or as pages: --kind)",
        "  rows       6, 4 accepted",
        "  of         3 pages on 2 hosts, 2026-01-01T00:00:00Z to 2026-01-04T00:00:00Z",
        "  rejected   1 bad_timestamp, 1 bad_url",
        f"             {tmp_path}/a.csv: row 4: bad_timestamp: https://a.test/ | day=x",
        f"             {tmp_path}/b.csv: row 4: bad_url: ftp://b.test/",
        "             times are read as 2026-06-20T08:30:00Z, 20 Jun 2026 08:30:00 GMT or seconds since 1970",
    ]


def test_tables_of_spreadsheets_are_told(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("url;fetched_at\nhttps://a.test/;02.01.2026 10:00\n")
    (tmp_path / "b.csv").write_text("url\tcrawled_at\tetag\nhttps://a.test/\t02.01.2026 10:00\tA\n")
    assert main(["inspect", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "observations, csv with semicolons" in said and "observations, scrapy with tabs" in said
    (tmp_path / "c.csv").write_text("URL;Importance;Title\nhttps://a.test/;1,500;A\n")
    assert main(["inspect", str(tmp_path / "c.csv")]) == 0
    assert "1,500 may be 1500 or 1.5" in capsys.readouterr().out


def test_what_is_odd_and_counts_all_the_same_is_noted(tmp_path, capsys):
    head = "url,fetched_at\n"
    rows = "https://a.test/,2026-10-25 02:30:00\nhttps://b.test/,2026-03-29 02:30:00\n"
    (tmp_path / "a.csv").write_text(f"\0\0{head}{rows}{head}{rows}")
    assert main(["inspect", str(tmp_path / "a.csv"), "--observations_timezone=Europe/Berlin"]) == 0
    said = capsys.readouterr().out
    assert "rows       4, 4 accepted" in said and "2026-03-29T01:30:00Z to 2026-10-25T00:30:00Z" in said
    for noted in (
        "1 files with NUL bytes in front of lines",
        "1 rows that repeat the header",
        "2 times of an hour that clocks show twice",
        "2 times of an hour that clocks skip",
        "4 times without a zone in fetched_at, read as Europe/Berlin, as --observations_timezone says",
    ):
        assert noted in said


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "address,when\nhttps://a.test/,2026-06-01\n", "the columns address, when."),
        ("a.jsonl", '{"address": "x", "when": 1}\n', "the columns address, when."),
        ("a.csv", "address;when\nhttps://a.test/;2026-06-01\n", "the columns address, when."),
        (
            "a.csv",
            "sep=;\nurl;fetched_at\nhttps://a.test/;2026-06-01\n",
            "first line, sep=, is for spreadsheets",
        ),
        ("a.csv", "url|fetched_at\nhttps://a.test/|2026-06-01\n", "one column, 'url|fetched_at'. Columns"),
        ("a.csv", "host,max_per_day\na.test,5\nb.test,5 a day\n", "row 3 (1 such row): max_per_day is '5 a"),
    ],
)
def test_a_table_that_is_no_input_is_told_what_it_has(name, text, words, tmp_path, capsys):
    (tmp_path / name).write_text(text)
    assert main(["inspect", str(tmp_path / name)]) == 1
    assert words in capsys.readouterr().err


def test_a_zip_of_logs_is_no_export(tmp_path, capsys):
    with zipfile.ZipFile(tmp_path / "logs.zip", "w") as archive:
        archive.writestr("june.csv", "url,fetched_at,status\nhttps://a.test/,2026-06-01,200\n")
    assert main(["inspect", str(tmp_path / "logs.zip")]) == 1
    said = capsys.readouterr().err
    assert "a ZIP of june.csv; " in said and "unzip -d FOLDER" in said and "--requests_day" not in said


def test_a_finished_night_is_a_few_lines(tmp_path, capsys):
    night = nightly(tmp_path, observations=crawls("https://a.test/", "AB"), budget=1)
    code, (said,) = inspect(capsys, night.folder)
    assert (code, said["kind"], said["pages"], said["slots"]) == (0, "night", 1, 1)
    assert main(["inspect", str(night.folder), str(write_file(tmp_path / "a.jsonl", OBSERVATIONS))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(night.folder) and lines[2] == "  holds      1 page on 1 host, 1 slot, status ok"
    assert lines[4].endswith("a.jsonl")
    # In a folder above it is no input, as a person may have a store beside the logs.
    (tmp_path / "logs" / "store" / "nights").mkdir(parents=True)
    night.folder.rename(tmp_path / "logs" / "store" / "nights" / "one")
    (tmp_path / "logs" / "store" / "latest.json").write_text('{\n "night": "one"\n}\n')
    write_file(tmp_path / "logs" / "b.jsonl", OBSERVATIONS)
    code, (said,) = inspect(capsys, tmp_path / "logs")
    assert code == 0 and said["file"].endswith("b.jsonl")
    pages, *_ = (tmp_path / "logs" / "store" / "nights" / "one" / "pages").iterdir()
    assert inspect(capsys, pages)[1][0]["kind"] == "pages"


def test_a_date_of_people_is_shown_one_that_is_read(tmp_path, capsys):
    path = write_file(tmp_path / "a.csv", [], "url,fetched_at\nhttps://a.test/,20/06/2026\n")
    assert main(["inspect", str(path)]) == 0
    assert "times are read as 2026-06-20T08:30:00Z, 20 Jun 2026 08:30:00 GMT or" in capsys.readouterr().out
    night = nightly(tmp_path, observations=path, max_rejected_fraction=1)
    assert night.code == 3 and "times are read as 2026-06-20T08:30:00Z" in night.printed + night.complaints
