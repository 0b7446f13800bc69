"""Counts that are part of the result.

Beam's committed counters do not exist on every runner, and attempted ones count retries twice. So what the
manifest reports travels as data: one small dict per bundle of work, added up. The same numbers also go to
Beam's counters, for whoever watches a runner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricResults, MetricsFilter

from policies.numerics.typing_ import IntArray

NAMESPACE = "recrawl"


def counted(n: float, what: str) -> str:
    """`1 page`, `2 pages`: a whole number and what it counts."""
    return f"{n:,.0f} {what}{'' if n == 1 else 's'}"


class Counts:
    """Named counts of one piece of work."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, name: str, n: int) -> None:
        """Add to a count; a count of zero is listed, too."""
        self._counts[name] = self._counts.get(name, 0) + n

    def add_each(self, prefix: str, names: Sequence[str], places: IntArray) -> None:
        """Add to the count of each name how often its place in `names` occurs."""
        for name, n in zip(names, np.bincount(places, minlength=len(names)).tolist(), strict=True):
            self.add(prefix + name, n)

    def publish(self) -> dict[str, int]:
        """The counts so far; also adds them to Beam's counters."""
        for name, n in self._counts.items():
            Metrics.counter(NAMESPACE, name).inc(n)
        return dict(self._counts)


class AddCounts(beam.CombineFn):
    """Adds up dicts of counts."""

    def create_accumulator(self) -> dict[str, int]:
        return {}

    def add_input(self, accumulator: dict[str, int], element: dict[str, int]) -> dict[str, int]:
        return self.merge_accumulators([accumulator, element])

    def merge_accumulators(self, accumulators: Iterable[dict[str, int]]) -> dict[str, int]:
        total: dict[str, int] = {}
        for accumulator in accumulators:
            for name, n in accumulator.items():
                total[name] = total.get(name, 0) + n
        return total

    def extract_output(self, accumulator: dict[str, int]) -> dict[str, int]:
        return dict(sorted(accumulator.items()))


def committed(metrics: MetricResults) -> dict[str, int]:
    """Beam's counters of a finished pipeline (`result.metrics()`), by name."""
    found = metrics.query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    return {c.key.metric.name: c.result for c in sorted(found, key=lambda c: c.key.metric.name)}
