"""CSV and JSON Lines, with everything that is found in them."""

import csv
import datetime as dt
import gzip
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.transforms.read_files import URL, read_file, reasons, write_file
from transforms.batches.hashing import stable_hash
from transforms.dialects import text_blocks
from transforms.files import unpacking
from transforms.files.delimiters import delimiter_of
from transforms.files.inputs import match_files
from transforms.intake.formats import plan

# --- CSV ---------------------------------------------------------------------------------------------

CSV = '''\ufeffurl,note,"fetched_at",status
https://a.test/0,plain,2026-01-02,200

https://a.test/1,"two
lines, and ""quotes""",2026-01-02,200
nonsense,5" disk,2026-01-02,200
https://a.test/2,short,2026-01-02
https://a.test/3,,2026-01-02,x
"https://a.test/4, with a comma","
",2026-01-02,404'''
# Line numbers count from 1, header and blank lines included; a record has the number of its first line.
CSV_REASONS = [(6, "bad_url"), (7, "column_count"), (8, "bad_status")]


@pytest.mark.parametrize("chunk", [1, 5, 64, 100, 200, 8 << 20])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_with_all_its_corners_for_any_block(tmp_path, monkeypatch, chunk, name, end):
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", chunk)
    text = CSV.replace('5" disk', "disk").replace("\n", end)
    rows, rejected = read_file(write_file(tmp_path / name, None, text))
    assert [r["url"][15:] for r in rows] == ["0", "1", "4, with a comma"]
    assert reasons(rejected) == CSV_REASONS


def test_a_stray_quote_costs_nothing(tmp_path):
    rows, rejected = read_file(write_file(tmp_path / "a.csv", None, CSV))
    assert len(rows) == 3
    assert reasons(rejected) == CSV_REASONS


def test_a_stray_quote_in_a_large_file_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(text_blocks, "MAX_RECORD_BYTES", 4000)
    body = "".join(f"https://a.test/{i},2026-01-02,{'a' if i != 7 else 'a' + chr(34)}\n" for i in range(2000))
    rows, rejected = read_file(write_file(tmp_path / "a.csv", None, "url,fetched_at,note\n" + body))
    assert len(rows) == 2000
    assert rejected == []


def test_csv_tells_nothing_by_inference(tmp_path):
    text = "url,fetched_at,digest\n" + f"{URL},2026-01-02,0012\n" * 3
    rows, _ = read_file(write_file(tmp_path / "a.csv", None, text))
    assert rows[0]["digest_hash"] == stable_hash("0012")


def test_tabs_and_columns_in_any_order_twice_if_unused(tmp_path):
    (tmp_path / "a.tsv").write_text(f"x\tfetched_at\tx\turl\n1\t2026-01-02\t2\t{URL}\n")
    rows, _ = read_file(tmp_path / "a.tsv")
    assert [r["url"] for r in rows] == [URL]


@pytest.mark.parametrize(
    ("text", "apart"),
    [
        ("\ufeffurl;fetched_at;n,o,t,e\r\nURL;02.01.2026 10:00;1\r\n", ";"),
        ('"url"\t"fetched_at"\nURL\t2026-01-02 10:00\n', "\t"),
        ("n;o;t;e,url,fetched_at\n,URL,2026-01-02 10:00\n", ","),
        ('\n"a;\nb";fetched_at;url\n;2026-01-02 10:00;URL\n', ";"),
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a"])
def test_the_header_tells_what_sets_columns_apart(tmp_path, text, apart, name):
    path = write_file(tmp_path / name, None, text.replace("URL", URL))
    rows, rejected = read_file(path)
    assert [(r["url"], r["fetched_at"].isoformat()[:16]) for r in rows] == [(URL, "2026-01-02T10:00")]
    assert not rejected
    (file,) = match_files(str(path))
    assert [split.delimiter for split in plan(file, "observations")] == [apart]


def test_without_the_key_the_header_has_the_most_columns_that_it_can():
    assert delimiter_of("a.csv", b"a;b,c;d\n", "url") == ";"
    assert delimiter_of("a.csv", b"a,b;c\n", "url") == ","
    assert delimiter_of("a.tsv", b"a\n", "url") == "\t"
    assert delimiter_of("a.csv", b"", "url") == ","


def test_in_a_table_with_semicolons_a_comma_begins_a_fraction(tmp_path):
    text = "url;importance\nhttps://a.test/1;12,25\nhttps://a.test/2;1,500\n"
    rows, _ = read_file(write_file(tmp_path / "a.csv", None, text), "pages")
    assert [r["importance"] for r in rows] == [12.25, 1.5]
    # Alone it may be 1500, and beside commas 12,25 may lack a digit.
    for doubtful in (
        "url;importance\nhttps://a.test/2;1,500\n",
        'url,importance\nhttps://a.test/1,"12,25"\n',
    ):
        rows, rejected = read_file(write_file(tmp_path / "b.csv", None, doubtful), "pages")
        assert (rows, reasons(rejected)) == ([], [(2, "bad_importance")])


def test_bytes_that_are_not_utf8_cost_their_row_only(tmp_path):
    good = f"{URL},2026-01-02,200\n".encode()
    bad = b"https://a.test/\xff,2026-01-02,200\n"
    rows, rejected = read_file(
        write_file(tmp_path / "a.csv", None, b"url,fetched_at,status\n" + good + bad + good)
    )
    assert len(rows) == 2
    assert reasons(rejected) == [(3, "bad_utf8")]
    assert rejected[0]["sample"] == "https://a.test/\ufffd"
    line = b'{"url":"https://a.test/\xff","fetched_at":1767323045}\n'
    good = b'{"url":"https://a.test/x","fetched_at":1767323045}\n'
    for broken in (b"", b"{\n"):
        rows, rejected = read_file(write_file(tmp_path / "a.jsonl", None, good + line + good + broken))
        assert len(rows) == 2
        assert (2, "bad_utf8") in reasons(rejected)


def test_several_gzip_members_are_one_file(tmp_path):
    header, line = b"url,fetched_at\n", f"{URL},2026-01-02\n".encode()
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(header + line) + gzip.compress(line) + gzip.compress(b"") + b"\0" * 512)
    rows, rejected = read_file(path)
    assert len(rows) == 2
    assert rejected == []


def test_a_line_without_end_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(text_blocks, "MAX_RECORD_BYTES", 4000)
    good = f'{{"url":"{URL}","fetched_at":1767323045}}\n'
    rows, rejected = read_file(write_file(tmp_path / "a.jsonl", None, good + "x" * 20_000 + "\n" + good * 2))
    assert len(rows) == 3
    assert reasons(rejected) == [(2, "line_too_long")] and " MiB (JSON: jq" in rejected[0]["sample"]


@pytest.mark.parametrize("chunk", [1, 64, 8 << 20])
def test_a_header_that_stands_again_in_the_middle(tmp_path, monkeypatch, chunk):
    """Feeds that were appended to: in quotes, with blanks, with the mark of UTF-8, with what looks alike."""
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", chunk)
    text = "url,status,fetched_at,note\nhttps://a.test/0,200,2026-01-02,\nurl,status,fetched_at,note\n"
    text += 'https://a.test/1,200,2026-01-02,"a\nb"\n"url","status","fetched_at","note"\r\n'
    text += "\ufeffurl,status, fetched_at,note\n"
    text += "https://a.test/2,200,2026-01-02,\nurl,200,fetched_at,\n"
    rows, rejected = read_file(write_file(tmp_path / "a.csv", None, text))
    assert [r["url"][15:] for r in rows] == ["0", "1", "2"]
    noted = [(3, "repeated_header"), (6, "repeated_header"), (7, "repeated_header"), (9, "bad_url")]
    assert reasons(rejected) == noted


# --- JSON Lines --------------------------------------------------------------------------------------

JSONL = """{"url":"https://a.test/0","fetched_at":"2026-01-01T02:03:04+01:00","status":200,"digest":"2026-01-01"}
{"url":"https://a.test/1","fetched_at":1767830584,"status":304,"other":{"a":[1]}}

[
{"url":"https://a.test/2","fetched_at":1767830584,"status":"x"},
{"url":["https://a.test/3"],"fetched_at":1767830584.5,"status":null},
{"status":200}
{"url":"https://a.test/4","fetched_at":"20260101020304","digest":"2026-01-01","changed":true}
]
17
{"url":"https://a.test/5","fetched_"""
JSONL_REASONS = [(5, "bad_status"), (7, "no_url"), (10, "bad_json"), (11, "bad_json")]


@pytest.mark.parametrize("chunk", [1, 50, 120, 8 << 20])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_jsonl_with_all_its_corners_for_any_block(tmp_path, monkeypatch, chunk, name):
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", chunk)
    rows, rejected = read_file(write_file(tmp_path / name, None, JSONL))
    assert [r["url"] for r in rows] == [f"https://a.test/{i}" for i in (0, 1, 3, 4)]
    assert rows[0]["fetched_at"] == dt.datetime(2026, 1, 1, 1, 3, 4, tzinfo=dt.UTC)
    assert rows[2]["fetched_at"] == dt.datetime(2026, 1, 8, 0, 3, 4, 500000, tzinfo=dt.UTC)
    assert rows[0]["digest_hash"] == rows[3]["digest_hash"]
    assert reasons(rejected) == JSONL_REASONS


def test_metadata_of_pages_whichever_record_has_them(tmp_path):
    lines = ['{"url":"https://a.test/1","kind":"2026-01-01","importance":1}',
             '{"url":"https://a.test/2","importance":1.5,"price":10}']  # fmt: skip
    path = write_file(tmp_path / "a.jsonl", None, "\n".join(lines))
    rows, _ = read_file(path, "pages")
    assert [r["kind"] for r in rows] == ["2026-01-01", None]
    assert [r["price"] for r in rows] == [None, "10"]
    assert [r["importance"] for r in rows] == [1.0, 1.5]
    rows, _ = read_file(path, "pages", ["price"])
    assert [list(r)[5:6] for r in rows] == [["price"]] * 2


notes = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
records = st.lists(st.tuples(st.sampled_from([URL, "bad", "", URL + "?a,b"]), notes, notes), max_size=12)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records, st.integers(1, 200), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_whatever_a_csv_writer_writes_comes_back_row_by_row(
    tmp_path, monkeypatch, records, chunk, end, quote
):
    if not quote:
        # Python's writer may leave a lone carriage return without quotes.
        records = [(u, n.replace("\r", ""), o.replace("\r", "")) for u, n, o in records]
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", chunk)
    with open(tmp_path / "a.csv", "w", newline="", encoding="utf-8") as f:
        writer = csv.writer(f, lineterminator=end, quoting=csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL)
        writer.writerow(["note", "url", "fetched_at", "other"])
        writer.writerows((note, url, "2026-01-02", other) for url, note, other in records)
    rows, rejected = read_file(tmp_path / "a.csv", "observations")
    assert [r["url"] for r in rows] == [url for url, _, _ in records if url.startswith(URL)]
    assert sorted(r["reason"] for r in rejected) == sorted(
        "no_url" if not url else "bad_url" for url, _, _ in records if not url.startswith(URL)
    )


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records, st.integers(1, 200), st.lists(st.sampled_from(["{", "[1]", "null", '{"url":'])))
def test_whatever_a_json_writer_writes_comes_back_row_by_row(tmp_path, monkeypatch, records, chunk, junk):
    monkeypatch.setattr(unpacking, "CHUNK_BYTES", chunk)
    lines = [json.dumps({"note": n, "url": url, "fetched_at": 1767323045, n: o}) for url, n, o in records]
    lines = [json.dumps({"url": URL, "fetched_at": 1767323045}), *lines, *junk]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    rows, rejected = read_file(tmp_path / "a.jsonl", "observations")
    assert len(rows) + len(rejected) == len(lines)
    assert sum(r["reason"] == "bad_json" for r in rejected) == len(junk)


def test_a_lone_carriage_return_ends_a_record(tmp_path):
    text = f"url,fetched_at,note\n{URL},2026-01-02,a\rb\n{URL},2026-01-02,c\n"
    rows, rejected = read_file(write_file(tmp_path / "a.csv", None, text))
    assert len(rows) == 2
    assert [r["reason"] for r in rejected] == ["column_count"]
    rows, _ = read_file(write_file(tmp_path / "b.csv", None, f"url,fetched_at\r{URL},2026-01-02\r"))
    assert len(rows) == 1


def test_a_huge_field_that_nobody_reads(tmp_path):
    text = f'url,fetched_at,note\n{URL},2026-01-02,"{"x" * 500_000}"\nbad,2026-01-02,\n'
    rows, rejected = read_file(write_file(tmp_path / "a.csv", None, text))
    assert len(rows) == 1
    assert [r["reason"] for r in rejected] == ["bad_url"]


def test_names_that_are_not_utf8_cost_nothing_but_themselves(tmp_path):
    line = b'{"url":"https://a.test/x","fetched_at":1767323045,"caf\xe9":1,"digest":"d"}\n'
    rows, rejected = read_file(write_file(tmp_path / "a.jsonl", [], line * 2))
    assert [row["url"] for row in rows] == ["https://a.test/x"] * 2 and not rejected
    assert rows[0]["digest_hash"] is not None


DEEP = {
    "arrays": "[" * 100_000 + "]" * 100_000,
    "objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "open": "[" * 100_000,
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
@pytest.mark.parametrize("kind", ["observations", "pages"])
@pytest.mark.parametrize("first", [True, False])
def test_json_that_is_nested_without_end_costs_its_line_only(tmp_path, kind, first, deep):
    good = f'{{"url": "{URL}", "fetched_at": "2026-01-02", "status": 200}}\n'
    text = f"{deep}\n{good}" if first else f"{good}{deep}\n"
    rows, rejected = read_file(write_file(tmp_path / "a.jsonl", None, text), kind)
    assert [r["url"] for r in rows] == [URL]
    # Arrow skips a value that nobody asks for, however deep; a line is a row all the same.
    assert len(rejected) == 1


def test_a_wrong_row_of_csv_that_is_not_utf8_is_rejected_in_silence(tmp_path, capfd):
    text = f"url,fetched_at,status\n{URL},2026-01-02,200\n".encode() + b"\xff,\xfe\n"
    rows, rejected = read_file(write_file(tmp_path / "a.csv", None, text))
    assert len(rows) == 1 and reasons(rejected) == [(3, "column_count")]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("broken", [False, True])
def test_values_that_name_their_type_as_mongodb_exports_them(tmp_path, broken):
    """Line by line, too, which is how a block with a broken line is read."""
    moment = 1780272000000
    records = [
        {
            "_id": {"$oid": "6"},
            "url": f"{URL}{i}",
            "fetched_at": {"$date": at},
            "status": status,
            "digest": "A",
        }
        for i, (at, status) in enumerate(
            [
                (moment, {"$numberInt": "200"}),
                ({"$numberLong": str(moment)}, 200),
                ("2026-06-01T00:00:00Z", {"$numberLong": "200"}),
            ]
        )
    ]
    for i, record in enumerate(records):
        # Each form alone, and all in one file.
        some = [record, record] if i else records
        lines = "".join(json.dumps(r) + "\n" for r in some) + "{\n" * broken
        rows, rejected = read_file(write_file(tmp_path / f"{i}.jsonl", None, lines))
        assert len(rejected) == broken and len(rows) == len(some)
        assert {(r["fetched_at"].isoformat(), r["status"]) for r in rows} == {
            ("2026-06-01T00:00:00+00:00", 200)
        }


def test_numbers_of_json_are_no_texts_of_people(tmp_path):
    """Read one by one for their types differ; a fraction with three digits is no group of thousands."""
    day = {"url": URL, "day": "2026-01-02"}
    text = "".join(json.dumps(day | {"clicks": n}) + "\n" for n in (1, 12.345, "12,345", 0.5))
    for lines in (text, text.replace('"12,345"', "7")):
        rows, _ = read_file(write_file(tmp_path / "a.jsonl", None, lines), "requests")
        assert [round(r["clicks"] / 2**20, 3) for r in rows][:2] == [1, 12.345]
