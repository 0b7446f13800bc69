"""A job as Flink's own REST API has it: how far it is, and its end. The job server shows and does neither."""

from __future__ import annotations

import json
import logging
import time
import urllib.request
import uuid
from typing import Any
from urllib.parse import urlsplit

import apache_beam as beam
from apache_beam.options.pipeline_options import FlinkRunnerOptions, GoogleCloudOptions, PipelineOptions

POLL_SECONDS = 2.0
ANSWER_SECONDS = 10.0
_LOGGER = logging.getLogger(__name__)
_OVER = ("FINISHED", "CANCELED", "FAILED")
_BEGUN = ("RUNNING", "FINISHED")
# A server that is not there, or says something else.
_ODD = (OSError, ValueError, LookupError, TypeError)


def address(rest: str) -> str:
    """The root of a REST API that an option names, as host:port or as a URL. ValueError for anything else."""
    url = rest if "://" in rest else f"http://{rest}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0 or " " in rest:
        raise ValueError(rest)
    return url.rstrip("/")


def rest_of(options: PipelineOptions) -> str | None:
    """The REST API that the options name: `--flink_rest`, or a `--flink_master` that is an address."""
    given = options.get_all_options().get("flink_rest")
    try:
        return address(given or options.view_as(FlinkRunnerOptions).flink_master)
    except ValueError:
        return None


def job_of(pipeline: beam.Pipeline) -> Job | None:
    """The job that a pipeline is about to be, where Flink can be asked. It gets a name to find it by.

    The user's own name serves as well: of two jobs with it, both are this night.
    """
    options = pipeline.options
    rest = rest_of(options)
    if rest is None:
        return None
    cloud = options.view_as(GoogleCloudOptions)  # where Beam has the name of a job, on every runner
    if cloud.job_name is None:
        cloud.job_name = f"recrawl-{uuid.uuid4().hex}"
    return Job(rest, cloud.job_name)


class Job:
    """A job of Flink, by its name; of its attempts that are not over.

    Parameters
    ----------
    rest : str
        Root of the REST API.
    name : str
    """

    def __init__(self, rest: str, name: str) -> None:
        self._rest, self._name = rest, name
        self._shown: set[str] = set()

    def show(self) -> None:
        """Log stages that have begun since the last look, as Beam's in-process runner does."""
        try:
            for job in self._ids(over=False):
                for vertex in self._ask(f"/jobs/{job}")["vertices"]:
                    if vertex["status"] in _BEGUN and vertex["name"] not in self._shown:
                        self._shown.add(vertex["name"])
                        _LOGGER.info("Running %s", vertex["name"])
        except _ODD as error:  # it is for a person to see, no more
            _LOGGER.debug("%s: %r", self._rest, error)

    def cancel(self, seconds: float) -> bool:
        """Cancel it; whether it is seen to be over within a time."""
        end = time.monotonic() + seconds
        try:
            for job in self._ids(over=False):
                self._ask(f"/jobs/{job}?mode=cancel", "PATCH")
            while self._ids(over=False):
                if time.monotonic() > end:
                    return False
                time.sleep(POLL_SECONDS / 10)
            return bool(self._ids(over=True))  # else it may be on its way there
        except _ODD as error:
            _LOGGER.debug("%s: %r", self._rest, error)
            return False

    def _ids(self, over: bool) -> list[str]:
        jobs = self._ask("/jobs/overview")["jobs"]
        return [j["jid"] for j in jobs if j["name"] == self._name and (j["state"] in _OVER) == over]

    def _ask(self, path: str, method: str = "GET") -> Any:
        asked = urllib.request.Request(f"{self._rest}{path}", method=method)
        with urllib.request.urlopen(asked, timeout=ANSWER_SECONDS) as answer:
            return json.loads(answer.read() or b"null")
