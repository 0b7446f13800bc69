"""How many hosts are asked for: counted once, however pages are cut, and a warning where they are few."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from policies.history.request_history import RequestState, fold_requests
from transforms.batches.hashing import hash_texts
from transforms.kept.requested_hosts import (
    AskedHosts,
    asked_hosts,
    asked_warnings,
    least_urls,
    unknown_pages,
)
from transforms.shards.coding import ShardPages

HOST = np.repeat(np.arange(4, dtype=np.uint64) * np.uint64(1000), 3)


def _asked(rows: np.ndarray, clicks: dict[int, int], split: tuple[int, ...] = ()) -> AskedHosts:
    """Of the pages `rows` of four hosts of three pages; clicks by page, as many impressions of page 11."""
    host = HOST[rows]
    start = np.flatnonzero(np.diff(host, prepend=host[:1] + np.uint64(1)))
    names = pa.array([f"h{h}" for h in host.tolist()])
    pages = ShardPages(names, names, rows.astype(np.uint64), host, np.append(start, len(host)))
    page = np.searchsorted(rows, [p for p in clicks if p in rows])
    count = np.array([n for p, n in clicks.items() if p in rows], np.int64)
    seen = (rows[page] == 11).astype(np.int64)
    state = RequestState.empty(len(rows))
    return asked_hosts(pages, fold_requests(state, page, np.full(len(page), 70), count, seen, 0), split)


def test_a_host_counts_once():
    whole = _asked(np.arange(12), {0: 5, 2: 1, 4: 0, 11: 9})
    assert whole.totals() == {"hosts_with_clicks": 2, "hosts_with_impressions": 1}


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_host_that_is_split_counts_once(cut):
    clicks = {0: 5, 2: 1, 4: 3, 5: 2, 11: 9}
    split = (int(HOST[cut]),) if HOST[cut] == HOST[cut - 1] else ()
    parts = [_asked(np.arange(0, cut), clicks, split), _asked(np.arange(cut, 12), clicks, split)]
    assert parts[0].merge(parts[1]) == parts[1].merge(parts[0])
    assert parts[0].merge(parts[1]).totals() == {"hosts_with_clicks": 3, "hosts_with_impressions": 1}


def test_without_requests_there_is_no_count():
    assert _asked(np.arange(12), {}).totals() == {}


@pytest.mark.parametrize(
    ("clicks", "hosts", "warned"), [(1, 3, True), (1, 2, True), (2, 3, False), (1, 1, False), (0, 3, False)]
)
def test_a_warning_where_half_of_the_hosts_are_not_asked_for(clicks, hosts, warned):
    counters = {"hosts_with_clicks": clicks, "hosts_known": hosts}
    found = asked_warnings(counters, "clicks")
    assert bool(found) == warned
    assert not asked_warnings(counters, "equal") and not asked_warnings(counters, "impressions")
    if warned:
        assert found[0].startswith(f"clicks are of {clicks} of {hosts} hosts: ")
        assert "--weight_by=equal" in found[0]


@pytest.mark.parametrize("cut", [0, 1, 3, 7, 20])
def test_unknown_urls_are_those_of_the_least_hashes(cut):
    urls = [f"https://a.test/{i % 7}\n" for i in range(20)]
    table = pa.table({"url": urls, "url_hash": hash_texts(pa.array(urls))})
    where = np.arange(20) % 7 != 3
    whole = least_urls(table, where)
    known = {int(h): u for h, u, w in zip(table["url_hash"].to_numpy(), urls, where, strict=True) if w}
    assert whole == tuple((h, known[h].replace("\n", "?")) for h in sorted(known)[:3])
    parts = [least_urls(table[:cut], where[:cut]), least_urls(table[cut:], where[cut:])]
    merged = AskedHosts(unknown=parts[0]).merge(AskedHosts(unknown=parts[1]))
    assert merged.unknown == whole


@pytest.mark.parametrize(("unmatched", "shown"), [(5, False), (6, True)])
def test_they_are_shown_where_they_are_more_than_a_twentieth(unmatched, shown):
    counters = {"requests_accepted": 140, "requests_after_as_of": 40, "requests_unmatched": unmatched}
    assert unknown_pages(counters, AskedHosts(unknown=((1, "x"),))) == ["x"] * shown
