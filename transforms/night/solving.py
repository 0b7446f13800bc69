"""The distributed search for the multiplier: rounds over a narrow batch per shard.

A round adds up one exact integer vector per shard, so that neither bundles nor merge order nor the number of
shards can change a bit of the result. Only kilobytes travel between rounds. A worker is given what all others
have said so far and finds from it, as they do, what the next round asks: that is one barrier a round, where
adding up in one place and telling all would be two.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import no_annotations

from policies.numerics.typing_ import FloatArray
from policies.objectives import objectives
from policies.optimum import search
from transforms.batches.coders import ShardTables
from transforms.batches.combining import CombineShards
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


SURVEY_BYTES = 320 << 10
"""Of a shard, with signals."""

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


def _demand(tables: ShardTables, state: search.SearchState, objective: str) -> search.Demand:
    return search.demand(tables_to_block(tables), objectives.get(objective), state)


class Ask(Step):
    """One round of a search: what is asked of all shards, added up by bundle.

    Parameters
    ----------
    ask : callable
        (tables, state) to an answer with an exact `merge`.
    advance : callable
        (state, answer of all) to the next state.
    """

    def __init__(self, ask: Callable[[ShardTables, Any], Any], advance: Callable[[Any, Any], Any]) -> None:
        self._ask, self._advance = ask, advance

    def start_bundle(self) -> None:
        self._state = self._total = None

    @no_annotations
    def process(self, tables: ShardTables, begun: Any, *told: Iterable[Any]) -> None:
        if self._state is None:
            self._state = advanced(begun, *told, advance=self._advance)
        answer = self._ask(tables, self._state)
        self._total = answer if self._total is None else self._total.merge(answer)

    def finish_bundle(self) -> Iterator[Any]:
        if self._total is not None:
            yield GlobalWindows.windowed_value(self._total)


def advanced(begun: Any, *told: Iterable[Any], advance: Callable[[Any, Any], Any]) -> Any:
    """The state of a search after some rounds, each of which has told these answers."""
    return _advanced(advance, begun, *map(tuple, told))


@functools.lru_cache(maxsize=4)  # threads, and steps one after the other, are given the same answers
def _advanced(advance: Callable[[Any, Any], Any], begun: Any, *told: tuple[Any, ...]) -> Any:
    if not told:
        return begun
    answer = functools.reduce(lambda a, b: a.merge(b), told[-1])
    return advance(_advanced(advance, begun, *told[:-1]), answer)


def rounds(blocks: Any, begun: Any, ask: Callable[..., Any], advance: Callable[..., Any]) -> list[Any]:
    """The answers of all rounds of a search: collections of some values each, to be given as `AsList`.

    Rounds are unrolled: Beam has no loops in batch. A round after convergence costs its barrier only.
    """
    told: list[Any] = []
    for i in range(search.ROUNDS):
        one = beam.ParDo(Ask(ask, advance), AsSingleton(begun), *map(AsList, told))
        told.append(blocks | f"Demand[{i}]" >> one.with_output_types(Any))
    return told


def finished(begun: search.SearchState, *told: Iterable[search.Demand]) -> search.SearchResult:
    """What came out of all rounds of a search, see `SolveMultiplier`."""
    return search.finish(advanced(begun, *told, advance=search.advance))


def priced(begun: search.SearchState, *told: list[search.Demand]) -> search.SearchState:
    """The state with the price, from the first rounds of a search, see `SolveMultiplier`."""
    state: search.SearchState = advanced(begun, *told, advance=search.advance)
    return state


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
    once : PCollection of one bytes, optional
        An impulse; one of its own if None.

    Input: the `block_to_tables` of every shard, each with whole hosts. Output: "result", one `SearchResult`,
    and side inputs that stand before: "told" of `finished`, and "priced" of `priced` some rounds earlier.

    Raises
    ------
    policies.numerics.errors.InfeasibleError, policies.numerics.errors.NotConvergedError
        When the job runs.
    """

    def __init__(
        self,
        objective: str,
        budget_per_day: float,
        num_shards: int = 1,
        once: beam.PCollection | None = None,
    ) -> None:
        super().__init__()
        self._objective, self._once = objective, once
        self._budget = budget_per_day
        self._num_shards = num_shards

    def expand(self, blocks: beam.PCollection) -> dict[str, Any]:
        objective, budget = self._objective, self._budget
        begun = (
            blocks
            | "Survey" >> each(_survey, objective, budget).with_output_types(search.Survey)
            | "AddSurveys" >> CombineShards(Merge(), self._num_shards, SURVEY_BYTES)
            | "Begin" >> each(_begin, objective, budget).with_output_types(search.SearchState)
        )
        ask = functools.partial(_demand, objective=objective)
        told = rounds(blocks, begun, ask, search.advance)
        once = self._once or blocks.pipeline | "Once" >> beam.Impulse()
        sides = [AsSingleton(begun), *map(AsList, told)]
        finish = each(lambda _, *sides: finished(*sides), *sides).with_output_types(search.SearchResult)
        result = once | "Finish" >> finish
        return {"result": result, "told": sides, "priced": sides[: search.PRICED_AFTER + 1]}


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
