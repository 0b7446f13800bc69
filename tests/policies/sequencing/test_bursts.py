"""What the signals of one host may take from the others."""

import numpy as np
import pytest

from policies.sequencing import bursts
from policies.sequencing.bursts import ahead_of_share, allowance, next_window
from policies.sequencing.windows import solve_theta


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


def test_signals_put_a_host_ahead_of_its_share():
    rate, debt, calm, start, _ = _night(flooded=1.0)
    found = ahead_of_share(rate, debt, calm, start)
    claimed = (debt - calm)[start[7] : start[8]].sum()
    assert found[7] == pytest.approx(min(_ahead(rate, debt, start)[7], claimed), rel=1e-9)
    assert found[7] > 12.0
    assert not np.delete(found, 7).any()


def test_few_signals_claim_little():
    rate, debt, calm, start, signalled = _night(flooded=0.02)
    assert ahead_of_share(rate, debt, calm, start)[7] <= (debt - calm)[signalled].sum()


def test_a_host_alone_is_never_ahead():
    rate, debt, calm, _, _ = _night(flooded=1.0)
    assert ahead_of_share(rate, debt, calm, np.array([0, len(rate)]))[0] < 1e-9


def test_pages_without_a_rate_take_no_part():
    rate, debt, calm, start, _ = _night(flooded=1.0)
    rate[start[7] : start[8]] = 0.0
    assert not ahead_of_share(rate, debt, calm, start).any()


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
    ahead, window, limited = ahead_of_share(rate, debt, calm, start), np.zeros(40), []
    for _ in range(8):
        limited.append(int((ahead > 1.0 + window).sum()))
        window = next_window(window, ahead)
    assert limited[0] == 1 and limited[-1] == 0


def test_many_hosts_together_are_bounded():
    """One owner can have any number of hosts."""
    window, ahead = np.zeros(50), np.full(50, 5.0)
    assert allowance(window, ahead, 1.0, 10.0) == pytest.approx(0.2)
    grown = next_window(window, ahead, 10.0)
    assert grown.sum() == pytest.approx(10.0) and (grown == grown[0]).all()
    alone = np.zeros(50)
    alone[3] = 5.0
    assert allowance(window, alone, 1.0, 10.0) == 1.0
    assert next_window(window, alone, 10.0)[3] == 2.0


def test_windows_that_are_not_used_close_whatever_others_ask():
    window, ahead = np.array([8.0, 0.0]), np.array([-1.0, 30.0])
    grown = next_window(window, ahead, 0.5)
    assert grown[0] == pytest.approx(0.98 * 8.0) and grown[1] == pytest.approx(0.5)


def test_a_host_that_is_scheduled_as_a_whole_has_its_share_and_what_it_may_be_ahead():
    rate, start = np.array([1.0, 2.0, 0.0, 3.0, 4.0]), np.array([0, 2, 3, 5])
    share, ahead = bursts.shares_of(rate, start, 20), np.array([2.5, 3.0, 0.0])
    assert share == pytest.approx([6.0, 0.0, 14.0])
    assert bursts.most_of(share, ahead).tolist() == [8, 3, 14]
    # By rates: what is asked for in all is the share with what comes before it.
    times = bursts.times_of(share, ahead)
    assert times == pytest.approx([8.5 / 6.0, 1.0, 1.0])
    assert bursts.most_of(np.zeros(1), np.zeros(1)).tolist() == [1]
