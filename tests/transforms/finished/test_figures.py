"""What the page of a night takes from its tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from policies.objectives import objectives
from transforms.finished.figures import FACTORS, figures
from transforms.finished.opened import OpenNight

RATE, CRAWLS = 2.0, 1.5


def _night(folder: Path, speed: float | None, **more: float) -> OpenNight:
    """Two pages of one host, alike, of which a clock tells that they run `speed` times as fast tonight."""
    pages = {
        "url": ["https://a.test/0", "https://a.test/1"],
        "host": ["a.test"] * 2,
        "change_rate_per_day": [RATE] * 2,
        "clock_speed": pa.array([speed] * 2, pa.float64()),
        "crawl_rate_per_day": [CRAWLS] * 2,
        "expected_freshness": [0.5] * 2,
        "limit": ["none"] * 2,
        "weight": [1.0, 1.0],
        "n_intervals": [3, 3],
    }
    hosts = {"host": ["a.test"], "pages": [2], "slots": [3], "limit_per_day": pa.array([None], pa.float64())}
    for kind, columns in (("pages", pages), ("hosts", hosts)):
        (folder / kind).mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / kind / "shard-00000-of-00001.parquet")
    files = [
        {"path": f"{k}/shard-00000-of-00001.parquet", "rows": n} for k, n in (("pages", 2), ("hosts", 1))
    ]
    options = {"num_shards": 1, "as_of_us": 0, "objective": "periodic", **more}
    manifest = {
        "files": files,
        "options": options,
        "counters": {"pages_known": 2},
        "budget_per_day": 2.0 * CRAWLS,
    }
    return OpenNight(str(folder), manifest)


def test_the_curve_is_of_tonights_change_rates(tmp_path: Path) -> None:
    """These have the speed of the clock in them: it counts once."""
    expected = objectives.get("periodic").freshness(CRAWLS * np.array(FACTORS), np.full(len(FACTORS), RATE))
    for at, speed in enumerate((None, 1.0, 5.0)):
        found = figures(_night(tmp_path / str(at), speed))
        np.testing.assert_allclose(found.budgets_per_day, 2.0 * CRAWLS * np.array(FACTORS))
        np.testing.assert_allclose(found.freshness, expected, rtol=1e-6)


def test_the_curve_keeps_limits_of_all_pages(tmp_path: Path) -> None:
    """A ceiling at tonight's rates makes larger budgets useless; a floor there smaller ones impossible."""
    most = figures(_night(tmp_path / "most", None, page_max_per_day=CRAWLS)).freshness
    now = FACTORS.index(1.0)
    np.testing.assert_allclose(most[now:], most[now])
    assert (np.diff(most[: now + 1]) > 0.0).all()
    least = figures(_night(tmp_path / "least", None, page_min_per_day=CRAWLS)).budgets_per_day
    np.testing.assert_allclose(least, 2.0 * CRAWLS * np.array(FACTORS[now:]))
