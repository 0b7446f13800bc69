"""What holds for tests of commands."""

from __future__ import annotations

import shlex

import pytest
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipelines.nightly import local_worker
from tests.pipelines.plain_runner import CHOICE
from tests.pipelines.started import recrawl


@pytest.fixture
def beams_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a test are run by Beam's runner: what that does is a part of what is tested."""
    monkeypatch.setenv(CHOICE, "beam")


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes of experiments are forked: what they are sent is tested, and not how they start."""
    program = "from apache_beam.runners.worker import sdk_worker_main; sdk_worker_main.main([])"
    command = shlex.join([*recrawl(), "-c", program])
    environment = SubprocessSDKEnvironment.from_command_string(command)
    monkeypatch.setattr(local_worker, "environment", lambda: environment)
