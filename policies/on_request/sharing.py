"""One budget for the nightly schedule and for crawls at requests: the part of the latter, and their price.

Requests that come at random say nothing of the next ones: crawls at them lose beside those at even distances.
The first of a burst says that more are coming. `SHARE_AT` is what was measured, see docs/on_request.md.
"""

from __future__ import annotations

import numpy as np

from policies.numerics.special import SURE
from policies.on_request.pairs import KeptPairs

SHARE_AT = ((2.25, 0.0), (3.0, 0.5))
"""Pairs, and the part of the budget that is best left for crawls at requests."""

_STEP = 1.2
_LEFT = 0.02, 0.1
_MOST_FACTOR = 32.0


def share_for(pairs: KeptPairs) -> float | None:
    """Part of the budget for crawls at requests; None where it is not known how bursty requests are."""
    ratio, error = pairs.ratio, pairs.stderr
    if ratio is None or error is None:
        return None
    pairs_at, shares = zip(*SHARE_AT, strict=True)
    # A single page that all ask for is no pattern.
    return round(float(np.interp(ratio - SURE * error, pairs_at, shares)), 2)


def first_factor(share: float) -> float:
    """Where `next_factor` begins: what a multiplier about is that of a larger budget of."""
    return 1.0 - share


def next_factor(factor: float, crawls_per_day: float, budget_per_day: float, share: float) -> float:
    """By what to multiply the multiplier for crawls at requests, so that both spend the whole budget.

    Their price is that at which both spend all. It is not the multiplier of the schedule, which is that of a
    part of the budget, nor that of the whole: how many requests come to pages that are worth a crawl, and how
    many slots come too late then, depends on how they come. So it is looked for, from night to night.

    Parameters
    ----------
    factor : float
        Of the night before; `first_factor` if that had no share.
    crawls_per_day : float
        Of its schedule and at requests, by the log.
    budget_per_day : float
        For both.
    share : float
        Above 0.
    """
    left = (budget_per_day - crawls_per_day) / (share * budget_per_day)
    if left < _LEFT[0]:
        return min(factor * _STEP, _MOST_FACTOR)
    return max(factor / _STEP, 1.0 / _MOST_FACTOR) if left > _LEFT[1] else factor
