"""Counts of pieces of work, added up over all of them.

Beam's committed counters do not exist on every runner, and attempted ones count retries twice. So what the
manifest reports travels as data: one small dict per bundle of work, added up. The same numbers also go to
Beam's counters, for whoever watches a runner.
"""

from __future__ import annotations

from collections.abc import Iterable

import apache_beam as beam
from apache_beam.metrics import Metrics

NAMESPACE = "recrawl"


def published(counts: dict[str, int]) -> dict[str, int]:
    """The same counts; adds them to Beam's counters."""
    for name, n in counts.items():
        Metrics.counter(NAMESPACE, name).inc(n)
    return counts


def added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """The sums of counts by their names."""
    total: dict[str, int] = {}
    for some in counts:
        for name, n in some.items():
            total[name] = total.get(name, 0) + n
    return total


class AddCounts(beam.CombineFn):
    """Adds up dicts of counts."""

    def create_accumulator(self) -> dict[str, int]:
        return {}

    def add_input(self, accumulator: dict[str, int], element: dict[str, int]) -> dict[str, int]:
        return added([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[dict[str, int]]) -> dict[str, int]:
        return added(accumulators)

    def extract_output(self, accumulator: dict[str, int]) -> dict[str, int]:
        return dict(sorted(accumulator.items()))
