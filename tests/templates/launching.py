"""The Dataflow template without Dataflow: the launcher's command line, and what it would hand over."""

from __future__ import annotations

import importlib.util
import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO
from unittest import mock

import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions
from apache_beam.portability.api import beam_runner_api_pb2

ROOT = Path(__file__).resolve().parent.parent.parent
TEMPLATE = ROOT / "templates" / "dataflow"
IMAGE = "europe-west1-docker.pkg.dev/proj-x/recrawl/nightly:1"
JOB_OBJECT = "gs://some-bucket/staging/template_launches/2026-07-01_00_15/job_object"
try:
    from apache_beam.io.gcp import gcsfilesystem
    from apache_beam.runners.dataflow.internal import apiclient
except ImportError:
    apiclient = gcsfilesystem = None


def needs_client(test: Any) -> Any:
    """Mark what cannot be tested without Beam's Dataflow client."""
    reason = "apache-beam[gcp] is not installed here; `make test-dataflow` has it"
    return pytest.mark.dataflow(pytest.mark.skipif(apiclient is None, reason=reason)(test))


def load_main() -> ModuleType:
    """The program that the launcher runs, as a module."""
    spec = importlib.util.spec_from_file_location("template_main", TEMPLATE / "main.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def metadata() -> dict[str, Any]:
    """`metadata.json`."""
    return json.loads((TEMPLATE / "metadata.json").read_text(encoding="utf-8"))


def service_arguments(**environment: Any) -> list[str]:
    """What the launcher adds to the parameters, in the form and the order that it gives them."""
    options = {
        "job_name": "recrawl-20260701",
        "project": "proj-x",
        "region": "europe-west1",
        "runner": "DataflowRunner",
        "sdk_container_image": IMAGE,
        "service_account_email": "crawler@proj-x.iam.gserviceaccount.com",
        "staging_location": "gs://some-bucket/staging",
        "temp_location": "gs://some-bucket/temp",
        "template_location": JOB_OBJECT,
        **environment,
    }
    return sorted(f"--{name}={value}" for name, value in options.items())


@dataclass
class Launched:
    """What a launch left: exit code, the job as it would be created, its pipeline, staged bytes by name."""

    code: int
    job: dict[str, Any]
    pipeline: beam_runner_api_pb2.Pipeline
    staged: dict[str, bytes]


def launch(arguments: list[str], **environment: Any) -> Launched:
    """Run the template's program with Beam's own Dataflow runner; uploads end here, nothing goes out."""
    staged: dict[str, bytes] = {}

    def stage(_: Any, folder: str, name: str, stream: BinaryIO, **__: Any) -> None:
        staged[f"{folder}/{name}"] = stream.read()

    client = apiclient.DataflowApplicationClient
    with ExitStack() as stack:
        stack.enter_context(mock.patch.dict("os.environ", {"NO_GCE_CHECK": "true"}))
        for where, name, instead in (
            (client, "stage_file_with_retry", stage),
            (client, "_stage_resources", lambda *_: []),
            (apiclient, "create_storage_client", lambda *_: None),
            (GoogleCloudOptions, "_warn_if_soft_delete_policy_enabled", lambda *_: None),
        ):
            stack.enter_context(mock.patch.object(where, name, instead))
        # Without it the client would look for credentials, on this machine and in the network.
        code = load_main().main([*arguments, *service_arguments(**environment), "--no_auth"])
    pipeline = next((v for k, v in staged.items() if k.endswith("/pipeline.pb")), b"")
    return Launched(
        code,
        json.loads(staged.get(JOB_OBJECT, b"{}")),
        beam_runner_api_pb2.Pipeline.FromString(pipeline),
        staged,
    )


class Bucket:
    """Objects in memory behind Beam's own Google Cloud Storage file system: no folders, no renames."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def put(self, folder: Path, prefix: str) -> None:
        """Copy a local folder."""
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            self.objects[f"{prefix}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()

    def below(self, prefix: str) -> dict[str, bytes]:
        """Objects under a prefix, by the rest of their names."""
        return {k[len(prefix) + 1 :]: v for k, v in self.objects.items() if k.startswith(prefix + "/")}

    def installed(self) -> Any:
        """A context in which gs:// is this bucket."""
        return mock.patch.object(gcsfilesystem.GCSFileSystem, "_gcsIO", lambda _: self)

    # What the file system asks of its client.

    def list_files(self, prefix: str, with_metadata: bool = False) -> Iterator[Any]:
        for name in sorted(self.objects):
            if name.startswith(prefix):
                yield name, (len(self.objects[name]), 0.0)

    def open(self, name: str, mode: str = "r", **_: Any) -> Any:
        if "r" in mode:
            if name not in self.objects:
                raise FileNotFoundError(name)
            return io.BufferedReader(io.BytesIO(self.objects[name]))
        bucket, target = self, io.BytesIO()
        close = target.close

        def commit() -> None:
            if not target.closed:
                bucket.objects[name] = target.getvalue()  # an object appears when its upload ends
                close()

        target.close = commit
        return target

    def exists(self, name: str) -> bool:
        return name in self.objects

    def _status(self, name: str) -> dict[str, Any]:
        if name not in self.objects:
            raise FileNotFoundError(name)
        return {"size": len(self.objects[name]), "updated": 0.0}

    def copy_batch(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str, Exception | None]]:
        for source, target in pairs:
            self.objects[target] = self.objects[source]
        return [(source, target, None) for source, target in pairs]

    def delete_batch(self, names: list[str]) -> list[tuple[str, Exception | None]]:
        for name in names:
            self.objects.pop(name, None)
        return [(name, None) for name in names]
