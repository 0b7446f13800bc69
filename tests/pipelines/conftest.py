"""What holds for tests of commands."""

from __future__ import annotations

import pytest

from tests.pipelines.plain_runner import CHOICE


@pytest.fixture
def beams_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a test are run by Beam's runner: what that does is a part of what is tested."""
    monkeypatch.setenv(CHOICE, "beam")
