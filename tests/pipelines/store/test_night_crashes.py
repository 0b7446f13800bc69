"""A night that is stopped anywhere, by an error or by kill -9, and the run after it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipelines.nightly import nightly
from pipelines.store import locks, night
from pipelines.store.store import Store
from tests.pipelines.jobs import at, seen
from tests.pipelines.started import Started, recrawl
from tests.pipelines.stores import Stored, job, midnight
from transforms.files import shard_files, sinks
from transforms.night import commit

__all__ = ["job"]
N1, N2, N3 = (f"202606{day:02d}T000000Z" for day in (2, 3, 4))
OPTIONS = {"num_shards": 1, "keep": 1, "max_rejected_fraction": None}
# Owner and name of a step, whether it is done when the night is stopped, and which night is current then
# by latest.json.
PLACES = [
    (Store, "remove_remains", True, N1),
    (night, "write_json", False, N1),
    (nightly, "prepare_output", False, N1),
    (nightly, "build_pipeline", True, N1),
    (shard_files, "write_file", True, N1),
    (commit, "write_json", False, N1),
    (commit, "write_json", True, N1),  # committed, but nobody is told
    (locks, "write_json", True, N2),  # but not yet by the link
    (Store, "point_at", True, N2),
    (Store, "keep", True, N2),
]


class Crash(BaseException):
    """What no handler of errors takes for one."""


def _logs(folder: Path) -> None:
    for day in range(3):
        rows = [seen(f"https://h{i}.test/{i}", at(day, i), "AB"[(i + day) % 2]) for i in range(12)]
        Stored(folder).log(f"logs/{day}.jsonl", rows, at(day, 23))


def _stored(stored: Stored, name: str) -> dict[str, str]:
    """All that a night leaves, but for paths of the store in its manifest."""
    folder = stored.root / "nights" / name
    files = {p.relative_to(folder).as_posix(): p.read_bytes().hex() for p in folder.rglob("*") if p.is_file()}
    manifest = json.loads((folder / "manifest.json").read_text())
    del files["manifest.json"], manifest["options"]["state"], manifest["sha256"]
    return {**files, "manifest.json": json.dumps(manifest), "latest.json": json.dumps(stored.latest())}


@dataclass
class Case:
    """A folder with logs and a store with one night, and what a second night leaves if nothing happens."""

    folder: Path
    expected: dict[str, str]

    def store(self, name: str) -> Stored:
        """A store of its own with the first night."""
        shutil.copytree(self.folder / "first", self.folder / name, symlinks=True)
        return Stored(self.folder, name, OPTIONS)

    def check_repaired(self, stored: Stored) -> None:
        """The night once more gives what an undisturbed one gives."""
        done = stored.run(midnight(2))
        assert done.code == 0, done.complaints
        assert stored.current() == N2 and stored.committed() == [N2]
        assert sorted(os.listdir(stored.root)) == ["current", "latest.json", "lock", "nights"]
        assert _stored(stored, N2) == self.expected


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    found = Case(tmp_path_factory.mktemp("crashes"), {})
    _logs(found.folder)
    done = Stored(found.folder, "first", OPTIONS).run(midnight(1))
    assert done.code == 0, done.complaints
    undisturbed = found.store("undisturbed")
    assert undisturbed.run(midnight(2)).code == 0
    found.expected = _stored(undisturbed, N2)
    return found


@pytest.mark.parametrize(
    ("owner", "name", "done", "current"), PLACES, ids=[f"{i}-{place[1]}" for i, place in enumerate(PLACES)]
)
def test_a_crash_at_any_step(owner, name, done, current, case, monkeypatch):
    stored = case.store(f"{owner.__name__}-{name}-{done}")
    real = getattr(owner, name)
    calls = []

    def crashing(*arguments, **more):
        calls.append(arguments)
        if passes(name, arguments, len(calls)) or done:
            real(*arguments, **more)
        if not passes(name, arguments, len(calls)):
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, crashing)
        with pytest.raises(BaseException) as stopped:  # Beam raises it as something else
            stored.run(midnight(2))
    assert "Crash" in repr(stopped.value) + str(stopped.value)
    assert calls
    # Whatever happened, a reader finds a whole night.
    assert stored.latest()["night"] == current
    linked = os.readlink(stored.root / "current").removeprefix("nights/")
    assert linked == (N1 if owner is locks else current)
    assert {linked, current} <= set(stored.committed())
    case.check_repaired(stored)


def passes(name: str, arguments: tuple, calls: int) -> bool:
    """Whether a call is not yet the step that is meant."""
    if name == "point_at":  # the first one looks whether a crash was before
        return calls == 1
    return name == "write_file" and not arguments[1].startswith("state/")


KILLED = """
import os, signal, sys
import apache_beam
from pipelines.door import cli
from pipelines.store import night
from pipelines.store.store import Store
from transforms.files import shard_files
from transforms.night import commit
owner, name = eval(sys.argv[1]), sys.argv[2]
real, calls = getattr(owner, name), []
def killing(*arguments, **more):
    calls.append(name)
    result = real(*arguments, **more)
    if name == "point_at" and len(calls) == 1:
        return result
    os.kill(os.getpid(), signal.SIGKILL)
setattr(owner, name, killing)
sys.exit(cli.main(sys.argv[3:]))
"""


def _arguments(stored: Stored, day: int) -> list[str]:
    return [
        "night",
        f"--store={stored.root}",
        f"--observations={stored.folder}/logs/*.jsonl",
        f"--as_of={midnight(day)}",
        "--budget=10",
        "--num_shards=1",
        "--keep=1",
    ]


@pytest.mark.parametrize(
    ("place", "current"),
    [
        (("shard_files", "write_shard"), N1),
        (("commit", "write_json"), N1),  # committed, but nobody is told
        (("Store", "point_at"), N2),
    ],
    ids=["in the job", "after the manifest", "before old nights go"],
)
def test_kill_9(place, current, case):
    stored = case.store("killed-" + "-".join(place))
    killed = subprocess.run(
        [*recrawl(), "-c", KILLED, *place, *_arguments(stored, 2)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert json.loads((stored.root / "lock").read_text())["pid"] > 0  # it was held, and is free now
    assert stored.current() == current
    case.check_repaired(stored)


WAITING = """
import sys
from pipelines.door import cli
from pipelines.nightly import nightly
def wait(argv, wait=True):
    print("running", flush=True)
    sys.stdin.readline()
    raise AssertionError("nobody stopped it")
nightly.run = wait
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_night_in_another_process_holds_the_store_until_it_is_stopped(number, tmp_path, job):
    _logs(tmp_path)
    stored = Stored(tmp_path)
    assert stored.run(midnight(1)).code == 0
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Started("-c", WAITING, *_arguments(stored, 2), **pipes) as other:
        try:
            assert other.stdout is not None
            while "running" not in (line := other.stdout.readline()):
                assert line, "the other night ended early"
            second = stored.run(midnight(3))
            assert second.code == 6 and f"process {other.process} on " in second.complaints
            assert stored.committed() == [N1]
            other.send_signal(number)
            _, said = other.communicate(timeout=60)
        finally:
            other.kill()
    assert other.returncode == 1
    assert "interrupted" in said and "In force stays the schedule of 2026-06-02T00:00:00Z" in said
    assert stored.run(midnight(3)).code == 0
    assert sorted(os.listdir(stored.root / "nights")) == [N1, N3]
    assert sinks.read_json(str(stored.root / "latest.json"))["night"] == N3
