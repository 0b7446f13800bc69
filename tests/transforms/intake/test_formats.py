"""Files of every format and in every bad state."""

import bz2
import datetime as dt
import gzip
import lzma
import os
import random

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.transforms.read_files import OBSERVATIONS, URL, read_file, reasons, write_file
from transforms.batches import values
from transforms.batches.errors import InputError
from transforms.dialects import parquet
from transforms.files.filesystems import InputFile
from transforms.files.inputs import match_files, split_patterns
from transforms.intake import formats
from transforms.intake.sources import slices

NAMES = ["a.parquet", "a.avro", "a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz"]


@pytest.mark.parametrize("name", NAMES)
def test_all_formats_say_the_same(tmp_path, name):
    rows, rejected = read_file(write_file(tmp_path / name, OBSERVATIONS))
    expected, _ = read_file(write_file(tmp_path / "other.parquet", OBSERVATIONS))
    assert rejected == []
    assert rows == expected
    assert len(rows) == 50


@pytest.mark.parametrize("name", NAMES)
def test_the_name_does_not_matter_where_the_bytes_tell(tmp_path, name):
    path = write_file(tmp_path / name, OBSERVATIONS)
    other = tmp_path / "noname"
    other.write_bytes(path.read_bytes())
    assert read_file(other)[0] == read_file(path)[0]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_column_is_an_error_that_names_what_there_is(tmp_path, name):
    records = [{"url": r["url"], "when": r["fetched_at"]} for r in OBSERVATIONS]
    with pytest.raises(InputError, match=rf"{name}: .* column fetched_at\. The file has: url, when"):
        read_file(write_file(tmp_path / name, records))


@pytest.mark.parametrize("name", [n for n in NAMES if "parquet" not in n])
def test_mixed_spellings_of_time_in_one_column(tmp_path, name):
    times = ["2026-01-02T04:04:05+01:00", "1767323045", "1767323045000", "Fri, 02 Jan 2026 03:04:05 GMT", "x"]
    records = [{"url": URL, "fetched_at": t.replace(",", "")} for t in times]
    rows, rejected = read_file(write_file(tmp_path / name, records))
    assert {r["fetched_at"] for r in rows} == {dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)}
    assert reasons(rejected) == [({"a": 4, "j": 5, "c": 6}[name[2]], "bad_timestamp")]


@pytest.mark.parametrize("name", NAMES)
def test_empty_files_have_no_rows(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"")
    assert read_file(path) == ([], [])


def test_files_without_a_single_row(tmp_path):
    schema = pa.schema([("url", pa.string()), ("fetched_at", pa.int64())])
    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("url,fetched_at\n")
    (tmp_path / "b.csv").write_text("url,fetched_at")
    (tmp_path / "a.jsonl").write_text("\n\n")
    for path in sorted(tmp_path.iterdir()):
        assert read_file(path) == ([], [])
    (tmp_path / "c.csv").write_text("url\n")
    pq.write_table(schema.empty_table().select(["url"]), tmp_path / "b.parquet")
    for name in ("c.csv", "b.parquet"):
        with pytest.raises(InputError, match="fetched_at"):
            read_file(tmp_path / name)


# --- damage ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.1, 0.5, 0.93, 0.999])
@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.gz", "a.avro"])
def test_of_a_truncated_file_the_readable_part_counts(tmp_path, name, share):
    rng = random.Random(1)
    records = [{"url": f"https://a.test/{rng.random()}", "fetched_at": 1767323045 + i} for i in range(3000)]
    path = write_file(tmp_path / name, records)
    whole, _ = read_file(path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    rows, rejected = read_file(path)
    assert reasons(rejected) == [(-1, "truncated_file")]
    # Never half a row: a line that is cut off may look whole.
    assert rows == whole[: len(rows)]
    assert len(rows) > (share - 0.2) * 3000


@pytest.mark.parametrize("size", [3, 100, -1])
def test_a_truncated_parquet_file_is_rejected(tmp_path, size):
    path = write_file(tmp_path / "a.parquet", OBSERVATIONS)
    path.write_bytes(path.read_bytes()[:size])
    rows, rejected = read_file(path)
    assert rows == []
    assert reasons(rejected) == [(-1, "truncated_file")]
    assert rejected[0]["source"] == str(path)


def test_a_damaged_row_group_does_not_take_the_others_along(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(OBSERVATIONS), path, row_group_size=10, use_dictionary=False)
    whole, _ = read_file(path)
    column = pq.ParquetFile(path).metadata.row_group(2).column(0)
    data = bytearray(path.read_bytes())
    start = column.data_page_offset
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    rows, rejected = read_file(path)
    assert reasons(rejected) == [(-1, "unreadable_file")]
    assert "rows 20 to 29" in rejected[0]["sample"]
    assert rows == whole[:20] + whole[30:]


def test_garbage_is_rejected_not_raised(tmp_path):
    for name in ("a.parquet", "a.avro"):
        (tmp_path / name).write_bytes(b"PAR1" * 50 if name == "a.parquet" else b"Obj\x01" + b"\xff" * 100)
        rows, rejected = read_file(tmp_path / name)
        assert rows == []
        assert reasons(rejected) == [(-1, "unreadable_file")]
    data = bytearray(write_file(tmp_path / "a.csv.gz", OBSERVATIONS).read_bytes())
    data[-6] ^= 1
    (tmp_path / "a.csv.gz").write_bytes(data)
    assert reasons(read_file(tmp_path / "a.csv.gz")[1]) == [(-1, "unreadable_file")]
    (tmp_path / "noname").write_bytes(b"hello world")
    with pytest.raises(InputError, match="noname: not Parquet, Avro, JSON Lines or CSV"):
        read_file(tmp_path / "noname")
    (tmp_path / "wide.csv").write_bytes("url,fetched_at\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        read_file(tmp_path / "wide.csv")


@pytest.mark.parametrize("name", ["a.jsonl", "crawl.log", "part-00000", "a.cdx", "a.csv"])
def test_text_of_another_encoding_or_packed_twice_is_refused_with_the_way_out(tmp_path, name):
    for codec in ("utf-16", "utf-16-be"):
        mark = "\ufeff" if codec.endswith("be") else ""
        (tmp_path / name).write_bytes(f'{mark}{{"url": "{URL}"}}\n'.encode(codec))
        with pytest.raises(InputError, match=r"UTF-16 text, expected UTF-8.*iconv"):
            read_file(tmp_path / name)
    (tmp_path / name).write_bytes(gzip.compress(gzip.compress(b'{"url": 1}\n' * 9)))
    with pytest.raises(InputError, match="gzip twice"):
        read_file(tmp_path / name)


def test_a_pipe_does_not_pass_for_an_empty_file(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="a pipe or a device"):
        read_file(tmp_path / "a.jsonl")
    assert read_file(os.devnull) == ([], [])


# --- Parquet and Avro --------------------------------------------------------------------------------


def test_row_groups_of_all_sizes_are_split_and_numbered(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH_ROWS", 20)
    monkeypatch.setattr(parquet, "READ_ROWS", 8)
    path = tmp_path / "a.parquet"
    urls = [r["url"] if i % 11 else "bad" for i, r in enumerate(OBSERVATIONS)]
    table = pa.table({"url": urls, "fetched_at": [r["fetched_at"] for r in OBSERVATIONS]})
    for sizes in ([1] * 50, [50], [0, 30, 5, 15], [19, 2, 29]):
        with pq.ParquetWriter(path, table.schema) as writer:
            start = 0
            for size in sizes:
                writer.write_table(table.slice(start, size))
                start += size
        splits = formats.plan(InputFile(str(path), 1))
        assert [s.groups[0] for s in splits[1:]] == [s.groups[1] for s in splits[:-1]]
        assert len(splits) == {50: 3, 1: 1, 4: 3, 3: 3}[len(sizes)] or len(splits) > 1
        rows, rejected = read_file(path)
        assert [r["row"] for r in rejected] == list(range(0, 50, 11))
        assert [r["url"] for r in rows] == [u for u in urls if u != "bad"]


def test_batches_are_cut_by_rows_and_bytes():
    batch = pa.RecordBatch.from_pydict({"x": np.arange(1000), "y": ["y" * 92] * 1000})
    parts = list(slices(batch, 300, 1 << 30))
    assert max(p.num_rows for p in parts) <= 300
    parts = list(slices(batch, 10**6, 10_000))
    assert max(p.num_rows for p in parts) <= 100
    assert pa.Table.from_batches(parts).equals(pa.Table.from_batches([batch]))
    assert list(slices(batch.slice(0, 0))) == []


def test_int96_timestamps_do_not_wrap(tmp_path):
    path = tmp_path / "a.parquet"
    moments = [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 2, 3, 4, 5), dt.datetime(9999, 1, 1)]
    table = pa.table({"url": [URL] * 3, "fetched_at": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)
    rows, rejected = read_file(path)
    assert [r["fetched_at"].replace(tzinfo=None) for r in rows] == moments[1:2]
    assert reasons(rejected) == [(0, "bad_timestamp"), (2, "bad_timestamp")]


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def _avro(path, records, **types):
    fields = [{"name": n, "type": t} for n, t in types.items()]
    with open(path, "wb") as f:
        fastavro.writer(f, {"type": "record", "name": "r", "fields": fields}, records)
    return path


def test_avro_types(tmp_path):
    good = {
        "url": URL,
        "fetched_at": 1767323045678901,
        "status": None,
        "digest": b"\1\2\3\4",
        "changed": True,
        "last_modified": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        "tags": ["x"],
    }
    # A year that Python's datetime cannot hold must not take the block along.
    far = good | {"fetched_at": 253402300800000000 * 2, "status": 99999}
    path = _avro(
        tmp_path / "a.avro",
        [good, far],
        url="string",
        fetched_at=MICROS,
        status=["null", "int"],
        digest={"type": "fixed", "name": "four", "size": 4},
        changed=["null", "boolean"],
        last_modified=["null", MILLIS],
        tags={"type": "array", "items": "string"},
    )
    rows, rejected = read_file(path)
    assert len(rows) == 1
    assert rows[0]["fetched_at"] == dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
    assert rows[0]["changed"] is True
    assert rows[0]["digest_hash"] is not None
    assert rows[0]["last_modified"] == dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert reasons(rejected) == [(1, "bad_timestamp")]


def test_an_avro_column_that_holds_lists(tmp_path):
    record = {"url": URL, "fetched_at": 1767323045678901, "digest": [1]}
    lists = ["null", {"type": "array", "items": "int"}]
    path = _avro(tmp_path / "a.avro", [record], url="string", fetched_at=MICROS, digest=lists)
    with pytest.raises(InputError, match="the column digest is list"):
        read_file(path)


# --- which files -------------------------------------------------------------------------------------


def test_patterns(tmp_path):
    made = "b.csv a.jsonl.gz _SUCCESS .hidden.csv notes.txt day=1/c.parquet _tmp/d.csv"
    for name in made.split():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")

    def names(*patterns, **options):
        found = match_files(",".join(f"{tmp_path}/{p}" if p else str(tmp_path) for p in patterns), **options)
        return [os.path.relpath(f.path, tmp_path) for f in found]

    everything = ["a.jsonl.gz", "b.csv", "day=1/c.parquet"]
    assert names("") == names("./") == everything
    assert names("*.csv", "b.csv", "*/c.parquet") == ["b.csv", "day=1/c.parquet"]
    assert names("*") == ["a.jsonl.gz", "b.csv", "notes.txt"]
    assert names(".hidden.csv") == [".hidden.csv"]
    assert names("*/*", "*/*.csv", required=False) == ["day=1/c.parquet"]
    assert names("**", "**.csv") == ["a.jsonl.gz", "b.csv", "day=1/c.parquet", "notes.txt"]
    # What is written out is meant.
    assert names("_tmp/*.csv", "_t*/*", ".hidden.*") == [".hidden.csv", "_tmp/d.csv"]
    assert names("_tmp") == ["_tmp/d.csv"]
    with pytest.raises(InputError, match=r"--observations: no file matches: .*/z\*"):
        names("*.csv", "z*", option="observations")
    assert names("z*", required=False) == []
    with pytest.raises(InputError, match="no file matches"):
        names("z.csv", required=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no data file in this folder"):
        names("empty")
    assert split_patterns(" a*, b ,,") == ["a*", "b"]


def test_a_file_and_the_same_one_packed_count_once(tmp_path, caplog):
    lines = "".join(f"line {i} of a log\n" for i in range(9000))
    made = {
        # Packed while it is still there; the packed one is cut, or has not even begun.
        "a.log": lines, "a.log.gz": gzip.compress(lines.encode()),
        "b.log": lines, "b.log.gz": gzip.compress(lines.encode())[:5000],
        "c.log": lines, "c.log.gz": b"",
        # Unpacked, and not at its end yet.
        "d.log": lines[:70], "d.log.gz": gzip.compress(lines.encode()),
        # A new log beside the old one: two files.
        "e.log": lines[10:], "e.log.gz": gzip.compress(lines.encode()),
        "f.log": "", "f.log.gz": gzip.compress(lines.encode()),
    }  # fmt: skip
    for name, content in made.items():
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    found = [os.path.basename(f.path) for f in match_files(f"{tmp_path}/*", "requests")]
    assert found == ["a.log", "b.log", "c.log", "d.log.gz", "e.log", "e.log.gz", "f.log", "f.log.gz"]
    told = [f"{tmp_path}/{name}" in caplog.text for name in ("a.log.gz", "d.log, as", "e.log")]
    assert told == [True, True, False]
    # By itself, each is read.
    assert [f.path for f in match_files(f"{tmp_path}/a.log.gz")] == [f"{tmp_path}/a.log.gz"]


def test_a_folder_that_cannot_be_read_is_no_empty_one(tmp_path, monkeypatch):
    """Where files in it might match: what they have would be missing without a word."""
    for name in ("a/1/x.csv", "a/2/x.csv", "b/1/x.csv", "_b/1/x.csv", "a/1/deep/er/x.csv", "y.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("url")
    closed: list[str] = []
    scan, stat = os.scandir, os.stat

    def shut(of):
        def opened(path, *more, **options):
            if str(path).startswith(tuple(f"{tmp_path}/{name}" for name in closed)):
                raise PermissionError(13, "Permission denied", str(path))
            return of(path, *more, **options)

        return opened

    def found(pattern):
        return [os.path.relpath(f.path, tmp_path) for f in match_files(f"{tmp_path}/{pattern}")]

    everything = [
        "*/*/x.csv",
        "*/*/*.csv",
        "a/*/*.csv",
        "a/1/*",
        "a/**",
        "**",
        "**/x.csv",
        "",
        "a*/**",
        "?/[1]/x.csv",
    ]
    before = {pattern: found(pattern) for pattern in everything}
    assert before["*/*/x.csv"] == ["a/1/x.csv", "a/2/x.csv", "b/1/x.csv"] and len(before["**"]) == 5
    monkeypatch.setattr(os, "scandir", shut(scan))
    assert {pattern: found(pattern) for pattern in everything} == before
    closed[:] = ["a/1"]
    for pattern in everything:
        with pytest.raises(InputError, match=r"a/1: cannot be read: Permission denied.*leave it out"):
            found(pattern)
    for pattern in ("*", "b/*/*.csv", "b/**", "*/2/*.csv", "[!a]/**", "a/*2*/**"):
        assert found(pattern)
    closed[:] = ["_b", "c", "a/1/deep"]
    assert found("*/*/x.csv") and found("b")
    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(os, "stat", shut(stat))  # a folder that can be listed, and no more
    closed[:] = ["a/1/"]
    with pytest.raises(InputError, match=r"a/1/x.csv: cannot be read"):
        found("a/*/x.csv")


def test_what_is_utf8():
    """Of bytes whether they are, of a text whether it can be written so."""
    assert all(map(values.is_utf8, ("", b"", "é\0", "é".encode())))
    assert not any(map(values.is_utf8, ("\ud800", "a\udce9", b"\xe9", "é".encode()[:1])))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bz2.compress(b"{}"), "packed by bzip2, expected gzip or nothing. Unpack it: bunzip2 FILE"),
        (lzma.compress(b"{}"), "packed by xz"),
        (pa.compress(b"{}", "zstd", asbytes=True), "packed by zstd"),
        (b"PK\x03\x04 a.txt", "packed by zip"),
        (b"PK\x03\x04 [Content_Types].xml", "a spreadsheet, expected a table of text"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "a spreadsheet, expected a table of text"),
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.log", "a.bz2"])
def test_a_file_that_something_else_has_packed_says_what_unpacks_it(tmp_path, content, said, name):
    (tmp_path / name).write_bytes(content)
    for kind in ("observations", "requests", "pages"):
        with pytest.raises(InputError, match=said):
            formats.plan(InputFile(str(tmp_path / name), len(content)), kind)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ('192.0.2.1 - - [01/Jan/2026:00:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "Firefox"\n', "observations",
         "this is access_log; give it to --requests"),
        ("2026-01-01T02:03:05.010Z 200 5120 https://a.test/ L - text/html #012 20260101020304500+310 - - -\n",
         "requests", "this is heritrix; give it to --observations"),
        ("words and words\n", "observations", "not Parquet, Avro, JSON Lines or CSV"),
    ],
)  # fmt: skip
def test_a_file_that_belongs_to_another_option_says_which(tmp_path, text, kind, said):
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError, match=said):
        formats.plan(InputFile(str(tmp_path / "file"), len(text)), kind)
