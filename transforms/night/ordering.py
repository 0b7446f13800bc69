"""The crawls of a shard in order: those of giant hosts at their own slots, all others at the shard's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.greedy import greedy
from policies.greedy.value_curves import ValueCurves
from policies.numerics.typing_ import FloatArray, IntArray
from policies.sequencing import giants, quotas, sequencing
from transforms.night.dividing import Night, Quotas, limited_giants, limited_units, pages_of
from transforms.night.refreshes import Fixed


@dataclass(frozen=True)
class Ordering:
    """What decides the order of a shard's crawls.

    Attributes
    ----------
    night : Night
    pages : ShardPages
        Of sequencing.
    hosts : RecordBatch
    curves : ValueCurves or None
        Of the greedy sequencer, with the `floor` and `cap` of pages, (n,) or None.
    """

    night: Night
    pages: sequencing.ShardPages
    hosts: pa.RecordBatch
    curves: ValueCurves | None
    floor: FloatArray | None
    cap: FloatArray | None

    def sequence(self, plan: Quotas, shard: int, fixed: Fixed) -> tuple[sequencing.Sequence, Fixed]:
        """The shard's night without its fixed crawls, and these: those of giant hosts at slots of theirs."""
        n, layout = len(self.pages.tie), self.night.layout
        offsets = quotas.slot_offsets_us(plan.slots, shard, self.night.horizon_us)
        rows = limited_giants(self.hosts, layout) if plan.giants else np.zeros(0, np.int64)
        if not len(rows):
            return self._in_order(self.pages, offsets, np.arange(n)), fixed
        start = np.concatenate([[0], np.cumsum(self.hosts.column("n_pages").to_numpy(), dtype=np.int64)])
        whole = np.ones(len(start) - 1, np.bool_)
        whole[rows] = False
        rest = np.flatnonzero(np.repeat(whole, np.diff(start)))
        parts = [(rest, self._in_order(self.pages.of_hosts(whole), offsets, rest))]
        for unit, some in limited_units(self.hosts, layout).items():
            giant, mine = plan.giants[unit], pages_of(start, some)
            fixed, own = fixed.in_slots(mine, giant.slots.offsets_us(giant.shards.index(shard)))
            parts.append((mine, self._in_order(self.pages.rows(mine), own, mine)))
        return giants.merge_sequences(parts, n), fixed

    def _in_order(
        self, pages: sequencing.ShardPages, offsets: IntArray, rows: IntArray
    ) -> sequencing.Sequence:
        """The night of some pages of the shard; `rows` tells which."""
        horizon_us = self.night.horizon_us
        if self.curves is None:
            return sequencing.sequence(pages, offsets, horizon_us)
        floor, cap = (None if v is None else v[rows] for v in (self.floor, self.cap))
        return greedy.sequence(pages, self.curves.take(rows), offsets, horizon_us, floor, cap)
