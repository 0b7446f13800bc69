"""What Flink's REST API says of jobs, by a server of this process. Shapes are those of Flink 1.20."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Cluster:
    """Jobs by their ids. One that is to be cancelled is so after as many looks as `slow` says."""

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    slow: int = 1
    answer: bytes | None = None
    port: int = 0
    looked: threading.Event = field(default_factory=threading.Event)

    def add(self, job: str, name: str, state: str = "RUNNING", **vertices: str) -> None:
        """A job, and the states of its vertices."""
        found = [{"id": v, "name": v, "status": s, "parallelism": 2} for v, s in vertices.items()]
        self.jobs[job] = {"jid": job, "name": name, "state": state, "vertices": found}

    def get(self, path: str) -> Any:
        if self.answer is not None:
            return self.answer
        if path == "/jobs/overview":
            for job in self.jobs.values():
                if job["state"] == "CANCELLING":
                    self.slow -= 1
                    job["state"] = "CANCELED" if self.slow < 1 else "CANCELLING"
            return {"jobs": [{k: v for k, v in job.items() if k != "vertices"} for job in self.jobs.values()]}
        if (job := self.jobs.get(path.removeprefix("/jobs/"))) is not None:
            self.looked.set()
        return job

    def patch(self, path: str) -> Any:
        job, _, mode = path.removeprefix("/jobs/").partition("?")
        if mode != "mode=cancel" or job not in self.jobs:
            return None
        self.jobs[job]["state"] = "CANCELLING"
        return {}

    @property
    def rest(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster that listens."""
    found = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def _say(self, answer: Any, code: int) -> None:
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(404 if answer is None else code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._say(found.get(self.path), 200)

        def do_PATCH(self) -> None:
            found.asked.append(self.path)
            self._say(found.patch(self.path), 202)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield found
        finally:
            server.shutdown()
