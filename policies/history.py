"""Folding crawl observations into the state of their pages.

What becomes of a row, in this order; every row has exactly one disposition and is counted under it:

after_as_of
    Fetched after `as_of_us`: ignored.
late
    Not newer than the last visit in the state: ignored. (A visit at its very instant is a duplicate.)
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
    A visit that cannot be compared: no 304, flag, digest, or Last-Modified, or no earlier one. The interval
    goes on; what the visit does carry is known from then on.
not_modified_without_baseline
    A 304 of a page that was never observed: what it is unmodified since is not known.

How an observation is judged:

* 404 and 410 are observations of a page that is *gone*, also as a baseline (a page that always was gone has
  a history, too). From alive to gone and back are changes; gone again is unchanged.
* 304 is unchanged, whatever digest comes with it. A row marked `not_modified` with another status (a WARC
  revisit, which may have no status) is unchanged unless its digest and the last known one differ.
* Otherwise the `changed` flag decides, else the digest against the last known one, else the Last-Modified
  against the last known one. A page that changed and changed back unseen is unchanged: the likelihood of an
  interval-censored process asks whether a difference was seen.
* A change found without a digest, and a page gone, make the last known digest unknown; a page gone the
  Last-Modified, too. A Last-Modified after its own fetch counts as none.
* A change is dated if its Last-Modified lies after the previous observation and at least `MIN_AGE_US` before
  the fetch: servers that stamp every answer with the present say nothing.

Rows of a page are taken by time; at one instant by kind of answer, digest (known ones first), flag and
Last-Modified. So the order of the input does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.interval_sums import Intervals, add_intervals
from policies.page_state import NO_TIME, Forgetting, PageState
from policies.signal_counts import Signals, count_signals
from policies.typing_ import BoolArray, ByteArray, IntArray, UIntArray

MIN_GAP_US = 60_000_000
MIN_AGE_US = 60_000_000
STATUS_NONE = -32768
"""Stands for a missing status; counts as a success."""

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

_SUCCESS, _REVISIT, _UNMODIFIED, _GONE, _FAILED = range(5)
_NONE, _UNCHANGED, _CHANGED, _BASELINE = range(4)


def _kind_table() -> ByteArray:
    """Kind of answer by status seen as uint16; in the second half for rows marked as not modified."""
    status = np.arange(1 << 16).astype(np.uint16).view(np.int16)
    kind = np.full(status.shape, _FAILED, dtype=np.uint8)
    kind[((status >= 200) & (status < 400)) | (status == STATUS_NONE)] = _SUCCESS
    kind[status == 304] = _UNMODIFIED
    kind[(status == 404) | (status == 410)] = _GONE
    revisit = kind.copy()
    revisit[(kind == _SUCCESS) | ((status <= 0) & (kind == _FAILED))] = _REVISIT
    return np.concatenate([kind, revisit])


_KIND = _kind_table()


@dataclass(frozen=True, slots=True)
class Observations:
    """Rows of a crawl log, in any order.

    Attributes
    ----------
    page : (k,) int64
        Code of the page, 0..n-1 in the order of the state.
    fetched_at_us : (k,) int64, microseconds since 1970, UTC
    status : (k,) int16, optional
        HTTP status, `STATUS_NONE` where missing.
    digest : (k,) uint64, optional
        Hash of the content, 0 where there is none. The digest of an empty body must come as 0.
    changed : (k,) int8, optional
        What the crawler says: 1 changed, 0 unchanged, -1 nothing.
    not_modified : (k,) bool, optional
    last_modified_us : (k,) int64, microseconds, `NO_TIME` where missing, optional
    """

    page: IntArray
    fetched_at_us: IntArray
    status: NDArray[np.int16] | None = None
    digest: UIntArray | None = None
    changed: NDArray[np.int8] | None = None
    not_modified: BoolArray | None = None
    last_modified_us: IntArray | None = None

    def __len__(self) -> int:
        return len(self.page)

    def check(self, n: int) -> None:
        """Raise `ValueError` on columns of unequal length or pages outside 0..n-1."""
        for name in ("fetched_at_us", "status", "digest", "changed", "not_modified", "last_modified_us"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self):
                raise ValueError(f"{name} has {len(column)} rows and page has {len(self)}; give one each")
        if len(self) and not (self.page.min() >= 0 and self.page.max() < n):
            raise ValueError(
                f"page codes {self.page.min()}..{self.page.max()} do not fit a state of {n} pages; "
                f"expand the state first"
            )
        if len(self) and self.fetched_at_us.min() == NO_TIME:
            raise ValueError("fetched_at_us has a missing time; reject such rows before the fold")


@dataclass(slots=True)
class _Visits:
    """Rows in order of (page, time): columns, and where pages begin."""

    page: IntArray
    at_us: IntArray
    code: ByteArray  # kind | (changed + 1) << 3
    digest: UIntArray
    modified_us: IntArray | None

    def take(self, rows: NDArray[Any]) -> _Visits:
        modified = None if self.modified_us is None else self.modified_us[rows]
        return _Visits(self.page[rows], self.at_us[rows], self.code[rows], self.digest[rows], modified)


def fold(
    state: PageState,
    observations: Observations,
    as_of_us: int,
    *,
    signals: Signals | None = None,
    half_life_changes: int | None = None,
    half_life_days: float | None = None,
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
    signals : Signals, optional
        Change-indicating signals of the pages.
    half_life_changes : int, optional
        Observed changes after which an interval counts half.
    half_life_days : float, optional, days
        Days after which an interval counts half.

    Returns
    -------
    PageState, dict of counters
        ``observations`` is the sum of `DISPOSITIONS`, ``signals`` that of `signal_counts.DISPOSITIONS`.
        Beside them ``last_modified_ignored`` counts kept visits with a Last-Modified after their fetch.

    Raises
    ------
    ValueError
        Columns that do not fit each other or the state; half-lives out of range.
    """
    forgetting = Forgetting(half_life_changes, half_life_days)
    observations.check(len(state))
    counts = dict.fromkeys(("observations", *DISPOSITIONS, "last_modified_ignored"), 0)
    counts["observations"] = len(observations)

    last_attempt = state.last_attempt_at_us.copy()
    visits = _sorted_visits(state, observations, as_of_us, last_attempt, counts)
    visits = _drop_repeats(state, visits, counts)
    if visits.modified_us is not None:
        future = visits.modified_us > visits.at_us
        counts["last_modified_ignored"] = int(np.count_nonzero(future))
        visits.modified_us = np.where(future, NO_TIME, visits.modified_us)

    pages = _Pages(visits.page)
    outcome, base_us, after = _judge(state, visits, pages)
    last = pages.page, visits.at_us[pages.end - 1]
    last_success = state.last_success_at_us.copy()
    last_success[last[0]] = last[1]
    np.maximum.at(last_attempt, *last)

    counts["baseline"] = int(np.count_nonzero(outcome == _BASELINE))
    nothing = outcome == _NONE
    kind = visits.code & 7
    counts["not_modified_without_baseline"] = int(
        np.count_nonzero(nothing & ((kind == _UNMODIFIED) | (kind == _REVISIT)))
    )
    counts["no_change_evidence"] = int(np.count_nonzero(nothing)) - counts["not_modified_without_baseline"]

    observed = np.flatnonzero(~nothing) if nothing.any() else slice(None)
    table, inside, signal_counters = count_signals(
        state,
        signals,
        as_of_us,
        visits.page[observed],
        visits.at_us[observed],
        outcome[observed] == _BASELINE,
        outcome[observed] == _CHANGED,
    )
    counts |= signal_counters

    ends = (outcome == _UNCHANGED) | (outcome == _CHANGED)
    if inside is not None:
        inside = inside[ends[observed]]
    rows = np.flatnonzero(ends)
    if len(rows) == len(ends):
        rows = slice(None)  # type: ignore[assignment]
    at_us, base_us = visits.at_us[rows], base_us[rows]
    changed = outcome[rows] == _CHANGED
    age_us = None
    if visits.modified_us is not None:
        modified = visits.modified_us[rows]
        dated = changed & (modified > base_us) & (modified <= at_us - MIN_AGE_US) & (kind[rows] != _GONE)
        age_us = np.where(dated, at_us - np.where(dated, modified, 0), 0)
        counts["changed_dated"] = int(np.count_nonzero(dated))
    n_changed = int(np.count_nonzero(changed))
    counts["unchanged"] = len(changed) - n_changed
    counts["changed_undated"] = n_changed - counts["changed_dated"]
    sums = add_intervals(
        state,
        Intervals(visits.page[rows], at_us, at_us - base_us, changed, age_us, inside),
        after["baseline_at_us"],
        forgetting,
    )
    return (
        PageState(last_success_at_us=last_success, last_attempt_at_us=last_attempt, **sums, **after, **table),
        counts,
    )


def _sorted_visits(
    state: PageState, rows: Observations, as_of_us: int, last_attempt: IntArray, counts: dict[str, int]
) -> _Visits:
    """Visits newer than the state, by (page, time, content); counts the others, moves `last_attempt`."""
    page = np.asarray(rows.page, dtype=np.int64)
    at_us = np.asarray(rows.fetched_at_us, dtype=np.int64)
    k = len(page)
    if rows.status is None:
        kind = np.full(k, _SUCCESS, dtype=np.uint8)
        if rows.not_modified is not None:
            kind[rows.not_modified] = _REVISIT
    else:
        index = np.asarray(rows.status, dtype=np.int16).view(np.uint16)
        if rows.not_modified is None:
            kind = _KIND[index]
        else:
            kind = _KIND[index.astype(np.int32) + (rows.not_modified.astype(np.int32) << 16)]
    code = kind
    if rows.changed is not None:
        code = kind | ((np.clip(rows.changed, -1, 1) + 1).astype(np.uint8) << 3)
    digest = np.zeros(k, dtype=np.uint64) if rows.digest is None else np.asarray(rows.digest, dtype=np.uint64)
    modified = None if rows.last_modified_us is None else np.asarray(rows.last_modified_us, dtype=np.int64)
    if (
        modified is not None
        and not (modified != NO_TIME).any()
        and (state.last_modified_at_us == NO_TIME).all()
    ):
        modified = None

    drop = at_us > as_of_us
    counts["after_as_of"] = int(np.count_nonzero(drop))
    failed = kind == _FAILED
    if (state.last_success_at_us != NO_TIME).any():
        last = state.last_success_at_us[page]
        behind = (at_us <= last) & ~drop
        repeat = (at_us == last) & behind & ~failed
        counts["duplicate"] = int(np.count_nonzero(repeat))
        counts["late"] = int(np.count_nonzero(behind)) - counts["duplicate"]
        drop |= behind
    failed &= ~drop
    attempts = np.flatnonzero(failed)
    if len(attempts):
        counts["failed"] = len(attempts)
        np.maximum.at(last_attempt, page[attempts], at_us[attempts])
        drop |= failed
    kept: IntArray | None = np.flatnonzero(~drop) if drop.any() else None
    if kept is not None and not len(kept):
        return _Visits(page[:0], at_us[:0], code[:0], digest[:0], None if modified is None else modified[:0])

    order = _order(page, at_us, code, digest, modified, kept)
    visits = _Visits(page, at_us, code, digest, modified)
    return visits if order is None else visits.take(order)


def _order(
    page: IntArray,
    at_us: IntArray,
    code: ByteArray,
    digest: UIntArray,
    modified: IntArray | None,
    kept: IntArray | None,
) -> IntArray | None:
    """Rows `kept` (all if None) by (page, time, content); None if they are in order as they stand."""
    p = page if kept is None else page[kept]
    t = at_us if kept is None else at_us[kept]
    if len(p) < 2:
        return kept
    # One integer key: the page above, and of the time as many bits as fit below it.
    first = int(t.min())
    time_bits = (int(t.max()) - first).bit_length()
    lost_bits = max(0, int(p.max()).bit_length() + time_bits - 63)
    key = (p << (time_bits - lost_bits)) | ((t - first) >> lost_bits)
    order: IntArray | None = None
    step = np.diff(key)
    if not (step >= 0).all():
        order = np.argsort(key)
        key = key[order]
        step = np.diff(key)
    same = step == 0
    if same.any():
        # Few rows share a key; only these are compared in full.
        twin = np.zeros(len(key), dtype=np.bool_)
        twin[1:] = same
        twin[:-1] |= same
        place = np.flatnonzero(twin)
        group = key[place]
        order = np.arange(len(p)) if order is None else order
        among = order[place]
        row = among if kept is None else kept[among]
        content = [~code[row], digest[row] - np.uint64(1), code[row] & np.uint8(7), t[among], group]
        if modified is not None:
            content.insert(0, ~modified[row])
        order[place] = among[np.lexsort(content)]
    if order is None:
        return kept
    return order if kept is None else kept[order]


def _drop_repeats(state: PageState, visits: _Visits, counts: dict[str, int]) -> _Visits:
    """Keep visits at least `MIN_GAP_US` after the last one kept, beginning with the state's."""
    k = len(visits.page)
    if not k:
        return visits
    first = np.ones(k, dtype=np.bool_)
    first[1:] = visits.page[1:] != visits.page[:-1]
    near = np.zeros(k, dtype=np.bool_)
    near[1:] = (np.diff(visits.at_us) < MIN_GAP_US) & ~first[1:]
    starts = np.flatnonzero(first)
    last = state.last_success_at_us[visits.page[starts]]
    near[starts] = (last != NO_TIME) & (visits.at_us[starts] - np.maximum(last, -(1 << 62)) < MIN_GAP_US)
    if not near.any():
        return visits

    # Chains of rows each near the one before; only their heads are kept for sure.
    chained = near.copy()
    chained[:-1] |= near[1:]
    rows = np.flatnonzero(chained)
    at_us, head = visits.at_us[rows], ~near[rows]
    # Where a page's first row is near the visit in the state, that visit heads the chain.
    behind = np.flatnonzero(first[rows] & near[rows])
    at_us = np.insert(at_us, behind, state.last_success_at_us[visits.page[rows[behind]]])
    head = np.insert(head, behind, True)
    rows = np.insert(rows, behind, -1)
    keep = _first_of_each_gap(at_us, head)
    dropped = rows[~keep]
    counts["duplicate"] += len(dropped)
    if not len(dropped):
        return visits
    kept = np.ones(k, dtype=np.bool_)
    kept[dropped] = False
    return visits.take(np.flatnonzero(kept))


def _first_of_each_gap(at_us: IntArray, head: BoolArray) -> BoolArray:
    """In each chain keep the head, then always the next row at least `MIN_GAP_US` later.

    Each row points to its successor; paths from the heads are followed in steps that double, so a chain
    of a million rows takes twenty passes.
    """
    k = len(at_us)
    axis = np.zeros(k, dtype=np.int64)
    axis[1:] = np.diff(at_us)
    axis[head] = 2 * MIN_GAP_US
    np.cumsum(axis, out=axis)
    chain = np.cumsum(head)
    chain = np.append(chain, -1)
    jump = np.searchsorted(axis, axis + MIN_GAP_US)
    jump[chain[jump] != chain[:-1]] = k
    jump = np.append(jump, k)
    keep = np.append(head, False)
    while True:
        reached = jump[np.flatnonzero(keep)]
        keep[reached] = True
        keep[k] = False
        jump = jump[jump]
        if (jump == k).all():
            return keep[:k]


class _Pages:
    """Runs of equal pages in sorted rows."""

    def __init__(self, page: IntArray) -> None:
        k = len(page)
        change = np.flatnonzero(page[1:] != page[:-1]) + 1
        self.start = np.concatenate([np.zeros(min(k, 1), dtype=np.int64), change])
        self.end = np.append(self.start[1:], k) if k else self.start
        self.page = page[self.start]
        self._row_start = np.repeat(self.start, self.end - self.start)

    def known_before(self, values: NDArray[Any], setter: BoolArray, before: NDArray[Any]) -> NDArray[Any]:
        """Value of the last earlier row of the page that sets one; else `before`, one value a page."""
        known = np.empty_like(values)
        if setter.all():
            known[1:] = values[:-1]
            known[self.start] = before
            return known
        last = np.where(setter, np.arange(len(values)), -1)
        np.maximum.accumulate(last, out=last)
        known[1:] = values[last[:-1]]
        orphan = np.ones(len(values), dtype=np.bool_)
        orphan[1:] = last[:-1] < self._row_start[1:]
        orphan[self.start] = True
        size = self.end - self.start
        np.copyto(known, np.repeat(before, size), where=orphan)
        return known

    def known_after(self, values: NDArray[Any], setter: BoolArray, known: NDArray[Any]) -> NDArray[Any]:
        """What is known after the last row of each page, `known` being what was known before each row."""
        last = self.end - 1
        after: NDArray[Any] = np.where(setter[last], values[last], known[last])
        return after


def _judge(
    state: PageState, visits: _Visits, pages: _Pages
) -> tuple[NDArray[np.int8], IntArray, dict[str, NDArray[Any]]]:
    """Outcome of each visit, the time of the observation before it, and what is known after the last one."""
    k = len(visits.page)
    at = pages.page
    kind = visits.code & 7
    flag = (visits.code >> 3).astype(np.int8)  # 0 unknown, 1 unchanged, 2 changed
    success = kind == _SUCCESS
    gone = kind == _GONE
    after: dict[str, NDArray[Any]] = {
        "gone": state.gone.copy(),
        "digest": state.digest.copy(),
        "last_modified_at_us": state.last_modified_at_us.copy(),
        "baseline_at_us": state.baseline_at_us.copy(),
    }
    if not k:
        return np.zeros(0, dtype=np.int8), visits.at_us, after
    has_digest = (kind <= _REVISIT) & (visits.digest != 0)
    can_open = has_digest | gone | (success & (flag > 0))
    outcome = np.zeros(k, dtype=np.int8)
    blank = success & (flag == 2) & ~has_digest  # changed, to a content whose digest is not known

    if visits.modified_us is not None:
        has_modified = (visits.modified_us != NO_TIME) & ~gone
        can_open |= success & has_modified
        sets = has_modified | gone
        value = np.where(gone, NO_TIME, visits.modified_us)
        known = pages.known_before(value, sets, state.last_modified_at_us[at])
        after["last_modified_at_us"][at] = pages.known_after(value, sets, known)
        compare = success & has_modified & (known != NO_TIME)
        moved = compare & (value != known)
        outcome[compare] = _UNCHANGED
        outcome[moved] = _CHANGED
        blank |= moved & (flag == 0) & ~has_digest
    elif gone.any():
        after["last_modified_at_us"][at] = np.where(
            np.logical_or.reduceat(gone, pages.start), NO_TIME, state.last_modified_at_us[at]
        )

    sets = has_digest | gone | blank
    value = np.where(has_digest, visits.digest, 0).astype(np.uint64)
    known = pages.known_before(value, sets, state.digest[at])
    after["digest"][at] = pages.known_after(value, sets, known)
    compare = has_digest & (known != 0)
    outcome = np.where(compare, np.where(value == known, _UNCHANGED, _CHANGED), outcome).astype(np.int8)
    np.copyto(outcome, flag, where=success & (flag > 0))
    outcome[(kind == _UNMODIFIED) | ((kind == _REVISIT) & ~compare)] = _UNCHANGED

    was_gone = pages.known_before(gone, np.ones(k, dtype=np.bool_), state.gone[at])
    after["gone"][at] = gone[pages.end - 1]
    touched = gone | was_gone
    if touched.any():
        np.copyto(outcome, np.where(gone == was_gone, _UNCHANGED, _CHANGED), where=touched, casting="unsafe")

    opened = state.baseline_at_us[at] != NO_TIME
    if not opened.all():
        had = pages.known_before(can_open, can_open, opened)
        np.copyto(outcome, np.where(can_open, _BASELINE, _NONE), where=~had, casting="unsafe")

    observed = outcome != _NONE
    base_us = pages.known_before(visits.at_us, observed, state.baseline_at_us[at])
    after["baseline_at_us"][at] = pages.known_after(visits.at_us, observed, base_us)
    return outcome, base_us, after
