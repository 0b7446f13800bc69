"""Crawls that are made to learn when pages change."""

import numpy as np

from policies.clocks import exploring
from policies.clocks.kept import ENOUGH, MANY, Kept
from policies.clocks.learning import CERTAIN
from policies.clocks.profile import NO_TIME, US_PER_DAY, US_PER_HOUR


def _kept(born_us: int, changed: list[bool]) -> Kept:
    n = len(changed)
    begin = np.full(n, born_us + US_PER_HOUR)
    page = np.arange(n)
    end = begin + US_PER_HOUR * (1 + page)
    return Kept.of(np.zeros(n, np.int64), page, page.astype(np.uint64), begin, end, np.array(changed))


def test_hours_are_looked_for_until_enough_is_known_and_longer_where_they_seem_to_matter():
    gain = np.array([0.0, 0.0, CERTAIN, CERTAIN, 9 * CERTAIN])
    short = np.array([ENOUGH - 1, ENOUGH, MANY - 1, MANY, ENOUGH])
    most = np.full(5, 1024)
    expected = [exploring.EXPLORED, 0.0, exploring.EXPLORED_MORE, 0.0, 0.0]
    np.testing.assert_array_equal(exploring.shares(gain, short, most), expected)


def test_young_pages_are_looked_at_until_some_have_told_and_again_where_all_have_changed():
    day = 40 * US_PER_DAY
    for changed, expected in (
        ([True] * 20, (exploring.EXPLORED_YOUNG,) * 2),
        ([True] * 10 + [False] * 10, (exploring.EXPLORED_YOUNG, 0.0)),
        ([True] * ENOUGH, (0.0, 0.0)),
    ):
        kept = _kept(day, changed)
        found = exploring.shares_of_young(kept, np.full(len(changed), day), 1)
        assert tuple(float(share[0]) for share in found) == expected
        unknown = exploring.shares_of_young(kept, np.full(len(changed), NO_TIME), 1)
        assert float(unknown[0][0]) == exploring.EXPLORED_YOUNG, "pages of unknown age do not tell"


def test_a_share_of_the_pages_comes_but_no_more_than_a_host_bears():
    rng = np.random.Generator(np.random.Philox(3))
    for pages in (20, 2000):
        host, share = np.zeros(pages, np.int64), np.full(pages, 0.25)
        counts = []
        for night in range(50):
            drawn = exploring.drawn_tonight(rng.integers(0, 2**63, pages).astype(np.uint64), night)
            counts.append((exploring.part_of_night(share, host, drawn, 1) < 1.0).sum())
        expected = min(0.25 * pages, exploring.MOST_OF_A_HOST)
        assert abs(np.mean(counts) - expected) < 4 * np.sqrt(expected / 50)


def test_who_comes_soon_anyway_gets_no_crawl_more():
    rng = np.random.Generator(np.random.Philox(4))
    n = 4000
    rate = rng.choice([0.0, 0.05, 0.3, 0.6, 0.9, 3.0], n)
    recent, young = rng.random((2, n)) < 0.5
    intervals = rng.integers(0, 6, n)
    changes = np.minimum(intervals, rng.integers(0, 6, n))
    hours, nightly, once, twice = found = exploring.kinds(rate, recent, young, intervals, changes)
    assert all(kind.any() for kind in found) and not (once & twice).any() and not (hours & nightly).any()
    assert (rate[hours] >= 0.2).all()
    assert (rate[hours | once | twice] < 1 / 1.5).all()
    assert set(rate[nightly]) == {0.9}
