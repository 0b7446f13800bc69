"""What a learner could know of change rates at best: references that no crawler can be.

`uncensored_evidence` is told every change of a page up to the crawler's own last crawl of it, where a crawl
only tells whether there was one. `known_rates` are told the future.
"""

from __future__ import annotations

import numpy as np

from policies.history.evidence import Evidence
from policies.history.page_state import US_PER_DAY
from policies.numerics.lookup import places
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import FloatArray, IntArray
from policies.simulation.histories import ChangeHistory


def uncensored_evidence(
    history: ChangeHistory, since_us: IntArray, told_until_us: IntArray, half_life_changes: float = np.inf
) -> Evidence:
    """Evidence of a learner that is told every change between two instants.

    Parameters
    ----------
    history : ChangeHistory
        Of n pages.
    since_us, told_until_us : (n,) int64
        First and last own crawl of each page, microseconds; nothing is known of a page where the last is not
        later than the first.
    half_life_changes : float, positive
        Time and changes lose half their weight with every so many changes that came later, as in the job.

    Returns
    -------
    Evidence
        Of all pages, in their order: for `policies.estimation.prior.fit_prior` and
        `policies.estimation.prior.estimate`.

    Raises
    ------
    ValueError
        For a half-life that is not positive.
    """
    if not half_life_changes > 0:
        raise ValueError(f"a half-life of {half_life_changes} changes: give a positive number (inf: never)")
    n = len(history)
    everything = np.arange(n)
    low = history.position(everything, since_us)
    high = np.maximum(history.position(everything, told_until_us), low)
    count = high - low
    page = np.repeat(everything, count)
    nth = places(count)
    at_us = history.change_us[low[page] + nth]
    begin_us = np.where(nth == 0, since_us[page], np.concatenate([[0], at_us[:-1]]))
    weight = 2.0 ** (-(count[page] - 1 - nth) / half_life_changes)
    days = sum_by(page, weight * ((at_us - begin_us) / US_PER_DAY), n)
    last_us = since_us.copy()
    last_us[page] = at_us  # the last of each page stands
    days += np.maximum(told_until_us - last_us, 0) / US_PER_DAY
    none = np.zeros(0)
    return Evidence(days, sum_by(page, weight, n), np.zeros(n + 1, np.int64), none, none, none)


def known_rates(
    history: ChangeHistory, after_us: int, until_us: int, changes_assumed: float = 0.1
) -> FloatArray:
    """Change rates per day from the number of changes between two instants, (n,) float64.

    Parameters
    ----------
    history : ChangeHistory
    after_us, until_us : int
    changes_assumed : float
        Added to the changes of every page. With none, a page that changed before but not in this time would
        not be crawled any more, and stay stale for all of it.

    Returns
    -------
    (n,) float64
        0 where a page was not there.

    Raises
    ------
    ValueError
        For a negative number of changes.
    """
    if not changes_assumed >= 0:
        raise ValueError(f"{changes_assumed} changes assumed: give a number from 0 on")
    held = history.held_days(after_us, until_us)
    changes = history.changes_between(after_us, until_us) + changes_assumed
    return np.where(held > 0, changes / np.where(held > 0, held, 1.0), 0.0)
