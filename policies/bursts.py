"""How many slots the signals of one host may take from others in one night.

A signal moves its page forward at once, before any crawl has shown whether it was true. A host that suddenly
signals everything (a broken feed, an attack) would push its pages before those of all others. Here the claims
that signals make for one host are bounded by what they used to be: as a sender of packets feels its way, a
host may be ahead of its share by so many crawls as it was lately, and by twice as many every night that it
asks for more. Its pages go in the order of their signals in any case. Meanwhile crawls show what the signals
are worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.typing_ import FloatArray, IntArray
from policies.windows import solve_theta

WINDOW_KEPT = 0.98
"""Of a window that was not used, every night: half is gone after five weeks."""

_STEPS = 30
_TOLERANCE = 1e-6  # crawls


@dataclass(frozen=True, slots=True)
class Bursts:
    """What signals may claim.

    Attributes
    ----------
    debt : (n,) float64, in [0, 1]
        Crawls each page is owed.
    ahead_crawls : (h,) float64
        How far each host would be ahead of its share with all that its signals claim; 0 where they claim
        nothing.
    limited : int
        Hosts that had to step back.
    """

    debt: FloatArray
    ahead_crawls: FloatArray
    limited: int


def next_window(window_crawls: FloatArray, ahead_crawls: FloatArray) -> FloatArray:
    """What hosts may be ahead tomorrow without being limited: (h,) float64, crawls."""
    asked = np.minimum(np.maximum(ahead_crawls, 0.0), 2.0 * np.maximum(window_crawls, 1.0))
    return np.maximum(window_crawls * WINDOW_KEPT, asked)


def limit_bursts(
    crawl_rate_per_day: FloatArray,
    debt: FloatArray,
    calm_debt: FloatArray,
    host_start: IntArray,
    limit_crawls: FloatArray,
) -> Bursts:
    """Debts in which no host is ahead of its share by too much because of signals.

    A host is ahead by ``sum(debt - min(1, share * theta))`` crawls over its pages, see `policies.sequencing`.
    Where signals put it ahead by more than its limit, all its pages step back, each in proportion to its
    share, until it is ahead by the limit, or by what it would be without signals if that is more.

    Parameters
    ----------
    crawl_rate_per_day : (n,) float64
        Pages with rate 0 take no part.
    debt, calm_debt : (n,) float64, in [0, 1]
        Crawls each page is owed, with its signals and if there had been none; ``calm_debt <= debt``.
    host_start : (h + 1,) int64
        Rows ``host_start[j]:host_start[j + 1]`` are host j.
    limit_crawls : (h,) float64

    Returns
    -------
    Bursts
        With debts in [0, debt].
    """
    n_hosts = len(host_start) - 1
    rows = np.flatnonzero(crawl_rate_per_day > 0.0)
    host = np.repeat(np.arange(n_hosts), np.diff(host_start))[rows]
    moved = _sums(host, (debt - calm_debt)[rows], n_hosts)
    if not (moved > 0.0).any():
        return Bursts(debt, np.zeros(n_hosts), 0)
    share = crawl_rate_per_day[rows] / crawl_rate_per_day[rows].sum()
    claimed, due = debt[rows], debt[rows]
    claims, calm = _sums(host, claimed, n_hosts), _sums(host, calm_debt[rows], n_hosts)
    theta, served = _served(share, due, host, n_hosts)
    ahead = np.where(moved > 0.0, claims - served, 0.0)
    # No host can be ahead by more than it has moved, or than it is without the others stepping back.
    suspects = np.flatnonzero(moved > limit_crawls)
    if not (ahead[suspects] > limit_crawls[suspects]).any():
        return Bursts(debt, ahead, 0)
    mine = np.flatnonzero(np.isin(host, suspects))
    sizes = np.bincount(host[mine], minlength=n_hosts)[suspects]
    start = np.concatenate([[0], np.cumsum(sizes)])
    back = np.zeros(len(suspects), np.bool_)
    for _ in range(_STEPS):
        most = np.maximum(limit_crawls[suspects], calm[suspects] - served[suspects])
        back = claims[suspects] - served[suspects] > most
        own_theta = np.maximum(solve_theta(share[mine], claimed[mine], start, -most), theta)
        own_theta[~back] = theta
        step = np.minimum(1.0, share[mine] * np.repeat(own_theta, sizes))
        step -= np.minimum(1.0, share[mine] * theta)
        before = due
        due = claimed.copy()
        due[mine] = np.maximum(claimed[mine] - step, 0.0)
        if np.abs(due - before).max() < _TOLERANCE:
            break
        theta, served = _served(share, due, host, n_hosts)
    limited = debt.copy()
    limited[rows] = due
    return Bursts(limited, ahead, int(np.count_nonzero(back)))


def _served(share: FloatArray, debt: FloatArray, host: IntArray, n_hosts: int) -> tuple[float, FloatArray]:
    """Theta of all pages, and what each host's share is by then."""
    theta = float(solve_theta(share, debt, np.array([0, len(share)]))[0])
    return theta, _sums(host, np.minimum(1.0, share * theta), n_hosts)


def _sums(host: IntArray, values: FloatArray, n_hosts: int) -> FloatArray:
    return np.bincount(host, weights=values, minlength=n_hosts).astype(np.float64, copy=False)
