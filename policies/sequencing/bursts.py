"""What a burst of signals may do before crawls have shown what it is worth.

A signal moves its page forward at once, before any crawl has shown whether it was true. A host that suddenly
signals everything (a broken feed, an attack) would push its pages before those of all others. Here the claims
that signals make for one host are bounded by what they used to be: as a sender of packets feels its way, a
host may be ahead of its share by so many crawls as it was lately, and by twice as many every night that it
asks for more. A host that asks for too much is scheduled as a whole: it gets what it may, and shares that
among its pages in the order of their signals. Meanwhile crawls show what the signals are worth; before they
do, a burst does not raise the rates of signals, by which crawls are allocated: see
`policies.signals.host_signals`.
"""

from __future__ import annotations

import numpy as np

from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray
from policies.sequencing.windows import solve_theta

WINDOW_KEPT = 0.98
"""Of a window that was not used, every night: half is gone after five weeks."""


def next_window(
    window_crawls: FloatArray, ahead_crawls: FloatArray, total_crawls: float = np.inf
) -> FloatArray:
    """What hosts may be ahead tomorrow without being limited: (h,) float64, crawls.

    Together windows grow by no more than `total_crawls` a night.
    """
    asked = np.minimum(np.maximum(ahead_crawls, 0.0), 2.0 * np.maximum(window_crawls, 1.0))
    growth = np.maximum(asked - window_crawls, 0.0)
    wanted = float(growth.sum())
    if wanted > total_crawls:
        growth *= total_crawls / wanted
    out: FloatArray = np.maximum(window_crawls * WINDOW_KEPT, np.minimum(asked, window_crawls) + growth)
    return out


def allowance(
    window_crawls: FloatArray, ahead_crawls: FloatArray, most_crawls: float, total_crawls: float
) -> float:
    """What each host may be ahead tonight beyond its window, so that all together stay within the total.

    One owner can have any number of hosts: a bound for each of them bounds nothing.
    """
    asking = int(np.count_nonzero(ahead_crawls > window_crawls))
    return min(most_crawls, total_crawls / max(asking, 1))


def ahead_of_share(
    crawl_rate_per_day: FloatArray, debt: FloatArray, calm_debt: FloatArray, host_start: IntArray
) -> FloatArray:
    """How far signals would put each host ahead of its share tonight: (h,) float64, crawls.

    A host is ahead by ``sum(debt - min(1, share * theta))`` over its pages, see
    `policies.sequencing.sequencing`, but by no more than its signals claim.

    Parameters
    ----------
    crawl_rate_per_day : (n,) float64
        Pages with rate 0 take no part.
    debt, calm_debt : (n,) float64, in [0, 1]
        Crawls each page is owed, with its signals and if there had been none; ``calm_debt <= debt``.
    host_start : (h + 1,) int64
        Rows ``host_start[j]:host_start[j + 1]`` are host j.
    """
    n_hosts = len(host_start) - 1
    rows = np.flatnonzero(crawl_rate_per_day > 0.0)
    host = np.repeat(np.arange(n_hosts), np.diff(host_start))[rows]
    moved = sum_by(host, (debt - calm_debt)[rows], n_hosts)
    if not (moved > 0.0).any():
        return np.zeros(n_hosts)
    share = crawl_rate_per_day[rows] / crawl_rate_per_day[rows].sum()
    theta = float(solve_theta(share, debt[rows], np.array([0, len(rows)]))[0])
    served = sum_by(host, np.minimum(1.0, share * theta), n_hosts)
    ahead = np.minimum(sum_by(host, debt[rows], n_hosts) - served, moved)
    out: FloatArray = np.where(moved > 0.0, np.maximum(ahead, 0.0), 0.0)
    return out


def shares_of(crawl_rate_per_day: FloatArray, host_start: IntArray, slots: float) -> FloatArray:
    """What each host has of so many slots by the rates of its pages: (h,) float64, crawls."""
    pages = np.diff(host_start)
    rate = np.add.reduceat(crawl_rate_per_day, host_start[:-1]) * (pages > 0)
    out: FloatArray = rate * (slots / max(rate.sum(), 1e-300))
    return out


def most_of(share: FloatArray, ahead_crawls: FloatArray) -> IntArray:
    """Crawls that hosts may have by their shares and what they may be ahead of these: (h,) int64."""
    return np.maximum(np.floor(share + ahead_crawls), 1.0).astype(np.int64)


def times_of(share: FloatArray, ahead_crawls: FloatArray) -> FloatArray:
    """The same as a factor of the rates of hosts; 1 of those without a share: (h,) float64."""
    out: FloatArray = 1.0 + np.where(share > 0.0, ahead_crawls / np.maximum(share, 1e-300), 0.0)
    return out
