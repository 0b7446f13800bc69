"""Which claims of sitemaps are news."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.history.lastmods import (
    AHEAD_US,
    BAD,
    DAY,
    DAY_US,
    DISPOSITIONS,
    INSTANT,
    LOCAL,
    MONTH,
    NONE,
    YEAR,
    Lastmods,
    compare,
)

HOUR_US = 3_600_000_000
TODAY = 20_000 * DAY_US  # midnight
AS_OF = TODAY + DAY_US


def claims(*rows: tuple[int, int, int]) -> Lastmods:
    """Rows of (page, begin_us, precision)."""
    page, begin_us, precision = zip(*rows, strict=True) if rows else ((), (), ())
    return Lastmods(np.array(page, np.int64), np.array(begin_us, np.int64), np.array(precision, np.int8))


def told(found) -> list[tuple[int, int]]:
    return list(zip(found.page.tolist(), found.signalled_at_us.tolist(), strict=True))


def kept(found) -> list[tuple[int, int, int]]:
    c = found.carried
    return list(zip(c.page.tolist(), c.begin_us.tolist(), c.precision.tolist(), strict=True))


def fate(found) -> str:
    """The one disposition of one claim."""
    (name,) = [n for n in DISPOSITIONS if found.counts[n]]
    return name


@pytest.mark.parametrize(
    ("old", "new", "expected", "at_us"),
    [
        (None, (TODAY, INSTANT), "lastmod_first_seen", None),
        ((TODAY, INSTANT), (TODAY, INSTANT), "lastmod_same", None),
        ((TODAY, INSTANT), (TODAY + 1, INSTANT), "lastmod_moved", TODAY + 1),
        ((TODAY, INSTANT), (TODAY - 1, INSTANT), "lastmod_back", None),
        ((TODAY - DAY_US, DAY), (TODAY, DAY), "lastmod_moved", AS_OF - 1),
        ((TODAY - DAY_US, DAY), (TODAY - DAY_US, DAY), "lastmod_same", None),
        ((TODAY, DAY), (TODAY - DAY_US, DAY), "lastmod_back", None),
        # The same day, more or less exactly.
        ((TODAY, DAY), (TODAY + HOUR_US, INSTANT), "lastmod_same", None),
        ((TODAY + HOUR_US, INSTANT), (TODAY, DAY), "lastmod_same", None),
        ((TODAY, DAY), (TODAY - 1, INSTANT), "lastmod_back", None),
        ((TODAY - DAY_US, DAY), (TODAY, INSTANT), "lastmod_moved", TODAY),
        ((TODAY - 1, INSTANT), (TODAY, DAY), "lastmod_moved", AS_OF - 1),
        ((TODAY, LOCAL), (TODAY, INSTANT), "lastmod_same", None),
        # The night itself is not in the future, one microsecond later is.
        ((TODAY, INSTANT), (AS_OF, INSTANT), "lastmod_moved", AS_OF),
        ((TODAY, INSTANT), (AS_OF + 1, INSTANT), "future_lastmod", None),
        # Without a zone it may be of a place ahead of UTC; the signal is not later than the night.
        ((TODAY, INSTANT), (AS_OF + AHEAD_US, LOCAL), "lastmod_moved", AS_OF),
        ((TODAY, INSTANT), (AS_OF + AHEAD_US + 1, LOCAL), "future_lastmod", None),
        ((TODAY, DAY), (AS_OF, DAY), "lastmod_moved", AS_OF),
        ((TODAY, DAY), (AS_OF + DAY_US, DAY), "future_lastmod", None),
        # Months and years say too little.
        ((TODAY - 400 * DAY_US, DAY), (TODAY, MONTH), "coarse_lastmod", None),
        (None, (TODAY, YEAR), "coarse_lastmod", None),
        (None, (AS_OF + 30 * DAY_US, MONTH), "future_lastmod", None),
        ((TODAY, DAY), (0, NONE), "no_lastmod", None),
        ((TODAY, DAY), (0, BAD), "bad_lastmod", None),
    ],
)
def test_one_claim_has_one_fate(old, new, expected, at_us):
    carried = claims() if old is None else claims((3, *old))
    found = compare(carried, claims((3, *new)), AS_OF)
    assert fate(found) == expected
    assert told(found) == ([] if at_us is None else [(3, at_us)])
    if expected in ("lastmod_back", "future_lastmod", "coarse_lastmod", "no_lastmod", "bad_lastmod"):
        assert kept(found) == kept(compare(carried, claims(), AS_OF))


@pytest.mark.parametrize("hours", [-15, -14, -1, 0, 1, 14])
def test_a_time_without_zone_that_has_passed_is_never_in_the_future(hours):
    """It may be of any zone; what is read as UTC must not be later than the night for that."""
    at_us = AS_OF + hours * HOUR_US
    found = compare(claims((0, TODAY - DAY_US, INSTANT)), claims((0, at_us, LOCAL)), AS_OF)
    assert told(found) == [(0, min(at_us, AS_OF))]
    assert found.counts["lastmod_no_tz"] == 1 and found.counts["future_lastmod"] == 0


def test_claims_without_zone_are_counted():
    """Whatever becomes of them, those of unknown pages, too."""
    rows = [(0, TODAY, LOCAL), (0, TODAY, INSTANT), (1, TODAY, DAY), (-1, TODAY, LOCAL), (2, 0, BAD)]
    assert compare(claims(), claims(*rows), AS_OF).counts["lastmod_no_tz"] == 2


def test_the_finer_of_two_claims_of_a_day_is_kept():
    """So that a second change on that day is seen."""
    day, noon, evening = (
        (0, TODAY, DAY),
        (0, TODAY + 12 * HOUR_US, INSTANT),
        (0, TODAY + 20 * HOUR_US, INSTANT),
    )
    first = compare(claims(day), claims(noon), AS_OF)
    assert kept(first) == [noon]
    assert kept(compare(first.carried, claims(day), AS_OF)) == [noon]
    assert told(compare(first.carried, claims(evening), AS_OF)) == [(0, evening[1])]


def test_two_machines_that_disagree_signal_once():
    """One of them is behind: its older date is no news, and neither is the newer one when it returns."""
    old, new = claims((0, TODAY, INSTANT)), claims((0, TODAY + 1, INSTANT))
    state, signals = old, []
    for night in (new, old, new, old, new):
        found = compare(state, night, AS_OF)
        state = found.carried
        signals += told(found)
    assert signals == [(0, TODAY + 1)]


def test_the_newest_usable_claim_of_a_page_counts():
    rows = [
        (1, TODAY - DAY_US, INSTANT),
        (1, TODAY, DAY),
        (1, TODAY + HOUR_US, INSTANT),
        (1, AS_OF + DAY_US, INSTANT),  # later than the night
        (1, TODAY, MONTH),
        (1, 0, BAD),
        (-1, TODAY, DAY),
    ]
    found = compare(claims((1, TODAY - 9 * DAY_US, DAY)), claims(*rows), AS_OF)
    assert told(found) == [(1, TODAY + HOUR_US)]
    assert found.counts["sitemap_repeated"] == 5
    assert found.counts["sitemap_unknown_pages"] == found.counts["lastmod_moved"] == 1


ROW = st.tuples(
    st.integers(-1, 5),
    st.sampled_from([TODAY + k * DAY_US // 2 for k in range(-4, 7)]),
    st.sampled_from([NONE, BAD, YEAR, MONTH, DAY, LOCAL, INSTANT]),
)


@given(st.lists(st.lists(ROW, max_size=12), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_order_changes_nothing_and_counts_are_conserved(nights, random):
    state = shuffled = claims()
    for number, rows in enumerate(nights):
        as_of_us = AS_OF + number * DAY_US
        found = compare(state, claims(*rows), as_of_us)
        mixed = list(rows)
        random.shuffle(mixed)
        again = compare(shuffled, claims(*mixed), as_of_us)
        assert kept(found) == kept(again) and told(found) == told(again) and found.counts == again.counts
        assert sum(found.counts[name] for name in DISPOSITIONS) == found.counts["sitemap_urls"] == len(rows)
        assert (found.signalled_at_us <= as_of_us).all()
        before = {page: begin for page, begin, _ in kept_of(state)}
        assert all(begin >= before.get(page, begin) - DAY_US for page, begin, _ in kept(found))
        state, shuffled = found.carried, again.carried
        assert (np.diff(state.page) > 0).all() and (state.precision >= DAY).all()


def kept_of(state: Lastmods) -> list[tuple[int, int, int]]:
    return list(zip(state.page.tolist(), state.begin_us.tolist(), state.precision.tolist(), strict=True))


def test_columns_that_cannot_be_are_named():
    with pytest.raises(ValueError, match=r"carried has \(2, 1, 1\)"):
        compare(Lastmods(np.zeros(2, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int8)), claims(), AS_OF)
    with pytest.raises(ValueError, match="ascend"):
        compare(claims((1, TODAY, DAY), (1, TODAY, DAY)), claims(), AS_OF)
