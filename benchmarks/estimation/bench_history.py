"""Nanoseconds per row and page of the history fold, on one core."""

from collections.abc import Callable

import numpy as np

from benchmarks.measuring.rows import Row
from benchmarks.measuring.timing import best_ns
from policies.history.history import Observations, fold
from policies.history.page_state import US_PER_DAY, PageState, evidence

FOREVER = 1 << 60


def log(n: int, first_day: int, days: int, seed: int = 1) -> Observations:
    """A crawl a day of n pages: 5 % fail, a tenth of the unchanged answer 304; shuffled.

    Versions of a page depend on the page and the day alone, so that logs of different days fit together.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    rate = rng.gamma(0.5, 0.6, n)
    day = first_day + np.tile(np.arange(days), n)
    page = np.repeat(np.arange(n), days)
    version = np.floor(day * rate[page]).astype(np.uint64)
    same = version == np.floor((day - 1) * rate[page]).astype(np.uint64)
    rng = np.random.Generator(np.random.Philox(key=(seed, first_day)))
    luck = rng.random(len(page))
    status = np.where(luck < 0.05, 503, np.where(same & (luck > 0.9), 304, 200)).astype(np.int16)
    digest = np.where(status == 200, version * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1), np.uint64(0))
    at_us = day * US_PER_DAY + rng.integers(0, US_PER_DAY, len(page))
    order = rng.permutation(len(page))
    return Observations(page[order], at_us[order], status=status[order], digest=digest[order])


def run(scale: float = 1.0) -> list[Row]:
    """All rows; `scale` 1 is 1.25 million observations of 62,500 pages."""
    n = max(int(62_500 * scale), 100)
    nothing, month, night = PageState.empty(n), log(n, 20_000, 20), log(n, 20_020, 1)
    size = len(month)

    def bulk(**half_lives: float) -> Callable[[], object]:
        return lambda: fold(nothing, month, FOREVER, **half_lives)  # type: ignore[arg-type]

    state, _ = fold(nothing, month, FOREVER, half_life_changes=12)
    one = Observations(np.zeros(size, dtype=np.int64), month.fetched_at_us, month.status, month.digest)
    return [
        Row("fold, 20 observations a page, no forgetting", best_ns(bulk(), size), "ns/observation"),
        Row("fold, 20 observations a page", best_ns(bulk(half_life_changes=12), size), "ns/observation", 165),
        Row(
            "fold, 20 observations a page, both half-lives",
            best_ns(bulk(half_life_changes=12, half_life_days=60.0), size),
            "ns/observation",
        ),
        Row(
            "fold, one observation a page on top of state",
            best_ns(lambda: fold(state, night, FOREVER, half_life_changes=12), n),
            "ns/page",
            400,
        ),
        Row(
            "fold, all observations of one page",
            best_ns(lambda: fold(nothing, one, FOREVER, half_life_changes=12), size),
            "ns/observation",
        ),
        Row("evidence of the state", best_ns(lambda: evidence(state, 12), n), "ns/page"),
    ]
