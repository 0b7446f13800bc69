"""How fresh copies were: exact from the times of changes and crawls, nothing sampled.

Crawls are two arrays, `page` and `at_us`, sorted by page, then time. A copy is fresh from its crawl to the
page's next change, whatever the page then changes to; a page without a copy is stale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.history.page_state import US_PER_DAY
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray
from policies.simulation.histories import NEVER, ChangeHistory


def sort_crawls(page: IntArray, at_us: IntArray) -> tuple[IntArray, IntArray]:
    """The crawls by page, then time."""
    order = np.lexsort((at_us, page))
    return page[order], at_us[order]


def _until_next_crawl(page: IntArray, at_us: IntArray) -> IntArray:
    same = page[1:] == page[:-1]
    return np.append(np.where(same, at_us[1:], NEVER), np.full(min(len(page), 1), NEVER))


def fresh_until(history: ChangeHistory, page: IntArray, at_us: IntArray) -> IntArray:
    """When each crawl's copy became stale or was replaced, microseconds UTC, (m,) int64; `NEVER` if not."""
    return np.minimum(history.next_change(page, at_us), _until_next_crawl(page, at_us))


def fresh_days(
    history: ChangeHistory, page: IntArray, at_us: IntArray, after_us: int, until_us: int
) -> FloatArray:
    """Days between two instants in which each page's copy was fresh, (n,) float64.

    Divided by `ChangeHistory.held_days` it is the page's freshness, and any weights can be laid on both.
    """
    stop = np.minimum(fresh_until(history, page, at_us), until_us)
    inside = np.maximum(stop - np.maximum(at_us, after_us), 0)
    return sum_by(page, inside / US_PER_DAY, len(history))


def weighted(fresh: FloatArray, held: FloatArray, weight: FloatArray | None = None) -> FloatArray:
    """Weighted share of the time in which copies were fresh: the share of fresh requests.

    Parameters
    ----------
    fresh, held : (n,) float64, days
        Of each page: `fresh_days` and `ChangeHistory.held_days`.
    weight : (n,) or (d, n) float64, optional
        Request rates; equal if left out. Several rows are several draws of which pages are popular.

    Returns
    -------
    () or (d,) float64

    Raises
    ------
    ValueError
        Where the weighted time is zero: there is nothing to average over.
    """
    w = np.ones(len(held)) if weight is None else weight
    # Not by BLAS, whose sums depend on its threads.
    total = (w * held).sum(axis=-1)
    if not np.all(total > 0):
        raise ValueError("no page with a weight was there in this time: nothing to average freshness over")
    return np.asarray((w * fresh).sum(axis=-1) / total)


def by_period(
    history: ChangeHistory,
    page: IntArray,
    at_us: IntArray,
    edges_us: IntArray,
    weight: FloatArray | None = None,
    group: IntArray | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Weight times days of fresh copies and of known pages in each period between two edges.

    Parameters
    ----------
    page, at_us : (m,) int64
    edges_us : (d + 1,) int64, ascending
        E.g. midnights.
    weight : (n,) float64, optional
    group : (n,) int64, optional
        Groups of pages to be told apart, numbered from 0.

    Returns
    -------
    fresh, held : (d, groups) float64
    """
    w = np.ones(len(history)) if weight is None else weight
    g = np.zeros(len(history), np.int64) if group is None else group
    groups = int(g.max(initial=0)) + 1
    everything = np.arange(len(history))

    def passed(of: IntArray, start_us: IntArray, stop_us: IntArray) -> FloatArray:
        out = np.zeros((len(edges_us) - 1, groups))
        start = np.clip(start_us, edges_us[0], edges_us[-1])
        stop = np.clip(stop_us, edges_us[0], edges_us[-1])
        real = stop > start
        of, start, stop = of[real], start[real], stop[real]
        # A span meets the periods from that of its start to that of its end.
        first = np.searchsorted(edges_us, start, side="right") - 1
        last = np.searchsorted(edges_us, stop, side="left") - 1
        while len(of):
            part = np.minimum(stop, edges_us[first + 1]) - np.maximum(start, edges_us[first])
            np.add.at(out, (first, g[of]), w[of] * (part / US_PER_DAY))
            more = first < last
            of, start, stop, first, last = of[more], start[more], stop[more], first[more] + 1, last[more]
        return out

    end = np.full(len(history), int(edges_us[-1]))
    return (
        passed(page, at_us, fresh_until(history, page, at_us)),
        passed(everything, history.first_us, end),
    )


def _last_crawl_index(page: IntArray, at_us: IntArray, asked: IntArray, when_us: IntArray) -> IntArray:
    """Index of each page's last crawl up to an instant; -1 if it had none."""
    times, span = np.sort(at_us), np.int64(len(at_us) + 1)
    key = page * span + np.searchsorted(times, at_us, "right")
    at = np.searchsorted(key, asked * span + np.searchsorted(times, when_us, "right"), side="right") - 1
    return np.where(np.append(page, -1)[at] == asked, at, -1)


def harmonic_cost(
    history: ChangeHistory,
    page: IntArray,
    at_us: IntArray,
    after_us: int,
    until_us: int,
) -> FloatArray:
    """Time integral of 1 + 1/2 + ... + 1/k, k the changes since the copy was made; days, (n,) float64.

    The harmonic staleness penalty of Kolobov et al., "Staying up to date with online content changes",
    section 3. Divided by `held_days`, weighted by requests, it is the mean cost of a request. Time without
    a copy is left out: it has no number of changes.
    """
    crawl = _last_crawl_index(page, at_us, history.change_page, history.change_us)
    change = np.flatnonzero(crawl >= 0)
    of, crawl = history.change_page[change], crawl[change]
    rank = change - history.position(of, at_us[crawl]) + 1
    stop = np.minimum(_until_next_crawl(page, at_us)[crawl], until_us)
    stale = np.maximum(stop - np.maximum(history.change_us[change], after_us), 0)
    # A crawl at the very instant of a change has seen it: no change since.
    since = rank > 0
    return sum_by(of[since], stale[since] / US_PER_DAY / rank[since], len(history))


@dataclass(frozen=True)
class Use:
    """What crawls were spent on.

    Attributes
    ----------
    crawls, found : int
        Crawls, and those after which a page was not as its crawl before had found it.
    per_page_day : float
        Crawls per page and day.
    pages : int
        Pages crawled at least once.
    """

    crawls: int
    found: int
    per_page_day: float
    pages: int


def resource_use(
    history: ChangeHistory, page: IntArray, at_us: IntArray, after_us: int, until_us: int
) -> Use:
    """Crawls later than the one instant and not later than the other; earlier ones tell what they found."""
    version = history.version(page, at_us)
    again = np.diff(page, prepend=-1) == 0
    changed = again & (np.diff(version, prepend=-1) != 0)
    inside = (at_us > after_us) & (at_us <= until_us)
    held = float(history.held_days(after_us, until_us).sum())
    crawls = int(np.count_nonzero(inside))
    return Use(
        crawls,
        int(np.count_nonzero(changed & inside)),
        crawls / held if held else 0.0,
        len(np.unique(page[inside])),
    )


def zipf_weights(n: int, seed: int) -> FloatArray:
    """Weights 1/rank, which page has which rank by the seed; their mean is 1; (n,) float64."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    weight = rng.permutation(1.0 / np.arange(1, n + 1))
    return np.asarray(weight * (n / weight.sum()))
