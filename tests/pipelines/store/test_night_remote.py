"""`recrawl night` on an object store: no folders, no links, no locks, a listing for everything."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pipelines.store import locks
from pipelines.store.locks import StoreBusyError
from pipelines.store.store import Store
from tests.pipelines.jobs import Night, at, nightly
from tests.pipelines.memory_files import MemoryFiles
from tests.pipelines.site import make_site
from tests.pipelines.stores import Stored, midnight

SITE = make_site(n_pages=30, days=6)
ROOT = "mem://bucket/store"
NAMES = ["20260603T000000Z", "20260605T000000Z", "20260607T000000Z"]


@pytest.fixture
def files() -> Iterator[dict[str, bytes]]:
    MemoryFiles.files.clear()
    MemoryFiles.modified.clear()
    yield MemoryFiles.files
    MemoryFiles.files.clear()


def _upload(local: Stored, kind: str, day: int) -> None:
    path = local.log("upload.jsonl", SITE.between(kind, day, day + 1))
    name = f"mem://bucket/{kind}/day={at(day)[:10]}/part-0.jsonl"
    MemoryFiles.files[name] = path.read_bytes()


def _night(local: Stored, day: int, *flags: str) -> Night:
    logs = {
        kind: f"mem://bucket/{kind}/day={{date}}/*.jsonl" for kind in ("observations", "requests", "signals")
    }
    return local.run(midnight(day), "--allow_shrink", *flags, store=ROOT, keep=2, **logs)


def test_nights_on_an_object_store_leave_the_state_of_one(files, tmp_path):
    local = Stored(tmp_path)
    for day in range(6):
        for kind in ("observations", "requests", "signals"):
            _upload(local, kind, day)
        if day % 2:
            files[f"{ROOT}/nights/20260601T000000Z/pages/shard-00000-of-00002.parquet"] = b"remains"
            done = _night(local, day + 1)
            assert done.code == 0, done.complaints
    assert json.loads(files[f"{ROOT}/latest.json"])["night"] == NAMES[-1]
    folders = {path.removeprefix(f"{ROOT}/").split("/")[1] for path in files if "/nights/" in path}
    assert folders == set(NAMES[1:])
    assert not [path for path in files if "/lock" in path or ".tmp-" in path]
    again = _night(local, 6)
    assert again.code == 0 and "nothing to do" in again.printed

    one = nightly(
        tmp_path,
        "one",
        as_of=midnight(6),
        flags=["--allow_shrink"],
        **{kind: SITE.between(kind, 0, 6) for kind in ("observations", "requests", "signals")},
    )
    for path in sorted(one.folder.glob("state/**/*.parquet")):
        name = path.relative_to(one.folder).as_posix()
        assert files[f"{ROOT}/nights/{NAMES[-1]}/{name}"] == path.read_bytes(), name


def test_a_lease_is_held_by_one_and_runs_out(files):
    clock = [1000.0]
    one, two = (Store(ROOT, lambda: clock[0]) for _ in range(2))
    with one.lock():
        held = json.loads(files[f"{ROOT}/lock"])
        assert held["until"] == 1000 + locks.LEASE_SECONDS
        with pytest.raises(StoreBusyError, match=f"process {held['pid']} on {held['host']}"), two.lock():
            pass
        assert files[f"{ROOT}/lock"]  # the loser leaves it alone
    assert f"{ROOT}/lock" not in files
    # A process that died leaves its lease; when that has run out, the next one takes it.
    files[f"{ROOT}/lock"] = json.dumps({**held, "until": 2000}).encode()
    with pytest.raises(StoreBusyError), two.lock():
        pass
    clock[0] = 2000.0
    with two.lock():
        assert json.loads(files[f"{ROOT}/lock"])["until"] == 2000 + locks.LEASE_SECONDS


def test_a_lease_is_renewed_while_it_is_held(files, monkeypatch):
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.02)
    clock = iter(range(1, 1_000_000))
    store = Store(ROOT, lambda: float(next(clock)))
    with store.lock():
        first = json.loads(files[f"{ROOT}/lock"])["until"]
        for _ in range(10_000):
            if json.loads(files[f"{ROOT}/lock"])["until"] > first + 2:
                break
            locks.threading.Event().wait(0.002)
        else:
            raise AssertionError("nobody renewed it")


def test_who_loses_the_race_for_a_lease_gives_way(files, monkeypatch):
    """Both saw no lease; the last one to write it has it."""
    write = locks.write_json

    def overtaken(folder, name, value):
        write(folder, name, value)
        if name == "lock":
            write(folder, name, {**value, "token": "another", "pid": 7})

    monkeypatch.setattr(locks, "write_json", overtaken)
    with pytest.raises(StoreBusyError, match="process 7"), Store(ROOT, lambda: 1.0).lock():
        pass
    assert json.loads(files[f"{ROOT}/lock"])["token"] == "another"


def test_a_lease_that_another_has_taken_stops_the_night(files):
    """A machine that slept past its lease must not commit over the one that runs now."""
    clock = [1000.0]
    store = Store(ROOT, lambda: clock[0])
    with pytest.raises(StoreBusyError, match="process 7"), store.lock():
        files[f"{ROOT}/lock"] = json.dumps({"token": "another", "pid": 7, "until": 9000}).encode()
        store.check_held()
    assert json.loads(files[f"{ROOT}/lock"])["token"] == "another"
