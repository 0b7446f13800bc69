"""What breaks in the middle of a night: the same files in the end, or a clear error and no manifest."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.engines import Engine, until
from tests.cluster.faults import PLACES, fault
from tests.cluster.nights import end, first_options, start
from tests.pipelines.jobs import Night, command

FOLDERS = ("pages", "schedule", "state", "slots", "rejected")


def assert_failed(night: Night, *words: str) -> None:
    """Exit code 1, one message with these words, no manifest."""
    assert night.code == 1, (night.printed, night.complaints)
    assert not night.committed
    said = night.complaints.splitlines()[-1]
    assert said.startswith("recrawl: ") and "Nothing is committed" in said, night.complaints
    assert not [word for word in words if word not in said], said


def assert_clean(night: Night, clean: Night) -> None:
    """Committed, with the files of a clean night and no other."""
    assert night.code == 0, night.complaints
    assert night.digests() == clean.digests()


def mend(folder: Path, corpus: list[str], clean: Night) -> None:
    """The next run into the same folder is a clean night."""
    assert_clean(Night(*command("nightly", *corpus, *first_options(folder)), folder), clean)


@pytest.mark.parametrize("place", PLACES)
def test_a_worker_is_killed(engine: Engine, place, first, corpus, clean, tmp_path):
    mark = tmp_path / "mark"
    night = first(*engine.workers(fault(place, "kill", mark)))
    assert mark.exists()
    if engine.retries:
        assert_clean(night, clean)
    else:
        assert_failed(night, "worker of the runner died")
        mend(night.folder, corpus, clean)


@pytest.mark.parametrize("place", ["read", "search"])
def test_what_fails_once(engine: Engine, place, first, corpus, clean, tmp_path):
    mark = tmp_path / "mark"
    night = first(*engine.workers(fault(place, "fail once", mark)))
    assert mark.exists()
    if engine.retries:
        assert_clean(night, clean)
    else:
        # With signals two searches run side by side, and either may be the first to meet the fault.
        step = {"read": "ReadInputs/", "search": "/Demand["}[place]
        assert_failed(night, step, "OSError: the test's fault")
        mend(night.folder, corpus, clean)


def test_what_fails_every_time(engine: Engine, first, corpus, clean, tmp_path):
    night = first(*engine.workers(fault("fold", "fail", tmp_path / "mark")))
    assert_failed(night, "FoldHistory", "OSError: the test's fault")
    mend(night.folder, corpus, clean)


def test_an_error_of_ours_keeps_its_sentence_and_its_code(engine: Engine, corpus, tmp_path):
    """A worker elsewhere finds that the floors are above the budget."""
    folder = tmp_path / "night"
    pages = tmp_path / "floors.csv"
    pages.write_text("url,min_rate_per_day\nhttps://floor.test/,5000\n")
    options = [*corpus, *first_options(folder), f"--pages={pages}", *engine.workers()]
    night = end(start(*options), folder)
    assert night.code == 2 and not night.committed
    assert "5000" in night.complaints.splitlines()[-1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"may not mount a small disk here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_the_disk_is_full(engine: Engine, small_disk, first, corpus, clean):
    night = first(*engine.workers(), folder=small_disk)
    assert_failed(night, "--output", os.strerror(28))
    left = [p.name for p in small_disk.rglob(".tmp-*")]
    assert not left  # what could not be finished is taken away
    subprocess.run(["mount", "-o", "remount,size=10m", str(small_disk)], check=True)
    mend(night.folder, corpus, clean)


def test_the_server_is_killed(own_engine: Engine, corpus, clean, tmp_path):
    """A job server that ends takes the job along; there is an error at once."""
    mark, folder = tmp_path / "mark", tmp_path / "night"
    process = start(*corpus, *first_options(folder), *own_engine.workers(fault("fold", "stop", mark)))
    pid = until(lambda: mark.exists() and mark.read_text(), "a worker folds")
    own_engine.processes[0].kill()
    try:
        night = end(process, folder)
        assert_failed(night, "lost the job server")
        assert "Traceback" not in night.complaints  # of Beam's threads, which lose it too
    finally:
        os.kill(int(pid), signal.SIGKILL)
    mend(folder, corpus, clean)


@pytest.mark.parametrize("place", ["write", "manifest"])
def test_a_stopped_night_never_commits(engine: Engine, place, corpus, clean, tmp_path):
    """Its worker has looked whether it may rename, stands still until all is over, and goes on then."""
    mark, folder = tmp_path / "mark", tmp_path / "night"
    process = start(*corpus, *first_options(folder), *engine.workers(fault(place, "stop", mark)))
    pid = until(lambda: mark.exists() and mark.read_text(), f"a worker is in {place}")
    process.send_signal(signal.SIGTERM)
    night = end(process, folder)
    assert night.code == 1 and "recrawl: interrupted; nothing is committed" in night.complaints
    left = night.digests()
    with contextlib.suppress(ProcessLookupError):  # Prism has ended it
        os.kill(int(pid), signal.SIGCONT)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the worker ends")
    assert night.digests() == left and not night.committed
    mend(folder, corpus, clean)


def test_a_worker_that_does_not_start(prism_engine: Engine, first):
    """Prism waits for ever, or falls over, as chance has it; the command does neither."""
    options = [*prism_engine.options, "--environment_type=PROCESS"]
    night = first(*options, '--environment_config={"command": "/nowhere/worker"}', impatient=True)
    assert_failed(night, "--environment_config")


def test_a_worker_that_stands_still(prism_engine: Engine, first, tmp_path):
    mark = tmp_path / "mark"
    night = first(*prism_engine.workers(fault("search", "stop", mark)), impatient=True)
    assert_failed(night, "no sign of life")
    process = Path("/proc") / mark.read_text()
    until(lambda: not process.exists(), "Prism ends its worker")


def test_a_worker_that_works_long_is_let_be(prism_engine: Engine, first, clean, tmp_path):
    night = first(*prism_engine.workers(fault("fold", "work", tmp_path / "mark")), impatient=True)
    assert_clean(night, clean)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["fold", "write"])
def test_a_worker_of_the_direct_runner_is_killed(place, first, corpus, clean, tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    with monkeypatch.context() as patch:
        for name, value in fault(place, "kill", mark).items():
            patch.setenv(name, value)
        night = first(*processes)
    assert mark.exists()
    assert_failed(night, "worker of the runner died")
    mend(night.folder, corpus, clean)


@pytest.mark.flink
@pytest.mark.parametrize("place", ["fold", "search", "write"])
def test_a_task_manager_is_killed(own_engine: Engine, place, corpus, clean, tmp_path):
    """The other one has slots enough to go on."""
    if not own_engine.retries:
        pytest.skip("Prism has one worker and no task managers")
    mark, folder = tmp_path / "mark", tmp_path / "night"
    process = start(*corpus, *first_options(folder), *own_engine.workers(fault(place, "stop", mark)))
    pid = until(lambda: mark.exists() and mark.read_text(), f"a worker is in {place}")
    task_managers = own_engine.processes[2:]
    parents = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    (victim,) = [p for p in task_managers if str(p.pid) == parents[1]]
    victim.kill()
    os.kill(int(pid), signal.SIGKILL)
    assert_clean(end(process, folder), clean)
