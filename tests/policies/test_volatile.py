"""Volatile pages: who is one, who is none, and what it costs them."""

from __future__ import annotations

import numpy as np
import pytest

from policies import evidence, volatile
from policies.search import PageBlock

WIDE = [0.5, 1.0, 2.0, 3.0, 4.0, 2.5]


def _limit(gaps, changed=None, age=None, n_intervals=None, multiplier=None, weight=None):
    gaps = np.asarray(gaps, float)
    k = len(gaps)
    changed = np.ones(k, np.bool_) if changed is None else np.asarray(changed)
    found = evidence.from_intervals(np.zeros(k, int), gaps, changed, age, weight, n_pages=1)
    counts = (np.array([v], np.int32) for v in (n_intervals or k, int(changed.sum())))
    return float(volatile.weight_limit(*counts, found, multiplier)[0])


def test_found_changed_whatever_the_gap():
    assert _limit(WIDE) == np.inf


@pytest.mark.parametrize("every", [0.02, 1.0, 30.0])
def test_an_even_pace_says_nothing(every):
    """No shorter gap has been tried; jitter of a schedule is no shorter gap either."""
    assert _limit([every] * 50) == volatile.NOT_VOLATILE
    assert _limit(every * np.linspace(0.6, 1.4, 50)) == volatile.NOT_VOLATILE


def test_five_changes_are_needed():
    assert _limit(WIDE[:4]) == volatile.NOT_VOLATILE
    assert _limit(WIDE[:5]) == np.inf


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
    assert _limit(WIDE, weight=np.array([1e-9, 1.0, 0.5, 1e-3, 0.2, 1.0])) == np.inf


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
    assert _limit(WIDE, multiplier=np.inf) == np.inf


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
