"""Slots of a night, shared out to shards and to giant hosts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints.decorators import no_annotations

from policies.history.page_state import NO_TIME
from policies.numerics.errors import InfeasibleError
from policies.numerics.typing_ import FloatArray, IntArray, UIntArray
from policies.objectives import objectives
from policies.optimum import search
from policies.sequencing import giants, quotas
from transforms.batches.coders import ShardTables
from transforms.batches.steps import Step
from transforms.batches.tally import counted
from transforms.kept.carrying import Carry
from transforms.kept.state import microseconds
from transforms.night.request_share import RequestShare
from transforms.night.solving import finished, tables_to_block
from transforms.shards.catalogue import DAY_US, UNLIMITED_SLOTS
from transforms.shards.sharding import Layout

# No page is worth more crawls than one a second: whoever asks for them has mistyped the budget.
_LEAST_GAP_US = 1_000_000
MAX_SLOTS_PER_SHARD = 100_000_000  # about 100 bytes each while they are filled


SEQUENCERS = ("lds", "greedy")
"""`policies.sequencing.sequencing` and `policies.greedy.greedy`."""


@dataclass(frozen=True)
class Quotas:
    """Slots of tonight.

    Attributes
    ----------
    slots : (S,) int64
        Slots of each shard, without those of limited giant hosts.
    carry : Carry
        For tomorrow.
    giants : dict of int to GiantSlots
        Slots of giant hosts that have a limit or a gap, by the host's hash.
    fixed : int
        Crawls that are decided without slots, see `transforms.night.refreshes`; those of such giant hosts
        take slots of their host.
    """

    slots: IntArray
    carry: Carry
    giants: Mapping[int, GiantSlots] = field(default_factory=dict)
    fixed: int = 0

    @property
    def total(self) -> int:
        return self.fixed + int(self.slots.sum()) + sum(g.slots.total for g in self.giants.values())


@dataclass(frozen=True)
class GiantSlots:
    """Slots of a giant host, and the shards of its parts in order."""

    slots: giants.HostSlots
    shards: tuple[int, ...]


@dataclass(frozen=True)
class Night:
    """When the schedule starts, how long it is, and what it maximises.

    `max_signal_shift` is the share of a shard's slots that signals of one host may take from others.
    `sequencer` is one of `SEQUENCERS`: who gets which slot. `hour_capacity` is how many times its even share
    of a shard's crawls a 24th of the night may hold.
    `budget_per_day` is without what `request_share` leaves. `half_life_changes` is that of evidence.
    """

    as_of_us: int
    horizon_us: int
    objective: str
    layout: Layout
    budget_per_day: float = math.inf
    max_signal_shift: float = 1.0
    sequencer: str = "lds"
    hour_capacity: float = 4.0
    request_share: RequestShare = field(default_factory=RequestShare)
    half_life_changes: float = math.inf

    @property
    def num_shards(self) -> int:
        """Shards of the night."""
        return self.layout.num_shards


@dataclass(frozen=True)
class GiantPart:
    """What a shard has of a giant host, or of a group of hosts, that has a limit or a gap.

    Times in UTC microseconds, gaps too. `host_hash` is that of the group where there is one. `n_pages` and
    `n_new` count its pages, and those never crawled.
    """

    host_hash: int
    rate_per_day: float
    n_pages: int
    n_new: int
    max_slots: int
    gap_us: int
    last_slot_us: int


@dataclass(frozen=True)
class ShardTotal:
    """Crawls per day of the pages of a shard, those of its limited giant hosts apart; `n_pages` are all.

    They are beside `fixed` crawls of the night.
    """

    shard: int
    rate_per_day: float
    giants: tuple[GiantPart, ...] = ()
    n_pages: int | None = None
    fixed: int = 0


def divide_slots(totals: Iterable[ShardTotal], night: Night, carry: Carry) -> Quotas:
    """Share the night's slots out to shards and giant hosts, in proportion to their rates.

    Raises
    ------
    InfeasibleError
        Where pages get more than a slot a second each, or a shard more than fit into memory.
    """
    rate = np.zeros(night.num_shards)
    parts: dict[int, dict[int, GiantPart]] = {}
    n_pages: float = 0
    fixed = 0
    for total in totals:
        fixed += total.fixed
        n_pages += math.inf if total.n_pages is None else total.n_pages
        rate[total.shard] = total.rate_per_day
        for part in total.giants:
            parts.setdefault(part.host_hash, {})[total.shard] = part
    hosts = sorted(parts)
    host_rate = [math.fsum(p.rate_per_day for p in parts[h].values()) for h in hosts]
    horizon_hours = night.horizon_us / DAY_US * 24
    slots, carried = quotas.total_slots(float(rate.sum()) + math.fsum(host_rate), horizon_hours, carry.total)
    most = n_pages * night.horizon_us / _LEAST_GAP_US
    if slots > max(most, 1):
        raise InfeasibleError(
            f"--budget={night.budget_per_day:g} gives {slots:,} slots to {counted(n_pages, 'page')}: more "
            "than one a second for each. Lower it to at most "
            f"{counted(most * DAY_US / night.horizon_us, 'crawl')} a day"
        )
    old = np.asarray(carry.shards) if len(carry.shards) == night.num_shards else np.zeros(night.num_shards)
    owed_to_host = [carry.giants.get(h, (0.0,))[0] for h in hosts]
    given, left = quotas.shard_quotas(
        np.concatenate([rate, host_rate]), np.concatenate([old, owed_to_host]), slots
    )
    split: dict[int, GiantSlots] = {}
    owed: dict[int, tuple[float, ...]] = {}
    for j, host in enumerate(hosts):
        due, short = int(given[len(rate) + j]), float(left[len(rate) + j])
        if rate.any():
            due = math.ceil(due * _served_share(parts[host].values()))
        split[host], of_parts = _giant_slots(host, parts[host], due, night, carry)
        owed[host] = (short, *of_parts)
    if hosts:
        # What a giant host may not use goes to the other pages, where there are any.
        rest = slots - sum(g.slots.total for g in split.values())
        given, left = quotas.shard_quotas(rate, old, rest if rate.any() else 0)
    largest = int(given.max(initial=0))
    if largest > MAX_SLOTS_PER_SHARD:
        raise InfeasibleError(
            f"the budget gives {largest} slots in one shard, more than {MAX_SLOTS_PER_SHARD}, which would "
            "not fit into memory; lower --budget or --horizon_hours, limit pages or hosts, or give more "
            "--num_shards"
        )
    return Quotas(given, Carry(tuple(left.tolist()), carried, owed), split, fixed)


def _served_share(parts: Iterable[GiantPart]) -> float:
    """Share of its slots that a giant host may have: new pages use no more than half, as elsewhere."""
    some = list(parts)
    new = sum(p.n_new for p in some) / max(sum(p.n_pages for p in some), 1)
    return 1.0 - new + min(new, 0.5)


def _giant_slots(
    host: int, parts: Mapping[int, GiantPart], due: int, night: Night, carry: Carry
) -> tuple[GiantSlots, list[float]]:
    """Slots of one giant host, at most `due`, and what its parts are owed then."""
    shards = tuple(night.layout.shards_of(host) if host in night.layout.parts else sorted(parts))
    rate = np.array([parts[s].rate_per_day if s in parts else 0.0 for s in shards])
    some = next(iter(parts.values()))
    last = max(p.last_slot_us for p in parts.values())
    free_us = 0 if last == NO_TIME else last + some.gap_us - night.as_of_us
    most = giants.most_slots(some.max_slots, some.gap_us, free_us, night.horizon_us)
    before = np.asarray(carry.giants.get(host, ())[1:])
    found, owed = giants.host_slots(
        rate,
        before if len(before) == len(shards) else np.zeros(len(shards)),
        min(due, most),
        some.gap_us,
        free_us,
        night.horizon_us,
    )
    return GiantSlots(found, shards), owed.tolist()


def limited_giants(hosts: pa.RecordBatch, layout: Layout) -> IntArray:
    """Rows of the hosts of a shard that are split or in a group, and have a limit or a gap."""
    limited = hosts.column("max_slots").to_numpy() < UNLIMITED_SLOTS
    return np.flatnonzero((_units(hosts, layout) > 0) & (limited | (hosts.column("gap_us").to_numpy() > 0)))


def _units(hosts: pa.RecordBatch, layout: Layout) -> UIntArray:
    """What a host shares its limit with: the hash of its group, else its own where it is split, else 0."""
    host_hash = hosts.column("host_hash").to_numpy()
    unit = np.where(np.isin(host_hash, np.array(sorted(layout.parts), np.uint64)), host_hash, np.uint64(0))
    if "unit_hash" not in hosts.schema.names:
        return unit
    group = hosts.column("unit_hash").to_numpy()
    return np.where(group > 0, group, unit)


def limited_units(hosts: pa.RecordBatch, layout: Layout) -> dict[int, IntArray]:
    """Rows of the hosts of a shard by what they share a limit with, in order of their first rows."""
    unit = _units(hosts, layout)
    rows: dict[int, list[int]] = {}
    for row in limited_giants(hosts, layout).tolist():
        rows.setdefault(int(unit[row]), []).append(row)
    return {u: np.array(r, np.int64) for u, r in rows.items()}


def pages_of(start: IntArray, rows: IntArray) -> IntArray:
    """The pages of some hosts: (k,) int64, where those of host j are start[j] to start[j + 1]."""
    return np.concatenate([np.arange(start[row], start[row + 1]) for row in rows.tolist()])


def shard_total(
    folded_hosts: pa.RecordBatch, rate_per_day: FloatArray, shard: int, layout: Layout, fixed: IntArray
) -> ShardTotal:
    """What `divide_slots` needs to know of a shard with giant hosts; `fixed` are pages of such crawls."""
    start = np.concatenate([[0], np.cumsum(folded_hosts.column("n_pages").to_numpy(), dtype=np.int64)])
    rest = np.ones(len(rate_per_day), np.bool_)
    parts = []
    for unit, rows in limited_units(folded_hosts, layout).items():
        hosts = folded_hosts.take(pa.array(rows))
        pages = pages_of(start, rows)
        rest[pages] = False
        n_pages, n_new = (int(hosts.column(n).to_numpy().sum()) for n in ("n_pages", "n_new"))
        most, gap_us = (int(hosts.column(n)[0].as_py()) for n in ("max_slots", "gap_us"))
        last_us = int(microseconds(hosts.column("last_slot_at")).max())
        rate = float(rate_per_day[pages].sum())
        parts.append(GiantPart(unit, rate, n_pages, n_new, most, gap_us, last_us))
    n_fixed = int(rest[fixed].sum())
    return ShardTotal(shard, float(rate_per_day[rest].sum()), tuple(parts), len(rate_per_day), n_fixed)


class _ShardTotal(Step):
    def __init__(self, night: Night) -> None:
        self._night = night

    @no_annotations
    def process(self, tables: ShardTables, begun: Any, *told: Iterable[Any]) -> Iterator[ShardTotal]:
        result = finished(begun, *told)
        block, objective = tables_to_block(tables), objectives.get(self._night.objective)
        hosts, fixed = tables.tables.get("hosts"), np.zeros(0, np.int64)
        if (refreshes := tables.tables.get("refreshes")) is not None:
            fixed = refreshes.column("page").to_numpy()
        if hosts is None or not (self._night.layout.parts or "unit_hash" in hosts.schema.names):
            rate_per_day = search.shard_total_per_day(block, objective, result)
            total = ShardTotal(tables.shard, rate_per_day, n_pages=len(block), fixed=len(fixed))
        else:
            rate = search.allocate(block, objective, result).crawl_rate_per_day
            total = shard_total(hosts, rate, tables.shard, self._night.layout, fixed)
        beside = total.rate_per_day - total.fixed * (DAY_US / self._night.horizon_us)
        yield replace(total, rate_per_day=max(beside, 0.0)) if total.fixed else total


class TotalShards(beam.PTransform):
    """What `divide_slots` needs, `ShardTotal`, one a shard, from blocks and what the search has `told`."""

    def __init__(self, night: Night, told: list[Any]) -> None:
        super().__init__()
        self._night, self._told = night, told

    def expand(self, blocks: beam.PCollection) -> beam.PCollection:
        asked = beam.ParDo(_ShardTotal(self._night), *self._told)
        return blocks | "ShardTotals" >> asked.with_output_types(ShardTotal)
