"""What the date in a Last-Modified says of a change: an event, a timetable, or only the server's clock.

The likelihood of a dated change, ``r exp(-r age)``, holds if changes come at any time. Then ages are spread
like an exponential, whenever the page is fetched. Dates that follow a clock are not: they would make of a
page that is built every midnight, and fetched an hour later, one that changes 24 times a day. A date is

stamped
    if it is less than `MIN_AGE_US` old, or less than 1 / `MAX_CHANGES_A_GAP` of the time since the last date
    was seen: so look answers that are dated when they are made, or when a cache took them. It says nothing. A
    page that truly changes so fast cannot be kept fresh by such crawls. The dates that remain are older than
    that by selection, so they count by how much: an exponential has no memory.
stamped
    also if it moved on by as much as the clock, to `SAME_US`, and not rather by whole hours: the present
    minus a constant.
on a timetable
    if it moved by whole days, or whole hours, to `TIMETABLE_US`: then the page is taken to change once in the
    longest period that divides both the move and a day, so the change counts once for so long, at most for
    the gap. By chance one in fifteen dates of other pages moves so, which is no other evidence on average.
of an event
    otherwise.
"""

from __future__ import annotations

import numpy as np

from policies.numerics.typing_ import BoolArray, IntArray

MIN_AGE_US = 60_000_000
MAX_CHANGES_A_GAP = 24
SAME_US = 10_000_000
TIMETABLE_US = 120_000_000

_HOUR_US = 3_600_000_000
_HOURS_PER_DAY = 24


def least_age_us(since_us: IntArray) -> IntArray:
    """Age below which a date says nothing, (k,) int64; `since_us` as in `stamped`."""
    return np.maximum(MIN_AGE_US, since_us // MAX_CHANGES_A_GAP)


def _whole_hours(step_us: IntArray) -> tuple[IntArray, IntArray]:
    """Nearest whole hours of each move, and how far off it is, microseconds."""
    hours = (step_us + _HOUR_US // 2) // _HOUR_US
    return hours, np.abs(step_us - hours * _HOUR_US)


def period_hours(step_us: IntArray) -> IntArray:
    """Period of the timetable on which dates moved by `step_us`, (k,) int64; 0 where they are on none."""
    hours, off_us = _whole_hours(step_us)
    return np.where((off_us <= TIMETABLE_US) & (hours > 0), np.gcd(hours, _HOURS_PER_DAY), 0)


def stamped(age_us: IntArray, step_us: IntArray, since_us: IntArray) -> BoolArray:
    """Whether dates only show the server's clock.

    Parameters
    ----------
    age_us : (k,) int64, microseconds
        From the date to the fetch.
    step_us : (k,) int64, microseconds
        From the date before to this one; 0 where there was none.
    since_us : (k,) int64, microseconds
        From the fetch that saw the date before, else from the last observation, to this fetch.
    """
    built = period_hours(step_us) == _HOURS_PER_DAY
    off_us = np.abs(since_us - step_us)
    by_clock = (step_us > 0) & (off_us <= SAME_US) & (off_us < _whole_hours(step_us)[1])
    found: BoolArray = (age_us < MIN_AGE_US) | by_clock | ((age_us < least_age_us(since_us)) & ~built)
    return found


def exposure_us(age_us: IntArray, step_us: IntArray, since_us: IntArray, gap_us: IntArray) -> IntArray:
    """What dated changes, not `stamped` ones, add to exposure: (k,) int64, microseconds, at most the gap."""
    period = period_hours(step_us) * _HOUR_US
    event = np.maximum(age_us - least_age_us(since_us), MIN_AGE_US)
    return np.minimum(np.where(period > 0, period, event), gap_us)
