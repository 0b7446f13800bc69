"""Nights as processes of their own, for tests that break something."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.jobs import Night

SECONDS = 200.0  # after which a night of the small corpus hangs
FLINK_SECONDS = 1200.0  # the same on Flink, with three further tries of a part that is lost
SILENCE = 20.0  # seconds: more than a worker takes to start
_IMPATIENT = f"""
import sys
from pipelines.door import cli
from pipelines.nightly import submitting
submitting.SILENCE_SECONDS = {SILENCE}
sys.exit(cli.main())
"""


def first_options(output: Path) -> list[str]:
    """When and where the first night is."""
    return ["--as_of=2026-06-05T00:00:00Z", f"--output={output}"]


def second_options(first: Night, output: Path) -> list[str]:
    """When and where the second night is, and on which state."""
    state = f"--state={first.folder}/state"
    return ["--as_of=2026-06-06T00:00:00Z", state, f"--output={output}", "--allow_shrink"]


def start(*arguments: str, impatient: bool = False) -> subprocess.Popen[str]:
    """Start `recrawl nightly`."""
    program = ["-c", _IMPATIENT] if impatient else ["-m", "recrawl"]
    return subprocess.Popen(
        [sys.executable, *program, "nightly", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str], folder: Path) -> Night:
    """Wait for a night; one that hangs fails the test."""
    on_flink = any("--execution_mode_for_batch" in str(word) for word in process.args)
    try:
        printed, complaints = process.communicate(timeout=FLINK_SECONDS if on_flink else SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        printed, complaints = process.communicate()
        pytest.fail(f"the night hangs:\n{complaints[-3000:]}")
    return Night(process.returncode, printed, complaints, folder)
