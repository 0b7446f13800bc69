"""What a night expected of pages with signals, once it is known which signals came.

Pages with signals are crawled because of these. So what their crawls find has to be compared with what was
expected given the signals of the interval, as many of each source as there were: changes

    u = a t + sum over sources of k_s n_s

with the unsignalled rate `a` and the weight `k_s` of a signal. Rate and weights are gamma variables that know
nothing of each other; `u` is taken for one with their mean and variance, whose information is ``h = u**2 /
variance``. The interval holds no change with probability ``(1 + u / h) ** -h``.

Within the interval `u` grows evenly with time and jumps at signals. The copy's expected freshness follows
from that: a crawl soon after the only signal found a copy that was fresh until that moment, most likely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.estimation.forecast import Clocks, predict
from policies.history.interval_sums import Intervals
from policies.history.page_state import US_PER_DAY, ranges
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array, IntArray

_SMALLEST = 1e-30
_MOST_INFORMATION = 1e12
_SAME_DAYS = 1e-10  # less than a thousandth of a second: rounding
_JUMP_UNIT = 2.0**-32
_MOST_JUMP = 2.0**10  # of one signal; there is no doubt left long before


@dataclass(frozen=True, slots=True)
class HeardIntervals:
    """A night's k intervals of a run of pages that are listened to, and the signals inside them.

    Attributes
    ----------
    intervals : Intervals
        Sorted by (page, time).
    unheard_us : (k,) int64, microseconds
        Part of the interval, at its start, in which nobody listened yet.
    interval : (j,) int64
        Interval that some signals are in.
    source : (j,) int32
        Code of their source.
    number : (j,) int64, positive
        How many there are.
    last_at_us : (j,) int64, microseconds
        When the last one of them came.
    """

    intervals: Intervals
    unheard_us: IntArray
    interval: IntArray
    source: Int32Array
    number: IntArray
    last_at_us: IntArray

    def of(self, rows: IntArray) -> HeardIntervals:
        """The intervals `rows`, ascending."""
        all_ = self.intervals
        place = np.full(len(all_.page), -1)
        place[rows] = np.arange(len(rows))
        inside = np.flatnonzero(place[self.interval] >= 0)
        return HeardIntervals(
            all_.take(rows),
            self.unheard_us[rows],
            place[self.interval[inside]],
            self.source[inside],
            self.number[inside],
            self.last_at_us[inside],
        )

    def counts(self, n_sources: int) -> FloatArray:
        """Signals by interval and source: (k, n_sources) float64."""
        flat = self.interval * n_sources + self.source
        k = len(self.unheard_us)
        return np.bincount(flat, self.number, k * n_sources).astype(np.float64).reshape(k, n_sources)


@dataclass(frozen=True, slots=True)
class SignalForecast:
    """What the night before thought of m of n pages, for S sources.

    Attributes
    ----------
    row : (n,) int32
        Place of each page in the columns below; -1 where its signals were not counted on.
    change_rate_per_day : (m,) float64, positive
    unsignalled_rate_per_day : (m,) float64, positive
    unsignalled_information : (m,) float64, positive
        One over the relative variance of the unsignalled rate.
    signal_weight, signal_information : (m, S) float64
        Of a signal of each source; NaN where that night had not heard of the source.
    """

    row: Int32Array
    change_rate_per_day: FloatArray
    unsignalled_rate_per_day: FloatArray
    unsignalled_information: FloatArray
    signal_weight: FloatArray
    signal_information: FloatArray

    @classmethod
    def empty(cls, n_pages: int) -> SignalForecast:
        """No page has signals that were counted on."""
        none, sources = np.zeros(0), np.zeros((0, 0))
        return cls(np.full(n_pages, -1, np.int32), none, none, none, sources, sources)

    def only(self, listened: BoolArray) -> SignalForecast:
        """Without pages that nobody listens to tonight: (n,) bool."""
        return replace(self, row=np.where(listened, self.row, -1).astype(np.int32))

    def others(self, first_page: int, intervals: Intervals) -> Intervals:
        """Intervals of pages from `first_page` on that are not among these pages."""
        if not len(self.change_rate_per_day):
            return intervals
        others = self.row[intervals.page + first_page] < 0
        return intervals if others.all() else intervals.take(np.flatnonzero(others))

    def clocks(self, heard: HeardIntervals, factor: FloatArray | None = None) -> tuple[Intervals, Clocks]:
        """The intervals of these pages, and what was expected of each.

        Parameters
        ----------
        heard : HeardIntervals
            With codes of sources below S.
        factor : (m,) float64, positive, optional
            How much faster the clock of each interval that is returned ran.

        Returns
        -------
        Intervals
            Sorted by (page, time).
        Clocks
            Not known where signals came from a source that the night before had not heard of.

        Notes
        -----
        Before anybody listened changes came at the page's change rate, all of them unsignalled.
        """
        rows = np.flatnonzero(self.row[heard.intervals.page] >= 0)
        heard = heard.of(rows)
        intervals = heard.intervals
        if not len(rows):
            none = np.zeros(0)
            return intervals, Clocks(np.zeros(0, np.bool_), none, none, none, none, none)
        at = self.row[intervals.page]
        n_sources = self.signal_weight.shape[1]
        days = intervals.gap_us / US_PER_DAY
        rate = self.unsignalled_rate_per_day[at]
        more = np.maximum(self.change_rate_per_day[at] - rate, 0.0)
        calm = np.maximum(rate * days + more * (heard.unheard_us / US_PER_DAY), _SMALLEST)

        known = np.ones(len(days), np.bool_)
        changes, variance = calm.copy(), calm**2 / self.unsignalled_information[at]
        number = heard.counts(n_sources)
        for s in range(n_sources):
            weight, information = self.signal_weight[at, s], self.signal_information[at, s]
            some = number[:, s] > 0.0
            known &= ~some | ~np.isnan(weight)
            use = some & ~np.isnan(weight)
            moved = np.where(use, weight, 0.0) * number[:, s]
            changes += moved
            variance += moved**2 / np.where(use, information, 1.0)
        information = np.minimum(changes * (changes / np.maximum(variance, 1e-300)), _MOST_INFORMATION)
        weight = np.nan_to_num(self.signal_weight[at[heard.interval], heard.source])
        if factor is not None:
            changes, calm = changes * factor, calm * factor
            weight *= factor[heard.interval]
        steps = _steps(heard, weight, calm, days)
        unchanged = np.exp(-information * np.log1p(changes / information))
        fresh = np.minimum(steps.mean(information, np.ones(len(days)), days), 1.0)
        return intervals, Clocks(
            known,
            changes / days,
            information,
            calm / changes,
            fresh,
            _if_changed(intervals, steps, changes, information, unchanged, fresh),
        )


@dataclass(frozen=True, slots=True)
class _Steps:
    """How expected changes grow within k intervals: `p` pieces, sorted by (interval, time).

    `calm` is what comes evenly in time over all `days` of an interval, `jumped` what signals have added when
    a piece begins.
    """

    interval: IntArray
    start_days: FloatArray
    end_days: FloatArray
    jumped: FloatArray
    calm: FloatArray
    days: FloatArray

    def mean(self, information: FloatArray, scale: FloatArray, until: FloatArray) -> FloatArray:
        """Share of each interval that is fresh and before `until` days: all (k,).

        Changes are `scale` times those expected, with that information.
        """
        i = self.interval
        start, end = np.minimum(self.start_days, until[i]), np.minimum(self.end_days, until[i])
        h, per_day = information[i], self.calm[i] / self.days[i]
        before = scale[i] * (self.jumped + per_day * start)
        grown = scale[i] * per_day * (end - start)
        # The posterior at the start of a piece without a change so far: shape h still, scale less.
        still = np.exp(-h * np.log1p(before / h))
        inside = predict(grown * (h / (h + before)), h, np.ones(len(h)))[1]
        share = (end - start) / self.days[i] * still * inside
        return np.bincount(i, share, len(self.days)).astype(np.float64)

    def after(self, at_days: FloatArray) -> FloatArray:
        """Expected changes after some moment of each interval, (k,)."""
        i = self.interval
        last = np.flatnonzero(np.diff(i, append=-1))
        reached = np.bincount(i, self.start_days <= at_days[i] + _SAME_DAYS, len(self.days)).astype(np.int64)
        first = np.flatnonzero(np.diff(i, prepend=-1))
        there = self.jumped[first + np.maximum(reached, 1) - 1]
        return self.jumped[last] - there + self.calm * (1.0 - at_days / self.days)

    def share_before_first(self, changes: FloatArray) -> FloatArray:
        """The same as `_if_changed` where one change is expected to be the only one, (k,)."""
        jump = np.diff(self.jumped, prepend=0.0)
        jump[np.diff(self.interval, prepend=-1) != 0] = 0.0
        at = self.start_days / self.days[self.interval]
        moment = np.bincount(self.interval, jump * at, len(self.days))
        share: FloatArray = (0.5 * self.calm + moment) / changes
        return share


def _steps(heard: HeardIntervals, weight: FloatArray, calm: FloatArray, days: FloatArray) -> _Steps:
    """Pieces between signals, `weight` (j,) being that of one signal of each entry."""
    k = len(days)
    # Of signals of earlier nights only the last one's time is known: the others are spread before it.
    entry = np.repeat(np.arange(len(heard.number)), heard.number)
    nth = ranges(np.ones(len(heard.number), np.int64), heard.number)
    began_us = heard.intervals.at_us - heard.intervals.gap_us
    last = np.clip((heard.last_at_us - began_us[heard.interval]) / US_PER_DAY, 0.0, days[heard.interval])
    at = last[entry] * (nth / heard.number[entry])
    interval = np.concatenate([np.arange(k), heard.interval[entry]])
    start = np.concatenate([np.zeros(k), at])
    units = np.rint(np.minimum(weight, _MOST_JUMP) * (1.0 / _JUMP_UNIT)).astype(np.int64)
    jump = np.concatenate([np.zeros(k, np.int64), units[entry]])
    order = np.lexsort((jump, start, interval))
    interval, start, jump = interval[order], start[order], jump[order]
    first = np.flatnonzero(np.diff(interval, prepend=-1))
    # Whole numbers: what a page gets does not depend on the pages before it.
    total = np.cumsum(jump)
    jumped = (total - (total[first] - jump[first])[interval]) * _JUMP_UNIT
    end = np.append(start[1:], 0.0)
    end[np.append(first[1:], len(start)) - 1] = days
    return _Steps(interval, start, end, jumped, calm, days)


def _if_changed(
    intervals: Intervals,
    steps: _Steps,
    changes: FloatArray,
    information: FloatArray,
    unchanged: FloatArray,
    fresh: FloatArray,
) -> FloatArray:
    """Expected share of intervals before the first change, given one; see `forecast.fresh_if_changed`."""
    p = 1.0 - unchanged
    share = steps.share_before_first(changes)
    np.divide(fresh - unchanged, p, out=share, where=p > 1e-8)
    age_us = intervals.age_us
    if age_us is not None and age_us.any():
        days = steps.days
        before = days - age_us / US_PER_DAY
        narrowed = (information + 1.0) / (information + steps.after(before))
        dated = steps.mean(information + 1.0, narrowed, before)
        share = np.where(age_us > 0, dated, share)
    clipped: FloatArray = np.clip(share, 0.0, 1.0)
    return clipped
