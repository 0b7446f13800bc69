"""Visits of the sources of a shard, put together from their parts; links at their last visits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from policies.discovery.links import Shown, Visited
from policies.numerics.typing_ import BoolArray, UIntArray
from transforms.discovery import tables


@dataclass(frozen=True)
class RawVisits(Visited):
    """Visits with the URLs and hosts of their sources.

    Attributes
    ----------
    url : pa.Array (m,)
    host_hash : (m,) uint64
    """

    url: pa.Array
    host_hash: UIntArray

    def take(self, keep: BoolArray) -> RawVisits:
        """Some visits, with their links."""
        number = np.cumsum(keep) - 1
        shown = keep[self.visit]
        return RawVisits(
            self.source_hash[keep],
            self.at_s[keep],
            self.ok[keep],
            self.new[keep],
            self.partial[keep],
            number[self.visit[shown]],
            self.target[shown],
            self.url.filter(pa.array(keep)),
            self.host_hash[keep],
        )


def merged(parts: pa.RecordBatch) -> RawVisits:
    """Visits of `tables.VISITS`, each in one part; it has failed if all parts have."""
    source, at = parts.column("url_hash").to_numpy(), parts.column("at_s").to_numpy()
    # The parts that say how many targets are new have no URL.
    order = np.lexsort((parts.column("url").is_null().to_numpy(zero_copy_only=False), at, source))
    source, at = source[order], at[order]
    changes = (source[1:] != source[:-1]) | (at[1:] != at[:-1])
    first = np.append(0, np.flatnonzero(changes) + 1) if len(order) else np.zeros(0, np.int64)
    of_part = np.empty(len(order), np.int64)
    of_part[order] = np.append(0, np.cumsum(changes))[: len(order)]
    lists = parts.column("targets")
    visit = np.repeat(of_part, np.diff(lists.offsets.to_numpy()))
    target = lists.flatten().to_numpy()
    by_visit = np.argsort(visit, kind="stable")
    rows = pa.array(order)
    ok = parts.column("ok").take(rows).to_numpy(zero_copy_only=False)
    new = parts.column("new").take(rows).to_numpy()
    partial = parts.column("partial").take(rows).to_numpy(zero_copy_only=False)
    whole = len(first) > 0
    return RawVisits(
        source[first],
        at[first],
        np.logical_or.reduceat(ok, first) if whole else np.zeros(0, np.bool_),
        np.add.reduceat(new, first) if whole else np.zeros(0, np.int64),
        np.logical_or.reduceat(partial, first) if whole else np.zeros(0, np.bool_),
        visit[by_visit],
        target[by_visit],
        parts.column("url").take(pa.array(order[first])),
        parts.column("host_hash").to_numpy()[order[first]],
    )


def read_shown(batch: pa.RecordBatch) -> Shown:
    """From rows of `tables.STATE_SHOWN`."""
    source, target = (batch.column(n).to_numpy() for n in ("source_hash", "target_hash"))
    return Shown(source, target, batch.column("came").to_numpy(zero_copy_only=False))


def shown_batch(shown: Shown) -> pa.RecordBatch:
    """The inverse of `read_shown`."""
    return pa.RecordBatch.from_arrays(
        [pa.array(shown.source_hash), pa.array(shown.target_hash), pa.array(shown.came)],
        schema=tables.STATE_SHOWN,
    )
