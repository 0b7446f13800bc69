"""A shard's rows to intervals: lists of changes, time zones, and which groups are shown."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from policies.history.page_state import NO_TIME, US_PER_DAY
from transforms.batches.errors import InputError
from transforms.batches.tally import Counts
from transforms.dynamics import tables
from transforms.dynamics.folding import Wanted, counted, fold
from transforms.dynamics.summing import ChooseGroups, Shown, sum_shard
from transforms.rows.normalise import REPLAYED, normalise

HOUR_US = US_PER_DAY // 24


def _batch(of: str, **columns: list) -> pa.RecordBatch:
    return normalise(REPLAYED[of], pa.RecordBatch.from_pydict(columns), "test").rows


CHANGES = _batch(
    "changes",
    url=["https://a.test/x"] * 4 + ["https://b.test/y"] * 2,
    changed_at=[f"2026-07-0{d}T22:30:00Z" for d in (1, 2, 4, 4)]
    + ["2026-07-01T00:00:00Z", "2026-07-03T04:15:00Z"],
    digest=["a", "b", "c", "c", "p", "q"],
)
PAGES = _batch(
    "pages", url=["https://a.test/x", "https://b.test/y"], zone=["Asia/Tokyo", "Nowhere"], kind=["k", "k"]
)


def test_a_list_of_changes_is_watched_from_its_first_row_to_the_end_of_all():
    counts = Counts()
    found = fold([CHANGES, PAGES], Wanted(by=("kind", "host")), counts)
    rows = {n: found["intervals"].column(n).to_numpy(zero_copy_only=False) for n in tables.INTERVALS.names}
    assert counts.totals()["changes_repeated"] == 1 and rows["changed"].sum() == 3
    for page in (0, 1):
        mine = rows["page"] == page
        begin, end = rows["from_us"][mine], rows["to_us"][mine]
        assert (begin[1:] == end[:-1]).all() and end[-1] == NO_TIME  # until the latest row of all shards
        changed = rows["changed"][mine]
        assert (end - begin)[changed].tolist() == [60_000_000] * changed.sum()
    known = rows["last_to_us"] != NO_TIME
    # After a listed change its time is known; before the first one none is.
    assert (rows["last_from_us"][known] == rows["last_to_us"][known]).all() and (~known).sum() == 4
    assert (rows["dated_us"] == NO_TIME).all() and found["claims"].num_rows == 3
    by = counted(found, 2).to_pylist()
    assert [(r["by"], r["group"], r["changes"]) for r in by if r["by"] < 2] == [(0, "", 3), (1, "k", 3)]
    assert {r["group"]: r["changes"] for r in by if r["by"] == 2} == {"a.test": 2, "b.test": 1}


def test_hours_are_of_each_pages_zone_and_an_unknown_one_is_counted():
    counts = Counts()
    found = fold([CHANGES, PAGES], Wanted(zone="zone"), Counts())
    end = int(np.datetime64("2026-07-06T00:00:00", "us").astype(np.int64))
    part, moments = sum_shard(found, Shown(((0, ""),), end, 0.3), "Europe/Berlin", 1 << 62, counts)
    hours = part.sums.found[0].sum(axis=0).reshape(7, 24).sum(axis=0)
    assert np.flatnonzero(hours).tolist() == [6, 7] and hours[7] == 2  # 22:30 in Tokyo, 4:15 in Berlin
    assert counts.totals() == {"pages_with_unknown_timezone": 1}
    (row,) = moments.to_pylist()
    assert row["pages"] == 2 and row["changes"] == 3
    assert row["watched_days"] == pytest.approx(5 - 22.5 / 24 + 5, abs=1e-9)


def test_the_groups_with_most_changes_are_shown_and_all_pages_first():
    rows = [
        {"by": by, "group": group, "changes": n, "watched_us": 10 * US_PER_DAY, "end_us": n}
        for by, group, n in ((0, "", 5), (1, "a", 2), (1, "b", 3), (0, "", 4), (1, "a", 4), (1, "c", 0))
    ]
    batches = [pa.RecordBatch.from_pylist(part, tables.COUNTED) for part in (rows[:3], rows[3:])]
    (shown,) = ChooseGroups(2).process((0, batches))
    assert shown.groups == ((0, ""), (1, "a"), (1, "b")) and shown.end_us == 5
    assert shown.mean_per_day == pytest.approx(9.5 / 25.0)


@pytest.mark.parametrize(
    "wanted", [Wanted(by=("kind", "colour")), Wanted(zone="colour"), Wanted(value="colour")]
)
def test_columns_that_the_catalogue_lacks_are_named(wanted):
    with pytest.raises(InputError, match=r"--pages has no column colour\. Its metadata columns are: kind"):
        wanted.check(["kind"])
