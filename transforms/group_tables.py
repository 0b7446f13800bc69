"""Sums and means of groups of pages that reach over shards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import apache_beam as beam
import numpy as np

from policies import prior
from policies.typing_ import FloatArray, IntArray, UIntArray


@dataclass(frozen=True)
class GroupTable:
    """Means of groups that reach over shards: sums of rates by the group's hash, exact and order-free.

    Attributes
    ----------
    group_hash : (G,) uint64, ascending
    sums : prior.GroupSums
        Of the latest round.
    means : tuple of (G,) float64, per day
        Means after each round.
    """

    group_hash: UIntArray
    sums: prior.GroupSums
    means: tuple[FloatArray, ...] = ()

    def merge(self, other: GroupTable) -> GroupTable:
        """Sums over both sets of pages."""
        hashes = np.union1d(self.group_hash, other.group_hash)
        sums = _spread(self, hashes).merge(_spread(other, hashes))
        return GroupTable(hashes, sums)

    def find(self, group_hash: UIntArray) -> tuple[IntArray, IntArray]:
        """Rows of the pages, (k,), whose group has a mean here, and their groups, (k,)."""
        if not len(self.group_hash):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        at = np.minimum(np.searchsorted(self.group_hash, group_hash), len(self.group_hash) - 1)
        rows = np.flatnonzero(self.group_hash[at] == group_hash)
        return rows, at[rows]


def _spread(table: GroupTable, hashes: UIntArray) -> prior.GroupSums:
    at = np.searchsorted(hashes, table.group_hash)
    parts = []
    for values in (table.sums.coarse, table.sums.fine, table.sums.count):
        wide = np.zeros(len(hashes), np.int64)
        wide[at] = values
        parts.append(wide)
    return prior.GroupSums(*parts)


class MergeGroups(beam.CombineFn):
    """One table of all shards' sums."""

    def create_accumulator(self) -> GroupTable:
        none = np.zeros(0, np.int64)
        return GroupTable(np.zeros(0, np.uint64), prior.GroupSums(none, none, none))

    def add_input(self, accumulator: GroupTable, element: GroupTable) -> GroupTable:
        return accumulator.merge(element)

    def merge_accumulators(self, accumulators: Iterable[GroupTable]) -> GroupTable:
        total = self.create_accumulator()
        for accumulator in accumulators:
            total = total.merge(accumulator)
        return total

    def extract_output(self, accumulator: GroupTable) -> GroupTable:
        return accumulator
