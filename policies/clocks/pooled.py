"""A profile of hours for all hosts with too few intervals for one of their own, from a sample of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from policies.clocks.kept import ENOUGH, HOURS, LONGEST_US, MANY, SHORT_US, Kept
from policies.clocks.learning import agreement, profiles
from policies.clocks.profile import NO_TIME, US_PER_DAY, US_PER_HOUR
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray

ENOUGH_INTERVALS = 128
"""A host that has so many and shows no hours goes by none."""

CERTAIN_OF_ALL = 10.0
"""As `learning.CERTAIN`. More is asked, since all small hosts would err together."""

AGAINST = -1.0
"""A host whose own intervals are less probable by the profile of all, as a logarithm, does not go by it."""

MOST, MOST_OF_HOST = 2048, 16
_FIRST_LOOK = 4 * MOST


@dataclass(frozen=True)
class HoursOfAll:
    """When the pages of small hosts change.

    Attributes
    ----------
    speed : (24,) float64, or None
        In each hour of the day (UTC), mean 1; None where it is not certain.
    short : int
        Intervals of the sample that say most of hours.
    gain : float
        By how much the hours foretell better than none would, a logarithm.
    """

    speed: FloatArray | None = None
    short: int = MOST
    gain: float = 0.0

    @property
    def wanting(self) -> bool:
        """Whether short intervals of small hosts are worth crawls."""
        promising = 0.5 * CERTAIN_OF_ALL < self.gain < 4.0 * CERTAIN_OF_ALL
        return self.short < (MANY if promising else ENOUGH)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> HoursOfAll:
        """The inverse of `as_json`; raises ValueError, TypeError or KeyError for anything else."""
        speed = None if found["speed"] is None else np.array(found["speed"], np.float64)
        if speed is not None and (speed.shape != (24,) or not (speed > 0.0).all()):
            raise ValueError(f"{found['speed']}: expected 24 speeds")
        return cls(speed, int(found["short"]), float(found["gain"]))

    def as_json(self) -> dict[str, Any]:
        """As a manifest has it."""
        speed = None if self.speed is None else self.speed.tolist()
        return {"speed": speed, "short": self.short, "gain": self.gain}


@dataclass(frozen=True)
class Pooled:
    """Intervals of small hosts: those with the greatest numbers. Parts merge in any order.

    Attributes
    ----------
    number : (k,) float64
        See `policies.clocks.kept`.
    host : (k,) uint64
        Hashes.
    from_us, to_us : (k,) int64, UTC microseconds
    changed : (k,) bool
    rate_per_day : (k,) float64
        Roughly how often their pages change.
    had : bool
        Whether there was a profile the night before.
    """

    number: FloatArray = field(default_factory=lambda: np.zeros(0))
    host: UIntArray = field(default_factory=lambda: np.zeros(0, np.uint64))
    from_us: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    to_us: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    changed: BoolArray = field(default_factory=lambda: np.zeros(0, np.bool_))
    rate_per_day: FloatArray = field(default_factory=lambda: np.zeros(0))
    had: bool = False

    @classmethod
    def of(cls, kept: Kept, host_hash: UIntArray, rate_per_day: FloatArray, had: bool) -> Pooled:
        """The sample of some intervals; `host_hash` are those of groups, rates those of pages."""
        mine = kept.take(kept.to_us - kept.from_us <= LONGEST_US)
        number = mine.numbers(np.full(len(mine), NO_TIME))
        if len(mine) > _FIRST_LOOK:
            # Where the greatest fill the sample, no others can be in it, and sorting all takes long.
            some = np.argpartition(number, len(mine) - _FIRST_LOOK)[-_FIRST_LOOK:]
            best = cls._from(mine.take(some), number[some], host_hash, rate_per_day, had)
            if len(best.number) == MOST:
                return best
        return cls._from(mine, number, host_hash, rate_per_day, had)

    @classmethod
    def _from(
        cls, mine: Kept, number: FloatArray, host_hash: UIntArray, rate_per_day: FloatArray, had: bool
    ) -> Pooled:
        rate = rate_per_day[mine.page]
        whole = cls(number, host_hash[mine.group], mine.from_us, mine.to_us, mine.changed, rate, had)
        return whole._best()

    def merge(self, other: Pooled) -> Pooled:
        """The sample of both."""
        names = [f.name for f in fields(self)[:-1]]
        both = {n: np.concatenate([getattr(self, n), getattr(other, n)]) for n in names}
        return Pooled(**both, had=self.had or other.had)._best()

    def _take(self, rows: IntArray) -> Pooled:
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self)[:-1]})

    def _best(self) -> Pooled:
        """At most `MOST_OF_HOST` of a host, and then `MOST`; in an order that no cut into parts changes."""
        order = np.lexsort((self.to_us, self.from_us, -self.number, self.host))
        host = self.host[order]
        first = np.flatnonzero(np.concatenate([[True], host[1:] != host[:-1]])[: len(host)])
        rank = np.arange(len(host)) - np.repeat(first, np.diff(np.append(first, len(host))))
        order = order[rank < MOST_OF_HOST]
        order = order[np.lexsort((self.to_us[order], self.host[order], -self.number[order]))][:MOST]
        return self._take(order)

    def hours(self) -> HoursOfAll:
        """What the sample says."""
        mine = self._take(np.lexsort((self.number, self.host, self.from_us, self.to_us)))
        page = np.arange(len(mine.number))
        same = np.zeros(len(page), np.int64)
        kept = Kept(same, page, mine.host, mine.from_us, mine.to_us, mine.changed)
        least = np.full(1, 0.0 if self.had else CERTAIN_OF_ALL)
        certain, speed, gain = profiles(kept.hour_spells(mine.rate_per_day), least, circular=True)
        short = int((mine.to_us - mine.from_us <= SHORT_US).sum())
        return HoursOfAll(speed[0] if certain.size else None, short, float(gain[0]))


def borrowers(kept: Kept, groups: int, own: BoolArray) -> BoolArray:
    """Groups that may go by the hours of all, (g,): without hours of their `own`, and few intervals."""
    telling = kept.group[kept.to_us - kept.from_us <= LONGEST_US]
    found: BoolArray = ~own & (np.bincount(telling, minlength=groups) < ENOUGH_INTERVALS)
    return found


def agreeing(kept: Kept, groups: int, rate_per_day: FloatArray, speed: FloatArray) -> BoolArray:
    """Groups whose intervals do not speak against hours, (g,); `speed` is (24,), rates are those of pages."""
    mine = kept.take(kept.to_us - kept.from_us <= LONGEST_US)
    passed = np.append(0.0, np.cumsum(speed))

    def days(at_us: IntArray) -> FloatArray:
        day, rest = np.divmod(at_us, US_PER_DAY)
        hour = rest // US_PER_HOUR
        part = (rest - hour * US_PER_HOUR) / US_PER_HOUR
        found: FloatArray = day * (passed[-1] / HOURS) + (passed[hour] + speed[hour] * part) / HOURS
        return found

    spells = mine.group, mine.changed, rate_per_day[mine.page]
    plain = (mine.to_us - mine.from_us) / US_PER_DAY
    found: BoolArray = agreement(days(mine.to_us) - days(mine.from_us), plain, spells, groups) > AGAINST
    return found
