"""New links an hour of each source: a rate, learned from yields with what a first look tells beforehand.

A yield after D hours is Poisson with rate times exposure, `lifetimes.expected_there`. Rates of a group of
sources are Gamma-distributed around what the number of links on a source tells: with l links that each stay
tau hours, l / tau come in an hour (Little 1961). Of two sources with unequal l either may be why, so half of
the logarithm is taken for the rate's: the mean is b sqrt(l), with b and the spread of each group learned.

A first refresh shows all that is there, whenever it came: it tells l and is no yield.
"""

from __future__ import annotations

import numpy as np

from policies.discovery.items import Items
from policies.numerics.typing_ import FloatArray, IntArray

_LEAST_SPREAD, _MOST_SPREAD = 0.05, 20.0
"""Variance of rates over their squared mean."""


def shape_of(spread: FloatArray) -> FloatArray:
    """The shape of a Gamma distribution by its variance over its squared mean, within limits."""
    return np.asarray(1.0 / np.clip(spread, _LEAST_SPREAD, _MOST_SPREAD), np.float64)


class Rates:
    """Gamma-Poisson rates of n sources.

    Attributes
    ----------
    new, exposure_hours : (n,) float64
        Sums of yields, and of exposures.
    links : (n,) float64
        On each source when it was last seen; 0 if never.
    prior_shape, prior_mean : (n,) float64
    """

    def __init__(self, items: Items) -> None:
        n = len(items)
        self._items = items
        self.new, self.exposure_hours, self.links = np.zeros(n), np.zeros(n), np.zeros(n)
        self.prior_shape, self.prior_mean = np.ones(n), np.ones(n)

    def learn(self, item: IntArray, new: FloatArray | IntArray, exposure_hours: FloatArray) -> None:
        """Take in yields: (m,) each, of different items."""
        self.new[item] += new
        self.exposure_hours[item] += exposure_hours

    def posterior(self) -> tuple[FloatArray, FloatArray]:
        """Shape and rate of the Gamma distribution of each source's new links an hour: (n,) float64 each."""
        shape = self.prior_shape + self.new
        return shape, self.prior_shape / self.prior_mean + self.exposure_hours

    def fit_prior(self) -> None:
        """Prior of each group by the method of moments, for rates that are Poisson counts over exposures.

        All of it comes from sums over sources: of w, w r, w r^2 and w / exposure with a weight w.
        """
        items, known = self._items, np.flatnonzero(self.exposure_hours > 0.0)
        if not len(known):
            return
        size = np.sqrt(np.maximum(self.links, 1.0))
        exposure = self.exposure_hours[known] * size[known]
        mean = (items.sums(self.new[known], known) + 1e-3) / (items.sums(exposure, known) + 1e-3)
        at = mean[items.group[known]]
        rate, weight = self.new[known] / exposure, exposure / (exposure + 1.0 / at)
        total = np.maximum(items.sums(weight, known), 1e-9)
        noise = mean * items.sums(weight / exposure, known)
        spread = (items.sums(weight * (rate - at) ** 2, known) - noise) / total / mean**2
        shape = shape_of(spread)
        seen = (self.links > 0.0).astype(np.float64)
        usual = items.sums(size * seen) / np.maximum(items.sums(seen), 1.0)
        # Sources that nobody has looked at are thought to be as large as others.
        here = mean[items.group] * np.where(seen > 0.0, size, usual[items.group])
        two = (items.sums(np.ones(len(known)), known) > 1.0)[items.group]
        self.prior_mean = np.where(two, here, self.prior_mean)
        self.prior_shape = np.where(two, shape[items.group], self.prior_shape)
