"""Experiments of whose output nobody reads: their files are whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.command.test_printing import log, unread

SMALL = ["--workers=1", "--no_plots"]


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (
            ["simulate", "--pages=20", "--bandwidth=8", "--until=5", "--repetitions=1", *SMALL],
            "results.parquet",
        ),
        (["reproduce", "busa-fekete-3", "--pages=20", "--repetitions=1", "--until=4", *SMALL], "report.md"),
        (["backtest", "--budgets=0.3", "--policies=uniform", *SMALL], "results.parquet"),
        (["frontier", "--target=0.5", "--policies=uniform", *SMALL], "frontier.parquet"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_results_are_whole_though_nobody_reads(words: list[str], file: str, tmp_path: Path) -> None:
    if words[0] in ("backtest", "frontier"):
        words = [*words, f"--observations={log(tmp_path)}"]
    done = unread([*words, f"--output={tmp_path}/out"], "stdout", "stderr")
    assert done.returncode == 0
    assert (tmp_path / "out" / file).stat().st_size > 0
