"""A job server that does not cancel, as Flink's: it says that the job is cancelled, and the job goes on.

Beam's own local one is such a server. It runs here in the test's process, its workers too, and a job waits
where the test has put a gate.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from tests.pipelines.started import Started
from transforms.files import sinks

SECONDS = 60.0


@dataclass
class Gate:
    """Where the first worker that comes by waits: before it gives `end` its name."""

    end: str
    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


@contextmanager
def gate(end: str, patch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate that the first file whose path ends so waits at, after all that is looked at before a rename."""
    made, rename, first = Gate(end), sinks.FileSystems.rename, threading.Lock()

    def gated(sources: list[str], targets: list[str]) -> None:
        if targets[0].endswith(made.end) and first.acquire(blocking=False):
            made.reached.set()
            assert made.opened.wait(SECONDS)
        rename(sources, targets)

    patch.setattr(sinks.FileSystems, "rename", staticmethod(gated))
    try:
        yield made
    finally:
        made.opened.set()


class Server(LocalJobServicer):
    """The server, and how its jobs ended."""

    def ended(self) -> list[str]:
        """Wait for all jobs, cancelled ones too; what each said in its log, empty where all went well."""
        for job in self._jobs.values():
            job._run_thread.join(SECONDS)
            assert not job._run_thread.is_alive()
        return [
            "\n".join(message.message_text for message in job._log_queues.cache())
            for job in self._jobs.values()
        ]


@dataclass
class Elsewhere:
    """A running server, and the options by which a job is sent to it."""

    server: Server
    options: list[str]

    def start(self, *arguments: str) -> Started:
        """Start `recrawl` in a process of its own, which sends its job here."""
        return Started(*arguments, *self.options, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@contextmanager
def elsewhere() -> Iterator[Elsewhere]:
    """A server for one test."""
    server = Server()
    port = server.start_grpc_server()
    try:
        yield Elsewhere(
            server,
            [
                "--runner=PortableRunner",
                f"--job_endpoint=localhost:{port}",
                "--environment_type=beam:env:embedded_python:v1",
            ],
        )
    finally:
        server.stop()
