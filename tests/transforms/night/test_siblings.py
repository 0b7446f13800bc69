"""Siblings of a shard: read back where their host's pages lie, and counted once wherever these go."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from policies.estimation.forecast import Forecast
from policies.history.interval_sums import Intervals
from policies.history.page_state import NO_TIME
from policies.signals.siblings import MIN_PAGES
from transforms.batches import schemas
from transforms.night.siblings import MAX_NAMED, ShardSiblings, SiblingSums
from transforms.shards.catalogue import DAY_US
from transforms.shards.coding import ShardPages, code_pages
from transforms.shards.sharding import Layout, partition

TODAY = 20_000


def _batch(urls: list[str]) -> pa.RecordBatch:
    rows = [{"url": u, "fetched_at": TODAY * DAY_US} for u in urls]
    return pa.RecordBatch.from_pylist(rows, schemas.OBSERVATIONS)


def _pages(sizes: dict[str, int]) -> ShardPages:
    return code_pages(None, [_batch([f"https://{h}/{i}" for h, n in sizes.items() for i in range(n)])])[0]


def _forecast(n: int, scheduled: bool = True) -> Forecast:
    row = np.arange(n, dtype=np.int32) if scheduled else np.full(n, -1, np.int32)
    return Forecast(row, np.full(n, 0.2), np.full(n, 2.0), np.ones(n))


def _crawls(pages: ShardPages, day: int, gap_days: int = 3, changed: bool = True) -> Intervals:
    n = len(pages)
    at = np.full(n, day * DAY_US + 1)
    return Intervals(np.arange(n), at, np.full(n, gap_days * DAY_US), np.full(n, changed), None)


def _night(pages, carried=None, day=TODAY, mode="on", changed=True):
    table = None if carried is None else pa.Table.from_batches([carried.replace_schema_metadata(None)])
    siblings = ShardSiblings(table, pages, _forecast(len(pages)), mode, day)
    siblings(0, _crawls(pages, day, changed=changed))
    return siblings


def _sums(batch: pa.RecordBatch) -> dict[tuple[int, int], tuple[int, ...]]:
    """Sums by host and day over all rows."""
    sums: dict[tuple[int, int], tuple[int, ...]] = {}
    for r in batch.to_pylist():
        key = r["host_hash"], r["day"]
        old = sums.get(key, (0, 0, 0))
        sums[key] = tuple(a + r[n] for a, n in zip(old, ("found", "expected", "gain"), strict=True))
    return dict(sorted(sums.items()))


def test_rows_come_back_as_they_were_written():
    pages = _pages({"a.test": 30, "b.test": 25, "c.test": MIN_PAGES - 1})
    first = _night(pages).state()
    schemas.check(first, schemas.SLOTS_SIBLINGS, "state")
    assert first.num_rows == 2  # the third host is too small
    empty = ShardSiblings(pa.Table.from_batches([first]), pages, _forecast(len(pages)), "on", TODAY)
    assert empty.state().equals(first)
    both = _night(pages, first, TODAY + 1).state()
    assert both.column("day").to_pylist() == [TODAY, TODAY + 1] * 2
    assert sorted(both.column("found").to_pylist()) == [25, 25, 30, 30]


def test_hosts_that_are_gone_are_dropped():
    pages = _pages({"a.test": 30, "b.test": 25})
    carried = _night(pages).state()
    rest = _pages({"b.test": 25})
    kept = _night(rest, carried, TODAY + 1).state()
    assert set(kept.column("host_hash").to_pylist()) == set(rest.host_hash.tolist())
    none = code_pages(None, [])[0]
    alone = ShardSiblings(pa.Table.from_batches([carried]), none, _forecast(0), "auto", TODAY)
    assert alone.state().num_rows == 0 and alone.sums() == SiblingSums()


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_no_columns_where_no_host_is_on(mode):
    siblings = _night(_pages({"a.test": 30}), mode=mode)
    none = np.full(30, NO_TIME)
    assert siblings.columns(none, none) == {}
    assert siblings.sums().hosts == 1 and siblings.sums().hosts_on == 0


def test_the_largest_hosts_are_named_in_any_order_of_shards():
    """Of hosts as large as each other by name, and a split host once."""
    sizes = {f"h{i:02d}.test": 25 + (i < 5) for i in range(30)} | {"giant.test": 40}
    split = _night(_pages(dict(list(sizes.items())[20:]))).sums(), _night(_pages({"giant.test": 45})).sums()
    parts = [_night(_pages(dict(list(sizes.items())[:20]))).sums(), *split]
    wanted = [{"host": "giant.test", "pages": 85}]
    wanted += [{"host": f"h{i:02d}.test", "pages": 25 + (i < 5)} for i in range(MAX_NAMED - 2)]
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        total = SiblingSums()
        for i in order:
            total = total.merge(parts[i])
        assert total.account()["on"] == wanted and total.hosts_on == 32
    assert _night(_pages({"a.test": 30}), mode="off").sums().account()["on"] == []


def test_factors_by_the_last_crawl_and_by_the_last_try():
    pages = _pages({"a.test": 30, "c.test": 3})
    carried = _night(pages).state()
    siblings = _night(pages, carried, TODAY + 2, changed=False)
    on = pages.host_code == pages.host_code[np.argmax(np.bincount(pages.host_code)[pages.host_code])]
    days = {r["day"]: (r["found"], r["expected"] / 2**32) for r in siblings.state().to_pylist()}
    last = np.full(33, (TODAY - 1) * DAY_US)
    tried = np.full(33, (TODAY + 1) * DAY_US)
    last[np.flatnonzero(on)[0]] = NO_TIME
    columns = {n: c.to_numpy() for n, c in siblings.columns(last, tried).items()}
    found, expected = (sum(v) for v in zip(*days.values(), strict=True))
    assert columns["age_factor"][~on].tolist() == columns["since_factor"][~on].tolist() == [1.0] * 3
    age = columns["age_factor"][on]
    assert age[0] == 1.0 and age[1:] == pytest.approx((2 + found) / (2 + expected))
    later = days[TODAY + 2]
    assert columns["since_factor"][on] == pytest.approx((2 + later[0]) / (2 + later[1]))


@pytest.mark.parametrize("parts", [(2, 4), (4, 2), (4, 8)])
def test_nothing_is_counted_twice_when_a_host_is_split_anew(parts):
    """From one layout to another and to one shard: the sums by host and day stay."""
    pages = _pages({"giant.test": 400, "a.test": 30})
    giant = int(pages.host_hash[np.argmax(np.bincount(pages.host_code)[pages.host_code])])
    urls = pages.url.to_pylist()

    def shards(layout: Layout, written: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        shard = layout.shard(pages.host_hash, pages.url_hash)
        cut = [part for batch in written for part in partition(batch, layout)]
        found = []
        for number in range(layout.num_shards):
            mine = [u for u, s in zip(urls, shard.tolist(), strict=True) if s == number]
            own = code_pages(None, [_batch(mine)])[0] if mine else code_pages(None, [])[0]
            batches = [b.replace_schema_metadata(None) for n, b in cut if n == number]
            table = pa.Table.from_batches(batches) if batches else None
            found.append(ShardSiblings(table, own, _forecast(len(own), bool(written) is False), "on", TODAY))
            if not written:
                found[-1](0, _crawls(own, TODAY))
        return [s.state() for s in found]

    before = shards(Layout(8, {giant: parts[0]}), [])
    assert sum(b.num_rows for b in before) == parts[0] + 1
    after = shards(Layout(8, {giant: parts[1]}), before)
    whole = shards(Layout(8, {}), after)
    sums = [_sums(pa.concat_batches(batches)) for batches in (before, after, whole)]
    assert sums[0] == sums[1] == sums[2]
    assert sum(v[0] for v in sums[0].values()) == 430
    assert sum(b.num_rows for b in whole) == 2
