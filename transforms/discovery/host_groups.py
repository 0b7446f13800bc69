"""Hosts that share one limit and one gap, wherever their sources lie: each gets its part of both.

At a price of refreshes hosts ask for some. The refreshes of a group are divided by that, and the search goes
on with the part of each host as its limit. Where the group has a gap, its refreshes stand on one grid, and
hosts have places of it as parts of a giant host have in the night.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from policies.numerics.typing_ import IntArray, UIntArray
from policies.sequencing.fixed_crawls import slots_for
from policies.sequencing.giants import HostSlots, host_slots, most_slots
from transforms.batches.coders import ShardTables

_ASKED = ("unit_hash", "host_hash", "most", "gap_us", "free_us")
_SLACK = 4
_LEAST = 0.5
"""Refreshes that a host counts for at least: who asks for none may at a lower price."""


@dataclass(frozen=True)
class Shares:
    """Parts of hosts that are in groups, by their hashes.

    Attributes
    ----------
    most : dict of int to int
        Refreshes in the horizon.
    grid : dict of int to (HostSlots, int)
        Slots of the group, and which part the host is; of groups with a gap.
    """

    most: dict[int, int] = field(default_factory=dict)
    grid: dict[int, tuple[HostSlots, int]] = field(default_factory=dict)

    def place(self, host_hash: UIntArray, host: IntArray, due_us: IntArray, as_of_us: int) -> IntArray:
        """Refreshes at slots of their hosts, where these have any.

        Parameters
        ----------
        host_hash : (h,) uint64
        host : (r,) int64
            Of each refresh.
        due_us : (r,) int64
            UTC microseconds.
        as_of_us : int
        """
        made = due_us.copy()
        order = np.lexsort((due_us, host))
        start = np.searchsorted(host[order], np.arange(len(host_hash) + 1))
        offsets: dict[int, list[IntArray]] = {}
        for h in np.flatnonzero([key in self.grid for key in host_hash.tolist()]).tolist():
            slots, part = self.grid[int(host_hash[h])]
            rows = order[start[h] : start[h + 1]]
            if id(slots) not in offsets:
                offsets[id(slots)] = slots.all_offsets_us()
            offset = offsets[id(slots)][part]
            made[rows] = as_of_us + offset[slots_for(offset, due_us[rows] - as_of_us)]
        return made


def asking(hosts: pa.RecordBatch, count: IntArray) -> tuple[np.ndarray, ...]:
    """The hosts of a shard that are in groups: columns `_ASKED`, and how many refreshes they ask for."""
    rows = np.flatnonzero(hosts.column("unit_hash").to_numpy())
    return tuple(a[rows] for a in (*(hosts.column(n).to_numpy() for n in _ASKED), count))


def divide(parts: Sequence[tuple[np.ndarray, ...]], as_of_us: int, horizon_us: int, refreshes: int) -> Shares:
    """The parts of all hosts that are in groups.

    Parameters
    ----------
    parts : sequence of tuple
        What `asking` says of all shards.
    as_of_us, horizon_us : int
    refreshes : int
        Of all hosts in the horizon.
    """
    unit, host, most, gap_us, free_us, count = (np.concatenate(c) for c in zip(*parts, strict=True))
    shares = Shares()
    order = np.lexsort((host, unit))
    for rows in np.split(order, np.flatnonzero(np.diff(unit[order])) + 1) if len(order) else ():
        gap, free = int(gap_us[rows].max()), int(free_us[rows].max()) - as_of_us
        slots = most_slots(int(most[rows].min()), gap, free, horizon_us)
        if gap == 0 and slots >= refreshes:
            continue
        slots = min(slots, _SLACK * refreshes + len(rows))
        wanted = np.maximum(count[rows], _LEAST).astype(np.float64)
        made, _owed = host_slots(wanted, np.zeros(len(rows)), slots, gap, free, horizon_us)
        for part, key in enumerate(host[rows].tolist()):
            shares.most[key] = int(made.quota[part])
            if gap:
                shares.grid[key] = made, part
    return shares


def limited(shard: ShardTables, shares: Shares) -> ShardTables:
    """A shard of which the hosts have their parts as limits."""
    hosts = shard.tables["hosts"]
    most = hosts.column("most").to_numpy()
    keys = hosts.column("host_hash").to_numpy().tolist()
    most = np.array([shares.most.get(key, m) for key, m in zip(keys, most.tolist(), strict=True)], np.int64)
    at = hosts.schema.get_field_index("most")
    return replace(
        shard, tables=shard.tables | {"hosts": hosts.set_column(at, hosts.schema.field(at), pa.array(most))}
    )
