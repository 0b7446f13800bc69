"""Options that say how input files are read."""

from __future__ import annotations

import pytest

from pipelines import options_inputs
from tests.transforms.files import OBSERVATIONS, write_file
from transforms.formats import How
from transforms.inputs import InputError
from transforms.normalise import KINDS
from transforms.sources import plan_files, read_split

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
