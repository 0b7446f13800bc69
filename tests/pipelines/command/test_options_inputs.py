"""Options that say how input files are read."""

from __future__ import annotations

import pytest

from pipelines.command import options_inputs
from tests.transforms.read_files import OBSERVATIONS, URL, write_file
from transforms.batches.errors import InputError
from transforms.files.blocks import How
from transforms.intake.sources import check_inputs, plan_files, read_split
from transforms.rows.normalise import KINDS

THEIRS = {"url": "page", "fetched_at": "crawl_time", "status": "status", "digest": "sha1"}


def hows(**given):
    values = {"observations_format": "auto", "requests_format": "auto"} | given
    problems: list[str] = []
    found = options_inputs.hows({n: values.get(n) for n in options_inputs.names()}, problems)
    return found, problems


def rows(path, how, kind="observations"):
    found = []
    for split in plan_files(str(path), kind, how=how):
        found += [b for tag, b in read_split(split, KINDS[kind]) if tag == "rows"]
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["a.parquet", "a.avro", "a.jsonl", "a.csv", "a.csv.gz"])
def test_columns_of_another_name_read_as_ours(tmp_path, name):
    ours = write_file(tmp_path / f"ours-{name}", OBSERVATIONS)
    renamed = [{THEIRS[k]: v for k, v in row.items()} for row in OBSERVATIONS]
    theirs = write_file(tmp_path / f"theirs-{name}", renamed)
    found, problems = hows(observations_columns="url=page, fetched_at=crawl_time,digest=sha1")
    assert not problems
    assert rows(theirs, found["observations"]) == rows(ours, How()) != []


def test_what_is_missing_is_named_as_in_the_file(tmp_path):
    path = write_file(tmp_path / "a.csv", OBSERVATIONS)
    found, _ = hows(observations_columns="fetched_at=crawl_time")
    with pytest.raises(InputError, match=r"crawl_time.*The file has: url, fetched_at"):
        rows(path, found["observations"])


@pytest.mark.parametrize("ending", ["parquet", "avro", "jsonl", "csv"])
def test_a_name_that_no_file_has_is_refused(tmp_path, ending):
    write_file(tmp_path / f"a.{ending}", [{"url": URL, "fetched_at": 1767323045, "http_code": 503}])
    write_file(tmp_path / f"b.{ending}", [{"url": URL, "fetched_at": 1767323045, "sha1": "A"}])
    found, _ = hows(observations_columns="status=http_status,digest=sha1")
    with pytest.raises(InputError) as error:
        check_inputs("observations", str(tmp_path), how=found["observations"])
    assert "--observations_columns status=http_status: no file has it." in str(error.value)
    assert f"a.{ending}" in str(error.value) and "url, fetched_at, http_code" in str(error.value)
    # One file that has it is enough.
    found, _ = hows(observations_columns="status=http_code,digest=sha1")
    check_inputs("observations", str(tmp_path), how=found["observations"])


@pytest.mark.parametrize("ending", ["parquet", "avro", "jsonl", "csv"])
def test_a_value_in_the_name_of_a_folder_counts_as_a_column(tmp_path, ending):
    def put(folder, **row):
        (tmp_path / folder).mkdir(parents=True)
        write_file(tmp_path / folder / f"a.{ending}", [row])
        return tmp_path / folder

    seen = {"url": URL, "fetched_at": 1767323045}
    put("log/fetch_status=503", **seen)
    put("log/fetch_status=200/changed=true", **seen)
    put("log/fetch_status=__HIVE_DEFAULT_PARTITION__", **seen)
    put("log/fetch_status=404/inner", **seen, fetch_status=200)
    found, _ = hows(observations_columns="status=fetch_status")
    check_inputs("observations", str(tmp_path / "log"), how=found["observations"])
    read = rows(tmp_path / "log", found["observations"])
    assert [(r["status"], r["changed"]) for r in read] == [
        (200, True),
        (200, None),
        (503, None),
        (None, None),
    ]
    # A file's own day or time goes before that of its folder.
    put("clicks/day=2026-06-01", url=URL, clicks=2)
    put("clicks/day=2026-06-02/more", url=URL, clicks=3, at=1767323045)
    read = rows(tmp_path / "clicks", How(), "requests")
    assert [(r["day"], r["clicks"] >> 20) for r in read] == [(20605, 2), (20455, 3)]
    put("parts/year=2026/month=6/day=01", url=URL, clicks=2)
    assert rows(tmp_path / "parts", How(), "requests")[0]["day"] == 20605
    put("pages/section=shoes%2Fred", url=URL)
    assert rows(tmp_path / "pages", How(), "pages")[0]["section"] == "shoes/red"


def test_a_column_that_another_replaces_is_not_read(tmp_path):
    """Our name with another meaning in their file: the mapping decides."""
    records = [{"url": r["url"], "fetched_at": "soon", "done": r["fetched_at"]} for r in OBSERVATIONS]
    path = write_file(tmp_path / "a.jsonl", records)
    found, _ = hows(observations_columns="fetched_at=done")
    assert len(rows(path, found["observations"])) == len(OBSERVATIONS)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"observations_format": "cobol"}, "--observations_format=cobol: expected one of auto, canonical"),
        ({"observations_columns": "fetched=ts"}, "--observations_columns=fetched=ts: expected OURS=YOURS"),
        ({"observations_columns": "fetched_at"}, "--observations_columns=fetched_at: expected OURS=YOURS"),
        ({"requests_columns": "day=a,day=b"}, "--requests_columns: day is named twice: a and b"),
        ({"requests_columns": "day=a,clicks=a"}, "two columns have one name"),
        ({"tracking_parameters": "src,ref=home"}, "--tracking_parameters=ref=home: expected names of"),
        ({"tracking_parameters": "*"}, "--tracking_parameters=*: expected names of"),
    ],
)
def test_options_that_cannot_work_are_told(given, named):
    _, problems = hows(**given)
    assert len(problems) == 1 and named in problems[0]


def test_an_option_without_value_reaches_the_reader(tmp_path):
    path = tmp_path / "index.cdx"
    path.write_text("test,a)/x 20000800241623 https://a.test/x text/html 200 A - - 9 0 f\n")
    parser = options_inputs.parser()
    for given, expected in ((["--repair_cdx00"], 1), ([], 0)):
        problems: list[str] = []
        found = options_inputs.hows(vars(parser.parse_args(given)), problems)
        assert len(rows(path, found["observations"])) == expected
        assert problems == []


def test_tracking_parameters_of_ones_own_are_no_part_of_a_page(tmp_path):
    url = "https://a.test/p?REF=home&id=3&my_x=1"
    path = write_file(tmp_path / "a.csv", [{"url": url, "day": "2026-06-01", "clicks": 1}])
    found, problems = hows(tracking_parameters="ref, my_*")
    assert not problems
    assert [row["url"] for row in rows(path, found["requests"], "requests")] == ["https://a.test/p?id=3"]
    assert rows(path, hows()[0]["requests"], "requests")[0]["url"] == url
