"""Reading as part of a pipeline."""

import json

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from tests.transforms.files import OBSERVATIONS, URL, write_file
from transforms import schemas
from transforms.counters import committed
from transforms.inputs import InputError, input_error_message
from transforms.normalise import HASHES
from transforms.sources import ReadRows, check_inputs


def _run(kind, patterns, check=None, rejected=None, **options):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    read = pipeline | ReadRows(kind, patterns, **options)
    for name, test in (("rows", check), ("rejected", rejected)):
        if test is not None:
            assert_that(read[name], test, label=name)
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
        # Small batches come joined.
        assert [b.num_rows for b in batches] == [4 * 49]
        expected = pa.schema([*schemas.OBSERVATIONS, *HASHES], schemas.OBSERVATIONS.metadata)
        schemas.check(batches[0], expected, "rows")

    def rejected(batches):
        found = sorted((b["source"][0].as_py().rsplit("/", 1)[1], b["row"][0].as_py()) for b in batches)
        assert found == [("a.parquet", 3), ("b.avro", 3), ("c.jsonl", 4), ("d.csv.gz", 5), ("f.parquet", -1)]

    counters = _run("observations", str(folder), rows, rejected)
    assert counters == {
        "files_empty/observations": 1,
        "files_read/observations": 6,
        "files_rejected/truncated_file": 1,
        "rows_accepted/observations": 196,
        "rows_read/observations": 200,
        "rows_rejected/bad_url": 4,
    }


def test_a_large_file_is_read_in_parts(tmp_path, monkeypatch):
    from transforms import formats

    monkeypatch.setattr(formats, "BATCH_ROWS", 100)
    n = 1000
    table = pa.table({"url": [f"https://a.test/{i}" for i in range(n)], "fetched_at": [1767323045] * n})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=50)

    def rows(batches):
        urls = [u for b in batches for u in b["url"].to_pylist()]
        assert sorted(urls) == sorted(table["url"].to_pylist())

    assert _run("observations", f"{tmp_path}/*.parquet", rows)["rows_read/observations"] == n


def test_catalogues_with_other_columns_side_by_side(tmp_path):
    write_file(tmp_path / "a.csv", [{"url": URL, "kind": "x"}])
    write_file(tmp_path / "b.jsonl", [{"url": URL, "price": 1}])

    def rows(batches):
        assert sorted(b.schema.names[4] for b in batches) == ["kind", "price"]

    _run("pages", f"{tmp_path}/a.csv,{tmp_path}/b.jsonl", rows)
    _run("pages", f"{tmp_path}/a.csv", lambda b: None, metadata_columns=["kind"], hashes=False)


def test_other_kinds(tmp_path):
    write_file(tmp_path / "r.csv", [{"url": URL, "day": "2026-01-02", "clicks": 2}])
    write_file(tmp_path / "s.csv", [{"url": URL, "signalled_at": "2026-01-02", "source": "sitemap"}])
    write_file(tmp_path / "h.csv", [{"host": "A.test", "max_per_day": 5}])
    for kind in ("requests", "signals", "hosts"):
        schema = getattr(schemas, kind.upper())
        _run(
            kind,
            f"{tmp_path}/{kind[0]}.csv",
            lambda b, s=schema: schemas.check(b[0], s, "rows"),
            hashes=False,
        )


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
        (
            "hosts",
            "a.csv",
            "host,max_per_day\na.test,1\nb.test,-1\n",
            "a.csv: row 3 (1 such rows): max_per",
        ),
        ("pages", "a.jsonl", json.dumps({"x": 1}), "pages need a column url. The file has: x"),
    ],
)
def test_an_unusable_input_stops_the_run_with_one_sentence(tmp_path, kind, name, text, message):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(Exception) as caught:
        _run(kind, f"{tmp_path}/{name}")
    sentence = input_error_message(caught.value)
    assert message in sentence
    assert "\n" not in sentence
    assert "while running" not in sentence
    with pytest.raises(InputError) as early:
        check_inputs(kind, f"{tmp_path}/{name}")
    assert str(early.value) == sentence


def test_an_optional_input_may_match_nothing(tmp_path):
    counters = _run("requests", f"{tmp_path}/*.csv", required=False)
    assert counters["files_read/requests"] == 0


def test_an_unknown_kind():
    with pytest.raises(ValueError, match="kind is 'sitemaps', expected one of observations, requests"):
        ReadRows("sitemaps", "x")
