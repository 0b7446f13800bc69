"""What a runner that retries does to a night: parts run twice, one after the other or at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from tests.cluster.nights import first_options
from tests.pipelines.jobs import Night, command
from transforms.files import sinks
from transforms.files.shard_files import write_shard

DATA = b"the same bytes in every attempt" * 1000
BATCH = pa.RecordBatch.from_pydict({"url": [f"https://a.test/{i}" for i in range(5000)]})


def test_every_part_runs_twice(corpus, clean, tmp_path, monkeypatch):
    """Beam's own runner replays each bundle; what is written twice is there once."""
    written: list[str] = []
    rename = sinks.FileSystems.rename

    def counted(sources: list[str], targets: list[str]) -> None:
        written.extend(targets)
        rename(sources, targets)

    monkeypatch.setattr(sinks.FileSystems, "rename", staticmethod(counted))
    options = [*corpus, *first_options(tmp_path), "--direct_runner_bundle_repeat=1"]
    night = Night(*command("nightly", *options), tmp_path)
    assert night.code == 0, night.complaints
    assert night.digests() == clean.digests()
    # The page and the metrics are written by who waits for the job.
    written = [path for path in written if not path.endswith(("report.html", "metrics.prom"))]
    assert all(written.count(path) == 2 for path in written)
    assert any(path.endswith("manifest.json") for path in written)


def test_an_attempt_that_was_given_up_finishes_last(tmp_path):
    """An orphan goes on after its retry is done: the file is the same, and there is one."""
    retry_done = threading.Event()

    def slow(target) -> None:
        target.write(DATA[:100])
        assert retry_done.wait(60)
        target.write(DATA[100:])

    with ThreadPoolExecutor(1) as pool:
        orphan = pool.submit(sinks.write_file, str(tmp_path), "pages/shard", slow, 7)
        retry = sinks.write_file(str(tmp_path), "pages/shard", DATA, 7)
        assert (tmp_path / "pages" / "shard").read_bytes() == DATA
        retry_done.set()
        assert orphan.result() == retry
    assert (tmp_path / "pages" / "shard").read_bytes() == DATA
    assert [p.name for p in (tmp_path / "pages").iterdir()] == ["shard"]


@pytest.mark.parametrize("file_format", ["parquet", "avro", "jsonl"])
def test_attempts_at_once(file_format, tmp_path):
    """A reader sees the whole file at any time; all attempts report the same."""
    start = threading.Barrier(8)

    def attempt(_: int) -> sinks.FileInfo:
        start.wait()
        info = write_shard(str(tmp_path), "pages", 3, 4, BATCH, file_format)
        assert (tmp_path / info.path).stat().st_size == info.bytes
        return info

    with ThreadPoolExecutor(8) as pool:
        infos = set(pool.map(attempt, range(8)))
    (info,) = infos
    assert info.rows == BATCH.num_rows
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")] == [info.path]


def test_an_attempt_that_fails_takes_its_file_away(tmp_path):
    def fails(target) -> None:
        target.write(DATA)
        raise OSError(28, "No space left on device")

    first = sinks.write_file(str(tmp_path), "pages/shard", DATA, 7)
    with pytest.raises(OSError, match="No space left"):
        sinks.write_file(str(tmp_path), "pages/shard", fails, 7)
    assert (tmp_path / first.path).read_bytes() == DATA
    assert [p.name for p in (tmp_path / "pages").iterdir()] == ["shard"]


def test_shards_combined_in_two_steps(corpus, clean, tmp_path, monkeypatch):
    """What a night of many shards does: some first, then the whole; every value is exact in any order."""
    monkeypatch.setattr("transforms.batches.combining.MAX_BYTES", 1)
    night = Night(*command("nightly", *corpus, *first_options(tmp_path)), tmp_path)
    assert night.code == 0, night.complaints
    assert night.digests() == clean.digests()
