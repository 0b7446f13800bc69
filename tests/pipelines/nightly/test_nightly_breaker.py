"""What somebody found who tried to break the job. Each case is small and says what was wrong."""

from __future__ import annotations

import errno
import gzip
import json
import shutil
from pathlib import Path

import pytest

from policies.numerics.errors import InfeasibleError
from tests.pipelines.jobs import at, crawls, nightly, seen, write_rows
from transforms.kept.carrying import Carry
from transforms.night.dividing import Night as Division
from transforms.night.dividing import ShardTotal, divide_slots
from transforms.shards.sharding import Layout

LOG = [r for i in range(4) for r in crawls(f"https://h{i}.test/", "AABBC", 20)]
LIMITS = b"host,max_per_day\n" + b"".join(b"h%d.test,1\n" % i for i in range(2000))


def test_a_column_of_empty_digests_is_a_column_without_evidence(tmp_path):
    """It was an IndexError."""
    rows = [seen("https://a.test/", at(day), "", 200) for day in range(4)]
    night = nightly(tmp_path, observations=rows)
    assert night.code == 0 and night.counters["no_change_evidence"] >= 3


@pytest.mark.parametrize(
    "as_of", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "1960-01-01", "9999-12-31"]
)
def test_an_instant_outside_the_years_of_logs_is_an_option_error(as_of, tmp_path):
    """Those with an offset were an OverflowError."""
    night = nightly(tmp_path, observations=LOG, as_of=as_of)
    assert night.code == 2 and f"--as_of={as_of}" in night.complaints and "2100" in night.complaints


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("wide.csv", b"host,max_per_day\nh1.test,1,2\nh2.test,5\n"),
        ("cut.jsonl", b'{"host":"h1.test","max_per_day":1}\n{"host":"h2.te'),
        ("cut.csv.gz", gzip.compress(LIMITS)[:-2000]),
        ("cut.parquet", b"PAR1" + b"x" * 100),
    ],
)
def test_limits_of_hosts_are_read_whole_or_not_at_all(name, data, tmp_path):
    """The unreadable part of the list was put aside, and its hosts had no limit."""
    (tmp_path / name).write_bytes(data)
    night = nightly(tmp_path, observations=LOG, hosts=tmp_path / name)
    assert night.code == 2 and name in night.complaints and "Limits of hosts" in night.complaints


def test_metadata_named_like_an_output_column_does_not_replace_it(tmp_path):
    """A catalogue's `host`, `limit` or `owed` stood in pages/ in place of the job's own."""
    catalogue = [
        {"url": "https://h1.test/", "host": "other", "limit": "x", "owed": "y", "_code": str(i), "tier": "b"}
        for i in range(3)
    ]
    night = nightly(tmp_path, observations=LOG, pages=catalogue)
    page = night.page("https://h1.test/")
    assert (page["host"], page["tier"]) == ("h1.test", "b")
    assert page["limit"] != "x" and isinstance(page["owed"], float)
    assert night.counters["catalogue_duplicates"] == 2  # a column named _code was an ArrowInvalid


def test_a_damaged_file_shows_in_the_summary(tmp_path):
    """rejected/ named it, the screen said "none"."""
    whole = write_rows(tmp_path / "logs" / "a.csv", LOG)
    (tmp_path / "logs" / "b.csv.gz").write_bytes(gzip.compress(whole.read_bytes() * 9)[:-20])
    night = nightly(tmp_path, observations=tmp_path / "logs")
    assert night.code == 0 and "1 observations truncated_file" in night.printed


def test_only_damaged_files_are_not_called_empty(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"x" * 100)
    night = nightly(tmp_path, observations=tmp_path / "a.parquet")
    assert night.code == 3 and "1 damaged files" in night.manifest["status_reason"]


def test_an_empty_schedule_says_what_keeps_the_budget_from_being_spent(tmp_path):
    """It said that the budget is less than one crawl."""
    night = nightly(tmp_path, observations=LOG, host_max_per_day=0)
    assert night.code == 3 and night.manifest["unspent_reason"] in night.manifest["status_reason"]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    return nightly(tmp_path_factory.mktemp("first"), observations=LOG)


class TestPreviousNight:
    """A damaged or unfinished night is named, never read in part and never a traceback."""

    @pytest.fixture
    def copy(self, first, tmp_path):
        return shutil.copytree(first.folder, tmp_path / "copy")

    @staticmethod
    def _refused(copy: Path, tmp_path: Path, *words: str) -> None:
        night = nightly(tmp_path, observations=LOG, state=copy / "state", as_of=at(31))
        assert night.code == 2 and not night.committed
        assert all(w in night.complaints for w in words), night.complaints

    @pytest.mark.parametrize("text", ["", '{"opt', "[]", "{}"])
    def test_manifest(self, text, copy, tmp_path):
        (copy / "manifest.json").write_text(text)
        self._refused(copy, tmp_path, "manifest.json", "run that night again")

    @pytest.mark.parametrize("kind", ["state", "state/signals", "slots/pages"])
    def test_cut_file(self, kind, copy, tmp_path):
        file = copy / kind / "shard-00001-of-00002.parquet"
        file.write_bytes(file.read_bytes()[:300])
        self._refused(copy, tmp_path, file.name, "300 bytes", "Restore")

    @pytest.mark.parametrize(
        "change", [lambda b: b"", lambda b: b[:60] + b"\xff" * 100 + b[160:]], ids=["empty", "overwritten"]
    )
    def test_damaged_file_of_a_state_without_manifest(self, change, copy, tmp_path):
        alone = copy / "state"
        file = alone / "shard-00001-of-00002.parquet"
        file.write_bytes(change(file.read_bytes()))
        alone = alone.rename(tmp_path / "state")
        self._refused(tmp_path, tmp_path, file.name, "Restore")

    def test_shard_of_another_night(self, copy, tmp_path):
        shutil.copy(
            copy / "state" / "shard-00000-of-00002.parquet", copy / "state" / "shard-00001-of-00002.parquet"
        )
        self._refused(copy, tmp_path, "shard-00001-of-00002")

    def test_unfinished_night(self, copy, tmp_path):
        """Killed, or stopped by a guard: its state may lack what the guard missed."""
        (copy / "manifest.json").unlink()
        self._refused(copy, tmp_path, "was not finished")

    def test_state_in_the_output_by_another_spelling(self, copy, tmp_path, monkeypatch):
        """The night deleted it, then looked for it."""
        monkeypatch.chdir(tmp_path)
        night = nightly(tmp_path, observations=LOG, state="copy/state", as_of=at(31), output=copy)
        assert night.code == 2 and night.committed and "lies in --output" in night.complaints
        assert len(night.rows("state")) == 4


def test_an_output_folder_keeps_files_that_no_night_wrote(tmp_path):
    """A catalogue in ./pages/ and --output=. lost the catalogue."""
    catalogue = write_rows(tmp_path / "pages" / "catalogue.csv", [{"url": "https://new.test/"}])
    night = nightly(tmp_path, observations=LOG, pages=catalogue, output=tmp_path)
    assert night.code == 2 and catalogue.exists() and "--pages" in night.complaints
    night = nightly(tmp_path, observations=LOG, output=tmp_path)
    assert night.code == 0 and catalogue.exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("runner", "NopeRunner"),
        ("output", "foo://bucket/x"),
        ("observations", "foo://bucket/x"),
        ("output", "taken"),
    ],
)
def test_where_nothing_can_run_be_read_or_be_written_is_an_option_error(option, value, tmp_path, monkeypatch):
    """These were tracebacks. `taken` holds a file where a folder must be."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "taken" / "pages" / "x.csv", [{"url": "x"}]).rename(tmp_path / "taken" / "schedule")
    night = nightly(tmp_path, **({"observations": LOG} | {option: value}))
    assert night.code == 2 and f"--{option}={value}: " in night.complaints


def test_a_full_disk_is_said_in_a_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("transforms.files.sinks.FileSystems.rename", full)
        night = nightly(tmp_path, observations=LOG)
    assert night.code == 1 and not night.committed
    assert night.complaints.splitlines()[-1].startswith("recrawl: --output: No space left on device. ")
    # Another worker's file may be half written when the first failure stops the night: the next one sweeps.
    assert nightly(tmp_path, observations=LOG).committed
    assert not list(night.folder.rglob(".tmp-*"))


def test_requests_for_unknown_pages_in_a_shard_without_pages(tmp_path):
    """An IndexError where a shard had requests only."""
    requests = [{"url": f"https://x{i}.test/", "day": at(20), "clicks": 1} for i in range(9)]
    night = nightly(tmp_path, observations=LOG, requests=requests, num_shards=7)
    assert night.code == 0 and night.counters["requests_unmatched"] == 9


def test_a_night_planned_anew_does_not_wait_for_what_was_planned_before(tmp_path):
    """Two days planned, the next night a day later: hosts with a gap were closed until the old plan's end."""
    limits = [{"host": "h0.test", "min_gap_seconds": 60}, {"host": "h1.test", "min_gap_seconds": 130_000}]
    options = {"observations": LOG, "hosts": limits, "horizon_hours": 48}
    first = nightly(tmp_path, "first", **options)
    second = nightly(tmp_path, "second", **options, state=first.folder / "state", as_of=at(31))
    due = {
        h: [r["due_at"] for r in second.rows("schedule") if r["host"] == f"{h}.test"] for h in ("h0", "h1")
    }
    assert min(due["h0"]).day == 2  # July 2, the first day of the second plan
    before = [r["due_at"] for r in first.rows("schedule") if r["host"] == "h1.test"]
    kept = [t for t in before if t.day < 2]
    for late in due["h1"]:
        assert all((late - t).total_seconds() >= 130_000 for t in kept)


def test_an_array_on_one_line_is_as_many_records(tmp_path):
    """The whole file was one bad line, too small a share to stop a night. The name was taken for a glob."""
    (tmp_path / "log[1].json").write_text(json.dumps([*LOG, 5]))
    night = nightly(tmp_path, observations=tmp_path / "log[1].json")
    assert night.code == 0 and night.urls() == sorted({r["url"] for r in LOG})
    assert night.counters["observations_accepted"] == len(LOG)
    assert night.counters["observations_rejected_bad_json"] == 1


@pytest.mark.parametrize("budget", [1e12, 1e8])
def test_a_budget_beyond_sense_is_refused(budget, tmp_path):
    """Three pages without limits shared a million million slots: a traceback, or memory gone."""
    night = nightly(tmp_path, observations=LOG, budget=budget)
    assert night.code == 2 and not night.committed
    assert "slots to 4 pages: more than one a second" in night.complaints
    assert "--budget" in night.complaints and "at most 345,600 crawls a day" in night.complaints


def test_slots_beyond_memory_are_refused():
    night = Division(0, 86_400_000_000, "periodic", Layout(2, {}))
    with pytest.raises(InfeasibleError, match="slots in one shard, more than 100000000"):
        divide_slots([ShardTotal(0, 1e9, n_pages=1 << 30), ShardTotal(1, 1.0, n_pages=1)], night, Carry())


def test_a_budget_or_a_horizon_too_small_for_sums_is_an_option_error(tmp_path):
    """Of 1e-300 crawls a day there was a traceback."""
    night = nightly(tmp_path, observations=LOG, budget=1e-300, horizon_hours=1e-300)
    assert night.code == 2 and "Traceback" not in night.complaints
    assert "--budget=1e-300: expected 0, or a number from 1e-06" in night.complaints
    assert "--horizon_hours=1e-300: expected a number from 0.001" in night.complaints
