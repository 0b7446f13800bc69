"""How intervals between crawls lie in the hours of a week, and in the time since a page's last change."""

from __future__ import annotations

import numpy as np

from policies.clocks.profile import (
    FIRST_WEEKDAY,
    US_PER_DAY,
    US_PER_HOUR,
    WEEK_HOURS,
    cycle_lengths_days,
)
from policies.numerics.typing_ import FloatArray, IntArray

STEPS_PER_OCTAVE = 4
WAIT_EDGES_HOURS: FloatArray = 24.0 * 2.0 ** ((np.arange(-24, 38) - 0.5) / STEPS_PER_OCTAVE)
"""Between bins of waits, from 21 minutes to 559 days: 24 and 48 hours are the middles of two bins."""

WAITS = len(WAIT_EDGES_HOURS) + 1
_EDGES_DAYS = WAIT_EDGES_HOURS / 24.0


def week_hour(at_us: IntArray) -> IntArray:
    """Hour of the week of each instant, 0 to 167 from Monday 0:00 on: (k,) int64."""
    found: IntArray = (at_us // US_PER_HOUR + 24 * FIRST_WEEKDAY) % WEEK_HOURS
    return found


def week_lengths_days(from_us: IntArray, to_us: IntArray) -> FloatArray:
    """How much of each interval lies in each hour of the week, from Monday on: (k, 168) float64, days.

    Parameters
    ----------
    from_us, to_us : (k,) int64, microseconds of one clock
    """
    monday = FIRST_WEEKDAY * US_PER_DAY
    return cycle_lengths_days(from_us + monday, to_us + monday, WEEK_HOURS, US_PER_HOUR)


def wait_bin(days: FloatArray) -> IntArray:
    """Bin of each wait, (k,) int64."""
    return np.searchsorted(_EDGES_DAYS, days, side="right")


def wait_lengths_days(
    from_us: IntArray, to_us: IntArray, last_from_us: IntArray, last_to_us: IntArray
) -> FloatArray:
    """How much of each interval lies in each bin of the time since the last change: (k, `WAITS`), days.

    The mean over when that change was, which is taken to be anywhere in the interval that showed it.

    Parameters
    ----------
    from_us, to_us : (k,) int64, microseconds
    last_from_us, last_to_us : (k,) int64, microseconds
        The interval that the last change before `from_us` fell into; equal where its time is known.
    """
    begin, end, low, high = ((at - from_us) / US_PER_DAY for at in (from_us, to_us, last_from_us, last_to_us))
    width, span = end - begin, np.maximum(high - low, 1e-9)
    inside = np.empty((len(width), WAITS + 1))
    inside[:, 0], inside[:, -1] = 0.0, width
    # Of an interval that begins u after the change, clip(edge - u, 0, width) lies below the edge; u is
    # anywhere from -high to -low.
    for at, edge in enumerate(_EDGES_DAYS.tolist(), 1):
        inside[:, at] = (_area(edge + high, width) - _area(edge + low, width)) / span
    known = high - low < 1e-9
    exact = np.clip(_EDGES_DAYS[None, :] + high[known, None], 0.0, width[known, None])
    inside[known, 1:-1] = exact
    return np.diff(inside, axis=1)


def _area(x: FloatArray, width: FloatArray) -> FloatArray:
    """Integral of ``clip(x, 0, width)`` from minus infinity."""
    inside = np.clip(x, 0.0, width)
    result: FloatArray = 0.5 * inside * inside + width * np.maximum(x - width, 0.0)
    return result
