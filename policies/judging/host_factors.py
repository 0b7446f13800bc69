"""Factors of hosts on the clocks of their forecasts, beside those of cells, and where factors are used.

Pages of a site change more, or less, together. Over the crawls of a host, older ones counting less, the
clocks of its forecasts are multiplied by

    (events + s) / (hazard + s),    s = `STRENGTH` changes,

where ``hazard`` is the sum of the cumulative hazards x that were expected, with the factors of cells, and
``events`` that of the changes that there were then: x / (1 - exp(-x)) at crawls that found one, as it stands
for all since the last crawl, else 0. That is one step of EM from 1, with a gamma prior of shape s.

What factors did to the forecasts of each host is added up as the log of the probability of what was found,
with factors minus without: for those of cells, and for its own on top of them. Hosts that have lost more than
`MOST_LOST_NATS` by either are left without it, until it is no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

HALF_LIFE_DAYS = 14.0
STRENGTH = 3.0

MOST_LOST_NATS = 0.5
"""Hosts with few crawls lose a little by chance: from 0 on, a third of those that gain were left out."""

GAIN_UNIT = 2.0**-32
MOST_NATS = 16.0
"""Of one crawl: sums of a chunk stay below 2**53 units."""

COLUMNS = ("forecast_gain", "forecast_events", "forecast_hazard", "forecast_own_gain")
"""Of `HostTrack`, as they are kept."""


def pays(gain: FloatArray) -> BoolArray:
    """Hosts whose forecasts have factors, by what they have gained, nats."""
    return gain >= -MOST_LOST_NATS


def likely_events(hazard: FloatArray, changed: BoolArray) -> FloatArray:
    """Changes that there were in intervals of some cumulative hazard, (k,), if one was found or not."""
    events, found = np.zeros(len(hazard)), np.flatnonzero(changed)
    x = np.maximum(hazard[found], 1e-12)
    events[found] = x / -np.expm1(-x)
    return events


@dataclass(frozen=True, slots=True)
class HostTrack:
    """How forecasts of h hosts have done so far, older nights counting less; (h,) float64 each.

    Attributes
    ----------
    gain : nats
        By the factors of cells.
    events, hazard : changes
        That there were, and that were expected with the factors of cells.
    own_gain : nats
        By the host's own factor, on top of those of cells.
    """

    gain: FloatArray
    events: FloatArray
    hazard: FloatArray
    own_gain: FloatArray

    @classmethod
    def empty(cls, n: int) -> HostTrack:
        """No crawl yet."""
        return cls(*np.zeros((4, n)))

    def add(self, units: IntArray) -> HostTrack:
        """With the sums of a night, (4, h) int64 in `GAIN_UNIT`."""
        kept = 0.5 ** (1.0 / HALF_LIFE_DAYS)
        both = zip(self.columns(), units, strict=True)
        return HostTrack(*(kept * old + new * GAIN_UNIT for old, new in both))

    def columns(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """In the order of `COLUMNS`."""
        return self.gain, self.events, self.hazard, self.own_gain

    def factors(self) -> FloatArray:
        """Of each host, (h,), used or not."""
        result: FloatArray = (self.events + STRENGTH) / (self.hazard + STRENGTH)
        return result

    def used_factors(self) -> FloatArray:
        """The same, 1 where they are not used."""
        return np.where(pays(self.own_gain), self.factors(), 1.0)


@dataclass(frozen=True, slots=True)
class Corrections:
    """What factors did to a night's forecasts. Sums merge exactly and in any order.

    Attributes
    ----------
    crawls : int
        That have a cell.
    by_rates, corrected : int, `GAIN_UNIT` nats
        Log loss by rates alone, and with the factors as they were used.
    by_host : tuple of int
        Hosts with such crawls; where the factors of cells, and their own, were used.
    split : dict of str to tuple of bool
        The same of hosts of which several shards have pages, which are not in `by_host`.
    """

    crawls: int = 0
    by_rates: int = 0
    corrected: int = 0
    by_host: tuple[int, int, int] = (0, 0, 0)
    split: Mapping[str, tuple[bool, bool, bool]] = field(default_factory=dict)

    def merge(self, other: Corrections) -> Corrections:
        """The crawls of both, of other hosts each but for split ones."""
        mine, theirs = ((c.crawls, c.by_rates, c.corrected, *c.by_host) for c in (self, other))
        crawls, by_rates, corrected, *by_host = (a + b for a, b in zip(mine, theirs, strict=True))
        split = dict(self.split)
        for host, used in other.split.items():
            a, b, c = split.get(host, used)
            split[host] = a or used[0], b or used[1], c or used[2]
        return Corrections(crawls, by_rates, corrected, (by_host[0], by_host[1], by_host[2]), split)

    def hosts(self) -> tuple[int, ...]:
        """Hosts as in `by_host`, split ones among them."""
        split = [sum(used) for used in zip(*self.split.values(), strict=True)] or [0, 0, 0]
        return tuple(a + b for a, b in zip(self.by_host, split, strict=True))
