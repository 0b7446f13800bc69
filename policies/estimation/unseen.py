"""Pages that nobody has looked at for long may have gone quiet.

A page that changes too often for the budget is not crawled, and then nothing tells that it has stopped: a
rate that is taken as constant gives it up for good. So with the probability ``1 - exp(-(t - 20) / T)`` a page
that was last looked at `t` days ago, more than 20, is taken to have gone quiet since, and to stay as it is
for as long again. The first crawls of a page are worth its weight times the mean time until it changes: ``1 /
lambda`` if nothing has happened, `t` if it has. The plan takes the page to change as often as gives that
mean. A page given up comes back when a crawl of it is worth the price: sooner if it weighs more or crawls
are cheap.
"""

from __future__ import annotations

import numpy as np

from policies.numerics.typing_ import FloatArray

GIVEN_UP_DAYS = 20.0
"""Pages that are waited for less are in turn, and nothing is thought of them."""

QUIET_AFTER_DAYS = 2000.0
"""T. With a tenth of it pages come back sooner, and those that never stop take more of the budget."""


def times_less_often(change_rate_per_day: FloatArray, since_days: FloatArray) -> FloatArray:
    """By how many times less often than its rate says the plan takes each page to change.

    Parameters
    ----------
    change_rate_per_day : (n,) float64
    since_days : (n,) float64
        Since somebody last looked at it.

    Returns
    -------
    (n,) float64, 1 or more
        1, to the bit, where less than one change is expected since then, or it is not given up.
    """
    expected = change_rate_per_day * since_days
    gone = -np.expm1(-np.maximum(since_days - GIVEN_UP_DAYS, 0.0) / QUIET_AFTER_DAYS)
    return np.where(expected > 1.0, 1.0 + gone * (expected - 1.0), 1.0)
