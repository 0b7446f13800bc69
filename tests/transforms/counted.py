"""Beam's own counters, which not every runner has."""

from apache_beam.metrics.metric import MetricResults, MetricsFilter

from transforms.batches.counters import NAMESPACE


def committed(metrics: MetricResults) -> dict[str, int]:
    """Those of a finished pipeline (`result.metrics()`), by name."""
    found = metrics.query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    return {c.key.metric.name: c.result for c in sorted(found, key=lambda c: c.key.metric.name)}
