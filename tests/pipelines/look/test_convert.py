"""`recrawl convert`: canonical Parquet says what the file said."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.door.cli import main
from tests.transforms.dialects.reading import read
from tests.transforms.dialects.test_nutch import DUMP as NUTCH
from tests.transforms.dialects.test_scrapy import FEED as SCRAPY
from tests.transforms.dialects.test_stores import DUMP as STORMCRAWLER
from tests.transforms.dialects.test_stores import FRONTIER
from tests.transforms.read_files import OBSERVATIONS, write_file

FILES = {
    "nutch": ("observations", NUTCH),
    "scrapy": ("observations", SCRAPY),
    "stormcrawler": ("observations", STORMCRAWLER),
    "urlfrontier": ("observations", FRONTIER),
    "requests": ("requests", "url,day,clicks\nhttps://a.test/,2026-01-01,1.5\nhttps://a.test/x,2026-01-02,\nx,y,z\n"),
    "signals": ("signals", "url,signalled_at,source\nhttps://a.test/,2026-01-01,ping\n"),
    "pages": ("pages", "url,importance,section\nhttps://a.test/,2,news\nhttps://a.test/x,,\n"),
    "hosts": ("hosts", "host,max_per_day\na.test,5\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_the_rows_are_those_of_the_file(tmp_path, name):
    kind, text = FILES[name]
    path = tmp_path / "dump.csv" if kind != "observations" else tmp_path / "dump"
    path.write_text(text)
    assert main(["convert", str(path), "--kind", kind, "--output", str(tmp_path / "out")]) == 0
    (made,) = (p for p in (tmp_path / "out").iterdir() if p.name != "rejected.parquet")
    before, after = read(path, kind), read(made, kind)
    assert after.forms == ["parquet"] and not after.rejected
    assert after.rows == before.rows != []
    kept = tmp_path / "out" / "rejected.parquet"
    rejected = pq.read_table(kept).to_pylist() if kept.exists() else []
    assert sorted(map(str, rejected)) == sorted(map(str, before.rejected))


def test_digests_that_are_bytes_stay_comparable(tmp_path):
    digests = [hashlib.sha1(bytes([i])).digest() for i in range(3)]
    rows = {
        "url": [f"https://a.test/{i}" for i in range(3)],
        "fetched_at": [1767323045] * 3,
        "digest": pa.array(digests, pa.binary(20)),
    }
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    assert main(["convert", str(tmp_path / "a.parquet"), "--output", str(tmp_path / "out")]) == 0
    assert read(tmp_path / "out" / "a.parquet").rows == read(tmp_path / "a.parquet").rows


def test_two_files_of_one_name_do_not_meet(tmp_path, capsys):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_file(tmp_path / folder / "a.jsonl", OBSERVATIONS)
    files = [str(tmp_path / folder / "a.jsonl") for folder in ("one", "two")]
    assert main(["convert", *files, "--output", str(tmp_path / "out")]) == 0
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a.jsonl-2.parquet", "a.jsonl.parquet"]
    assert "50 observations to a.jsonl.parquet" in capsys.readouterr().out


def test_what_cannot_be_done_is_told(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("name\nx\n")
    (tmp_path / "b.csv").write_text("url,fetched_at\nx,y\n")
    assert main(["convert", str(tmp_path / "a.csv"), "--output", str(tmp_path / "out")]) == 1
    assert "nothing that a night reads" in capsys.readouterr().err
    assert main(["convert", str(tmp_path / "b.csv"), "--output", str(tmp_path / "out")]) == 4
    assert main(["convert", str(tmp_path / "a.csv")]) == 2
    assert "--output is missing" in capsys.readouterr().err


def test_results_of_an_earlier_run_stay(tmp_path, capsys):
    out = tmp_path / "out"
    for day in ("one", "two"):
        (tmp_path / day).mkdir()
        text = f"url,day,clicks\nhttps://{day}.test/,2026-01-01,1\n"
        (tmp_path / day / "crawl.csv").write_text(text)
    assert main(["convert", str(tmp_path / "one" / "crawl.csv"), "--output", str(out)]) == 0
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    assert main(["convert", str(tmp_path / "two" / "crawl.csv"), "--output", str(out)]) == 2
    said = capsys.readouterr().err
    assert "holds crawl.csv.parquet" in said and "give a new folder" in said
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before != {}


def test_a_file_is_not_its_own_result(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"url": ["https://a.test/"], "day": ["2026-01-01"], "clicks": [1]}), path)
    before = path.read_bytes()
    assert main(["convert", str(path), "--output", str(tmp_path)]) == 2
    assert path.read_bytes() == before
