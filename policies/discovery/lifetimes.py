"""How long links stay on a source, from what two visits tell: a link that is gone went some time between.

Links of one source differ: a top story goes within the hour, a column stays for weeks. So those that come to
a source are a mixture of classes, of which each goes at a constant rate, 1 / `CLASS_HOURS`; sources differ in
their mixture. Lifetimes are censored to the intervals between visits, and links that went before they were
seen are in nobody's count; both are accounted for exactly:

    a link of class j that came within d hours before a visit is there at it with probability
    g_j = (tau_j / d) (1 - exp(-d / tau_j)), and still so at the next, D hours later, with exp(-D / tau_j)

The mixture is the maximum of that likelihood with a prior of the mixture of all sources together, by one step
of expectation and maximisation for each visit (Dempster, Laird and Rubin 1977; online as Cappé and Moulines
2009 do). `MeanLifetimes` is the same for a single class, whose mean is what is learned.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from policies.discovery.items import Items
from policies.numerics.typing_ import FloatArray, IntArray

CLASS_HOURS: Final = np.array([1.0, 3.0, 9.0, 27.0, 81.0, 243.0])
PRIOR_LINKS: Final = 50.0
"""How many links the mixture of all sources counts for in that of each."""
_FIRST_MEAN_HOURS: Final = 12.0
_MOST: Final = 700.0  # exp(-700) is still a normal number


def expected_there(share: FloatArray, hours: FloatArray, class_hours: FloatArray = CLASS_HOURS) -> FloatArray:
    """Exposure: of one new link an hour, how many are on a source that was last seen so many hours ago.

    Parameters
    ----------
    share : (n, c) float64
        Of the links that come, by class.
    hours : (n,) float64
        inf where it was never seen.
    class_hours : (c,) float64
        Mean lifetimes.

    Returns
    -------
    (n,) float64, hours
        sum of share tau (1 - exp(-D / tau)); Expected new links are this times their rate.
    """
    x = np.minimum(hours[:, None] / class_hours, _MOST)
    return np.asarray((share * class_hours * -np.expm1(-x)).sum(axis=1), np.float64)


def worth_of_now(share: FloatArray, hours: FloatArray, class_hours: FloatArray) -> FloatArray:
    """What refreshing now is worth beyond refreshing later, of one new link an hour.

    The waiting index: what a source with D hours behind it shows, less D times what it gains by another hour,
    sum of share tau (1 - exp(-x) (1 + x)) with x = D / tau. It is the price of a refresh at which a source is
    best refreshed every D hours, so the same price for all sources makes the best use of a budget.

    Parameters
    ----------
    share : (n, c) float64
    hours : (n,) float64
    class_hours : (c,) float64
        With the discount of a link's worth in them, see `discounted`.

    Returns
    -------
    (n,) float64, hours
    """
    x = np.minimum(hours[:, None] / class_hours, _MOST)
    return np.asarray((share * class_hours * (1.0 - np.exp(-x) * (1.0 + x))).sum(axis=1), np.float64)


def discounted(class_hours: FloatArray, worth_hours: float) -> FloatArray:
    """Lifetimes of what a link is worth, where it is worth exp(-delay / worth_hours) when found: 1 / tau' = 1
    / tau + 1 / N."""
    return np.asarray(1.0 / (1.0 / class_hours + 1.0 / worth_hours), np.float64)


def staying(hours: FloatArray) -> FloatArray:
    """Share of links that are still there after so many hours, by class: (m, c) float64."""
    return np.asarray(np.exp(-np.minimum(hours[:, None] / CLASS_HOURS, _MOST)), np.float64)


def came_by_class(
    share: FloatArray,
    held: FloatArray | IntArray,
    kept: FloatArray | IntArray,
    before_hours: FloatArray,
    stays: FloatArray,
) -> FloatArray:
    """How many links of each class came, from those that one visit showed and the next: (m, c) float64.

    Parameters
    ----------
    share : (m, c) or (c,) float64
        Of the links that come, by class, as far as was known.
    held, kept : (m,) int64 or float64
        Links at the one visit that came after the visit before it, and those of them at the next.
    before_hours : (m,) float64, positive
        Between the first two of these visits.
    stays : (m, c) float64
        Of `staying` for the time between the last two.
    """
    before = before_hours[:, None]
    there = -np.expm1(-before / CLASS_HOURS) * CLASS_HOURS / before
    seen = share * there
    of_kept = _normal(seen * stays) * kept[:, None]
    of_gone = _normal(seen * (1.0 - stays)) * (held - kept)[:, None]
    return np.asarray((of_kept + of_gone) / there, np.float64)


class Lifetimes:
    """The mixtures of n sources, learned visit by visit.

    Attributes
    ----------
    count : (n, c) float64
        Links that came, by class, as far as visits tell. Of all sources they add up.
    share : (n, c) float64
        Their mixture.
    """

    def __init__(self, items: Items) -> None:
        n, c = len(items), len(CLASS_HOURS)
        self._items = items
        self.count = np.zeros((n, c))
        self.share = np.full((n, c), 1.0 / c)

    def learn(
        self, item: IntArray, held: IntArray, kept: IntArray, before_hours: FloatArray, hours: FloatArray
    ) -> None:
        """Take in what visits tell of links that came within `before_hours` before the visit before.

        Parameters
        ----------
        item : (m,) int64
            Different ones.
        held, kept : (m,) int64
            Links then, and those of them that are still there.
        before_hours, hours : (m,) float64
            Between the last two visits, and since. `before_hours` is inf where nobody knows when they came.
        """
        known = np.isfinite(before_hours) & (held > 0)
        if known.any():
            item = item[known]
            self.count[item] += came_by_class(
                self.share[item], held[known], kept[known], before_hours[known], staying(hours[known])
            )
        self._mix()

    def _mix(self) -> None:
        items = self._items
        whole = np.stack([items.sums(column) for column in self.count.T], axis=1)
        prior = _normal(whole + 1.0 / len(CLASS_HOURS))
        self.share = _normal(self.count + PRIOR_LINKS * prior[items.group])


def _normal(values: FloatArray) -> FloatArray:
    """Rows that add up to 1."""
    return np.asarray(values / np.maximum(values.sum(axis=1, keepdims=True), 1e-300), np.float64)


class MeanLifetimes:
    """The same with one class a source, of which the mean is learned.

    Attributes
    ----------
    lived_hours, gone : (n,) float64
        Hours that links were seen or are expected to have lived, and how many went. Sums.
    mean_hours : (n,) float64
    """

    def __init__(self, items: Items, prior_links: float = 2.0) -> None:
        self._items, self._prior = items, prior_links
        self.lived_hours = np.zeros(len(items))
        self.gone = np.zeros(len(items))
        self.mean_hours = np.full(len(items), _FIRST_MEAN_HOURS)

    def learn(self, item: IntArray, held: IntArray, kept: IntArray, hours: FloatArray) -> None:
        """Take in how many of some links were kept for so many hours: (m,) each."""
        mean = self.mean_hours[item]
        self.lived_hours[item] += kept * hours + (held - kept) * hours_of_gone(mean, hours)
        self.gone[item] += held - kept
        lived, gone = (self._items.sums(x) for x in (self.lived_hours, self.gone))
        group = self._items.group
        pooled = ((lived + self._prior * _FIRST_MEAN_HOURS) / (gone + self._prior))[group]
        self.mean_hours = (self.lived_hours + self._prior * pooled) / (self.gone + self._prior)


def hours_of_gone(mean_hours: FloatArray, hours: FloatArray) -> FloatArray:
    """Expected lifetime of a link that went within an interval: tau - D / (exp(D / tau) - 1), (m,)."""
    x = hours / mean_hours
    small = x < 1e-4
    safe = np.where(small, 1.0, np.minimum(x, _MOST))
    return np.asarray(np.where(small, hours / 2.0, mean_hours - hours / np.expm1(safe)), np.float64)
