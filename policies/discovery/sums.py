"""What is kept of each source from night to night: sums over its visits, 64 bytes.

A visit is a fetch of a source at an instant. Its share in the sums depends on the earlier visits of the same
source alone, and sums are rounded after each visit as they are kept, so a log cut into nights leaves what it
leaves in one. What sources share is in sums of whole numbers, see `shared`.

Exposures are kept by class of lifetime. That of a source is their mean by its mixture, so what is learned of
lifetimes later holds for visits before, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policies.discovery.answers import DECAY, alive_failures, usual_share
from policies.discovery.lifetimes import CLASS_HOURS, PRIOR_LINKS, came_by_class, staying
from policies.discovery.planner import HALF_LIFE_HOURS
from policies.discovery.shared import Shared
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray

NEVER_S: Final = -1
CLASSES: Final = len(CLASS_HOURS)
MOST_MINUTES: Final = 65_535
"""Between visits, as far as they are told apart."""


@dataclass(frozen=True)
class Visits:
    """m visits of sources, sorted by source and time.

    Attributes
    ----------
    source : (m,) int64
    at_s : (m,) int64
        Seconds since 1970-01-01 UTC; different for the visits of a source.
    ok : (m,) bool
        A visit that failed shows nothing, and is no evidence of it.
    links, new, held, kept : (m,) int64
        As in `items.Seen`.
    """

    source: IntArray
    at_s: IntArray
    ok: BoolArray
    links: IntArray
    new: IntArray
    held: IntArray
    kept: IntArray


class Sums:
    """Sums of n sources, in the precision in which they are kept.

    Attributes
    ----------
    count : (n, c) float32
        Links that came, by class of lifetime, see `lifetimes.Lifetimes`.
    exposure_hours : (n, c) float32
        Exposures to new links, were all of that class.
    new : (n,) float32
        Yields, without that of the first visit.
    before_hours : (n,) float32
        Between the last two visits, whole minutes; inf before the second one.
    asked, unanswered : (n,) float32
        As in `answers.Answers`: what was asked, and what of it did not answer.
    links : (n,) int32
        At the last visit.
    failures : (n,) int32
        In a row.
    seen_s, failed_s, asked_s : (n,) int64
        The last visit that did not fail, the first of the failures and the last of them; `NEVER_S`: none.
    by_class : bool
        Whether lifetimes are told apart. Otherwise no link is counted, and exposures of all classes are their
        mean: what Thompson sampling has no use for makes room for what it keeps.
    """

    def __init__(self, n: int, by_class: bool = True) -> None:
        self.by_class = by_class
        self.count = np.zeros((n, CLASSES), np.float32)
        self.exposure_hours = np.zeros((n, CLASSES), np.float32)
        self.new, self.asked, self.unanswered = (np.zeros(n, np.float32) for _ in range(3))
        self.before_hours = np.full(n, np.inf, np.float32)
        self.links, self.failures = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self.seen_s, self.failed_s, self.asked_s = (np.full(n, NEVER_S) for _ in range(3))

    def __len__(self) -> int:
        return len(self.new)

    def learn(self, visits: Visits, shared: Shared, host: IntArray) -> None:
        """Take in visits that are later than those taken in before.

        Parameters
        ----------
        visits : Visits
        shared : Shared
            Gets what they tell of all sources.
        host : (n,) int64
            Rows of `Shared.hosts`.
        """
        m = len(visits.source)
        rank = np.arange(m) - np.searchsorted(visits.source, visits.source)
        order = np.argsort(rank, kind="stable")
        ends = np.cumsum(np.bincount(rank)) if m else np.zeros(0, np.int64)
        for begin, end in zip(np.append(0, ends[:-1]), ends, strict=False):
            rows = order[begin:end]
            good = visits.ok[rows]
            self._fail(visits, rows[~good])
            self._see(visits, rows[good], shared, host)

    def _fail(self, visits: Visits, rows: IntArray) -> None:
        source, at = visits.source[rows], visits.at_s[rows]
        first = self.failures[source] == 0
        self.failed_s[source[first]] = at[first]
        self.failures[source] += 1
        self.asked_s[source] = at

    def _see(self, visits: Visits, rows: IntArray, shared: Shared, host: IntArray) -> None:
        source, at = visits.source[rows], visits.at_s[rows]
        self._answer(source, at)
        again = self.seen_s[source] != NEVER_S
        self.links[source] = visits.links[rows]
        since = (at - self.seen_s[source]) / 3600.0
        self.seen_s[source] = at
        rows, source, hours = rows[again], source[again], since[again]
        if not len(rows):
            return
        new, held, kept = (x[rows].astype(np.float64) for x in (visits.new, visits.held, visits.kept))
        before = self.before_hours[source].astype(np.float64)
        stays = staying(hours)
        exposure = CLASS_HOURS * (1.0 - stays)
        if not self.by_class:
            exposure[:] = exposure.mean(axis=1, keepdims=True)
        # What was so far tells when they came within the hours since, in the mean.
        usual = (self.new[source] + 1.0) / (self.exposure_hours[source].mean(axis=1, dtype=np.float64) + 1.0)
        shared.hours(at[again], hours, visits.new[rows], usual)
        shared.returns(host[source], ~np.isfinite(before), visits.new[rows], exposure, visits.links[rows])
        shared.lifetimes(before, hours, visits.held[rows], visits.kept[rows])
        decay = 0.5 ** (hours / HALF_LIFE_HOURS)
        count = self.count[source] * decay[:, None]
        known = np.isfinite(before) & (held > 0.0) & self.by_class
        # With an even prior: that of other sources would be another one in another night.
        share = count[known] + PRIOR_LINKS / CLASSES
        share /= share.sum(axis=1, keepdims=True)
        count[known] += came_by_class(share, held[known], kept[known], before[known], stays[known])
        self.count[source] = _kept(count)
        self.exposure_hours[source] = _kept(self.exposure_hours[source] * decay[:, None] + exposure)
        self.new[source] = self.new[source] * decay + new
        self.before_hours[source] = np.clip(np.rint(hours * 60.0), 1.0, MOST_MINUTES) / 60.0

    def _answer(self, source: IntArray, at_s: IntArray) -> None:
        asked, unanswered = (x[source].astype(np.float64) for x in (self.asked, self.unanswered))
        last = self.asked_s[source]
        failures = alive_failures(
            self.failures[source].astype(np.float64),
            usual_share(asked - unanswered, asked),
            (last - self.failed_s[source]) / 3600.0,
            (at_s - last) / 3600.0,
        )
        decay = DECAY ** (failures + 1.0)
        self.asked[source] = asked * decay + failures + 1.0
        self.unanswered[source] = unanswered * decay + failures
        self.failures[source] = 0
        self.failed_s[source] = self.asked_s[source] = NEVER_S


def _kept(sums: FloatArray) -> NDArray[np.float32]:
    """To 1 in 65,536: the last byte is 0, and takes none on disk."""
    bits = sums.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x80)) & np.uint32(0xFFFFFF00)).view(np.float32)
