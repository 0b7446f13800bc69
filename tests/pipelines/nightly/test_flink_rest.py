"""Flink is asked how far a job is, and told to end it: what the job server does not."""

from __future__ import annotations

import io
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from pipelines.door import cli
from pipelines.nightly import flink, submitting
from pipelines.nightly.options import NightlyOptions
from pipelines.nightly.progress import progress
from tests.pipelines.flink_rest import Cluster, cluster
from tests.pipelines.jobs import at, crawls, nightly, write_rows
from tests.pipelines.orphans import SECONDS, elsewhere, gate
from transforms.files import sinks

FOLD = "[4]{FoldHistory, WriteState}"
VERTICES = {"[1]ReadInputs/{ParDo, Map}": "FINISHED", FOLD: "RUNNING", "[9]WriteManifest": "CREATED"}


@pytest.fixture
def there() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink, "POLL_SECONDS", 0.02)


def test_stages_are_shown_as_those_of_this_process(there):
    there.add("a" * 32, "night", **VERTICES)
    there.add("b" * 32, "other", **{"[1]SequenceCrawls": "RUNNING"})
    there.add("c" * 32, "night", "FAILED", **{"[1]SequenceCrawls": "FINISHED"})  # the night before
    job, stream = flink.Job(f"http://{there.rest}", "night"), io.StringIO()
    with progress(stream):
        job.show()
        job.show()
        assert stream.getvalue().split(" s  ")[1:] == [
            "reading and sharding the logs\n" + stream.getvalue().splitlines()[1].split(" s  ")[0],
            "folding histories\n",
        ]
        there.add("a" * 32, "night", **VERTICES | {"[9]WriteManifest": "RUNNING"})
        job.show()
    lines = [line.partition(" s  ")[2] for line in stream.getvalue().splitlines()]
    assert lines == ["reading and sharding the logs", "folding histories", "writing the manifest"]


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"null", b'{"jobs": [{"name": "night"}]}'])
def test_a_server_that_says_something_else_stops_nothing(answer, there, caplog):
    there.answer = answer
    job = flink.Job(f"http://{there.rest}", "night")
    with caplog.at_level(logging.INFO):
        job.show()
        assert not job.cancel(0.1)
    assert not caplog.records
    nobody = flink.Job("http://127.0.0.1:1", "night")
    nobody.show()
    assert not nobody.cancel(0.1)


def test_cancelling_waits_for_the_end(there):
    there.slow = 3
    there.add("a" * 32, "night")
    there.add("b" * 32, "other")
    job = flink.Job(f"http://{there.rest}", "night")
    assert job.cancel(SECONDS) and there.slow <= 0
    assert there.asked == [f"/jobs/{'a' * 32}?mode=cancel"]
    assert there.jobs["b" * 32]["state"] == "RUNNING"
    there.slow = 1 << 30
    there.add("d" * 32, "night")
    assert not job.cancel(0.1)  # it hangs; nobody has to wait for it
    assert not flink.Job(f"http://{there.rest}", "never seen").cancel(0.1)  # it may be on its way there


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (["--flink_rest=jm:8081"], "http://jm:8081"),
        (["--flink_rest=https://jm/flink/", "--flink_master=other:1"], "https://jm/flink"),
        (["--flink_master=jm:8081"], "http://jm:8081"),
        (["--flink_master=[local]"], None),
        ([], None),
    ],
)
def test_which_server_is_asked(words, rest):
    options = NightlyOptions(words)
    assert flink.rest_of(options) == rest
    job = flink.job_of(SimpleNamespace(options=options))
    assert (job is None) == (rest is None)
    if job is not None:
        assert options.view_as(GoogleCloudOptions).job_name == job._name
        assert job._name.startswith("recrawl-")


@pytest.mark.parametrize("rest", ["a b", "jm:port", "jm:0", "ftp://jm:1", ":8081"])
def test_what_is_no_address(rest, tmp_path):
    night = nightly(tmp_path, observations=[], flink_rest=rest)
    assert night.code == cli.EXIT_USAGE and f"--flink_rest={rest}: expected host:port" in night.complaints


def _night(folder: Path, there: Cluster) -> list[str]:
    log = write_rows(folder / "log.jsonl", crawls("https://a.test/", "AAB"))
    there.add("a" * 32, "mine", **VERTICES)
    words = [f"--observations={log}", f"--as_of={at(30)}", "--budget=1", f"--output={folder / 'night'}"]
    return ["nightly", *words, "--num_shards=1", f"--flink_rest={there.rest}", "--job_name=mine"]


def test_a_night_shows_what_flink_tells_of_it(there, tmp_path, monkeypatch):
    words = _night(tmp_path, there)
    with elsewhere() as server, gate("manifest.json", monkeypatch) as waits, server.start(*words) as run:
        assert there.looked.wait(SECONDS)
        waits.opened.set()
        _, said = run.communicate(timeout=SECONDS)
    assert run.returncode == 0, said
    assert [line.partition(" s  ")[2] for line in said.splitlines()] == [
        "handed to PortableRunner",
        "reading and sharding the logs",
        "folding histories",
    ]
    assert "flink_rest" not in sinks.read_json(str(tmp_path / "night" / "manifest.json"))["options"]


def test_a_stopped_night_is_cancelled_there(there, tmp_path, monkeypatch):
    """Then nothing is left to do for a person."""
    words = _night(tmp_path, there)
    with elsewhere() as server, gate("manifest.json", monkeypatch) as waits:
        with server.start("nightly", *words) as run:
            assert waits.reached.wait(SECONDS)
            run.send_signal(signal.SIGTERM)
            _, said = run.communicate(timeout=SECONDS)
        waits.opened.set()
        server.server.ended()
    assert run.returncode == 1 and said.splitlines()[-1] == "recrawl: interrupted; nothing is committed"
    assert there.asked == [f"/jobs/{'a' * 32}?mode=cancel"]
    assert not (tmp_path / "night" / "manifest.json").exists()


def test_a_lost_job_server_is_not_the_end_of_its_job(there, tmp_path, monkeypatch):
    """Flink goes on without it."""

    class Lost(grpc.RpcError):
        def code(self):
            return grpc.StatusCode.UNAVAILABLE

        def details(self):
            return "gone"

    def lost() -> None:
        raise Lost

    there.add("a" * 32, "mine")
    result = SimpleNamespace(wait_until_finish=lost, cancel=lost)
    pipeline = SimpleNamespace(
        runner=None,
        run=lambda: result,
        options=PipelineOptions([f"--flink_master={there.rest}", "--job_name=mine"]),
    )
    fenced: list[str] = []
    with pytest.raises(submitting.RunnerError, match=r"lost the job server: unavailable: gone\. Nothing is"):
        submitting.finish(pipeline, given_up=lambda: fenced.append(there.jobs["a" * 32]["state"]))
    assert fenced == ["RUNNING"]  # before anything takes time
    assert there.jobs["a" * 32]["state"] == "CANCELED"
    there.jobs.clear()
    with pytest.raises(submitting.RunnerError, match="may still be at work"):
        submitting.finish(pipeline)
