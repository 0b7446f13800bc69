"""The command that starts a worker: what it passes on, what it says, where its output goes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from apache_beam.portability.api import (
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from google.protobuf import text_format

from pipelines.nightly import worker_boot


def _info(control: str = "", logging: str = "") -> beam_provision_api_pb2.ProvisionInfo:
    info = beam_provision_api_pb2.ProvisionInfo(runner_capabilities=["a", "b"])
    info.control_endpoint.url = control
    info.logging_endpoint.url = logging
    info.pipeline_options.update({"beam:option:job_name:v1": "night", "beam:option:streaming:v1": False})
    return info


def _arguments(*more: str):
    return worker_boot._parser().parse_args(["--id=w 1", "--provision_endpoint=host:1", *more])


def _url(text: str) -> str:
    return text_format.Parse(text, endpoints_pb2.ApiServiceDescriptor()).url


def test_what_the_runner_says_reaches_the_worker():
    found = worker_boot.worker_environment(_arguments("--semi_persist_dir=/d"), _info("host:2", "host:3"))
    assert found["WORKER_ID"] == "w 1" and found["SEMI_PERSISTENT_DIRECTORY"] == "/d"
    assert found["RUNNER_CAPABILITIES"].split() == ["a", "b"]
    assert json.loads(found["PIPELINE_OPTIONS"])["beam:option:job_name:v1"] == "night"
    assert _url(found["CONTROL_API_SERVICE_DESCRIPTOR"]) == "host:2"
    assert _url(found["LOGGING_API_SERVICE_DESCRIPTOR"]) == "host:3"
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in found


def test_arguments_serve_where_the_runner_is_silent():
    given = _arguments("--control_endpoint=host:4", "--logging_endpoint=host:5")
    found = worker_boot.worker_environment(given, _info(logging="host:3"))
    assert _url(found["CONTROL_API_SERVICE_DESCRIPTOR"]) == "host:4"
    assert _url(found["LOGGING_API_SERVICE_DESCRIPTOR"]) == "host:3"  # the runner knows better


@pytest.mark.parametrize("missing", ["control", "logging"])
def test_a_service_that_nobody_names(missing):
    services = {"control": "host:2", "logging": "host:3"} | {missing: ""}
    with pytest.raises(ValueError, match=f"no {missing} service: give --{missing}_endpoint"):
        worker_boot.worker_environment(_arguments(), _info(**services))


class _Silent(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    """A runner that names no services; it keeps the names that workers give themselves."""

    def __init__(self) -> None:
        self.workers: list[str] = []

    def GetProvisionInfo(self, request, context):
        self.workers += [value for key, value in context.invocation_metadata() if key == "worker_id"]
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=_info())


@pytest.fixture
def runner() -> Iterator[tuple[str, _Silent]]:
    server, service = grpc.server(ThreadPoolExecutor(1)), _Silent()
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", service
    server.stop(0).wait()


def _boot(endpoint: str, logs: Path, output: int) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "recrawl.worker",
        "boot",
        "--id='w/1'",
        f"--provision_endpoint={endpoint}",
    ]
    environment = os.environ | {worker_boot.LOG_FOLDER: str(logs)}
    return subprocess.run(command, stdout=output, stderr=output, text=True, env=environment, timeout=100)


def test_quotes_around_the_name_are_none_of_it(runner, tmp_path):
    """A runner that finds its worker by name would not find this one."""
    endpoint, service = runner
    _boot(endpoint, tmp_path, subprocess.PIPE)
    assert service.workers == ["w/1"]


def test_output_that_somebody_reads_stays_where_it_is(runner, tmp_path):
    done = _boot(runner[0], tmp_path, subprocess.PIPE)
    assert done.returncode == 1
    assert "recrawl-worker w/1" in done.stderr and "give --control_endpoint" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_output_that_nobody_reads_goes_to_a_file(runner, tmp_path):
    """Flink sends a worker's output to /dev/null."""
    done = _boot(runner[0], tmp_path / "logs", subprocess.DEVNULL)
    assert done.returncode == 1
    (log,) = (tmp_path / "logs").iterdir()
    assert log.name.startswith("recrawl-worker-w_1-") and "give --control_endpoint" in log.read_text()


class _Control(beam_fn_api_pb2_grpc.BeamFnControlServicer, beam_fn_api_pb2_grpc.BeamFnLoggingServicer):
    """A runner that has no work, and ends nothing."""

    def __init__(self) -> None:
        self.met, self.done = threading.Event(), threading.Event()

    def Control(self, request_iterator, context):
        self.met.set()
        self.done.wait(100)
        return iter(())

    def Logging(self, request_iterator, context):
        self.done.wait(100)
        return iter(())


class _Named(_Silent):
    """A runner that says where its services are."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address

    def GetProvisionInfo(self, request, context):
        info = _info(self._address, self._address)
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=info)


@pytest.mark.parametrize("said", [b"", b"what it had to say"], ids=["silent", "not silent"])
def test_a_worker_that_had_nothing_to_say_leaves_no_log(said, tmp_path):
    """Flink ends a worker by SIGTERM, after each stage if it keeps none."""
    server, service = grpc.server(ThreadPoolExecutor(4)), _Control()
    port = server.add_insecure_port("127.0.0.1:0")
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(_Named(f"127.0.0.1:{port}"), server)
    beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(service, server)
    beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server(service, server)
    server.start()
    command = [
        sys.executable,
        "-m",
        "recrawl.worker",
        "boot",
        "--id=w",
        f"--provision_endpoint=127.0.0.1:{port}",
    ]
    environment = os.environ | {worker_boot.LOG_FOLDER: str(tmp_path)}
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere, env=environment) as worker:
        try:
            assert service.met.wait(60)
            (log,) = tmp_path.iterdir()
            with log.open("ab") as file:
                file.write(said)
            worker.terminate()
            assert worker.wait(60) == 128 + signal.SIGTERM
        finally:
            worker.kill()
            service.done.set()
            server.stop(0).wait()
    left = [p.read_bytes() for p in tmp_path.iterdir()]
    assert all(left) and (said in left[0] if said else True)  # libraries may say something of their own


def test_a_runner_that_is_not_there(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(worker_boot, "TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(worker_boot, "keep_output", lambda *_: None)
    assert worker_boot.main(["--id=w", "--provision_endpoint=127.0.0.1:1"]) == 1
    said = capfd.readouterr().err
    assert "127.0.0.1:1" in said and "Traceback" not in said
