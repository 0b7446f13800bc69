"""Pairs tell bursts from steady requests, whatever the pages' rates, and add up in any order."""

from __future__ import annotations

import numpy as np
import pytest

from policies.history.request_history import RequestState, fold_requests
from policies.on_request.pairs import PARTS, KeptPairs, PairSums
from policies.on_request.sharing import SHARE_AT, first_factor, next_factor, share_for

FIRST_DAY, OLDEST, UNIT = 20_600, 2_900, 0.5
SHARED = np.random.default_rng(7)
HASHES = SHARED.integers(0, 1 << 63, 800).astype(np.uint64)
UNEVEN = SHARED.pareto(1.2, 800)
NONE = np.zeros(0, np.int64)


def log(rate, days=42, hot=1, seed=0):
    """Rows of a log: page, day and clicks of pages asked for at rates, on one day in `hot`."""
    rng = np.random.default_rng(seed)
    on = np.argsort(rng.random((len(rate), days)), axis=1) < days // hot
    count = rng.poisson(rate[:, None] * on * (days / (days // hot)))
    page, day = np.nonzero(count)
    return page, FIRST_DAY + day, np.rint(count[page, day] / UNIT).astype(np.int64)


def found(n, page, day, clicks, state=None):
    state = fold_requests(state or RequestState.empty(n), page, day, clicks, 0 * clicks, OLDEST)
    return PairSums.of(state, page, day, (clicks, 0 * clicks), HASHES[:n], OLDEST, UNIT), state


def kept(sums):
    return KeptPairs().after(sums, "clicks", 1.0)


@pytest.mark.parametrize(
    "rate", [UNEVEN, np.full(800, 0.2), np.full(40, 30.0)], ids=["uneven", "few", "many"]
)
def test_steady_requests_have_the_pairs_that_are_expected(rate):
    pairs = kept(found(len(rate), *log(rate))[0])
    assert 0.0 < pairs.stderr < 0.1
    assert pairs.ratio == pytest.approx(1.0, abs=3.0 * pairs.stderr)
    assert share_for(pairs) == 0.0


@pytest.mark.parametrize(("hot", "low", "high"), [(2, 1.9, 2.2), (3, 3.0, 3.7), (7, 7.0, 12.0)])
def test_bursts_have_as_many_times_more_as_their_days_are_fewer(hot, low, high):
    pairs = kept(found(800, *log(np.full(800, 0.5), hot=hot))[0])
    assert low < pairs.ratio < high
    assert share_for(pairs) == (SHARE_AT[-1][1] if hot > 2 else 0.0)


def test_a_single_page_that_all_ask_for_is_no_pattern():
    page, day, clicks = log(np.full(800, 0.5))
    of_one = np.append(page, 3), np.append(day, day.max()), np.append(clicks, 2_000_000)
    assert kept(found(800, *of_one)[0]).ratio == pytest.approx(1.0, abs=0.1)
    # Of few pages one of which comes in bursts nothing is sure.
    few, many = log(np.full(12, 0.5)), log(np.full(1, 60.0), hot=7)
    pairs = kept(
        found(13, *(np.append(a, b) for a, b in zip(few, (many[0] + 12, *many[1:]), strict=True)))[0]
    )
    assert pairs.ratio > 3.0 and share_for(pairs) == 0.0


def test_nights_and_parts_of_pages_add_up_to_the_whole():
    page, day, clicks = log(UNEVEN, hot=3)
    whole, _ = found(800, page, day, clicks)
    assert whole.sums[0].all() and not whole.sums[1].any()
    state, by_night = None, PairSums()
    for d in np.unique(day):
        some = np.flatnonzero(day == d)[::-1]
        twice = np.concatenate([some, some])  # rows of a day add up
        half = np.concatenate([clicks[some] // 2, clicks[some] - clicks[some] // 2])
        night, state = found(800, page[twice], day[twice], half, state)
        by_night = by_night.merge(night)
    assert (by_night.sums == whole.sums).all()
    mine = page < 300
    one, _ = found(800, page[mine], day[mine], clicks[mine])
    other, _ = found(800, page[~mine], day[~mine], clicks[~mine])
    assert (one.merge(other).sums == whole.sums).all()


def test_before_a_whole_week_is_known_nothing_is():
    page, day, clicks = log(UNEVEN, days=7)
    pairs = kept(found(800, page, day, clicks)[0])
    assert pairs.ratio is None and pairs.stderr is None and share_for(pairs) is None
    assert not found(800, NONE, NONE, NONE)[0].sums.any()


def test_kept_pairs_fade_and_come_back_from_the_manifest():
    night, _ = found(800, *log(UNEVEN))
    twice = kept(night).after(night, "clicks", 0.5)
    assert twice.found == pytest.approx(1.5 * kept(night).found)
    again = KeptPairs.from_json(twice.as_json())
    assert (again.found == twice.found).all() and (again.expected == twice.expected).all()
    with pytest.raises(ValueError, match=f"expected {PARTS} each"):
        KeptPairs.from_json({"found": [1.0], "expected": [1.0]})


def test_the_price_rises_while_all_is_spent_and_falls_while_much_is_left():
    assert next_factor(1.0, 1000.0, 1000.0, 0.5) > 1.0
    assert next_factor(1.0, 970.0, 1000.0, 0.5) == 1.0
    assert next_factor(1.0, 900.0, 1000.0, 0.5) < 1.0
    # Of a tenth the same 30 crawls are much.
    assert next_factor(1.0, 970.0, 1000.0, 0.1) < 1.0
    low = high = first_factor(0.5)
    for _ in range(100):
        low, high = next_factor(low, 500.0, 1000.0, 0.5), next_factor(high, 2000.0, 1000.0, 0.5)
    assert 0.0 < low < 0.1 and 10.0 < high < 100.0
