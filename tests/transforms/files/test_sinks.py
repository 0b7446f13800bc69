"""Files: same rows, same bytes; nothing half-written stays; names and checksums are true."""

import hashlib
import json

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transforms.batches import schemas
from transforms.files.shard_files import shard_name, write_shard
from transforms.files.sinks import read_json, write_file, write_json


def _rows(n=1000):
    return pa.RecordBatch.from_pydict(
        {
            "url": [f'https://a.test/{i}?q="é"' for i in range(n)],
            "due_at": pa.array(np.arange(n) * 1_000_000).cast(schemas.TIME),
            "value": pa.array([np.inf if i == 1 else float(i) for i in range(n)]),
            "count": pa.array(range(n), pa.int32(), mask=np.arange(n) == 2),
            "flag": pa.array([i % 2 == 0 for i in range(n)]),
        }
    )


@pytest.mark.parametrize("file_format", ["parquet", "avro", "jsonl"])
def test_same_rows_same_bytes_and_true_checksum(tmp_path, file_format):
    infos = [write_shard(str(tmp_path / d), "pages", 3, 16, _rows(), file_format) for d in "ab"]
    assert infos[0] == infos[1]
    info = infos[0]
    assert info.path == f"pages/shard-00003-of-00016.{file_format}"
    data = (tmp_path / "a" / info.path).read_bytes()
    assert (info.rows, info.bytes, info.sha256) == (1000, len(data), hashlib.sha256(data).hexdigest())
    assert [p.name for p in (tmp_path / "a" / "pages").iterdir()] == ["shard-00003-of-00016." + file_format]


def test_formats_carry_the_same_rows(tmp_path):
    expected = _rows().to_pylist()
    for file_format in ("parquet", "avro", "jsonl"):
        write_shard(str(tmp_path), "pages", 0, 1, _rows(), file_format)
    base = tmp_path / "pages"
    assert pq.read_table(base / "shard-00000-of-00001.parquet").to_pylist() == expected
    with open(base / "shard-00000-of-00001.avro", "rb") as f:
        assert list(fastavro.reader(f)) == expected
    lines = [json.loads(line) for line in (base / "shard-00000-of-00001.jsonl").read_text().splitlines()]
    assert [line["url"] for line in lines] == [row["url"] for row in expected]
    assert lines[1]["value"] is None and lines[2]["count"] is None
    assert lines[5]["due_at"] == "1970-01-01T00:00:05.000000Z"


def test_a_failed_write_leaves_nothing_and_keeps_the_old(tmp_path):
    write_file(str(tmp_path), "pages/x", b"old", 1)

    def fails(target):
        target.write(b"half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_file(str(tmp_path), "pages/x", fails, 1)
    assert [p.name for p in (tmp_path / "pages").iterdir()] == ["x"]
    assert (tmp_path / "pages" / "x").read_bytes() == b"old"


def test_json_is_strict_and_keeps_its_order(tmp_path):
    write_json(
        str(tmp_path),
        "m.json",
        {"b": np.float64("nan"), "a": [np.int64(1), float("inf")], "c": {"d": (1, 2)}},
    )
    text = (tmp_path / "m.json").read_text()
    assert list(json.loads(text)) == ["b", "a", "c"]
    assert "NaN" not in text and "Infinity" not in text
    assert read_json(str(tmp_path / "m.json")) == {"a": [1, None], "b": None, "c": {"d": [1, 2]}}
    assert read_json(str(tmp_path / "none.json")) is None


def test_names_sort_by_shard():
    for num_shards in (100_000, 1_000_000):
        names = [shard_name("pages", i, num_shards, ".parquet") for i in (0, 9, 10, 99_999, num_shards - 1)]
        assert names == sorted(names)
    assert shard_name("pages", 7, 16, ".parquet") == "pages/shard-00007-of-00016.parquet"
