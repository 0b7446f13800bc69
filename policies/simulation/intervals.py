"""Crawlers with intervals on a history of changes: rules and sitemaps, at equal budgets.

A crawler sees the contents of its own crawls and nothing else. Every page is crawled once for free; the wait
after that is shortened by a random phase of each page that is there at the start, so that pages with equal
intervals do not keep step.
Free crawls and phases are the same for all policies of a seed (common random numbers).

To compare rules at an equal budget, all intervals of a rule's configuration are multiplied by one scale,
found by bisection: crawls in the scored part of the window are what the budget says. The warm-up is run with
the same scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.rules.crawler_rules import NOT_SAID, Fetches, Rule, SitemapDriven
from policies.simulation.histories import ChangeHistory

_SECOND = 1_000_000
_CLOCK_ZERO = 1 << 60  # what a rule's clock shows at the first crawl: times long before it are positive, too
_SMALLEST_SCALE, _LARGEST_SCALE = 1e-5, 1e5
_TOLERANCE = 0.005  # of the budget: ends a search
_MOST_RUNS = 60


@dataclass(frozen=True)
class CrawlTimes:
    """Crawls, sorted by page, then time.

    Attributes
    ----------
    page, at_us : (m,) int64
    free : (m,) bool
        The first of each page, which no budget pays for.
    """

    page: IntArray
    at_us: IntArray
    free: BoolArray

    def __len__(self) -> int:
        return len(self.page)

    def paid_between(self, after_us: int, until_us: int) -> int:
        """Crawls that were not for free, later than the one instant and not later than the other."""
        return int(np.count_nonzero(~self.free & (self.at_us > after_us) & (self.at_us <= until_us)))


def free_crawls(history: ChangeHistory, seed: int) -> IntArray:
    """Instants of the free crawls, (n,) int64: in the day before the start, or when a page appears later."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    early = history.start_us - (rng.random(len(history)) * US_PER_DAY).astype(np.int64)
    return np.maximum(history.first_us, early)


def phases(n: int, seed: int) -> FloatArray:
    """A number for each page, (n,) float64 in [0, 1)."""
    return np.random.Generator(np.random.Philox(key=[seed, 1])).random(n)


def first_phases(history: ChangeHistory, seed: int) -> FloatArray:
    """Which share of its first wait each page waits, (n,) float64 in [0, 1].

    Pages that are there at the start: any share, since a crawler that has been at work for long finds them in
    the middle of a wait. Pages that appear later wait all of it: the crawler found them just then, and a
    shorter wait would be a gain that no rule has.
    """
    return np.where(history.first_us <= history.start_us, phases(len(history), seed), 1.0)


def gathered(free_us: IntArray, page: list[IntArray], at_us: list[IntArray], end_us: int) -> CrawlTimes:
    """The free crawls before `end_us` and others, in order."""
    first = np.flatnonzero(free_us < end_us)
    pages = np.concatenate([first, *page])
    times = np.concatenate([free_us[first], *at_us])
    free = np.arange(len(pages)) < len(first)
    order = np.lexsort((times, pages))
    return CrawlTimes(pages[order], times[order], free[order])


def follow_rule(
    history: ChangeHistory,
    rule: Rule,
    scale: float,
    free_us: IntArray,
    phase: FloatArray,
    most: int | None = None,
) -> CrawlTimes:
    """Crawl by a rule of intervals, each crawl when it is due.

    Pages advance in lock-step, a crawl of each page at a time: steps are as many as the crawls of the page
    that is crawled most.

    Parameters
    ----------
    history : ChangeHistory
        Of n pages.
    rule : Rule
    scale : float, positive
        All intervals of the rule's configuration are multiplied by this.
    free_us, phase : (n,) int64 and float64
        From `free_crawls` and `first_phases`.
    most : int, optional
        Stop after the step in which there are more crawls than this.

    Raises
    ------
    ValueError
        For a scale out of range.
    """
    if not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
        raise ValueError(f"a scale of {scale}: give one from {_SMALLEST_SCALE} to {_LARGEST_SCALE}")
    origin = int(free_us.min(initial=history.start_us))

    def clock(us: IntArray) -> IntArray:
        return _CLOCK_ZERO + np.floor((us - origin) / scale).astype(np.int64)

    active = np.flatnonzero(free_us < history.end_us)
    due = free_us[active]
    state = rule.first(len(history)).take(active)
    seen = np.full(len(active), -1)
    pages: list[IntArray] = []
    times: list[IntArray] = []
    first, total = True, 0
    while len(active) and (most is None or total <= most):
        version = history.version(active, due)
        ok = np.full(len(active), 200)
        state = rule.after_fetch(state, Fetches(version != seen, ok, clock(due)))
        if not first:
            pages.append(active)
            times.append(due)
            total += len(active)
        # No crawler comes back within the same second, whatever its rule says.
        wait = np.maximum(np.minimum(state.wait_us * scale, 4.0 * (history.end_us - origin)), _SECOND)
        if first:
            wait *= phase[active]
        due = due + wait.astype(np.int64)
        on = due < history.end_us
        active, due, seen, state = active[on], due[on], version[on], state.take(on)
        first = False
    return gathered(free_us, pages, times, history.end_us)


@dataclass(frozen=True)
class Sitemap:
    """What sitemaps said of pages, and when.

    Attributes
    ----------
    page, seen_us, lastmod_us : (k,) int64
        Every move of a page's lastmod, in any order: when it could be read, and what it said.
    listed : (n,) bool
        Pages with a lastmod from their appearance on.
    changefreq : (n,) int64, optional
        Codes of `policies.rules.crawler_rules`.
    """

    page: IntArray
    seen_us: IntArray
    lastmod_us: IntArray
    listed: BoolArray
    changefreq: IntArray | None = None


def follow_sitemap(
    history: ChangeHistory,
    rule: SitemapDriven,
    scale: float,
    sitemap: Sitemap,
    free_us: IntArray,
    phase: FloatArray,
    most: int | None = None,
) -> CrawlTimes:
    """Crawl by what sitemaps say: in each run, the pages that the rule does not exclude.

    A run takes its time: each page has its own instant in it, by its phase. Parameters are those of
    `follow_rule`; the scale multiplies the time from run to run.
    """
    n = len(history)
    said = ChangeHistory.from_events(
        history.start_us, history.end_us, history.first_us, sitemap.page, sitemap.seen_us
    )
    date = np.append(NO_TIME, sitemap.lastmod_us[np.lexsort((sitemap.seen_us, sitemap.page))])
    listed_us = np.where(sitemap.listed, history.first_us, NO_TIME)
    frequency = np.full(n, NOT_SAID) if sitemap.changefreq is None else sitemap.changefreq
    every = max(round(rule.run_every_us * scale), _SECOND)
    last = free_us.copy()
    pages: list[IntArray] = []
    times: list[IntArray] = []
    now = history.start_us + (phase * every).astype(np.int64)
    total = 0
    everything = np.arange(n)
    while (now < history.end_us).any() and (most is None or total <= most):
        there = everything[(now < history.end_us) & (free_us < now)]
        nth = said.version(there, now[there])  # without versions of their own, changes are numbered from 1
        lastmod = np.where(nth > 0, date[nth], listed_us[there])
        wanted = there[rule.recrawlable(now[there], last[there], lastmod, frequency[there])]
        pages.append(wanted)
        times.append(now[wanted])
        last[wanted] = now[wanted]
        total += len(wanted)
        now = now + every
    return gathered(free_us, pages, times, history.end_us)


@dataclass(frozen=True)
class Scaled:
    """A run brought to a budget.

    Attributes
    ----------
    scale : float
    crawls : CrawlTimes
    spent : int
        Paid crawls in the scored part of the window.
    budget : float
        What they should be.
    """

    scale: float
    crawls: CrawlTimes
    spent: int
    budget: float

    @property
    def off(self) -> float:
        """Relative difference from the budget."""
        return self.spent / self.budget - 1.0


def at_budget(
    run: Callable[[float, int], CrawlTimes],
    history: ChangeHistory,
    crawls_per_page_day: float,
    score_from_us: int,
    start: float = 1.0,
    smallest: float = _SMALLEST_SCALE,
) -> Scaled:
    """Find the scale at which a run spends its budget.

    Parameters
    ----------
    run : callable
        The crawls of a scale; the second argument is the number of crawls after which it may stop.
    history : ChangeHistory
    crawls_per_page_day : float, positive
        Budget, per known page and day of the scored part, see `ChangeHistory.paid_days`.
    score_from_us : int
        Where the scored part begins, microseconds UTC.
    start, smallest : float
        The first scale to try, and the least.

    Returns
    -------
    Scaled
        The closest found. `off` tells of budgets that no scale meets, e.g. where sitemaps give too little
        reason to crawl.

    Raises
    ------
    ValueError
        For a budget that is not positive, or less than one crawl.
    """
    budget = crawls_per_page_day * history.paid_days(score_from_us, history.end_us)
    if not budget >= 1:
        raise ValueError(
            f"{crawls_per_page_day} crawls per page and day are {budget:.3g} crawls in the scored part: "
            "raise the budget"
        )
    whole = crawls_per_page_day * history.paid_days(history.start_us, history.end_us)
    most = int(20 * whole) + 20 * len(history)
    best: Scaled | None = None
    low, high = None, None  # too many crawls at `low`, too few at `high`
    scale = start
    for _ in range(_MOST_RUNS):
        crawls = run(scale, most)
        tried = Scaled(scale, crawls, crawls.paid_between(score_from_us, history.end_us), budget)
        if len(crawls) - np.count_nonzero(crawls.free) > most:
            low = scale
        else:
            if best is None or abs(tried.off) < abs(best.off):
                best = tried
            if abs(tried.off) <= _TOLERANCE:
                break
            low, high = (scale, high) if tried.off > 0 else (low, scale)
        if low is not None and high is not None:
            following = float(np.sqrt(low * high))
        else:
            following = min(max(scale * 4 if high is None else scale / 4, smallest), _LARGEST_SCALE)
        if abs(following / scale - 1) < 1e-9:
            break
        scale = following
    if best is None:
        raise ValueError(f"no scale up to {_LARGEST_SCALE} keeps to {budget:.3g} crawls: raise the budget")
    return best


def rule_at_budget(
    history: ChangeHistory,
    rule: Rule,
    crawls_per_page_day: float,
    score_from_us: int,
    seed: int = 0,
) -> Scaled:
    """A rule with its intervals scaled to a budget; see `follow_rule` and `at_budget`."""
    free_us, phase = free_crawls(history, seed), first_phases(history, seed)

    def run(scale: float, most: int) -> CrawlTimes:
        return follow_rule(history, rule, scale, free_us, phase, most)

    return at_budget(run, history, crawls_per_page_day, score_from_us)


def sitemap_at_budget(
    history: ChangeHistory,
    rule: SitemapDriven,
    sitemap: Sitemap,
    crawls_per_page_day: float,
    score_from_us: int,
    seed: int = 0,
    shortest_us: int = US_PER_DAY // 24,
) -> Scaled:
    """A crawler by sitemaps with the time between its runs scaled to a budget, down to `shortest_us`."""
    free_us, phase = free_crawls(history, seed), phases(len(history), seed)
    smallest = shortest_us / rule.run_every_us

    def run(scale: float, most: int) -> CrawlTimes:
        return follow_sitemap(history, rule, scale, sitemap, free_us, phase, most)

    return at_budget(
        run, history, crawls_per_page_day, score_from_us, start=max(1.0, smallest), smallest=smallest
    )
