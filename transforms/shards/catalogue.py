"""What a team says of its pages and hosts, joined to the pages of a shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import FloatArray, IntArray, UIntArray
from transforms.batches import schemas
from transforms.batches.errors import InputError
from transforms.batches.hashing import hash_texts
from transforms.rows.host_rows import ANY
from transforms.shards.coding import ShardPages
from transforms.shards.host_groups import groups_of

UNLIMITED_SLOTS = 1 << 62
_LONGEST_GAP_US = 1e17  # three thousand years; sums of times and gaps stay within 64 bits
DAY_US = 86_400_000_000
META = "meta."


@dataclass(frozen=True)
class HostDefaults:
    """Limits of hosts that the host list does not name, and the horizon they are turned into slots for.

    `min_gap_seconds` is the least of all hosts: the list may only make it longer. `groups` tells whether
    hosts may share limits.
    """

    max_per_day: float | None
    min_gap_seconds: float
    horizon_us: int
    groups: bool = False


def metadata_columns(catalogue: pa.Table | pa.RecordBatch) -> list[str]:
    """Columns of a catalogue that pass through."""
    own = {*schemas.PAGES.names, "url_hash", "host_hash"}
    return [n for n in catalogue.schema.names if n not in own]


def join_catalogue(
    pages: ShardPages,
    catalogue: pa.Table | None,
    metadata: list[str],
    group_columns: tuple[str, ...],
    limits_per_day: tuple[float, float] = (0.0, np.inf),
) -> tuple[dict[str, pa.Array], int]:
    """Catalogue columns for every page of a shard.

    Parameters
    ----------
    pages : ShardPages, n pages
    catalogue : Table of `schemas.PAGES` with url_hash and metadata columns, or None
    metadata : list of str
        Metadata columns over all shards; missing ones are null.
    group_columns : tuple of str
        Metadata columns that make a page's group; the host if empty.
    limits_per_day : tuple of float
        Least and most crawls of a page for which the catalogue names none. Of a page's own limit and one of
        these that contradict each other the page's own counts.

    Returns
    -------
    columns : dict
        importance, floor_per_day, cap_per_day, group_hash and "meta.<name>", (n,) each.
    n_duplicates : int
        Rows dropped because another row lists the same page; of those the first in the order of their values
        counts, whatever the order of files.

    Raises
    ------
    InputError
        If no file of the catalogue has one of `group_columns`.
    """
    n, duplicates = len(pages), 0
    absent = [c for c in group_columns if c not in metadata]
    if absent and catalogue is not None and catalogue.num_rows:
        raise InputError(
            f"--group_columns: --pages has no column {', '.join(absent)}. Its metadata columns are: "
            f"{', '.join(metadata) or 'none'}"
        )
    row_of_page = np.full(n, -1, np.int64)
    if catalogue is not None and catalogue.num_rows:
        code = pages.code(catalogue.column("url_hash").to_numpy())
        if len(np.unique(code)) < len(code):
            values = [c for c in catalogue.schema.names if c not in ("url", "url_hash", "host_hash")]
            # By position: a metadata column may have any name.
            keyed = pa.table(
                [code, *(catalogue.column(v) for v in values)], [str(i) for i in range(len(values) + 1)]
            )
            order = pc.sort_indices(keyed, sort_keys=[(i, "ascending") for i in keyed.schema.names])
            catalogue, code = catalogue.take(order), code[order.to_numpy()]
            first = np.flatnonzero(np.diff(code, prepend=-1))
            duplicates = len(code) - len(first)
            row_of_page[code[first]] = first
        else:
            row_of_page[code] = np.arange(len(code))
    listed = row_of_page >= 0
    take = pa.array(row_of_page, mask=~listed)

    def column(name: str, kind: pa.DataType) -> pa.Array:
        if catalogue is None or name not in catalogue.schema.names:
            return pa.nulls(n, kind)
        taken = catalogue.column(name).take(take)
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken

    floor, cap = (_filled(column(f"{name}_rate_per_day", pa.float64()), np.nan) for name in ("min", "max"))
    least, most = limits_per_day
    columns = {
        "importance": pa.array(_filled(column("importance", pa.float64()), np.nan)),
        "floor_per_day": pa.array(np.where(np.isnan(floor), np.fmin(least, cap), floor)),
        "cap_per_day": pa.array(np.where(np.isnan(cap), np.fmax(most, floor), cap)),
    }
    for name in metadata:
        columns[META + name] = column(name, pa.string())
    if group_columns:
        texts = [pc.fill_null(columns.get(META + g, pa.nulls(n, pa.string())), "") for g in group_columns]
        columns["group_hash"] = pa.array(hash_texts(pc.binary_join_element_wise(*texts, "\x1f")))
    else:
        columns["group_hash"] = pa.array(pages.host_hash)
    return columns, duplicates


def _filled(column: pa.Array, value: float) -> FloatArray:
    return pc.fill_null(column, value).to_numpy(zero_copy_only=False)


def named_hosts(limits: pa.Table) -> UIntArray:
    """Hashes of the hosts that rows of `--hosts` name, without those for whole domains."""
    return limits.filter(pc.invert(pc.starts_with(limits.column("host"), ANY))).column("host_hash").to_numpy()


def tightest_limits(
    host_hash: UIntArray, limits: pa.Table | pa.RecordBatch | None, defaults: HostDefaults
) -> tuple[FloatArray, FloatArray]:
    """Most crawls a day, and least seconds between two, of hosts by themselves: (h,) float64 each.

    Parameters
    ----------
    host_hash : (h,) uint64, ascending
    limits : Table or RecordBatch, optional
        Of `schemas.HOSTS` with "host_hash". Where a host is listed twice the tighter limit counts.
    defaults : HostDefaults
        Of hosts that are not listed; no gap is shorter.
    """
    h = len(host_hash)
    max_per_day = np.full(h, np.inf if defaults.max_per_day is None else defaults.max_per_day)
    gap_seconds = np.full(h, defaults.min_gap_seconds)
    if limits is None or not limits.num_rows:
        return max_per_day, gap_seconds
    at = rows_of(host_hash, limits.column("host_hash").to_numpy())
    for name, target, combine in (
        ("max_per_day", max_per_day, np.fmin),
        ("min_gap_seconds", gap_seconds, np.fmax),
    ):
        given = limits.column(name).cast(pa.float64()).fill_null(np.nan).to_numpy()
        use = (at >= 0) & ~np.isnan(given)
        tightest = np.full(h, np.nan)
        combine.at(tightest, at[use], given[use])
        np.copyto(target, tightest, where=~np.isnan(tightest))
    # A file of another's, such as a robots.txt, must not make a crawler less polite than its owner wants.
    return max_per_day, np.maximum(gap_seconds, defaults.min_gap_seconds)


def shared_limits(
    host: pa.Array, host_hash: UIntArray, limits: pa.Table | None, defaults: HostDefaults
) -> tuple[FloatArray, FloatArray, UIntArray | None]:
    """As `tightest_limits`, of hosts in groups those of the group; and its key, (h,) uint64, 0 without one.

    The last is None where no row names a group.

    Raises
    ------
    InputError
        Rows with groups where there are to be none.
    """
    max_per_day, gap_seconds = tightest_limits(host_hash, limits, defaults)
    groups = None if limits is None else groups_of(host, limits)
    if groups is None:
        return max_per_day, gap_seconds, None
    if not defaults.groups:
        raise InputError("--hosts has rows with a group, or for all subdomains; give --host_groups, too")
    mine = groups.unit_hash > 0
    most = np.inf if defaults.max_per_day is None else defaults.max_per_day
    shared = np.where(np.isnan(groups.max_per_day), most, groups.max_per_day)
    max_per_day = np.where(mine, shared, max_per_day)
    shared = np.fmax(groups.gap_seconds, defaults.min_gap_seconds)
    return max_per_day, np.where(mine, shared, gap_seconds), groups.unit_hash


def limits_of_night(
    max_per_day: FloatArray, gap_seconds: FloatArray, horizon_us: int
) -> tuple[FloatArray, IntArray, IntArray]:
    """Limits of hosts as crawls a day, gaps in microseconds, and most crawls of a night: (h,) each.

    A limit below one crawl per horizon becomes one slot with a gap of its interval.
    """
    gap_us = np.rint(np.minimum(gap_seconds * 1e6, _LONGEST_GAP_US)).astype(np.int64)
    with np.errstate(divide="ignore"):
        limit = np.minimum(max_per_day, np.where(gap_us > 0, DAY_US / np.maximum(gap_us, 1), np.inf))
    rare = (limit > 0) & (limit * horizon_us < DAY_US)
    gap_us[rare] = np.ceil(np.minimum(DAY_US / limit[rare], _LONGEST_GAP_US)).astype(np.int64)
    with np.errstate(invalid="ignore"):
        by_count = np.floor(np.minimum(max_per_day * (horizon_us / DAY_US), 2.0**53))
    by_gap = np.where(gap_us > 0, horizon_us // np.maximum(gap_us, 1), UNLIMITED_SLOTS)
    max_slots = np.minimum(
        np.where(np.isfinite(max_per_day), by_count, UNLIMITED_SLOTS).astype(np.int64), by_gap
    )
    max_slots[rare] = 1
    whole = np.isfinite(limit) & ~rare
    limit[whole] = np.minimum(limit[whole], max_slots[whole] * (DAY_US / horizon_us))
    return limit, gap_us, max_slots


def slots_before(last_slot_us: IntArray, gap_us: IntArray, as_of_us: int) -> IntArray:
    """Last slots of hosts that are past: (k,) int64, microseconds.

    Slots of an earlier night from `as_of_us` on are not kept, tonight's take their place: of such a host is
    only known that it had no slot less than a gap before its last one.
    """
    return np.where(last_slot_us > as_of_us, np.minimum(last_slot_us - gap_us, as_of_us), last_slot_us)


def join_hosts(
    pages: ShardPages,
    limits: pa.Table | None,
    slots: pa.Table | None,
    last_attempt_us: IntArray,
    defaults: HostDefaults,
    as_of_us: int,
    no_time: int,
) -> pa.RecordBatch:
    """The shard's `schemas.HOSTS_TABLE`; where hosts are in groups also "unit_hash", the keys of these.

    Where a host is listed twice the tighter limit counts; no gap is shorter than the one of all hosts.
    """
    first = pages.host_start[:-1]
    host_hash = pages.host_hash[first]
    h = len(first)
    host = pages.host.take(pa.array(first))
    max_per_day, gap_seconds, unit_hash = shared_limits(host, host_hash, limits, defaults)
    limit, gap_us, max_slots = limits_of_night(max_per_day, gap_seconds, defaults.horizon_us)
    last_slot = np.maximum.reduceat(last_attempt_us, first) if h else np.zeros(0, np.int64)
    window = np.zeros(h)
    if slots is not None and slots.num_rows:
        at = rows_of(host_hash, slots.column("host_hash").to_numpy())
        given = slots.column("last_slot_at").cast(pa.int64()).to_numpy()
        windows = slots.column("signal_window_crawls").to_numpy()[at >= 0]  # null becomes NaN
        at, given = at[at >= 0], given[at >= 0]
        np.fmax.at(window, at, windows)
        np.maximum.at(last_slot, at, slots_before(given, gap_us[at], as_of_us))
    table = pa.RecordBatch.from_arrays(
        [
            host,
            pa.array(host_hash),
            pa.array(np.diff(pages.host_start).astype(np.int32)),
            pa.array(limit),
            pa.array(max_slots),
            pa.array(gap_us),
            pa.array(last_slot, mask=last_slot == no_time).cast(schemas.TIME),
            pa.array(window),
        ],
        schema=schemas.HOSTS_TABLE,
    )
    return table if unit_hash is None else table.append_column("unit_hash", pa.array(unit_hash))
