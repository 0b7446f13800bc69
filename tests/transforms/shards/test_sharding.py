"""Cutting batches by shard: every row once, in order, hosts whole."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.shards.sharding import Layout, ShardBuffer, choose_parts, partition


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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([3, 2**20, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1)), max_size=80
    ),
    st.integers(2, 40),
    st.integers(2, 40),
)
def test_pages_of_a_giant_lie_in_its_shards(pages, num_shards, parts):
    layout = Layout(num_shards, {2**63: min(parts, num_shards), 3: 2})
    hosts, urls = (np.array([p[i] for p in pages], np.uint64) for i in (0, 1))
    batch = pa.RecordBatch.from_pydict({"host_hash": pa.array(hosts), "url_hash": pa.array(urls)})
    found = {}
    for shard, part in partition(batch, layout):
        for row in part.to_pylist():
            assert shard in layout.shards_of(row["host_hash"])
            assert found.setdefault((row["host_hash"], row["url_hash"]), shard) == shard
    assert set(found) == set(pages)
    for host in set(hosts.tolist()):
        shards = layout.shards_of(host)
        assert len(set(shards)) == len(shards) == layout.parts.get(host, 1)


def test_what_is_said_of_a_giant_reaches_all_its_shards():
    layout = Layout(8, {9: 4})
    batch = pa.RecordBatch.from_pydict({"host_hash": pa.array([9, 10], pa.uint64()), "x": [1, 2]})
    got = {(shard, row["x"]) for shard, part in partition(batch, layout) for row in part.to_pylist()}
    assert got == {(1, 1), (3, 1), (5, 1), (7, 1), (2, 2)}


def test_a_giant_is_spread_evenly():
    layout = Layout(16, {5: 16})
    urls = np.random.Generator(np.random.Philox(key=1)).integers(0, 2**64, 160_000, dtype=np.uint64)
    sizes = np.bincount(layout.shard(np.full(len(urls), 5, np.uint64), urls), minlength=16)
    assert np.abs(sizes - 10_000).max() < 600


def test_hosts_are_split_by_the_shard_they_would_fill():
    def choose(pages, before=None, above=1000.0):
        return choose_parts({1: pages}, 100_000.0, 16, above, before or {})

    assert choose(3000.0) == {}  # less than half a shard of 6,250
    assert choose(4000.0) == {1: 8}
    assert choose(30_000.0) == {1: 16}  # no more parts than shards
    assert choose(30_000.0, above=40_000.0) == {}
    # What was split stays so, in as many parts, while it fits.
    assert choose(2000.0, {1: 8}) == {1: 8}
    assert choose(1000.0, {1: 8}) == {1: 8}
    assert choose(700.0, {1: 8}) == {}
    assert choose(2000.0, {1: 8}, above=9000.0) == {}
    assert choose(10_000.0, {1: 8}) == {1: 8}
    assert choose(40_000.0, {1: 4}) == {1: 16}
    assert choose_parts({1: 50.0}, 50.0, 1, 0.0, {}) == {}
    again = Layout(16, Layout.parts_from_json(Layout(16, {2**64 - 1: 8, 7: 2}).as_json()))
    assert again == Layout(16, {7: 2, 2**64 - 1: 8})
