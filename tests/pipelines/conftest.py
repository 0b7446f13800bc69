"""What holds for tests of commands."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipelines.nightly import local_worker
from tests.pipelines.plain_runner import CHOICE
from tests.pipelines.started import recrawl

HERE = Path(__file__).parent
# By the first a test has Beam's runner anyway, by the second its nights only write a manifest.
NOT_BY_RUNNER = {"beams_runner", "job"}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where all nights are given to Beam, what would be the same once more is left out."""
    if os.environ.get(CHOICE) != "beam":
        return
    same = {
        item
        for item in items
        if item.path.is_relative_to(HERE) and NOT_BY_RUNNER & set(getattr(item, "fixturenames", ()))
    }
    config.hook.pytest_deselected(items=list(same))
    items[:] = [item for item in items if item not in same]


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
