"""Limits of giant hosts and of groups of hosts, shared among the shards that hold their pages.

A host at its limit is a budget problem of its own: find the multiplier at which its pages ask for the limit.
It is solved by the rounds of `transforms.night.solving` before the search for all pages, and each shard then
gets as its own limit what its pages have in that solution. In the search for all pages a shard's part of the
host is cut just where the whole host would be, so that nothing there has to know of parts.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton

from policies.numerics.typing_ import BoolArray, IntArray
from policies.objectives import objectives
from policies.optimum import search
from policies.optimum.demand import BUDGET_UNITS
from policies.signalled.block import SignalBlock
from transforms.batches.coders import ShardTables
from transforms.batches.combining import CombineShards
from transforms.batches.steps import Step, each
from transforms.night.solving import SURVEY_BYTES, Merge, advanced, rounds, signals_to_table, table_to_signals

_GROUPS = 16
"""Of hosts that a shard may have pages of, about."""


@dataclass(frozen=True, eq=False)
class ByHost:
    """Values of giant hosts, by their hashes. They merge host by host."""

    values: Mapping[int, Any]

    def merge(self, other: ByHost) -> ByHost:
        """Those of both."""
        merged = dict(self.values)
        for host, value in other.values.items():
            merged[host] = merged[host].merge(value) if host in merged else value
        return ByHost(dict(sorted(merged.items())))


@dataclass(frozen=True)
class Share:
    """How the limit of a host is shared.

    Attributes
    ----------
    limit_per_day : float
    result : SearchResult or None
        The host's own search; None where floors fill the limit.
    floor_units : int
        Sum of all floors, in units of limit * 2^-60.
    pages : int
    """

    limit_per_day: float
    result: search.SearchResult | None
    floor_units: int
    pages: int

    def of_part(self, block: search.PageBlock, objective: objectives.Objective) -> float:
        """Limit, per day, of the part of the host in `block`. Those of all parts add up to the limit."""
        if self.result is None:
            return self.limit_per_day * (
                search.survey(block, objective, self.limit_per_day).floor_units / self.floor_units
            )
        used = search.shard_total_per_day(block, objective, self.result)
        return used + self.result.unspent_per_day * len(block) / self.pages


class Parts:
    """A shard's parts of hosts and groups that have a limit below the budget.

    Attributes
    ----------
    rows : dict of int to (r,) int64
        Rows of the hosts of each, by the hash of the group, else of the host.
    """

    def __init__(
        self, tables: ShardTables, hosts: Collection[int], budget_per_day: float, groups: bool = False
    ) -> None:
        """`hosts` has the hashes of hosts and groups to look at; with `groups` all groups are."""
        self.rows: dict[int, IntArray] = {}
        table, self._pages = tables.tables.get("hosts"), tables.tables["pages"]
        if table is None:
            return
        sizes, self._limit = table.column("n_pages").to_numpy(), table.column("limit_per_day").to_numpy()
        unit, grouped = table.column("host_hash").to_numpy(), np.zeros(len(sizes), np.bool_)
        if "unit_hash" in table.schema.names:
            group = table.column("unit_hash").to_numpy()
            grouped = group > 0
            unit = np.where(grouped, group, unit)
        self._start = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        chosen = np.isin(unit, np.array(sorted(hosts), np.uint64)) | (grouped & groups)
        chosen &= (self._limit > 0) & (self._limit < budget_per_day)
        self._signals = table_to_signals(tables.tables.get("signals"))
        rows: dict[int, list[int]] = {}
        for row in np.flatnonzero(chosen).tolist():
            rows.setdefault(int(unit[row]), []).append(row)
        self.rows = {u: np.array(r, np.int64) for u, r in rows.items()}

    def limit_per_day(self, unit: int) -> float:
        """The limit of a host or group."""
        return float(self._limit[self.rows[unit][0]])

    def of_host(self, row: int) -> search.PageBlock:
        """The pages of the host in this row."""
        first, last = int(self._start[row]), int(self._start[row + 1])
        signals = None if self._signals is None else self._signals.slice(first, last)
        return _block(self._pages.slice(first, last - first), signals)

    def block(self, unit: int) -> search.PageBlock:
        """The pages of all hosts of a group, or of a host."""
        rows = self.rows[unit]
        if len(rows) == 1:
            return self.of_host(int(rows[0]))
        mine = self.mask(rows)
        signals = None if self._signals is None else self._signals.take(mine)
        return _block(self._pages.filter(pa.array(mine)), signals)

    def mask(self, rows: IntArray) -> BoolArray:
        """Which pages are of the hosts in these rows."""
        chosen = np.zeros(len(self._start) - 1, np.bool_)
        chosen[rows] = True
        return np.repeat(chosen, np.diff(self._start))


def _block(pages: pa.RecordBatch, signals: SignalBlock | None) -> search.PageBlock:
    columns = {name: pages.column(name).to_numpy() for name in pages.schema.names}
    return search.PageBlock(**columns, signals=signals if signals else None)


def _only_parts(tables: ShardTables, hosts: Collection[int], budget_per_day: float) -> ShardTables:
    """The tables of nothing but a shard's parts of the `hosts` and groups: what the rounds go over."""
    table, pages = tables.tables.get("hosts"), tables.tables["pages"]
    found = Parts(tables, hosts, budget_per_day, True)
    if table is None or not found.rows:
        return replace(tables, tables={"pages": pages.slice(0, 0)})
    rows = np.sort(np.concatenate(list(found.rows.values())))
    is_mine = found.mask(rows)
    parts = {"pages": pages.filter(pa.array(is_mine)), "hosts": table.take(pa.array(rows))}
    signals = table_to_signals(tables.tables.get("signals"))
    if signals is not None:
        parts["signals"] = signals_to_table(signals.take(is_mine))
    return replace(tables, tables=parts)


def share_limits(tables: ShardTables, shares: ByHost, objective: str, budget_per_day: float) -> ShardTables:
    """A shard's solver tables with the limits of its parts of giant hosts, and of hosts in groups."""
    parts = Parts(tables, shares.values, budget_per_day)
    if not parts.rows:
        return tables
    hosts = tables.tables["hosts"]
    limit = hosts.column("limit_per_day").to_numpy().copy()
    for unit, rows in parts.rows.items():
        for row in rows.tolist():
            limit[row] = shares.values[unit].of_part(parts.of_host(row), objectives.get(objective))
    at = hosts.schema.get_field_index("limit_per_day")
    limited = hosts.set_column(at, hosts.schema.field(at), pa.array(limit))
    return replace(tables, tables=tables.tables | {"hosts": limited})


class _SurveyParts(Step):
    def __init__(self, hosts: Collection[int], objective: str, budget_per_day: float) -> None:
        self._hosts, self._objective, self._budget = hosts, objective, budget_per_day

    def process(self, tables: ShardTables) -> Iterator[ByHost]:
        objective = objectives.get(self._objective)
        parts = Parts(tables, self._hosts, self._budget, True)
        yield ByHost(
            {
                unit: search.survey(parts.block(unit), objective, parts.limit_per_day(unit))
                for unit in parts.rows
            }
        )


def _demand_of_parts(tables: ShardTables, states: ByHost, objective: str, budget_per_day: float) -> ByHost:
    parts = Parts(tables, states.values, budget_per_day)
    chosen = objectives.get(objective)
    return ByHost(
        {unit: search.demand(parts.block(unit), chosen, states.values[unit]) for unit in parts.rows}
    )


def _advance(states: ByHost, demands: ByHost) -> ByHost:
    return ByHost(
        {host: search.advance(state, demands.values[host]) for host, state in states.values.items()}
    )


def _begin(surveys: ByHost, objective: str) -> ByHost:
    return ByHost(
        {
            host: search.begin(found, objectives.get(objective), found.budget_per_day)
            for host, found in surveys.values.items()
            if found.floor_units < BUDGET_UNITS
        }
    )


def limit_parts(
    tables: ShardTables, objective: str, budget_per_day: float, surveys: ByHost, begun: ByHost, *told: Any
) -> ShardTables:
    """`share_limits` from what the rounds of `ShareHostLimits` have told."""
    return share_limits(tables, _finish(surveys, begun, *told), objective, budget_per_day)


def _finish(surveys: ByHost, begun: ByHost, *told: list[ByHost]) -> ByHost:
    states = advanced(begun, *told, advance=_advance)
    return ByHost(
        {
            host: Share(
                found.budget_per_day,
                search.finish(states.values[host]) if host in states.values else None,
                found.floor_units,
                found.pages,
            )
            for host, found in surveys.values.items()
        }
    )


class ShareHostLimits(beam.PTransform):
    """How the limits of giant hosts are shared among shards.

    Parameters
    ----------
    hosts : collection of int
        Hashes of the hosts that are split.
    objective : str
    budget_per_day : float
    num_shards : int
    groups : bool
        Whether there may be groups of hosts.
    once : PCollection of one bytes
        An impulse.

    Input: the solver's tables of all shards. Output: "shares", one `ByHost` of `Share`, and "told", side
    inputs of `limit_parts`, which stand before. As many barriers as the search for all pages has; between
    them travel a few numbers a host and shard, and at last a few pages.
    """

    def __init__(
        self,
        hosts: Collection[int],
        objective: str,
        budget_per_day: float,
        num_shards: int,
        groups: bool,
        once: beam.PCollection,
    ) -> None:
        super().__init__()
        self._once = once
        self._hosts, self._objective, self._budget = hosts, objective, budget_per_day
        self._num_shards = num_shards
        self._most = max(len(hosts), _GROUPS if groups else 1)

    def expand(self, blocks: beam.PCollection) -> dict[str, Any]:
        objective, budget = self._objective, self._budget
        parts = blocks | "OnlyParts" >> each(_only_parts, self._hosts, budget).with_output_types(ShardTables)
        surveys = (
            parts
            | "SurveyParts"
            >> beam.ParDo(_SurveyParts(self._hosts, objective, budget)).with_output_types(ByHost)
            | "AddSurveys" >> CombineShards(Merge(), self._num_shards, SURVEY_BYTES * self._most)
        )
        begun = surveys | "Begin" >> each(_begin, objective).with_output_types(ByHost)
        ask = functools.partial(_demand_of_parts, objective=objective, budget_per_day=budget)
        told = rounds(parts, begun, ask, _advance)
        sides = [AsSingleton(surveys), AsSingleton(begun), *map(AsList, told)]
        finish = each(lambda _, *sides: _finish(*sides), *sides).with_output_types(ByHost)
        return {"shares": self._once | "Finish" >> finish, "told": sides}
