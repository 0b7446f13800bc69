"""Change-indicating signals as arrays, and which of them count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.history.page_state import NO_TIME
from policies.history.visits import too_near
from policies.numerics.columns import take
from policies.numerics.typing_ import BoolArray, Int32Array, IntArray

DISPOSITIONS = (
    "signals_after_as_of",
    "signals_late",
    "signals_delayed",
    "signals_duplicate",
    "signals_counted",
)
"""Counters that add up to ``signals``.

Late are signals not newer than the page's last visit in the state, or older than the last signal of their
source there. Delayed ones came within the delay after an observation, which most likely saw the change that
they are about (Busa-Fekete et al., appendix C). Duplicates came less than `REPEAT_US` after the last counted
signal of their page and source.
"""

REPEAT_US = 3_600_000_000

_LONG_AGO = -(1 << 62)


@dataclass(frozen=True, slots=True)
class Signals:
    """Rows of signals, in any order.

    Attributes
    ----------
    page : (k,) int64
        Code of the page, in the order of the state.
    signalled_at_us : (k,) int64, microseconds since 1970, UTC
    source : (k,) int32
        Code of the source, 0 or more, the same as in the state.
    """

    page: IntArray
    signalled_at_us: IntArray
    source: Int32Array

    def __len__(self) -> int:
        return len(self.page)

    def take(self, rows: IntArray | BoolArray | slice) -> Signals:
        """The rows `rows`, in that order (indices, a mask, a slice)."""
        return take(self, rows)

    def check(self, n_pages: int, n_sources: int) -> None:
        """Raise `ValueError` on columns of unequal length and codes out of range."""
        if not len(self.page) == len(self.signalled_at_us) == len(self.source):
            raise ValueError(
                f"signals have {len(self.page)} pages, {len(self.signalled_at_us)} times and "
                f"{len(self.source)} sources; give one each"
            )
        if len(self) and not (self.page.min() >= 0 and self.page.max() < n_pages):
            raise ValueError(
                f"signals name pages {self.page.min()}..{self.page.max()} and the state has {n_pages}; "
                "expand it"
            )
        if len(self) and not (self.source.min() >= 0 and self.source.max() < n_sources):
            raise ValueError(
                f"signals have sources {self.source.min()}..{self.source.max()}; give codes of 0 to "
                f"{n_sources - 1}, see signal_state.choose_sources"
            )


def neighbours(
    page: IntArray, at_us: IntArray, seen_page: IntArray, seen_at_us: IntArray
) -> tuple[IntArray, IntArray]:
    """The observations before and after each signal, on its page; -1 where there is none.

    A signal at the instant of an observation comes before it.

    Parameters
    ----------
    page, at_us : (k,) int64
        Signals, in any order.
    seen_page, seen_at_us : (m,) int64
        Observations, sorted by (page, time).

    Returns
    -------
    (k,) int64, (k,) int64
        Indices of observations.
    """
    first = np.searchsorted(seen_page, page)
    low, high = first, np.searchsorted(seen_page, page, side="right")
    end = high
    # All binary searches at once: the first observation of the page that is not earlier.
    while (low < high).any():
        middle = (low + high) // 2
        earlier = (low < high) & (seen_at_us[np.minimum(middle, len(seen_page) - 1)] < at_us)
        high = np.where(earlier, high, middle)
        low = np.where(earlier, middle + 1, low)
    return np.where(low > first, low - 1, -1), np.where(low < end, low, -1)


def counted(
    signals: Signals, seen_before_us: IntArray, last_us: IntArray, delay_us: int, counts: dict[str, int]
) -> IntArray:
    """Which timely signals count, sorted by (page, source, time).

    Parameters
    ----------
    signals : Signals, k rows
    seen_before_us : (k,) int64, microseconds
        Observation of the page before each, `NO_TIME` if none.
    last_us : (k,) int64, microseconds
        Last signal of the page and source that the state counted, `NO_TIME` if none.
    delay_us : int, microseconds
    counts : dict
        Has `DISPOSITIONS`; they are moved.

    Returns
    -------
    int64
        Rows of `signals`.
    """
    at_us = signals.signalled_at_us
    delayed = (seen_before_us != NO_TIME) & (at_us - np.maximum(seen_before_us, _LONG_AGO) < delay_us)
    rows = np.flatnonzero(~delayed)
    rows = rows[np.lexsort((at_us[rows], signals.source[rows], signals.page[rows]))]
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (np.diff(signals.page[rows]) != 0) | (np.diff(signals.source[rows]) != 0)
    repeats = too_near(at_us[rows], first, last_us[rows[first]], REPEAT_US)
    kept = np.delete(rows, repeats)
    counts["signals_delayed"] += int(np.count_nonzero(delayed))
    counts["signals_duplicate"] += len(repeats)
    counts["signals_counted"] += len(kept)
    return kept
