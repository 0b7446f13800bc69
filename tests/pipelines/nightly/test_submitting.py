"""How a job on a runner in another process ends: Beam's embedded job service stands for any such runner."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.prism_runner import PrismRunner

from pipelines.command.errors import OptionsError
from pipelines.door import cli, explaining
from pipelines.nightly import submitting
from pipelines.nightly.options import Settings
from tests.pipelines import jobs, memory_files
from tests.pipelines.jobs import crawls, nightly, write_rows

PORTABLE = ("--runner=PortableRunner", "--environment_type=LOOPBACK")
EMBEDDED = (*PORTABLE, "--job_endpoint=embed")
pytestmark = pytest.mark.usefixtures("beams_runner")


@pytest.fixture
def log(tmp_path):
    rows = [r for i in range(30) for r in crawls(f"https://h{i % 3}.test/{i}", "AABBC", 20)]
    return write_rows(tmp_path / "log.csv", rows)


def test_the_files_and_the_summary_are_the_same(log, tmp_path):
    here = nightly(tmp_path, "here", observations=log)
    there = nightly(tmp_path, "there", observations=log, flags=EMBEDDED)
    assert here.code == there.code == 0, there.complaints
    assert here.digests() == there.digests()
    assert here.printed.splitlines()[1:-1] == there.printed.splitlines()[1:-1]
    assert "handed to PortableRunner" in there.complaints


def test_relative_paths_are_those_of_who_submits(log, tmp_path, monkeypatch):
    """Workers elsewhere have other folders; the manifest has what was given."""
    there = tmp_path / "[1]"
    there.mkdir()
    monkeypatch.chdir(tmp_path)
    words = [f"--as_of={jobs.at(30)}", "--budget=10", "--observations=log.csv, *.none", "--output=night/"]
    near, far = (Settings(PipelineOptions([*words, *more])) for more in ((), PORTABLE))
    assert (near.observations, near.output) == ("log.csv, *.none", "night")
    assert (far.observations, far.output) == (f"{log},{tmp_path}/*.none", f"{tmp_path}/night")
    assert near.published() == far.published()
    assert memory_files.MemoryFiles.scheme() == "mem"
    whole = Settings(PipelineOptions([*words, *PORTABLE, f"--observations={log}", "--output=mem://night"]))
    assert (whole.observations, whole.output) == (str(log), "mem://night")
    monkeypatch.chdir(there)
    with pytest.raises(OptionsError, match="taken for a pattern"):
        Settings(PipelineOptions([*words, *PORTABLE]))


def test_an_error_of_ours_keeps_its_sentence_and_code(log, tmp_path):
    floors = [{"url": "https://h0.test/0", "min_rate_per_day": 1000}]
    here = nightly(tmp_path, "here", observations=log, pages=floors)
    there = nightly(tmp_path, "there", observations=log, pages=floors, flags=EMBEDDED)
    assert (here.code, here.complaints.splitlines()[-1]) == (there.code, there.complaints.splitlines()[-1])
    assert not there.committed


def test_an_error_of_others_names_step_and_cause(log, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise OSError("the reader's fault")

    monkeypatch.setattr("transforms.intake.reading.read_split", broken)
    night = nightly(tmp_path, observations=log, flags=EMBEDDED)
    said = night.complaints.splitlines()[-1]
    assert night.code == 1 and not night.committed
    assert "ReadInputs/" in said and "OSError: the reader's fault" in said and "Nothing is committed" in said
    assert "ptransform" not in said


@pytest.mark.parametrize(
    "option, said",
    [("--job_endpoint=localhost:1", "no answer from the job server"), (None, "--job_endpoint")],
    ids=["nobody there", "no address"],
)
def test_no_job_server(option, said, log, tmp_path):
    flags = [*PORTABLE, "--job_server_timeout=1", *([option] if option else [])]
    night = nightly(tmp_path, observations=log, flags=flags)
    assert night.code == 1 and not night.committed
    assert night.complaints.splitlines()[-1].startswith("recrawl: ") and said in night.complaints


def test_a_dead_worker_is_told_from_its_runners_words():
    """A panic of Prism comes with a stack of many lines, and Python's words in it are no cause."""
    text = (
        "Pipeline job-7 failed in state FAILED: panic in bundle: send on closed channel, stage: x\nError: y"
    )
    said = submitting._explained(text, RuntimeError(text))
    assert said is not None and "worker of the runner died (send on closed channel)" in said
    assert "\n" not in said


@pytest.mark.parametrize("words", ["CANCELLED: call already cancelled", "call is closed"])
def test_flinks_words_of_a_dead_worker(words):
    text = f"RuntimeException: Error received from SDK harness\nStatusRuntimeException: {words}\n\tat x"
    said = submitting._explained(text, RuntimeError(text))
    assert said is not None and f"worker of the runner died ({words})" in said


def test_errors_in_this_process_pass_as_they_are():
    assert submitting._explained("division by zero", ZeroDivisionError("division by zero")) is None
    with pytest.raises(ZeroDivisionError):
        submitting.finish(_pipeline(None, lambda: 1 / 0))


def _pipeline(runner, run, *options: str):
    return SimpleNamespace(runner=runner, run=run, options=PipelineOptions(list(options)))


class _Job:
    """A job of Prism that ends when it is cancelled; its metrics grow as often as it is told.

    The labels of one metric come in another order every time, as from Prism.
    """

    _job_id = "job"

    def __init__(self, grows: int) -> None:
        self._job_service, self._grows, self._looks = self, grows, 0
        self.cancelled = threading.Event()

    def GetJobMetrics(self, _, timeout):
        self._looks += 1
        metrics = beam_job_api_pb2.MetricResults()
        metric = metrics.attempted.add(payload=str(min(self._looks, self._grows)).encode())
        for i in sorted(range(64), key=lambda i: (i + self._looks) * 37 % 64):
            metric.labels[str(i)] = ""
        return beam_job_api_pb2.GetJobMetricsResponse(metrics=metrics)

    def cancel(self) -> None:
        self.cancelled.set()

    def wait_until_finish(self) -> None:
        assert self.cancelled.wait(60)
        raise RuntimeError("Pipeline job failed in state CANCELLED: unknown error")


def test_silence_ends_a_job(monkeypatch):
    monkeypatch.setattr(submitting, "SILENCE_SECONDS", 0.01)
    job = _Job(grows=20)
    with pytest.raises(submitting.RunnerError, match="no sign of life"):
        submitting.finish(_pipeline(PrismRunner(), lambda: job))
    assert job._looks == 21  # as long as they grew, it was let be, and no longer


def test_an_interrupt_cancels_the_job_elsewhere():
    """Else it would go on and commit."""
    job = _Job(grows=0)

    def interrupted() -> None:
        raise KeyboardInterrupt

    job.wait_until_finish = interrupted
    with pytest.raises(KeyboardInterrupt):
        submitting.finish(_pipeline(beam.runners.runner.PipelineRunner(), lambda: job))
    assert job.cancelled.is_set()


def test_the_command_explains_a_runners_error_by_its_cause():
    """The sentence of an error of ours, which the runner wraps, comes before the runner's."""
    inner = RuntimeError(
        "... policies.numerics.errors.InfeasibleError: floors are above it [while running 'x']\n"
    )
    outer = submitting.RunnerError("the runner's job failed")
    outer.__cause__ = inner
    assert explaining.explain(outer) == ("floors are above it", cli.EXIT_USAGE)
    outer.__cause__ = RuntimeError("something else")
    assert explaining.explain(outer) == ("the runner's job failed", cli.EXIT_FAILED)
