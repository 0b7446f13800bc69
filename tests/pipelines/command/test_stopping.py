"""Ctrl-C, SIGTERM and SIGKILL: one line, the exit code of a shell, and no process that stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.command import stopping
from pipelines.door import cli
from pipelines.experiments import simulate

SAID = stopping.INTERRUPTED + "\n"


@pytest.mark.parametrize(
    ("command", "workers", "number"),
    [
        ("simulate", 1, signal.SIGTERM),
        ("simulate", 2, signal.SIGINT),
        ("reproduce", 2, signal.SIGKILL),
    ],
    ids=str,
)
def test_what_is_stopped_says_one_line_and_leaves_no_process(
    command: str, workers: int, number: signal.Signals, tmp_path: Path
) -> None:
    """The pipes close when the last process that may write to them is gone, workers among them."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pipelines.endless", command, str(workers), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            assert run.stdout is not None
            assert run.stdout.readline() == "working\n"
            if number == signal.SIGINT:  # as a terminal does it: to all processes
                os.killpg(run.pid, number)
            else:
                run.send_signal(number)
            _, said = run.communicate(timeout=60)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    if number == signal.SIGKILL:
        assert run.returncode == -number and "Traceback" not in said
    else:
        assert (run.returncode, said) == (128 + number, SAID)


def _simulate(folder: Path) -> int:
    return cli.main(["simulate", f"--output={folder}"])


def test_an_interrupt_that_beam_has_wrapped_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrapped(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("KeyboardInterrupt [while running 'RunCells']") from None

    monkeypatch.setattr(simulate, "run", wrapped)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert _simulate(tmp_path) == 130
    assert capsys.readouterr().err == SAID
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_error_without_a_signal_is_no_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(simulate, "run", broken)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        _simulate(tmp_path)


def test_an_ignored_signal_stays_ignored() -> None:
    """As nohup and shells in the background want it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping.heard() as heard:
            signal.raise_signal(signal.SIGINT)
        assert heard.number == 0 and signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
