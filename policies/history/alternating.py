"""Pages that go back and forth between a few contents, such as those that servers of one site disagree on.

Whatever the gap, a visit to two servers at random finds the other content every second time. To a Poisson
process that is a page that changes about as often as it is crawled, on which crawls seem to gain most. But it
says nothing of changes. An ordinary page hardly ever returns to what its last change replaced.

A page is taken for one of these if five changes or more brought back what the change before them had
replaced, at least a third of all its changes did (with two servers all do, with three half of them), and at
least a third of its visits found a change: a page that is really switched to and fro is mostly found as it
was, if it is crawled often enough for crawls to be of use. A dated change shows that it is no such page.

It is then estimated as if it had no history, as an average page of its host.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.history.evidence import Evidence
from policies.history.page_state import PageState
from policies.numerics.typing_ import BoolArray

MIN_RETURNS = 5
MIN_SHARE = 3
"""One change in so many returns, and one visit in so many finds a change, at least."""


def alternating(history: PageState) -> BoolArray:
    """Which pages go back and forth: (n,) bool."""
    returns = history.n_returns.astype(np.int64)
    often = (returns >= MIN_RETURNS) & (MIN_SHARE * returns >= history.n_changes)
    often &= MIN_SHARE * history.n_changes.astype(np.int64) >= history.n_intervals
    found: BoolArray = often & (history.dated_changes == 0.0)
    return found


def set_aside(history: PageState, evidence: Evidence) -> tuple[Evidence, BoolArray]:
    """The evidence without that of pages that go back and forth, and which these are."""
    found = alternating(history)
    if not found.any():
        return evidence, found
    bins = ~found[evidence.bin_page()]
    size = np.where(found, 0, np.diff(evidence.bin_start))
    kept = replace(
        evidence,
        exposure_days=np.where(found, 0.0, evidence.exposure_days),
        dated_changes=np.where(found, 0.0, evidence.dated_changes),
        bin_start=np.append(0, np.cumsum(size)),
        bin_weight=evidence.bin_weight[bins],
        bin_days=evidence.bin_days[bins],
        bin_days_squared=evidence.bin_days_squared[bins],
    )
    return kept, found
