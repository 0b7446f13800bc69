"""`recrawl-worker`: starts Beam's Python worker out of the environment that it is installed in.

A portable runner with `--environment_type=PROCESS` starts one command per worker. Beam's own such command is
in its container images; this one needs no container. It asks the runner for the pipeline's options and for
where to report, and becomes the worker. It stages nothing: recrawl must be installed where it runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc, endpoints_pb2
from google.protobuf import json_format, text_format

from pipelines.command.exit_codes import BY_SIGNAL

LOG_FOLDER = "RECRAWL_WORKER_LOGS"
TIMEOUT_SECONDS = 60.0
LINGER_SECONDS = 2.0
# PR_SET_PDEATHSIG: Prism ends its processes by SIGKILL, which none can pass on.
_CHILD = """
import ctypes, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
from recrawl import worker
sys.exit(worker.run("beam", []))
"""
# A worker that had nothing to say leaves no log. Runners end one by SIGTERM: then Python runs no `atexit`.
_TIDY = f"""
import atexit, os, signal, sys
log = sys.argv.pop()
def tidy():
    if os.path.exists(log) and not os.path.getsize(log):
        os.unlink(log)
def end(number, _):
    tidy()
    os._exit({BY_SIGNAL} + number)
atexit.register(tidy)
signal.signal(signal.SIGTERM, end)
from recrawl import worker
sys.exit(worker.run("beam", []))
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="recrawl-worker",
        description="Starts a Beam worker. A runner calls this, with --environment_type=PROCESS.",
        epilog=f"Where standard output is closed or /dev/null, as with Flink, output goes to a file in "
        f"${LOG_FOLDER} (default: {tempfile.gettempdir()}).",
    )
    parser.add_argument("--id", required=True, help="the worker's name")
    parser.add_argument("--provision_endpoint", required=True, help="host:port that knows the job's options")
    parser.add_argument("--logging_endpoint", help="host:port, where the provision endpoint names none")
    parser.add_argument("--control_endpoint", help="host:port, where the provision endpoint names none")
    parser.add_argument("--semi_persist_dir", help="folder for files of the worker")
    return parser


def _provision(endpoint: str, worker: str) -> Any:
    """What the runner says of the job, a `ProvisionInfo`."""
    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        answer = stub.GetProvisionInfo(
            beam_provision_api_pb2.GetProvisionInfoRequest(),
            metadata=[("worker_id", worker)],
            timeout=TIMEOUT_SECONDS,
            wait_for_ready=True,
        )
    return answer.info


def worker_environment(arguments: argparse.Namespace, info: Any) -> dict[str, str]:
    """Environment variables that Beam's worker reads.

    Raises
    ------
    ValueError
        Where neither the runner nor the arguments name the control or the logging service.
    """
    found = {
        "WORKER_ID": arguments.id,
        "PIPELINE_OPTIONS": json_format.MessageToJson(info.pipeline_options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if arguments.semi_persist_dir:
        found["SEMI_PERSISTENT_DIRECTORY"] = arguments.semi_persist_dir
    for service, given in (
        ("control", arguments.control_endpoint),
        ("logging", arguments.logging_endpoint),
        ("status", None),
    ):
        address = getattr(info, f"{service}_endpoint").url or given
        if address:
            descriptor = endpoints_pb2.ApiServiceDescriptor(url=address)
            found[f"{service.upper()}_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(descriptor)
        elif service != "status":
            raise ValueError(f"the runner names no {service} service: give --{service}_endpoint=host:port")
    return found


def _goes_nowhere(number: int) -> bool:
    try:
        return os.path.samestat(os.fstat(number), os.stat(os.devnull))
    except OSError:
        return True


def keep_output(worker: str, environment: Mapping[str, str]) -> Path | None:
    """Send output that would be lost to a file of this process; its path, or None where nothing is lost."""
    lost = [number for number in (1, 2) if _goes_nowhere(number)]
    if not lost:
        return None
    folder = Path(environment.get(LOG_FOLDER) or tempfile.gettempdir())
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in worker)
    path = folder / f"recrawl-worker-{name}-{os.getpid()}.log"
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number in lost:
        os.dup2(target, number)
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Start the worker; the exit code, where this process does not become the worker."""
    arguments, _ = _parser().parse_known_args(argv)
    arguments.id = arguments.id.strip("'")  # Prism quotes it as for a shell, and there is none
    log = keep_output(arguments.id, os.environ)
    try:
        info = _provision(arguments.provision_endpoint, arguments.id)
        environment = os.environ | worker_environment(arguments, info)
    except (grpc.RpcError, ValueError) as error:
        reason = error.details() if isinstance(error, grpc.Call) else error
        print(f"recrawl-worker {arguments.id}: {arguments.provision_endpoint}: {reason}", file=sys.stderr)
        return 1
    if info.metadata.get("runner") == "prism":
        return _attend(arguments.id, environment)
    # One process: a signal of the runner reaches the worker itself, and nothing is orphaned.
    program = ["-m", "recrawl.worker", "beam"] if log is None else ["-c", _TIDY, str(log)]
    os.execve(sys.executable, [sys.executable, "-u", *program], environment)


def _attend(worker: str, environment: Mapping[str, str]) -> int:
    """Run the worker as a child, and outlive it by a little.

    Prism 2.75 tells the bundles in flight that their worker is gone when its connection closes, unless it has
    noticed before that its process is gone; then they wait for ever. So the process must be the last to go.
    """
    child = subprocess.Popen([sys.executable, "-u", "-c", _CHILD], env=dict(environment))
    code = child.wait()
    if code:
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        print(f"recrawl-worker {worker}: the worker ended {how}", file=sys.stderr, flush=True)
        time.sleep(LINGER_SECONDS)
    return 128 - code if code < 0 else code
