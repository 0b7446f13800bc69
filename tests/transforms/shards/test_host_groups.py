"""Which hosts share a limit."""

import numpy as np
import pyarrow as pa
import pytest

from transforms.batches import schemas
from transforms.batches.errors import InputError
from transforms.batches.hashing import stable_hash
from transforms.rows.host_rows import group_names
from transforms.shards.host_groups import group_hash, groups_of
from transforms.shards.sharding import Layout, partition

HOSTS = ["a.test", "blog.test", "notblog.test", "u.blog.test", "x.de.blog.test", "y.de.blog.test"]


def limits(*rows: tuple) -> pa.Table:
    host, most, gap, group = zip(*rows, strict=True)
    names = group_names(pa.array(host, pa.string()), pa.array(group, pa.string()))
    columns = [pa.array(host), pa.array(most, pa.float64()), pa.array(gap, pa.float64()), names]
    return pa.table(columns, schema=schemas.HOSTS.remove_metadata())


def found(*rows: tuple) -> dict[str, str | None]:
    """Group of each host; names by their keys."""
    table = limits(*rows)
    names = {group_hash(n): n for n in table.column("group").to_pylist() if n} | {0: None}
    groups = groups_of(pa.array(HOSTS), table)
    return dict(zip(HOSTS, [names[k] for k in groups.unit_hash.tolist()], strict=True))


def test_rows_without_groups_make_none():
    assert groups_of(pa.array(HOSTS), limits(("a.test", 1, None, None), ("b.test", 1, None, ""))) is None


def test_a_domain_has_its_subdomains_and_itself_and_no_host_that_ends_alike():
    groups = found(("*.blog.test", None, 5, None))
    assert {h for h, g in groups.items() if g} == {h for h in HOSTS if h == "blog.test" or ".blog.test" in h}
    assert set(groups.values()) == {None, "blog.test"}


def test_longer_domains_and_rows_of_hosts_count_first():
    groups = found(
        ("*.blog.test", None, 5, None),
        ("*.de.blog.test", None, 9, "german"),
        ("y.de.blog.test", 3, None, None),
        ("u.blog.test", None, None, "server"),
        ("a.test", None, 2, "server"),
    )
    assert groups == {
        "a.test": "server",
        "blog.test": "blog.test",
        "notblog.test": None,
        "u.blog.test": "server",
        "x.de.blog.test": "german",
        "y.de.blog.test": None,
    }


def test_the_tightest_row_of_a_group_counts_wherever_its_host_is():
    table = limits(
        ("a.test", 100, None, "s"),
        ("elsewhere.test", 50, 7, "s"),
        ("blog.test", None, 3, "s"),
        ("b", 1, 99, None),
    )
    groups = groups_of(pa.array(["a.test", "b", "blog.test"]), table)
    np.testing.assert_array_equal(groups.max_per_day, [50, np.nan, 50])
    np.testing.assert_array_equal(groups.gap_seconds, [7, np.nan, 7])


def test_a_group_is_no_host_of_its_name():
    assert group_hash("blog.test") != stable_hash("blog.test")


def test_a_host_in_two_groups_is_an_error():
    with pytest.raises(InputError, match=r"a\.test is in the groups s and t"):
        groups_of(pa.array(HOSTS), limits(("a.test", 1, None, "s"), ("a.test", 2, None, "t")))


def test_all_shards_hear_of_a_group_and_one_of_a_host():
    table = limits(("a.test", 1, None, "s"), ("b.test", 2, None, None))
    hashes = pa.array([stable_hash("a.test"), stable_hash("b.test")], pa.uint64())
    (batch,) = table.append_column("host_hash", hashes).to_batches()
    for parts in ({}, {stable_hash("b.test"): 2}):
        layout = Layout(4, parts)
        heard = {shard: rows.column("host").to_pylist() for shard, rows in partition(batch, layout)}
        assert [shard for shard, hosts in heard.items() if "a.test" in hosts] == [0, 1, 2, 3]
        of_b = sorted(shard for shard, hosts in heard.items() if "b.test" in hosts)
        assert of_b == sorted(layout.shards_of(stable_hash("b.test")))
