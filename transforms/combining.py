"""One value of the night from one value of every shard."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import apache_beam as beam

# The largest such value, a sample of pages, has 2 MB: 64 of them fit a worker, and a record of Flink.
MAX_PARTS = 64


class CombineShards(beam.PTransform):
    """Combine all elements into one, of which each shard gives one; without elements there is none.

    Above `MAX_PARTS` shards some are combined first, so that no worker is given all at once. That takes one
    more barrier. Beam's own `with_fanout` would do, but its in-process runner cannot run it in this job.

    Parameters
    ----------
    combine : CombineFn
        From values to a value of the same kind, in any order.
    num_shards : int
    """

    def __init__(self, combine: beam.CombineFn, num_shards: int) -> None:
        super().__init__()
        self._combine, self._num_shards = combine, num_shards

    def expand(self, values: beam.PCollection) -> beam.PCollection:
        whole = beam.CombineGlobally(self._combine).without_defaults()
        if self._num_shards <= MAX_PARTS:
            return values | "All" >> whole
        keys = -(-2 * self._num_shards // MAX_PARTS)
        some = (
            values
            | "Spread" >> beam.Map(_keyed, keys).with_output_types(tuple[int, Any])
            | "Some" >> beam.CombinePerKey(self._combine)
            | "Drop" >> beam.Values()
        )
        return some | "All" >> whole


def _keyed(value: Any, keys: int) -> tuple[int, Any]:
    return zlib.crc32(pickle.dumps(value)) % keys, value
