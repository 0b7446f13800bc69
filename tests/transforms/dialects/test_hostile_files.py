"""Files that mean harm: a few bytes that stand for more memory, time or stack than there is."""

import bz2
import io
import json
import lzma
import subprocess
import sys
import zlib

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.transforms.read_files import URL, read_file, reasons
from transforms.batches.errors import InputError
from transforms.dialects import avro, json_records

SYNC = bytes(range(16))
COLUMNS = [{"name": "url", "type": "string"}, {"name": "fetched_at", "type": "long"}]
ROW = {"url": URL, "fetched_at": 1767323045}
BILLION = 10**9


def _long(value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def _text(text):
    return _long(len(text)) + text


def _row(**more):
    return _text(URL.encode()) + _long(1767323045) + b"".join(more.values())


def _header(*more, codec=b"null", schema=None):
    schema = schema or {"type": "record", "name": "r", "fields": [*COLUMNS, *more]}
    values = {b"avro.schema": json.dumps(schema).encode(), b"avro.codec": codec}
    return b"Obj\1" + _long(2) + b"".join(_text(k) + _text(v) for k, v in values.items()) + b"\0" + SYNC


def _block(rows, data, size=None):
    return _long(rows) + _long(len(data) if size is None else size) + data + SYNC


def _read(tmp_path, data, kind="observations"):
    (tmp_path / "a.avro").write_bytes(data)
    return read_file(tmp_path / "a.avro", kind)


GOOD = _block(2, _row() * 2)


def _doubled(times):
    """A type that is twice the one before it, from one without bytes."""
    kind = {"type": "record", "name": "r0", "fields": []}
    for i in range(times):
        first = {"name": "a", "type": kind}
        kind = {"type": "record", "name": f"r{i + 1}", "fields": [first, {"name": "b", "type": f"r{i}"}]}
    return {"name": "x", "type": kind}


def _nested(times):
    kind = "string"
    for _ in range(times):
        kind = {"type": "array", "items": kind}
    return {"name": "x", "type": kind}


def _itself(*kinds):
    return {"name": "x", "type": {"type": "record", "name": "n", "fields": [
        {"name": "next", "type": kind} for kind in kinds]}}  # fmt: skip


SCHEMAS = {
    "a record in itself": _itself("n"),
    "a list of records": _itself(["null", "n"]),
    "a tree": _itself({"type": "array", "items": "n"}),
    "by names": _itself({"type": "map", "values": "n"}),
    "lists of nothing": {"name": "x", "type": {"type": "array", "items": "null"}},
    "lists of empty records": {
        "name": "x", "type": {"type": "array", "items": {"type": "record", "name": "e", "fields": []}}
    },
    "lists of no bytes": {
        "name": "x", "type": {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}}
    },
    "twice forty times": _doubled(40),
    "lists in lists": _nested(900),
    "more lists in lists": _nested(200),
    "a negative size": {"name": "x", "type": {"type": "fixed", "name": "f", "size": -5}},
    "no such type": {"name": "x", "type": "nothing"},
    "no type": {"name": "x", "type": []},
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_without_bounds_costs_its_file(name, tmp_path):
    """A type that holds itself ended the process: its reader needs a stack as deep as the data say."""
    rows, rejected = _read(tmp_path, _header(SCHEMAS[name]) + _block(2, _row() + b"\2" * 1000))
    assert rows == [] and reasons(rejected) == [(-1, "unreadable_file")]


def test_a_deep_schema_that_is_text_only(tmp_path):
    """Nested deeper than any parser goes."""
    text = b'{"type":"array","items":' * 100_000 + b'"null"' + b"}" * 100_000
    header = b"Obj\1" + _long(1) + _text(b"avro.schema") + _text(text) + b"\0" + SYNC
    rows, rejected = _read(tmp_path, header + GOOD)
    assert rows == [] and reasons(rejected) == [(-1, "unreadable_file")]


EMPTY = {
    "type": "record",
    "name": "r",
    "fields": [{"name": n, "type": "null"} for n in ("url", "fetched_at")],
}
BLOCKS = {
    "a billion rows": (_header(), _block(BILLION, _row())),
    "a billion rows without a byte": (_header(schema=EMPTY), _block(BILLION, b"")),
    "a negative count": (_header(), _block(-2, _row() * 2)),
    "a negative size": (_header(), _block(2, _row() * 2, size=-10)),
    "a huge size": (_header(), _block(2, _row() * 2, size=1 << 62)),
    "a huge number": (_header(), b"\xff" * 40),
    "a text of a billion bytes": (_header(), _block(1, _long(BILLION) + b"x" * 50)),
    "a text of a negative length": (_header(), _block(1, _long(-BILLION) + b"x" * 50)),
    "more rows than it says": (_header(), _block(1, _row() * 2)),
    "fewer rows than it says": (_header(), _block(3, _row() * 2)),
    "no rows and bytes": (_header(), _block(0, _row())),
    "another end": (_header(), GOOD[:-1] + b"\0"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_cannot_be_costs_what_follows(name, tmp_path):
    """Of a negative count, rows vanished and the file was sound. What came before is used."""
    header, block = BLOCKS[name]
    before = b"" if "without" in name else GOOD
    rows, rejected = _read(tmp_path, header + before + block + before)
    assert len(rows) == (2 if before else 0)
    assert reasons(rejected) == [(-1, "unreadable_file")]


def test_lists_of_a_billion_in_a_column_that_nobody_wants(tmp_path):
    """Whose items would take a byte each, if they were there; and many that are there are passed over."""
    tags = {"name": "tags", "type": {"type": "array", "items": "int"}}
    liar = _block(1, _row(tags=_long(BILLION) + b"\0"))
    assert reasons(_read(tmp_path, _header(tags) + liar)[1]) == [(-1, "unreadable_file")]
    many = _block(1, _row(tags=_long(1 << 20) + b"\0" * (1 << 20) + b"\0"))
    rows, rejected = _read(tmp_path, _header(tags) + many)
    assert len(rows) == 1 and not rejected


def _snappy(data):
    return pa.compress(data, "snappy", asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


def _deflate(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


PACKED = {
    "null": bytes,
    "deflate": _deflate,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstandard": lambda data: pa.compress(data, "zstd", asbytes=True),
    "snappy": _snappy,
}


@pytest.mark.parametrize("codec", PACKED)
def test_every_codec_and_its_bombs(codec, tmp_path, monkeypatch):
    """What unpacks to more than the limit is seen before it is unpacked."""
    pack = PACKED[codec]
    header = _header(codec=codec.encode())
    good = _block(2, pack(_row() * 2))
    rows, rejected = _read(tmp_path, header + good + good)
    assert len(rows) == 4 and not rejected
    for damaged in (_block(2, pack(_row() * 2)[:-5]), _block(2, b"\xff" * 30)):
        rows, rejected = _read(tmp_path, header + good + damaged)
        assert len(rows) == 2 and reasons(rejected) == [(-1, "unreadable_file")]
    monkeypatch.setattr(avro, "MAX_BLOCK_BYTES", 1 << 16)
    bomb = pack(_text(URL.encode() + b"x" * (1 << 20)) + _long(1767323045))
    rows, rejected = _read(tmp_path, header + good + _block(1, bomb))
    assert len(rows) == 2 and reasons(rejected) == [(-1, "unreadable_file")]
    assert max(len(avro._unpack(codec, pack(bytes(1 << 24)))), 1) <= (1 << 24 if codec == "null" else 65537)


def test_a_codec_that_nobody_knows_is_the_fault_of_its_writer(tmp_path):
    with pytest.raises(InputError, match="packed by lzo, expected one of null, deflate"):
        _read(tmp_path, _header(codec=b"lzo") + GOOD)


def test_types_of_columns_before_it(tmp_path):
    """A name may be defined in a column that is passed over; a text that is not UTF-8 costs its row."""
    enum = {"type": "enum", "name": "kind.Status", "symbols": ["A", "B"]}
    lists = {"name": "all", "type": {"type": "array", "items": enum}}
    digest = {"name": "digest", "type": ["null", "kind.Status"]}
    broken = _text(URL.encode() + b"\xff") + _long(1767323045)
    tail = _long(1) + _long(1) + b"\0" + _long(1) + _long(1)
    rows, rejected = _read(tmp_path, _header(lists, digest) + _block(2, _row(all=tail) + broken + tail))
    assert len(rows) == 1 and rows[0]["digest_hash"] and reasons(rejected) == [(1, "bad_utf8")]


CODE = """
import resource, sys
from tests.transforms.read_files import read_file
read_file(sys.argv[1]), read_file(sys.argv[2], "pages")
resource.setrlimit(resource.RLIMIT_CPU, (int(resource.getrusage(resource.RUSAGE_SELF).ru_utime) + 12,) * 2)
print(*(len(read_file(path, kind)[0]) for path in sys.argv[3:] for kind in ("observations", "pages")))
"""


def test_json_of_very_many_keys_takes_time_by_its_bytes(tmp_path):
    """By the square of the keys, 8,000 of them took half a minute of a processor."""
    many = {f"k{i}": i for i in range(8_000)}
    first = [{**ROW, **many}, ROW]
    later = [ROW, {**ROW, **many}]
    wrong = [{**ROW, **many}, {**ROW, "k1": "text"}]
    each = [{**ROW, f"k{i}": i} for i in range(1000)]
    paths = []
    for name, records in enumerate(([ROW], [ROW], first, later, wrong, each)):
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("".join(json.dumps(r) + "\n" for r in records))
    done = subprocess.run([sys.executable, "-c", CODE, *paths], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [str(n) for n in (2, 2, 2, 2, 2, 2, 1000, 1000)], done.stderr


@pytest.mark.parametrize("first", ["", ', "more": 1'])
def test_records_that_have_no_key_in_common(first, tmp_path, monkeypatch):
    """A table has a cell for each key of one in all others: 3 MB were 10 billion cells."""
    monkeypatch.setattr(json_records, "MAX_CELLS", 1 << 16)
    path = tmp_path / "a.jsonl"
    for value in ("1", '"x"', "{}"):
        keys = [f'{{"url": "{URL}{i}"{first if not i else ""}, "k{i}": {value}}}\n' for i in range(2000)]
        path.write_text("".join(keys))
        rows, (rejected,) = read_file(path, "pages")
        assert rows == [] and rejected["reason"] == "unreadable_file"
        assert "different keys in 2,00" in rejected["sample"]
        path.write_text("".join(keys[:200]))
        rows, rejected = read_file(path, "pages")
        assert len(rows) == 200 and not rejected


@pytest.mark.parametrize("number", ["of the file", "of a row group", "of a column"])
def test_a_footer_that_contradicts_itself_is_damage(number, tmp_path):
    """It lists fewer rows than it says there are: they were missing without a word."""
    path = tmp_path / "a.parquet"
    rows = [{**ROW, "fetched_at": ROW["fetched_at"] + i} for i in range(1000)]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=500)
    whole = path.read_bytes()
    size = int.from_bytes(whole[-8:-4], "little")
    footer = whole[-8 - size : -8]
    assert read_file(path)[1] == []
    old, new = (1000, 1500) if number == "of the file" else (500, 400)
    places = [i for i in range(size) if footer.startswith(_long(old), i)]
    reported = set()
    for place in places:
        changed = footer[:place] + _long(new) + footer[place + 2 :]
        path.write_bytes(whole[: -8 - size] + changed + whole[-8:])
        try:
            rows, rejected = read_file(path)
        except (InputError, ValueError):
            continue
        reported |= {r["sample"].split()[0] for r in rejected if r["reason"] == "unreadable_file"}
    assert {"of the file": "its", "of a row group": "its", "of a column": "column"}[number] in reported
