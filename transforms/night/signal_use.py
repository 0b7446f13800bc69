"""Which pages are crawled by their signals: those for which that pays although a night comes once a day."""

from __future__ import annotations

import pyarrow as pa

from policies.optimum import search, signalled_delay
from policies.optimum.page_block import PageBlock
from transforms.batches.coders import ShardTables
from transforms.night.solving import tables_to_block


def follow_useful(
    tables: ShardTables, without: search.SearchResult, horizon_days: float, block: PageBlock | None = None
) -> ShardTables:
    """A shard with only those rows of "signals" that should move their pages; the others are crawled evenly.

    Parameters
    ----------
    tables : ShardTables
        As the solver takes it, or, with `block`, any that has the same rows of "signals".
    without : SearchResult
        Of a search that does not look at signals: its multiplier prices a crawl.
    horizon_days : float
        Of a schedule: signals wait half of it, on average.
    block : PageBlock, optional
    """
    signals = tables.tables.get("signals")
    if signals is None:
        return tables
    block = block or tables_to_block(tables)
    useful = signalled_delay.followed(block, without.multiplier, 0.5 * horizon_days)
    return ShardTables(tables.shard, {**tables.tables, "signals": signals.filter(pa.array(useful))})
