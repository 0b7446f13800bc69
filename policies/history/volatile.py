"""Volatile pages: those whose digest differs at every visit, whatever the gap.

A page with a time stamp, a token or an advertisement in its text is new at each fetch. It looks like a page
that changes very fast, its estimated rate climbs with each visit, and it would take crawls that cannot make
anything fresh. Nothing in a crawl log tells such a page from one that truly changes faster than it was ever
crawled; but if the shortest gap found a change, and so did all others, then crawling at that pace keeps
nothing fresh in either case.

An ordinary page has such a record, too, where its gaps are long against the time between its changes, or
where a signal of the change caused each visit. So the record must also be one that a page of its host would
hardly have.

A page is a candidate if

* at least five intervals ended with a change, and none ever ended without;
* no change had a date: a date says how old the content is, which is what a volatile page cannot say;
* the gaps span a factor of four, in half-octave bins. A page that is crawled at an even pace and always found
  changed is not one: no shorter gap has been tried.

A candidate is volatile if

* no signals of it count: what is crawled because it was said to have changed is found changed;
* a page that changes three times as fast as the mean of its host's ordinary pages would show a change in each
  of its gaps with a probability of less than one in a hundred. As the record is looked at after each visit,
  and one unchanged visit ends it, that bounds the chance that such a page is ever taken for a volatile one.

Ordinary are pages that were found unchanged, or that date their changes. All others might be volatile, and
their estimated rates are as high as the prior lets them be: they must not be what a record is held against.

A volatile page is capped at one crawl in thirty days. The first unchanged visit ends it for good.

So that a page that does change fast and is asked for a lot is not put aside too soon, a candidate keeps its
rate while finding out is worth it. It is taken to change five times in its shortest gap g: then 99 of 100
visits after g find a change, and a crawl gains at most ``weight g / 5``. Where that is more than crawls gain
elsewhere (last night's multiplier), shorter gaps are tried first. They bring g down, so it ends.

A first night does not know what crawls gain elsewhere, so nobody is volatile there: a home page that changes
daily, among articles that hardly do, is found changed at each of its gaps of two to eight days, and may be
what most requests are for.
"""

from __future__ import annotations

import math

import numpy as np

from policies.history.evidence import MINUTES_PER_DAY, Evidence, bin_of
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, Int32Array

MIN_CHANGES = 5
MIN_SPAN_BINS = 4
CAP_PER_DAY = 1.0 / 30.0
CHANGES_IN_SHORTEST_GAP = 5.0
FASTER_THAN_OTHERS = 3.0
LIKELY_RECORD = 0.01

NOT_VOLATILE = -1.0
"""Weight limit of pages that are no candidates."""


def weight_limit(
    n_intervals: Int32Array, n_changes: Int32Array, evidence: Evidence, multiplier: float | None = None
) -> FloatArray:
    """Weight up to which each candidate counts as volatile.

    Parameters
    ----------
    n_intervals, n_changes : (n,) int32
        Plain counts, as in `policies.history.page_state.PageState`.
    evidence : Evidence of n pages
        The gaps of a half-octave bin count as their mean.
    multiplier : float, requests per crawl, optional
        What one more crawl gained last night. If None or infinite, where nothing was to be decided, there are
        no candidates.

    Returns
    -------
    (n,) float64, in the unit of weights
        `NOT_VOLATILE` for pages that are no candidates.
    """
    limit: FloatArray = np.full(len(evidence), NOT_VOLATILE)
    if multiplier is None or not math.isfinite(multiplier):
        return limit
    may_be = (n_changes >= MIN_CHANGES) & (n_intervals == n_changes) & (evidence.dated_changes == 0.0)
    rows = np.flatnonzero(may_be & (np.diff(evidence.bin_start) > 1))
    if not len(rows):
        return limit
    some = evidence.take(rows)
    mean = some.bin_days / some.bin_weight
    start = some.bin_start[:-1]
    shortest, longest = np.minimum.reduceat(mean, start), np.maximum.reduceat(mean, start)
    wide = _bin(longest) - _bin(shortest) >= MIN_SPAN_BINS
    limit[rows[wide]] = multiplier * CHANGES_IN_SHORTEST_GAP / shortest[wide]
    return limit


def ordinary(evidence: Evidence) -> BoolArray:
    """Whether pages are known not to be new at every visit: (n,) bool."""
    return (evidence.exposure_days > 0.0) | (evidence.dated_changes > 0.0)


def surprising(evidence: Evidence, others_per_day: FloatArray) -> BoolArray:
    """Whether pages of which every visit found a change would hardly have such a record by changing alone.

    Parameters
    ----------
    evidence : Evidence of n candidates
        The changed gaps of a half-octave bin count as their mean, as often as the bin weighs: what is
        forgotten surprises nobody.
    others_per_day : (n,) float64, positive, changes per day
        Mean change rate of the `ordinary` pages of the host.

    Returns
    -------
    (n,) bool
    """
    gap = evidence.bin_days / np.maximum(evidence.bin_weight, np.finfo(np.float64).tiny)
    page = evidence.bin_page()
    expected = (FASTER_THAN_OTHERS * others_per_day)[page] * gap
    # A bin that is forgotten to the last bit has neither weight nor days.
    chance = np.log(-np.expm1(-np.maximum(expected, np.finfo(np.float64).tiny)))
    return sum_by(page, evidence.bin_weight * chance, len(evidence)) < math.log(LIKELY_RECORD)


def _bin(gap_days: FloatArray) -> Int32Array:
    return bin_of(gap_days * MINUTES_PER_DAY)


def capped(volatile: BoolArray, cap_per_day: FloatArray, floor_per_day: FloatArray) -> FloatArray:
    """Caps with those of volatile pages lowered to `CAP_PER_DAY`, but not below a floor.

    A floor is what a team asks for by name; it stands, and is how to have such a page crawled all the same.

    Parameters
    ----------
    volatile : (n,) bool
    cap_per_day, floor_per_day : (n,) float64, per day

    Returns
    -------
    (n,) float64, per day
    """
    low = np.minimum(cap_per_day, np.maximum(CAP_PER_DAY, floor_per_day))
    return np.where(volatile, low, cap_per_day)
