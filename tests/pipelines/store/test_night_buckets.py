"""`recrawl night` in buckets, as stand-ins on this machine answer for S3 and Google Cloud Storage."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystems import FileSystems

import recrawl
from pipelines.command import buckets
from pipelines.nightly import nightly
from pipelines.store import locks
from pipelines.store.store import Store
from tests.pipelines.jobs import Night, command
from tests.pipelines.site import make_site
from tests.pipelines.stores import Stored, midnight
from transforms.night import commit

REASON = "`make test-buckets` has it"
boto3 = pytest.importorskip("boto3", reason=REASON)
moto = pytest.importorskip("moto.server", reason=REASON)
storage = pytest.importorskip("google.cloud.storage", reason=REASON)
auth = pytest.importorskip("apache_beam.internal.gcp.auth", reason=REASON)
emulator = pytest.importorskip("gcp_storage_emulator.server", reason=REASON)
SITE = make_site(n_pages=20, days=3)
NAMES = ["20260602T000000Z", "20260603T000000Z", "20260604T000000Z"]


class Bucket:
    """A bucket of a stand-in."""

    scheme = "s3"

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name = client, name
        client.create_bucket(Bucket=name)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.name}"

    @property
    def root(self) -> str:
        return f"{self.url}/store"

    def keys(self, below: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=below)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def write(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def night(self, local: Stored, day: int, *flags: str, **more: Any) -> Night:
        options = {"store": self.root, "observations": f"{self.url}/logs/{{date}}.jsonl", "num_shards": 1}
        return local.run(midnight(day), "--allow_shrink", *flags, **{**options, "keep": 2, **more})


class GoogleBucket(Bucket):
    """One of Google Cloud Storage."""

    scheme = "gs"

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name = client, name
        self.bucket = client.create_bucket(name)

    def keys(self, below: str = "") -> list[str]:
        return [found.name for found in self.client.list_blobs(self.name, prefix=below)]

    def read(self, key: str) -> bytes:
        return self.bucket.blob(key).download_as_bytes()

    def write(self, key: str, data: bytes) -> None:
        self.bucket.blob(key).upload_from_string(data)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture(scope="module")
def gs() -> Iterator[str]:
    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = emulator.create_server("127.0.0.1", port, in_memory=True)
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


def _made(scheme: str, endpoint: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    if scheme == "gs":
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        # Beam would look for credentials for half a minute before it asks without.
        monkeypatch.setattr(auth, "get_service_credentials", lambda options: None)
        return GoogleBucket(storage.Client.create_anonymous_client(), name)
    for variable, value in (
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "who"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(variable, value)
    return Bucket(boto3.client("s3"), name)


@pytest.fixture
def bucket(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bucket]:
    """A bucket with a log a day; what commands have set up for it is taken back."""
    scheme = getattr(request, "param", "s3")
    name = f"bucket-{re.sub('[^a-z0-9]', '-', tmp_path.name.lower())[:40]}"
    made = _made(scheme, request.getfixturevalue(scheme), name, monkeypatch)
    for day in range(3):
        log = Stored(tmp_path).log("upload.jsonl", SITE.between("observations", day, day + 1))
        made.write(f"logs/{midnight(day)[:10]}.jsonl", log.read_bytes())
    yield made
    FileSystems.set_options(None)


of_both = pytest.mark.parametrize("bucket", ["s3", "gs"], indirect=True)


@of_both
def test_nights_in_a_bucket_are_nights_in_a_folder(bucket, tmp_path):
    local = Stored(tmp_path)
    for day in (1, 2, 3):
        done = bucket.night(local, day)
        assert done.code == 0, done.complaints
        log = local.log(f"logs/{midnight(day - 1)[:10]}.jsonl", SITE.between("observations", day - 1, day))
        assert log.exists()
        logs = f"{tmp_path}/logs/{{date}}.jsonl"
        assert local.run(midnight(day), "--allow_shrink", observations=logs, num_shards=1, keep=2).code == 0
    assert json.loads(bucket.read("store/latest.json"))["night"] == NAMES[2]
    assert {key.split("/")[2] for key in bucket.keys("store/nights/")} == set(NAMES[1:])
    assert not [key for key in bucket.keys() if "/lock" in key or ".tmp-" in key]
    for folder in ("state", "schedule", "pages"):
        for path in sorted((local.root / "nights" / NAMES[2] / folder).rglob("*.parquet")):
            key = f"store/nights/{NAMES[2]}/{path.relative_to(local.root / 'nights' / NAMES[2]).as_posix()}"
            assert bucket.read(key) == path.read_bytes(), key
    again = bucket.night(local, 3)
    assert again.code == 0 and "nothing to do" in again.printed
    code, out, _ = command("night", f"--store={bucket.root}", "--status", "--json")
    assert code in (0, 7) and [n["night"] for n in json.loads(out)["nights"]] == NAMES[1:]
    assert "recrawl_store_nights 2.0" in command("metrics", bucket.root)[1]
    night = f"{bucket.root}/nights/{NAMES[2]}"
    url = SITE.between("observations", 0, 1)[0]["url"]
    for where in (night, bucket.root, f"{bucket.root}/"):
        code, out, _ = command("explain", where, url)
        assert code == 0 and out.startswith(url)
    assert recrawl.open(bucket.root).manifest["options"]["as_of"] == midnight(3)
    assert command("export", night, "--to=urls", f"--output={bucket.url}/urls")[0] == 0
    assert bucket.keys("urls/")


# Where a night is stopped, before or after that step, and whether it is committed by then.
PLACES = [
    (nightly, "build_pipeline", True, False),
    (commit, "write_json", False, False),
    (commit, "write_json", True, True),
    (Store, "point_at", False, True),
]


@of_both
@pytest.mark.parametrize(("owner", "name", "done", "committed"), PLACES)
def test_a_crash_at_any_step_and_the_run_after_it(owner, name, done, committed, bucket, tmp_path):
    local = Stored(tmp_path)
    assert bucket.night(local, 1).code == 0
    step = getattr(owner, name)

    def stopped(*args: Any, **kwargs: Any) -> None:
        if done:
            step(*args, **kwargs)
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, stopped)
        failed = bucket.night(local, 2)
    # The step is one of the repairs of a run before, too: then nothing is lost, and the next one does it.
    assert failed.code == 1
    assert f"store/nights/{NAMES[0]}/manifest.json" in bucket.keys()
    again = bucket.night(local, 2)
    assert again.code == 0, again.complaints
    assert ("nothing to do" in again.printed) == (committed and owner is not Store)
    assert json.loads(bucket.read("store/latest.json"))["night"] == NAMES[1]
    assert not [key for key in bucket.keys() if ".tmp-" in key or "/lock" in key or "/.next" in key]


@of_both
def test_a_lease_is_held_by_one_and_runs_out(bucket, tmp_path):
    """A process that was killed leaves its lease; there is no lock of a kernel that would end with it."""
    local = Stored(tmp_path)
    held = {"host": "other", "pid": 7, "started": "x", "token": "another"}
    late = 32_503_680_000.0  # the year 3000
    bucket.write("store/lock", json.dumps({**held, "until": late}).encode())
    busy = bucket.night(local, 1)
    assert busy.code == 6 and "process 7 on other" in busy.complaints
    assert json.loads(bucket.read("store/lock"))["until"] == late
    bucket.write("store/lock", json.dumps({**held, "until": 1000.0}).encode())
    assert bucket.night(local, 1).code == 0 and "store/lock" not in bucket.keys()
    clock = [1000.0]
    one, two = (Store(bucket.root, lambda: clock[0]) for _ in range(2))
    with one.lock():
        assert json.loads(bucket.read("store/lock"))["until"] == 1000.0 + locks.LEASE_SECONDS
        with pytest.raises(locks.StoreBusyError), two.lock():
            pass
        clock[0] += locks.LEASE_SECONDS
        with two.lock(), pytest.raises(locks.StoreBusyError):
            one.check_held()


def test_one_client_asks_all_questions(bucket, tmp_path, monkeypatch):
    made = []
    client = boto3.session.Session.client
    monkeypatch.setattr(
        boto3.session.Session,
        "client",
        lambda self, **options: (made.append(options), client(self, **options))[1],
    )
    assert bucket.night(Stored(tmp_path), 1).code == 0
    # One before the pipeline is made and one for it, and each may be made by threads at the same time.
    assert 1 <= len(made) <= 4


def test_mistakes_are_told_in_a_sentence(bucket, tmp_path, monkeypatch):
    local = Stored(tmp_path)
    done = bucket.night(local, 1, store="s3://no-such-bucket/store")
    assert (
        done.code == 1
        and "NoSuchBucket" in done.complaints
        and "Look at the bucket's name" in done.complaints
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    done = bucket.night(local, 1)
    assert done.code == 2 and "no credentials for S3; set AWS_ACCESS_KEY_ID" in done.complaints
    given = ["--s3_access_key_id=who", "--s3_secret_access_key=secret"]
    assert bucket.night(local, 1, *given).code == 0
    assert buckets.is_of_bucket(OSError("x")) is False
