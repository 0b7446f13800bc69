"""How bursty requests are: whether those of a page come together on a day.

If days did not know of each other, a page asked for `c` times on a day would have been so by chance alone:
``E[c (c - 1)]`` is the square of its daily rate, and so is ``E[c]`` times the rate of other days. *Pairs* are
the first over the second, added up over pages and days; 1 for steady requests.

The rate of other days is from `N` requests on `D` days before: of whole weeks, so that weekdays cancel, after
that of the page's first request, without which it would not be here. Added up as they are, a few large pages
would decide. So a day weighs ``D / (N + D)``; as ``m E[g(N)] = E[N g(N - 1)]`` for a Poisson variable of mean
`m`, what is expected stays exact for steady requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policies.history.request_history import RequestState
from policies.numerics.typing_ import FloatArray, IntArray, UIntArray

KINDS = ("clicks", "impressions")
WEEKS = 4
"""Before a day's week, that tell a page's rate."""

PARTS = 16
"""Of the pages, by hash: how far they differ tells how sure the ratio is."""

_UNIT = 2.0**-16
_TIMES, _MORE = 4.0, 16.0
"""A page's rate times and plus that is what counts of a day. Steady requests do not come there, and no day on
which the world asks for one page decides.
"""
_WEEK_SPAN = 1 << 21
_DAYS = 7


def _none() -> IntArray:
    return np.zeros((len(KINDS), 2, PARTS), np.int64)


@dataclass(frozen=True)
class PairSums:
    """Pairs of requests of some pages, which merge in any order.

    Attributes
    ----------
    sums : (2, 2, PARTS) int64, fixed point
        By kind of request: pairs found, and those expected, of each part of the pages.
    """

    sums: IntArray = field(default_factory=_none)

    def merge(self, other: PairSums) -> PairSums:
        """Those of the pages of both."""
        return PairSums(self.sums + other.sums)

    @staticmethod
    def of(
        state: RequestState,
        page: IntArray,
        day: IntArray,
        counts: Sequence[IntArray],
        url_hash: UIntArray,
        oldest: int,
        unit: float,
    ) -> PairSums:
        """Of rows of a log.

        Parameters
        ----------
        state : RequestState of n pages
            With these rows.
        page, day : (r,) int64
            Days since 1970-01-01. Rows of a page and a day add up.
        counts : two (r,) int64, in `unit`
            Clicks and impressions.
        url_hash : (n,) uint64
        oldest : int
            First week that the state keeps.
        unit : float
        """
        if not len(page):
            return PairSums()
        _, first, row = np.unique(page * _WEEK_SPAN * _DAYS + day, return_index=True, return_inverse=True)
        page, day = page[first], day[first]
        week = day // _DAYS
        low = np.maximum(
            np.maximum(state.first_day[page].astype(np.int64) // _DAYS + 1, oldest), week - WEEKS
        )
        days = _DAYS * np.maximum(week - low, 0)
        key = state.page * _WEEK_SPAN + state.week
        begin, end = (np.searchsorted(key, page * _WEEK_SPAN + np.minimum(w, week)) for w in (low, week))
        part = (url_hash[page] % np.uint64(PARTS)).astype(np.int64)
        found = _none()
        for kind, (rows, cells) in enumerate(zip(counts, (state.clicks, state.impressions), strict=True)):
            if not rows.any():
                continue
            today = np.zeros(len(page), np.int64)
            np.add.at(today, row, rows)
            before = np.concatenate([[0], np.cumsum(cells)])
            n, use = (before[end] - before[begin]) * unit, days > 0
            c = np.minimum(today * unit, _TIMES * n / np.maximum(days, 1) + _MORE)
            pairs = np.where(use, np.maximum(c * (c - 1.0), 0.0) * days / (n + np.maximum(days, 1)), 0.0)
            chance = np.where(use, c * n / np.maximum(n + days - 1.0, 1.0), 0.0)
            for at, value in enumerate((pairs, chance)):
                np.add.at(found[kind, at], part, np.rint(value / _UNIT).astype(np.int64))
        return PairSums(found)


@dataclass(frozen=True)
class KeptPairs:
    """Pairs of one kind of requests over nights, older ones counting less.

    Attributes
    ----------
    found, expected : (PARTS,) float64
    """

    found: FloatArray = field(default_factory=lambda: np.zeros(PARTS))
    expected: FloatArray = field(default_factory=lambda: np.zeros(PARTS))

    def after(self, night: PairSums, kind: str, keep: float) -> KeptPairs:
        """With those of a night; of what is here the share `keep` counts."""
        found, expected = night.sums[KINDS.index(kind)] * _UNIT
        return KeptPairs(self.found * keep + found, self.expected * keep + expected)

    @property
    def ratio(self) -> float | None:
        """Pairs found over those expected; None without any."""
        expected = math.fsum(self.expected)
        return math.fsum(self.found) / expected if expected > 0.0 else None

    @property
    def stderr(self) -> float | None:
        """Its standard error, by leaving out one part of the pages after the other; None without any."""
        rest = math.fsum(self.expected) - self.expected
        if not (rest > 0.0).all():
            return None
        without = (math.fsum(self.found) - self.found) / rest
        return float(np.sqrt((PARTS - 1) * np.mean((without - without.mean()) ** 2)))

    def as_json(self) -> dict[str, Any]:
        """For the manifest."""
        return {
            "ratio": self.ratio,
            "stderr": self.stderr,
            "found": self.found.tolist(),
            "expected": self.expected.tolist(),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> KeptPairs:
        """The inverse of `as_json`. ValueError for other values."""
        found, expected = (np.array(values[name], np.float64) for name in ("found", "expected"))
        if found.shape != (PARTS,) or expected.shape != (PARTS,):
            raise ValueError(f"{len(found)} and {len(expected)} parts: expected {PARTS} each")
        if not (np.isfinite(found).all() and np.isfinite(expected).all()):
            raise ValueError("pairs that are not finite")
        return cls(found, expected)
