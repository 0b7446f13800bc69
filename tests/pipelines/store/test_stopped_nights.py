"""A night that was stopped never commits later, and never writes beside the one that is run after it."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from apache_beam.io.filesystems import FileSystems

from pipelines.command import stopping
from pipelines.nightly import nightly as nightly_module
from pipelines.nightly import submitting
from tests.pipelines.jobs import Night, at, command, crawls, nightly, write_rows
from tests.pipelines.memory_files import MemoryFiles
from tests.pipelines.orphans import SECONDS, Elsewhere, elsewhere, gate
from tests.pipelines.stores import Stored, midnight
from transforms.files import replacing, sinks
from transforms.files.attempts import MARK, Attempt, StoppedError

ROWS = [r for i in range(12) for r in crawls(f"https://h{i % 3}.test/{i}", "AABBC")]
PLACES = ("state/shard-00000-of-00002.parquet", "pages/shard-00001-of-00002.parquet", "manifest.json")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Night:
    night = nightly(tmp_path_factory.mktemp("clean"), observations=ROWS)
    assert night.code == 0, night.complaints
    return night


@pytest.fixture
def there() -> Iterator[Elsewhere]:
    with elsewhere() as found:
        yield found


def _options(clean: Night, output: Path, *more: str) -> list[str]:
    log = clean.folder.parent / "inputs" / "night-observations.jsonl"
    options = [f"--observations={log}", f"--as_of={at(30)}", f"--output={output}", "--budget=10"]
    return [*options, "--num_shards=2", "--max_rejected_fraction=1", *more]


def _again(clean: Night, output: Path, *more: str) -> Night:
    return Night(*command("nightly", *_options(clean, output, *more)), output)


def _temporary(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.name.startswith((".tmp-", MARK))]


@pytest.mark.parametrize(
    ("number", "place"), [(signal.SIGINT, PLACES[2]), *((signal.SIGTERM, p) for p in PLACES)], ids=str
)
def test_a_stopped_night_writes_nothing_more(number, place, there, clean, tmp_path, monkeypatch):
    """Its job waits just before a rename, hears of no cancellation, and goes on."""
    out = tmp_path / "night"
    with gate(place, monkeypatch) as waits, there.start("nightly", *_options(clean, out)) as run:
        assert waits.reached.wait(SECONDS)
        run.send_signal(number)
        _, said = run.communicate(timeout=SECONDS)
        assert run.returncode == 1 and "recrawl: interrupted; nothing is committed" in said
        assert "may still be at work" in said.splitlines()[-1] and "Traceback" not in said
        left = Night(1, "", said, out).digests()
        assert "manifest.json" not in left and not _temporary(out)
        waits.opened.set()
        (log,) = there.server.ended()
    assert "StoppedError: --output=" in log and "its run was stopped" in log
    assert Night(1, "", "", out).digests() == left
    assert _again(clean, out).digests() == clean.digests()


@pytest.mark.parametrize(
    ("replaces", "place"), [(False, PLACES[0]), (False, PLACES[2]), (True, PLACES[1]), (True, PLACES[2])]
)
def test_an_orphan_and_the_run_after_it(replaces, place, there, clean, tmp_path, monkeypatch):
    """Its submitter was killed; it wakes up while the next run works, and once more when that is done."""
    out = tmp_path / "night"
    if replaces:
        assert _again(clean, out, "--budget=5").code == 0
    with gate(place, monkeypatch) as waits, there.start("nightly", *_options(clean, out)) as run:
        assert waits.reached.wait(SECONDS)
        run.kill()
        again = _again(clean, out)
        assert again.code == 0, again.complaints
        assert again.digests() == clean.digests()
        waits.opened.set()
        (log,) = there.server.ended()
    assert "StoppedError" in log
    assert again.digests() == clean.digests()


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "fails"])
@pytest.mark.parametrize("replaces", [False, True], ids=["first", "replaces"])
def test_an_earlier_run_ends_while_the_next_one_works(replaces, killed, there, clean, tmp_path, monkeypatch):
    """It takes nothing away from that: neither its job, nor its submitter, which tidies up behind itself."""
    out = tmp_path / "night"
    if replaces:
        assert _again(clean, out, "--budget=5").code == 0
    with gate(PLACES[0], monkeypatch) as waits, there.start("nightly", *_options(clean, out)) as run:
        assert waits.reached.wait(SECONDS)
        if killed:
            run.kill()
        build = nightly_module.build_pipeline
        made = (out / ".next" if replaces else out) / "state" / "shard-00009-of-00010.parquet"

        def built(*arguments):
            made.write_text("of the next one")
            waits.opened.set()
            there.server.ended()
            run.wait(SECONDS)
            made.unlink()
            return build(*arguments)

        monkeypatch.setattr(nightly_module, "build_pipeline", built)
        again = _again(clean, out)
        (log,) = there.server.ended()
    assert "StoppedError" in log and "another run has taken it over" in log
    assert again.code == 0 and again.digests() == clean.digests()


def test_two_runs_at_once(there, clean, tmp_path, monkeypatch, beams_runner):
    """The later one has the folder; the earlier one says so, with the code of a store that is in use."""
    out = tmp_path / "night"
    with gate(PLACES[1], monkeypatch) as waits, there.start("nightly", *_options(clean, out)) as run:
        assert waits.reached.wait(SECONDS)
        again = _again(clean, out, "--budget=7")
        waits.opened.set()
        _, said = run.communicate(timeout=SECONDS)
    assert again.code == 0 and again.manifest["budget_per_day"] == 7
    assert run.returncode == 6
    assert "may not be written any more: " in said.splitlines()[-1]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=str)
def test_a_night_of_a_store(end, there, tmp_path, monkeypatch, beams_runner):
    """Stopped or killed; the next run is a whole one, whose ledger is of the files that it has read."""
    stored = Stored(tmp_path)
    stored.log("logs/0.jsonl", ROWS, at(0))
    options = [f"--store={stored.root}", f"--observations={tmp_path}/logs/*.jsonl", f"--as_of={midnight(6)}"]
    options += ["--budget=10", "--num_shards=2", "--max_rejected_fraction=1"]
    with gate("manifest.json", monkeypatch) as waits, there.start("night", *options) as run:
        assert waits.reached.wait(SECONDS)
        run.send_signal(end)
        _, said = run.communicate(timeout=SECONDS)
        if end == signal.SIGTERM:
            assert run.returncode == 1 and "interrupted; nothing is committed" in said
            assert "the night of 2026-06-07T00:00:00Z failed and is not committed" in said
        stored.log("logs/1.jsonl", crawls("https://new.test/", "AB", 2), at(1))
        waits.opened.set()
        if end == signal.SIGTERM:
            assert "StoppedError" in there.server.ended()[0] and not stored.committed()
            done = stored.run(midnight(6))
        else:  # in a race for the folder
            done = stored.run(midnight(6))
            there.server.ended()
    assert done.code == 0, done.complaints
    (name,) = stored.committed()
    folder = stored.root / "nights" / name
    manifest = json.loads((folder / "manifest.json").read_text())
    read = json.loads((folder / "files.json").read_text())
    noted = [i for i in (0, 1) if f"/logs/{i}.jsonl" in json.dumps(read)]
    assert manifest["counters"]["observations_files"] == len(noted)
    assert not _temporary(stored.root)


def test_a_night_that_is_complete_when_it_is_stopped_is_committed(there, clean, tmp_path, monkeypatch):
    """What a person is told is what is so."""
    wait = submitting._wait

    def interrupted(*arguments) -> None:
        wait(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(submitting, "_wait", interrupted)
    night = _again(clean, tmp_path / "night", *there.options)
    assert night.code == 0 and night.digests() == clean.digests()
    assert "the night was complete just before" in night.complaints


def test_a_night_that_was_stopped_while_it_took_its_place_takes_it(clean, tmp_path):
    """By whoever stops it: it was complete."""
    out = tmp_path / "night"
    assert _again(clean, out, "--budget=5").code == 0
    before = sinks.read_json(str(out / "manifest.json"))
    attempt = Attempt("a" * 32, str(out), str(out / ".next"))
    replacing.fence(str(out))
    replacing.prepare(attempt.folder)
    attempt.claim()
    files = [
        sinks.write_file(attempt.folder, f"pages/shard-0000{i}-of-00002.jsonl", b"x", 1, attempt)
        for i in (0, 1)
    ]
    manifest = {"files": [f.as_dict() for f in files]}
    sinks.write_json(attempt.folder, "manifest.json", manifest, attempt=attempt)
    looks = iter([None, None, StoppedError("now")])

    def check() -> None:
        if error := next(looks):
            raise error

    with pytest.raises(StoppedError):
        replacing.finish(str(out), check)
    assert replacing.settle(attempt, before)
    assert json.loads((out / "manifest.json").read_text()) == manifest
    assert not (out / ".next").exists() and not _temporary(out)
    assert replacing.is_done(attempt, manifest["files"])


@pytest.mark.parametrize("root", ["mem://night", "here"])
def test_whoever_renames_after_the_end_finds_his_file_gone(root, tmp_path, monkeypatch):
    """He has looked before it. On an object store as on a disk."""
    output = str(tmp_path) if root == "here" else root
    MemoryFiles.files.clear()
    attempt, looked, go = Attempt("b" * 32, output, output), threading.Event(), threading.Event()
    attempt.claim()
    rename = sinks.FileSystems.rename

    def late(sources: list[str], targets: list[str]) -> None:
        looked.set()
        assert go.wait(SECONDS)
        rename(sources, targets)

    monkeypatch.setattr(sinks.FileSystems, "rename", staticmethod(late))
    name = "pages/shard-00000-of-00001.parquet"
    with ThreadPoolExecutor(1) as pool:
        orphan = pool.submit(sinks.write_file, output, name, b"old", 1, attempt)
        assert looked.wait(SECONDS)
        replacing.fence(output)
        go.set()
        with pytest.raises(StoppedError, match="its run was stopped"):
            orphan.result()
    assert not FileSystems.exists(FileSystems.join(output, *name.split("/")))


def test_what_a_kill_leaves_half_written_goes_when_the_night_is_committed(clean, tmp_path, monkeypatch):
    """Also what has the name of a temporary manifest; what others have put there stays."""
    out = tmp_path / "night"
    half = [f".tmp-{'0f' * 16}-{n}" for n in ("manifest.json", "shard-00000-of-00002.parquet")]
    claim = Attempt.claim

    def killed(attempt: Attempt) -> None:
        claim(attempt)
        (out / half[0]).write_text("{")
        (out / "state" / half[1]).write_text("x")
        (out / ".tmp-mine").write_text("x")

    monkeypatch.setattr(Attempt, "claim", killed)
    assert _again(clean, out).code == 0
    assert [p.name for p in _temporary(out)] == [".tmp-mine"]


def test_a_second_signal_waits_until_the_first_is_dealt_with():
    done = []
    with stopping.heard() as heard, pytest.raises(KeyboardInterrupt), stopping.later():
        signal.raise_signal(signal.SIGTERM)
        done.append("the mark is gone")
    assert done and heard.number == signal.SIGTERM
    wrapped = RuntimeError()
    wrapped.__cause__ = KeyboardInterrupt()
    assert stopping.is_interrupt(wrapped) and not stopping.is_interrupt(ValueError())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_night_in_this_process_is_stopped_alike(number, clean, tmp_path, monkeypatch, beams_runner):
    out = tmp_path / "night"
    rename, settle, ended = sinks.FileSystems.rename, nightly_module.settle, threading.Event()
    write, writing, idle = sinks.write_file, [], threading.Condition()

    def writes(*arguments):
        with idle:
            writing.append(arguments[1])
        try:
            return write(*arguments)
        finally:
            with idle:
                writing.remove(arguments[1])
                idle.notify_all()

    def stopped(sources: list[str], targets: list[str]) -> None:
        if targets[0].endswith(PLACES[1]):
            signal.pthread_kill(threading.main_thread().ident, number)
            assert ended.wait(SECONDS)
        rename(sources, targets)

    def settled(*arguments) -> bool:
        committed = settle(*arguments)
        ended.set()
        return committed

    with monkeypatch.context() as patch:
        patch.setattr(sinks.FileSystems, "rename", staticmethod(stopped))
        patch.setattr(nightly_module, "settle", settled)
        patch.setattr(sinks, "write_file", writes)
        night = _again(clean, out)
        with idle:  # who is at a file removes it himself
            assert idle.wait_for(lambda: not writing, SECONDS)
    assert night.code == 1 and not night.committed
    assert night.complaints.splitlines()[-1] == "recrawl: interrupted; nothing is committed"
    assert not _temporary(out)
    assert _again(clean, out).digests() == clean.digests()


def test_a_night_that_is_stopped_before_its_job_is_sent_leaves_no_mark(clean, tmp_path, monkeypatch):
    def stopped(*_) -> None:
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(nightly_module, "build_pipeline", stopped)
    night = _again(clean, tmp_path / "night")
    assert night.code == 1 and "nothing is committed" in night.complaints
    assert not _temporary(night.folder)


def test_left_overs_are_not_read(clean, tmp_path):
    """Neither in a folder of logs nor in one of a state."""
    state = tmp_path / "before" / "state"
    assert _again(clean, tmp_path / "before").code == 0
    (state / f".tmp-{'0' * 64}-shard-00000-of-00002.parquet").write_bytes(b"half")
    logs = write_rows(tmp_path / "logs" / "a.jsonl", ROWS[:10]).parent
    (logs / ".tmp-0-b.jsonl").write_text("half")
    night = nightly(tmp_path, "next", observations=logs, state=state, as_of=at(31), flags=["--allow_shrink"])
    assert night.code == 0, night.complaints
    assert night.counters["observations_files"] == 1
