"""Figures of Schulam and Muslea 2023, small: what is written, and that repetitions stand for themselves."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipelines.door import cli
from pipelines.experiments import figures
from pipelines.experiments.figures import schulam_runs
from pipelines.experiments.figures.schulam_runs import POLICIES, Task

SMALL = ("--pages", "24", "--repetitions", "2", "--until", "96", "--workers", "1", "--no_plots")


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(schulam_runs.SHARED, raising=False)


@pytest.mark.parametrize("number", [2, 3, 4])
def test_a_small_figure(number: int, tmp_path, capsys) -> None:
    assert cli.main(["reproduce", f"schulam-{number}", *SMALL, "--output", str(tmp_path)]) == 0
    rows = pq.read_table(tmp_path / "results.parquet").to_pylist()
    keys = {(r["policy"], r["pages"], r["repetition"], r["k"]) for r in rows}
    assert keys == {(p, 24, r, k) for p in POLICIES for r in (0, 1) for k in (5, 10, 20)}
    assert len(rows) == len(keys) and all(0.0 < r["accuracy"] <= 1.0 for r in rows)
    said = capsys.readouterr().out
    assert "claims hold" in said and "paper:" in said
    assert (tmp_path / "over_time.parquet").exists() == (number == 3)


def test_a_repetition_is_the_same_whatever_others_there_are() -> None:
    one, again = (schulam_runs.run(Task(20, 1, 60, 3)) for _ in range(2))
    assert np.array_equal(one.values, again.values) and np.array_equal(one.regret, again.regret)
    other = schulam_runs.run(Task(20, 2, 60, 3))
    assert not np.array_equal(one.values, other.values)
    # More budget finds at least as much, and the Oracle is ahead.
    coverage = one.values[:, :, 0, 0]
    assert (np.diff(coverage, axis=1) >= -0.02).all() and (coverage[0] >= coverage[1:] - 1e-9).all()


def test_every_figure_says_what_it_is_made_of() -> None:
    for number in (2, 3, 4):
        figure = figures.get(f"schulam-{number}")
        assert figure.repetitions == 53 and figure.pages == (77,) and figure.until == 1176.0
        assert "private" in figure.setting
