"""Pairs of signals: which there are, when they become known in any order, and what share they make."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from policies.history.history import Observations, fold
from policies.history.page_state import Forgetting, PageState
from policies.numerics.typing_ import FloatArray
from policies.signals.counts import REPEAT_US, Signals
from policies.signals.evidence import PageSignals
from policies.signals.fold import SignalFold
from policies.signals.pairs import PRIOR_PAIRS, told_together
from policies.signals.state import SignalState
from tests.policies.crawl_rows import DAY, SECOND, START, day, observations, signals_of

HOUR = 3600 * SECOND
MINUTE = 60 * SECOND


def nights(parts: list[tuple[list, list]], n: int = 1, delay_us: int = 0) -> SignalState:
    """Fold (observations, signals) of each night."""
    state, pages = SignalState.empty(), PageState.empty(n)
    for rows, heard in parts:
        watch = SignalFold(state, signals_of(heard), pages, np.zeros(n, np.int32), START + 99 * DAY, delay_us)
        pages, _ = fold(pages, observations(rows), START + 99 * DAY, watch=watch, half_life_changes=2)
        state, _ = watch.finish(pages, Forgetting(2))
    return state


def of(state: SignalState) -> dict[tuple[int, int], list[float]]:
    names = [divmod(c, 8) for c in state.pair.tolist()]
    numbers = zip(state.near_pending, state.far_pending, state.near, state.far, strict=True)
    return {name: [float(v) for v in values] for name, values in zip(names, numbers, strict=True)}


def test_pairs_by_hand() -> None:
    at = START + 5 * DAY
    heard = [(0, START + DAY, 2)]
    heard += [(0, at, 0), (0, at + 40 * MINUTE, 1)]  # together
    heard += [(0, at + DAY, 1)]  # a day after the first
    heard += [(0, at + 3 * DAY, 0), (0, at + 3 * DAY + 2 * HOUR, 1)]  # two hours apart
    heard += [(0, at + 5 * DAY + 59 * MINUTE, 0), (0, at + 5 * DAY + 61 * MINUTE, 2)]
    assert of(nights([([], heard)])) == {(0, 1): [1.0, 1.0, 0.0, 0.0], (0, 2): [1.0, 0.0, 0.0, 0.0]}


def test_a_pair_belongs_to_the_interval_of_its_later_signal() -> None:
    rows = [day(0, digest=1), day(2, digest=1), day(4, digest=1)]
    heard = [(0, START - DAY, 0), (0, START + 2 * DAY - MINUTE, 0), (0, START + 2 * DAY + MINUTE, 1)]
    state = nights([(rows[:2], heard)])
    assert of(state) == {(0, 1): [1.0, 0.0, 0.0, 0.0]}
    assert of(nights([(rows, heard)])) == {(0, 1): [0.0, 0.0, 1.0, 0.0]}
    assert nights([(rows[:2], heard), (rows[2:], [])]).equals(nights([(rows, heard)]))


def test_signals_before_the_first_observation_make_no_pairs() -> None:
    heard = [(0, START - MINUTE, 0), (0, START + MINUTE, 1)]
    visit = [day(0, digest=1)]
    assert of(nights([([], heard[:1]), (visit, []), ([], heard[1:])])) == {}
    assert of(nights([(visit, heard)])) == {}
    assert nights([([], heard[:1]), (visit, heard[1:])]).equals(nights([(visit, heard)]))
    # Pending pairs of a page that was never seen are dropped with its first observation, as its signals are.
    both = [(0, START - 9 * MINUTE, 0), (0, START - 5 * MINUTE, 1)]
    assert of(nights([([], both)])) == {(0, 1): [1.0, 0.0, 0.0, 0.0]}
    assert of(nights([([], both), (visit, [])])) == {}


@pytest.mark.parametrize("seed", range(30))
def test_a_source_that_becomes_known_a_night_later_makes_the_same_state(seed: int) -> None:
    """A sitemap read every night tells of yesterday; pings are known at once. Visits come in order."""
    rng = np.random.default_rng(seed)
    n, days = 4, 9
    minutes = np.sort(rng.choice((days * 24 - 2) * 6, 60, replace=False)) * 10
    pings = [(int(rng.integers(n)), START + int(m) * MINUTE, 1) for m in minutes]
    edits = [(p, at - int(rng.integers(-30, 60)) * MINUTE, 0) for p, at, _ in pings if rng.random() < 0.7]
    other = [(int(rng.integers(n)), START + int(rng.integers(days * 24)) * HOUR, 2) for _ in range(30)]
    visits = [{**day(d, digest=int(rng.integers(1, 4))), "page": p} for p in range(n) for d in (-1, days)]
    one = nights([(visits, [(0, START - 3 * DAY, 2), *pings, *edits, *other])], n)
    parts = []
    for d in range(days + 1):
        tonight = [(0, START - 3 * DAY, 2)] if d == 0 else []
        tonight += [s for s in pings + other if START + (d - 1) * DAY < s[1] <= START + d * DAY]
        late = [s for s in edits if START + (d - 2) * DAY < s[1] <= START + (d - 1) * DAY]
        parts.append(([v for v in visits if v["at"] == START - DAY] if d == 0 else [], tonight + late))
    rest = {*pings, *edits, *other} - {s for _, heard in parts for s in heard}
    parts.append(([], sorted(rest)))
    parts.append(([v for v in visits if v["at"] > START], []))
    shuffle = random.Random(seed)
    for _, heard in parts:
        shuffle.shuffle(heard)
    assert one.near.sum() > 20.0
    assert nights(parts, n).equals(one)


def test_a_signal_of_more_than_two_days_before_is_no_pair_any_more() -> None:
    """Bits of 64 hours: what is known later than that is counted, but in no pair."""
    first = [(0, START + d * DAY, 0) for d in (0, 2, 4, 6)]
    near = nights([([], first), ([], [(0, START + 4 * DAY + MINUTE, 1)])])
    assert of(near) == {(0, 1): [1.0, 0.0, 0.0, 0.0]} and near.pending.tolist() == [4, 1]
    late = nights([([], first), ([], [(0, START + 2 * DAY + MINUTE, 1)])])
    assert of(late) == {} and late.pending.tolist() == [4, 1]


def test_busy_sources_in_any_order_of_rows() -> None:
    """Every half hour for nine days, beside one at random: by chance, pairs are a day apart."""
    rng = np.random.default_rng(2)
    n = 20
    ticks = np.arange(0, 9 * DAY, 30 * MINUTE)
    pages = np.repeat(np.arange(n), len(ticks))
    page = np.append(pages, rng.integers(0, n, 200))
    at = START + np.append(np.tile(ticks, n), rng.integers(DAY, 8 * DAY, 200))
    source = np.append(np.zeros(len(pages), np.int32), np.ones(200, np.int32)).astype(np.int32)
    order = rng.permutation(len(page))
    states = []
    for rows in (slice(None), order):
        watch = SignalFold(
            SignalState.empty(),
            Signals(page[rows], at[rows], source[rows]),
            PageState.empty(n),
            np.zeros(n, np.int32),
            START + 99 * DAY,
        )
        nothing = Observations(page[:0], at[:0], digest=at[:0].astype(np.uint64))
        history, _ = fold(PageState.empty(n), nothing, START + 99 * DAY, watch=watch)
        states.append(watch.finish(history, Forgetting())[0])
    assert states[0].equals(states[1])
    near, far = states[0].near_pending.sum(), states[0].far_pending.sum()
    assert near > 500 and abs(far - 2 * near) < 10
    assert REPEAT_US == HOUR


def heard(signals: FloatArray, days: FloatArray, *pairs_of: Any) -> PageSignals:
    """All of ended intervals."""
    return PageSignals(signals, days, np.zeros_like(signals), np.zeros_like(days), *pairs_of)


def share(near: float, far: float, signals: list[list[float]], days: float = 100.0) -> float:
    n = len(signals)
    pair = np.array([0]), np.array([0]), np.array([1]), np.array([near]), np.array([far])
    found = told_together(heard(np.array(signals), np.full(n, days), *pair), np.zeros(n, np.int64), 1)
    assert found[0, 0, 0] == found[0, 1, 0] == found[0, 1, 1] == 0.0
    return float(found[0, 0, 1])


def test_share_that_is_told_together() -> None:
    assert share(20.0, 0.0, [[20.0, 30.0]], 1e9) == pytest.approx(20.0 / (20.0 + PRIOR_PAIRS), rel=1e-6)
    assert share(20.0, 40.0, [[20.0, 30.0]], 1e9) == 0.0  # as often a day apart
    assert share(20.0, 60.0, [[20.0, 30.0]], 1e9) == 0.0
    assert share(90.0, 0.0, [[20.0, 30.0]], 1e9) == 1.0
    # Pages on which the two never meet count.
    assert share(20.0, 0.0, [[20.0, 30.0], [10.0, 40.0]], 1e9) == pytest.approx(
        20.0 / (30.0 + PRIOR_PAIRS), rel=1e-6
    )
    # On the first day there is no day before: by chance, signals of every hour meet all others.
    assert share(30.0, 0.0, [[24.0, 10.0]], 1.0) < 0.2
    assert share(10.0, 0.0, [[10.0, 10.0]], 100.0) > 0.8


def test_a_host_is_what_it_is_alone() -> None:
    rng = np.random.default_rng(5)
    n, s = 60, 3
    group = np.sort(rng.integers(0, 4, n))
    pair = rng.permutation([(r, i, j) for r in range(n) for i, j in ((0, 1), (0, 2), (1, 2))])[:100]
    pair = pair[np.argsort(pair[:, 0], kind="stable")]
    near, far = rng.gamma(2.0, 1.0, 100), rng.gamma(1.0, 0.5, 100)
    signals, days = rng.gamma(2.0, 3.0, (n, s)), rng.uniform(20, 90, n)
    whole = told_together(heard(signals, days, *pair.T, near, far), group, 4)
    for g in range(4):
        rows = np.flatnonzero(group == g)
        mine = np.isin(pair[:, 0], rows)
        pairs_of = np.searchsorted(rows, pair[mine, 0]), pair[mine, 1], pair[mine, 2], near[mine], far[mine]
        mine_alone = heard(signals[rows], days[rows], *pairs_of)
        alone = told_together(mine_alone, np.zeros(len(rows), np.int64), 1)
        assert np.array_equal(alone[0], whole[g])
    assert 0.0 < whole.max() <= 1.0
