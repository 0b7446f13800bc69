"""Refreshes of pages for their links: crawls of the night that are decided, with their instants, before it.

They count as crawls of their page, whose rate is no lower, and against its host's limit. The discovery job
plans them, see `transforms.discovery`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from policies.discovery.names import UNPRICED
from policies.history.page_state import NO_TIME
from policies.numerics.typing_ import FloatArray, IntArray
from policies.sequencing.fixed_crawls import firsts, slots_for, with_fixed
from policies.sequencing.host_shares import host_slot_limits
from policies.sequencing.sequencing import Sequence
from transforms.batches.tally import Counts
from transforms.kept.fold_settings import FoldSettings
from transforms.kept.state import microseconds
from transforms.night.dividing import Night
from transforms.night.shard_report import ShardReport
from transforms.shards.catalogue import DAY_US
from transforms.shards.coding import ShardPages

TABLE = pa.schema([("page", pa.int64()), ("at_us", pa.int64())])
"""Rows of pages, and microseconds from the start of the night, rising."""


def free_from(hosts: pa.RecordBatch, as_of_us: int) -> IntArray:
    """From when on hosts may be crawled, microseconds from the start of the night: (h,) int64."""
    last = microseconds(hosts.column("last_slot_at"))
    gap = hosts.column("gap_us").to_numpy().astype(np.int64)
    return np.where(last == NO_TIME, 0, np.maximum(last + gap - as_of_us, 0))


def most_of_hosts(hosts: pa.RecordBatch, as_of_us: int, horizon_us: int) -> IntArray:
    """Crawls that limits and gaps of hosts leave in a night: (h,) int64."""
    most, gap = (hosts.column(name).to_numpy() for name in ("max_slots", "gap_us"))
    return host_slot_limits(most, gap, free_from(hosts, as_of_us), 0, horizon_us - 1, horizon_us)


def join_refreshes(
    pages: ShardPages,
    rows: pa.Table,
    hosts: pa.RecordBatch,
    cap_per_day: FloatArray,
    settings: FoldSettings,
    counts: Counts,
) -> pa.RecordBatch:
    """Refreshes of a shard's pages, `TABLE`: those of the night, as far as caps and limits of hosts allow.

    Parameters
    ----------
    pages : ShardPages
    rows : Table
        Of `schemas.REFRESHES` with "url_hash"; all of pages of the shard.
    hosts : RecordBatch of `schemas.HOSTS_TABLE`
    cap_per_day : (n,) float64
        A page is not refreshed more often than it may be crawled.
    settings : FoldSettings
    counts : Counts
    """
    horizon_us = settings.hosts.horizon_us
    page = pages.code(rows.column("url_hash").to_numpy())
    at_us = rows.column("due_at").cast(pa.int64()).to_numpy() - settings.as_of_us
    within = (at_us >= 0) & (at_us < horizon_us)
    counts.add("refreshes_outside", int((~within).sum()))
    page, at_us = page[within], at_us[within]
    host = pages.host_code.astype(np.int64)
    most = np.minimum(np.ceil(cap_per_day * (horizon_us / DAY_US)), 2.0**53).astype(np.int64)
    of_hosts = most_of_hosts(hosts, settings.as_of_us, horizon_us)
    for name, group, limit in (("capped", lambda p: p, most), ("over_limit", lambda p: host[p], of_hosts)):
        fits = firsts(group(page), at_us, page, limit[group(page)])
        counts.add(f"refreshes_{name}", int((~fits).sum()))
        page, at_us = page[fits], at_us[fits]
    order = np.lexsort((page, at_us))
    return pa.RecordBatch.from_arrays([pa.array(page[order]), pa.array(at_us[order])], schema=TABLE)


def with_floors(columns: dict[str, pa.Array], refreshes: pa.RecordBatch, days: float) -> dict[str, pa.Array]:
    """A catalogue's columns where no page's rate is lower than its refreshes."""
    floor = columns["floor_per_day"].to_numpy()
    fixed = np.bincount(refreshes.column("page").to_numpy(), minlength=len(floor))
    return columns | {"floor_per_day": pa.array(np.maximum(floor, fixed / days))}


@dataclass(frozen=True)
class Fixed:
    """The refreshes of a shard of n pages.

    Attributes
    ----------
    page, at_us : (k,) int64
        As in `TABLE`.
    count : (n,) int64
        Of each page.
    """

    page: IntArray
    at_us: IntArray
    count: IntArray

    @classmethod
    def of(cls, tables: dict[str, pa.RecordBatch]) -> Fixed:
        """Of an estimated shard; empty where it has none."""
        n, found = tables["pages"].num_rows, tables.get("refreshes")
        found = TABLE.empty_table() if found is None else found
        page, at_us = (found.column(name).to_numpy() for name in TABLE.names)
        return cls(page, at_us, np.bincount(page, minlength=n))

    def in_slots(self, mine: IntArray, offset_us: IntArray) -> tuple[Fixed, IntArray]:
        """Refreshes with those of some pages at slots of these, and the slots that are left.

        What has no slot is left out.
        """
        rows = np.flatnonzero(np.isin(self.page, mine))
        kept, left = rows[: len(offset_us)], rows[len(offset_us) :]
        slots = slots_for(offset_us, self.at_us[kept])
        at_us = self.at_us.copy()
        at_us[kept] = offset_us[slots]
        some = np.delete(np.arange(len(self.page)), left)
        page = self.page[some]
        fixed = replace(
            self, page=page, at_us=at_us[some], count=np.bincount(page, minlength=len(self.count))
        )
        return fixed, np.delete(offset_us, slots)

    def room(self, hosts: pa.RecordBatch, host: IntArray, as_of_us: int, horizon_us: int) -> IntArray:
        """Crawls that hosts may have beside: (h,) int64."""
        fixed = np.bincount(host[self.page], minlength=hosts.num_rows)
        most = np.minimum(hosts.column("max_slots").to_numpy(), most_of_hosts(hosts, as_of_us, horizon_us))
        return np.where(fixed > 0, np.maximum(most - fixed, 0), hosts.column("max_slots").to_numpy())

    def into(
        self,
        sequence: Sequence,
        pages: pa.RecordBatch,
        hosts: pa.RecordBatch,
        apart: IntArray | list[int],
        night: Night,
    ) -> Sequence:
        """The night with them. Crawls of the hosts `apart`, rows of `hosts`, stay where they are."""
        if not len(self.page):
            return sequence
        gap_us = hosts.column("gap_us").to_numpy().astype(np.int64)
        free_us = free_from(hosts, night.as_of_us)
        gap_us[apart] = free_us[apart] = 0
        host = pages.column("host_code").to_numpy().astype(np.int64)
        return with_fixed(sequence, self.page, self.at_us, host, gap_us, free_us, night.horizon_us)


def new_page_worth(reports: Iterable[ShardReport], previous: dict[str, Any]) -> float | None:
    """What the first crawl of a new page is worth, as the objective values freshness, mean over all of them.

    Where a night has none it is that of the night before; None where there was none either.
    """
    found = sorted(reports, key=lambda r: r.shard)
    new = sum(r.counts.get("pages_new", 0) for r in found)
    if not new:
        return previous.get("new_page_worth")
    return math.fsum(r.new_value for r in found) / new


def discovery_of(
    planned: dict[str, Any] | None, manifest: dict[str, Any], worth: float | None
) -> dict[str, Any] | None:
    """What refreshes took of the budget, and what the last of them is worth beside the last crawl.

    Parameters
    ----------
    planned : dict or None
        Of the manifest of the discovery job.
    manifest : dict
        Of the night.
    worth : float or None
        Of `new_page_worth`.
    """
    if planned is None:
        return None
    # Prices of some policies are no links.
    worth_of_last = None if worth is None else planned["price"] * worth
    if planned["options"].get("policy") in UNPRICED:
        worth_of_last = None
    used, slots = (manifest["counters"].get(f"slots_{name}", 0) for name in ("discover", "used"))
    return planned | {
        "share_of_slots": used / slots if slots else 0.0,
        "new_page_worth": worth,
        "worth_of_last_refresh": worth_of_last,
        "worth_of_last_crawl": manifest["multiplier"],
    }
