"""Folding a crawl log over nights: equal to the slow fold in any order, and as one night."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.history import visits
from policies.history.history import DISPOSITIONS, STATUS_NONE, Observations, fold
from policies.history.page_state import BIN_IDS, NO_TIME, PageState, evidence
from tests.policies.crawl_rows import DAY, FOREVER, SECOND, START, TIMES, Row, day, logs, observations
from tests.policies.history_nights import filled, one_page
from tests.policies.slow_history import Page

CHANGES = st.sampled_from([None, 1, 2, 3, 12])
DAYS = st.sampled_from([None, None, 1.0, 7.3, 60.0])


@settings(deadline=None, max_examples=80)
@given(logs(), CHANGES, DAYS, st.one_of(TIMES, st.just(50 * DAY)))
def test_equals_the_slow_fold(
    log: tuple[int, list[Row]],
    half_life_changes: int | None,
    half_life_days: float | None,
    last_day: int,
) -> None:
    n, rows = log
    as_of = START + last_day
    half_lives = {"half_life_changes": half_life_changes, "half_life_days": half_life_days}
    state, counts = fold(PageState.empty(n), observations(rows), as_of, **half_lives)
    assert sum(counts[d] for d in DISPOSITIONS) == counts["observations"] == len(rows)
    now = evidence(state, as_of_us=as_of, **half_lives)
    now.check()
    expected: Counter[str] = Counter()
    for p in range(n):
        page = Page()
        page.fold([r for r in rows if r["page"] == p], as_of, expected)
        assert state.baseline_at_us[p] == page.baseline
        assert state.last_success_at_us[p] == page.success
        assert state.last_attempt_at_us[p] == page.attempt
        assert state.last_modified_at_us[p] == page.modified
        assert state.last_modified_seen_us[p] == page.modified_seen
        assert (state.digest[p], state.gone[p], state.digest_form[p]) == (page.digest, page.gone, page.form)
        assert (state.replaced_digest[p], state.n_returns[p]) == (page.replaced, page.returns)
        assert (state.n_intervals[p], state.n_changes[p]) == (len(page.intervals), page.n_changes)
        assert state.last_change_at_us[p] == max((i[0] for i in page.intervals if i[2]), default=NO_TIME)
        exposure, dated, bins = page.sums(half_life_changes, half_life_days, as_of)
        np.testing.assert_allclose(now.exposure_days[p], exposure, rtol=1e-12)
        np.testing.assert_allclose(now.dated_changes[p], dated, rtol=1e-12)
        ids = state.bin_id[state.bin_start[p] : state.bin_start[p + 1]]
        assert ids.tolist() == sorted(bins)
        part = slice(now.bin_start[p], now.bin_start[p + 1])
        got = np.stack([now.bin_weight[part], now.bin_days[part], now.bin_days_squared[part]], axis=1)
        np.testing.assert_allclose(got, np.reshape([bins[b] for b in sorted(bins)], (-1, 3)), rtol=1e-12)
    assert {k: v for k, v in counts.items() if v and k in ("observations", *DISPOSITIONS)} == +expected


@settings(deadline=None, max_examples=80)
@given(
    logs(),
    CHANGES,
    DAYS,
    st.lists(TIMES, max_size=6),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_many_nights_equal_one(
    log: tuple[int, list[Row]],
    half_life_changes: int | None,
    half_life_days: float | None,
    cuts: list[int],
    random: Any,
    whole_log_again: bool,
) -> None:
    n, rows = log
    half_lives = {"half_life_changes": half_life_changes, "half_life_days": half_life_days}
    end = START + 50 * DAY
    one, _ = fold(PageState.empty(n), observations(rows), end, **half_lives)

    state, low = PageState.empty(n), START - 1
    for high in [*sorted(START + c for c in cuts), end]:
        if whole_log_again:  # every night reads all logs up to now and beyond
            tonight = rows[:]
        else:
            tonight = [r for r in rows if low < r["at"] <= high]
        random.shuffle(tonight)
        state, _ = fold(state, observations(tonight), high, **half_lives)
        low = high
    assert state.equals(one)


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
    # Stretches of like gaps, so that bins go out of use for long.
    steps = np.repeat(rng.choice([DAY, DAY + 12_345, 3 * DAY, 40 * DAY, 120 * SECOND], size=15), k // 15)
    if rng.random() < 0.5:
        steps[rng.integers(k)] = 500_000 * DAY
    at = START - 700_000 * DAY + np.cumsum(steps)
    page = rng.integers(0, 3, k) if rng.random() < 0.5 else np.zeros(k, dtype=np.int64)
    changed = (rng.random(k) < rng.choice([0.5, 0.95, 1.0])).astype(np.int8)
    changed[rng.integers(k) :] = rng.integers(2)
    options = {"half_life_changes": half_life_changes, "half_life_days": half_life_days}

    def part(low: int, high: int) -> Observations:
        return Observations(page[low:high], at[low:high], changed=changed[low:high])

    one, _ = fold(PageState.empty(3), part(0, k), FOREVER, **options)
    state, low = PageState.empty(3), 0
    for high in [*sorted(cuts), k]:
        state, _ = fold(state, part(low, high), FOREVER, **options)
        low = high
    assert state.equals(one)
    now = evidence(state, as_of_us=int(at[-1]), **options)
    now.check()


def test_weights_that_underflow_still_leave_their_last_bit() -> None:
    """x <- x / 2 + c has two fixed points an ulp apart; which one is reached depends on where it began."""
    gap = DAY + 2 * SECOND * 1000
    gaps = np.array([gap + 1800 * SECOND] * 40 + [gap] * 2000)
    at, page = START + np.cumsum(gaps), np.zeros(len(gaps), dtype=np.int64)
    bits = set()
    for odd in range(12):
        shifted = at + np.arange(len(gaps)) * odd
        always = np.ones(len(gaps), dtype=np.int8)
        one, _ = fold(
            PageState.empty(1), Observations(page, shifted, changed=always), FOREVER, half_life_changes=1
        )
        state = PageState.empty(1)
        for part in np.array_split(np.arange(len(gaps)), 9):
            rows = Observations(page[part], shifted[part], changed=always[part])
            state, _ = fold(state, rows, FOREVER, half_life_changes=1)
        assert state.equals(one)
        late, _ = fold(
            PageState.empty(1),
            Observations(page[1000:], shifted[1000:], changed=always[1000:]),
            FOREVER,
            half_life_changes=1,
        )
        bits.add(late.bin_days.tobytes() == one.bin_days.tobytes())
    assert bits == {True, False}  # the beginning does matter in some of these


def test_bins_of_long_ago_leave_the_state() -> None:
    rows = [day(0, digest=1), day(3, digest=2)] + [day(4 + i, digest=3 + i) for i in range(100)]
    assert len(one_page(rows[:70], half_life_changes=1)[0].bin_id) == 2
    assert len(one_page(rows, half_life_changes=1)[0].bin_id) == 1


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = filled(300)
    monkeypatch.setattr(visits, "_BLOCK", 64)
    assert filled(300).equals(whole)


def test_one_night_is_any_order_of_rows_on_a_large_log() -> None:
    rng = np.random.default_rng(5)
    k, n = 20_000, 700
    columns = {
        "page": rng.integers(0, n, k),
        "fetched_at_us": START
        + rng.integers(0, 30 * 1440, k) * 60 * SECOND
        + rng.integers(0, 2, k) * 59 * SECOND,
        "status": rng.choice(np.array([200, 304, 404, 503, STATUS_NONE], dtype=np.int16), k),
        "digest": rng.integers(0, 3, k).astype(np.uint64),
        "changed": rng.integers(-1, 2, k).astype(np.int8),
        "not_modified": rng.random(k) < 0.1,
        "last_modified_us": START + rng.integers(0, 30 * 1440, k) * 60 * SECOND,
    }
    columns = {name: np.concatenate([v, v[: k // 10]]) for name, v in columns.items()}
    first = None
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(columns["page"]))
        shuffled = Observations(**{name: v[order] for name, v in columns.items()})
        result = fold(PageState.empty(n), shuffled, FOREVER, half_life_changes=12)
        first = first or result
        assert result[0].equals(first[0]) and result[1] == first[1]


def test_key_of_more_than_63_bits_sorts_alike() -> None:
    """Years 1 to 9999 and page codes above 2**20 leave no room for microseconds in one integer."""
    rng = np.random.default_rng(3)
    n, year_1, year_9999 = 1 << 21, -62_135_596_800_000_000, 253_402_300_799_999_999
    page = rng.choice(np.array([0, 1, n - 2, n - 1]), 4000)
    near = START + rng.integers(0, 100, 4000) * 30 * SECOND + rng.integers(0, 3, 4000)
    at = np.where(rng.random(4000) < 0.1, rng.choice(np.array([year_1, year_9999]), 4000), near)
    digest = rng.integers(0, 5, 4000).astype(np.uint64)
    compact = np.unique(page, return_inverse=True)[1]
    wide, counts = fold(
        PageState.empty(n), Observations(page, at, digest=digest), FOREVER, half_life_days=1.0
    )
    small, counts4 = fold(
        PageState.empty(4), Observations(compact, at, digest=digest), FOREVER, half_life_days=1.0
    )
    assert counts == counts4
    assert wide.take(np.array([0, 1, n - 2, n - 1])).equals(small)
    assert np.isfinite(small.exposure_days).all() and (small.bin_id < BIN_IDS).all()


def test_a_million_rows_of_one_page() -> None:
    k = 1_000_000
    second_apart = Observations(
        np.zeros(k, dtype=np.int64), START + np.arange(k) * SECOND, changed=np.zeros(k, np.int8)
    )
    state, counts = fold(PageState.empty(1), second_apart, FOREVER, half_life_changes=12)
    assert counts["unchanged"] == (k - 1) // 60 and counts["duplicate"] == k - 1 - (k - 1) // 60
    # Each row near the one before: every other row is kept.
    at = START + np.arange(k) * 59 * SECOND
    always = Observations(np.zeros(k, dtype=np.int64), at, changed=np.ones(k, np.int8))
    state, counts = fold(PageState.empty(1), always, FOREVER, half_life_changes=1)
    assert counts["changed_undated"] == k // 2 - 1
    np.testing.assert_allclose(evidence(state, half_life_changes=1).bin_weight, [2.0], rtol=1e-12)
    same = Observations(np.zeros(k, dtype=np.int64), np.full(k, START), digest=np.arange(k).astype(np.uint64))
    state, counts = fold(PageState.empty(1), same, FOREVER)
    assert counts["duplicate"] == k - 1 and state.digest[0] == 1
