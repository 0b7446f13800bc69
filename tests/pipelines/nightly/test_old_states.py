"""A small state of every layout that a version has written: each is read, and a night goes on from it.

`tests/transforms/states/COMMIT.zip` has `state/`, `slots/` and the manifest of one night, written by the
program as it was then, from one and the same log of twelve days. A layout that changes gets one more.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from policies.history.page_state import Forgetting
from tests.pipelines.jobs import DAY_US, at, nightly, seen
from transforms.batches import schemas
from transforms.kept.carrying import find_previous, read_previous_file
from transforms.kept.errors import StateError
from transforms.kept.fold_settings import FoldSettings, RequestClock
from transforms.kept.statistics import carried_folders
from transforms.night.folding import ShardFold
from transforms.rows.normalise import KINDS, normalise
from transforms.shards.catalogue import HostDefaults

STATES = sorted((Path(__file__).parents[2] / "transforms" / "states").glob("*.zip"))
# The thirteenth day: intervals so far and with it, changes likewise.
LOG = [
    seen("https://a.test/daily", at(12, 2), "d13"),
    seen("https://a.test/still", at(12, 3), "s"),
    seen("https://a.test/dated", at(12, 4), "l12"),
    seen("https://b.test/gone", at(12, 5), "", 404),
    seen("https://b.test/failed", at(12, 6), "f"),
    seen("https://b.test/told", at(12, 7), "t11"),
]
EXPECTED = {
    "https://a.test/daily": (12, 12),
    "https://a.test/still": (12, 0),
    "https://a.test/dated": (4, 3),
    "https://b.test/gone": (6, 1),
    "https://b.test/failed": (1, 0),
    "https://b.test/told": (3, 2),
}


def _unpack(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path) as packed:
        packed.extractall(folder)
    return folder


def test_there_is_one_of_every_layout() -> None:
    """Whoever changes the columns keeps a night of theirs."""
    newest = {folder: schema.names for folder, schema in carried_folders().items()}
    layouts = []
    for path in STATES:
        with zipfile.ZipFile(path) as packed:
            files = [n for n in packed.namelist() if n.endswith(".parquet")]
            layouts.append(
                {n.rsplit("/", 1)[0]: pq.read_schema(io.BytesIO(packed.read(n))).names for n in files}
            )
    assert newest in layouts
    assert len({str(layout) for layout in layouts}) == len(STATES) >= 10


@pytest.mark.parametrize("path", STATES, ids=lambda p: p.stem)
def test_a_shard_folds_on_from_it(path: Path, tmp_path: Path) -> None:
    state = _unpack(path, tmp_path / "old")
    as_of_us = 1_780_272_000_000_000 + 13 * DAY_US
    previous = find_previous(str(state / "state"), as_of_us, {})
    batches = [batch for file in previous.files for batch in read_previous_file(file)]
    block = pa.RecordBatch.from_pylist(LOG)
    batches.append(normalise(KINDS["observations"], block, "", 0, None).rows)
    clock = RequestClock(as_of_us // DAY_US, 28.0)
    settings = FoldSettings(as_of_us, Forgetting(12), clock, HostDefaults(None, 0.0, DAY_US))
    fold = ShardFold(settings, batches)
    counts = fold.counts.totals()
    assert (counts["baseline"], counts["observations"], counts["changed_undated"]) == (0, 6, 1)
    rows = {r["url"]: r for r in fold.state().to_pylist()}
    assert {url: (r["n_intervals"], r["n_changes"]) for url, r in rows.items()} == EXPECTED
    assert rows["https://a.test/still"]["exposure_days"] == pytest.approx(12.0)
    assert sum(rows["https://a.test/daily"]["request_clicks"]) == 40 / schemas.COUNT_UNIT
    assert rows["https://a.test/daily"]["digest_form"] and rows["https://b.test/gone"]["gone"]
    assert [rows[f"https://b.test/{name}"]["answer"] for name in ("gone", "failed")] == [404, None]
    pages = fold.tables(0, []).tables["pages"]
    assert len(pages) == 6 and pages.column("last_slot_at").null_count < 6


@pytest.mark.parametrize("name", ["d444e20", "608a3d6", "failing_since"])
def test_a_night_goes_on_from_it(name: str, tmp_path: Path) -> None:
    """The first layout, the last one without forms of digests, and one with siblings, which are not read."""
    state = _unpack(STATES[0].with_name(f"{name}.zip"), tmp_path / "old")
    options = {"as_of": at(13), "budget": 5, "state": str(state / "state"), "num_shards": 1}
    found = nightly(tmp_path, observations=LOG, **options)
    assert found.code == 0, found.printed
    rows = {r["url"]: r for r in found.rows("pages")}
    assert {url: (r["n_intervals"], r["n_changes"]) for url, r in rows.items()} == EXPECTED
    daily, still = rows["https://a.test/daily"], rows["https://a.test/still"]
    assert daily["request_rate_per_day"] > 0.1
    assert still["change_rate_per_day"] < 0.2 < daily["change_rate_per_day"]
    assert not (found.folder / "slots" / "siblings").exists() and "siblings" not in found.complaints
    assert found.counters["baseline"] == 0 and found.counters["slots_used"] == 5


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """In any order; one that no version knows is an error that names it."""
    state = _unpack(STATES[0], tmp_path / "old")
    (path,) = (state / "state").glob("*.parquet")
    expected = list(read_previous_file(("state", str(path))))
    table = pq.read_table(path)
    pq.write_table(table.select(table.schema.names[::-1]), path)
    assert list(read_previous_file(("state", str(path)))) == expected
    pq.write_table(table.append_column("mood", pa.nulls(table.num_rows)), path)
    with pytest.raises(StateError, match="extra mood"):
        list(read_previous_file(("state", str(path))))
    pq.write_table(table.drop_columns(["baseline_at"]), path)
    with pytest.raises(StateError, match="missing baseline_at"):
        list(read_previous_file(("state", str(path))))
