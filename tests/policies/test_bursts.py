"""What the signals of one host may take from the others."""

import numpy as np
import pytest

from policies.bursts import limit_bursts, next_window
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
