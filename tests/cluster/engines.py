"""Engines as processes of their own: a Prism server, a Flink cluster with its job server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import fetch

WORKER = Path(sys.executable).parent / "recrawl-worker"
SLOTS = 2  # of a task manager
CACHE_SECONDS = 30  # for which a Python worker of Flink waits for its next stage
# Seconds, for an engine to come up or for an event that a test waits for: on Flink a small night takes a
# minute, half of it before the job starts.
DEADLINE = 300.0


def until(found: Callable[[], Any], what: str, seconds: float = DEADLINE) -> Any:
    """Poll until `found` gives something true; fails when it takes too long."""
    end = time.monotonic() + seconds
    while not (value := found()):
        if time.monotonic() > end:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    if process.poll() is not None:
        pytest.fail(f"{process.args} ended with {process.returncode}:\n{log.read_text()[-3000:]}")
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in a file, killed at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@dataclass
class Engine:
    """A running engine.

    Attributes
    ----------
    options : list of str
        By which a job is sent to it.
    retries : bool
        Whether it runs a failed part again.
    log : Path
        What it said.
    processes : list of Popen
        The server first, then the parts that a test may kill.
    """

    options: list[str]
    retries: bool
    log: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def workers(self, variables: Mapping[str, str] | None = None) -> list[str]:
        """Options for Python workers as processes of their own, with environment variables."""
        config = {"command": str(WORKER), "env": dict(variables or {})}
        return [*self.options, "--environment_type=PROCESS", f"--environment_config={json.dumps(config)}"]

    def loopback(self) -> list[str]:
        """Options for workers in the process that sends the job."""
        return [*self.options, "--environment_type=LOOPBACK"]


@contextlib.contextmanager
def prism(folder: Path) -> Iterator[Engine]:
    """A Prism server, built by `make prism`."""
    if not fetch.PRISM.exists():
        pytest.skip(f"no Prism in {fetch.PRISM}: make prism")
    port, log = free_port(), folder / "prism.log"
    command = [str(fetch.PRISM), f"--job_port={port}", "--serve_http=false", "--log_kind=text"]
    with running(command, log) as server:
        until(lambda: _listens(port, server, log), "Prism listens")
        yield Engine(["--runner=PrismRunner", f"--job_endpoint=localhost:{port}"], False, log, [server])


def flink_configuration(folder: Path, ports: tuple[int, int, int]) -> str:
    """`config.yaml` of a small cluster on this machine; docs/cluster.md says why."""
    rest, rpc, blob = ports
    shipped = (fetch.DISTRIBUTION / "conf" / "config.yaml").read_text()
    java = next(line for line in shipped.splitlines() if line.strip().startswith("all: --add-exports"))
    values = {
        "jobmanager.bind-host": "127.0.0.1",
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": rpc,
        "jobmanager.memory.process.size": "768m",
        "jobmanager.execution.failover-strategy": "region",
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": rest,
        "blob.server.port": blob,
        "taskmanager.host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.numberOfTaskSlots": SLOTS,
        "taskmanager.memory.flink.size": "1536m",
        "taskmanager.memory.task.off-heap.size": "512m",
        "taskmanager.memory.managed.size": "384m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.network.sort-shuffle.min-buffers": 64,
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.runtime.large-record-handler": "true",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": 3,
        "restart-strategy.fixed-delay.delay": f"{CACHE_SECONDS + 3} s",
        "heartbeat.interval": 2000,
        "heartbeat.timeout": 10000,
        "classloader.check-leaked-classloader": "false",
        "classloader.resolve-order": "parent-first",
        "parallelism.default": 2 * SLOTS,
        "io.tmp.dirs": folder / "tmp",
    }
    return "".join(f"{k}: {v}\n" for k, v in values.items()) + f"env.java.opts.{java.strip()}\n"


def rest(port: int, path: str) -> Any:
    """An answer of the JobManager; empty while it does not listen."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return json.load(answer)
    return {}


@dataclass
class Flink:
    """A standalone cluster: its REST port, the JobManager, the TaskManagers."""

    port: int
    configuration: Path
    processes: list[subprocess.Popen[bytes]]

    def task_managers(self) -> list[dict[str, Any]]:
        return list(rest(self.port, "/taskmanagers").get("taskmanagers", []))


@contextlib.contextmanager
def flink_cluster(folder: Path) -> Iterator[Flink]:
    """One JobManager and two TaskManagers, each a process, of the distribution that `make flink` laid out."""
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH")
    if not fetch.DISTRIBUTION.exists():
        pytest.skip(f"no Flink in {fetch.DISTRIBUTION}: make flink")
    ports = (free_port(), free_port(), free_port())
    configuration = folder / "conf"
    shutil.copytree(fetch.DISTRIBUTION / "conf", configuration)
    (configuration / "config.yaml").write_text(flink_configuration(folder, ports))
    (folder / "tmp").mkdir()
    environment = {"FLINK_CONF_DIR": str(configuration), "FLINK_LOG_DIR": str(folder)}
    if (jar := fetch.job_server_jar()) is not None:
        environment["FLINK_LIB_DIR"] = str(fetch.lay_out_lib(jar, folder / "lib"))
    with contextlib.ExitStack() as stack:
        processes = []
        for name in ("jobmanager", "taskmanager", "taskmanager"):
            script = str(fetch.DISTRIBUTION / "bin" / f"{name}.sh")
            log = folder / f"{name}-{len(processes)}.log"
            command = ["bash", script, "start-foreground"]
            processes.append(stack.enter_context(running(command, log, **environment)))
        cluster = Flink(ports[0], configuration, processes)

        def complete() -> bool:
            for process in processes:
                if process.poll() is not None:
                    said = "\n".join(p.read_text()[-2000:] for p in folder.glob("*manager-*.log"))
                    pytest.fail(f"{process.args} ended with {process.returncode}:\n{said}")
            # A TaskManager tells of its slots a moment after it has registered.
            return sum(bool(manager["slotsNumber"]) for manager in cluster.task_managers()) == 2

        until(complete, "two TaskManagers have registered, each with slots")
        yield cluster


@contextlib.contextmanager
def flink(folder: Path, master: str | None = None) -> Iterator[Engine]:
    """Beam's Flink job server on a standalone cluster, or with a Flink inside it: master "[local]"."""
    jar = fetch.job_server_jar()
    if jar is None:
        pytest.skip(
            f"no job server: Maven Central had no {fetch.COORDINATES} for us; name the jar by "
            f"${fetch.JAR_VARIABLE} (make flink)"
        )
    with contextlib.ExitStack() as stack:
        processes: list[subprocess.Popen[bytes]] = []
        arguments = []
        if master is None:
            cluster = stack.enter_context(flink_cluster(folder))
            processes, master = cluster.processes, f"127.0.0.1:{cluster.port}"
            arguments = ["--flink-conf-dir", str(cluster.configuration)]
        port, artifacts, log = free_port(), free_port(), folder / "job-server.log"
        opens = [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in ("lang", "nio", "util")]
        command = ["java", *opens, "-jar", str(jar), "--flink-master", master, *arguments, "--job-host"]
        command += ["localhost", "--job-port", str(port), "--artifact-port", str(artifacts)]
        command += ["--expansion-port", "-1", "--artifacts-dir", str(folder / "artifacts")]
        server = stack.enter_context(running(command, log))
        until(lambda: _listens(port, server, log), "the job server listens")
        options = ["--runner=PortableRunner", f"--job_endpoint=localhost:{port}"]
        options += [f"--parallelism={2 * SLOTS}", "--execution_mode_for_batch=BATCH_FORCED"]
        options += [f"--environment_cache_millis={CACHE_SECONDS * 1000}"]
        options += [] if master.startswith("[") else [f"--flink_rest={master}"]
        yield Engine(options, True, log, [server, *processes])
