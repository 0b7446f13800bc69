"""How many slots the signals of one host may take from others in one night.

A signal moves its page forward at once, before any crawl has shown whether it was true. A host that signals
everything (a deployment, a broken feed, an attack) would push its pages before those of all others. Here the
claims that signals make for one host are cut: its pages still go in the order of their signals, but together
they displace no more than a small share of the night.
"""

from __future__ import annotations

import numpy as np

from policies.typing_ import FloatArray, IntArray
from policies.windows import solve_theta

_STEPS = 30
_TOLERANCE = 1e-6  # crawls


def limit_bursts(
    crawl_rate_per_day: FloatArray,
    debt: FloatArray,
    calm_debt: FloatArray,
    host_start: IntArray,
    limit_crawls: float,
) -> FloatArray:
    """Debts in which no host is ahead of its share by much because of signals.

    A host is ahead by ``sum(debt - min(1, share * theta))`` crawls over its pages, see `policies.sequencing`.
    Where signals put it ahead by more than `limit_crawls`, all its pages step back, each in proportion to its
    share, until it is ahead by the limit, or by what it would be without signals if that is more.

    Parameters
    ----------
    crawl_rate_per_day : (n,) float64
        Pages with rate 0 take no part.
    debt, calm_debt : (n,) float64, in [0, 1]
        Crawls each page is owed, with its signals and if there had been none; ``calm_debt <= debt``.
    host_start : (h + 1,) int64
        Rows ``host_start[j]:host_start[j + 1]`` are host j.
    limit_crawls : float

    Returns
    -------
    (n,) float64
        In [0, debt].
    """
    n_hosts = len(host_start) - 1
    rows = np.flatnonzero(crawl_rate_per_day > 0.0)
    host = np.repeat(np.arange(n_hosts), np.diff(host_start))[rows]
    moved = _sums(host, (debt - calm_debt)[rows], n_hosts)
    suspects = np.flatnonzero(moved > limit_crawls)  # no host can be ahead by more than it has moved
    if not len(suspects):
        return debt
    share = crawl_rate_per_day[rows] / crawl_rate_per_day[rows].sum()
    claimed, due = debt[rows], debt[rows]
    mine = np.flatnonzero(np.isin(host, suspects))
    sizes = np.bincount(host[mine], minlength=n_hosts)[suspects]
    start = np.concatenate([[0], np.cumsum(sizes)])
    claims, calm = _sums(host, claimed, n_hosts)[suspects], _sums(host, calm_debt[rows], n_hosts)[suspects]
    for _ in range(_STEPS):
        theta = solve_theta(share, due, np.array([0, len(rows)]))[0]
        served = _sums(host, np.minimum(1.0, share * theta), n_hosts)[suspects]
        ahead = np.maximum(limit_crawls, calm - served)
        own_theta = np.maximum(solve_theta(share[mine], claimed[mine], start, -ahead), theta)
        own_theta[claims - served <= ahead] = theta
        step = np.minimum(1.0, share[mine] * np.repeat(own_theta, sizes))
        step -= np.minimum(1.0, share[mine] * theta)
        before = due
        due = claimed.copy()
        due[mine] = np.maximum(claimed[mine] - step, 0.0)
        if np.abs(due - before).max() < _TOLERANCE:
            break
    limited = debt.copy()
    limited[rows] = due
    return limited


def _sums(host: IntArray, values: FloatArray, n_hosts: int) -> FloatArray:
    return np.bincount(host, weights=values, minlength=n_hosts).astype(np.float64, copy=False)
