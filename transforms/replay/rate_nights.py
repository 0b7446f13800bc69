"""Nights of other policies in a closed loop: change rates from somewhere, crawl rates by some rule, an order.

Where change rates come from is an `Estimates`; how they share the budget out, a name of
`policies.rules.rate_policies`; in which order pages are crawled at these rates, `EVEN` or `RANDOM`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import numpy as np
import pyarrow as pa

from policies.estimation import prior
from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import FloatArray, IntArray
from policies.rules.rate_policies import Parameters, rates
from policies.sequencing import quotas, sequencing
from policies.simulation.references import known_rates, uncensored_evidence
from transforms.replay.closed_loop import Day, Planned, Planner
from transforms.replay.job_nights import JobFold
from transforms.replay.worlds import World

EVEN: Final = "even"
"""Crawls of a page at equal distances, as the nightly job spreads them."""

RANDOM: Final = "random"
"""Every slot goes to a page at random, in proportion to the rates, as policies of crawl probabilities do."""

HISTORY_DAYS: Final = 30.0
HALF_LIFE_CHANGES: Final = 12.0


class Estimates(ABC):
    """Change rates of pages, (n,) per day, as a night knows them."""

    @abstractmethod
    def change_rates(self, day: Day, known: IntArray) -> FloatArray:
        """Of the pages that are there, (k,) float64."""


class NoEstimates(Estimates):
    """For policies that do not look at changes."""

    def change_rates(self, day: Day, known: IntArray) -> FloatArray:
        return np.ones(len(known))


class JobEstimates(Estimates):
    """What the nightly job would think, from this policy's own crawls."""

    def __init__(self, fold: JobFold) -> None:
        self._fold = fold
        self._carried: list[pa.RecordBatch] = []

    def change_rates(self, day: Day, known: IntArray) -> FloatArray:
        fold, estimated = self._fold.fold(day, self._carried, None)
        self._carried = [rows for _, rows in fold.files()]
        rate = np.zeros(int(known.max(initial=-1)) + 1)
        rate[self._fold.page] = estimated.tables["pages"].column("change_rate_per_day").to_numpy()
        return rate[known]


class MetadataMeans(Estimates):
    """Of each page what the pages with the same metadata have on average, its own history being one of them.

    Parameters
    ----------
    of : Estimates
        Of single pages.
    group : (n,) int64
        Pages with the same metadata have the same number.
    """

    def __init__(self, of: Estimates, group: IntArray) -> None:
        self._of, self._group = of, group

    def change_rates(self, day: Day, known: IntArray) -> FloatArray:
        return group_means(self._of.change_rates(day, known), self._group[known])


def group_means(values: FloatArray, group: IntArray) -> FloatArray:
    """The mean of each value's group, (n,)."""
    mean: FloatArray = (np.bincount(group, values) / np.maximum(np.bincount(group), 1))[group]
    return mean


class Averages(Estimates):
    """Changes found in the last 30 days by own crawls, a day: what a report of a crawl log shows."""

    def __init__(self, world: World) -> None:
        self._first_us, self._log = world.history.first_us, [np.zeros((2, 0), np.int64)]

    def change_rates(self, day: Day, known: IntArray) -> FloatArray:
        since = day.as_of_us - round(HISTORY_DAYS * US_PER_DAY)
        self._log.append(np.array([day.page[day.changed], day.at_us[day.changed]]))
        self._log = [part[:, part[1] > since] for part in self._log if part.size]
        page = np.concatenate([part[0] for part in self._log]) if self._log else np.zeros(0, np.int64)
        found = np.bincount(page, minlength=len(self._first_us))[known]
        days = np.minimum((day.as_of_us - self._first_us[known]) / US_PER_DAY, HISTORY_DAYS)
        # Half a change more: a page without any would never be looked at again.
        return (found + 0.5) / np.maximum(days, 1.0)


class KnownRates(Estimates):
    """Rates of a stretch of the history itself: a reference, for no crawler knows the future.

    Parameters
    ----------
    world : World
    after_us, until_us : int
        The stretch.
    """

    def __init__(self, world: World, after_us: int, until_us: int) -> None:
        self._rate = known_rates(world.history, after_us, until_us)

    def change_rates(self, day: Day, known: IntArray) -> FloatArray:
        return self._rate[known]


class Uncensored(Estimates):
    """The job's estimates for a learner that is told every true change up to its own last crawl of a page."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._first_us = np.full(len(world), NO_TIME)

    def change_rates(self, day: Day, known: IntArray) -> FloatArray:
        opened = (np.diff(day.page, prepend=-1) != 0) & (day.last_before_us[day.page] == NO_TIME)
        self._first_us[day.page[opened]] = day.at_us[opened]
        history = self._world.history
        evidence = uncensored_evidence(history, self._first_us, day.last_us, HALF_LIFE_CHANGES).take(known)
        host, n_hosts = self._world.host[known], len(self._world.hosts)
        change = prior.fit_prior(evidence, host)
        return prior.estimate(evidence, host, n_hosts, change).change_rate_per_day


class RateNights(Planner):
    """Crawls at the rates of a policy.

    Parameters
    ----------
    world : World
    estimates : Estimates
    policy : str
        A name of `policies.rules.rate_policies`.
    crawls_per_page : float
        Budget per day, in crawls per known page.
    weight : (n,) float64
    order : str
        `EVEN` or `RANDOM`.
    key : int
        Of the random order.
    """

    def __init__(
        self,
        world: World,
        estimates: Estimates,
        policy: str,
        crawls_per_page: float,
        weight: FloatArray,
        order: str = EVEN,
        key: int = 0,
    ) -> None:
        self._world, self._estimates, self._policy = world, estimates, policy
        self._crawls_per_page, self._weight, self._order = crawls_per_page, weight, order
        self._rng = np.random.Generator(np.random.Philox(key=key))
        self._owed = 0.0

    def plan(self, day: Day) -> Planned:
        known = np.flatnonzero(self._world.history.first_us <= day.as_of_us)
        if not len(known):
            return Planned.of(known, known)
        budget = self._crawls_per_page * len(known)
        impressions = self._world.weights.get("impressions")
        parameters = Parameters.of(
            self._estimates.change_rates(day, known),
            self._weight[known],
            None if impressions is None else impressions[known],
        )
        rate = whole(rates(self._policy, parameters, budget), budget)
        slots, self._owed = quotas.total_slots(budget, 24.0, self._owed)
        offsets = quotas.slot_offsets_us(np.array([slots]), 0, US_PER_DAY)
        if self._order == RANDOM:
            return Planned.of(known[drawn(rate, self._rng.random(slots))], offsets + day.as_of_us)
        since = (day.as_of_us - day.last_us[known]) / US_PER_DAY
        pages = sequencing.ShardPages(
            crawl_rate_per_day=rate,
            days_since_last=since,
            is_new=np.zeros(len(known), np.bool_),
            crawl_value=rate,
            tie=self._world.url_hash[known],
        )
        found = sequencing.sequence(pages, offsets, US_PER_DAY)
        used = found.page >= 0
        return Planned.of(known[found.page[used].astype(np.int64)], found.due_offset_us[used] + day.as_of_us)


def whole(rate: FloatArray, budget: float) -> FloatArray:
    """Rates, (n,), that spend the whole budget: what a policy has no use for is spread evenly."""
    unspent = budget - float(rate.sum())
    return rate + unspent / len(rate) if unspent > 1e-9 * budget else rate


def drawn(rate: FloatArray, uniform: FloatArray) -> IntArray:
    """Rows drawn in proportion to rates, (n,), by random numbers in [0, 1), (k,)."""
    edges = np.cumsum(rate)
    return np.minimum(np.searchsorted(edges, uniform * edges[-1], side="right"), len(rate) - 1)
