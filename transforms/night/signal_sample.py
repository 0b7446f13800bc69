"""Signals of the pages in the sample from which priors are learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from policies.history.page_state import ranges, starts_of
from policies.numerics.lookup import rows_of
from policies.numerics.typing_ import FloatArray, IntArray
from policies.signals.estimation import Pooled, SignalPrior, default_prior, fit_pooled
from policies.signals.evidence import PageSignals, SignalEvidence
from policies.signals.state import MAX_SOURCES
from transforms.batches.coders import ShardTables
from transforms.kept.signals import signal_evidence_of
from transforms.kept.state import list_column, list_start
from transforms.night.trusting import LearnedTrust, share_of_hosts

COLUMNS = [
    ("signal_exposure_days", pa.float64()),
    ("signal_dated_changes", pa.float64()),
    ("signal_source", pa.list_(pa.string())),
    ("signal_unchanged", pa.list_(pa.float64())),
    ("signal_total", pa.list_(pa.float64())),
    ("signal_watched_days", pa.float64()),
    ("signal_running", pa.list_(pa.float64())),
    ("signal_running_days", pa.float64()),
    ("signal_pair", pa.list_(pa.int64())),
    ("signal_near", pa.list_(pa.float64())),
    ("signal_far", pa.list_(pa.float64())),
    ("signal_row_weight", pa.list_(pa.float64())),
    ("signal_row_days", pa.list_(pa.float64())),
    ("signal_row_days_squared", pa.list_(pa.float64())),
    ("signal_row_count", pa.list_(pa.float64())),
]
"""Of a page: its `SignalEvidence`, counts of a row one after the other, one for each of its sources; signals
of ended intervals and of the running one, and for how long they were listened to; pairs of sources, by their
places in the list as `policies.signals.state` has them by their codes, and pairs of signals. Null and empty
lists for a page of a host without signals."""


def sampled_signals(folded: ShardTables, rows: IntArray) -> dict[str, pa.Array]:
    """The `COLUMNS` of some pages of a shard, (k,) row numbers."""
    k = len(rows)
    found = signal_evidence_of(folded)
    if found is None:
        return {name: pa.array([None] * k if "list" not in str(t) else [[]] * k, t) for name, t in COLUMNS}
    at = rows_of(found.row, rows)
    known = at >= 0
    some = np.flatnonzero(known)
    evidence = found.evidence
    start = starts_of(evidence.row_page, len(found))
    n_sources = len(found.sources)
    size = np.zeros(k, np.int64)
    size[some] = np.diff(start)[at[some]]
    chosen = ranges(start[:-1][at], size)
    row_start = np.concatenate([[0], np.cumsum(size)])
    source_start = np.concatenate([[0], np.cumsum(known * n_sources)])
    heard = found.heard
    pair_start = starts_of(heard.pair_page, len(found))
    pair_size = np.zeros(k, np.int64)
    pair_size[some] = np.diff(pair_start)[at[some]]
    paired = ranges(pair_start[:-1][at], pair_size)
    pairs_start = np.concatenate([[0], np.cumsum(pair_size)])
    sources = pa.array(found.sources, pa.string()).take(pa.array(np.tile(np.arange(n_sources), len(some))))

    def number(values: FloatArray) -> pa.Array:
        return pa.array(values[at], mask=~known)

    return {
        "signal_exposure_days": number(evidence.exposure_days),
        "signal_dated_changes": number(evidence.dated_changes),
        "signal_source": list_column(source_start, sources),
        "signal_unchanged": list_column(source_start, evidence.unchanged_signals[at[some]].ravel()),
        "signal_total": list_column(source_start, heard.ended[at[some]].ravel()),
        "signal_watched_days": number(heard.ended_days),
        "signal_running": list_column(source_start, heard.running[at[some]].ravel()),
        "signal_running_days": number(heard.running_days),
        "signal_pair": list_column(
            pairs_start, heard.pair_first[paired] * MAX_SOURCES + heard.pair_second[paired]
        ),
        "signal_near": list_column(pairs_start, heard.near[paired]),
        "signal_far": list_column(pairs_start, heard.far[paired]),
        "signal_row_weight": list_column(row_start, evidence.row_weight[chosen]),
        "signal_row_days": list_column(row_start, evidence.row_days[chosen]),
        "signal_row_days_squared": list_column(row_start, evidence.row_days_squared[chosen]),
        "signal_row_count": list_column(row_start * n_sources, evidence.row_signals[chosen].ravel()),
    }


def _signals(sample: pa.RecordBatch, sources: list[str]) -> tuple[IntArray, SignalEvidence, PageSignals]:
    """Rows of a sample that have signals, (m,), and what `sampled_signals` was told of them."""
    rows = np.flatnonzero(sample.column("signal_exposure_days").is_valid().to_numpy(zero_copy_only=False))
    sample = sample.take(pa.array(rows))

    def flat(name: str) -> Any:
        return sample.column(f"signal_{name}").flatten().to_numpy()

    def page_of(name: str) -> IntArray:
        return np.repeat(np.arange(len(rows)), np.diff(list_start(sample.column(f"signal_{name}"))))

    code = {name: j for j, name in enumerate(sources)}
    named = sample.column("signal_source").flatten().dictionary_encode()
    source = np.array([code[n] for n in named.dictionary.to_pylist()], np.int64)[named.indices.to_numpy()]
    start = list_start(sample.column("signal_source"))
    per_page, page = np.diff(start), page_of("source")

    def dense(name: str) -> FloatArray:
        full = np.zeros((len(rows), len(sources)))
        full[page, source] = flat(name)
        return full

    row_page, pair_page, pair = page_of("row_weight"), page_of("pair"), flat("pair")
    signals = np.zeros((len(row_page), len(sources)))
    slots = ranges(start[:-1][row_page], per_page[row_page])
    signals[np.repeat(np.arange(len(row_page)), per_page[row_page]), source[slots]] = flat("row_count")
    evidence = SignalEvidence(
        sample.column("signal_exposure_days").to_numpy(),
        sample.column("signal_dated_changes").to_numpy(),
        dense("unchanged"),
        row_page,
        flat("row_weight"),
        flat("row_days"),
        flat("row_days_squared"),
        signals,
    )
    heard = PageSignals(
        dense("total"),
        sample.column("signal_watched_days").to_numpy(),
        dense("running"),
        sample.column("signal_running_days").to_numpy(),
        pair_page,
        source[start[pair_page] + pair // MAX_SOURCES],
        source[start[pair_page] + pair % MAX_SOURCES],
        flat("near"),
        flat("far"),
    )
    return rows, evidence, heard


def prior_of_hosts(hosts: Pooled, unknown: SignalPrior) -> SignalPrior:
    """What a host is taken to be like, from h of them.

    Hosts count by how much is known of them, one at most, not by how much they send: one that floods all
    others with false signals is one host that cannot be trusted.

    Parameters
    ----------
    hosts : Pooled
        Fitted with `unknown` as their prior.
    unknown : SignalPrior
        Counts as one more host.
    """
    variance = np.diagonal(hosts.covariance, axis1=1, axis2=2)
    strength = np.append(unknown.missed_strength, unknown.weight_strength)
    known = np.clip(1.0 - variance * strength, 0.0, 1.0)

    def mean(values: FloatArray, j: int, default: float) -> float:
        return float((default + (known[:, j] * values).sum()) / (1.0 + known[:, j].sum()))

    precision = np.array(
        [
            mean(-np.expm1(-hosts.signal_weight[:, j]), 1 + j, -np.expm1(-default))
            for j, default in enumerate(unknown.signal_weight.tolist())
        ]
    )
    missed = mean(hosts.missed_share, 0, unknown.missed_share)
    return SignalPrior(missed, unknown.missed_strength, -np.log1p(-precision), unknown.weight_strength)


def learn_trust(
    sample: pa.RecordBatch, rate: FloatArray, giants: pa.RecordBatch, giant_rate: FloatArray
) -> LearnedTrust:
    """The prior of hosts, and what the pages of split hosts share.

    Parameters
    ----------
    sample, giants : RecordBatch of `transforms.night.sampling.SAMPLE`
        Pages of all hosts, and those of hosts that are split, by host.
    rate, giant_rate : (n,) float64
        Their change rates per day, from crawls alone.
    """
    names: set[str] = set()
    for rows in (sample, giants):
        names |= set(rows.column("signal_source").flatten().unique().to_pylist())
    if not names:
        return LearnedTrust()
    sources = sorted(names)
    at, evidence, _ = _signals(sample, sources)
    hosts, group = np.unique(sample.column("host_hash").to_numpy()[at], return_inverse=True)
    unknown = default_prior(len(sources))
    prior = prior_of_hosts(
        fit_pooled(evidence, rate[at], group.astype(np.int64), len(hosts), unknown), unknown
    )
    at, evidence, heard = _signals(giants, sources)
    hosts, group = np.unique(giants.column("host_hash").to_numpy()[at], return_inverse=True)
    of_giant = np.maximum(giant_rate[at], 1e-12)
    shared = share_of_hosts(evidence, heard, of_giant, group.astype(np.int64), len(hosts), prior)
    by_host = {int(host): shared.take(slice(i, i + 1)) for i, host in enumerate(hosts.tolist())}
    return LearnedTrust(tuple(sources), prior, by_host)
