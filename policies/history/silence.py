"""Pages that give no answer: since when, and how long to wait before the next try.

A try is a failed fetch, or a scheduled crawl that no log shows although the log goes on beyond it. A page
waits twice as long as it has been tried in vain, so that its waits triple; one answer ends it. Where the
whole host was silent and then answers, its pages are tried again at once: it was the host, not the page.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array, IntArray

NEVER = np.iinfo(np.int64).max

WAIT_FACTOR = 2.0
LONGEST_WAIT_DAYS = 90.0
UNCLAIMED_DAYS = 1.0
"""The copy of a page that waits so long for a try is not said to be fresh."""

LEAST_FOLLOWED = 0.2
"""Share of scheduled pages that are fetched the next day below which a crawler follows its own plans."""

LEAST_ANSWERED = 0.2
"""Share of fetches with an answer below which it is the crawler that fails, not the pages."""


def is_followed(scheduled: int, fetched: int) -> bool:
    """Whether a crawler follows the schedule, of which it fetched so many pages."""
    return fetched >= LEAST_FOLLOWED * scheduled


@dataclass(frozen=True, slots=True)
class Heard:
    """What the log of all pages has heard of the schedule of the night before.

    Attributes
    ----------
    until_us : int, microseconds
        Newest fetch.
    night_before_us : int or None, microseconds
        That night's instant.
    scheduled, fetched : int
        Pages that it scheduled, and those of them that were fetched since.
    answered, failed : int
        Rows of tonight's log.
    """

    until_us: int = NO_TIME
    night_before_us: int | None = None
    scheduled: int = 0
    fetched: int = 0
    answered: int = 0
    failed: int = 0

    @property
    def works(self) -> bool:
        """Whether the crawler gets answers; one that is blocked or without a network gets none."""
        return self.answered >= LEAST_ANSWERED * (self.answered + self.failed)

    @property
    def followed(self) -> bool:
        """Whether the crawler follows the schedule; many crawl by their own while they try this one."""
        return is_followed(self.scheduled, self.fetched)

    def merge(self, other: Heard) -> Heard:
        """Of the pages of both."""
        return Heard(
            max(self.until_us, other.until_us),
            self.night_before_us if other.night_before_us is None else other.night_before_us,
            self.scheduled + other.scheduled,
            self.fetched + other.fetched,
            self.answered + other.answered,
            self.failed + other.failed,
        )


@dataclass(frozen=True, slots=True)
class Silence:
    """What n pages owe an answer for.

    Attributes
    ----------
    slots_since_us : (n,) int64, microseconds
        First scheduled crawl of those that no log shows; `NO_TIME` where there is none.
    wait_days : (n,) float64, days
        How long to wait from the last try on; 0 where the page answers, or failed for the first time.
    awaited, missed : (n,) bool
        Pages whose last scheduled crawl of the night before should be in the log, and those of them that are
        not.
    """

    slots_since_us: IntArray
    wait_days: FloatArray
    awaited: BoolArray
    missed: BoolArray

    @property
    def unclaimed(self) -> BoolArray:
        """Whether nothing is said of a page's freshness, (n,)."""
        return self.wait_days >= UNCLAIMED_DAYS

    def limits(self, floor_per_day: FloatArray, cap_per_day: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Floors and caps of crawl rates (n,) that keep the waits; a floor gives way."""
        with np.errstate(divide="ignore"):
            cap = np.minimum(cap_per_day, 1.0 / self.wait_days)
        return np.minimum(floor_per_day, cap), cap


def failing_since(
    before_us: IntArray,
    last_success_us: IntArray,
    page: IntArray,
    at_us: IntArray,
    failed: BoolArray,
    as_of_us: int,
) -> IntArray:
    """First failed fetch of each page since its last answer.

    Parameters
    ----------
    before_us : (n,) int64, microseconds
        The same up to the night before, `NO_TIME` where the last fetch was answered.
    last_success_us : (n,) int64, microseconds
        Tonight's.
    page, at_us, failed : (k,) int64, int64 microseconds, bool
        Rows of tonight's log, in any order.
    as_of_us : int, microseconds
        Later rows are ignored.

    Returns
    -------
    (n,) int64, microseconds
        The same for any cut of a log into nights.
    """
    since = np.where((before_us == NO_TIME) | (before_us <= last_success_us), NEVER, before_us)
    use = failed & (at_us > last_success_us[page]) & (at_us <= as_of_us)
    np.minimum.at(since, page[use], at_us[use])
    since[since == NEVER] = NO_TIME
    return since


def forgiven(
    since_us: IntArray,
    last_try_us: IntArray,
    success_before_us: IntArray,
    first_answer_us: IntArray,
    host_code: IntArray | Int32Array,
) -> IntArray:
    """`since_us`, but the last try where the host was silent all the time and then answers: (n,) int64.

    Parameters
    ----------
    since_us, last_try_us : (n,) int64, microseconds
    success_before_us : (n,) int64, microseconds
        Last answers of all pages up to the night before.
    first_answer_us : (n,) int64, microseconds
        Their first answers since, the greatest integer where there is none.
    host_code : (n,) int, ascending
    """
    if not len(since_us):
        return since_us
    begins = np.diff(host_code, prepend=-1) != 0
    start, host = np.flatnonzero(begins), np.cumsum(begins) - 1
    then = np.maximum.reduceat(success_before_us, start)[host]
    back = np.minimum.reduceat(first_answer_us, start)[host]
    anew = (since_us != NO_TIME) & (then < since_us) & (back > last_try_us) & (back < NEVER)
    return np.where(anew, last_try_us, since_us)


def first_answers(
    success_before_us: IntArray, page: IntArray, at_us: IntArray, answered: BoolArray
) -> IntArray:
    """First answer of each page after those known before, (n,) int64; `NEVER` where there is none.

    Parameters
    ----------
    success_before_us : (n,) int64, microseconds
    page, at_us, answered : (k,) int64, int64 microseconds, bool
        Rows of tonight's log.
    """
    first = np.full(len(success_before_us), NEVER)
    use = answered & (at_us > success_before_us[page])
    np.minimum.at(first, page[use], at_us[use])
    return first


def silence(
    attempt_us: IntArray,
    failing_since_us: IntArray,
    slot_us: IntArray,
    slots_since_us: IntArray,
    night_before_us: int | None,
    heard_until_us: int,
    followed: bool = True,
    works: bool = True,
) -> Silence:
    """How long pages have been tried in vain.

    Parameters
    ----------
    attempt_us : (n,) int64, microseconds
        Last fetch of each page, failed or not.
    failing_since_us : (n,) int64, microseconds
        From `failing_since`.
    slot_us : (n,) int64, microseconds
        Last scheduled crawl before tonight.
    slots_since_us : (n,) int64, microseconds
        Of the night before.
    night_before_us : int, optional
        Its instant: crawlers may take its crawls in another order, so any fetch since answers them.
    heard_until_us : int, microseconds
        Newest fetch of any page: of later crawls the log cannot know.
    followed : bool
        Whether the crawler follows the schedule at all; if not, a missing crawl says nothing of the page.
    works : bool
        Whether the crawler gets answers at all; if not, a failed fetch says nothing of the page.
    """
    due = (slot_us != NO_TIME) & (slot_us <= heard_until_us)
    tonight = np.zeros(len(slot_us), np.bool_) if night_before_us is None else slot_us > night_before_us
    expected = slot_us if night_before_us is None else np.minimum(slot_us, night_before_us)
    vain = due & (attempt_us < expected)
    missed, vain = vain & tonight, vain & followed
    if not works:
        failing_since_us = np.full(len(slot_us), NO_TIME)
    known = vain & (slots_since_us != NO_TIME) & (attempt_us < slots_since_us)
    since = np.where(known, slots_since_us, np.where(vain, slot_us, NO_TIME))
    first = np.where(since == NO_TIME, failing_since_us, since)
    first = np.where(failing_since_us == NO_TIME, first, np.minimum(first, failing_since_us))
    last = np.where(vain, np.maximum(slot_us, attempt_us), attempt_us)
    wait = np.where(first == NO_TIME, 0, last - np.where(first == NO_TIME, 0, first)) / US_PER_DAY
    wait[first == NO_TIME] = 0.0
    return Silence(since, np.clip(WAIT_FACTOR * wait, 0.0, LONGEST_WAIT_DAYS), due & tonight, missed)
