"""What the report of a night shows of its tables, added up file by file: memory is that of one shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.objectives import objectives
from policies.optimum.budget_curve import freshness_at
from policies.optimum.page_block import PageBlock
from transforms.finished.opened import OpenNight

FACTORS: Final = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
"""Budgets of the curve, times the night's."""
MOST_PAGES: Final = 25_000
"""Of a night with more the curve is that of a sample."""
LISTED: Final = 50
_FIXED: Final = ("volatile", "silent")
_HOUR_US: Final = 3_600_000_000
_PAGE_COLUMNS: Final = (
    *("url", "host", "change_rate_per_day", "crawl_rate_per_day", "expected_freshness"),
    *("limit", "weight", "n_intervals", "clock_gain"),
)


@dataclass(frozen=True)
class Figures:
    """Sums and lists of a night's tables.

    Attributes
    ----------
    by_limit : Table
        What bounds pages: limit, pages, crawl_rate_per_day, weight, fresh (weight kept fresh), starved (pages
        that are asked for and get no crawl).
    hosts : Table
        Rows of hosts/, one a host, with weight and fresh; those with most crawls first.
    starved : Table
        Pages that are asked for and get no crawl, the largest weight first: at most `LISTED`.
    slots_by_hour : (hours,) int64
        By hours since the night's instant.
    slots_by_reason : dict of str to int
    budgets_per_day, freshness : (b,) float64
        The curve; empty where the night has no budget or no page with a weight.
    sampled : int
        Pages that the curve is from.
    rejected : Table
        Some rows of rejected/.
    """

    by_limit: pa.Table
    hosts: pa.Table
    starved: pa.Table
    slots_by_hour: IntArray
    slots_by_reason: dict[str, int]
    budgets_per_day: FloatArray
    freshness: FloatArray
    sampled: int
    rejected: pa.Table


def figures(night: OpenNight) -> Figures:
    """Read a night's tables once.

    Raises
    ------
    RecrawlError
        A file that the manifest lists cannot be read.
    """
    pages = int(night.manifest["counters"].get("pages_known", 0))
    step = max(1, -(-pages // MOST_PAGES))
    limits, hosts, starved, sample, offset = [], [], [], [], 0
    for table in night.tables("pages", _PAGE_COLUMNS):
        table = _with_fresh(table)
        limits.append(_sums(table, "limit"))
        hosts.append(_sums(table, "host"))
        starved.append(_most(table.filter(_starved(table))))
        # Every step-th page of all, wherever files begin.
        rows = np.arange(-offset % step, table.num_rows, step)
        sample.append(table.take(pa.array(rows)))
        offset += table.num_rows
    of_hosts = _hosts(night, hosts)
    budgets, fresh, sampled = _curve(night, sample, of_hosts, step)
    by_hour, by_reason = _slots(night)
    return Figures(
        _again(limits, "limit"),
        of_hosts,
        _most(pa.concat_tables(starved)) if starved else pa.table({}),
        by_hour,
        by_reason,
        budgets,
        fresh,
        sampled,
        _first(night.tables("rejected", ("source", "row", "reason", "sample")), LISTED),
    )


def _with_fresh(table: pa.Table) -> pa.Table:
    if "weight" not in table.schema.names:  # of an older night
        table = table.append_column("weight", pa.array(np.ones(table.num_rows)))
    kept = pc.multiply(table.column("weight"), pc.fill_null(table.column("expected_freshness"), 0.0))
    starved = _starved(table).cast(pa.int64())
    return table.append_column("fresh", kept).append_column("starved", starved)


def _starved(table: pa.Table) -> pa.ChunkedArray:
    """Pages that are asked for and get no crawl."""
    idle = pc.less_equal(table.column("crawl_rate_per_day"), 0.0)
    return pc.and_(idle, pc.greater(table.column("weight"), 0.0))


_SUMMED: Final = ("crawl_rate_per_day", "weight", "fresh", "starved")


def _sums(table: pa.Table, key: str) -> pa.Table:
    counted = table.append_column("pages", pa.array(np.ones(table.num_rows, np.int64)))
    return _grouped(counted, key, ("pages", *_SUMMED))


def _grouped(table: pa.Table, key: str, summed: Sequence[str], least: Sequence[str] = ()) -> pa.Table:
    """Sums of columns, and the least values of others, by a column of texts; groups as they first come.

    Arrow's own grouping takes a third of a second to import, and a night writes its page.
    """
    found = table.column(key).combine_chunks().dictionary_encode()
    code, n = found.indices.to_numpy(), len(found.dictionary)
    columns: dict[str, Any] = {key: found.dictionary}
    for name in summed:
        values = table.column(name)
        sums = np.bincount(code, values.to_numpy(), n)
        columns[name] = sums.astype(np.int64) if pa.types.is_integer(values.type) else sums
    for name in least:
        values = pc.fill_null(table.column(name).cast(pa.float64()), np.inf).to_numpy()
        lowest = np.full(n, np.inf)
        np.minimum.at(lowest, code, values)
        columns[name] = pa.array(lowest, mask=np.isinf(lowest))
    return pa.table(columns)


def _again(parts: Sequence[pa.Table], key: str) -> pa.Table:
    if not parts:
        return pa.table({key: pa.array([], pa.string())})
    found = _grouped(pa.concat_tables(parts), key, ("pages", *_SUMMED))
    return found.sort_by([("crawl_rate_per_day", "descending"), (key, "ascending")])


def _most(table: pa.Table) -> pa.Table:
    return table.sort_by([("weight", "descending"), ("url", "ascending")]).slice(0, LISTED)


def _first(tables: Iterator[pa.Table], rows: int) -> pa.Table:
    found: list[pa.Table] = []
    for table in tables:
        found.append(table.slice(0, rows - sum(t.num_rows for t in found)))
    return pa.concat_tables(found, promote_options="default") if found else pa.table({})


def _hosts(night: OpenNight, sums: Sequence[pa.Table]) -> pa.Table:
    """Hosts, most crawls first, with their limits and clocks; slots of split ones added up."""
    mine = _again(sums, "host")
    if not mine.num_rows:
        return mine
    names = ("host", "pages", "slots", "limit_per_day", "peak_hour", "peak_share", "half_age_hours")
    tables = list(night.tables("hosts", names))
    if not tables:  # of an older night
        for name in ("slots", "limit_per_day"):
            mine = mine.append_column(name, pa.nulls(mine.num_rows, pa.float64()))
        return mine
    rows = pa.concat_tables(tables, promote_options="default")
    # A host has a row a source, too, each with all of its part of the host; parts have numbers of their own.
    one = pc.binary_join_element_wise(rows.column("host"), rows.column("pages").cast(pa.string()), " ")
    code = one.combine_chunks().dictionary_encode().indices.to_numpy()
    parts = rows.take(pa.array(np.unique(code, return_index=True)[1]))
    least = [name for name in parts.schema.names if name not in ("host", "pages", "slots")]
    whole = _grouped(parts, "host", ("slots",), least)
    at = pc.index_in(mine.column("host"), value_set=whole.column("host").combine_chunks())
    for name in ("slots", *least):
        mine = mine.append_column(name, whole.column(name).take(at))
    return mine.sort_by([("crawl_rate_per_day", "descending"), ("host", "ascending")])


def _curve(
    night: OpenNight, sample: Sequence[pa.Table], hosts: pa.Table, step: int
) -> tuple[FloatArray, FloatArray, int]:
    """Freshness by budget with the rates, limits of hosts and held pages of the night."""
    nothing = np.empty(0)
    budget = float(night.manifest["budget_per_day"])
    if not sample or budget <= 0.0 or not sum(t.num_rows for t in sample):
        return nothing, nothing, 0
    pages = pa.concat_tables(sample, promote_options="default").sort_by([("host", "ascending")])
    change, weight, rate = (
        pages.column(n).to_numpy() for n in ("change_rate_per_day", "weight", "crawl_rate_per_day")
    )
    if "clock_gain" in pages.schema.names:
        change = change / pc.fill_null(pages.column("clock_gain"), 1.0).to_numpy()
    if not weight.sum() > 0.0:
        return nothing, nothing, 0
    # Rules decide the rates of these, whatever the budget.
    fixed = pc.is_in(pages.column("limit"), pa.array(_FIXED)).to_numpy()
    free = pages.filter(pa.array(~fixed))
    if not weight[~fixed].sum() > 0.0:
        return nothing, nothing, 0
    limit, own = free.column("limit"), rate[~fixed]
    # A page below or above limits of all pages has its own, which tonight's tables do not show.
    options = night.manifest["options"]
    least, most = options.get("page_min_per_day") or 0.0, options.get("page_max_per_day") or np.inf
    block = PageBlock(
        np.array(change[~fixed]),
        np.array(weight[~fixed]),
        np.where(pc.equal(limit, "floor").to_numpy(), own, np.minimum(own, least)),
        np.where(pc.equal(limit, "cap").to_numpy(), own, np.maximum(own, most)),
        *_host_limits(pages, fixed, hosts),
    )
    share = pages.num_rows / int(np.sum(hosts.column("pages").to_numpy()))
    budgets = budget * np.array(FACTORS)
    left = budgets * share - rate[fixed].sum()
    fresh = np.full(budgets.size, np.nan)
    fresh[left >= 0.0] = freshness_at(block, objectives.get(night.objective), left[left >= 0.0].tolist())
    kept = pages.column("fresh").to_numpy()[fixed].sum()
    fresh = (fresh * weight[~fixed].sum() + kept) / weight.sum()
    known = np.isfinite(fresh)
    return budgets[known], fresh[known], pages.num_rows


def _host_limits(pages: pa.Table, fixed: BoolArray, hosts: pa.Table) -> tuple[IntArray, FloatArray]:
    """Of sorted pages that are not fixed: the first row of each host, and what its limit leaves them.

    Of sampled pages it is their part of the limit.
    """
    codes = pages.column("host").combine_chunks().dictionary_encode()
    host = codes.indices.to_numpy()
    at = pc.index_in(codes.dictionary, hosts.column("host").combine_chunks()).to_numpy()
    limit = pc.fill_null(hosts.column("limit_per_day").cast(pa.float64()), np.inf).to_numpy()[at]
    part = np.bincount(host) / hosts.column("pages").to_numpy()[at]
    taken = np.bincount(host, np.where(fixed, pages.column("crawl_rate_per_day").to_numpy(), 0.0))
    left = np.bincount(host[~fixed], minlength=len(codes.dictionary))
    start = np.concatenate(([0], np.cumsum(left))).astype(np.int64)
    return start, np.maximum(limit * part - taken, 0.0)


def _slots(night: OpenNight) -> tuple[IntArray, dict[str, int]]:
    hours = int(np.ceil(float(night.manifest["options"].get("horizon_hours", 24.0))))
    counts, reasons = np.zeros(max(hours, 1), np.int64), dict[str, int]()
    as_of_us = int(night.manifest["options"]["as_of_us"])
    for table in night.tables("schedule", ("due_at", "reason")):
        due = table.column("due_at").cast(pa.int64()).to_numpy()
        at = np.clip((due - as_of_us) // _HOUR_US, 0, counts.size - 1)
        counts += np.bincount(at, minlength=counts.size)
        for row in pc.value_counts(table.column("reason")).to_pylist():
            reasons[row["values"]] = reasons.get(row["values"], 0) + row["counts"]
    return counts, dict(sorted(reasons.items(), key=lambda r: (-r[1], r[0])))
