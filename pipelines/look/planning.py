"""`recrawl.plan`: the optimum of a table in memory, for a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.numerics.typing_ import FloatArray
from policies.objectives import objectives
from policies.optimum import search
from transforms.batches.urls import locate

_LARGEST = 1e15
_MADE = ("crawl_rate_per_day", "expected_freshness", "limit")


@dataclass(frozen=True)
class Plan:
    """Crawl rates of pages, and what they are worth together.

    Attributes
    ----------
    pages : pyarrow.Table
        The table that was given, and crawl_rate_per_day, expected_freshness (0 to 1) and limit: none, floor,
        cap, host or starved.
    multiplier : float
        Requests a day that one more crawl a day would keep fresh.
    expected_freshness : float or None
        Share of all requests that find a fresh copy; None where there are none.
    allocated_per_day, unspent_per_day : float
        Of the budget, in crawls a day.
    unspent_reason : str
        Empty where all is spent.
    """

    pages: pa.Table
    multiplier: float
    expected_freshness: float | None
    allocated_per_day: float
    unspent_per_day: float
    unspent_reason: str


def plan(
    table: Any,
    budget_per_day: float,
    *,
    objective: str = "periodic",
    weight: str = "requests_per_day",
    host_max_per_day: float | None = None,
) -> Plan:
    """Solve for the crawl rates that keep most requests fresh within a budget.

    Parameters
    ----------
    table : pyarrow.Table, or what `pyarrow.table` takes
        A data frame or a dictionary of columns. Columns: change_rate_per_day, `weight`, and any of
        min_rate_per_day, max_rate_per_day; clock_gain, as pages/ of a night has it; url where hosts have a
        limit. Others are handed on.
    budget_per_day : float
        Crawls a day over all pages.
    objective : str
        periodic, memoryless, discrete or harmonic.
    weight : str
        The column of what a page weighs.
    host_max_per_day : float, optional
        Most crawls a day of each host.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        A column is missing, or a value is null, negative or not finite.
    policies.numerics.errors.InfeasibleError
        Floors above the budget.
    """
    given = table if isinstance(table, pa.Table) else pa.table(table)
    if objective not in objectives.NAMES or objectives.get(objective).uses_signals:
        names = ", ".join(n for n in objectives.NAMES if not objectives.get(n).uses_signals)
        raise ValueError(f"objective={objective!r}: expected one of {names}")
    if not 0.0 <= budget_per_day <= _LARGEST:
        raise ValueError(f"budget_per_day={budget_per_day!r}: expected 0 to {_LARGEST:g} crawls a day")
    change, request = (_column(given, name) for name in ("change_rate_per_day", weight))
    floor, cap = _limit(given, "min_rate_per_day", 0.0), _limit(given, "max_rate_per_day", np.inf)
    gain = _limit(given, "clock_gain", 1.0)
    planned = change if gain is None else change / np.maximum(gain, 1.0)
    order, start, limits = np.arange(len(change)), None, None
    if host_max_per_day is not None:
        order, start = _by_host(given)
        limits = np.full(len(start) - 1, host_max_per_day)
    kind = objectives.get(objective)
    block = search.PageBlock(
        planned[order],
        request[order],
        None if floor is None else floor[order],
        None if cap is None else cap[order],
        start,
        limits,
    )
    result, (found,) = search.solve(block, kind, budget_per_day)
    rate, limit = np.empty(len(order)), np.empty(len(order), np.int32)
    rate[order], limit[order] = found.crawl_rate_per_day, found.limit
    fresh = kind.freshness(rate, change)
    made = (pa.array(rate), pa.array(fresh), pa.array(search.LIMIT_NAMES).take(pa.array(limit)))
    pages = given.drop_columns([name for name in _MADE if name in given.column_names])
    for name, column in zip(_MADE, made, strict=True):
        pages = pages.append_column(name, column)
    total = float(request.sum())
    return Plan(
        pages,
        result.multiplier,
        float(request @ fresh) / total if total > 0.0 else None,
        result.allocated_per_day,
        result.unspent_per_day,
        result.unspent_reason,
    )


def _column(table: pa.Table, name: str) -> FloatArray:
    if name not in table.column_names:
        raise ValueError(
            f"the table has no column {name}; it has {', '.join(table.column_names) or 'none'}. Rename one, "
            "or name what pages weigh by weight="
        )
    values = _numbers(table, name)
    _check(name, values, np.isnan(values) | (values < 0.0) | (values > _LARGEST))
    return values


def _limit(table: pa.Table, name: str, nothing: float) -> FloatArray | None:
    """A limit of each page; None where no page has one."""
    if name not in table.column_names:
        return None
    values = _numbers(table, name)
    values = np.where(np.isnan(values), nothing, values)
    _check(name, values, (values < 0.0) | ((values > _LARGEST) & (values < np.inf)))
    return values if (values != nothing).any() else None


def _numbers(table: pa.Table, name: str) -> FloatArray:
    """A column as numbers, NaN for null: (n,) float64."""
    try:
        return pc.fill_null(table.column(name).cast(pa.float64()), np.nan).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name}: expected numbers: {error}") from None


def _check(name: str, values: FloatArray, bad: np.ndarray) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(
            f"{name} of row {row} is {values[row]:g}: expected 0 to {_LARGEST:g}. Fill or drop such rows "
            f"({int(bad.sum()):,} of {len(values):,})"
        )


def _by_host(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Rows in order of hosts, and where each host begins and the last ends."""
    if "url" not in table.column_names:
        raise ValueError("host_max_per_day needs a column url")
    found = locate(table.column("url").combine_chunks().cast(pa.string()))
    if found.reason.any():
        row = int(np.flatnonzero(found.reason)[0])
        raise ValueError(
            f"url of row {row} is {table.column('url')[row].as_py()!r}: not an http or https URL"
        )
    order = np.argsort(found.host_hash, kind="stable")
    host = found.host_hash[order]
    first = np.flatnonzero(np.diff(host, prepend=host[:1] + np.uint64(1))) if len(host) else np.zeros(0, int)
    return order, np.append(first, len(host)).astype(np.int64)
