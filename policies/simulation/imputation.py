"""Changes that a crawl log cannot show: it tells whether there was one between two crawls, not how many.

A page is taken to change by a Poisson process of its estimated rate. Given that there was a change in a gap,
the first one comes after an exponential time that ends inside the gap, and others follow it at exponential
times. Of a dated change it is known that none came after it; others may have come before, and a Poisson
process backwards is a Poisson process.
"""

from __future__ import annotations

import numpy as np

from policies.history.page_state import US_PER_DAY
from policies.numerics.scrambling import fractions, scramble
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

MOST_EXPECTED = 100.0
"""Of the changes expected in a gap: a page with more is stale all the time, and only takes up memory."""

_LARGEST = 1e12  # days, far beyond any gap


def changes(
    key: UIntArray,
    at_us: IntArray,
    gap_us: IntArray,
    age_us: IntArray,
    change_rate_per_day: FloatArray,
    seed: int,
) -> tuple[IntArray, IntArray, BoolArray]:
    """All changes of gaps in which there was one.

    Parameters
    ----------
    key : (k,) uint64
        Of the page: the draws of a gap depend on it, on `at_us` and the seed only.
    at_us : (k,) int64, microseconds
        End of the gap.
    gap_us : (k,) int64, microseconds
        Its length.
    age_us : (k,) int64, microseconds
        Time from the last change to the end, 0 where the change has no date.
    change_rate_per_day : (k,) float64
        Of the page, positive.
    seed : int

    Returns
    -------
    row, change_us : (c,) int64
        Gap of each change, ascending, and its instant, microseconds, in (at - gap, at], ascending in a gap.
    seen : (c,) bool
        One of each gap: the dated change where there is one, else the first. The others are drawn.
    """
    gap, age = gap_us / US_PER_DAY, age_us / US_PER_DAY
    rate = np.minimum(change_rate_per_day, MOST_EXPECTED / gap)
    dated = age_us > 0
    # Days from the end of the gap that the process runs from: forwards from the start, or back from a date.
    uniform = _uniform(key, at_us, 0, seed)
    first = -np.log1p(uniform * np.expm1(-rate * gap)) / rate
    passed, room = np.where(dated, 0.0, first), np.where(dated, gap - age, gap)
    row = np.arange(len(key))
    rows, days, number = [row], [passed], 0
    while len(row):
        number += 1
        step = -np.log(_uniform(key[row], at_us[row], number, seed)) / rate[row]
        passed = passed + np.minimum(step, _LARGEST)
        inside = passed < room[row]
        row, passed = row[inside], passed[inside]
        rows.append(row)
        days.append(passed)
    row, passed = np.concatenate(rows), np.concatenate(days)
    seen = np.arange(len(row)) < len(key)
    us = np.ceil(passed * US_PER_DAY).astype(np.int64)
    start = at_us - gap_us
    change_us = np.where(dated[row], (at_us - age_us)[row] - us, start[row] + us)
    change_us = np.clip(change_us, start[row] + 1, at_us[row])
    order = np.lexsort((change_us, row))
    return row[order], change_us[order], seen[order]


def _uniform(key: UIntArray, at_us: IntArray, counter: int, seed: int) -> FloatArray:
    """Numbers in (0, 1), (k,), from counters."""
    state = key ^ np.uint64(seed)
    for value in (at_us.astype(np.uint64), np.uint64(counter)):
        state += value
        scramble(state)
    return fractions(state)
