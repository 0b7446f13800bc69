"""Every CombineFn of the job keeps the laws."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from policies.estimation.group_means import GroupSums
from tests.laws import check_combine_laws
from transforms.batches.coders import ShardTables
from transforms.batches.combining import Combine, CombineShards
from transforms.batches.counters import AddCounts
from transforms.kept.requested_hosts import AskedHosts
from transforms.kept.requests import ShardRequests
from transforms.night import sampling
from transforms.night.group_tables import GroupTable, MergeGroups
from transforms.night.sampling import MergeOverviews, Overview, merge_samples, sample_shard


def _folded(rng, sizes, shard=0):
    """A folded shard with hosts of the given sizes and random evidence."""
    n = int(sum(sizes))
    host_hash = np.sort(rng.integers(1, 2**63, len(sizes)).astype(np.uint64))
    url_hash = np.concatenate([np.sort(rng.integers(0, 2**63, s)) for s in sizes] or [[]]).astype(np.uint64)
    n_bins = rng.integers(0, 3, n)
    m = int(n_bins.sum())
    pages = {
        "url": pa.array([f"https://h/{h}" for h in url_hash], pa.string()),
        "url_hash": pa.array(url_hash),
        "host_code": pa.array(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)),
        "group_hash": pa.array(np.repeat(host_hash, sizes)),
        "exposure_days": pa.array(rng.exponential(10, n)),
        "dated_changes": pa.array(np.zeros(n)),
        "n_bins": pa.array(n_bins.astype(np.int32)),
        "clicks": pa.array(rng.exponential(10, n)),
        "impressions": pa.array(np.zeros(n)),
        "first_seen_day": pa.array(np.full(n, 20000, np.int32)),
    }
    gaps = rng.exponential(2, m)
    bins = {"weight": pa.array(np.ones(m)), "days": pa.array(gaps), "days_squared": pa.array(gaps**2)}
    hosts = {"host_hash": pa.array(host_hash), "n_pages": pa.array(np.asarray(sizes, np.int32))}
    tables = {"pages": pages, "bins": bins, "hosts": hosts}
    return ShardTables(shard, {k: pa.RecordBatch.from_pydict(v) for k, v in tables.items()})


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(sampling, "SAMPLE_PAGES", 40)
    monkeypatch.setattr(sampling, "LAYER_PAGES", 4)


def _overview_plain(value):
    asked = value.sums.get(ShardRequests, AskedHosts())
    return (
        value.sample.to_pylist(),
        tuple(value.rows_by_day.items()),
        asked.days,
        asked.has("clicks"),
        asked.has("impressions"),
        value.has_volatile,
    )


def test_overviews(small_sample):
    rng = np.random.default_rng(0)
    overviews = [
        Overview(
            *sample_shard(_folded(rng, sizes)),
            40,
            {7: 1, 7 + i: 2},
            i == 2,
            {ShardRequests: AskedHosts(clicks=i == 1, days=(20000 - i, 20010 + i))},
        )
        for i, sizes in enumerate([[3, 9, 1], [], [60], [1] * 30])
    ]
    sample, starts, days, clicks, impressions, volatile = check_combine_laws(
        MergeOverviews(), overviews, _overview_plain
    )
    assert (starts, days, clicks, impressions, volatile) == (
        ((7, 3 + 2), (8, 2), (9, 2), (10, 2)),
        (19997, 20013),
        True,
        False,
        True,
    )
    assert len(sample) == 40
    keys = [(r["layer"], r["host_hash"], r["url_hash"]) for r in sample]
    assert keys == sorted(keys)


def test_sample_does_not_depend_on_shards(small_sample):
    rng = np.random.default_rng(1)
    sizes = [int(s) for s in rng.integers(1, 12, 30)]
    whole = _folded(rng, sizes)
    start = np.concatenate([[0], np.cumsum(sizes)])
    bin_start = np.concatenate([[0], np.cumsum(whole.tables["pages"].column("n_bins").to_numpy())])
    parts = []
    for shard in range(3):
        chosen = [j for j in range(len(sizes)) if j % 3 == shard]
        rows = np.concatenate([np.arange(start[j], start[j + 1]) for j in chosen])
        bins = np.concatenate([np.arange(bin_start[r], bin_start[r + 1]) for r in rows]).astype(np.int64)
        pages = whole.tables["pages"].take(pa.array(rows))
        code = np.repeat(np.arange(len(chosen), dtype=np.int32), [sizes[j] for j in chosen])
        pages = pages.set_column(pages.schema.get_field_index("host_code"), "host_code", pa.array(code))
        tables = {
            "pages": pages,
            "bins": whole.tables["bins"].take(pa.array(bins)),
            "hosts": whole.tables["hosts"].take(pa.array(chosen)),
        }
        parts.append(sample_shard(ShardTables(shard, tables))[0])
    assert merge_samples(parts[::-1]).equals(merge_samples([sample_shard(whole)[0]]))


def test_sample_does_not_depend_on_how_hosts_are_split(small_sample):
    whole = _folded(np.random.default_rng(4), [70, 9, 30, 2])
    pages, bins = whole.tables["pages"], whole.tables["bins"]
    giants = [whole.tables["hosts"].column("host_hash")[j].as_py() for j in (0, 2)]
    bin_start = np.concatenate([[0], np.cumsum(pages.column("n_bins").to_numpy())])
    part_of_page = np.arange(len(pages)) % 3
    part_of_page[70:79], part_of_page[109:] = 1, 2  # the other hosts are whole
    overviews = []
    for part in range(3):
        rows = np.flatnonzero(part_of_page == part)
        hosts, code = np.unique(pages.column("host_code").to_numpy()[rows], return_inverse=True)
        own = pages.take(pa.array(rows))
        at = own.schema.get_field_index("host_code")
        mine = np.concatenate([np.arange(bin_start[r], bin_start[r + 1]) for r in rows]).astype(np.int64)
        tables = {
            "pages": own.set_column(at, "host_code", pa.array(code.astype(np.int32))),
            "bins": bins.take(pa.array(mine)),
            "hosts": pa.RecordBatch.from_pydict(
                {
                    "host_hash": whole.tables["hosts"].column("host_hash").take(pa.array(hosts)),
                    "n_pages": pa.array(np.bincount(code).astype(np.int32)),
                }
            ),
        }
        overviews.append(Overview(*sample_shard(ShardTables(part, tables), giants), 40))
    combine = MergeOverviews()
    for order in ([0, 1, 2], [2, 0, 1]):
        merged = combine.extract_output([overviews[i] for i in order])
        assert merged.whole_sample.equals(sample_shard(whole)[0])
    # Only what is needed of a giant is kept.
    assert all(o.giant_sample.num_rows <= 2 * 40 for o in overviews)


def test_a_single_host_fills_the_sample(small_sample):
    sample = sample_shard(_folded(np.random.default_rng(2), [100]))[0]
    assert sample.num_rows == 40 and sample.column("layer").to_pylist() == [i // 4 for i in range(40)]


def test_group_tables():
    rng = np.random.default_rng(3)

    def table(hashes):
        n = len(hashes)
        sums = tuple(GroupSums(rng.integers(0, 1 << 40, (4, n)), rng.integers(1, 9, n)) for _ in range(2))
        return GroupTable(np.asarray(sorted(hashes), np.uint64), sums)

    def plain(value):
        return value.group_hash.tolist(), [(s.limbs.tolist(), s.count.tolist()) for s in value.sums]

    tables = [table([5, 9, 2]), table([]), table([9, 1]), table([2**63])]
    hashes, (first, second) = check_combine_laws(MergeGroups(), tables, plain)
    assert hashes == [1, 2, 5, 9, 2**63]
    for i, (limbs, count) in enumerate((first, second)):
        assert sum(count) == sum(int(t.sums[i].count.sum()) for t in tables)
        assert limbs[3][3] == sum(int(t.sums[i].limbs[3, t.group_hash == 9].sum()) for t in tables)


@pytest.mark.parametrize("num_shards", [1, 65])
@pytest.mark.parametrize("n", [0, 1, 200])
def test_one_value_of_all_as_beam_combines_them(num_shards, n):
    """None where there is nothing: a default would be taken for what shards said."""
    values = [{f"rows_{i % 7}": i} for i in range(n)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        given = pipeline | beam.Create(values)
        whole = given | "Beam" >> beam.CombineGlobally(AddCounts()).without_defaults()
        assert_that(given | "Combine" >> Combine(AddCounts()), equal_to([_sums(values)] if n else []))
        shards = given | "CombineShards" >> CombineShards(AddCounts(), num_shards)
        assert_that(shards, equal_to([_sums(values)] if n else []), label="shards")
        assert_that(whole, equal_to([_sums(values)] if n else []), label="beam")


def _sums(values):
    total = {}
    for value in values:
        for name, n in value.items():
            total[name] = total.get(name, 0) + n
    return total
