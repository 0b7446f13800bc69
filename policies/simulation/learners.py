"""A crawler that estimates change rates every night and crawls at the best rates for them.

The plain form of what the nightly job does, for any way to estimate: one host, no politeness, crawls at equal
distances. `from_crawls` learns from its own crawls as the job's estimator does; `uncensored` and `known`
are the references of `policies.simulation.references`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.estimation import prior
from policies.history import evidence
from policies.history.evidence import Evidence
from policies.history.page_state import US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.page_block import PageBlock
from policies.simulation.histories import ChangeHistory
from policies.simulation.intervals import CrawlTimes, Pace, first_phases, free_crawls, gathered
from policies.simulation.references import known_rates, uncensored_evidence

HALF_LIFE_CHANGES = 12.0
"""After how many changes of its own a page has forgotten half, as in the job."""


@dataclass(frozen=True)
class Known:
    """What is known at a night. References look at `history`, too; a crawler must not.

    Attributes
    ----------
    as_of_us : int
    page, at_us : (m,) int64
        Own crawls so far, sorted by page, then time.
    changed : (m,) bool
        Whether the page was not as its crawl before had found it; False at the first.
    first_us, last_us : (n,) int64
        First and last own crawl of each page; `as_of_us` where it had none.
    group : (n,) int64
        Groups of pages that are alike, numbered from 0.
    history : ChangeHistory
    """

    as_of_us: int
    page: IntArray
    at_us: IntArray
    changed: BoolArray
    first_us: IntArray
    last_us: IntArray
    group: IntArray
    history: ChangeHistory


Learner = Callable[[Known], FloatArray]
"""Change rates per day of all pages, (n,) float64."""


def _rates(found: Evidence, group: IntArray) -> FloatArray:
    n_groups = int(group.max(initial=0)) + 1
    return prior.estimate(found, group, n_groups, prior.fit_prior(found, group)).change_rate_per_day


def from_crawls(known: Known) -> FloatArray:
    """From own crawls alone, by the default estimator with a prior learned from all pages."""
    gap = (np.diff(known.page) == 0) & (np.diff(known.at_us) > 0)
    page, changed = known.page[1:][gap], known.changed[1:][gap]
    found = evidence.from_intervals(
        page,
        np.diff(known.at_us)[gap] / US_PER_DAY,
        changed,
        weight=evidence.forgetting_weights(page, changed, HALF_LIFE_CHANGES),
        n_pages=len(known.group),
    )
    return _rates(found, known.group)


def uncensored(known: Known) -> FloatArray:
    """Told every change of a page between its first and its last own crawl; the same prior and forgetting."""
    found = uncensored_evidence(known.history, known.first_us, known.last_us, HALF_LIFE_CHANGES)
    return _rates(found, known.group)


def known(after_us: int, until_us: int) -> Learner:
    """Told the number of changes between two instants, whatever the night: `known_rates`."""

    def learn(at_night: Known) -> FloatArray:
        return known_rates(at_night.history, after_us, until_us)

    return learn


def run_nights(
    history: ChangeHistory,
    learner: Learner,
    crawls_per_page_day: float,
    weight: FloatArray | None = None,
    objective: str = "periodic",
    group: IntArray | None = None,
    seed: int = 0,
) -> CrawlTimes:
    """Crawl through a history, learning on the way.

    Parameters
    ----------
    history : ChangeHistory
        Of n pages.
    learner : callable
    crawls_per_page_day : float
        Budget, per page known at the night.
    weight : (n,) float64, optional
        Request rates; equal if left out.
    objective : str
        Name of an objective of `policies.objectives.objectives`.
    group : (n,) int64, optional
        One group if left out.
    seed : int
        Of free crawls and phases, as in `policies.simulation.intervals`.

    Returns
    -------
    CrawlTimes
        Of the days after the nights.
    """
    n = len(history)
    w = np.ones(n) if weight is None else weight
    g = np.zeros(n, np.int64) if group is None else group
    free_us = free_crawls(history, seed)
    pace = Pace(free_us, first_phases(history, seed))
    pages: list[IntArray] = []
    times: list[IntArray] = []
    for as_of_us in history.nights().tolist():
        so_far = gathered(free_us, pages, times, as_of_us + 1)
        version = history.version(so_far.page, so_far.at_us)
        again = np.diff(so_far.page, prepend=-1) == 0
        first_us, last_us = np.full(n, as_of_us), np.full(n, as_of_us)
        first_us[so_far.page[::-1]] = so_far.at_us[::-1]
        last_us[so_far.page] = so_far.at_us
        rates = learner(
            Known(
                as_of_us,
                so_far.page,
                so_far.at_us,
                again & (np.diff(version, prepend=-1) != 0),
                first_us,
                last_us,
                g,
                history,
            )
        )
        there = history.first_us <= as_of_us
        block = PageBlock(rates[there], w[there])
        budget = crawls_per_page_day * float(np.count_nonzero(there))
        _, (allocation,) = search.solve(block, objectives.get(objective), budget)
        rate = np.zeros(n)
        rate[there] = allocation.crawl_rate_per_day
        page, at_us = pace.advance(rate, as_of_us, as_of_us + US_PER_DAY)
        pages.append(page)
        times.append(at_us)
    return gathered(free_us, pages, times, history.end_us)
