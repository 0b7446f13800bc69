"""Crawls that were decided before the night was put in order: refreshes of pages for their links.

They have their instants. All other crawls are sequenced beside them, in what the limits of hosts leave, and
both together then keep the gaps of hosts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.clocks.instants import keep_gaps
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.sequencing.sequencing import REASON_DISCOVER, Sequence

_ROUNDING = 1e-9


def firsts(group: IntArray, at_us: IntArray, tie: IntArray, most: IntArray) -> BoolArray:
    """The first ones of each group, in order of time and then of `tie`: (k,) bool.

    Parameters
    ----------
    group, at_us, tie : (k,) int64
    most : (k,) int64
        How many of its group may be chosen, the same for all of a group.
    """
    order = np.lexsort((tie, at_us, group))
    begin = np.flatnonzero(np.diff(group[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(begin, np.diff(np.append(begin, len(order))))
    chosen = np.empty(len(order), np.bool_)
    chosen[order] = place < most[order]
    return chosen


def left_rates(rate_per_day: FloatArray, fixed: IntArray, days: float) -> FloatArray:
    """Crawl rates beyond the crawls that are fixed: (n,) float64, per day.

    Parameters
    ----------
    rate_per_day : (n,) float64
        Those included.
    fixed : (n,) int64
        Fixed crawls of each page in `days`.
    """
    left = rate_per_day - fixed / days
    return np.where(left > _ROUNDING * rate_per_day, left, 0.0)


def slots_for(offset_us: IntArray, at_us: IntArray) -> IntArray:
    """Slots for fixed crawls of hosts that may be crawled at their slots only: (k,) int64, rising.

    Each gets the first slot at or after its instant that no other has, or an earlier one at the end.

    Parameters
    ----------
    offset_us : (m,) int64
        Rising.
    at_us : (k,) int64
        Rising; k is at most m.
    """
    number = np.arange(len(at_us))
    wanted = np.maximum.accumulate(np.searchsorted(offset_us, at_us) - number) + number
    found: IntArray = np.minimum(wanted, len(offset_us) - len(at_us) + number)
    return found


def with_fixed(
    sequence: Sequence,
    page: IntArray,
    at_us: IntArray,
    host: IntArray,
    gap_us: IntArray,
    free_us: IntArray,
    horizon_us: int,
) -> Sequence:
    """A night with fixed crawls, those of a host apart by its gap.

    Parameters
    ----------
    sequence : Sequence
        The other crawls, within what the fixed ones leave of the limits of hosts.
    page, at_us : (k,) int64
        Fixed crawls: rows of pages, and microseconds from the start of the night.
    host : (n,) int64
        Host of each page.
    gap_us, free_us : (h,) int64
        As `policies.clocks.instants.keep_gaps` takes them; both 0 for hosts whose crawls stay where they are.
    horizon_us : int
    """
    fixed = np.bincount(page, minlength=len(sequence.expected))
    pages = np.concatenate([page, sequence.page.astype(np.int64)])
    due = np.concatenate([at_us, sequence.due_offset_us])
    reason = np.concatenate([np.full(len(page), REASON_DISCOVER, np.uint8), sequence.reason])
    # Hosts without a fixed crawl keep their gaps already.
    shared = np.bincount(host[page], minlength=len(gap_us))[host[np.maximum(pages, 0)]] > 0
    rows = np.flatnonzero((pages >= 0) & shared)
    due[rows] = keep_gaps(host[pages[rows]], due[rows], gap_us, free_us, horizon_us)
    order = np.argsort(due, kind="stable")
    more = {"slots": len(page), "used": len(page), "discover": len(page)}
    return replace(
        sequence,
        page=pages[order].astype(np.int32),
        due_offset_us=due[order],
        expected=sequence.expected + fixed,
        reason=reason[order],
        counters={name: n + more.get(name, 0) for name, n in sequence.counters.items()},
    )
