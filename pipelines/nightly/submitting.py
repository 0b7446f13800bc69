"""Handing a job to its runner and waiting for the end, which is a result or an error, never silence."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.prism_runner import PrismRunner

from pipelines.command.errors import RunnerError as RunnerError
from pipelines.nightly import flink

_LOGGER = logging.getLogger(__name__)
# Prism asks a busy worker at most every 30 s how far it is.
SILENCE_SECONDS = 600.0
CANCEL_SECONDS = 20.0
NIGHT_AGAIN = "Nothing is committed; run the night again"
STILL_THERE = (
    "The runner may still be at work on the job. Nothing of that counts, but cancel it in the runner's own "
    "interface"
)
_DEAD_WORKER = re.compile(
    r"SDK worker disconnected|send on closed channel|Channel closed prematurely|Process died with exit code|"
    r"didn't get control connection|CANCELLED: call already cancelled|call is closed"
)
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): (.*)$", re.MULTILINE)
_STEP = re.compile(r"\[while running '(.+?)(?:-ptransform-\d+)?'\]")


def say(text: str) -> None:
    """A line among those that show how far a job is."""
    _LOGGER.info(text)


def finish(
    pipeline: beam.Pipeline,
    wait: bool = True,
    remedy: str = NIGHT_AGAIN,
    given_up: Callable[[], None] = lambda: None,
) -> Any:
    """Run a pipeline, to its end unless it is not to be waited for.

    Parameters
    ----------
    pipeline : beam.Pipeline
    wait : bool
    remedy : str
        What is said of a job that its runner gave up: what is left of it, and what to do.
    given_up : callable
        Called first where the job is stopped, fails or is lost: what it may still do elsewhere must count
        for nothing. No runner can be trusted to cancel: Flink's job server only stops looking at the job.

    Raises
    ------
    RunnerError
        Where a runner in another process fails, or a worker died. Errors in this process pass as they are.
    """
    result = None
    here = isinstance(pipeline.runner, FnApiRunner)
    job = None if here else flink.job_of(pipeline)
    try:
        if not here:
            threading.excepthook = _hush
            name = type(pipeline.runner).__name__
            say(f"handed to {name}" + ("" if job else "; it shows no stages here"))
        result = pipeline.run()
        if wait:
            _wait(result, pipeline.runner, job)
    except BaseException as error:
        given_up()
        lost = not here and isinstance(error, KeyboardInterrupt | grpc.RpcError | _Silent)
        still = STILL_THERE if lost and not _cancel(result, pipeline.runner, job) else ""
        if not isinstance(error, Exception):
            if still:
                error.add_note(f"recrawl: {still}")
            raise
        message = _silence() if isinstance(error, _Silent) else _explained(str(error), error)
        if message is None:
            raise
        raise RunnerError(". ".join(filter(None, (message, still, remedy)))) from error
    return result


def _cancel(result: Any, runner: Any, job: flink.Job | None) -> bool:
    """Have the runner end a job; whether it is known to be gone. Nobody has to wait long for it."""
    if result is None:  # its runner has not said that it has taken it
        return False

    def cancel() -> None:
        with contextlib.suppress(grpc.RpcError):  # the server may be what was lost
            result.cancel()

    asked = threading.Thread(target=cancel, name="cancel", daemon=True)
    asked.start()
    asked.join(CANCEL_SECONDS)
    if job is None:
        return isinstance(runner, PrismRunner)
    return job.cancel(CANCEL_SECONDS)


def _hush(failed: threading.ExceptHookArgs) -> None:
    """Beam's threads that listen to a job server cry when it is lost; the main thread says it better."""
    if not isinstance(failed.exc_value, grpc.RpcError):
        threading.__excepthook__(failed)


def _silence() -> str:
    return (
        f"no sign of life from the runner's workers for {SILENCE_SECONDS:g} s, so the job was cancelled; the "
        "runner's log says whether a worker died, or the command of --environment_config did not start"
    )


def _explained(text: str, error: Exception) -> str | None:
    if isinstance(error, NotImplementedError):  # a runner that lacks an option
        return text
    if isinstance(error, grpc.FutureTimeoutError):
        return "no answer from the job server: is it running at --job_endpoint?"
    if isinstance(error, grpc.RpcError):
        code, details = error.code(), error.details()
        return f"lost the job server: {code.name.lower() if code else 'unknown'}: {details}"
    steps, raised = _STEP.findall(text), _RAISED.findall(text)
    if dead := _DEAD_WORKER.search(text):
        return (
            f"a worker of the runner died ({dead.group()}); its log may say why: memory is the usual reason, "
            "or the command of --environment_config does not start"
        )
    if not text.startswith("Pipeline ") or " failed in state " not in text:
        return None
    said = f"{raised[-1][0]}: {_STEP.sub('', raised[-1][1]).strip()}" if raised else text[:500]
    return f"the runner's job failed{f' in {steps[-1]}' if steps else ''}: {said}"


class _Silent(Exception):
    """Nothing was heard of the workers."""


def _wait(result: Any, runner: Any, job: flink.Job | None) -> None:
    """Wait for the end of a job, and look at it now and then where there is something to see."""
    if isinstance(runner, PrismRunner):
        _watch(_Waiting(result), result)
    elif job is not None:
        waiting = _Waiting(result)
        while not waiting.is_over(flink.POLL_SECONDS):
            job.show()
    else:
        result.wait_until_finish()


class _Waiting:
    """A thread that waits for a job, so that this one may look at it."""

    def __init__(self, result: Any) -> None:
        self._errors: list[BaseException] = []

        def wait() -> None:
            try:
                result.wait_until_finish()
            except BaseException as error:
                self._errors.append(error)

        self._thread = threading.Thread(target=wait, name="wait", daemon=True)
        self._thread.start()

    def is_over(self, seconds: float) -> bool:
        """Whether the job ends within a time; raises its error."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._errors:
            raise self._errors[0]
        return True


def _watch(waiting: _Waiting, result: Any) -> None:
    """Wait for a job of Prism; cancel it when it shows no sign of life.

    Prism 2.75 waits for ever where a worker ends between two bundles, or did not start at all: only bundles
    in flight hear of it. As long as a worker works, its times grow in the job's metrics. A job whose worker
    stands still may not even end when it is cancelled, so this does not wait for that.
    """
    request = beam_job_api_pb2.GetJobMetricsRequest(job_id=result._job_id)
    before: list[bytes] | None = None
    while not waiting.is_over(SILENCE_SECONDS):
        try:
            metrics = result._job_service.GetJobMetrics(request, timeout=CANCEL_SECONDS).metrics
            every = (*metrics.attempted, *metrics.committed)
            now = sorted(m.SerializeToString(deterministic=True) for m in every)  # labels come in any order
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                continue  # the waiting thread hears of it too
            now = before or []
        if now == (before or []):
            raise _Silent
        before = now
