"""Readers that go away: what is printed is lost, files are not, and what only prints ends quietly."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.pipelines.jobs import at, crawls, write_rows
from tests.pipelines.started import recrawl

# As a shell starts it, where streams are closed or a reader goes away in the middle of a night.
RECRAWL = [sys.executable, "-m", "recrawl"]


def log(folder: Path) -> Path:
    rows = [row for i in range(4) for row in crawls(f"https://a.test/{i}", "AABBCDDE")]
    return write_rows(folder / "log.jsonl", rows)


def unread(words: Sequence[str | Path], *streams: str) -> subprocess.CompletedProcess[str]:
    """Run a command; of these streams nobody reads, from the first byte on."""
    reader, writer = os.pipe()
    os.close(reader)
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE) | dict.fromkeys(streams, writer)
    try:
        return subprocess.run([*recrawl(), *map(str, words)], text=True, timeout=300, check=False, **pipes)
    finally:
        os.close(writer)


def _nightly(folder: Path) -> list[str | Path]:
    return [
        "nightly",
        f"--observations={log(folder)}",
        "--budget=3",
        f"--as_of={at(9)}",
        "--num_shards=1",
        f"--output={folder}/out",
    ]


def test_a_night_goes_on_after_the_first_line(tmp_path: Path) -> None:
    """As `2>&1 | head -1` does it."""
    run = subprocess.Popen(
        [*RECRAWL, *map(str, _nightly(tmp_path))], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert run.stdout is not None
    assert "reading" in run.stdout.readline()
    run.stdout.close()
    assert run.wait(300) == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["status"] == "ok"


def test_a_night_that_fails_has_its_exit_code_though_nobody_reads(tmp_path: Path) -> None:
    words = [*_nightly(tmp_path)[:-1], f"--observations={tmp_path}/none.csv", f"--output={tmp_path}/out"]
    assert unread(words, "stdout", "stderr").returncode == 2


def test_closed_streams_are_no_reader_either(tmp_path: Path) -> None:
    """As `>&- 2>&-`: else files of the night take the numbers of the streams."""
    shell = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *RECRAWL, *map(str, _nightly(tmp_path))]
    assert subprocess.run(shell, timeout=300, check=False).returncode == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["status"] == "ok"


def test_a_stored_night_is_committed_unread_and_its_status_ends_quietly(tmp_path: Path) -> None:
    words = [f"--observations={log(tmp_path)}", "--budget=3", f"--store={tmp_path}/store"]
    night = ["night", *words, f"--as_of={at(9)}", "--num_shards=1"]
    assert unread(night, "stdout", "stderr").returncode == 0
    latest = json.loads((tmp_path / "store" / "latest.json").read_text())
    assert (tmp_path / "store" / latest["folder"] / "manifest.json").exists()
    status = unread([*night, "--status"], "stdout")
    assert (status.returncode, status.stderr) == (141, "")


@pytest.mark.parametrize("words", [["inspect"], ["inspect", "--json"]], ids=" ".join)
def test_what_only_prints_ends_quietly(words: list[str], tmp_path: Path) -> None:
    done = unread([*words, log(tmp_path)], "stdout")
    assert (done.returncode, done.stderr) == (141, "")


def test_a_full_disk_takes_only_what_is_printed(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        words = [*recrawl(), *map(str, _nightly(tmp_path))]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert done.returncode == 0
    assert re.search(r"reading.*folding.*searching.*manifest", done.stderr, re.DOTALL)
    assert "Traceback" not in done.stderr and "OSError" not in done.stderr
