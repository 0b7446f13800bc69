"""Folded crawl logs for tests: of one page, and states made up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from policies.history.history import DISPOSITIONS, Observations, fold
from policies.history.page_state import PageState
from tests.policies.crawl_rows import DAY, FOREVER, START, Row, observations


def one_page(rows: list[Row], as_of_us: int = FOREVER, **options: Any) -> tuple[PageState, Counter[str]]:
    state, counts = fold(PageState.empty(1), observations(rows), as_of_us, **options)
    assert sum(counts[d] for d in DISPOSITIONS) == counts["observations"] == len(rows)
    return state, Counter({k: v for k, v in counts.items() if v and k in DISPOSITIONS})


def filled(n: int, seed: int = 0) -> PageState:
    rng = np.random.default_rng(seed)
    k = 12 * n
    rows = Observations(
        rng.integers(0, n, k),
        START + rng.integers(0, 30 * DAY, k),
        digest=rng.integers(0, 3, k).astype(np.uint64),
    )
    return fold(PageState.empty(n), rows, FOREVER, half_life_changes=2)[0]
