"""A store that people have copied, renamed or damaged by hand, and names that Beam takes for patterns."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from pipelines.store.store import Night as Committed
from pipelines.store.store import Store, StoreError
from policies.judging.calibration import Tally
from policies.judging.recalibration import CELLS, FACTORS, KINDS, Track
from tests.pipelines.jobs import at, seen
from tests.pipelines.memory_files import MemoryFiles
from tests.pipelines.stores import Stored, job, midnight
from transforms.kept.carrying import find_previous
from transforms.kept.errors import StateError

__all__ = ["job"]
N1, N2, N3 = (f"202606{day:02d}T000000Z" for day in (2, 3, 4))


@pytest.fixture
def store(tmp_path: Path) -> Stored:
    found = Stored(tmp_path)
    for day in range(3):
        found.log(f"logs/{day}.jsonl", [seen("https://a.test/", at(day))], at(day, 23))
    return found


def _files(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("name", ["b*", "b?", "a[b]", "st,2"])
@pytest.mark.parametrize("flags", [[], ["--status"]])
def test_a_store_whose_name_is_a_pattern_or_a_list_is_refused(name, flags, store, job):
    done = Stored(store.folder, name).run(midnight(1), *flags)
    assert done.code == 2
    assert (
        done.complaints.count(name) == 1
        and f"--store={store.folder / name}: a folder with" in done.complaints
    )
    assert not (store.folder / name).exists() and not job.calls


def _lay(root: Path) -> None:
    for name in (N1, N2):
        folder = root / "nights" / name
        (folder / "state").mkdir(parents=True)
        as_of = f"2026-06-{name[6:8]}T00:00:00Z"
        (folder / "manifest.json").write_text(json.dumps({"options": {"as_of": as_of}}))
        (folder / "state" / "shard-00000-of-00001.parquet").write_bytes(b"state")


@pytest.mark.parametrize("name", ["b*", "b?", "[b]b"])
def test_removing_stays_in_the_folder_whatever_it_is_called(name, tmp_path):
    for root in (tmp_path / name, tmp_path / "bb"):
        _lay(root)
    before = _files(tmp_path / "bb")
    assert Store(str(tmp_path / name), lambda: 0.0).keep(1) == []
    assert os.listdir(tmp_path / name / "nights") == [N2]
    assert _files(tmp_path / "bb") == before


@pytest.fixture
def objects() -> Iterator[dict[str, bytes]]:
    MemoryFiles.files.clear()
    yield MemoryFiles.files
    MemoryFiles.files.clear()


def test_objects_of_another_store_are_not_touched(objects):
    for root in ("mem://bucket/b*", "mem://bucket/bb"):
        for name in (N1, N2):
            for file in ("manifest.json", "state/shard-00000-of-00001.parquet"):
                objects[f"{root}/nights/{name}/{file}"] = b"{}"
    before = dict(objects)
    store = Store("mem://bucket/b*", lambda: 0.0)
    assert [night.name for night in store.nights()] == [N1, N2]
    (warning,) = store.keep(1)
    assert "would be taken for a pattern" in warning
    assert objects == before


@pytest.mark.parametrize(("name", "what"), [("current", "the link"), ("latest.json", "the file")])
def test_a_folder_where_the_store_has_what_follows_from_its_nights(name, what, store, job):
    assert store.run(midnight(1)).code == 0
    (store.root / name).unlink()
    (store.root / name).mkdir()
    (store.root / name / "mine").write_text("x")
    for day in (2, 2, 3):
        done = store.run(midnight(day))
        assert done.code == 0, done.complaints
        assert f"WARNING: {store.root / name} is a folder, not {what}; remove it" in done.complaints
        assert (store.root / name / "mine").read_text() == "x"
        assert sorted(os.listdir(store.root)) == ["current", "latest.json", "lock", "nights"]
    assert store.committed() == [N1, N2, N3]
    shutil.rmtree(store.root / name)
    done = store.run(midnight(3))
    assert done.code == 0 and "WARNING" not in done.complaints
    assert store.current() == N3


def test_a_folder_for_the_link_and_no_night_yet(store, job):
    for name in ("current", "latest.json"):
        (store.root / name).mkdir(parents=True)
        (store.root / name / "mine").write_text("x")
    done = store.run(midnight(1))
    assert done.code == 0 and done.complaints.count("is a folder, not") == 2
    assert (store.root / "latest.json" / "mine").exists() and store.committed() == [N1]


def test_a_date_that_there_is_not(store, job):
    assert store.run(midnight(1)).code == 0
    odd = store.root / "nights" / "20261301T000000Z"
    shutil.copytree(store.root / "nights" / N1, odd)
    before = _files(odd)
    done = store.run(midnight(2), keep=1)
    assert done.code == 0, done.complaints
    assert f"WARNING: {odd} is ignored: there is no such date" in done.complaints
    assert store.current() == N2 and _files(odd) == before
    shown = store.run(None, "--status")
    assert shown.code == 7 and f"WARNING: {odd} is ignored" in shown.printed
    assert not any(line.startswith(odd.name) for line in shown.printed.splitlines())


def test_a_night_under_a_wrong_instant_is_not_believed(store, job):
    assert store.run(midnight(1)).code == 0
    wrong = store.root / "nights" / N3
    shutil.copytree(store.root / "nights" / N1, wrong)
    before = _files(wrong)
    done = store.run(midnight(2), keep=1)
    assert done.code == 0, done.complaints
    assert f"WARNING: {wrong} is ignored: its manifest is of 2026-06-02T00:00:00Z" in done.complaints
    assert store.current() == N2 and _files(wrong) == before
    # Nobody knows whether the copy is the only one.
    refused = store.run(midnight(3))
    assert refused.code == 2 and f"{wrong}: its manifest is of 2026-06-02" in refused.complaints
    assert _files(wrong) == before and len(job.calls) == 2
    shutil.rmtree(wrong)
    assert store.run(midnight(3)).code == 0 and store.current() == N3


@pytest.mark.parametrize("where", ["nights", f"nights/{N2}"])
def test_a_file_in_the_place_of_a_folder(where, store, job):
    place = store.root / where
    place.parent.mkdir(parents=True)
    place.write_text("x")
    done = store.run(midnight(2))
    assert done.code == 2 and f"{place} is a file, and the place of a folder" in done.complaints
    assert "Traceback" not in done.complaints and place.read_text() == "x"
    if where != "nights":
        other = store.run(midnight(3))
        assert other.code == 0 and f"WARNING: {place} is a file, not the folder" in other.complaints


def test_a_half_written_ledger_of_a_committed_night_is_removed(store, job):
    half = f".tmp-{'0a' * 16}-files.json"

    def stopped() -> None:
        (store.root / "nights" / N2 / half).write_text("{")

    assert store.run(midnight(1)).code == 0
    job.before = stopped  # of a run that was killed, seen by one that commits
    assert store.run(midnight(2)).code == 0
    job.before = lambda: None
    mine = store.root / "nights" / N2 / ".tmp-mine-files.json"
    mine.write_text("x")
    assert store.run(midnight(2)).code == 0
    assert not (store.root / "nights" / N2 / half).exists() and mine.exists()
    assert (store.root / "nights" / N2 / "files.json").exists()


TALLY = {"as_of_us": 1, "days": 1.0, **asdict(Tally())}
TRACK = replace(
    Track.empty(), crawls=np.full(KINDS * CELLS, 9.0), predicted=np.ones((KINDS * CELLS, len(FACTORS)))
).as_json()
DAMAGED = [
    ("files", [{"path": "state/x"}]),
    ("carry", [1]),
    ("carry.shards", {"shards": [1e99, "a"], "total": 0}),
    ("carry.shards", {"shards": [float("nan"), 0], "total": 0}),
    ("carry.total", {"shards": [], "total": None}),
    ("carry.giants", {"shards": [], "total": 0, "giants": {"zz": [1.0]}}),
    ("carry.giants", {"shards": [], "total": 0, "giants": {"0f": []}}),
    ("split_hosts", {"zz": 3}),
    ("split_hosts", {"0f": "3"}),
    ("split_hosts", [1]),
    ("large_hosts", [{}]),
    ("large_hosts", None),
    ("counters", None),
    ("counters", {"pages_known": "1"}),
    ("options", []),
    ("options.as_of_us", {"as_of_us": "x", "as_of": "x"}),
    ("options.as_of", {"as_of_us": 1}),
    ("options.horizon_hours", {"horizon_hours": "x"}),
    ("judged", []),
    ("judged.nights", {"nights": [{}]}),
    ("judged.nights", {"nights": [{**TALLY, "predicted_at": [0.0]}]}),
    ("judged.nights", {"nights": [{**TALLY, "crawls": "1"}]}),
    ("recalibration", [1]),
    ("recalibration", {**TRACK, "cell": [3, 2]}),
    ("recalibration", {**TRACK, "found": ["x", "y"]}),
]


def _state(folder: Path, **values: object) -> str:
    (folder / "state").mkdir()
    file = folder / "state" / "shard-00000-of-00001.parquet"
    file.write_bytes(b"state")
    manifest = {
        "options": {},
        "counters": {},
        "carry": {"shards": [0.5], "total": 0, "giants": {"0f": [1.0, 0.5]}},
        "split_hosts": {"0f": 2},
        "large_hosts": [{"host_hash": "0f", "pages": 3}],
        "judged": {"nights": [TALLY]},
        "recalibration": TRACK,
        "files": [{"path": f"state/{file.name}", "bytes": 5}],
    }
    (folder / "manifest.json").write_text(json.dumps({**manifest, **values}))
    return str(folder / "state")


def test_a_manifest_as_a_night_writes_it_is_read(tmp_path):
    found = find_previous(_state(tmp_path), 1, {})
    assert found.carry.giants == {15: (1.0, 0.5)} and found.layout is not None
    assert found.layout.parts == {15: 2}


@pytest.mark.parametrize(("name", "value"), DAMAGED, ids=[f"{i}-{n}" for i, (n, _) in enumerate(DAMAGED)])
def test_a_damaged_manifest_of_the_previous_night(name, value, tmp_path):
    state = _state(tmp_path, **{name.split(".")[0]: value})
    with pytest.raises(StateError, match=rf"manifest\.json: damaged: {name} is not what a night writes"):
        find_previous(state, 1, {})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("options.horizon_hours", {"options": {"horizon_hours": "x"}}),
        ("options.requests", {"options": {"requests": [1]}}),
        ("counters", {"options": {}, "counters": {"after_as_of": "1"}}),
        ("status", {"options": {}, "status": 1}),
        ("warnings", {"options": {}, "warnings": None}),
        ("expected_freshness", {"options": {}, "expected_freshness": "x"}),
    ],
)
def test_a_damaged_manifest_of_the_store(name, values, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(StoreError, match=rf"manifest\.json: damaged: {name}.* is .*, expected "):
        Committed(N1, str(tmp_path), 0).manifest()


def test_a_folder_for_a_manifest(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(StoreError, match=r"manifest\.json: damaged: .*directory"):
        Committed(N1, str(tmp_path), 0).manifest()


@pytest.mark.parametrize(
    "row",
    [
        {"size": "5"},
        {"modified_us": None},
        {"day": "q"},
        {"seen": "x"},
        {"seen": None},
        {"path": 1},
    ],
)
def test_a_damaged_list_of_files(row, store, job):
    assert store.run(midnight(1)).code == 0
    path = store.root / "nights" / N1 / "files.json"
    found = json.loads(path.read_text())
    for rows in found["files"].values():
        rows[:] = [list((dict(zip(found["columns"], old, strict=True)) | row).values()) for old in rows]
    path.write_text(json.dumps(found))
    done = store.run(midnight(2))
    assert done.code == 2 and f"recrawl: {path}: damaged: " in done.complaints
    path.unlink()
    assert store.run(midnight(2)).code == 0


@pytest.mark.parametrize("text", ["[]", '"x"', '{"files": [], "patterns": {}, "columns": []}'])
def test_a_list_of_files_of_another_kind(text, store, job):
    assert store.run(midnight(1)).code == 0
    path = store.root / "nights" / N1 / "files.json"
    path.write_text(text)
    done = store.run(midnight(2))
    assert done.code == 2 and f"recrawl: {path}: damaged: " in done.complaints
