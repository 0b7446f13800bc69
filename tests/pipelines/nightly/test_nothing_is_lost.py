"""A good night is replaced by a complete one only, and what damages a night is seen before it is used."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.door import cli
from pipelines.nightly.nightly import replaced_by
from pipelines.nightly.options import Settings
from tests.pipelines.jobs import Night, at, crawls, nightly, seen, write_rows
from tests.pipelines.stores import Job, Stored, job, midnight, set_clock
from transforms.files import replacing, sinks
from transforms.kept.carrying import find_previous, read_previous_file
from transforms.kept.errors import StateError

__all__ = ["job"]
KINDS = ("pages", "hosts", "schedule", "state", "slots", "rejected")
ROWS = [r for i in range(12) for r in crawls(f"https://h{i % 3}.test/{i}", "AABBC")]
N1, N2, OLD = "20260602T000000Z", "20260603T000000Z", "20200101T000000Z"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("good")
    night = nightly(folder, observations=ROWS, signals=[{"url": ROWS[0]["url"], "signalled_at": at(5)}])
    assert night.code == 0, night.complaints
    return night


def _copy(good: Night, tmp_path: Path) -> Night:
    shutil.copytree(good.folder, tmp_path / "night")
    return Night(0, "", "", tmp_path / "night")


def test_what_cannot_be_read_or_is_empty_leaves_the_night_that_is_there(good, tmp_path, monkeypatch):
    """An evening's typo made an empty schedule of a good one."""
    before = _copy(good, tmp_path).digests()
    (tmp_path / "none.csv").write_text("url,fetched_at\n")
    (tmp_path / "closed" / "a").mkdir(parents=True)
    write_rows(tmp_path / "closed" / "b.csv", ROWS)
    bad = [seen("ftp://a.test/", at(1))]
    floors = [{"url": ROWS[0]["url"], "min_rate_per_day": 1000}]
    scan = os.scandir

    def shut(path):
        if str(path).endswith("closed/a"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", shut)
    for options, said in (
        ({"observations": tmp_path / "logz" / "*"}, "no file matches"),
        ({"observations": f"{tmp_path}/none.csv,{tmp_path}/*.nothing"}, "no file matches"),
        ({"observations": tmp_path / "closed"}, "closed/a: cannot be read"),
        ({"observations": ROWS, "requests": tmp_path / "clicks*"}, "--requests: no file matches"),
        ({"observations": tmp_path / "none.csv"}, "give --overwrite"),
        ({"observations": bad}, "all 1 rows of --observations were rejected"),
        ({"observations": ROWS, "host_max_per_day": 0}, "10 crawls, which stays"),
        ({"observations": ROWS, "pages": floors}, "lower the floors"),
    ):
        night = nightly(tmp_path, **options)
        assert night.code == cli.EXIT_USAGE and said in night.complaints, night.complaints
        left = {n: h for n, h in night.digests().items() if not n.startswith(".next/rejected/")}
        assert left == before, options
    night = nightly(tmp_path, observations=bad * 2, max_rejected_fraction=0.01)
    assert night.code == cli.EXIT_REJECTED and f"{night.folder}/.next/rejected/" in night.complaints
    assert len(list((night.folder / ".next" / "rejected").iterdir())) >= 1
    assert {n: h for n, h in night.digests().items() if not n.startswith(".next/rejected/")} == before


def test_a_complete_night_takes_the_place_of_another(good, tmp_path):
    """The same night again, another one of fewer and other files, and an empty one that is asked for."""
    there = _copy(good, tmp_path)
    again = nightly(
        tmp_path, observations=ROWS, signals=good.folder.parent / "inputs" / "night-signals.jsonl"
    )
    assert again.code == 0 and again.digests(*KINDS) == good.digests(*KINDS)
    mine = there.folder / "pages" / "mine.txt"
    mine.write_text("x")
    others = {"observations": ROWS[:30], "num_shards": 1, "output_format": "jsonl", "as_of": at(31)}
    fresh = nightly(tmp_path, "fresh", **others)
    replaced = nightly(tmp_path, **others)
    assert replaced.code == fresh.code == 0 and mine.read_text() == "x"
    mine.unlink()
    assert replaced.digests(*KINDS) == fresh.digests(*KINDS)
    assert {p.name for p in replaced.folder.iterdir()} == {p.name for p in fresh.folder.iterdir()}
    (tmp_path / "none.csv").write_text("url,fetched_at\n")
    empty = nightly(tmp_path, observations=tmp_path / "none.csv", flags=["--overwrite"])
    assert empty.code == cli.EXIT_EMPTY and empty.manifest["status"] == "no_input"


def test_which_night_an_empty_one_must_not_replace(good, tmp_path):
    """None where that is asked for, and where less than a crawl is to be made: most nights are empty then."""

    def guarded(folder: Path, in_force=None, *more: str):
        words = [f"--output={folder}", "--observations=x", f"--as_of={at(30)}", "--budget=10", *more]
        return replaced_by(Settings(PipelineOptions(words)), in_force)

    assert guarded(good.folder) == guarded(tmp_path, good.manifest) == good.manifest
    assert guarded(tmp_path) == {}
    for more in ("--overwrite", "--budget=0.9", "--budget=0", "--horizon_hours=2"):
        assert guarded(good.folder, None, more) == guarded(tmp_path, good.manifest, more) == {}, more
    replacing.check_empty("no_input", "", {"status": "no_input"})


def _folder(top: Path, names: list[str], text: str) -> None:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    files = [{"path": name} for name in names]
    sinks.write_json(str(top), "manifest.json", {"text": text, "files": files}, sealed=True)


def test_a_night_that_is_stopped_while_it_takes_its_place_takes_it_later(tmp_path, monkeypatch):
    """At any step: the new night is complete by then, and not a byte of it is lost."""
    old = ["pages/shard-00000-of-00002.parquet", "state/signals/shard-00000-of-00002.parquet"]
    new = ["pages/shard-00000-of-00001.jsonl", "slots/pages/shard-00000-of-00001.parquet", old[0]]
    steps, moves, unlink = [], os.rename, os.unlink

    def counted(of):
        def step(*paths):
            if len(steps) == stop:
                raise KeyboardInterrupt
            steps.append(paths)
            return of(*paths)

        return step

    for stop in range(100):
        steps.clear()
        out = tmp_path / str(stop)
        _folder(out, old, "old")
        (out / "report.html").write_text("old")
        (out / "metrics.prom").write_text("old")
        _folder(out / ".next", new, "new")
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", counted(moves))
            patched.setattr(os, "unlink", counted(unlink))
            try:
                replacing.finish(str(out))
            except KeyboardInterrupt:
                assert (out / ".next" / "manifest.json").exists()
            else:
                break
        replacing.finish(str(out))
        found = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
        assert found == {*new, "manifest.json"} and not (out / ".next").exists()
        assert all((out / name).read_text() == "new" for name in new)
        assert json.loads((out / "manifest.json").read_text())["text"] == "new"
    assert stop == 8


def test_a_flipped_byte_of_the_night_before_is_seen(good, tmp_path):
    """In any file and any part of it: pages, footers, numbers of the manifest."""
    night = _copy(good, tmp_path)
    state = str(night.folder / "state")
    files = find_previous(state, 1 << 60, {}).files
    assert {f.folder for f in files} >= {
        "state",
        "state/signals",
        "slots/pages",
        "slots/hosts",
    }
    for file in files:
        whole = Path(file.path).read_bytes()
        list(read_previous_file(file))
        for byte in (4, len(whole) // 3, len(whole) // 2, len(whole) - 12, len(whole) - 1):
            Path(file.path).write_bytes(whole[:byte] + bytes([whole[byte] ^ 1]) + whole[byte + 1 :])
            with pytest.raises(StateError, match="damaged: its SHA-256 is not the one in the manifest"):
                list(read_previous_file(file))
        Path(file.path).write_bytes(whole)
    path = night.folder / "manifest.json"
    text = path.read_bytes()
    for byte in range(0, len(text) - 90, 509):
        path.write_bytes(text[:byte] + bytes([text[byte] ^ 1]) + text[byte + 1 :])
        with pytest.raises(StateError, match="damaged"):
            find_previous(state, 1 << 60, {})
    path.write_text(json.dumps(json.loads(text)))  # by somebody who means it
    assert find_previous(state, 1 << 60, {}).files == files
    for missing in ("slots/pages", "state/signals", "slots"):
        shutil.move(night.folder / missing, tmp_path / "gone")
        with pytest.raises(StateError, match=r"0 of 2 files of \w+/\w+/ are there"):
            find_previous(state, 1 << 60, {})
        shutil.move(tmp_path / "gone", night.folder / missing)
    file = files[-1].path
    whole = Path(file).read_bytes()
    Path(file).write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
    refused = nightly(tmp_path, "next", observations=ROWS, state=state, as_of=at(31))
    assert refused.code == cli.EXIT_USAGE and f"{file}: damaged" in refused.complaints
    assert not refused.committed


@pytest.fixture
def store(tmp_path: Path) -> Stored:
    made = Stored(tmp_path)
    made.log("logs/0.jsonl", ROWS, at(0))
    return made


def test_no_link_leads_out_of_a_store(store, job, tmp_path):
    """Cleaning deleted the files behind one, and the lock emptied the file behind another."""
    other = Stored(tmp_path, "other")
    assert other.run(midnight(1)).code == store.run(midnight(1)).code == 0
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(other.root / "nights" / N1, elsewhere / "done")
    shutil.copytree(other.root / "nights" / N1, elsewhere / "begun")
    (elsewhere / "begun" / "manifest.json").unlink()
    text = (elsewhere / "done" / "manifest.json").read_text().replace("2026-06-02T", "2020-01-01T")
    (elsewhere / "done" / "manifest.json").write_text(text)
    (elsewhere / "latest").write_text("mine")
    nights = store.root / "nights"
    (nights / OLD).symlink_to(elsewhere / "done")
    (nights / "20200102T000000Z").symlink_to(elsewhere / "begun")
    (nights / "20200103T000000Z").symlink_to(elsewhere / "nothing")
    (store.root / ".tmp-0f-lock").symlink_to(elsewhere / "latest")
    (store.root / "latest.json").unlink()
    (store.root / "latest.json").symlink_to(elsewhere / "latest")
    before = {p: p.read_bytes() for p in elsewhere.rglob("*") if p.is_file()}

    def untouched() -> bool:
        return {p: p.read_bytes() for p in elsewhere.rglob("*") if p.is_file()} == before

    done = store.run(midnight(2), keep=1)
    assert done.code == 0 and untouched()
    assert done.complaints.count("is ignored: it is a link") == 3
    assert store.committed() == [OLD, N2] and store.current() == N2  # the first is the link's
    assert not (store.root / "latest.json").is_symlink()

    (store.root / "lock").unlink()
    for link in (os.symlink, os.link):
        link(elsewhere / "latest", store.root / "lock")
        refused = store.run(midnight(3))
        assert refused.code == cli.EXIT_USAGE and "remove it" in refused.complaints and untouched()
        (store.root / "lock").unlink()
    tonight = nights / "20260604T000000Z"
    for link, target in (
        (tonight, "begun"),
        (tonight / "pages", "begun/pages"),
        (tonight / "state", "begun/state"),
    ):
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(elsewhere / target)
        refused = store.run(midnight(3))
        assert refused.code == cli.EXIT_USAGE and f"{link} is a link" in refused.complaints and untouched()
        link.unlink()
    shutil.move(nights, tmp_path / "nights")
    nights.symlink_to(tmp_path / "nights")
    assert store.run(midnight(3)).code == store.run(None, "--status").code == cli.EXIT_USAGE
    nights.unlink()
    shutil.move(tmp_path / "nights", nights)
    shutil.move(store.root, tmp_path / "real")
    store.root.symlink_to(tmp_path / "real")  # the store itself may be anywhere
    assert store.run(midnight(3)).code == 0 and untouched()


def test_a_link_in_an_output_folder(good, tmp_path):
    night = _copy(good, tmp_path)
    shutil.move(night.folder / "schedule", tmp_path / "schedule")
    (night.folder / "schedule").symlink_to(tmp_path / "schedule")
    before = night.digests()
    for flags in ([], ["--overwrite"]):
        refused = nightly(tmp_path, observations=ROWS, flags=flags)
        assert refused.code == cli.EXIT_USAGE and "schedule is a link" in refused.complaints
        assert night.digests() == before and len(list((tmp_path / "schedule").iterdir())) == 2


def test_an_empty_night_of_a_store_is_not_committed(store):
    assert store.run(midnight(6)).code == 0
    first = store.committed()
    empty = store.run(midnight(7), host_max_per_day=0)
    assert empty.code == cli.EXIT_USAGE and "give --overwrite" in empty.complaints
    assert "In force stays" in empty.complaints and store.committed() == first == [store.current()]


def test_a_pattern_that_is_new_to_a_store_matches_something(store, job):
    """One that has matched before may match nothing: then the crawler has not run."""
    assert store.run(midnight(1)).code == 0
    for option in ({"observations": store.folder / "logz/*"}, {"requests": store.folder / "{date}/*.csv"}):
        refused = store.run(midnight(2), **option)
        assert refused.code == cli.EXIT_USAGE and "new to this store" in refused.complaints
        assert store.committed() == [N1]
    (store.folder / "logs" / "0.jsonl").unlink()
    assert store.run(midnight(2)).code == 0 and job.calls[-1].observations is None


def test_a_damaged_store_is_no_failure_of_the_program(store, job, monkeypatch):
    assert store.run(midnight(1)).code == 0
    for name in ("manifest.json", "files.json"):
        path = store.root / "nights" / N1 / name
        whole = path.read_bytes()
        flipped = whole.replace(b'"', b"'", 1)
        for damaged in (b"", b"{", b"[" * 100_000, b"\xff\xfe", b"[]", flipped):
            path.write_bytes(damaged)
            for words in ((midnight(2),), (None, "--status")):
                done = store.run(*words)
                assert done.code == cli.EXIT_USAGE and f"{path}: " in done.complaints, done.complaints
                assert "Traceback" not in done.complaints and "Restore it" in done.complaints
        path.write_bytes(whole)
    set_clock(monkeypatch, at(1.9)[:19] + "Z")
    assert store.run(None, "--status").code == 0
    set_clock(monkeypatch, at(2.1)[:19] + "Z")
    late = store.run(None, "--status")
    assert late.code == 7 and "RUN OUT" in late.printed
    assert isinstance(job, Job)


@pytest.mark.parametrize("part", ["pages", "schedule/", "slots", "slots/pages", "state/signals"])
def test_another_folder_of_a_night_is_not_its_state(part, tmp_path):
    """It was called damaged, or read as a state of another night."""
    first = nightly(tmp_path, "first", observations=crawls("https://a.test/", "AAB", 25))
    given = {"observations": crawls("https://a.test/", "A", 30.5), "as_of": at(31)}
    night = nightly(tmp_path, "second", state=f"{first.folder}/{part}", **given)
    assert night.code == 2
    words = f"that is {part.rstrip('/')}/ of the night in {first.folder}, not its state: give --state="
    assert f"{words}{first.folder}/state" in night.complaints
