"""Which pages are crawled by their signals: those for which that pays although a night comes once a day."""

from __future__ import annotations

import pyarrow as pa

from policies.numerics.typing_ import BoolArray
from policies.optimum import search, signalled_delay
from policies.optimum.page_block import PageBlock
from transforms.batches.coders import ShardTables
from transforms.night.solving import priced, tables_to_block

Priced = search.SearchState | search.SearchResult


def follow_useful(
    tables: ShardTables, horizon_days: float, begun: search.SearchState, *told: list[search.Demand]
) -> ShardTables:
    """A shard, as the solver takes it, with only those rows of "signals" that should move their pages.

    The others are crawled evenly.

    Parameters
    ----------
    tables : ShardTables
    horizon_days : float
        Of a schedule: signals wait half of it, on average.
    begun, told
        "priced" of a `SolveMultiplier` that does not look at signals: its price is that of a crawl.
    """
    if "signals" not in tables.tables:
        return tables
    return only_signals(tables, useful_signals(tables_to_block(tables), priced(begun, *told), horizon_days))


def useful_signals(block: PageBlock, without: Priced, horizon_days: float) -> BoolArray:
    """Which rows of the block's signals those are, (k,)."""
    return signalled_delay.followed(block, without.price, 0.5 * horizon_days)


def only_signals(tables: ShardTables, useful: BoolArray) -> ShardTables:
    """A shard, as the solver takes it or as it was estimated, with some rows of "signals"."""
    if "signals" not in tables.tables:
        return tables
    signals = tables.tables["signals"].filter(pa.array(useful))
    return ShardTables(tables.shard, {**tables.tables, "signals": signals})
