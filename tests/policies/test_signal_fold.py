"""Folding signals: rules, exactness over nights, conservation of signals, sources that become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.history import Observations, fold
from policies.page_state import NO_TIME, Forgetting, PageState
from policies.signal_counts import DISPOSITIONS, REPEAT_US, Signals, neighbours
from policies.signal_fold import SignalFold
from policies.signal_state import (
    DATED,
    MAX_COUNT,
    MAX_SOURCES,
    OTHER,
    SignalState,
    SignalSums,
    bring_to_present,
    choose_sources,
    counts_of,
    signature_of,
)
from tests.policies.crawl_rows import (
    DAY,
    FOREVER,
    SECOND,
    START,
    TIMES,
    Row,
    day,
    logs,
    observations,
    row,
    signals_of,
)
from tests.policies.slow_history import Page
from tests.policies.slow_signals import hear

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


# ---- small cases by hand


def test_signals_are_counted_by_the_outcome_of_their_interval() -> None:
    rows = [day(0, digest=1), day(2, digest=1), day(4, digest=2)]
    signals = [
        (0, START - DAY, 0),  # before the baseline: no interval
        (0, START + DAY, 0),
        (0, START + DAY, 0),  # repeated
        (0, START + 2 * DAY, 1),  # at the visit that ends the unchanged interval
        (0, START + 3 * DAY, 0),
        (0, START + 5 * DAY, 1),  # pending
        (0, START + 9 * DAY, 1),  # after as_of
    ]
    state, counts = one_page(rows, signals, START + 6 * DAY)
    assert counts == {
        "signals": 7,
        "signals_after_as_of": 1,
        "signals_duplicate": 1,
        "signals_counted": 5,
    }
    assert state.since_us.tolist() == [START - DAY]
    assert state.source.tolist() == [0, 1]
    assert state.pending.tolist() == [0, 1]
    assert (state.n_unchanged.tolist(), state.n_changed.tolist()) == ([1, 1], [1, 0])
    assert (state.unchanged.tolist(), state.total.tolist()) == ([1.0, 1.0], [2.0, 1.0])
    assert (state.last_at_us - START).tolist() == [3 * DAY, 5 * DAY]
    assert (state.exposure_days.tolist(), state.watched_days.tolist()) == ([2.0], [4.0])
    assert (state.bin_id.tolist(), state.signature.tolist()) == ([22], [1])
    assert [state.bin_weight[0], state.bin_days[0], state.bin_days_squared[0]] == [1.0, 2.0, 4.0]


def test_intervals_count_that_began_after_the_first_signal_of_the_host() -> None:
    """Pages 0 and 1 share a host, page 2 never hears anything."""
    rows = [row(p, START + d * DAY, digest=d + 1) for p in range(3) for d in (0, 2, 4, 6)]
    (state, _), _ = night(
        nothing(3), observations(rows), signals_of([(0, START + 2 * DAY, 0)]), host=[0, 0, 1]
    )
    # The signal lies at the end of the first interval, which began without anyone to send any.
    assert state.page.tolist() == [0, 1] and state.since_us.tolist() == [START + 2 * DAY] * 2
    assert state.n_changed.tolist() == [0] and state.total.tolist() == [0.0]
    assert state.bin_weight.tolist() == [2.0, 2.0] and state.signature.tolist() == [0, 0]
    assert state.watched_days.tolist() == [4.0, 4.0]


def test_a_dated_change_says_more() -> None:
    dated = [day(d, digest=d + 1, last_modified=START + round((d - 0.5) * DAY)) for d in (0, 2, 4)]
    state, _ = one_page(dated, [(0, START - DAY, 0), (0, START + 3 * DAY, 0)])
    # The change of day 2 came without a signal, that of day 4 with one, half a day before it was found.
    assert state.exposure_days.tolist() == [1.0] and state.dated_changes.tolist() == [1.0]
    assert state.bin_id.tolist() == [DATED + 22] and state.signature.tolist() == [1]
    assert state.bin_days.tolist() == [1.5]


def test_signals_soon_after_a_visit_are_discarded() -> None:
    rows = [day(0, digest=1), day(1, digest=2)]
    signals = [(0, START, 0), *((0, START + DAY + h * HOUR, 1) for h in (0, 1, 3, 5))]
    state, counts = one_page(rows, signals, delay_us=3 * HOUR)
    # That at the instant of the visit comes before it; that of three hours later is no longer soon.
    assert (counts["signals_delayed"], counts["signals_counted"]) == (1, 4)
    assert state.pending.tolist() == [0, 2] and state.n_changed.tolist() == [0, 1]
    assert state.watched_days.tolist() == [0.875]
    assert one_page(rows, signals)[1]["signals_counted"] == 5


def test_repeats_within_an_hour_of_the_last_counted_one() -> None:
    minutes = [0, 40, 59, 60, 100, 125]
    state, counts = one_page([], [(0, START + 60 * SECOND * m, s) for m in minutes for s in (0, 1)])
    assert (counts["signals_counted"], counts["signals_duplicate"]) == (6, 6)  # 0, 60, 125 of each
    assert state.pending.tolist() == [3, 3]
    assert (state.last_at_us - START).tolist() == [125 * 60 * SECOND] * 2
    assert REPEAT_US == HOUR


def test_late_signals_change_nothing() -> None:
    rows = observations([day(0, digest=1), day(4, digest=2)])
    before, _ = night(nothing(1), rows, signals_of([(0, START + DAY, 0), (0, START + 5 * DAY, 1)]))
    late = signals_of([(0, START + 4 * DAY, 0), (0, START + 5 * DAY, 1), (0, START + 4 * DAY + 1, 1)])
    again, counts = night(before, observations([]), late)
    assert again[0].equals(before[0])
    assert (counts["signals_late"], counts["signals_duplicate"]) == (2, 1)


def test_what_is_pending_goes_to_the_next_observation() -> None:
    signals = [(0, START + DAY + h * HOUR, 0) for h in range(20)] + [(0, START + 2 * DAY, 1)]
    before, _ = night(nothing(1), observations([day(0, digest=1)]), signals_of([(0, START, 0)]))
    waiting, _ = night(before, observations([]), signals_of(signals))
    assert waiting[0].pending.tolist() == [20, 1]
    # A visit that says nothing ends no interval.
    again, _ = night(waiting, observations([day(3)]), signals_of([]))
    assert again[0].equals(waiting[0])
    (state, _), _ = night(again, observations([day(4, digest=2)]), signals_of([]))
    assert state.pending.tolist() == [0, 0] and state.n_changed.tolist() == [20, 1]
    assert state.signature.tolist() == [MAX_COUNT + 16] and state.total.tolist() == [20.0, 1.0]


def test_interval_weights_by_hand() -> None:
    """H = 2; three changes a day apart, then an unchanged day: now c = 3, L = 2."""
    rows = [day(d, digest=min(d, 3) + 1) for d in range(5)]
    signals = [(0, START + round((d + 0.5) * DAY), 0) for d in range(-1, 4)]
    both, _ = night(nothing(1), observations(rows), signals_of(signals), half_life_changes=2)
    root = 2.0**0.5
    np.testing.assert_allclose(both[0].bin_weight, [0.5 * root + 1.0 + root], rtol=1e-15)
    now = bring_to_present(*both, Forgetting(2), START + 6 * DAY, 6 * HOUR)
    np.testing.assert_allclose(now.bin_weight, [0.5 + 0.5 * root + 1.0], rtol=1e-15)
    np.testing.assert_allclose(now.total, [0.5 + 0.5 * root + 2.0], rtol=1e-15)
    np.testing.assert_allclose(now.unchanged, [1.0], rtol=1e-15)
    assert now.running_days.tolist() == [1.75]


def test_an_era_that_has_begun_stays() -> None:
    """A signal that comes late, older than the first one known, moves nothing; new pages join the era."""
    before, _ = night(nothing(3), observations([]), signals_of([(0, START + 2 * DAY, 0)]), host=[0, 0, 1])
    pages = before[1].expand(np.array([0, 1, 3]), 4)
    older = signals_of([(1, START + DAY, 0)])
    (state, _), counts = night((before[0], pages), observations([]), older, host=[0, 0, 0, 1])
    assert counts["signals_counted"] == 1
    assert state.page.tolist() == [0, 1, 2] and state.since_us.tolist() == [START + 2 * DAY] * 3


def test_what_is_added_is_a_minute_at_least() -> None:
    """Smaller parts could move the last bit of what is left of old sums, and when depends on the nights."""
    visits = [day(0, digest=1), row(0, START + 90 * SECOND, digest=2), row(0, START + 250 * SECOND, digest=3)]
    heard = [(0, START - DAY, 0), (0, START + 90 * SECOND, 0)]
    state, _ = one_page(visits, heard, delay_us=60 * SECOND)
    assert state.watched_days.tolist() == [100 / 86400]  # not the 30 seconds of the first interval
    # A change at the first second of its interval, by its date.
    dated = [day(0, digest=1), day(1, digest=2, last_modified=START + SECOND)]
    state, _ = one_page(dated, [(0, START - DAY, 0), (0, START + DAY // 2, 0)])
    assert state.bin_id.tolist() == [DATED] and state.bin_days.tolist() == [1 / 1440]


def test_intervals_of_long_ago_leave_the_state() -> None:
    rows = [row(0, START, digest=1), row(0, START + 70 * SECOND, digest=2)]
    rows += [day(4 + i, digest=3 + i) for i in range(100)]
    heard = [(0, START, 0), (0, START + 60 * SECOND, 1)]
    (state, pages), _ = night(nothing(1), observations(rows[:70]), signals_of(heard), half_life_changes=1)
    # The short interval weighs 2**-68 by now; all of its sums are still there.
    assert len(state.bin_id) == 2 + 1 and state.bin_days_squared.min() < 2.0**-80
    short = int(np.argmin(state.bin_days_squared))
    mean = state.bin_days[short] / state.bin_weight[short]
    assert mean == 70 / 86400 and state.bin_days_squared[short] == state.bin_weight[short] * mean**2
    both, _ = night((state, pages), observations(rows[70:]), signals_of([]), half_life_changes=1)
    assert len(both[0].bin_id) == 1 and both[0].total.tolist() == [0.0, 0.0]
    assert both[0].n_changed.tolist() == [0, 1]
    # So it is where time forgets, between the last interval and the present.
    both, _ = night(nothing(1), observations(rows[:2]), signals_of(heard), half_life_days=1.0)
    assert len(bring_to_present(*both, Forgetting(None, 1.0), START + 70 * DAY).bin_row) == 1
    assert len(bring_to_present(*both, Forgetting(None, 1.0), START + 90 * DAY).bin_row) == 0


def test_weights_that_underflow_still_leave_their_last_bit() -> None:
    """x <- x / 2 + c has two fixed points an ulp apart; which one is reached depends on where it began."""
    gap = DAY + 2 * SECOND * 1000
    gaps = np.array([gap + 1800 * SECOND] * 40 + [gap] * 2000)
    page = np.zeros(len(gaps), dtype=np.int64)
    always = np.ones(len(gaps), dtype=np.int8)
    bits = set()
    for odd in range(12):
        at = START + np.cumsum(gaps) + np.arange(len(gaps)) * odd
        first = Signals(page[:1], at[:1] - DAY, np.zeros(1, np.int32))

        def part(both: Both, rows: slice | np.ndarray, at: Any = at, first: Signals = first) -> Both:
            observed = Observations(page[rows], at[rows], changed=always[rows])
            return night(both, observed, first, half_life_changes=1)[0]

        one, _ = part(nothing(1), slice(None))
        both = nothing(1)
        for rows in np.array_split(np.arange(len(gaps)), 9):
            both = part(both, rows)
        assert both[0].equals(one)
        late, _ = part(nothing(1), slice(1000, None))
        bits.add(late.watched_days.tobytes() == one.watched_days.tobytes())
    assert bits == {True, False}  # the beginning does matter in some of these


def test_the_running_interval_counts_from_the_begin_of_the_era() -> None:
    rows = observations([row(p, START, digest=1) for p in (0, 1)])
    both, _ = night(nothing(3), rows, signals_of([(0, START + DAY, 0), (1, START, 0)]), host=[0, 1, 1])
    now = bring_to_present(*both, Forgetting(), START + 2 * DAY)
    assert now.running_days.tolist() == [1.0, 2.0, 0.0] and now.pending.tolist() == [1, 0]
    # Nobody listened to page 0 on its first day; page 2 was never crawled.
    late = bring_to_present(*both, Forgetting(), START + 2 * DAY, DAY + DAY // 2)
    assert late.running_days.tolist() == [0.5, 0.5, 0.0]


# ---- against the slow fold, over nights, in any order

SIGNALS = st.lists(st.tuples(st.integers(0, 2), TIMES, st.integers(0, 2)), max_size=40)
CHANGES = st.sampled_from([None, 1, 2, 3, 12])
DAYS = st.sampled_from([None, None, 1.0, 7.3, 60.0])
DELAYS = st.sampled_from([0, 0, 60 * SECOND, HOUR, 2 * DAY])
HOSTS = st.sampled_from([[0, 0, 0], [0, 0, 1], [0, 1, 2]])


def check_against(slow: dict[int, Any], state: SignalState, now: SignalSums) -> None:
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
        for name in ("pending", "n_unchanged", "n_changed"):
            assert getattr(state, name)[mine].tolist() == [getattr(expected, name)[s] for s in sources]
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
            wanted = [
                expected.pairs.get(name, [0.0, 0.0])[far] + expected.pending_pairs[(*name, far)]
                for far in (0, 1)
            ]
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


@settings(deadline=None, max_examples=150)
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
    now = bring_to_present(state, pages, Forgetting(**half_lives), as_of, delay)
    assert len(now.bin_row) == len(state.bin_id)  # nothing negligible in so few days
    check_against(heard, state, now)


@settings(deadline=None, max_examples=150)
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
    now = bring_to_present(*both, Forgetting(**options), int(at[-1]))
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


# ---- state


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


def recoded(state: SignalState, new: Sequence[int]) -> SignalState:
    """The same signals under other codes of sources; those with the same one become one."""
    codes = np.asarray(new, dtype=np.int32)
    first, second = np.divmod(state.pair, MAX_SOURCES)
    pair = codes[first] * MAX_SOURCES + codes[second]
    signature = np.zeros(len(state.signature), dtype=np.uint32)
    for code in np.unique(codes).tolist():
        count = sum(counts_of(state.signature, int(old)) for old in np.flatnonzero(codes == code))
        signature |= signature_of(np.asarray(count), code)
    return replace(state, source=codes[state.source], signature=signature, pair=pair).regrouped()


def test_take_and_recode_undo_themselves() -> None:
    state, _ = filled(40)
    assert state.near.sum() > 2 and state.far.sum() > 4 and state.near_pending.sum() > 0
    order = np.random.default_rng(1).permutation(len(state))
    assert state.take(order).take(np.argsort(order)).equals(state)
    codes = [3, 1, 4, 0, 7, 2, 6, 5]
    assert not recoded(state, codes).equals(state)
    assert recoded(recoded(state, codes), np.argsort(codes).tolist()).equals(state)
    assert recoded(state, range(8)).equals(state)


def test_sources_that_become_one_keep_their_signals() -> None:
    state, _ = filled(40)
    merged = recoded(state, [0, 0, 1, 2, 2, 2, 1, 1])
    assert merged.source.max() == 2
    for name in ("pending", "unchanged", "total", "n_unchanged", "n_changed"):
        assert getattr(merged, name).sum() == pytest.approx(getattr(state, name).sum(), rel=1e-12)
    np.testing.assert_allclose(merged.bin_weight.sum(), state.bin_weight.sum(), rtol=1e-12)
    np.testing.assert_allclose(merged.bin_days_squared.sum(), state.bin_days_squared.sum(), rtol=1e-12)
    counts = np.stack([counts_of(merged.signature, s) for s in range(8)])
    assert counts[3:].max() == 0
    expected = sum(counts_of(state.signature, s) @ state.bin_weight for s in (0, 1))
    assert counts[0] @ merged.bin_weight == pytest.approx(expected, rel=1e-12)
    np.testing.assert_array_equal(merged.last_at_us.max(), state.last_at_us.max())


def test_intervals_that_differ_by_merged_sources_alone_become_one() -> None:
    rows = [day(d, digest=d + 1) for d in range(5)]
    heard = [
        (0, START, 0),
        (0, START + DAY // 2, 0),
        (0, START + 3 * DAY // 2, 1),
        (0, START + 5 * DAY // 2, 2),
    ]
    state, _ = one_page(rows, heard, half_life_changes=3)
    assert state.signature.tolist() == [0, 1, 16, 256]
    merged = recoded(state, [0, 1, 1])
    assert merged.signature.tolist() == [0, 1, 16] and merged.bin_start.tolist() == [0, 3]
    assert merged.bin_weight.tolist() == [*state.bin_weight[:2], state.bin_weight[2] + state.bin_weight[3]]
    assert recoded(state, [1, 0, 0]).signature.tolist() == [0, 1, 16]
    assert (merged.source.tolist(), merged.n_changed.tolist()) == ([0, 1], [1, 2])


def test_more_sources_than_fit_become_one() -> None:
    names, code = choose_sources(["b", "d"], ["a", "c", "b"])
    assert names == ["a", "b", "c", "d"] and code == {"a": 0, "b": 1, "c": 2, "d": 3}
    carried = [f"s{i}" for i in range(5)]
    names, code = choose_sources(carried, ["z", "y", "x", "a", "b"])
    assert names == sorted([*carried, "a", "b", OTHER]) and len(names) == MAX_SOURCES
    assert all(code[n] == names.index(OTHER) for n in "xyz")
    # The night after: the same sources, whatever comes.
    assert choose_sources(names, ["z", "0"])[0] == names
    names, code = choose_sources([f"s{i}" for i in range(8)], ["t"])
    assert code["s7"] == code["t"] == names.index(OTHER) and len(names) == MAX_SOURCES


@given(st.lists(st.integers(0, 40), min_size=8, max_size=8))
def test_signatures_hold_what_was_put_in(counts: list[int]) -> None:
    signature = sum(
        (signature_of(np.array([n]), s) for s, n in enumerate(counts)), start=np.zeros(1, np.uint32)
    )
    got = [int(counts_of(signature, s)[0]) for s in range(8)]
    assert got == [min(n, MAX_COUNT) for n in counts]


def test_neighbours_by_hand() -> None:
    seen = np.array([0, 0, 2, 2]), np.array([10, 20, 10, 30])
    signals = np.array([2, 0, 0, 1, 0, 2, 0]), np.array([30, 5, 10, 10, 11, 31, 21])
    previous, following = neighbours(*signals, *seen)
    assert previous.tolist() == [2, -1, -1, -1, 0, 3, 1]
    assert following.tolist() == [3, 0, 0, -1, 1, -1, -1]
    none = np.zeros(0, np.int64)
    assert neighbours(*signals, none, none)[0].tolist() == [-1] * 7


def test_nothing_in_nothing_out() -> None:
    both, counts = night(nothing(3), observations([day(0, digest=1)]), signals_of([]))
    assert len(both[0]) == 0 and not counts
    now = bring_to_present(*both, Forgetting(12), FOREVER)
    assert len(now.page) == len(now.bin_row) == 0


def test_errors_name_value_limit_and_remedy() -> None:
    with pytest.raises(ValueError, match=r"pages 3\.\.3 and the state has 2; expand"):
        night(nothing(2), observations([]), signals_of([(3, START, 0)]))
    with pytest.raises(ValueError, match=r"sources 8\.\.8; give codes of 0 to 7"):
        night(nothing(2), observations([]), signals_of([(0, START, 8)]))
    with pytest.raises(ValueError, match="signals have 1 pages, 2 times"):
        Signals(np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.int32)).check(1, 1)
