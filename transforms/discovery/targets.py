"""Targets: each is found once, by who showed it first.

A shard holds the hashes of all of its targets that were ever found, 8 bytes each, sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa

from transforms.batches import schemas
from transforms.batches.coders import ShardTables
from transforms.batches.counters import published
from transforms.batches.shard_tables import SHUFFLED
from transforms.batches.steps import Step
from transforms.batches.tally import Counts
from transforms.discovery import tables
from transforms.discovery.previous import read_references
from transforms.discovery.reading import first_finders
from transforms.shards.sharding import Layout, partition


class FindTargets(Step):
    """(shard, batches of found targets) to new ones.

    Outputs
    -------
    found : (shard of the source's host, RecordBatch)
        `tables.VISITS` with how many new targets each was the first to show, and `tables.NEW_TARGETS`.
    files : ShardTables
        `state/known`.
    counts : dict of str to int
    """

    OUTPUTS: ClassVar = {
        "found": tuple[int, pa.RecordBatch],
        "files": ShardTables,
        "counts": dict[str, int],
    }

    def __init__(self, num_shards: int) -> None:
        self._num_shards = num_shards

    def process(self, element: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[Any]:
        shard, batches = element[0], list(element[1])
        known = read_references(batches)["state/known"].column("target_hash").to_numpy()
        found = tables.gathered((b for b in batches if schemas.kind_of(b) == "found"), tables.FOUND)
        del batches
        target = found.column("host_hash").to_numpy()
        at = np.searchsorted(known, target)
        is_new = known[np.minimum(at, len(known) - 1)] != target if len(known) else np.ones(len(at), np.bool_)
        new = first_finders(found.filter(pa.array(is_new)))
        fresh = new.column("host_hash").to_numpy()
        merged = np.insert(known, np.searchsorted(known, fresh), fresh)
        counts = Counts()
        counts.add("targets_known", len(merged))
        counts.add("targets_new", len(fresh))
        yield beam.pvalue.TaggedOutput("counts", published(counts.totals()))
        columns = {"target_hash": new.column("host_hash"), "host_hash": new.column("source_host_hash")}
        columns |= {name: new.column(name) for name in ("url", "at_s", "source_hash")}
        targets = pa.RecordBatch.from_arrays(
            [columns[n] for n in tables.NEW_TARGETS.names], schema=tables.NEW_TARGETS
        )
        for made in (_visits(new), targets):
            for to, part in partition(made, Layout(self._num_shards, {})):
                yield to, part.replace_schema_metadata({**(part.schema.metadata or {}), **SHUFFLED})
        files = {"state/known": pa.RecordBatch.from_arrays([pa.array(merged)], schema=tables.STATE_KNOWN)}
        yield beam.pvalue.TaggedOutput("files", ShardTables(shard, files))


def _visits(new: pa.RecordBatch) -> pa.RecordBatch:
    """How many new targets each visit has shown; it has its URL from elsewhere."""
    source, at = new.column("source_hash").to_numpy(), new.column("at_s").to_numpy()
    order = np.lexsort((at, source))
    changes = (source[order][1:] != source[order][:-1]) | (at[order][1:] != at[order][:-1])
    first = np.append(0, np.flatnonzero(changes) + 1) if len(order) else np.zeros(0, np.int64)
    number = np.diff(np.append(first, len(order)))
    some = new.take(pa.array(order[first]))
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(len(first), pa.string()),
            some.column("source_hash"),
            some.column("source_host_hash"),
            some.column("at_s"),
            pa.array(np.ones(len(first), np.bool_)),
            pa.array(number.astype(np.int64)),
            pa.array(np.zeros(len(first), np.bool_)),
            pa.ListArray.from_arrays(
                pa.array(np.zeros(len(first) + 1, np.int32)), pa.array(np.zeros(0, np.uint64))
            ),
        ],
        schema=tables.VISITS,
    )
