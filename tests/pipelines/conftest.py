"""What holds for tests of commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from apache_beam.transforms.environments import SubprocessSDKEnvironment

from pipelines.nightly import local_worker
from pipelines.store import metrics_and_page
from tests.pipelines.plain_runner import CHOICE
from tests.pipelines.started import recrawl

HERE = Path(__file__).parent
# By the first a test has Beam's runner anyway, by the second its nights only write a manifest.
NOT_BY_RUNNER = {"beams_runner", "job"}
# They look at pages of nights, or compare nights with those of other processes, which write them.
WITH_PAGES = {
    "command",
    "corpus",
    "door",
    "look/test_explain.py",
    "nightly/test_freshness_ranges.py",
    "nightly/test_nightly_oracle.py",
    "nightly/test_nothing_is_lost.py",
    "nightly/test_plain_runner.py",
    "nightly/test_submitting.py",
    "store/test_night_crashes.py",
    "store/test_stopped_nights.py",
    "webpage",
}


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


@pytest.fixture(scope="module", autouse=True)
def no_pages(request: pytest.FixtureRequest) -> Iterator[None]:
    """A page takes a fifth of a small night. It is made when that is committed, and stops nothing."""
    room, file = request.path.relative_to(HERE).parts
    if {room, f"{room}/{file}"} & WITH_PAGES:
        yield
        return
    with mock.patch.object(metrics_and_page, "_page", lambda _: ""):
        yield


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
