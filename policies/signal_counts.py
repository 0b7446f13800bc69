"""Change-indicating signals, counted by page, source and what the interval around them turned out to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.interval_sums import union
from policies.page_state import NO_TIME, PageState
from policies.typing_ import BoolArray, Int32Array, IntArray

DISPOSITIONS = ("signals_after_as_of", "signals_late", "signals_duplicate", "signals_counted")
"""Counters that add up to ``signals``.

Late are signals not newer than the page's last visit in the state, or older than the last signal of their
source there; duplicates repeat page, source and instant.
"""


_COLUMNS = ("page", "source", "pending", "unchanged", "changed", "last_at_us")


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

    def by_page(self) -> Signals:
        """The same rows, grouped by page in ascending order."""
        order = np.argsort(self.page, kind="stable")
        return Signals(self.page[order], self.signalled_at_us[order], self.source[order])

    def slice(self, low: int, high: int) -> Signals:
        """Rows of pages `low` to `high` - 1, coded from 0, if rows are grouped by page."""
        rows = slice(*np.searchsorted(self.page, (low, high)))
        return Signals(self.page[rows] - low, self.signalled_at_us[rows], self.source[rows])

    def check(self, n: int) -> None:
        """Raise `ValueError` on columns of unequal length, pages outside 0..n-1 or negative sources."""
        if not len(self.page) == len(self.signalled_at_us) == len(self.source):
            raise ValueError(
                f"signals have {len(self.page)} pages, {len(self.signalled_at_us)} times and "
                f"{len(self.source)} sources; give one each"
            )
        if len(self) and not (self.page.min() >= 0 and self.page.max() < n):
            raise ValueError(
                f"signals name pages {self.page.min()}..{self.page.max()} and the state has {n}; expand it"
            )
        if len(self) and self.source.min() < 0:
            raise ValueError(f"signal source {self.source.min()} is negative; give codes of 0 or more")


Observed = tuple[IntArray, IntArray, BoolArray, BoolArray]
"""Page, time, whether a baseline, whether changed: each (k,)."""


def count_signals(
    state: PageState, signals: Signals | None, as_of_us: int, observed: Observed, counts: dict[str, int]
) -> tuple[dict[str, NDArray[Any]], IntArray | None]:
    """Count signals by the outcome of the interval that they fall into.

    Parameters
    ----------
    state : PageState, n pages
    signals : Signals or None
    as_of_us : int, microseconds
    observed : page and at_us (k,) int64, baseline and changed (k,) bool
        Tonight's observations, sorted by (page, time). An observation ends the interval that holds the
        signals up to and at its time.
    counts : dict
        Has ``signals`` and its `DISPOSITIONS`; they are moved.

    Returns
    -------
    columns, inside
        The signal columns of the state; (k,) int64 signals in the interval that each observation ends, None
        if there are none at all.
    """
    columns: dict[str, NDArray[Any]] = {name: getattr(state, f"signal_{name}") for name in _COLUMNS}
    news = _accepted(state, signals, as_of_us, counts) if signals is not None and len(signals) else None
    if news is None and not columns["pending"].any():
        return {f"signal_{k}": v for k, v in columns.items()}, None

    inside = np.zeros(len(observed[0]), dtype=np.int64)
    sums = {name: columns[name].astype(np.int64) for name in ("pending", "unchanged", "changed")}
    _settle_pending(columns["page"], sums, observed, inside)
    if news is not None:
        columns, sums = _add(news, columns, sums, observed, inside)
    columns |= {name: values.astype(np.int32) for name, values in sums.items()}
    return {f"signal_{k}": v for k, v in columns.items()}, inside


def _settle_pending(
    table_page: IntArray, sums: dict[str, IntArray], observed: Observed, inside: IntArray
) -> None:
    """What was pending goes to the interval that the page's first observation ends."""
    page, _, baseline, changed = observed
    if not len(page) or not len(table_page):
        return
    row = np.searchsorted(page, table_page)
    ended = page[np.minimum(row, len(page) - 1)] == table_page
    row, pending = row[ended], sums["pending"][ended]
    interval, change = ~baseline[row], changed[row]
    sums["changed"][ended] += pending * (interval & change)
    sums["unchanged"][ended] += pending * (interval & ~change)
    sums["pending"][ended] = 0
    np.add.at(inside, row, pending * interval)


def _accepted(state: PageState, signals: Signals, as_of_us: int, counts: dict[str, int]) -> Signals | None:
    """The signals that count, sorted by (page, source, time)."""
    counts["signals"] += len(signals)
    page = np.asarray(signals.page, dtype=np.int64)
    at_us = np.asarray(signals.signalled_at_us, dtype=np.int64)
    source = np.asarray(signals.source, dtype=np.int64)
    stride = 1 + max(int(source.max()), int(state.signal_source.max(initial=0)))
    known = np.full(len(page), NO_TIME)
    if len(state.signal_page):
        table = state.signal_page * stride + state.signal_source
        place = np.minimum(np.searchsorted(table, page * stride + source), len(table) - 1)
        known = np.where(table[place] == page * stride + source, state.signal_last_at_us[place], NO_TIME)
    after = at_us > as_of_us
    late = ~after & ((at_us <= state.last_success_at_us[page]) | (at_us < known))
    repeat = ~after & ~late & (at_us == known)
    rows = np.flatnonzero(~(after | late | repeat))
    rows = rows[np.lexsort((at_us[rows], source[rows], page[rows]))]
    page, at_us, source = page[rows], at_us[rows], source[rows]
    first = np.ones(len(rows), dtype=np.bool_)
    first[1:] = (np.diff(page) != 0) | (np.diff(source) != 0) | (np.diff(at_us) != 0)
    counts["signals_after_as_of"] += int(np.count_nonzero(after))
    counts["signals_late"] += int(np.count_nonzero(late))
    counts["signals_counted"] += int(np.count_nonzero(first))
    counts["signals_duplicate"] += int(np.count_nonzero(repeat)) + int(np.count_nonzero(~first))
    if not len(rows):
        return None
    return Signals(page[first], at_us[first], source[first].astype(np.int32))


def _add(
    news: Signals,
    columns: dict[str, NDArray[Any]],
    sums: dict[str, IntArray],
    observed: Observed,
    inside: IntArray,
) -> tuple[dict[str, NDArray[Any]], dict[str, IntArray]]:
    """Enter new signals into the table and into the intervals they fall in."""
    page, at_us, baseline, changed = observed
    stride = 1 + max(int(news.source.max()), int(columns["source"].max(initial=0)))
    keys, old, slot = union(columns["page"] * stride + columns["source"], news.page * stride + news.source)
    grown: dict[str, IntArray] = {}
    for name, values in sums.items():
        grown[name] = np.zeros(len(keys), dtype=np.int64)
        grown[name][old] = values
    last_at = np.full(len(keys), NO_TIME)
    last_at[old] = columns["last_at_us"]
    np.maximum.at(last_at, slot, news.signalled_at_us)

    # Each signal's next observation of its page; a signal at the instant of one comes before it.
    near = np.flatnonzero(np.isin(page, news.page))
    k = len(news)
    all_pages = np.concatenate([news.page, page[near]])
    all_times = np.concatenate([news.signalled_at_us, at_us[near]])
    is_row = np.arange(len(all_pages)) >= k
    order = np.lexsort((is_row, all_times, all_pages))
    following = np.where(is_row[order], np.arange(len(order)), len(order))
    following = np.minimum.accumulate(following[::-1])[::-1]
    ends = np.full(k, -1)
    mine = np.flatnonzero(~is_row[order])
    mine = mine[following[mine] < len(order)]
    row = near[order[following[mine]] - k]
    signal = order[mine]
    same = page[row] == news.page[signal]
    ends[signal[same]] = row[same]

    ended = ends >= 0
    grown["pending"] += np.bincount(slot[~ended], minlength=len(keys))
    row, slot = ends[ended], slot[ended]
    interval, change = ~baseline[row], changed[row]
    grown["changed"] += np.bincount(slot[interval & change], minlength=len(keys))
    grown["unchanged"] += np.bincount(slot[interval & ~change], minlength=len(keys))
    inside += np.bincount(row[interval], minlength=len(inside))
    key_page = keys // stride
    return {
        "page": key_page,
        "source": (keys - key_page * stride).astype(np.int32),
        "last_at_us": last_at,
    }, grown
