"""A host whose pages all change in one batch, and which may hardly be crawled."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from tests.pipelines.jobs import at, nightly, seen

PAGES, DAYS, BATCH_DAYS = 150, 20, 3.25 / 24
GAP_SECONDS, MOST = 900, 40


def _log() -> list[dict[str, object]]:
    rng = np.random.default_rng(6)
    rows = []
    for page in range(PAGES):
        changed = np.arange(DAYS) + BATCH_DAYS + rng.uniform(0.0, 0.01, DAYS)
        for t in np.sort(rng.uniform(0.0, DAYS, 24)):
            rows.append(seen(f"https://shop.test/{page}", at(t), f"v{(changed < t).sum()}"))
    return rows


def test_limits_and_gaps_hold_and_crawls_follow_the_batch_in_order_of_worth(tmp_path):
    weight = np.random.default_rng(7).permutation(np.geomspace(1.0, 50.0, PAGES))
    catalogue = [{"url": f"https://shop.test/{i}", "importance": w} for i, w in enumerate(weight.tolist())]
    limits = [{"host": "shop.test", "max_per_day": MOST, "min_gap_seconds": GAP_SECONDS}]
    night = nightly(
        tmp_path,
        observations=_log(),
        pages=catalogue,
        hosts=limits,
        as_of=at(DAYS),
        budget=MOST,
        num_shards=1,
    )
    assert night.code == 0, night.complaints
    rows = sorted(night.rows("schedule"), key=lambda r: r["due_at"])
    assert 0.9 * MOST <= len(rows) <= MOST
    due = np.array([datetime.fromisoformat(str(r["due_at"])).timestamp() for r in rows])
    assert np.diff(due).min() >= GAP_SECONDS
    hour = due % 86_400 / 3_600
    # Four an hour from 3:15 on: 40 crawls take ten hours.
    after = (hour > 3.0) & (hour < 15.0)
    assert after.mean() > 0.8
    worth = np.array([r["weight"] for r in rows])[after]
    third = len(worth) // 3
    assert worth[:third].mean() > worth[third : 2 * third].mean() > worth[-third:].mean()
