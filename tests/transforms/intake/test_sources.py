"""Reading as part of a pipeline: every row once, to the shard of its host."""

import json

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from pipelines.door import explaining
from tests.transforms.counted import committed
from tests.transforms.read_files import OBSERVATIONS, URL, write_file
from transforms.batches import schemas
from transforms.batches.errors import InputError
from transforms.batches.urls import locate
from transforms.files.inputs import match_files, split_patterns
from transforms.intake.reading import Input, ReadInputs, unpacked
from transforms.intake.sources import check_inputs
from transforms.kept.carrying import Previous
from transforms.shards.sharding import Layout


def _run(kind, patterns, check=None, rejected=None, required=True, num_shards=2):
    """Read one input; `check` gets its batches as the shards see them. Returns Beam's counters."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadInputs(
        [Input(kind, patterns, required)], Previous(), Layout(num_shards, {}), 1 << 18
    )

    def rows(elements):
        kept = [(shard, unpacked(batch)) for shard, batch in elements if batch.num_rows]
        assert {shard for shard, batch in elements} == set(range(num_shards))
        for shard, batch in kept:
            if "url" in batch.schema.names:
                assert set(locate(batch.column("url")).host_hash % np.uint64(num_shards)) == {shard}
        check([batch for _, batch in kept])

    if check is not None:
        assert_that(read[ReadInputs.ROWS], rows, label="rows")
    if rejected is not None:
        assert_that(read[ReadInputs.REJECTED], rejected, label="rejected")
    result = pipeline.run()
    return committed(result.metrics())


@pytest.fixture
def folder(tmp_path):
    for i, name in enumerate(["a.parquet", "b.avro", "c.jsonl", "d.csv.gz"]):
        records = [r | {"url": f"https://h{i}.test/{j}"} for j, r in enumerate(OBSERVATIONS)]
        records[3]["url"] = "nonsense"
        write_file(tmp_path / name, records)
    (tmp_path / "e.csv").write_text("")
    (tmp_path / "f.parquet").write_text("PAR1 and no more")
    return tmp_path


def test_rows_are_conserved_in_the_counters(folder):
    def rows(batches):
        assert len(batches) <= 2  # small batches come joined
        assert sum(b.num_rows for b in batches) == 4 * 49
        expected = schemas.OBSERVATIONS
        for batch in batches:
            schemas.check(batch, expected, "rows")

    def rejected(batches):
        found = sorted((b["source"][0].as_py().rsplit("/", 1)[1], b["row"][0].as_py()) for b in batches)
        assert found == [("a.parquet", 3), ("b.avro", 3), ("c.jsonl", 4), ("d.csv.gz", 5), ("f.parquet", -1)]

    counters = _run("observations", str(folder), rows, rejected)
    assert counters == {
        "observations_files": 6,
        "observations_files_empty": 1,
        "observations_files_truncated": 1,
        "observations_accepted": 196,
        "observations_rejected": 4,
        "observations_rejected_bad_url": 4,
    }


def test_a_large_file_is_read_in_parts(tmp_path, monkeypatch):
    from transforms.dialects import parquet

    monkeypatch.setattr(parquet, "BATCH_ROWS", 100)
    n = 1000
    table = pa.table({"url": [f"https://a.test/{i}" for i in range(n)], "fetched_at": [1767323045] * n})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50)

    def rows(batches):
        urls = [u for b in batches for u in b["url"].to_pylist()]
        assert sorted(urls) == sorted(table["url"].to_pylist())

    assert _run("observations", f"{tmp_path}/*.parquet", rows)["observations_accepted"] == n


def test_catalogues_with_other_columns_side_by_side(tmp_path):
    write_file(tmp_path / "a.csv", [{"url": URL, "kind": "x"}])
    write_file(tmp_path / "b.jsonl", [{"url": URL, "price": 1}])

    def rows(batches):
        assert sorted(b.schema.names[5] for b in batches) == ["kind", "price"]

    _run("pages", f"{tmp_path}/a.csv,{tmp_path}/b.jsonl", rows)


def test_other_kinds(tmp_path):
    write_file(tmp_path / "r.csv", [{"url": URL, "day": "2026-01-02", "clicks": 2}])
    write_file(tmp_path / "s.csv", [{"url": URL, "signalled_at": "2026-01-02", "source": "sitemap"}])
    write_file(tmp_path / "h.csv", [{"host": "A.test", "max_per_day": 5}])
    for kind in ("requests", "signals", "hosts"):
        schema = getattr(schemas, kind.upper())
        key = ("host_hash" if kind == "hosts" else "url_hash", pa.uint64())
        expected = pa.schema([*schema, key])
        _run(kind, f"{tmp_path}/{kind[0]}.csv", lambda b, e=expected: schemas.check(b[0], e, "rows"))


@pytest.mark.parametrize(
    ("kind", "name", "text", "message"),
    [
        ("observations", "none*.csv", None, "--observations: no file matches: "),
        (
            "observations",
            "a.csv",
            "link,fetched_at\n",
            "need a column url. The file has: link",
        ),
        ("observations", "a.txt", "hello", "a.txt: not Parquet, Avro"),
        ("signals", "page.xml", '<urlset a=",">\n', "page.xml: this is XML or HTML; give sitemaps and feeds"),
        (
            "hosts",
            "a.csv",
            "host,max_per_day\na.test,1\nb.test,-1\n",
            "a.csv: row 3 (1 such row): max_per",
        ),
        ("pages", "a.jsonl", json.dumps({"x": 1}), "pages need a column url. The file has: x"),
    ],
)
def test_an_unusable_input_stops_the_run_with_one_sentence(tmp_path, kind, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(Exception) as caught:
        _run(kind, f"{tmp_path}/{name}")
    sentence, _ = explaining.explain(caught.value)
    assert message in sentence
    assert "\n" not in sentence
    assert "while running" not in sentence
    with pytest.raises(InputError) as early:
        check_inputs(kind, f"{tmp_path}/{name}")
    assert str(early.value) == sentence


def test_an_optional_input_may_match_nothing(tmp_path):
    counters = _run("requests", f"{tmp_path}/*.csv", required=False)
    assert counters == {"requests_files": 0, "requests_files_empty": 0}


def test_one_file_under_several_names_is_read_once(tmp_path):
    write_file(tmp_path / "a.csv", [{"url": URL, "day": "2026-01-02", "clicks": 2}])
    (tmp_path / "b.csv").symlink_to(tmp_path / "a.csv")
    inside = tmp_path / "x"
    inside.mkdir()
    patterns = f"{tmp_path}/a.csv,{inside}/../a.csv,{tmp_path}/*.csv,{tmp_path}"
    counters = _run("requests", patterns)
    assert counters["requests_files"] == 1 and counters["requests_accepted"] == 1


def test_a_pattern_of_the_folder_one_works_in(tmp_path, monkeypatch):
    """Beam alone finds nothing where no folder comes before the first wildcard."""
    for name in ("a.csv", "logs/b.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("url\n")
    monkeypatch.chdir(tmp_path)
    for pattern, name in (("*.csv", "a.csv"), ("lo*/b.csv", "logs/b.csv"), ("./?.csv", "a.csv")):
        assert [f.path.removeprefix("./") for f in match_files(pattern)] == [name]


def test_a_folder_of_logs_has_the_rotated_ones_and_says_what_it_has_besides(tmp_path, caplog):
    logs = ["crawl.log", "crawl.log.20260701000000", "crawl.log.cp00001-20260701000000", "crawl.log.1.gz"]
    logs += ["access.log-20260701.gz", "access_log-20260701", "day/access_log.12"]
    others = ["crawl.log.lck", "crawl.log.bak", "notes.md", "blog-2026"]
    for name in [*logs, *others, "_SUCCESS", ".crawl.log.1.crc"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    for _ in range(2):
        found = [f.path.removeprefix(f"{tmp_path}/") for f in match_files(str(tmp_path), "observations")]
        assert found == sorted(logs)
    (said,) = (r.getMessage() for r in caplog.records)
    assert "4 files (blog-2026, crawl.log.bak, crawl.log.lck)" in said
    with pytest.raises(InputError, match="no data file in this folder"):
        match_files(str(tmp_path), "hosts")


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        ("x/{a,b}.csv, y", ["x/a.csv", "x/b.csv", "y"]),
        ("{a,b}/{1,2}*", ["a/1*", "a/2*", "b/1*", "b/2*"]),
        ("log{,.1}.csv", ["log.csv", "log.1.csv"]),
        ("{a},b}, ,{c", ["{a}", "b}", "{c"]),  # no choice in any of them
    ],
)
def test_choices_in_a_pattern(patterns, wanted):
    """They were split at their commas."""
    assert split_patterns(patterns) == wanted
