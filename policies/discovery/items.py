"""What crawlers choose among, and what they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray


@dataclass(frozen=True)
class Items:
    """Sources that are chosen among, sorted by group and key.

    Attributes
    ----------
    key : (n,) uint64
        Stable hashes of sources, that draws are keyed by.
    seed : (n,) uint64
    group : (n,) int64
        Whose budget is theirs, and what they are learned with: ascending, each of 0 .. g - 1.
    k : (g,) int64
        Refreshes of each group in a step.
    """

    key: UIntArray
    seed: UIntArray
    group: IntArray
    k: IntArray

    def __len__(self) -> int:
        return len(self.key)

    @property
    def groups(self) -> int:
        return len(self.k)

    def sums(self, values: FloatArray, item: IntArray | None = None) -> FloatArray:
        """Sums over items, or over some of them, by group: (g,) float64."""
        group = self.group if item is None else self.group[item]
        return sum_by(group, values, self.groups)


@dataclass(frozen=True)
class Seen:
    """What m refreshes of a step showed. Those that failed are not among them.

    Attributes
    ----------
    item : (m,) int64
        Ascending.
    hours : (m,) float64
        Since this source's last refresh that did not fail; inf for its first.
    links : (m,) int64
        Targets on it.
    new : (m,) int64
        The yield: those that no refresh before this step has shown. Two sources may both be credited.
    credit : (m,) float64
        The same, but a target that several refreshes of the step show is divided among them: adds up to what
        the crawler has found.
    held, kept : (m,) int64
        Targets that came between the last two refreshes before this one, as the latter of them showed them;
        those of them that are still there. 0 at the first two refreshes.
    """

    item: IntArray
    hours: FloatArray
    links: IntArray
    new: IntArray
    credit: FloatArray
    held: IntArray
    kept: IntArray

    @property
    def again(self) -> BoolArray:
        """(m,) bool: refreshes that are not a source's first."""
        return np.isfinite(self.hours)

    def take(self, mask: BoolArray) -> Seen:
        """Some of them."""
        return Seen(*(getattr(self, name)[mask] for name in self.__dataclass_fields__))


class Crawler(Protocol):
    """A rule that picks sources to refresh."""

    def pick(self, step: int, now_hours: float, due_hours: FloatArray) -> IntArray:
        """Items to refresh, ascending.

        Parameters
        ----------
        step : int
        now_hours : float
            The end of the step, hours since 1970-01-01 UTC.
        due_hours : (n,) float64
            Hours since the last refresh of each item that did not fail; inf where there was none.
        """

    def learn(self, step: int, now_hours: float, seen: Seen) -> None:
        """Take in what the refreshes of a step showed."""
