"""What the signals of one host may take from the others."""

import numpy as np
import pytest

from policies.bursts import credible_signals, limit_bursts, next_window
from policies.signal_estimation import signal_rates
from policies.windows import solve_theta


def _night(flooded: float, seed: int = 0, hosts: int = 40, pages: int = 50):
    rng = np.random.default_rng(seed)
    n = hosts * pages
    start = np.arange(0, n + 1, pages)
    rate = rng.gamma(0.7, 0.3, n) + 1e-3
    calm = rng.uniform(0.0, 0.9, n)
    debt = calm.copy()
    signalled = np.zeros(n, np.bool_)
    signalled[start[7] : start[8]] = rng.random(pages) < flooded
    debt[signalled] = 1.0
    return rate, debt, calm, start, signalled


def _ahead(rate, debt, start):
    share = rate / rate.sum()
    theta = solve_theta(share, debt, np.array([0, len(rate)]))[0]
    return np.add.reduceat(debt - np.minimum(1.0, share * theta), start[:-1])


@pytest.mark.parametrize("limit", [1.0, 3.0, 10.0])
def test_a_flooded_host_is_ahead_by_the_limit(limit):
    rate, debt, calm, start, _ = _night(flooded=1.0)
    assert _ahead(rate, debt, start)[7] > 12.0
    found = limit_bursts(rate, debt, calm, start, np.full(40, limit))
    limited = found.debt
    assert found.limited == 1
    assert found.ahead_crawls[7] == pytest.approx(_ahead(rate, debt, start)[7], rel=1e-9)
    without = _ahead(rate, calm, start)[7]
    assert _ahead(rate, limited, start)[7] == pytest.approx(max(limit, without), abs=0.1)
    others = np.delete(np.arange(len(rate)), np.arange(start[7], start[8]))
    assert np.array_equal(limited[others], debt[others])
    assert (limited >= 0.0).all() and (limited <= debt).all()


def test_the_pages_of_the_host_still_go_by_their_signals():
    rate, debt, calm, start, signalled = _night(flooded=0.5)
    limited = limit_bursts(rate, debt, calm, start, np.full(40, 1.0)).debt
    mine = slice(int(start[7]), int(start[8]))
    wait = (1.0 - limited[mine]) / rate[mine]  # until due, but for what all pages wait
    calm_wait = (1.0 - calm[mine]) / rate[mine]
    is_signalled = signalled[mine]
    assert (limited[mine] < debt[mine]).any()
    assert (wait <= calm_wait)[is_signalled].mean() > 0.6  # those that were nearly due anyway wait longer
    assert (wait >= calm_wait)[~is_signalled].all()


def test_few_signals_are_left_alone():
    rate, debt, calm, start, _ = _night(flooded=0.02)
    assert limit_bursts(rate, debt, calm, start, np.full(40, 3.0)).debt is debt


def test_a_host_alone_is_not_limited():
    rate, debt, calm, _, _ = _night(flooded=1.0)
    start = np.array([0, len(rate)])
    assert np.allclose(limit_bursts(rate, debt, calm, start, np.ones(1)).debt, debt)


def test_pages_without_a_rate_take_no_part():
    rate, debt, calm, start, _ = _night(flooded=1.0)
    rate[start[7] : start[8]] = 0.0
    assert limit_bursts(rate, debt, calm, start, np.ones(40)).debt is debt


def test_a_window_opens_twofold_and_closes_slowly():
    window = np.zeros(1)
    widths = []
    for _ in range(6):
        window = next_window(window, np.array([20.0]))
        widths.append(float(window[0]))
    assert widths == [2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    for _ in range(35):
        window = next_window(window, np.array([-3.0]))
    assert 9.0 < window[0] < 11.0


def test_a_host_that_always_bursts_is_not_limited_for_long():
    rate, debt, calm, start, _ = _night(flooded=1.0)
    window = np.zeros(40)
    limited = []
    for _ in range(8):
        found = limit_bursts(rate, debt, calm, start, 1.0 + window)
        window = next_window(window, found.ahead_crawls)
        limited.append(found.limited)
    assert limited[0] == 1 and limited[-1] == 0


def test_a_flooded_host_keeps_its_crawls_spread_out():
    """Its pages claim to be due at once; what is left of that must not make them all wait for one night."""
    rate, debt, calm, start, _ = _night(flooded=1.0)
    limited = limit_bursts(rate, debt, calm, start, np.full(40, 1.0)).debt
    mine = slice(int(start[7]), int(start[8]))
    wait = (1.0 - limited[mine]) / rate[mine]
    # Due within one day, three and nine, as by the rates of the host: 11 a day.
    for days in (1.0, 3.0, 9.0):
        usual = np.minimum(1.0, rate[mine] * days).sum()
        assert abs((wait <= days).sum() - usual) < 2.5 * np.sqrt(usual) + 1.0, days
    # They go in the order in which they would have gone, but for those that are crawled often anyway.
    order = np.argsort((1.0 - calm[mine]) / rate[mine])
    assert (np.diff(wait[order]) >= -1e-9).mean() > 0.9


def test_a_host_that_signals_every_change_is_served_at_its_rates():
    """Without signals none of its pages would ever be due: that is not its share."""
    rate, debt, calm, start, signalled = _night(flooded=0.6)
    calm[start[7] : start[8]] = 0.0
    debt[start[7] : start[8]] = signalled[start[7] : start[8]]
    found = limit_bursts(rate, debt, calm, start, np.full(40, 1.0))
    assert found.limited == 1
    mine = slice(int(start[7]), int(start[8]))
    wait = (1.0 - found.debt[mine]) / rate[mine]
    first = np.sort(wait[signalled[mine]])
    assert 2 <= (first <= 1.0).sum() <= 25  # of 11 a day


# ---- rates


def _counted(running, ended=20.0, days=100.0):
    n = len(running)
    group = np.repeat([0, 1], n // 2)
    return credible_signals(
        np.full((n, 1), ended),
        np.full(n, days),
        np.asarray(running, np.float64)[:, None],
        np.full(n, 10.0),
        group,
        2,
    )[:, 0]


def test_signals_since_the_last_crawl_count_as_long_as_they_are_usual():
    running = np.random.default_rng(1).poisson(2.0, 40)
    assert np.array_equal(_counted(running), running)


def test_a_flood_counts_little_more_than_what_is_usual():
    running = np.full(40, 2.0)
    running[20:] = 500.0
    counted = _counted(running)
    assert (counted[:20] == 2.0).all()  # another host
    assert counted[20:].sum() == pytest.approx(40 + 3 * np.sqrt(40) + 1, rel=0.05)
    # One page alone: what is usual for a page.
    running[:] = 2.0
    running[25] = 500.0
    counted = _counted(running)
    assert counted[25] < 2 + 3 * np.sqrt(2) + 1.1 and (counted[:20] == 2.0).all()
    assert counted[20:].sum() > 40.0


def test_a_host_that_never_signalled_before_counts_one():
    counted = _counted(np.full(40, 7.0), ended=0.0)
    assert counted[:20].sum() == pytest.approx(1.0) and counted[20:].sum() == pytest.approx(1.0)
    assert not _counted(np.zeros(40), ended=0.0).any()


def test_what_is_usual_may_be_known_from_elsewhere():
    """Pages of a host that is split: the same numbers whichever of its pages are here."""
    rng = np.random.default_rng(3)
    ended, days = rng.poisson(3.0, (12, 1)).astype(float), rng.uniform(5, 20, 12)
    usual, zeros = np.array([[0.3]]), np.zeros(12, np.int64)
    whole = signal_rates(ended, days, zeros, 1, usual)
    part = signal_rates(ended[:5], days[:5], zeros[:5], 1, usual)
    assert np.array_equal(whole[:5], part)
    assert not np.array_equal(whole[:5], signal_rates(ended[:5], days[:5], zeros[:5], 1))
    own = signal_rates(ended, days, zeros, 1, np.array([[np.nan]]))
    assert np.array_equal(own, signal_rates(ended, days, zeros, 1))
    assert not signal_rates(ended * 0, days, zeros, 1, np.zeros((1, 1))).any()
