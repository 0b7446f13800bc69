"""What a burst of signals may do before crawls have shown what it is worth.

A signal moves its page forward at once, before any crawl has shown whether it was true. A host that suddenly
signals everything (a broken feed, an attack) would push its pages before those of all others. Here the claims
that signals make for one host are bounded by what they used to be: as a sender of packets feels its way, a
host may be ahead of its share by so many crawls as it was lately, and by twice as many every night that it
asks for more. Its pages go in the order of their signals in any case. Meanwhile crawls show what the signals
are worth; before they do, a burst does not raise the rates of signals, by which crawls are allocated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.signal_estimation import signal_rates
from policies.typing_ import FloatArray, IntArray
from policies.windows import solve_theta

WINDOW_KEPT = 0.98
"""Of a window that was not used, every night: half is gone after five weeks."""

_STEPS = 30
_TOLERANCE = 1e-6  # crawls
_HALVINGS = 50
_LONGEST = 2.0**40
_ERRORS = 3.0


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
    Where signals put it ahead by more than its limit, all its pages wait longer, until it is ahead by the
    limit, or by what it would be without signals if that is more.

    Pages go in the order of their signals, and their waits stay spread out, as they were without signals.
    Were all pages of a host due at the same time, as all claim to be in a flood, none would be crawled for
    some nights, and nothing learned of the signals, and then all at once.

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
    claims = _sums(host, debt[rows], n_hosts)
    served = _served(share, debt[rows], host, n_hosts)
    ahead = np.where(moved > 0.0, claims - served, 0.0)
    calm = _sums(host, calm_debt[rows], n_hosts)
    # No host can be ahead by more than it has moved.
    suspects = np.flatnonzero(moved > limit_crawls)
    back = {
        j: _Spread.of(crawl_rate_per_day, debt, calm_debt, int(host_start[j]), int(host_start[j + 1]))
        for j in suspects[ahead[suspects] > limit_crawls[suspects]].tolist()
    }
    if not back:
        return Bursts(debt, ahead, 0)
    limited = debt.copy()
    for _ in range(_STEPS):
        before = limited.copy()
        for j, pages in back.items():
            most = max(float(limit_crawls[j]), float(calm[j] - served[j]))
            limited[pages.rows] = pages.debts(float(served[j]) + most)
        served = _served(share, limited[rows], host, n_hosts)
        if np.abs(limited - before).max() < _TOLERANCE:
            break
        for j in suspects.tolist():  # what some hosts do not get may put others ahead
            if j not in back and claims[j] - served[j] > limit_crawls[j]:
                back[j] = _Spread.of(
                    crawl_rate_per_day, debt, calm_debt, int(host_start[j]), int(host_start[j + 1])
                )
    return Bursts(limited, ahead, len(back))


@dataclass(frozen=True, slots=True)
class _Spread:
    """The pages of one host in the order in which their signals put them: claims, and waits without signals.

    A page that is owed ``d`` waits ``(1 - d) / rate`` days.
    """

    rows: IntArray
    rate: FloatArray
    debt: FloatArray
    claimed_days: FloatArray
    calm_days: FloatArray

    @classmethod
    def of(
        cls, crawl_rate_per_day: FloatArray, debt: FloatArray, calm_debt: FloatArray, first: int, end: int
    ) -> _Spread:
        rows = first + np.flatnonzero(crawl_rate_per_day[first:end] > 0.0)
        rate, debt = crawl_rate_per_day[rows], debt[rows]
        claimed, calm = (1.0 - debt) / rate, (1.0 - calm_debt[rows]) / rate
        order = np.lexsort((calm, claimed))
        # The r-th page goes when the r-th would go without signals, or when it would if the host was served
        # evenly at its rate: a host that signals all its changes has no calm crawls at all.
        sooner = np.minimum(np.sort(calm), _even_waits(rate))
        return cls(rows[order], rate[order], debt[order], claimed[order], sooner)

    def debts(self, total: float) -> FloatArray:
        """Debts of this sum, or the claims if they are less."""
        low, high = 0.0, 1.0
        while self._at(high).sum() > total and high < _LONGEST:
            low, high = high, 2.0 * high
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            if self._at(middle).sum() > total:
                low = middle
            else:
                high = middle
        return self._at(high)

    def _at(self, back: float) -> FloatArray:
        wait = self.claimed_days + back * np.maximum(self.calm_days - self.claimed_days, 0.0)
        out: FloatArray = np.clip(1.0 - wait * self.rate, 0.0, self.debt)
        return out


def _even_waits(rate: FloatArray) -> FloatArray:
    """When the r-th page of a host is due if their phases are even: (n,) days, ascending."""
    window = np.sort(1.0 / rate)
    n = len(window)
    rest = np.append(np.cumsum((1.0 / window)[::-1])[::-1][1:], 0.0)  # rate of the pages with longer windows
    due = np.arange(1, n + 1) + window * rest
    waits: FloatArray = np.interp(np.arange(n) + 0.5, np.append(0.0, due), np.append(0.0, window))
    return waits


def _served(share: FloatArray, debt: FloatArray, host: IntArray, n_hosts: int) -> FloatArray:
    """What the share of each host is by the time that all debts are paid."""
    theta = float(solve_theta(share, debt, np.array([0, len(share)]))[0])
    return _sums(host, np.minimum(1.0, share * theta), n_hosts)


def credible_signals(
    ended: FloatArray,
    ended_days: FloatArray,
    running: FloatArray,
    running_days: FloatArray,
    group: IntArray,
    n_groups: int,
    usual_per_day: FloatArray | None = None,
) -> FloatArray:
    """Signals of running intervals, as far as they may count for rates.

    Parameters
    ----------
    ended, running : (n, S) float64
        Signals of each page and source in intervals that a crawl has ended, and since the last crawl.
    ended_days, running_days : (n,) float64, days
        Time in which those were listened to.
    group : (n,) int64, 0..n_groups-1
        Host of each page.
    n_groups : int
    usual_per_day : (n_groups, S) float64, optional
        As in `policies.signal_estimation.signal_rates`.

    Returns
    -------
    (n, S) float64
        `running`, cut at three standard errors and one signal above what ended intervals let expect: for
        each page, and then in proportion for each host and source. On most nights nothing is cut.
    """
    usual = signal_rates(ended, ended_days, group, n_groups, usual_per_day) * running_days[:, None]
    kept = np.minimum(running, usual + _ERRORS * np.sqrt(usual) + 1.0)
    for j in range(kept.shape[1]):
        expected = _sums(group, usual[:, j], n_groups)
        most = expected + _ERRORS * np.sqrt(expected) + 1.0
        sent = _sums(group, kept[:, j], n_groups)
        kept[:, j] *= np.where(sent > most, most / np.maximum(sent, 1.0), 1.0)[group]
    return kept


def _sums(host: IntArray, values: FloatArray, n_hosts: int) -> FloatArray:
    return np.bincount(host, weights=values, minlength=n_hosts).astype(np.float64, copy=False)
