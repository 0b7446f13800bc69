"""Handing a job to its runner and waiting for the end, which is a result or an error, never silence."""

from __future__ import annotations

import logging
import re
import threading
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.prism_runner import PrismRunner

_LOGGER = logging.getLogger(__name__)
# Prism asks a busy worker at most every 30 s how far it is.
SILENCE_SECONDS = 600.0
CANCEL_SECONDS = 20.0
NIGHT_AGAIN = "Nothing is committed; run the night again"
_DEAD_WORKER = re.compile(
    r"SDK worker disconnected|send on closed channel|Channel closed prematurely|Process died with exit code|"
    r"didn't get control connection"
)
_RAISED = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception|Interrupt)): (.*)$", re.MULTILINE)
_STEP = re.compile(r"\[while running '(.+?)(?:-ptransform-\d+)?'\]")


class RunnerError(RuntimeError):
    """The runner gave the job up. What it said is the `__cause__`."""


def finish(pipeline: beam.Pipeline, wait: bool = True, remedy: str = NIGHT_AGAIN) -> Any:
    """Run a pipeline, to its end unless it is not to be waited for.

    Parameters
    ----------
    pipeline : beam.Pipeline
    wait : bool
    remedy : str
        What is said of a job that its runner gave up: what is left of it, and what to do.

    Raises
    ------
    RunnerError
        Where a runner in another process fails, or a worker died. Errors in this process pass as they are.
    """
    result = None
    try:
        if not isinstance(pipeline.runner, FnApiRunner):
            threading.excepthook = _hush
            _LOGGER.info("handed to %s; it shows no stages here", type(pipeline.runner).__name__)
        result = pipeline.run()
        if wait:
            if isinstance(pipeline.runner, PrismRunner):
                _wait_watching(result)
            else:
                result.wait_until_finish()
    except KeyboardInterrupt:
        if result is not None:  # else a cluster goes on and commits
            result.cancel()
        raise
    except Exception as error:
        message = _silence() if isinstance(error, _Silent) else _explained(str(error), error)
        if message is None:
            raise
        raise RunnerError(f"{message}. {remedy}") from error
    return result


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


def _wait_watching(result: Any) -> None:
    """Wait for a job of Prism; cancel it when it shows no sign of life.

    Prism 2.75 waits for ever where a worker ends between two bundles, or did not start at all: only bundles
    in flight hear of it. As long as a worker works, its times grow in the job's metrics. A job whose worker
    stands still may not even end when it is cancelled, so this does not wait for that.
    """
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            result.wait_until_finish()
        except BaseException as error:
            errors.append(error)

    waiting = threading.Thread(target=wait, name="wait", daemon=True)
    waiting.start()
    request = beam_job_api_pb2.GetJobMetricsRequest(job_id=result._job_id)
    before: list[bytes] | None = None
    while True:
        waiting.join(SILENCE_SECONDS)
        if not waiting.is_alive():
            if errors:
                raise errors[0]
            return
        try:
            metrics = result._job_service.GetJobMetrics(request, timeout=CANCEL_SECONDS).metrics
            every = (*metrics.attempted, *metrics.committed)
            now = sorted(m.SerializeToString(deterministic=True) for m in every)  # labels come in any order
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                continue  # the waiting thread hears of it too
            now = before or []
        if now == (before or []):
            threading.Thread(target=result.cancel, name="cancel", daemon=True).start()
            waiting.join(CANCEL_SECONDS)
            raise _Silent
        before = now
