"""Folding crawl observations into the state of their pages.

What becomes of a row, in this order; every row has exactly one disposition and is counted under it:

after_as_of
    Fetched after `as_of_us`: ignored.
late
    Not newer than the last visit in the state, or a failed fetch not newer than the last attempt there:
    ignored. (A visit at the instant of that visit is a duplicate, and so is the failed attempt itself.)
failed
    A fetch that got no answer about the page: statuses other than 2xx, 3xx, 404 and 410. It moves
    `last_attempt_at_us`, nothing else; the interval spans it.
duplicate
    A visit less than `MIN_GAP_US` after the last one that was kept: the same visit, ignored.
baseline
    The first observation of the page. It opens the first interval and is no change.
unchanged, changed_dated, changed_undated
    An observation that ends an interval and opens the next one.
no_change_evidence
    A visit that cannot be compared: no 304, flag, digest, or Last-Modified, or no earlier one; a digest of
    another form than the last; a Last-Modified that is the clock. If it carries nothing the interval goes on.
    Else a new one begins: what is compared with this visit later tells of the time since then only.
not_modified_without_baseline
    A 304 of a page that was never observed: what it is unmodified since is not known.

How an observation is judged:

* 404 and 410 are observations of a page that is *gone*, also as a baseline (a page that always was gone has
  a history, too). From alive to gone and back are changes; gone again is unchanged.
* 304 is unchanged, whatever digest comes with it. A row marked `not_modified` with another status (a WARC
  revisit, which may have no status, or a page of a store) is unchanged unless its digest and the last known
  one differ.
* Otherwise the `changed` flag decides, else the digest against the last known one, if they are of one form
  (see `policies.history.visits.Observations`), else the Last-Modified against the newest known one. A page
  that changed and changed back unseen is unchanged: the likelihood of an interval-censored process asks
  whether a difference was seen.
* By its Last-Modified a page has changed if that lies after the start of the interval. One that only moved is
  unchanged: several servers of a site differ by seconds. One that is the clock (`modified_dates.stamped`)
  says nothing.
* A change found without a digest makes the last known digest unknown, and a page gone the Last-Modified.
  The digest of a page gone is that of the answer, so that a revisit with the same digest finds it gone still.
  A Last-Modified after its own fetch counts as none.
* A change is dated if its Last-Modified lies after the start of the interval and is not the clock. What it
  adds to exposure is in `policies.history.modified_dates`.

Rows of a page are taken by time; at one instant by kind of answer, digest (known ones first), flag and
Last-Modified. So the order of the input does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.clocks.profile import Clocks
from policies.history.interval_sums import Intervals, add_intervals
from policies.history.modified_dates import MIN_AGE_US, exposure_us, stamped
from policies.history.page_state import NO_TIME, Forgetting, PageState, concatenate
from policies.history.visits import (
    GONE,
    MIN_GAP_US,
    REVISIT,
    REWRITTEN,
    STATUS_NONE,
    SUCCESS,
    UNMODIFIED,
    Log,
    Observations,
    Visits,
    drop_repeats,
    same_form,
)
from policies.numerics.typing_ import BoolArray, IntArray, UIntArray

__all__ = ["DISPOSITIONS", "MIN_AGE_US", "MIN_GAP_US", "STATUS_NONE", "Observations", "fold"]

DISPOSITIONS = (
    "after_as_of",
    "late",
    "duplicate",
    "failed",
    "baseline",
    "unchanged",
    "changed_dated",
    "changed_undated",
    "no_change_evidence",
    "not_modified_without_baseline",
)
"""Counters that add up to ``observations``."""

_BESIDE = ("last_modified_ignored", "last_modified_clock", "digest_form_changed")

_NONE, _UNCHANGED, _CHANGED, _BASELINE, _ANEW = range(5)


def fold(
    state: PageState,
    observations: Observations,
    as_of_us: int,
    *,
    half_life_changes: int | None = None,
    half_life_days: float | None = None,
    watch: Callable[[int, Intervals], None] | None = None,
    clock: Clocks | None = None,
) -> tuple[PageState, dict[str, int]]:
    """Fold a night's log into the state of its pages.

    Cutting a log that is in order per page into nights gives, to the bit, the state of one long night, and so
    does any order of the rows within a night.

    Parameters
    ----------
    state : PageState, n pages
        Yesterday's state, expanded to the pages of tonight. Not changed.
    observations : Observations
    as_of_us : int, microseconds
        Later rows are ignored.
    half_life_changes : int, optional
        Observed changes after which an interval counts half.
    half_life_days : float, optional, days
        Days after which an interval counts half.
    watch : function, optional
        Is shown the night's intervals, a run of pages at a time: the first page of the run, and the intervals
        with pages counted from there.
    clock : Clocks, optional
        Of the pages; intervals are as long as it says.

    Returns
    -------
    PageState, dict of counters
        ``observations`` is the sum of `DISPOSITIONS`. Beside them ``last_modified_ignored`` counts kept
        visits with a Last-Modified after their fetch, ``last_modified_clock`` those that said nothing because
        theirs was the clock, ``digest_form_changed`` those whose digest was of another form than the last.

    Raises
    ------
    ValueError
        Columns that do not fit each other or the state; half-lives out of range.
    """
    forgetting = Forgetting(half_life_changes, half_life_days)
    observations.check(len(state))
    names = ("observations", *DISPOSITIONS, *_BESIDE)
    counts = dict.fromkeys(names, 0)
    counts["observations"] = len(observations)
    log = Log(state, observations, as_of_us, counts)
    parts = []
    for low, high, visits in log.blocks():
        before = state.slice(low, high, log.last_attempt_at_us)
        visits.page -= low
        folded, intervals = _fold_block(before, visits, forgetting, counts, low, clock)
        parts.append(folded)
        if watch is not None:
            watch(low, intervals)
    return concatenate(parts), counts


def _fold_block(
    state: PageState,
    visits: Visits,
    forgetting: Forgetting,
    counts: dict[str, int],
    first_page: int = 0,
    clock: Clocks | None = None,
) -> tuple[PageState, Intervals]:
    """Fold the visits of a run of pages. `state.last_attempt_at_us` is tonight's already."""
    visits = drop_repeats(state, visits, counts)
    if visits.modified_us is not None:
        future = visits.modified_us > visits.at_us
        counts["last_modified_ignored"] += int(np.count_nonzero(future))
        visits.modified_us = np.where(future, NO_TIME, visits.modified_us)

    pages = _Pages(visits.page)
    kind = visits.code & 7
    gone = _gone(state, visits, pages, kind)
    dates = _Dates(state, visits, pages, gone)
    outcome, base_us, after = _judge(state, visits, pages, dates, gone, counts)
    last_us = visits.at_us[pages.end - 1]
    last_success = state.last_success_at_us.copy()
    last_success[pages.page] = last_us
    last_attempt = state.last_attempt_at_us.copy()
    last_attempt[pages.page] = np.maximum(last_attempt[pages.page], last_us)

    nothing = (outcome == _NONE) | (outcome == _ANEW)
    unfounded = int(np.count_nonzero(nothing & ((kind == UNMODIFIED) | (kind == REVISIT))))
    counts["not_modified_without_baseline"] += unfounded
    counts["no_change_evidence"] += int(np.count_nonzero(nothing)) - unfounded
    counts["baseline"] += int(np.count_nonzero(outcome == _BASELINE))

    ends = (outcome == _UNCHANGED) | (outcome == _CHANGED)
    rows = _rows(ends)
    at_us, base_us, changed = visits.at_us[rows], base_us[rows], outcome[rows] == _CHANGED
    age_us = dated_us = None
    n_changed = int(np.count_nonzero(changed))
    if dates.value is not None:
        age_us, dated_us = dates.of_changes(rows, base_us, changed & (kind[rows] != GONE))
        n_dated = int(np.count_nonzero(age_us))
        counts["changed_dated"] += n_dated
        counts["changed_undated"] -= n_dated
    counts["changed_undated"] += n_changed
    counts["unchanged"] += len(changed) - n_changed
    changes = np.flatnonzero(outcome == _CHANGED)
    last = changes[np.diff(visits.page[changes], append=-1) != 0]
    last_change = state.last_change_at_us.copy()
    last_change[visits.page[last]] = visits.at_us[last]
    after["last_change_at_us"] = last_change
    begun = np.flatnonzero((outcome == _BASELINE) | (outcome == _ANEW))
    clock_us = None
    if clock is not None:
        of = visits.page[rows] + first_page
        clock_us = clock.length_us(of, base_us, at_us)
        if dated_us is not None:
            dated_us = np.where(dated_us > 0, clock.length_us(of, at_us - dated_us, at_us), 0)
    intervals = Intervals(
        visits.page[rows],
        at_us,
        at_us - base_us,
        changed,
        age_us,
        dated_us,
        visits.page[begun],
        visits.at_us[begun],
        clock_us,
    )
    sums = add_intervals(state, intervals, after["baseline_at_us"], forgetting)
    folded = PageState(last_success_at_us=last_success, last_attempt_at_us=last_attempt, **sums, **after)
    return folded, intervals


def _rows(mask: BoolArray) -> IntArray | slice:
    """The rows of a mask, without a copy where it is all of them."""
    return slice(None) if mask.all() else np.flatnonzero(mask)


class _Pages:
    """Runs of equal pages in sorted rows."""

    def __init__(self, row_page: IntArray) -> None:
        k = len(row_page)
        change = np.flatnonzero(row_page[1:] != row_page[:-1]) + 1
        self.row_page = row_page
        self.start = np.concatenate([np.zeros(min(k, 1), dtype=np.int64), change])
        self.end = np.append(self.start[1:], k) if k else self.start
        self.page = row_page[self.start]

    def known_before(self, values: NDArray[Any], setter: BoolArray, before: NDArray[Any]) -> NDArray[Any]:
        """Value of the last earlier row of the page that sets one; else `before`, one value a page."""
        known = np.empty_like(values)
        known[1:] = values[:-1]
        if not setter.all():
            setters = np.flatnonzero(setter)
            holes = np.flatnonzero(~setter[:-1]) + 1
            rank = np.cumsum(setter)[holes - 1]
            found = rank > 0
            last = setters[rank[found] - 1]
            known[holes[found]] = values[last]
            found[found] = self.row_page[last] == self.row_page[holes[found]]
            orphans = holes[~found]
            known[orphans] = before[self.row_page[orphans]]
        known[self.start] = before[self.page]
        return known

    def newest(self, values: IntArray, reset: BoolArray, before: IntArray) -> IntArray:
        """Greatest value of the rows of a page so far, since the last one of `reset`; `before` one a page."""
        newest = values.copy()
        first = np.zeros(len(values), dtype=np.bool_)
        first[self.start] = True
        begin = self.start[~reset[self.start]]
        newest[begin] = np.maximum(newest[begin], before[self.row_page[begin]])
        run = np.cumsum(first | reset)
        step, longest = 1, int(np.bincount(run).max(initial=0))
        while step < longest:  # maxima of runs of rows, each twice as long as before
            same = run[step:] == run[:-step]
            newest[step:] = np.maximum(newest[step:], np.where(same, newest[:-step], NO_TIME))
            step *= 2
        return newest

    def known_after(
        self, values: NDArray[Any], setter: BoolArray, known: NDArray[Any], after: NDArray[Any]
    ) -> None:
        """Enter into `after` what is known after the last row of each page, `known` being `known_before`."""
        last = self.end - 1
        after[self.page] = np.where(setter[last], values[last], known[last])


class _Dates:
    """Last-Modified of visits, and what was known of that of their page before.

    Attributes
    ----------
    value : (k,) int64, microseconds, or None where no visit has one
    known : (k,) int64, microseconds
        The newest of the page before; `NO_TIME` if there was none since the page was gone.
    seen_us : (k,) int64, microseconds
        When one was last seen.
    """

    def __init__(self, state: PageState, visits: Visits, pages: _Pages, gone: BoolArray) -> None:
        self.after = {
            "last_modified_at_us": state.last_modified_at_us.copy(),
            "last_modified_seen_us": state.last_modified_seen_us.copy(),
        }
        self.value, self._at_us = visits.modified_us, visits.at_us
        if self.value is None:
            for column in self.after.values():
                column[visits.page[gone]] = NO_TIME
            return
        self.value = np.where(gone, NO_TIME, self.value)
        self.has = self.value != NO_TIME
        newest = pages.newest(self.value, gone, state.last_modified_at_us)
        sets = self.has | gone
        seen = np.where(gone, NO_TIME, visits.at_us)
        # A state of an older version does not say when: at the last visit, at the latest.
        old = (state.last_modified_seen_us == NO_TIME) & (state.last_modified_at_us != NO_TIME)
        seen_before = np.where(old, state.baseline_at_us, state.last_modified_seen_us)
        self.known = pages.known_before(newest, sets, state.last_modified_at_us)
        self.seen_us = pages.known_before(seen, sets, seen_before)
        pages.known_after(newest, sets, self.known, self.after["last_modified_at_us"])
        pages.known_after(seen, sets, self.seen_us, self.after["last_modified_seen_us"])

    def _steps(self, rows: IntArray | slice, base_us: IntArray) -> tuple[IntArray, IntArray]:
        """By how much the dates of visits moved, 0 where none is known, and in what time."""
        assert self.value is not None
        moved = (self.known[rows] != NO_TIME) & (self.value[rows] > self.known[rows])
        step = np.where(moved, self.value[rows] - np.where(moved, self.known[rows], 0), 0)
        seen = np.where(self.seen_us[rows] == NO_TIME, base_us, self.seen_us[rows])
        return step, self._at_us[rows] - seen

    def compared(self, success: BoolArray) -> tuple[BoolArray, BoolArray, BoolArray]:
        """Visits whose date can be compared, where it is newer, and where it only is the clock, (k,) bool."""
        assert self.value is not None
        compare = success & self.has & (self.known != NO_TIME)
        newer = compare & (self.value > self.known)
        clock = np.zeros(len(newer), dtype=np.bool_)
        rows = np.flatnonzero(newer)
        step, since = self._steps(rows, self._at_us[rows])
        clock[rows] = stamped(self._at_us[rows] - self.value[rows], step, since)
        return compare, newer, clock

    def of_changes(
        self, rows: IntArray | slice, base_us: IntArray, changed: BoolArray
    ) -> tuple[IntArray, IntArray]:
        """Ages of the changes that are dated, else 0, and what they add to exposure."""
        assert self.value is not None
        age, exposure = np.zeros(len(base_us), np.int64), np.zeros(len(base_us), np.int64)
        at_us, value = self._at_us[rows], self.value[rows]
        some = np.flatnonzero(changed & (value > base_us))
        step, since = (v[some] for v in self._steps(rows, base_us))
        ages = at_us[some] - value[some]
        dated = ~stamped(ages, step, since)
        some, ages, step, since = some[dated], ages[dated], step[dated], since[dated]
        age[some] = ages
        exposure[some] = exposure_us(ages, step, since, at_us[some] - base_us[some])
        return age, exposure


def _judge(
    state: PageState, visits: Visits, pages: _Pages, dates: _Dates, gone: BoolArray, counts: dict[str, int]
) -> tuple[NDArray[np.int8], IntArray, dict[str, NDArray[Any]]]:
    """Outcome of each visit, the time of the observation before it, and what is known after the last one."""
    k = len(visits.page)
    kind = visits.code & 7
    flag = (visits.code >> 3).view(np.int8)  # 0 unknown, 1 unchanged, 2 changed
    success = kind == SUCCESS
    kept = ("gone", "digest", "digest_form", "replaced_digest", "n_returns", "baseline_at_us")
    after: dict[str, NDArray[Any]] = {name: getattr(state, name).copy() for name in kept} | dates.after
    if not k:
        return np.zeros(0, dtype=np.int8), visits.at_us, after
    has_digest = (kind <= REVISIT) & (visits.digest != 0)
    any_gone = bool(gone.any() or state.gone[pages.page].any())
    can_open = has_digest | gone | (success & (flag > 0))
    outcome = np.zeros(k, dtype=np.int8)
    blank = success & (flag == 2) & ~has_digest  # changed, to a content whose digest is not known
    by_date = clock = np.zeros(k, dtype=np.bool_)
    if dates.value is not None:
        can_open |= success & dates.has
        by_date, newer, clock = dates.compared(success)
        outcome[by_date] = _UNCHANGED
        outcome[newer] = _CHANGED
        outcome[clock] = _NONE
        past = newer & ~clock & (dates.value > dates.seen_us)
        blank |= past & (flag == 0) & ~has_digest

    opened = state.baseline_at_us != NO_TIME
    sets = has_digest | gone | blank
    if any_gone:
        was_gone = pages.known_before(gone, np.ones(k, dtype=np.bool_), state.gone)
        sets |= was_gone
    digest = np.where(has_digest | gone, visits.digest, np.uint64(0))
    known = pages.known_before(digest, sets, state.digest)
    pages.known_after(digest, sets, known, after["digest"])
    by_digest = has_digest & (known != 0)
    differs = digest != known
    other = by_digest & differs & _other_form(state, visits, pages, digest, sets, after)
    counts["digest_form_changed"] += int(np.count_nonzero(other))
    by_digest &= ~other
    np.copyto(outcome, _changed_if(differs), where=by_digest)
    flagged = success & (flag > 0)
    np.copyto(outcome, flag, where=flagged)
    unmodified = (kind == UNMODIFIED) | ((kind == REVISIT) & ~by_digest)
    outcome[unmodified] = _UNCHANGED
    without = flagged | unmodified
    if any_gone:
        after["gone"][pages.page] = gone[pages.end - 1]
        either = gone | was_gone
        np.copyto(outcome, _changed_if(gone != was_gone), where=either)
        without |= either

    np.copyto(outcome, np.int8(_ANEW), where=can_open & (outcome == _NONE))
    if not opened.all():
        had = pages.known_before(can_open, can_open, opened)
        np.copyto(outcome, can_open.view(np.int8) * np.int8(_BASELINE), where=~had)
        without |= ~had
    by_digest &= ~without
    by_date &= ~by_digest & ~without
    counts["last_modified_clock"] += int(np.count_nonzero(clock & by_date))
    _count_returns(state, visits, pages, known, by_digest & differs, after)

    observed = outcome != _NONE
    base_us = pages.known_before(visits.at_us, observed, state.baseline_at_us)
    pages.known_after(visits.at_us, observed, base_us, after["baseline_at_us"])
    if dates.value is not None:
        outcome[by_date & (outcome == _CHANGED) & (dates.value <= base_us)] = _UNCHANGED
    return outcome, base_us, after


def _other_form(
    state: PageState,
    visits: Visits,
    pages: _Pages,
    digest: UIntArray,
    sets: BoolArray,
    after: dict[str, NDArray[Any]],
) -> BoolArray:
    """Visits whose digest is of another form than the last known one, (k,)."""
    form = np.zeros(len(digest), np.uint32) if visits.form is None else visits.form
    seen = np.where(digest != 0, form & np.uint32(REWRITTEN - 1), np.uint32(0))
    known = pages.known_before(seen, sets, state.digest_form)
    pages.known_after(seen, sets, known, after["digest_form"])
    return ~same_form(form, known)


def _count_returns(
    state: PageState,
    visits: Visits,
    pages: _Pages,
    known: UIntArray,
    changed: BoolArray,
    after: dict[str, NDArray[Any]],
) -> None:
    """Count changes, found by digests, that brought back what the change before them had replaced."""
    if not changed.any():
        return
    replaced = pages.known_before(known, changed, state.replaced_digest)
    pages.known_after(known, changed, replaced, after["replaced_digest"])
    back = visits.page[changed & (visits.digest == replaced)]
    after["n_returns"] += np.bincount(back, minlength=len(state)).astype(np.int32)


def _gone(state: PageState, visits: Visits, pages: _Pages, kind: NDArray[Any]) -> BoolArray:
    """Visits that find the page gone, (k,): also revisits with the digest of that answer, nothing between."""
    gone: BoolArray = kind == GONE
    digest = (kind <= REVISIT) & (visits.digest != 0)
    echo = digest & (kind == REVISIT)
    if echo.any() and (gone.any() or state.gone[pages.page].any()):
        echo &= visits.digest == pages.known_before(visits.digest, digest | gone, state.digest)
        gone |= echo & pages.known_before(gone, ~echo, state.gone)
    return gone


def _changed_if(differs: BoolArray) -> NDArray[np.int8]:
    return differs.view(np.int8) + np.int8(_UNCHANGED)
