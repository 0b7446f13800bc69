"""`recrawl night`: which night is due, what is current, what is kept, and what a failure leaves."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sys
from pathlib import Path

import pytest

from pipelines.command.exit_codes import EXIT_BUSY
from pipelines.door import cli
from pipelines.store import locks
from pipelines.store.clock import now
from pipelines.store.store import Store
from policies.numerics.errors import RecrawlError
from tests.pipelines.jobs import at, command, seen
from tests.pipelines.stores import Job, Stored, job, midnight, set_clock
from transforms.night.errors import HistoryShrunkError

__all__ = ["job"]
N1, N2, N3, N4 = (f"202606{day:02d}T000000Z" for day in (2, 3, 4, 5))


@pytest.fixture
def store(tmp_path: Path) -> Stored:
    """A store beside one log file a day."""
    found = Stored(tmp_path)
    for day in range(4):
        found.log(f"logs/day-{day}.jsonl", [seen("https://a.test/", at(day, 12))], at(day, 23))
    return found


def test_one_night_after_the_other(store, job):
    for day, name in ((1, N1), (2, N2)):
        done = store.run(midnight(day))
        assert done.code == 0, done.complaints
        assert store.current() == name
    assert store.committed() == [N1, N2]
    assert job.calls[0].state is None
    assert job.calls[1].state == str(store.root / "nights" / N1 / "state")
    assert store.latest() == {
        "night": N2,
        "as_of": "2026-06-03T00:00:00Z",
        "until": "2026-06-04T00:00:00Z",
        "status": "ok",
        "folder": f"nights/{N2}",
        "schedule": f"nights/{N2}/schedule",
    }


def test_the_night_is_the_last_midnight_unless_it_is_named(store, job, monkeypatch):
    set_clock(monkeypatch, "2026-06-03T23:59:59Z")
    assert store.run(None).code == 0
    set_clock(monkeypatch, "2026-06-04T00:00:00Z")
    assert store.run(None).code == 0
    assert store.committed() == [N2, N3]
    assert [c.as_of_us % 86_400_000_000 for c in job.calls] == [0, 0]


def test_a_night_that_is_committed_is_not_run_again(store, job):
    assert store.run(midnight(1)).code == 0
    again = store.run(midnight(1))
    assert again.code == 0 and "nothing to do" in again.printed and len(job.calls) == 1


def test_a_night_that_is_committed_says_which_options_come_too_late(store, job):
    assert store.run(midnight(1), budget=10).code == 0
    again = store.run(midnight(1), "--host_max_per_day=5", budget=7)
    assert again.code == 0 and len(job.calls) == 1 and not again.complaints
    assert (
        "these count from the next night: --budget 7.0 (was 10.0), --host_max_per_day 5.0 (was None)\n"
        in again.printed
    )
    assert "other options" not in store.run(midnight(1), budget=10).printed
    # Where it is left out, the state of the night before has it.
    assert "num_shards" not in store.run(midnight(1), num_shards=None).printed
    assert "--num_shards 3 (was 2)" in store.run(midnight(1), num_shards=3).printed


@pytest.mark.parametrize("ahead", ["2026-06-04T06:10:00Z", "2027-06-03T00:00:00Z"])
def test_a_night_that_is_yet_to_come_is_refused(ahead, store, job, monkeypatch):
    """Committed, it would stand in the way of all nights until then."""
    set_clock(monkeypatch, "2026-06-04T06:00:00Z")
    refused = store.run(ahead)
    assert refused.code == cli.EXIT_USAGE and not job.calls and not store.root.exists()
    assert f"--as_of={ahead} is later than now, 2026-06-04T06:00:00Z" in refused.complaints
    assert store.run("2026-06-04T06:01:00Z").code == 0  # two clocks


def test_a_good_night_has_nothing_on_standard_error(store, job, monkeypatch):
    """Which is what cron mails: warnings, and no progress."""
    job.before = lambda: logging.getLogger("pipelines.nightly.submitting").info("at work")
    first = store.run(midnight(1))
    assert first.code == 0 and "at work" in first.printed and not first.complaints
    for path in (store.folder / "logs").iterdir():
        path.unlink()
    warned = store.run(midnight(2))
    text = "WARNING: --observations: no new file since the night of 2026-06-02T00:00:00Z"
    assert text in warned.printed.splitlines()
    assert warned.complaints == f"recrawl night: {text}\n"


def test_warnings_of_the_manifest_are_on_standard_error_too(store, job, monkeypatch):
    job.warnings = ["look here"]
    done = store.run(midnight(1))
    assert done.code == 0 and done.complaints == "recrawl night: WARNING: look here\n"


@pytest.mark.parametrize("where", ["the lock", "what is current", "the job"])
def test_a_full_disk_says_what_holds_and_which_folder_is_full(where, store, job, monkeypatch):
    store.run(midnight(1))
    full = lambda *_: _raise(OSError(errno.ENOSPC, "No space left on device"))  # noqa: E731
    if where == "the lock":
        monkeypatch.setattr(locks, "_overwrite", full)
    elif where == "what is current":
        monkeypatch.setattr(Store, "point_at", full)
    else:
        job.before = full
    failed = store.run(midnight(2))
    assert failed.code == cli.EXIT_FAILED
    assert f"--store={store.root}: No space left on device" in failed.complaints
    assert failed.complaints.count("In force stays the schedule of 2026-06-02T00:00:00Z") == 1


def test_a_night_before_the_last_one_is_refused(store, job):
    assert store.run(midnight(2)).code == 0
    early = store.run(midnight(1))
    assert early.code == cli.EXIT_USAGE and len(job.calls) == 1
    assert "--as_of=2026-06-02T00:00:00Z" in early.complaints and "2026-06-03T00:00:00Z" in early.complaints
    assert store.current() == N2
    assert "keeps no night before" in early.complaints and "another --store" in early.complaints


def test_the_refusal_of_an_earlier_night_names_what_undoes_a_mistake(store, job, monkeypatch):
    """A run without `--as_of` on a store of the past takes the last midnight of today."""
    assert store.run(midnight(1)).code == 0
    set_clock(monkeypatch, "2026-11-28T12:00:00Z")
    assert store.run(None).code == 0
    refused = store.run(midnight(2))
    mistake = store.root / "nights" / "20261128T000000Z" / "manifest.json"
    assert refused.code == cli.EXIT_USAGE and f"delete {mistake}: " in refused.complaints
    assert "then the night of 2026-06-02T00:00:00Z is the last one again" in refused.complaints
    mistake.unlink()
    assert store.run(midnight(2)).code == 0
    assert store.committed() == [N1, N2] and job.calls[-1].state == job.calls[1].state
    assert "day-1.jsonl" in job.given() and "day-0.jsonl" not in job.given()


@pytest.mark.parametrize(("day", "named"), [(17, False), (180, True), (180, False)])
def test_a_night_long_after_the_last_one_says_so_before_it_is_run(day, named, store, job, monkeypatch):
    assert store.run(midnight(1)).code == 0
    set_clock(monkeypatch, midnight(day))
    said = []
    job.before = lambda: said.append(sys.stdout.getvalue() + sys.stderr.getvalue())
    late = store.run(midnight(day) if named else None)
    assert late.code == 0 and store.current() != N1  # after an outage nobody need be there
    words = f"{day - 2} nights were missed since 2026-06-02T00:00:00Z"
    assert (words in said[0]) and (words in late.complaints) and "stop it now" in said[0]
    assert ("--as_of is not given" in said[0]) is not named
    assert words in store.run(None, "--status").printed


def test_an_outage_of_two_weeks_is_no_mistake(store, job, monkeypatch):
    store.run(midnight(1))
    set_clock(monkeypatch, midnight(16))
    late = store.run(None)
    assert "catching up on 14 missed nights" in late.printed and "were missed" not in late.complaints


def test_missed_nights_are_caught_up_on_in_one(store, job):
    assert store.run(midnight(1)).code == 0
    late = store.run(midnight(4))
    assert "catching up on 2 missed nights" in late.printed
    assert store.committed() == [N1, N4]
    assert "catching up" not in store.run(at(4.5)[:19] + "Z").printed


def test_a_night_that_is_to_be_done_again(store, job):
    """Without its manifest it is not committed; the state of the night before is there."""
    for day in (1, 2):
        store.run(midnight(day))
    (store.root / "nights" / N2 / "manifest.json").unlink()
    assert store.run(midnight(2)).code == 0
    assert job.calls[-1].state == str(store.root / "nights" / N1 / "state")
    assert job.given(call=-1) == job.given(call=1)
    assert store.current() == N2


def test_only_the_newest_nights_are_kept(store, job):
    for day in range(1, 5):
        assert store.run(midnight(day), keep=2).code == 0
    assert store.committed() == [N3, N4]
    assert sorted(os.listdir(store.root / "nights")) == [N3, N4]
    assert store.current() == N4


def test_files_of_others_are_never_removed(store, job):
    store.run(midnight(1))
    theirs = [store.root / "nights" / N1 / name for name in ("notes.txt", "pages/mine.parquet")]
    for path in theirs:
        path.write_text("x")
    other = store.root / "nights" / "backup"
    other.mkdir()
    for day in range(2, 5):
        done = store.run(midnight(day), keep=1)
        assert "WARNING" not in done.printed
    assert store.committed() == [N4] and other.exists()
    assert all(path.exists() for path in theirs)
    left = {p for p in (store.root / "nights" / N1).rglob("*") if p.is_file()}
    assert left == set(theirs)


def test_an_old_night_that_cannot_be_removed_is_a_warning(store, job, monkeypatch):
    store.run(midnight(1))
    monkeypatch.setattr(Store, "_delete", _refuse)
    done = store.run(midnight(2), keep=1)
    assert done.code == 0 and store.current() == N2
    assert f"nights/{N1}: an old night that could not be removed: not today" in done.printed
    assert f"{store.root}: what a run left half written could not be removed: not today" in done.printed


def test_a_failure_after_the_commit_is_not_called_a_failed_night(store, job, monkeypatch):
    store.run(midnight(1))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "keep", lambda *_: _raise(RecrawlError("no")))
        failed = store.run(midnight(2))
    assert failed.code == cli.EXIT_FAILED and store.committed() == [N1, N2]
    assert (
        "the night of 2026-06-03T00:00:00Z is committed, but what follows was not done" in failed.complaints
    )
    assert "In force" not in failed.complaints
    assert store.run(midnight(2), keep=1).code == 0
    assert store.committed() == [N2] and store.current() == N2


def _refuse(*_: object) -> None:
    raise OSError("not today")


def test_remains_of_other_nights_go_and_those_of_tonight_are_made_anew(store, job):
    store.run(midnight(1))
    for name in (N2, N4):
        folder = store.root / "nights" / name / "pages"
        folder.mkdir(parents=True)
        (folder / "shard-00000-of-00002.parquet").write_text("half")
        (folder / ".tmp-0123abcd-shard-00001-of-00002.parquet").write_text("half")
        (folder.parent / "files.json").write_text("half")
    assert store.run(midnight(2)).code == 0
    assert sorted(os.listdir(store.root / "nights")) == [N1, N2]
    assert not list((store.root / "nights" / N2 / "pages").iterdir())


def test_a_failed_night_leaves_the_schedule_of_yesterday_and_says_so(store, job, monkeypatch):
    set_clock(monkeypatch, "2026-06-03T06:00:00Z")
    store.run(midnight(1))
    before = {p: p.read_bytes() for p in store.root.rglob("*") if p.is_file()}
    job.before = lambda: _raise(HistoryShrunkError("history_shrunk: 1 known pages tonight, 9 last night"))
    failed = store.run(midnight(2))
    assert failed.code == cli.EXIT_SHRUNK
    for words in (
        "history_shrunk: 1 known pages tonight",
        "the night of 2026-06-03T00:00:00Z failed and is not committed",
        f"In force stays the schedule of 2026-06-02T00:00:00Z, 30.0 hours old, in {store.root}/nights/{N1}",
        "it has RUN OUT 6.0 hours ago, at 2026-06-03T00:00:00Z",
        "run it again: it then reads all logs since 2026-06-02T00:00:00Z",
    ):
        assert words in failed.complaints, (words, failed.complaints)
    assert store.current() == N1
    assert {p: p.read_bytes() for p in before} == before
    job.before = lambda: None
    set_clock(monkeypatch, "2026-06-04T06:00:00Z")
    assert store.run(midnight(3)).code == 0
    # What the failed night would have read, and its own.
    assert job.given() == ["day-1.jsonl", "day-2.jsonl", "day-3.jsonl"]


def _raise(error: BaseException) -> None:
    raise error


def test_a_schedule_that_still_holds_is_said_to(store, job, monkeypatch):
    set_clock(monkeypatch, "2026-06-03T00:15:00Z")
    store.run(midnight(1), horizon_hours=72)
    job.before = lambda: _raise(RecrawlError("no"))
    failed = store.run(midnight(2))
    assert failed.code == cli.EXIT_FAILED
    assert "it covers the time until 2026-06-05T00:00:00Z" in failed.complaints
    assert "RUN OUT" not in failed.complaints


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug")])
def test_whatever_stops_a_night_the_store_says_what_holds(store, job, error):
    store.run(midnight(1))
    job.before = lambda: _raise(error)
    if isinstance(error, ValueError):  # nobody expected it: with its traceback
        with pytest.raises(ValueError, match="a bug") as caught:
            store.run(midnight(2))
        said = "".join(caught.value.__notes__)
    else:
        failed = store.run(midnight(2))
        assert failed.code == cli.EXIT_FAILED
        said = failed.complaints
    assert "In force stays the schedule of 2026-06-02T00:00:00Z" in said
    assert store.current() == N1


def test_a_first_night_that_fails_has_no_schedule(store, job):
    job.before = lambda: _raise(RecrawlError("no"))
    failed = store.run(midnight(1))
    assert "No night is committed yet, so there is no schedule" in failed.complaints
    assert store.current() is None


def test_nothing_to_read_on_a_first_night(store, job):
    done = store.run(midnight(1), observations=store.folder / "nowhere" / "*.jsonl")
    assert done.code == cli.EXIT_EMPTY and not job.calls and store.current() is None
    assert "no file matches --observations" in done.printed and "nowhere/*.jsonl" in done.printed


def test_two_at_a_time(store, job, monkeypatch):
    """The second one is told who is at it; the first one is not disturbed."""
    found = []
    job.before = lambda: found.append(store.run(midnight(2)))
    assert store.run(midnight(1)).code == 0
    (second,) = found
    assert second.code == EXIT_BUSY == 6
    assert re.search(
        rf"another night is running: process {os.getpid()} on \S+, since 20\d\d-", second.complaints
    )
    assert "In force" not in second.complaints  # nothing failed
    job.before = lambda: None
    assert store.run(midnight(2)).code == 0
    assert (store.root / "lock").read_text() == ""


def test_who_has_locked_a_moment_ago_is_waited_for(tmp_path, monkeypatch):
    """Its name is written after the lock is taken."""
    path = tmp_path / "lock"
    with locks.locked(str(tmp_path), str(tmp_path), now):
        name = path.read_text()
        path.write_text("")
        naps: list[float] = []

        def nap(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 3:
                path.write_text(name)

        monkeypatch.setattr(locks.time, "sleep", nap)
        with pytest.raises(locks.StoreBusyError, match=f"process {os.getpid()} on"):
            locks.locked(str(tmp_path), str(tmp_path), now).__enter__()
        assert len(naps) == 3


def test_the_status(store, job, monkeypatch):
    set_clock(monkeypatch, "2026-06-03T12:00:00Z")
    empty = store.run(None, "--status", budget=None)
    assert empty.code == cli.EXIT_EMPTY and "no committed night" in empty.printed
    for day in (1, 2):
        store.run(midnight(day))
    (store.root / "latest.json").unlink()
    before = sorted(store.root.rglob("*"))
    done = store.run(None, "--status", budget=None, observations=None)
    assert done.code == 0, done.complaints
    assert [line.split()[0] for line in done.printed.splitlines()[1:3]] == [N1, N2]
    assert "In force: the schedule of 2026-06-03T00:00:00Z, 12.0 hours old" in done.printed
    assert "latest.json is of another night" in done.printed
    assert sorted(store.root.rglob("*")) == before


def test_options_of_the_store_are_checked_with_all_others(tmp_path):
    code, out, err = command(
        "night", "--output=o", "--state", "s", "--keep=0", "--late_days=x", "--bugdet=1", "--as_of=monday"
    )
    assert code == cli.EXIT_USAGE and not out
    for words in (
        "--store is missing",
        "--output is not an option of night: the store has a folder for every night",
        "--state is not an option of night: the state is that of the last committed night",
        "--keep=0: expected a whole number from 1",
        "--late_days=x",
        "--bugdet=1: neither recrawl nor Beam knows this option; did you mean --budget?",
        "--observations is missing",
        "--as_of=monday: expected ISO 8601",
    ):
        assert words in err, words
    assert "--budget is missing" not in err and len(err.splitlines()) == 9


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("logs/{dat}/*.csv", "{dat} is no placeholder"),
        ("logs/{year}-{month}/*.csv", "must name a day"),
        ("a.csv,logs/{year}/{day}.csv", "must name a day"),
    ],
)
def test_placeholders_that_name_no_day(pattern, words, tmp_path):
    code, _, err = command("night", f"--store={tmp_path}", f"--observations={pattern}", "--budget=1")
    assert code == cli.EXIT_USAGE and words in err


def test_a_damaged_store_names_the_file_and_the_remedy(store, job):
    store.run(midnight(1))
    folder = store.root / "nights" / N1
    ledger = (folder / "files.json").read_text()
    (folder / "files.json").write_text(ledger[:50])
    damaged = store.run(midnight(2))
    assert damaged.code == cli.EXIT_USAGE and "files.json: damaged" in damaged.complaints
    assert "Restore it, or delete it" in damaged.complaints
    (folder / "files.json").unlink()
    assert store.run(midnight(2)).code == 0
    assert len(job.given()) == 4  # all are read again
    manifest = store.root / "nights" / N2 / "manifest.json"
    manifest.write_text("{")
    broken = store.run(midnight(3))
    assert broken.code == cli.EXIT_USAGE and str(manifest) in broken.complaints


def test_the_help_lists_every_exit_code():
    code, out, _ = command("night", "--help")
    assert code == 0
    said = " ".join(out.split())
    for number in range(8):
        assert re.search(rf"[:;] {number} \w|and {number}", said) or f"{number}, " in said, number
    assert "--output " not in said and "--state " not in said and "--output_format" in said


def test_the_files_of_a_night_are_listed_before_it_is_committed(store, job):
    order = []
    job.before = lambda: order.append((store.root / "nights" / N1 / "files.json").exists())
    store.run(midnight(1))
    assert order == [True]
    found = json.loads((store.root / "nights" / N1 / "files.json").read_text())
    assert [Path(row[0]).name for row in found["files"]["observations"]] == [
        f"day-{d}.jsonl" for d in range(4)
    ]
    assert isinstance(job, Job)
