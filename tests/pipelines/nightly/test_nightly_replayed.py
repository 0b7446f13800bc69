"""The job on logs drawn from real histories of terms of service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.measuring.histories import shared_folder
from tests.pipelines.jobs import Night, nightly

SHARED = shared_folder()
REPLAY = SHARED / "tools" / "replay.py"
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(
        not REPLAY.exists(),
        reason=f"no tools/replay.py in {SHARED}; set RECRAWL_SHARED to the folder that holds it",
    ),
]
START, END, DAYS = "2024-01-01", "2024-07-01", 182


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replayed")
    subprocess.run(
        [
            sys.executable,
            str(REPLAY),
            "ota_contrib",
            "--start",
            START,
            "--end",
            END,
            "--rate",
            "0.5",
            "--out",
            str(folder),
        ],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def night(logs: Path) -> Night:
    inputs = {kind: logs / f"{kind}.parquet" for kind in ("observations", "requests", "pages")}
    night = nightly(
        logs, **inputs, budget=100, as_of=END, group_columns="service", num_shards=4, max_rejected_fraction=0
    )
    assert night.code == 0, night.complaints
    return night


def test_every_row_is_used(logs, night):
    counters = night.counters
    assert counters["observations_accepted"] == pq.read_metadata(logs / "observations.parquet").num_rows
    assert night.rejected() == []
    assert counters["unchanged"] > 20 * counters["changed_undated"] > 0
    assert len(night.rows("pages")) == counters["pages_known"]


def test_rates_account_for_the_changes_that_were_seen(night):
    """Summed over pages, intervals of the mean length. Real changes come in bursts: of one, one is seen."""
    rows = night.rows("pages")
    rate, intervals, changes = (
        np.array([r[n] for r in rows], float) for n in ("change_rate_per_day", "n_intervals", "n_changes")
    )
    expected = np.sum(intervals * -np.expm1(-rate * DAYS / np.maximum(intervals, 1)))
    assert changes.sum() > 500
    assert expected == pytest.approx(changes.sum(), rel=0.15)


def test_pages_that_changed_more_are_taken_for_faster(logs, night):
    urls, counts = np.unique(
        pq.read_table(logs / "truth.parquet").column("url").to_numpy(), return_counts=True
    )
    happened = dict(zip(urls, counts, strict=True))
    rows = night.rows("pages")
    truth = np.array([happened.get(r["url"], 0) for r in rows], float)
    learned = np.array([r["change_rate_per_day"] for r in rows])
    assert learned[truth >= 5].mean() > 5 * learned[truth == 0].mean()
    assert np.corrcoef(np.argsort(np.argsort(truth)), np.argsort(np.argsort(learned)))[0, 1] > 0.5


def test_the_schedule_beats_an_even_one(night):
    manifest = night.manifest
    assert len(night.rows("schedule")) == 100
    assert manifest["expected_freshness"] > manifest["expected_freshness_uniform"] + 0.01
    assert abs(manifest["allocated_per_day"] - 100) <= 1e-7
