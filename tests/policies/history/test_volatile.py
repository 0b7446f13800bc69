"""Volatile pages: who is one, who is none, and what it costs them."""

from __future__ import annotations

import numpy as np
import pytest

from policies.history import evidence, volatile
from policies.optimum.search import PageBlock

WIDE = [0.5, 1.0, 2.0, 3.0, 4.0, 2.5]


def _limit(gaps, changed=None, age=None, n_intervals=None, multiplier=0.3, weight=None):
    gaps = np.asarray(gaps, float)
    k = len(gaps)
    changed = np.ones(k, np.bool_) if changed is None else np.asarray(changed)
    found = evidence.from_intervals(np.zeros(k, int), gaps, changed, age, weight, n_pages=1)
    counts = (np.array([v], np.int32) for v in (n_intervals or k, int(changed.sum())))
    return float(volatile.weight_limit(*counts, found, multiplier)[0])


def test_found_changed_whatever_the_gap():
    assert _limit(WIDE) == pytest.approx(0.3 * 5 / 0.5)


def test_without_a_price_there_are_none():
    """A first night, or one after a night that had nothing to decide: a page may be worth all crawls."""
    assert _limit(WIDE, multiplier=None) == _limit(WIDE, multiplier=np.inf) == volatile.NOT_VOLATILE


@pytest.mark.parametrize("every", [0.02, 1.0, 30.0])
def test_an_even_pace_says_nothing(every):
    """No shorter gap has been tried; jitter of a schedule is no shorter gap either."""
    assert _limit([every] * 50) == volatile.NOT_VOLATILE
    assert _limit(every * np.linspace(0.6, 1.4, 50)) == volatile.NOT_VOLATILE


def test_five_changes_are_needed():
    assert _limit(WIDE[:4]) == volatile.NOT_VOLATILE
    assert _limit(WIDE[:5]) > 0.0


def test_one_unchanged_visit_is_enough_for_good():
    """Also when its weight has long been forgotten: counts are not."""
    gaps = [*WIDE, 9.0]
    changed = [True] * 6 + [False]
    assert _limit(gaps, changed) == volatile.NOT_VOLATILE
    assert _limit(gaps, changed, weight=np.array([1.0] * 6 + [0.0])) == volatile.NOT_VOLATILE


def test_a_page_that_dates_its_content_is_none():
    age = np.array([np.nan] * 5 + [0.3])
    assert _limit(WIDE, age=age) == volatile.NOT_VOLATILE


def test_forgotten_weights_do_not_matter():
    assert _limit(WIDE, weight=np.array([1e-9, 1.0, 0.5, 1e-3, 0.2, 1.0])) > 0.0


def test_pages_do_not_disturb_each_other():
    """Each page among a thousand others as it is alone."""
    rng = np.random.Generator(np.random.Philox(key=1))
    n = 1000
    size = rng.integers(0, 12, n)
    page = np.repeat(np.arange(n), size)
    gaps = np.exp(rng.uniform(-2, 2, len(page)))
    changed = rng.random(len(page)) < 0.95
    found = evidence.from_intervals(page, gaps, changed, n_pages=n)
    changes = np.bincount(page[changed], minlength=n).astype(np.int32)
    limit = volatile.weight_limit(size.astype(np.int32), changes, found, 0.3)
    assert 100 < np.count_nonzero(limit >= 0) < 900
    for i in range(n):
        mine = page == i
        alone = evidence.from_intervals(page[mine] * 0, gaps[mine], changed[mine], n_pages=1)
        one = volatile.weight_limit(size[i : i + 1].astype(np.int32), changes[i : i + 1], alone, 0.3)
        assert one[0] == limit[i]


def test_pages_in_demand_are_tried_at_shorter_gaps_first():
    """Five changes in the shortest gap: a crawl would gain at most weight x gap / 5."""
    limit = _limit(WIDE, multiplier=0.3)
    assert limit == pytest.approx(0.3 * 5 / 0.5)
    assert _limit([0.05, *WIDE], multiplier=0.3) == pytest.approx(0.3 * 5 / 0.05)
    assert _limit(WIDE, multiplier=0.0) == 0.0  # budget to spare: nobody is in anybody's way


def _surprising(gaps, others, weight=None):
    gaps = np.asarray(gaps, float)
    page, changed = np.zeros(len(gaps), int), np.ones(len(gaps), np.bool_)
    found = evidence.from_intervals(page, gaps, changed, None, weight, n_pages=1)
    return bool(volatile.surprising(found, np.array([others]))[0])


def test_a_record_is_held_against_three_times_the_pace_of_its_host():
    """Five gaps of a day: all changed with probability 1/100 at -log(1 - 0.01 ** (1 / 5)) changes a day."""
    pace = -np.log1p(-(0.01**0.2)) / 3
    assert _surprising([1.0] * 5, pace * 0.999) and not _surprising([1.0] * 5, pace * 1.001)
    assert _surprising([2.0] * 5, pace / 2 * 0.999) and not _surprising([2.0] * 5, pace / 2 * 1.001)
    assert not _surprising([1.0] * 4, pace * 0.999)
    assert not _surprising([1.0] * 5, pace * 0.999, [1.0, 1.0, 1.0, 1.0, 0.9])


def test_long_gaps_surprise_nobody():
    """A page like the others, crawled at gaps of 1 to 8 days: changes are what was to be expected."""
    gaps = [1.0, 2.0, 3.0, 5.0, 8.0, 4.0, 6.0]
    assert _limit(gaps) > 0.0 and not _surprising(gaps, 0.6)
    assert _surprising(gaps, 0.02)
    assert not _surprising(gaps, 0.02, np.full(7, 1e-4)) and not _surprising(gaps, 0.02, np.zeros(7))


def test_records_are_judged_one_by_one():
    rng = np.random.Generator(np.random.Philox(key=2))
    page = np.sort(rng.integers(0, 200, 2000))
    gaps, others = np.exp(rng.uniform(-2, 2, 2000)), np.exp(rng.uniform(-4, 1, 200))
    found = evidence.from_intervals(page, gaps, np.ones(2000, np.bool_), n_pages=200)
    flags = volatile.surprising(found, others)
    assert 20 < np.count_nonzero(flags) < 180
    assert flags.tolist() == [_surprising(gaps[page == i], others[i]) for i in range(200)]
    assert volatile.surprising(evidence.empty(), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("gap", [0.05, 0.3, 1.0])
def test_how_often_a_page_three_times_as_fast_is_ever_taken_for_one(gap):
    """At most once in a hundred, looked at after each of forty visits until one is unchanged."""
    rng = np.random.Generator(np.random.Philox(key=3))
    n, others = 40_000, 0.5
    alive, ever = np.ones(n, np.bool_), np.zeros(n, np.bool_)
    gaps = gap * np.exp(rng.uniform(-1, 1, 40))
    for k in range(40):
        alive &= rng.random(n) < -np.expm1(-3 * others * gaps[k])
        if _surprising(gaps[: k + 1], others):
            ever |= alive
    # Gaps of a bin count as their mean, which moves the chance of a record by a few percent.
    assert ever.mean() < 0.0105 + 4 * np.sqrt(0.01 / n)


def test_who_is_ordinary():
    """Found unchanged, or with a date; not what was always found changed, or never seen twice."""
    changed, age = np.array([True, True, False, True]), np.array([np.nan, np.nan, np.nan, 0.5])
    found = evidence.from_intervals(np.array([0, 1, 1, 2]), np.ones(4), changed, age, n_pages=4)
    assert volatile.ordinary(found).tolist() == [False, True, True, False]


def test_no_pages():
    none = np.zeros(0, np.int32)
    assert volatile.weight_limit(none, none, evidence.empty()).shape == (0,)


def test_a_cap_is_lowered_and_never_below_the_floor():
    flag = np.array([True, True, True, False, True])
    cap = np.array([np.inf, 0.001, 0.0, np.inf, np.inf])
    floor = np.array([0.0, 0.0, 0.0, 0.0, 0.5])
    capped = volatile.capped(flag, cap, floor)
    assert capped.tolist() == [volatile.CAP_PER_DAY, 0.001, 0.0, np.inf, 0.5]
    one = np.ones(5)
    PageBlock(one, one, floor_per_day=floor, cap_per_day=capped).validate()
