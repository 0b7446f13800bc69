"""Which pages change far more often than others of their host, see `policies.history.volatile`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from policies.estimation import prior
from policies.history import volatile
from policies.history.evidence import Evidence
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from transforms.batches.coders import ShardTables
from transforms.night.sampling import sampled_evidence, sampled_rates


@dataclass(frozen=True)
class Ordinary:
    """Change rates of pages that are not volatile, see `policies.history.volatile.ordinary`.

    Attributes
    ----------
    mean_per_day : float
        Mean of such pages in the sample.
    giants : dict of int to float, changes per day
        That of split hosts, by the host's hash: a shard has some of their pages only, and who is volatile
        must not depend on which.
    """

    mean_per_day: float
    giants: Mapping[int, float] = field(default_factory=dict)


def learn_ordinary(sample: pa.RecordBatch, giants: pa.RecordBatch, change: prior.Prior) -> Ordinary:
    """From the sampled pages of all hosts and of split ones."""
    rows = volatile.ordinary(sampled_evidence(sample)[0])
    rates = sampled_rates(sample, change)[rows]
    # The prior's own mean runs off where a host has nothing but volatile pages.
    mean = math.fsum(rates) / len(rates) if len(rates) else change.mean_per_day
    host, code = np.unique(giants.column("host_hash").to_numpy(), return_inverse=True)
    rows, rates = volatile.ordinary(sampled_evidence(giants)[0]), sampled_rates(giants, change)
    means = _ordinary_means(rates[rows], code[rows], len(host), change, mean)
    return Ordinary(mean, dict(zip(host.tolist(), means.tolist(), strict=True)))


def _ordinary_means(
    rate: FloatArray, host: IntArray, n_hosts: int, change: prior.Prior, mean_per_day: float
) -> FloatArray:
    """Mean rates of the ordinary pages of hosts, mixed with the mean of all: (n_hosts,), per day."""
    mixed = replace(change, mean_per_day=mean_per_day)
    return prior.mixed_means(rate, host, n_hosts, mixed)


def volatile_pages(
    folded: ShardTables,
    weight: FloatArray,
    evidence: Evidence,
    rate: FloatArray,
    signalled: IntArray,
    change: prior.Prior,
    ordinary: Ordinary | None,
) -> BoolArray:
    """Which pages are volatile, (n,): candidates whose record neither signals nor their host explain."""
    pages, hosts = folded.tables["pages"], folded.tables["hosts"]
    limit = pages.column("volatile_weight").to_numpy()
    found = weight <= limit
    found[signalled] = False
    rows = np.flatnonzero(found)
    if len(rows):
        host = pages.column("host_code").to_numpy().astype(np.int64)
        usual = ordinary or Ordinary(change.mean_per_day)
        some = volatile.ordinary(evidence)
        mean = _ordinary_means(rate[some], host[some], hosts.num_rows, change, usual.mean_per_day)
        if usual.giants:
            for at, name in enumerate(hosts.column("host_hash").to_pylist()):
                mean[at] = usual.giants.get(name, mean[at])
        found[rows] = volatile.surprising(evidence.take(rows), mean[host[rows]])
    return found
