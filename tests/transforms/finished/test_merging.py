"""A night's shards, merged in order of time."""

from __future__ import annotations

import tempfile
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transforms.schedules import crawl, write_night
from transforms.finished import merging, nights
from transforms.finished.merging import merged
from transforms.finished.nights import NightError

times = st.lists(st.integers(0, 6), max_size=12).map(sorted)


def rows_of(night, first_only: bool = False) -> list[tuple[int, int]]:
    return [(r["shard"], r["slot"]) for table in merged(night, first_only) for r in table.to_pylist()]


@pytest.fixture
def small(monkeypatch):
    """A few rows at a time, so that shards are read on in the midst of equal times."""
    monkeypatch.setattr(merging, "MERGED_ROWS", 4)
    monkeypatch.setattr(merging, "LEAST_ROWS", 2)


@pytest.mark.usefixtures("small")
@settings(max_examples=60, deadline=None)
@given(st.lists(times, min_size=1, max_size=5), st.integers(1, 4))
def test_rows_come_by_time_then_shard_then_place(shards, pages):
    rows = [
        [crawl(f"https://a.test/{s}/{i % pages}", due) for i, due in enumerate(t)]
        for s, t in enumerate(shards)
    ]
    with tempfile.TemporaryDirectory() as folder:
        night = write_night(Path(folder), rows)
        whole = sorted((due, s, i) for s, t in enumerate(shards) for i, due in enumerate(t))
        assert rows_of(night) == [(s, i) for _, s, i in whole]
        first = {(s, i) for s, t in enumerate(shards) for i in range(min(pages, len(t)))}
        assert rows_of(night, first_only=True) == [(s, i) for _, s, i in whole if (s, i) in first]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("file_format", ["parquet", "avro", "jsonl"])
def test_every_format_of_a_night_is_streamed(tmp_path, monkeypatch, file_format):
    monkeypatch.setattr(nights, "_STREAMED_BYTES", 512)
    shards = [
        [crawl(f"https://a.test/é{s}{i}", 1_500_000 * i + s, value=i / 3) for i in range(9)] for s in range(3)
    ]
    night = write_night(tmp_path, shards, file_format)
    tables = list(merged(night))
    found = list(chain.from_iterable(t.to_pylist() for t in tables))
    assert [(r["shard"], r["slot"]) for r in found] == [(s, i) for i in range(9) for s in range(3)]
    assert found[4]["url"] == "https://a.test/é11" and found[4]["value"] == 1 / 3
    assert max(len(t) for t in tables) < 27  # never the whole schedule


@pytest.mark.usefixtures("small")
def test_memory_is_bounded_by_what_is_ahead_of_the_slowest_shard(tmp_path):
    """A shard whose crawls are all late waits with one batch, it is not read to its end."""
    shards = [[crawl(f"https://a.test/{s}/{i}", s * 1000 + i) for i in range(40)] for s in range(2)]
    sizes = [len(table) for table in merged(write_night(tmp_path, shards))]
    assert sum(sizes) == 80 and max(sizes) <= 4


def test_a_shard_out_of_order_is_an_error(tmp_path):
    night = write_night(tmp_path, [[crawl("https://a.test/1", 9), crawl("https://a.test/2", 8)]])
    with pytest.raises(NightError, match=r"shard-00000-of-00001\.parquet: not in order of due_at"):
        list(merged(night))


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    night = write_night(tmp_path, [[crawl("https://a.test/1")], [crawl("https://a.test/2")]])
    (tmp_path / "schedule" / "shard-00001-of-00002.parquet").unlink()
    with pytest.raises(NightError, match="shard-00001"):
        list(merged(night))
