"""Cutting batches by shard: every row once, in order, hosts whole."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.sharding import ShardBuffer, partition


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=200), st.sampled_from([7, 70_000]))
def test_partition_conserves_rows_and_order(shards, num_shards):
    batch = pa.RecordBatch.from_pydict({"i": pa.array(np.arange(len(shards)))})
    shard = np.asarray(shards, np.uint64)
    seen = {}
    for number, part in partition(batch, shard, num_shards):
        assert number not in seen and part.num_rows
        seen[number] = part.column("i").to_pylist()
    assert sorted(i for rows in seen.values() for i in rows) == list(range(len(shards)))
    for number, rows in seen.items():
        assert rows == sorted(rows)
        assert {shards[i] for i in rows} == {number}


@pytest.mark.parametrize("cut", [1, 13, 4000])
def test_small_batches_are_gathered(cut):
    rows = 4000
    rng = np.random.default_rng(0)
    whole = pa.RecordBatch.from_pydict(
        {"host_hash": pa.array(rng.integers(0, 50, rows).astype(np.uint64)), "i": pa.array(np.arange(rows))},
    ).replace_schema_metadata({b"recrawl": b"observations"})
    buffer = ShardBuffer(4, 1 << 18)
    out = [e for at in range(0, rows, cut) for e in buffer.add(whole.slice(at, cut))]
    out += buffer.flush()
    assert len(out) == 4  # one batch a shard, however the input was cut
    got = sorted(i for _, b in out for i in b.column("i").to_pylist())
    assert got == list(range(rows))
    for shard, batch in out:
        assert (batch.column("host_hash").to_numpy() % 4 == shard).all()
        assert batch.schema.metadata[b"recrawl"] == b"observations"


def test_batches_of_other_columns_stay_apart():
    buffer = ShardBuffer(1, 1 << 18)
    a = pa.RecordBatch.from_pydict({"host_hash": pa.array([1], pa.uint64())}).replace_schema_metadata(
        {b"k": b"1"}
    )
    b = pa.RecordBatch.from_pydict(
        {"host_hash": pa.array([2], pa.uint64()), "x": ["y"]}
    ).replace_schema_metadata({b"k": b"1"})
    assert list(buffer.add(a)) + list(buffer.add(b)) == []
    out = list(buffer.flush())
    assert [batch.schema.names for _, batch in out] == [["host_hash"], ["host_hash", "x"]]


def test_a_full_buffer_is_cut():
    buffer = ShardBuffer(2, 5)
    batch = pa.RecordBatch.from_pydict({"host_hash": pa.array(range(3), pa.uint64())})
    assert list(buffer.add(batch)) == []
    assert sorted((shard, part.num_rows) for shard, part in buffer.add(batch)) == [(0, 4), (1, 2)]
    assert list(buffer.flush()) == []
