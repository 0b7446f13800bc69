"""The program that the launcher of the Dataflow template runs."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.door import cli
from policies.numerics.errors import InfeasibleError
from tests.pipelines.jobs import at, crawls, nightly
from tests.pipelines.plain_runner import CHOICE
from tests.templates.launching import TEMPLATE, Bucket, launch, load_main, needs_client
from transforms.files.attempts import MARK

pytestmark = pytest.mark.timeout(300)  # several whole nights, and one in a process of its own
PAGES = [f"https://{host}.example/{i}" for host in "abc" for i in range(4)]
DAY = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], bool]]:
    """What the job was started with, instead of starting it."""
    calls: list[tuple[list[str], bool]] = []
    monkeypatch.setattr("pipelines.nightly.nightly.run", lambda argv, wait=True: calls.append((argv, wait)))
    return calls


def test_it_does_not_wait(handed):
    assert load_main().main(["--budget=1"]) == cli.EXIT_OK
    assert handed == [(["--budget=1"], False)]


def test_not_waiting_reaches_the_runner(tmp_path, monkeypatch):
    waited: list[str] = []
    monkeypatch.setenv(CHOICE, "beam")
    monkeypatch.setattr(
        "apache_beam.runners.portability.fn_api_runner.fn_runner.RunnerResult.wait_until_finish",
        lambda *_: waited.append("waited"),
    )
    night = nightly(tmp_path, "waits", observations=crawls(PAGES[0], "AAB", 20))
    assert night.committed and waited
    waited.clear()
    options = {"observations": tmp_path / "inputs" / "waits-observations.jsonl", "output": tmp_path / "not"}
    given = [f"--{k}={v}" for k, v in {**options, "budget": 10, "as_of": at(30)}.items()]
    assert load_main().main(given) == cli.EXIT_OK and not waited


@pytest.mark.parametrize(
    ("launched", "expected"),
    [
        (["--allow_shrink=true"], ["--allow_shrink"]),
        (["--allow_shrink=True"], ["--allow_shrink"]),
        (["--allow_shrink=false"], []),
        (["--allow_shrink="], []),
        (["--allow_shrink"], ["--allow_shrink"]),
        (["--requests=", "--host_max_per_day="], []),
        (["--observations=gs://b/x=1/*"], ["--observations=gs://b/x=1/*"]),
        (["--streaming"], ["--streaming"]),
    ],
)
def test_values_of_the_launcher(handed, launched: list[str], expected: list[str]):
    load_main().main(launched)
    assert handed == [(expected, False)]


def test_a_flag_is_true_or_false(handed):
    with pytest.raises(SystemExit, match="--allow_shrink=yes: expected true or false"):
        load_main().main(["--allow_shrink=yes"])
    assert not handed


def test_mistakes_are_explained_and_fail_the_launch(caplog):
    with caplog.at_level(logging.ERROR):
        assert load_main().main(["--budget=much"]) == cli.EXIT_USAGE
    assert "--budget=much: expected a number" in caplog.text
    assert "--output is missing" in caplog.text


@pytest.mark.parametrize(
    ("error", "code"), [(InfeasibleError("floors above the budget"), cli.EXIT_USAGE), (KeyError("x"), None)]
)
def test_what_is_not_for_a_person_is_raised(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: int | None
):
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("pipelines.nightly.nightly.run", fail)
    if code is None:
        with pytest.raises(KeyError):
            load_main().main([])
    else:
        assert load_main().main([]) == code


@pytest.mark.dataflow
def test_the_program_runs_as_the_launcher_runs_it(tmp_path: Path):
    """By its path, from a foreign folder, with nothing but what is installed."""
    reference = nightly(tmp_path, "reference", observations=[r for p in PAGES for r in crawls(p, "ABB", 20)])
    given = {
        "observations": tmp_path / "inputs" / "reference-observations.jsonl",
        "output": tmp_path / "launched",
        "budget": 10,
        "as_of": at(30),
        "num_shards": 2,
        "max_rejected_fraction": 1,
        "allow_shrink": "false",
        "requests": "",
    }
    done = subprocess.run(
        [sys.executable, TEMPLATE / "main.py", *(f"--{k}={v}" for k, v in given.items())],
        cwd=tmp_path,
        env=DAY,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    launched = {
        p.relative_to(tmp_path / "launched").as_posix(): p.read_bytes()
        for p in (tmp_path / "launched").rglob("*")
        if p.is_file()
    }
    # Nobody waits for the job, so the mark of its try stays: a later run in this folder takes it over. Nor
    # does anybody write a page and metrics of it.
    assert len(launched.pop(MARK)) == 32
    expected = set(reference.digests()) - {"report.html", "metrics.prom"}
    assert launched == {name: (reference.folder / name).read_bytes() for name in expected}


@pytest.fixture
def bucket() -> Any:
    """gs:// is a bucket in memory."""
    made = Bucket()
    with made.installed():
        yield made


def night(bucket: Bucket, name: str, **options: Any) -> list[str]:
    given = {"output": f"gs://nights/{name}", "budget": 10, "as_of": at(30), "num_shards": 2, **options}
    return [f"--{k}={v}" for k, v in given.items()]


@needs_client
def test_nights_in_a_bucket_are_nights_in_a_folder(bucket: Bucket, tmp_path: Path):
    """Where there are no folders and a rename is a copy: the same files, byte for byte."""
    days = [[r for i, p in enumerate(PAGES) for r in crawls(p, "AB", day + i / 99)] for day in (27, 29)]
    local, program = None, load_main()
    for i, rows in enumerate(days):
        as_of = at(28.5 + i * 2)
        state = local.folder / "state" if local else None
        local = nightly(
            tmp_path, f"n{i}", observations=rows, as_of=as_of, state=state, max_rejected_fraction=None
        )
        assert local.committed, local.complaints
        bucket.put(tmp_path / "inputs", "gs://logs/some")
        options: dict[str, Any] = {"observations": f"gs://logs/some/n{i}-*.jsonl", "as_of": as_of}
        if i:
            options["state"] = f"gs://nights/n{i - 1}/state"
        assert program.main(night(bucket, f"n{i}", **options)) == cli.EXIT_OK
        there = bucket.below(f"gs://nights/n{i}")
        assert len(there.pop(MARK)) == 32  # nobody waits, so it stays
        assert there.keys() == local.digests().keys() - {"report.html", "metrics.prom"}  # by who waits
        for name in there.keys() - {"manifest.json"}:  # which says where the inputs were
            assert there[name] == (local.folder / name).read_bytes(), name


@needs_client
def test_a_launch_from_a_bucket_hands_the_job_over(bucket: Bucket, tmp_path: Path):
    """Inputs and state are read; the old night in the output stays until the new one is complete."""
    first = nightly(tmp_path, "first", observations=[r for p in PAGES for r in crawls(p, "AB", 27)])
    bucket.put(first.folder, "gs://nights/first")
    bucket.put(first.folder, "gs://nights/second")
    bucket.objects["gs://nights/second/notes.txt"] = b"mine"
    bucket.put(tmp_path / "inputs", "gs://logs/some")
    given = night(
        bucket, "second", observations="gs://logs/some/*", state="gs://nights/first/state", as_of=at(31)
    )
    done = launch(given)
    assert done.code == cli.EXIT_OK and len(done.pipeline.components.transforms) > 50
    there = bucket.below("gs://nights/second")
    assert len(there.pop(MARK)) == 32
    assert there.pop("notes.txt") == b"mine"
    assert there == bucket.below("gs://nights/first")
    assert bucket.below("gs://nights/first").keys() == first.digests().keys()
    (pool,) = done.job["environment"]["workerPools"]
    assert pool["kind"] == "harness"


@needs_client
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"observations": "gs://logs/nothing/log.jsonl"}, "no file matches: gs://logs/nothing/log.jsonl"),
        ({"state": "gs://nights/none/state"}, "no shard-\\*.parquet there"),
        ({"output": "gs://nights/first", "state": "gs://nights/first/state"}, "would delete what it reads"),
    ],
)
def test_a_launch_that_cannot_work_fails_before_anything_is_deleted(
    bucket: Bucket, tmp_path: Path, caplog, options: dict[str, str], complaint: str
):
    first = nightly(tmp_path, "first", observations=[r for p in PAGES for r in crawls(p, "AB", 27)])
    bucket.put(first.folder, "gs://nights/first")
    bucket.put(tmp_path / "inputs", "gs://logs/some")
    before = dict(bucket.objects)
    given = {"observations": "gs://logs/some/*", "output": "gs://nights/first", **options}
    with caplog.at_level(logging.ERROR):
        done = launch(night(bucket, "first", **given))
    assert done.code == cli.EXIT_USAGE and not done.staged
    assert bucket.objects == before
    assert re.search(complaint, caplog.text)
