"""One value of the night from values of shards."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from transforms.batches.steps import Step, each

MAX_BYTES = 320 << 20
"""What one worker is given at once, and Flink makes one record of."""

LARGEST_BYTES = 5 << 20
"""The largest value of a shard: a sample of pages."""


class Combine(beam.PTransform):
    """Combine all elements into one; without elements there is none.

    As Beam's `CombineGlobally`, in three steps in place of seven. What a bundle has is combined before it
    travels.

    Parameters
    ----------
    combine : CombineFn
        From values to a value of the same kind, in any order.
    """

    def __init__(self, combine: beam.CombineFn) -> None:
        super().__init__()
        self._combine = combine

    def expand(self, values: beam.PCollection) -> beam.PCollection:
        hints = self._combine.get_type_hints()
        made = (hints.simple_output_type("Combine") if hints.output_types else None) or values.element_type
        return (
            values
            | "OfBundle" >> beam.ParDo(_OfBundle(self._combine)).with_output_types(tuple[int, Any])
            | "Gather" >> beam.GroupByKey()
            | "Merge" >> each(_merge, self._combine).with_output_types(made or Any)
        )


class CombineShards(beam.PTransform):
    """As `Combine`, of elements of which each shard gives one.

    Where all have more than `MAX_BYTES` some are combined first, and then some of these, so that no worker
    is given more at once. Each time takes one more barrier. Beam's own `with_fanout` would do, but its
    in-process runner cannot run it in this job.

    Parameters
    ----------
    combine : CombineFn
    num_shards : int
    element_bytes : int
        What a shard gives, at most.
    """

    def __init__(self, combine: beam.CombineFn, num_shards: int, element_bytes: int = LARGEST_BYTES) -> None:
        super().__init__()
        self._combine, self._num_shards = combine, num_shards
        self._most = max(MAX_BYTES // element_bytes, 1)

    def expand(self, values: beam.PCollection) -> beam.PCollection:
        made, parts, step = values.element_type or Any, self._num_shards, 0
        while parts > self._most:
            # Half of what a worker may be given: keys are drawn, and some get more than others.
            parts, step = -(-parts // max(self._most // 2, 2)), step + 1
            values = (
                values
                | f"Spread[{step}]" >> each(_spread, self._combine, parts).with_output_types(tuple[int, Any])
                | f"GatherSome[{step}]" >> beam.GroupByKey()
                | f"Some[{step}]" >> each(_merge, self._combine).with_output_types(made)
            )
        return values | "All" >> Combine(self._combine)


class _OfBundle(Step):
    """One accumulator of all elements of a bundle."""

    def __init__(self, combine: beam.CombineFn) -> None:
        self._combine = combine

    def start_bundle(self) -> None:
        self._some, self._total = False, self._combine.create_accumulator()

    def process(self, element: Any) -> None:
        self._some, self._total = True, self._combine.add_input(self._total, element)

    def finish_bundle(self) -> Iterator[Any]:
        if self._some:
            yield GlobalWindows.windowed_value((0, self._total))


def _spread(value: Any, combine: beam.CombineFn, keys: int) -> tuple[int, Any]:
    key = zlib.crc32(pickle.dumps(value)) % keys
    return key, combine.add_input(combine.create_accumulator(), value)


def _merge(group: tuple[int, Iterable[Any]], combine: beam.CombineFn) -> Any:
    return combine.extract_output(combine.merge_accumulators(group[1]))
