"""What sources have in common: at which hours links come, how long they stay, what a first return finds.

All of it is sums of whole numbers, of which the order does not matter, over shards, visits and nights: what
has fractions is rounded to a 2^-20 once a visit. What follows from the sums is fitted when they are together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from policies.discovery.hours import GROUP_PRIOR, HOURS
from policies.discovery.lifetimes import CLASS_HOURS, came_by_class, staying
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

UNIT: Final = 2.0**-20
EDGES_HOURS: Final = 2.0 ** np.arange(-3.5, 9.0)
BINS: Final = len(EDGES_HOURS) + 1
CENTRES_HOURS: Final = 2.0 ** np.arange(-4.0, BINS - 4.0)
"""Hours between visits are told apart by powers of two."""
_STEPS: Final = 300
_LEAST: Final = 1e-6
_EARLY_LINKS: Final = 6.0
_EVEN: Final = np.full(len(CLASS_HOURS), 1.0 / len(CLASS_HOURS))


class Shared:
    """Sums over sources of h hosts.

    Attributes
    ----------
    came, expected : (24,) int64
        New links by hour of the day (UTC), in units of 2^-20, and how many an even rate would give.
    held, stayed : (BINS, BINS) int64
        Links that came between two visits and were there at the latter, by hours between these visits and
        from it to the next one; those of them that were there then.
    host_new : (h,) int64
        Yields of second visits: what is found where somebody returns for the first time.
    host_exposure : (h,) int64
        Exposures of these, times the square root of links on the source; in units of 2^-20 hours.
    """

    NAMES: Final = ("came", "expected", "held", "stayed")

    def __init__(self, hosts: int) -> None:
        self.came, self.expected = np.zeros(HOURS, np.int64), np.zeros(HOURS, np.int64)
        self.held, self.stayed = (np.zeros((BINS, BINS), np.int64) for _ in range(2))
        self.host_new, self.host_exposure = np.zeros(hosts, np.int64), np.zeros(hosts, np.int64)

    def hours(self, at_s: IntArray, hours: FloatArray, new: IntArray, usual_per_hour: FloatArray) -> None:
        """Spread new links over the hours in which they came; visits a day or more apart tell nothing."""
        near = hours <= HOURS
        at, hours, new, usual = at_s[near] / 3600.0, hours[near], new[near], usual_per_hour[near]
        back = np.arange(HOURS + 1)
        last = np.ceil(at).astype(np.int64)
        end = np.minimum(at[:, None], last[:, None] - back)
        begin = np.maximum((at - hours)[:, None], last[:, None] - back - 1)
        within = np.maximum(end - begin, 0.0)
        place = (last[:, None] - 1 - back) % HOURS
        share = within / np.maximum(hours, _LEAST)[:, None]
        for total, values in ((self.came, new[:, None] * share), (self.expected, usual[:, None] * within)):
            np.add.at(total, place, np.rint(values / UNIT).astype(np.int64))

    def lifetimes(self, before: FloatArray, hours: FloatArray, held: IntArray, kept: IntArray) -> None:
        """Count links that were kept, where it is known when they came."""
        known = np.isfinite(before) & (held > 0)
        place = np.searchsorted(EDGES_HOURS, before[known]), np.searchsorted(EDGES_HOURS, hours[known])
        np.add.at(self.held, place, held[known])
        np.add.at(self.stayed, place, kept[known])

    def returns(
        self, host: IntArray, first: BoolArray, new: IntArray, exposure_hours: FloatArray, links: IntArray
    ) -> None:
        """Count what the first returns to sources have found: (m,), (m, c) exposures."""
        host, new = host[first], new[first]
        exposure = (exposure_hours[first] * _EVEN).sum(axis=1) * np.sqrt(np.maximum(links[first], 1))
        np.add.at(self.host_new, host, new)
        np.add.at(self.host_exposure, host, np.rint(exposure / UNIT).astype(np.int64))


@dataclass(frozen=True)
class Common:
    """What all shards' sums tell.

    Attributes
    ----------
    speed : (24,) float64
        New links in each hour of the day, over their mean: a clock, see `hours.DayHours`.
    share : (c,) float64
        Of links that come, by class of lifetime.
    early : float
        New links an hour of a source that was seen once, over the square root of its links.
    """

    speed: FloatArray
    share: FloatArray
    early: float


def common(came: IntArray, expected: IntArray, held: IntArray, stayed: IntArray, returns: IntArray) -> Common:
    """From whole sums over all shards; `returns` are those of `host_new` and `host_exposure`."""
    speed = (came * UNIT + GROUP_PRIOR) / (expected * UNIT + GROUP_PRIOR)
    new, exposure = float(returns[0]), float(returns[1]) * UNIT
    return Common(speed / speed.mean(), mixture(held, stayed), (new + 1.0) / (exposure + _EARLY_LINKS))


def mixture(held: IntArray, stayed: IntArray) -> FloatArray:
    """The mixture of classes of lifetimes that makes what stayed likeliest: (c,) float64.

    Expectation and maximisation over cells of two intervals, with one link of each class beforehand
    (Dempster, Laird and Rubin 1977); the likelihood is that of `lifetimes`.
    """
    before, after = (x.ravel() for x in np.meshgrid(CENTRES_HOURS, CENTRES_HOURS, indexing="ij"))
    held, kept = held.ravel(), stayed.ravel()
    some = held > 0
    before, stays = before[some], staying(after[some])
    here, kept = held[some], kept[some]
    share = _EVEN
    for _ in range(_STEPS):
        count = came_by_class(share, here, kept, before, stays).sum(axis=0) + 1.0
        share = count / count.sum()
    return np.asarray(share, np.float64)
