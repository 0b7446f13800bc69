"""Nights of signals for tests: folded, made up, filled states."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from policies.history.history import Observations, fold
from policies.history.page_state import Forgetting, PageState
from policies.signals.counts import DISPOSITIONS, Signals
from policies.signals.fold import SignalFold
from policies.signals.state import (
    SignalState,
)
from tests.policies.crawl_rows import (
    DAY,
    FOREVER,
    SECOND,
    START,
    Row,
    observations,
    signals_of,
)

HOUR = 3600 * SECOND
Rows = list[tuple[int, int, int]]
Both = tuple[SignalState, PageState]


def night(
    before: Both,
    rows: Observations,
    signals: Signals,
    as_of_us: int = FOREVER,
    host: list[int] | None = None,
    delay_us: int = 0,
    **half_lives: Any,
) -> tuple[Both, Counter[str]]:
    """One night over a state and its signals."""
    state, pages = before
    code = np.zeros(len(pages), np.int32) if host is None else np.array(host, np.int32)
    news = SignalFold(state, signals, pages, code, as_of_us, delay_us)
    pages, _ = fold(pages, rows, as_of_us, watch=news, **half_lives)
    state, counts = news.finish(pages, Forgetting(**half_lives))
    assert sum(counts[d] for d in DISPOSITIONS) == counts["signals"] == len(signals)
    return (state, pages), Counter({k: v for k, v in counts.items() if v})


def nothing(n: int) -> Both:
    return SignalState.empty(), PageState.empty(n)


def one_page(rows: list[Row], signals: Rows, as_of_us: int = FOREVER, **more: Any) -> Any:
    (state, _), counts = night(nothing(1), observations(rows), signals_of(signals), as_of_us, **more)
    return state, counts


def made(n: int, rng: np.random.Generator) -> tuple[Observations, Signals, list[int]]:
    k = 12 * n
    rows = Observations(
        rng.integers(0, n, k),
        START + rng.integers(0, 30 * DAY, k),
        digest=rng.integers(0, 3, k).astype(np.uint64),
    )
    j = 9 * n
    heard_at = START + rng.integers(0, 30 * DAY, j)
    signals = Signals(rng.integers(0, n, j), heard_at, rng.integers(0, 8, j).astype(np.int32))
    return rows, signals, (np.arange(n) // 10).tolist()


def filled(n: int, seed: int = 0) -> Both:
    rows, signals, host = made(n, np.random.default_rng(seed))
    return night(nothing(n), rows, signals, host=host, half_life_changes=2)[0]
