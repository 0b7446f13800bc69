"""How pages with signals are to be crawled after a search: thresholds of their clocks, and freshness."""

from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray
from policies.objectives.objectives import Objective
from policies.optimum.allocation import NONE, STARVED, Allocation
from policies.optimum.page_block import PageBlock
from policies.optimum.result import SearchResult, Status
from policies.signalled import pages as signal_pages
from policies.signalled.expansion import expand
from policies.signalled.pages import GENERAL
from policies.signalled.rates import clock_at_rate, freshness_at_rate


@dataclass(frozen=True, slots=True)
class SignalPolicy:
    """How the pages of a block that have signals are to be crawled.

    Attributes
    ----------
    row : (m,) int64, ascending
        Rows of the pages in the block.
    threshold : (m,) float64
        Clock at which a crawl is due, no unit. inf with a rate above 0: at a signal, some time after it.
    freshness : (m,) float64
        Long-run probability that the copy is fresh, in [0, 1].
    """

    row: IntArray
    threshold: FloatArray
    freshness: FloatArray


def signal_policy(
    block: PageBlock, objective: Objective, result: SearchResult, allocation: Allocation
) -> SignalPolicy | None:
    """Thresholds and freshness of the pages with signals, at their allocated rates.

    Parameters
    ----------
    block, objective, result, allocation
        As given to, and by, `search.allocate`.

    Returns
    -------
    SignalPolicy or None
        None where the block has no signals or the objective does not use them.
    """
    signals = block.signals
    if signals is None or not objective.uses_signals:
        return None
    pages = signals.pages(block.request_rate_per_day)
    rate = allocation.crawl_rate_per_day[signals.row]
    limit = allocation.limit[signals.row]
    threshold, fresh = np.full(rate.shape, np.inf), np.zeros(rate.shape)
    kind = signal_pages.kind_of(pages)
    # Free pages follow the multiplier, for which there is an expansion; others are solved for their rates.
    free = (kind == GENERAL) & ((limit == NONE) | (limit == STARVED)) & (rate > 0.0)
    free &= result.status is Status.CONVERGED
    rows = np.flatnonzero(free)
    if rows.size:
        near = expand(pages.take(rows), result.expanded_at)
        threshold[rows] = near.thresholds(result.multiplier)
        # Freshness is f V / mu + e^-u, and V is the multiplier.
        part = rate[rows] * result.multiplier / pages.request_rate_per_day[rows]
        fresh[rows] = np.minimum(part + np.exp(-threshold[rows]), 1.0)
        # At the end of the clock's range V no longer tells the threshold.
        free[rows] = np.isfinite(threshold[rows])
    rows = np.flatnonzero(~free)
    if rows.size:
        part_pages = pages.take(rows)
        threshold[rows] = clock_at_rate(part_pages, rate[rows])
        fresh[rows] = freshness_at_rate(part_pages, rate[rows], threshold[rows])
    return SignalPolicy(signals.row, threshold, fresh)
