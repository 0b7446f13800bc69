"""The job's counters: one namespace, names of the form `what/which`."""

from functools import cache

from apache_beam.metrics import Metrics
from apache_beam.metrics.metric import MetricResults, MetricsFilter
from apache_beam.metrics.metricbase import Counter

NAMESPACE = "recrawl"


@cache
def _counter(name: str) -> Counter:
    return Metrics.counter(NAMESPACE, name)


def count(name: str, n: int = 1) -> None:
    """Add `n` to a counter; adding 0 makes it appear."""
    _counter(name).inc(int(n))


def committed(metrics: MetricResults) -> dict[str, int]:
    """All counters of a finished pipeline (`result.metrics()`), by name."""
    found = metrics.query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    return {c.key.metric.name: c.result for c in sorted(found, key=lambda c: c.key.metric.name)}
