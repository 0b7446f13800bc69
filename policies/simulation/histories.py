"""When pages changed, as arrays: real histories that are replayed, and Poisson ones that are drawn.

Times are int64 microseconds since 1970, UTC. Every question is answered for many pages at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

NEVER = int(np.iinfo(np.int64).max)
"""Stands for a change that does not come."""


@dataclass(frozen=True)
class ChangeHistory:
    """Pages and their changes in a window. `from_events` sorts and fills in what is left out.

    Attributes
    ----------
    start_us, end_us : int
        The window, microseconds UTC. Changes before it tell the version that its start finds.
    first_us : (n,) int64
        When each page appears.
    change_page, change_us : (c,) int64
        Changes, sorted by page, then time.
    change_version : (c,) int64
        What each change led to: equal numbers of a page are equal contents, 0 is the first version.

    Raises
    ------
    ValueError
        For an empty window, arrays of different lengths, an unknown page, or changes out of order.
    """

    start_us: int
    end_us: int
    first_us: IntArray
    change_page: IntArray
    change_us: IntArray
    change_version: IntArray

    def __post_init__(self) -> None:
        if self.end_us <= self.start_us:
            raise ValueError(
                f"the window ends at {self.end_us} us, at or before its start {self.start_us} us"
            )
        page, at, version = self.change_page, self.change_us, self.change_version
        if not len(page) == len(at) == len(version):
            raise ValueError(f"{len(page)} pages, {len(at)} times and {len(version)} versions of changes")
        if not len(page):
            return
        if page.min() < 0 or page.max() >= len(self.first_us):
            raise ValueError(
                f"a change of page {page.max()} or {page.min()}: pages are 0 to {len(self.first_us) - 1}"
            )
        ordered = (page[1:] > page[:-1]) | ((page[1:] == page[:-1]) & (at[1:] >= at[:-1]))
        if not ordered.all():
            raise ValueError("changes are not sorted by page and time: use ChangeHistory.from_events")

    @classmethod
    def from_events(
        cls,
        start_us: int,
        end_us: int,
        first_us: IntArray,
        page: IntArray,
        at_us: IntArray,
        version: IntArray | None = None,
    ) -> ChangeHistory:
        """A history of changes in any order; without versions, each change leads to a new content.

        Raises
        ------
        ValueError
            As the class.
        """
        order = np.lexsort((at_us, page))
        kept = np.arange(1, len(page) + 1) if version is None else np.asarray(version, np.int64)[order]
        return cls(start_us, end_us, first_us, page[order], at_us[order], kept)

    @classmethod
    def poisson(
        cls,
        start_us: int,
        end_us: int,
        rate_per_day: FloatArray,
        rng: np.random.Generator,
        first_us: IntArray | None = None,
    ) -> ChangeHistory:
        """Pages that change by Poisson processes, each from its first appearance to the window's end.

        Parameters
        ----------
        start_us, end_us : int
            The window, microseconds UTC.
        rate_per_day : (n,) float64
        rng : Generator
        first_us : (n,) int64, optional
            When each page appears; the window's start if left out.

        Raises
        ------
        ValueError
            For a negative or infinite rate.
        """
        if not (np.isfinite(rate_per_day) & (rate_per_day >= 0)).all():
            raise ValueError(f"change rates from {rate_per_day.min()} to {rate_per_day.max()} per day: give "
                             "finite ones from 0 on")  # fmt: skip
        n = len(rate_per_day)
        first = np.full(n, start_us, np.int64) if first_us is None else first_us
        span_us = np.maximum(end_us - first, 0)
        page = np.repeat(np.arange(n), rng.poisson(rate_per_day * (span_us / US_PER_DAY)))
        # An instant of its own after the first: a change at the very appearance could not be one.
        at_us = first[page] + 1 + (rng.random(len(page)) * (span_us[page] - 1)).astype(np.int64)
        return cls.from_events(start_us, end_us, first, page, at_us)

    def __len__(self) -> int:
        return len(self.first_us)

    def nights(self) -> IntArray:
        """Instants of the nights, (d,) int64: one a day from the start on, each with a whole day after it."""
        return np.arange(self.start_us, self.end_us - US_PER_DAY + 1, US_PER_DAY)

    @cached_property
    def _sorted_us(self) -> IntArray:
        return np.sort(self.change_us)

    def _key(self, page: IntArray, at_us: IntArray) -> IntArray:
        """Sorts as (page, time) does: times by their rank among the changes', which no window overflows."""
        return page * np.int64(len(self.change_us) + 1) + np.searchsorted(self._sorted_us, at_us, "right")

    @cached_property
    def _change_key(self) -> IntArray:
        return self._key(self.change_page, self.change_us)

    def position(self, page: IntArray, at_us: IntArray) -> IntArray:
        """Index of the first change after each instant, in the order of the changes, (k,) int64.

        Where the page has none, it is the index of the next page's first change. The difference of two
        positions of a page is the number of changes later than the one instant and not later than the other.
        """
        return np.searchsorted(self._change_key, self._key(page, at_us), side="right")

    def version(self, page: IntArray, at_us: IntArray) -> IntArray:
        """What crawls find, (k,) int64: a change at the very instant is seen."""
        at = self.position(page, at_us)
        before = np.append(-1, self.change_page)[at] == page
        return np.where(before, np.append(0, self.change_version)[at], 0)

    def next_change(self, page: IntArray, at_us: IntArray) -> IntArray:
        """First change after each instant, microseconds UTC, (k,) int64; `NEVER` where there is none."""
        at = self.position(page, at_us)
        mine = np.append(self.change_page, -1)[at] == page
        return np.where(mine, np.append(self.change_us, NEVER)[at], NEVER)

    def last_change(self, page: IntArray, at_us: IntArray) -> IntArray:
        """Last change up to each instant, or else the page's appearance; `NO_TIME` before that, (k,) int64.

        What an honest Last-Modified says.
        """
        at = self.position(page, at_us)
        first = np.where(self.first_us[page] <= at_us, self.first_us[page], NO_TIME)
        return np.where(
            np.append(-1, self.change_page)[at] == page, np.append(NO_TIME, self.change_us)[at], first
        )

    def changes_between(self, after_us: int | IntArray, until_us: int | IntArray) -> IntArray:
        """Changes of every page later than the one instant and not later than the other, (n,) int64."""
        everything = np.arange(len(self))
        low, high = (np.broadcast_to(np.asarray(us, np.int64), len(self)) for us in (after_us, until_us))
        return self.position(everything, high) - self.position(everything, low)

    def held_days(self, after_us: int, until_us: int) -> FloatArray:
        """Days between two instants in which each page was there, (n,) float64."""
        return np.asarray(np.maximum(until_us - np.maximum(self.first_us, after_us), 0) / US_PER_DAY)

    def paid_days(self, after_us: int, until_us: int) -> float:
        """Page-days between two instants that a budget per known page and day pays for.

        A page counts from the first night that knows it: a crawler that plans at night cannot spend more.
        """
        nights = -((self.start_us - self.first_us) // US_PER_DAY)
        known = self.start_us + np.maximum(nights, 0) * US_PER_DAY
        return float(np.maximum(until_us - np.maximum(known, after_us), 0).sum() / US_PER_DAY)

    def of_pages(self, kept: BoolArray | IntArray | Sequence[int]) -> ChangeHistory:
        """The same with some pages only, numbered anew in their old order."""
        mask = np.zeros(len(self), np.bool_)
        mask[np.asarray(kept)] = True
        number, change = np.cumsum(mask) - 1, mask[self.change_page]
        return replace(
            self,
            first_us=self.first_us[mask],
            change_page=number[self.change_page[change]],
            change_us=self.change_us[change],
            change_version=self.change_version[change],
        )

    def spread(self, rng: np.random.Generator, seen_after_us: IntArray) -> ChangeHistory:
        """The same with every change at a random instant since the look that had not seen it yet.

        Polled histories have their changes at the polls; left there, a crawler at another time of the day
        would profit or lose by it.

        Parameters
        ----------
        rng : Generator
        seen_after_us : (c,) int64
            The last look before each change; no change moves before its page, or past the change before it.
        """
        low = np.maximum(seen_after_us, self.first_us[self.change_page])
        same = np.diff(self.change_page, prepend=-1) == 0
        low = np.maximum(low, np.where(same, np.concatenate([[NO_TIME], self.change_us[:-1]]), NO_TIME))
        room = np.maximum(self.change_us - low, 0)
        # In (low, change]: the look at `low` did not see it.
        back = (rng.random(len(room)) * room).astype(np.int64)
        return replace(self, change_us=self.change_us - back)
