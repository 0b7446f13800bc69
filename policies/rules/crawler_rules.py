"""When today's crawlers fetch a page again: their rules, as their sources have them.

Each rule is a state machine over many pages at once. `first` is the state before any fetch; `after_fetch`
takes what a fetch found and gives the next state, with the wait until the next fetch. The arithmetic, its
single precision and its truncations included, is that of the source named by each class. Nothing else of a
crawler is here: no queues, no politeness, no limits per host.

A rule has one clock. Run with time divided by `s`, it is the same crawler with every interval of its
configuration multiplied by `s`: that is how rules are brought to an equal budget.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Final

import numpy as np

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

FAR_US: Final = 1000 * 365 * US_PER_DAY
"""A wait that does not end."""

_US_PER_S, _US_PER_MS = 1_000_000, 1000
_US_PER_MINUTE = 60 * _US_PER_S


@dataclass(frozen=True)
class RuleState:
    """What a rule remembers of n pages.

    Attributes
    ----------
    wait_us : (n,) int64
        From the last fetch to the next, microseconds.
    interval : (n,) int64
        The interval that the next one is made of, in the rule's own unit; -1 where there is none yet.
    compared : (n,) bool
        Whether there is a digest that the next fetch is compared with.
    modified_us : (n,) int64
        When the page last changed, as far as the rule knows; `NO_TIME` if it does not.
    retries : (n,) int64
        Failed fetches in a row.
    """

    wait_us: IntArray
    interval: IntArray
    compared: BoolArray
    modified_us: IntArray
    retries: IntArray

    def __len__(self) -> int:
        return len(self.wait_us)

    def take(self, rows: IntArray | BoolArray) -> RuleState:
        """The state of some pages."""
        return RuleState(*(getattr(self, f.name)[rows] for f in fields(self)))

    def put(self, rows: IntArray | BoolArray, other: RuleState) -> None:
        """Overwrite the state of some pages, in place."""
        for f in fields(self):
            getattr(self, f.name)[rows] = getattr(other, f.name)


@dataclass(frozen=True)
class Fetches:
    """What one fetch of each of n pages found.

    Attributes
    ----------
    changed : (n,) bool
        The digest is not that of the last successful fetch; without meaning where there was none.
    status : (n,) int64
        HTTP status; 0 where no answer came.
    now_us : (n,) int64
        Instant of the fetch, microseconds of the rule's clock.
    last_modified_us : (n,) int64, optional
        Last-Modified of the answer, `NO_TIME` where there is none.
    """

    changed: BoolArray
    status: IntArray
    now_us: IntArray
    last_modified_us: IntArray | None = None

    @property
    def told_us(self) -> IntArray:
        """Last-Modified, `NO_TIME` where nothing was said."""
        return np.full(len(self.now_us), NO_TIME) if self.last_modified_us is None else self.last_modified_us


class Rule(ABC):
    """A rule of intervals."""

    name: ClassVar[str]

    @abstractmethod
    def _initial_interval(self) -> int:
        """In the rule's own unit; -1 for none."""

    def first(self, n: int) -> RuleState:
        """State of pages that were never fetched: all are due."""
        zero = np.zeros(n, np.int64)
        return RuleState(
            zero,
            np.full(n, self._initial_interval()),
            np.zeros(n, np.bool_),
            np.full(n, NO_TIME),
            zero.copy(),
        )

    @abstractmethod
    def after_fetch(self, state: RuleState, found: Fetches) -> RuleState:
        """State after one fetch of each page."""


def _java_round(x: FloatArray) -> IntArray:
    """Math.round of Java: the nearest integer, halves up."""
    return np.floor(x + 0.5).astype(np.int64)


@dataclass(frozen=True)
class NutchDefault(Rule):
    """Apache Nutch 1.x with its default schedule: one interval for all, changed or not.

    Follows `DefaultFetchSchedule` and `AbstractFetchSchedule` (org.apache.nutch.crawl), the cases of
    `CrawlDbReducer` and the values of conf/nutch-default.xml, as of the 1.x line after NUTCH-1564. Answers
    with 4xx make the page gone: its interval grows by half, up to 0.9 of the largest. Without an answer or
    with 5xx it is tried again after a day, and is gone with the third failure in a row.

    Parameters
    ----------
    default_interval_s : int
        db.fetch.interval.default: 30 days.
    interval_max_s : int
        db.fetch.interval.max: 90 days. A page with a longer interval forgets its digest and goes on with 0.9
        of this; one that would wait longer is fetched in the next cycle.
    retry_max : int
        db.fetch.retry.max.
    cycle_s : int
        From one generated list of fetches to the next; the source leaves it to who runs it.
    """

    name: ClassVar[str] = "nutch-default"
    default_interval_s: int = 2_592_000
    interval_max_s: int = 7_776_000
    retry_max: int = 3
    cycle_s: int = 86_400

    def _initial_interval(self) -> int:
        return self.default_interval_s

    def after_fetch(self, state: RuleState, found: Fetches) -> RuleState:
        changed, status = found.changed, found.status
        answered = (status >= 200) & (status < 400)
        gone = (status >= 400) & (status < 500)
        failed = ~answered & ~gone
        page = (status >= 200) & (status < 300)
        same = (status == 304) | (page & state.compared & ~changed)
        differs = page & state.compared & changed

        start = np.where(state.interval == 0, self.default_interval_s, state.interval)
        interval, wait_ms, modified = self._schedule(start, same, differs, found, state.modified_us)
        # A page that was not modified keeps the time of its last modification (NUTCH-1341).
        modified = np.where(same, state.modified_us, modified)
        compared = page | (state.compared & (status == 304))

        too_long = interval > self.interval_max_s
        limit = np.float64(np.float32(self.interval_max_s) * np.float32(0.9))
        interval = np.where(too_long, round(limit), interval)
        compared &= ~too_long
        modified = np.where(too_long, NO_TIME, modified)

        retries = np.where(failed, state.retries + 1, np.where(gone, state.retries, 0))
        lost = gone | (failed & (retries >= self.retry_max))
        longer = state.interval.astype(np.float64) * 1.5
        shelved = np.where(longer < self.interval_max_s, _java_round(longer), int(limit))
        interval = np.where(lost, shelved, np.where(answered, interval, state.interval))
        wait_us = np.where(answered, wait_ms * _US_PER_MS, US_PER_DAY)
        wait_us = np.where(lost, shelved * _US_PER_S, wait_us)
        wait_us = np.where(wait_us > self.interval_max_s * _US_PER_S, self.cycle_s * _US_PER_S, wait_us)
        return RuleState(
            wait_us,
            interval,
            np.where(answered, compared, state.compared),
            np.where(answered, modified, state.modified_us),
            retries,
        )

    def _schedule(
        self, interval: IntArray, same: BoolArray, differs: BoolArray, found: Fetches, modified_us: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Interval in s, wait in ms and time of modification after an answer."""
        return interval, interval * 1000, np.where(found.told_us > 0, found.told_us, modified_us)


@dataclass(frozen=True)
class NutchAdaptive(NutchDefault):
    """Apache Nutch 1.x with its adaptive schedule.

    Follows `AdaptiveFetchSchedule` (org.apache.nutch.crawl) after NUTCH-1564. The interval is multiplied by
    1 - `dec_rate` after a change and by 1 + `inc_rate` without one. With `sync_delta`, delta is the time
    since the last modification (the fetch that found it, or Last-Modified): an interval shorter than delta
    becomes delta, and the next fetch is brought forward by `sync_delta_rate` of delta. Where that is more
    than the largest interval, the source means to shorten it, but divides integers, so nothing is brought
    forward.

    The defaults are those of conf/nutch-default.xml, which every installation reads. Without that file the
    class itself falls back to 0.2 for all three rates: `NutchAdaptive(inc_rate=0.2, sync_delta_rate=0.2)`.

    Parameters
    ----------
    inc_rate, dec_rate : float
    min_interval_s, max_interval_s : float
        One minute and 365 days; `interval_max_s` holds, too.
    sync_delta : bool
    sync_delta_rate : float
    """

    name: ClassVar[str] = "nutch-adaptive"
    inc_rate: float = 0.4
    dec_rate: float = 0.2
    min_interval_s: float = 60.0
    max_interval_s: float = 31_536_000.0
    sync_delta: bool = True
    sync_delta_rate: float = 0.3

    def _schedule(
        self, interval: IntArray, same: BoolArray, differs: BoolArray, found: Fetches, modified_us: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        now_us, told_us = found.now_us, found.told_us
        one = np.float32(1.0)
        factor = np.where(differs, one - np.float32(self.dec_rate), one).astype(np.float32)
        factor = np.where(same, one + np.float32(self.inc_rate), factor).astype(np.float32)
        seconds = interval.astype(np.float32) * factor
        modified = np.where(told_us > 0, told_us, modified_us)
        modified = np.where(differs | (modified <= 0), now_us, modified)
        offset_ms = np.zeros(len(interval), np.int64)
        if self.sync_delta:
            delta_ms = now_us // _US_PER_MS - modified // _US_PER_MS
            older = delta_ms.astype(np.float32) > seconds * np.float32(1000.0)
            seconds = np.where(older, (delta_ms // 1000).astype(np.float32), seconds)
            offset_ms = _java_round(delta_ms * np.float64(np.float32(self.sync_delta_rate)))
            largest_ms = int(np.float32(self.max_interval_s)) * 1000
            too_far = (delta_ms > 0) & (offset_ms > largest_ms)
            offset_ms = np.where(too_far, offset_ms // np.maximum(delta_ms, 1) * largest_ms, offset_ms)
        seconds = np.clip(seconds, np.float32(self.min_interval_s), np.float32(self.max_interval_s))
        wait_ms = _java_round(seconds.astype(np.float64) * 1000.0) - offset_ms
        return _java_round(seconds.astype(np.float64)), wait_ms, modified


@dataclass(frozen=True)
class StormCrawlerAdaptive(Rule):
    """Apache StormCrawler with its adaptive scheduler; whole minutes.

    Follows `AdaptiveScheduler` on top of `DefaultScheduler` (org.apache.stormcrawler.persistence, 3.x). The
    first fetch of a page waits for the default interval. After a change the interval becomes
    (1 - `dec_rate`) interval + `dec_rate` minimum, so that it nears the minimum and never reaches it;
    without one it is multiplied by 1 + `inc_rate`, up to the maximum. Anything but a page or "not modified"
    makes it forget interval and digest and wait for the interval of that kind of answer. (Its option
    setLastModified only asks servers for "not modified" answers, which count as unchanged.)

    Parameters
    ----------
    default_minutes : int
        fetchInterval.default: a day.
    min_minutes, max_minutes : int
        scheduler.adaptive.fetchInterval.min and .max: an hour and two weeks.
    inc_rate, dec_rate : float
        scheduler.adaptive.fetchInterval.rate.incr and .decr.
    fetch_error_minutes, error_minutes : int
        fetchInterval.fetch.error and .error: two hours where no answer came or with 5xx, 31 days with 4xx.
    """

    name: ClassVar[str] = "stormcrawler-adaptive"
    default_minutes: int = 1440
    min_minutes: int = 60
    max_minutes: int = 20_160
    inc_rate: float = 0.5
    dec_rate: float = 0.5
    fetch_error_minutes: int = 120
    error_minutes: int = 44_640

    def _initial_interval(self) -> int:
        return -1

    def after_fetch(self, state: RuleState, found: Fetches) -> RuleState:
        changed, status, now_us = found.changed, found.status, found.now_us
        same_status = status == 304
        fetched = ((status >= 200) & (status < 300)) | same_status
        known = fetched & (state.compared | same_status)
        start = np.where(state.interval < 0, self.default_minutes, state.interval).astype(np.float32)
        one, dec = np.float32(1.0), np.float32(self.dec_rate)
        shorter = ((one - dec) * start + dec * np.float32(self.min_minutes)).astype(np.int64)
        longer = (start * (one + np.float32(self.inc_rate))).astype(np.int64)
        longer = np.minimum(longer, self.max_minutes)
        differs = known & changed & ~same_status
        interval = np.where(known, np.where(differs, shorter, longer), self.default_minutes)
        error = np.where((status >= 400) & (status < 500), self.error_minutes, self.fetch_error_minutes)
        redirected = (status >= 300) & (status < 400)
        other = np.where(redirected, self.default_minutes, error)
        modified = np.where(differs | (known & (state.modified_us == NO_TIME)), now_us, state.modified_us)
        return RuleState(
            np.where(fetched, interval, other) * _US_PER_MINUTE,
            np.where(fetched, interval, -1),
            np.where(same_status, state.compared, fetched),
            np.where(fetched, modified, NO_TIME),
            np.where(fetched, 0, state.retries + 1),
        )


@dataclass(frozen=True)
class Heritrix(Rule):
    """Heritrix 1 with its frontier that revisits adaptively; whole milliseconds.

    Follows `WaitEvaluator`, `ChangeEvaluator` (org.archive.crawler, 1.14) and `AdaptiveRevisitFrontier`: the
    first wait is the initial one, later ones are the last one times `unchanged_factor` or divided by
    `changed_factor`, within the limits. An answer of any status is a page like others; where no answer
    came, the page is tried again after the delay, and no more after the last retry. The time by which a
    fetch was late is not added (use-overdue-time is off by default).

    Parameters
    ----------
    initial_s, min_s, max_s : int
        initial-, min- and max-wait-interval-seconds: a day, an hour, four weeks.
    unchanged_factor, changed_factor : float
    retry_delay_s, max_retries : int
    """

    name: ClassVar[str] = "heritrix"
    initial_s: int = 86_400
    min_s: int = 3600
    max_s: int = 2_419_200
    unchanged_factor: float = 1.5
    changed_factor: float = 1.5
    retry_delay_s: int = 900
    max_retries: int = 30

    def _initial_interval(self) -> int:
        return -1

    def after_fetch(self, state: RuleState, found: Fetches) -> RuleState:
        changed, status, now_us = found.changed, found.status, found.now_us
        answered = status > 0
        # Without a digest to compare with, the page counts as changed.
        differs = (changed | ~state.compared) & (status != 304)
        last_ms = state.interval.astype(np.float64)
        wait_ms = np.where(differs, last_ms / self.changed_factor, last_ms * self.unchanged_factor)
        wait_ms = np.where(state.interval < 0, self.initial_s * 1000, wait_ms.astype(np.int64))
        wait_ms = np.clip(wait_ms, self.min_s * 1000, self.max_s * 1000)
        retries = np.where(answered, 0, state.retries + 1)
        again = np.where(retries < self.max_retries, self.retry_delay_s * _US_PER_S, FAR_US)
        return RuleState(
            np.where(answered, wait_ms * _US_PER_MS, again),
            np.where(answered, wait_ms, state.interval),
            state.compared | answered,
            np.where(answered & differs, now_us, state.modified_us),
            retries,
        )


@dataclass(frozen=True)
class ByAge(Rule):
    """Revisits at fixed ages, as crawlers of news have them: no crawler's source, a reference.

    Parameters
    ----------
    ages_s : tuple of int
        When a page is fetched again, seconds after its first fetch; then as often as the last two are apart.
    """

    name: ClassVar[str] = "age-aware"
    ages_s: tuple[int, ...] = (3600, 21_600, 86_400, 604_800)

    def _initial_interval(self) -> int:
        return -1

    def after_fetch(self, state: RuleState, found: Fetches) -> RuleState:
        ages_us = np.array((0, *self.ages_s), np.int64) * _US_PER_S
        waits_us: IntArray = ages_us[1:] - ages_us[:-1]
        step = np.minimum(state.interval + 1, len(waits_us) - 1)
        compared = state.compared | (found.status > 0)
        return RuleState(waits_us[step], step, compared, state.modified_us, state.retries)


RULES: Final[dict[str, Rule]] = {
    rule.name: rule for rule in (NutchDefault(), NutchAdaptive(), StormCrawlerAdaptive(), Heritrix())
}
"""Rules with the values of their sources."""

ALWAYS, HOURLY, DAILY, WEEKLY, MONTHLY, YEARLY, NEVER, NOT_SAID = range(8)
"""Change frequencies of the sitemap protocol, as codes."""

_FREQUENCY_US = np.array(
    [0, US_PER_DAY // 24, US_PER_DAY, 7 * US_PER_DAY, 30 * US_PER_DAY, 365 * US_PER_DAY, FAR_US, 0], np.int64
)


@dataclass(frozen=True)
class SitemapDriven:
    """A crawler that asks sitemaps whether a page is worth a fetch, whenever it runs.

    Follows `GenericRecrawlableResolver` of the Norconex web crawler (since 2.5; as of 4.0). In each of its
    runs a page is fetched if the sitemap's lastmod is later than the last fetch; without a lastmod, if
    changefreq has passed since. Own frequencies stand in for sitemaps that say nothing (`support` "first"),
    come before them ("last") or replace them ("never"). Where nothing says no, the page is fetched. Months
    and years are 30 and 365 days here; the source counts calendar months and years.

    Parameters
    ----------
    support : {"first", "last", "never"}
    run_every_us : int
        From one run to the next; the source leaves it to who runs it.

    Raises
    ------
    ValueError
        For another word or no time between runs.
    """

    name: ClassVar[str] = "sitemap"
    support: str = "first"
    run_every_us: int = US_PER_DAY

    def __post_init__(self) -> None:
        if self.support not in ("first", "last", "never"):
            raise ValueError(f"sitemap support {self.support!r}: give first, last or never")
        if self.run_every_us <= 0:
            raise ValueError(f"{self.run_every_us} us from run to run: give a positive number")

    def recrawlable(
        self,
        now_us: IntArray,
        crawled_us: IntArray,
        lastmod_us: IntArray,
        changefreq: IntArray,
        own_frequency_us: IntArray | None = None,
    ) -> BoolArray:
        """Whether a run fetches each page.

        Parameters
        ----------
        now_us, crawled_us : (n,) int64
            The run's instant and the last fetch, `NO_TIME` if there was none; microseconds.
        lastmod_us : (n,) int64
            The latest that the sitemap has said, `NO_TIME` for nothing.
        changefreq : (n,) int64
            `ALWAYS` to `NEVER`, `NOT_SAID`.
        own_frequency_us : (n,) int64, optional
            Least time between fetches as configured for the page, -1 for none; 0 for always, `FAR_US` for
            never.

        Returns
        -------
        (n,) bool
        """
        since_us = now_us - np.where(crawled_us == NO_TIME, now_us, crawled_us)
        own_us = np.full(len(now_us), -1) if own_frequency_us is None else own_frequency_us

        has_date = lastmod_us != NO_TIME
        after_us = _FREQUENCY_US[changefreq]
        by_frequency = (after_us == 0) | ((since_us > after_us) & (after_us < FAR_US))
        by_sitemap = np.where(has_date, lastmod_us > crawled_us, by_frequency)
        by_own = (own_us == 0) | ((since_us > own_us) & (own_us < FAR_US))
        said = has_date | (changefreq != NOT_SAID)
        if self.support == "first":
            decided = np.where(said, by_sitemap, np.where(own_us >= 0, by_own, True))
        elif self.support == "last":
            decided = np.where(own_us >= 0, by_own, np.where(said, by_sitemap, True))
        else:
            decided = np.where(own_us >= 0, by_own, True)
        return np.asarray(decided | (crawled_us == NO_TIME))
