"""At which hours of the day the pages of a host are asked for: counts that fade, and their profile."""

from __future__ import annotations

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray

HOURS = 24
FLAT = 10
"""Requests in each hour that are thought of besides: as many real ones say half of what they show."""

UNEVEN = 1.25
"""Below so many times the mean of a day in its greatest hour a profile is taken as flat."""

_MOST_HALVINGS = 62


def faded(counts: IntArray, day: IntArray, as_of_day: int, half_life_days: float) -> IntArray:
    """Counts of some days as they count on a later day.

    They are halved at once, whenever a half-life begins, counted from 1970: sums of whole numbers are then
    the same, however days are cut into nights.

    Parameters
    ----------
    counts : (k, ...) int64, fixed point
    day : (k,) int64, days since 1970-01-01
    as_of_day : int
    half_life_days : float

    Returns
    -------
    (k, ...) int64
    """
    times = int(as_of_day // half_life_days) - np.floor_divide(day, half_life_days).astype(np.int64)
    times = np.clip(times, 0, _MOST_HALVINGS)
    result: IntArray = counts >> times.reshape(-1, *(1,) * (counts.ndim - 1))
    return result


def profiles(requests: FloatArray) -> FloatArray:
    """How many times the mean of a day comes in each hour, shrunk to 1: (k, 24) float64.

    Parameters
    ----------
    requests : (k, 24) float64
    """
    known = requests + FLAT
    result: FloatArray = known / known.mean(axis=1, keepdims=True)
    return result
