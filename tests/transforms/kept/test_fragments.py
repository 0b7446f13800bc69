"""Pages that older versions told apart by fragments: one of each is kept, under the URL without."""

from __future__ import annotations

import pyarrow as pa
import pytest

from policies.history.page_state import Forgetting
from tests.pipelines.jobs import DAY_US, at, seen
from transforms.batches.hashing import hash_texts, stable_hash
from transforms.batches.urls import without_fragments
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.kept.statistics import state_schema
from transforms.night.folding import ShardFold
from transforms.rows.normalise import KINDS, normalise
from transforms.shards.catalogue import HostDefaults

AS_OF_US = 1_780_272_000_000_000 + 30 * DAY_US


def _folded(batches, **more):
    clock = RequestClock(AS_OF_US // DAY_US, 28.0)
    settings = FoldSettings(AS_OF_US, Forgetting(12), clock, HostDefaults(None, 0.0, DAY_US), **more)
    return ShardFold(settings, batches)


def _log(*rows):
    return normalise(KINDS["observations"], pa.RecordBatch.from_pylist(list(rows)), "", 0, None)


@pytest.fixture(scope="module")
def state():
    """Of pages with so many intervals, as a version wrote it that took fragments for a part of the URL."""
    intervals = {"a": 2, "a#x": 5, "b#one": 1, "b#two": 3, "c#": 4, "d#/route": 1, "d#!r": 1, "d": 1}
    plain = [f"https://s.test/{i}" for i in range(len(intervals))]
    rows = [
        seen(url, at(day)) for url, n in zip(plain, intervals.values(), strict=True) for day in range(n + 1)
    ]
    rows = _folded([_log(*rows).rows]).state().to_pylist()
    named = {url: f"https://s.test/{name}" for url, name in zip(plain, intervals, strict=True)}
    rows = [row | {"url": named[row["url"]], "url_hash": stable_hash(named[row["url"]])} for row in rows]
    rows.sort(key=lambda row: (row["host_hash"], row["url_hash"]))
    return pa.RecordBatch.from_pylist(rows, state_schema())


def _pages(fold):
    return {
        row["url"].removeprefix("https://s.test/"): row["n_intervals"] for row in fold.state().to_pylist()
    }


def test_of_pages_that_were_told_apart_one_goes_on(state):
    new = _log(seen("https://s.test/b#three", at(20)), seen("https://s.test/e#x", at(20)))
    assert new.counts["fragments"] == 2
    fold = _folded([state, new.rows])
    assert _pages(fold) == {"a": 2, "b": 4, "c": 4, "d#/route": 1, "d#!r": 1, "d": 1, "e": 0}
    assert fold.counts.totals()["pages_merged"] == 2
    rows = fold.state()
    assert rows.column("url_hash").to_pylist() == hash_texts(rows.column("url")).tolist()
    # What the next night reads has nothing to merge.
    assert "pages_merged" not in _folded([rows]).counts.totals()


def test_of_a_host_in_several_shards_only_pages_without_a_fragment_stay(state):
    fold = _folded([state], split_hosts=frozenset(state.column("host_hash").to_pylist()))
    assert _pages(fold) == {"a": 2, "d#/route": 1, "d#!r": 1, "d": 1}


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_fragments_that_stand_for_pages_of_an_application_stay(kind):
    urls = ["a#", "a?b#c#/d", None, "a#!b", "a#/b", "a", "", "#\n/"]
    found, rows = without_fragments(pa.array(urls, pa.string()).cast(kind))
    assert found.cast(pa.string()).to_pylist() == ["a", "a?b", None, "a#!b", "a#/b", "a", "", ""]
    assert rows.tolist() == [0, 1, 7]
    none = pa.array(["a", "b?c", "a#!b"])
    assert without_fragments(none)[0] is none
