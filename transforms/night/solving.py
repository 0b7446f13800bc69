"""The distributed search for the multiplier: rounds over a narrow batch per shard.

A round adds up one exact integer vector per shard, so that neither bundles nor merge order nor the number of
shards can change a bit of the result. Only kilobytes travel between rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from policies.numerics.typing_ import FloatArray
from policies.objectives import objectives
from policies.optimum import search
from transforms.batches.coders import ShardTables
from transforms.batches.combining import Combine, CombineShards
from transforms.batches.steps import Step, each


def block_to_tables(
    shard: int, block: search.PageBlock, more_of_hosts: Mapping[str, pa.Array] | None = None
) -> ShardTables:
    """A solver's block as tables; what limits nothing is left out, as are signals if there are none."""
    columns: dict[str, Any] = {
        "change_rate_per_day": pa.array(block.change_rate_per_day),
        "request_rate_per_day": pa.array(block.request_rate_per_day),
    }
    if block.floor_per_day is not None:
        columns["floor_per_day"] = pa.array(block.floor_per_day)
    if block.cap_per_day is not None:
        columns["cap_per_day"] = pa.array(block.cap_per_day)
    tables = {"pages": pa.RecordBatch.from_pydict(columns)}
    if block.host_start is not None and block.host_limit_per_day is not None:
        tables["hosts"] = pa.RecordBatch.from_pydict(
            {
                "n_pages": pa.array(np.diff(block.host_start)),
                "limit_per_day": pa.array(block.host_limit_per_day),
                **(more_of_hosts or {}),
            }
        )
    if block.signals is not None:
        tables["signals"] = signals_to_table(block.signals)
    return ShardTables(shard, tables)


_SIGNALS = ("row", "unsignalled_rate_per_day", "signal_rate_per_day", "signal_weight")


def signals_to_table(signals: search.SignalBlock) -> pa.RecordBatch:
    """One row a page with signals; "row" is the page's row among the solver's pages."""
    return pa.RecordBatch.from_pydict({name: pa.array(getattr(signals, name)) for name in _SIGNALS})


def table_to_signals(table: pa.RecordBatch | None) -> search.SignalBlock | None:
    """The inverse of `signals_to_table`; None for no table."""
    if table is None:
        return None
    return search.SignalBlock(*(table.column(name).to_numpy() for name in _SIGNALS))


def tables_to_block(tables: ShardTables) -> search.PageBlock:
    """The inverse of `block_to_tables`."""
    pages = tables.tables["pages"]
    columns = {name: pages.column(name).to_numpy() for name in pages.schema.names}
    hosts = tables.tables.get("hosts")
    if hosts is not None:
        columns["host_start"] = np.concatenate([[0], np.cumsum(hosts.column("n_pages").to_numpy())])
        columns["host_limit_per_day"] = hosts.column("limit_per_day").to_numpy()
    return search.PageBlock(**columns, signals=table_to_signals(tables.tables.get("signals")))


class Merge(beam.CombineFn):
    """Adds up values that have an exact, order-free `merge`."""

    def create_accumulator(self) -> None:
        return None

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return element if accumulator is None else accumulator.merge(element)

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        total = None
        for accumulator in accumulators:
            if accumulator is not None:
                total = accumulator if total is None else total.merge(accumulator)
        return total

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator


def _survey(tables: ShardTables, objective: str, budget: float) -> search.Survey:
    return search.survey(tables_to_block(tables), objectives.get(objective), budget)


def _begin(survey: search.Survey, objective: str, budget: float) -> search.SearchState:
    return search.begin(survey, objectives.get(objective), budget)


def _advance(demand: search.Demand, state: search.SearchState) -> search.SearchState:
    return search.advance(state, demand)


class _Demand(Step):
    def __init__(self, objective: str) -> None:
        self._objective = objective

    def process(self, tables: ShardTables, state: search.SearchState) -> Iterator[search.Demand]:
        yield search.demand(tables_to_block(tables), objectives.get(self._objective), state)


@beam.typehints.with_input_types(ShardTables)
class SolveMultiplier(beam.PTransform):
    """Find the multiplier at which all pages together ask for the budget.

    Parameters
    ----------
    objective : str
        A name of `policies.objectives.objectives`.
    budget_per_day : float
    num_shards : int
        How many elements the input has, about.

    Input: the `block_to_tables` of every shard, each with whole hosts. Output: "result", one `SearchResult`,
    and "priced", one `SearchState` with its price, some rounds earlier.
    Rounds are unrolled: Beam has no loops in batch. A round after convergence costs its barrier only.

    Raises
    ------
    policies.numerics.errors.InfeasibleError, policies.numerics.errors.NotConvergedError
        When the job runs.
    """

    def __init__(self, objective: str, budget_per_day: float, num_shards: int = 1) -> None:
        super().__init__()
        self._objective = objective
        self._budget = budget_per_day
        self._num_shards = num_shards

    def expand(self, blocks: beam.PCollection) -> dict[str, beam.PCollection]:
        objective, budget = self._objective, self._budget
        state = (
            blocks
            | "Survey" >> each(_survey, objective, budget).with_output_types(search.Survey)
            | "AddSurveys" >> CombineShards(Merge(), self._num_shards)
            | "Begin" >> each(_begin, objective, budget).with_output_types(search.SearchState)
        )
        states = [state]
        for i in range(search.ROUNDS):
            demand = (
                blocks
                | f"Demand[{i}]"
                >> beam.ParDo(_Demand(objective), AsSingleton(state)).with_output_types(search.Demand)
                | f"AddDemands[{i}]" >> Combine(Merge())
            )
            state = demand | f"Advance[{i}]" >> each(_advance, AsSingleton(state)).with_output_types(
                search.SearchState
            )
            states.append(state)
        result = state | "Finish" >> each(search.finish).with_output_types(search.SearchResult)
        return {"result": result, "priced": states[search.PRICED_AFTER]}


def freshness_without(block: search.PageBlock, without: search.SearchResult) -> FloatArray:
    """Expected freshness of all pages, (n,), if nobody looked at signals."""
    plain, objective = replace(block, signals=None), objectives.get(without.objective)
    rate = search.allocate(plain, objective, without).crawl_rate_per_day
    return objective.freshness(rate, plain.change_rate_per_day)


def one_rate(block: search.PageBlock, result: search.SearchResult) -> FloatArray:
    """Crawl rates (n,) per day if all pages had one, but for those that their hosts' limits hold below it."""
    rate = np.full(len(block.change_rate_per_day), result.allocated_per_day / max(result.pages, 1))
    if block.host_start is not None and block.host_limit_per_day is not None:
        size = np.diff(block.host_start)
        rate = np.minimum(rate, np.repeat(block.host_limit_per_day / np.maximum(size, 1), size))
    return rate
