"""Sums and means of groups of pages that reach over shards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from policies.estimation.group_means import GroupSums
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import FloatArray, IntArray, UIntArray


@dataclass(frozen=True)
class GroupTable:
    """Groups that reach over shards: exact sums by the group's hash, and what follows.

    Attributes
    ----------
    group_hash : (G,) uint64, ascending
    sums : tuple of P GroupSums
        At the grid points of a round, see `policies.estimation.group_means`.
    point : (P, G) int64
        Those of the next round.
    mean_per_day : (G,) float64, per day
        Once all rounds are made.
    """

    group_hash: UIntArray
    sums: tuple[GroupSums, ...]
    point: IntArray | None = None
    mean_per_day: FloatArray | None = None

    def merge(self, other: GroupTable) -> GroupTable:
        """Sums over both sets of pages."""
        if not self.sums or not other.sums:
            return self if self.sums else other
        hashes = np.union1d(self.group_hash, other.group_hash)
        mine, theirs = (
            [one.spread(np.searchsorted(hashes, table.group_hash), len(hashes)) for one in table.sums]
            for table in (self, other)
        )
        return GroupTable(hashes, tuple(a.merge(b) for a, b in zip(mine, theirs, strict=True)))

    def find(self, group_hash: UIntArray) -> tuple[IntArray, IntArray]:
        """Rows of the pages, (k,), whose group has a mean here, and their groups, (k,)."""
        at = rows_of(self.group_hash, group_hash)
        rows = np.flatnonzero(at >= 0)
        return rows, at[rows]


class MergeGroups(beam.CombineFn):
    """One table of all shards' sums."""

    def create_accumulator(self) -> GroupTable:
        return GroupTable(np.zeros(0, np.uint64), ())

    def add_input(self, accumulator: GroupTable, element: GroupTable) -> GroupTable:
        return accumulator.merge(element)

    def merge_accumulators(self, accumulators: Iterable[GroupTable]) -> GroupTable:
        total = self.create_accumulator()
        for accumulator in accumulators:
            total = total.merge(accumulator)
        return total

    def extract_output(self, accumulator: GroupTable) -> GroupTable:
        return accumulator
