"""Whole nights whose pages are those of a dump of a store, fetched or not."""

from __future__ import annotations

import json

import pytest

from tests.pipelines.jobs import at, nightly
from tests.transforms.dialects.test_nutch import HEAD, row
from tests.transforms.dialects.test_stores import item, status

NEW = [f"https://shop.test/new/{i}" for i in range(3)]
OLD = [f"https://shop.test/old/{i}" for i in range(3)]
DUE = "2026-07-20T00:00:00.000Z"


def dump(store: str) -> str:
    if store == "nutch":
        due = "Mon Jul 20 00:00:00 UTC 2026"
        found = [row(url, 2, "fetched", due) for url in OLD] + [row(u, 1, "unfetched", due) for u in NEW]
        return HEAD + "".join(found)
    seen = {"signature": "9e10", "fetchInterval": "43200"}
    if store == "stormcrawler":
        found = [status(url, due=DUE, **seen) for url in OLD] + [status(u, "DISCOVERED", DUE) for u in NEW]
    else:
        found = [item(url, 1_784_505_600, **seen) for url in OLD]
        found += [{"discovered": {"info": {"url": url}}} for url in NEW]
    return "".join(json.dumps(one) + "\n" for one in found)


@pytest.mark.parametrize("store", ["nutch", "stormcrawler", "urlfrontier"])
def test_pages_that_a_store_has_never_fetched_are_crawled(tmp_path, store):
    """As observations they say nothing, which the summary tells; as pages they are scheduled as new."""
    path = tmp_path / "part-00000"
    path.write_text(dump(store))
    without = nightly(tmp_path, "without", observations=path, as_of=at(30))
    assert without.code == 0 and without.counters["observations_left_out_never_fetched"] == 3
    assert "3 read: 3 baseline; 3 more left out (3 never fetched)" in without.printed
    assert "3 on 1 host, 0 never crawled" in without.printed
    night = nightly(tmp_path, observations=path, pages=f"{tmp_path}/part-*", as_of=at(30), budget=100)
    assert night.code == 0 and not night.counters.get("pages_rejected")
    assert night.counters["pages_known"] == 6 and night.counters["pages_never_crawled"] == 3
    assert {s["url"] for s in night.slots_of(*NEW)} == set(NEW)


def test_a_night_without_rows_of_a_log_says_so(tmp_path):
    night = nightly(tmp_path, observations=[], pages=[{"url": NEW[0]}])
    assert "0 read\n" in night.printed
