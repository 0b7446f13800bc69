"""Cutting batches by shard: every row once, in order, hosts whole."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.sharding import Layout, ShardBuffer, partition


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 2**20, 7 * 2**20, 2**40, 2**63, 2**64 - 1]), max_size=200),
    st.sampled_from([1, 7, 70_000]),
)
def test_partition_conserves_rows_and_keeps_hosts_together(hosts, num_shards):
    batch = pa.RecordBatch.from_pydict(
        {"i": pa.array(np.arange(len(hosts))), "host_hash": pa.array(hosts, pa.uint64())}
    )
    seen = []
    for number, part in partition(batch, Layout(num_shards, {})):
        assert part.num_rows
        seen.append(number)
        part_hosts = part.column("host_hash").to_pylist()
        assert {h % num_shards for h in part_hosts} == {number}
        changes = sum(a != b for a, b in itertools.pairwise(part_hosts))
        assert changes == len(set(part_hosts)) - 1
        for i, host in zip(part.column("i").to_pylist(), part_hosts, strict=True):
            assert hosts[i] == host
    assert len(set(seen)) == len(seen)
    assert sorted(
        i for _, p in partition(batch, Layout(num_shards, {})) for i in p.column("i").to_pylist()
    ) == list(range(len(hosts)))


@pytest.mark.parametrize("cut", [1, 13, 4000])
def test_small_batches_are_gathered(cut):
    rows = 4000
    rng = np.random.default_rng(0)
    whole = pa.RecordBatch.from_pydict(
        {"host_hash": pa.array(rng.integers(0, 50, rows).astype(np.uint64)), "i": pa.array(np.arange(rows))},
    ).replace_schema_metadata({b"recrawl": b"observations"})
    buffer = ShardBuffer(Layout(4, {}), 1 << 18)
    out = [e for at in range(0, rows, cut) for e in buffer.add(whole.slice(at, cut))]
    out += buffer.flush()
    assert len(out) == 4  # one batch a shard, however the input was cut
    got = sorted(i for _, b in out for i in b.column("i").to_pylist())
    assert got == list(range(rows))
    for shard, batch in out:
        assert (batch.column("host_hash").to_numpy() % 4 == shard).all()
        assert batch.schema.metadata[b"recrawl"] == b"observations"


def test_batches_of_other_columns_stay_apart():
    buffer = ShardBuffer(Layout(1, {}), 1 << 18)
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
    buffer = ShardBuffer(Layout(2, {}), 5)
    batch = pa.RecordBatch.from_pydict({"host_hash": pa.array(range(3), pa.uint64())})
    assert list(buffer.add(batch)) == []
    assert sorted((shard, part.num_rows) for shard, part in buffer.add(batch)) == [(0, 4), (1, 2)]
    assert list(buffer.flush()) == []
