"""Histories of pages whose clocks are learned: rough rates to learn them beside, sums in another clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.clocks.profile import NO_TIME, US_PER_DAY, Clocks
from policies.history.page_state import PageState
from policies.numerics.typing_ import FloatArray, IntArray


def rough_rates(history: PageState, group: IntArray, groups: int) -> FloatArray:
    """Rough change rates of pages, mixed with the means of their groups: (n,) float64, per clock day."""
    page, n = history.bin_page(), len(history)
    changes = history.dated_changes + np.bincount(page, history.bin_weight, n)
    days = history.exposure_days + np.bincount(page, history.bin_days, n)
    total, held = (np.bincount(group, v, groups) for v in (changes, days))
    mean = (total + 0.5) / np.maximum(held + 5.0, 1e-9)
    rate: FloatArray = (changes + 1.0) / (days + 1.0 / mean[group])
    return rate


def in_other_time(history: PageState, rows: IntArray, was: Clocks, now: Clocks) -> PageState:
    """The state with the sums of some pages, (k,) int64, brought from one clock to another.

    As if their intervals had been even over the time from their birth, or over the last day where that is not
    known, to the last visit with evidence.
    """
    rows = rows[history.baseline_at_us[rows] != NO_TIME]
    if not rows.size:
        return history
    until, born = history.baseline_at_us[rows], np.maximum(was.born_us[rows], now.born_us[rows])
    begin = np.where((born == NO_TIME) | (born >= until), until - US_PER_DAY, born)
    factor = np.ones(len(history))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = now.days(rows, begin, until) / was.days(rows, begin, until)
    factor[rows] = np.where(np.isfinite(ratio) & (ratio > 0.0), ratio, 1.0)
    of_bin = factor[history.bin_page()]
    return replace(
        history,
        exposure_days=history.exposure_days * factor,
        bin_days=history.bin_days * of_bin,
        bin_days_squared=history.bin_days_squared * of_bin * of_bin,
    )
