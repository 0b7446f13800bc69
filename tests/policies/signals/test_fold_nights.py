"""Folding signals over nights: equal to the slow fold in any order, and as one night."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.history.history import Observations
from policies.history.page_state import NO_TIME, Forgetting
from policies.signals.counts import Signals
from policies.signals.state import (
    DATED,
    MAX_SOURCES,
    SignalState,
    bring_to_present,
    counts_of,
)
from tests.policies.crawl_rows import (
    DAY,
    SECOND,
    START,
    TIMES,
    Row,
    logs,
    observations,
    signals_of,
)
from tests.policies.signal_nights import HOUR, Both, Rows, filled, made, night, nothing
from tests.policies.slow_history import Page
from tests.policies.slow_signals import hear

SIGNALS = st.lists(st.tuples(st.integers(0, 2), TIMES, st.integers(0, 2)), max_size=40)
CHANGES = st.sampled_from([None, 1, 2, 3, 12])
DAYS = st.sampled_from([None, None, 1.0, 7.3, 60.0])
DELAYS = st.sampled_from([0, 0, 60 * SECOND, HOUR, 2 * DAY])
HOSTS = st.sampled_from([[0, 0, 0], [0, 0, 1], [0, 1, 2]])


def check_against(slow: dict[int, Any], state: SignalState, now: SignalState) -> None:
    assert state.page.tolist() == sorted(slow)
    for i, p in enumerate(sorted(slow)):
        expected = slow[p]
        assert state.since_us[i] == expected.since
        sums = [now.exposure_days[i], now.dated_changes[i], now.watched_days[i]]
        np.testing.assert_allclose(sums, [expected.exposure, expected.dated, expected.watched], rtol=1e-12)
        mine = slice(state.source_start[i], state.source_start[i + 1])
        sources = state.source[mine].tolist()
        assert sources == sorted(expected.last)
        assert state.last_at_us[mine].tolist() == [expected.last[s] for s in sources]
        assert state.pending[mine].tolist() == [expected.pending[s] for s in sources]
        for name in ("unchanged", "total"):
            wanted = [getattr(expected, name).get(s, 0.0) for s in sources]
            np.testing.assert_allclose(getattr(now, name)[mine], wanted, rtol=1e-12)
        mine = slice(state.pair_start[i], state.pair_start[i + 1])
        names = [divmod(c, MAX_SOURCES) for c in state.pair[mine].tolist()]
        pending = zip(state.near_pending[mine].tolist(), state.far_pending[mine].tolist(), strict=True)
        waiting = {(*n, far): c for n, both in zip(names, pending, strict=True) for far, c in enumerate(both)}
        assert {k: c for k, c in waiting.items() if c} == dict(expected.pending_pairs)
        assert names == sorted({*expected.pairs, *(k[:2] for k in expected.pending_pairs)})
        for name, near, far in zip(names, now.near[mine], now.far[mine], strict=True):
            wanted = expected.pairs.get(name, [0.0, 0.0])
            np.testing.assert_allclose([near, far], wanted, rtol=1e-12)
        mine = slice(state.bin_start[i], state.bin_start[i + 1])
        rows = {}
        for b in range(mine.start, mine.stop):
            counted = [(s, int(counts_of(state.signature[b : b + 1], s)[0])) for s in range(MAX_SOURCES)]
            key = (tuple(c for c in counted if c[1]), bool(state.bin_id[b] & DATED), state.bin_id[b] % DATED)
            rows[key] = [now.bin_weight[b], now.bin_days[b], now.bin_days_squared[b]]
        assert rows.keys() == expected.rows.keys()
        for key, values in rows.items():
            np.testing.assert_allclose(values, expected.rows[key], rtol=1e-12)


@settings(deadline=None, max_examples=70)
@given(logs(), SIGNALS, CHANGES, DAYS, DELAYS, HOSTS, st.one_of(TIMES, st.just(50 * DAY)))
def test_equals_the_slow_fold(
    log: tuple[int, list[Row]],
    signals: Rows,
    half_life_changes: int | None,
    half_life_days: float | None,
    delay: int,
    host: list[int],
    last_day: int,
) -> None:
    n, rows = log
    as_of, host = START + last_day, host[:n]
    signals = [(p % n, START + t, s) for p, t, s in signals]
    half_lives = {"half_life_changes": half_life_changes, "half_life_days": half_life_days}
    (state, pages), counts = night(
        nothing(n), observations(rows), signals_of(signals), as_of, host, delay, **half_lives
    )
    slow = [Page() for _ in range(n)]
    for p in range(n):
        slow[p].fold([r for r in rows if r["page"] == p], as_of, Counter())
    expected: Counter[str] = Counter()
    heard = hear(slow, host, signals, as_of, delay, half_lives, expected)
    assert counts == +expected
    now, _ = bring_to_present(state, pages, Forgetting(**half_lives), as_of, delay)
    assert len(now.bin_id) == len(state.bin_id)  # nothing negligible in so few days
    check_against(heard, state, now)


@settings(deadline=None, max_examples=70)
@given(
    logs(),
    SIGNALS,
    CHANGES,
    DAYS,
    DELAYS,
    HOSTS,
    st.lists(TIMES, max_size=6),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_many_nights_equal_one(
    log: tuple[int, list[Row]],
    signals: Rows,
    half_life_changes: int | None,
    half_life_days: float | None,
    delay: int,
    host: list[int],
    cuts: list[int],
    random: Any,
    whole_log_again: bool,
) -> None:
    n, rows = log
    host = host[:n]
    signals = [(p % n, START + t, s) for p, t, s in signals]
    options: dict[str, Any] = {"half_life_changes": half_life_changes, "half_life_days": half_life_days}
    options |= {"host": host, "delay_us": delay}
    end = START + 50 * DAY
    one, _ = night(nothing(n), observations(rows), signals_of(signals), end, **options)

    both, low = nothing(n), START - 1
    for high in [*sorted(START + c for c in cuts), end]:
        if whole_log_again:  # every night reads all logs up to now and beyond
            tonight, news = rows[:], signals[:]
        else:
            tonight = [r for r in rows if low < r["at"] <= high]
            news = [s for s in signals if low < s[1] <= high]
        random.shuffle(tonight)
        random.shuffle(news)
        both, _ = night(both, observations(tonight), signals_of(news), high, **options)
        low = high
    assert both[0].equals(one[0])


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([None, 1.0, 3.0]),
    st.lists(st.integers(0, 3000), max_size=5),
)
def test_many_nights_equal_one_through_thousands_of_half_lives(
    seed: int, half_life_changes: int, half_life_days: float | None, cuts: list[int]
) -> None:
    """Weights that differ by more than the range of a double, in one night and in several."""
    rng = np.random.default_rng(seed)
    k = 3000
    steps = np.repeat(rng.choice([DAY, DAY + 12_345, 3 * DAY, 40 * DAY, 120 * SECOND], size=15), k // 15)
    if rng.random() < 0.5:
        steps[rng.integers(k)] = 500_000 * DAY
    at = START - 700_000 * DAY + np.cumsum(steps)
    page = rng.integers(0, 3, k) if rng.random() < 0.5 else np.zeros(k, dtype=np.int64)
    changed = (rng.random(k) < rng.choice([0.5, 0.95, 1.0])).astype(np.int8)
    changed[rng.integers(k) :] = rng.integers(2)
    modified = np.where(rng.random(k) < 0.3, at - rng.integers(60 * SECOND, DAY, k), NO_TIME)
    heard = np.sort(rng.integers(0, k, 900))
    heard_at = at[heard] - rng.integers(0, 60, 900) * SECOND
    order = np.argsort(heard_at, kind="stable")
    signals = Signals(page[heard][order], heard_at[order], rng.integers(0, 3, 900).astype(np.int32))
    options = {"half_life_changes": half_life_changes, "half_life_days": half_life_days}

    def part(both: Both, low: int, high: int) -> Both:
        rows = Observations(
            page[low:high], at[low:high], changed=changed[low:high], last_modified_us=modified[low:high]
        )
        first = at[low - 1] if low else NO_TIME
        last = at[high - 1] if high > low else first
        news = signals.take((signals.signalled_at_us > first) & (signals.signalled_at_us <= last))
        return night(both, rows, news, **options)[0]

    one = part(nothing(3), 0, k)
    both, low = nothing(3), 0
    for high in [*sorted(cuts), k]:
        both, low = part(both, low, high), high
    assert both[0].equals(one[0])
    assert one[0].watched_days.max() > 0.0
    now, _ = bring_to_present(*both, Forgetting(**options), int(at[-1]))
    assert all(np.isfinite(getattr(now, n)).all() for n in ("exposure_days", "total", "bin_days_squared"))


def test_any_order_of_rows_on_a_large_log() -> None:
    rng = np.random.default_rng(5)
    k, n = 20_000, 700
    page, at = rng.integers(0, n, k), START + rng.integers(0, 30 * 1440, k) * 60 * SECOND
    digest = rng.integers(0, 3, k).astype(np.uint64)
    signals = Signals(
        rng.integers(0, n, k), START + rng.integers(0, 30 * DAY, k), rng.integers(0, 8, k).astype(np.int32)
    )
    host = np.sort(rng.integers(0, 40, n)).tolist()
    first = None
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(k)
        rows = Observations(page[order], at[order], digest=digest[order])
        got = night(nothing(n), rows, signals.take(order), host=host, delay_us=HOUR, half_life_changes=12)
        first = first or got
        assert got[0][0].equals(first[0][0]) and got[1] == first[1]
    assert first is not None and len(first[0][0].bin_id) > 5000 and first[1]["signals_delayed"] > 50


def test_hosts_apart_are_what_they_are_together() -> None:
    """Any number of shards: each host's pages come out alike, whoever else is there."""
    both = filled(60)
    half = np.arange(60) < 30
    rng = np.random.default_rng(0)
    rows, signals, host = made(60, rng)
    for part, first in ((half, 0), (~half, 30)):
        kept = part[rows.page]
        mine = Observations(
            rows.page[kept] - first, rows.fetched_at_us[kept], digest=np.asarray(rows.digest)[kept]
        )
        news = signals.take(part[signals.page])
        news = Signals(news.page - first, news.signalled_at_us, news.source)
        hosts = [host[p] - host[first] for p in np.flatnonzero(part)]
        alone, _ = night(nothing(30), mine, news, host=hosts, half_life_changes=2)
        whole = both[0].take(np.flatnonzero(part[both[0].page]))
        columns = {name: getattr(whole, name) for name in SignalState.__slots__}
        assert SignalState(**columns | {"page": whole.page - first}).equals(alone[0])
