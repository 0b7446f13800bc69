"""How far to trust the sources of signals of every host, and what that makes of the pages' parameters.

A shard has whole hosts, so what the pages of a host share is learned there. The prior of hosts comes from the
sample that all priors come from, and so does what is known of hosts that are split over shards: it must not
depend on how they are split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.columns import take
from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray, UIntArray
from policies.signals.bundles import Bundles, choose_bundles, told
from policies.signals.estimation import (
    PageFit,
    Pooled,
    SignalPrior,
    default_prior,
    fit_pages,
    fit_pooled,
)
from policies.signals.evidence import PageSignals, SignalEvidence
from policies.signals.host_signals import (
    HostRates,
    credible_signals,
    expected_rates,
    hold_to_changes,
    host_rates,
    page_rates,
)
from policies.signals.pairs import told_together
from policies.signals.trust import merge_sources, summarise
from transforms.batches.coders import ShardTables
from transforms.kept.signal_forecasts import forecasts_batch
from transforms.kept.signals import ShardSignals, signal_evidence_of

SILENT_AFTER_SIGNALS = 12.0
SILENT_AFTER_DAYS = 5.0
"""A source of which a host should have sent so many signals since its last one, so long ago, sends none any
more. Sites rest for a long weekend, and signals come in bursts."""

LEAST_RECALL = 0.005
"""Pages whose signals tell of fewer changes, with none pending, are scheduled as if they had no signals."""

SIGNALS_TABLE = pa.schema(
    [
        ("row", pa.int64()),
        ("unsignalled_rate_per_day", pa.float64()),
        ("signal_rate_per_day", pa.float64()),
        ("signal_weight", pa.float64()),
        ("clock_of_signals", pa.float64()),
        ("signals_since_crawl", pa.int64()),
        ("last_signal_us", pa.int64()),
    ],
    metadata={"recrawl": "signals_table"},
)
"""Pages of a shard whose signals count: several sources as one, see `policies.signals.trust.merge_sources`.
`clock_of_signals` is the weight of all signals since the last observation."""

TRUST_TABLE = pa.schema(
    [
        ("host_code", pa.int32()),
        ("source", pa.string()),
        ("pages", pa.int64()),
        ("signals", pa.float64()),
        ("signals_since_crawl", pa.int64()),
        ("signal_rate_per_day", pa.float64()),
        ("signal_precision", pa.float64()),
        ("signal_precision_stderr", pa.float64()),
        ("signal_recall", pa.float64()),
        ("signal_recall_stderr", pa.float64()),
        ("last_signal_us", pa.int64()),
        ("silent", pa.bool_()),
    ],
    metadata={"recrawl": "trust_table"},
)
"""One row per (host, source) that ever signalled there."""


class Shared(NamedTuple):
    """What the pages of each of some hosts share: what signals tell, how many come, which tell the same."""

    pooled: Pooled
    rates: HostRates
    bundles: Bundles

    def take(self, rows: slice) -> Shared:
        """Some of the hosts."""
        return Shared(*(take(part, rows) for part in self))


@dataclass(frozen=True)
class LearnedTrust:
    """What the sample says of signals, broadcast to every shard.

    Attributes
    ----------
    sources : tuple of str, sorted
    prior : SignalPrior
        For these sources.
    giants : dict of int to Shared
        What the pages of hosts that are split share, one host each with these sources, by the host's hash.
    """

    sources: tuple[str, ...] = ()
    prior: SignalPrior = field(default_factory=lambda: default_prior(0))
    giants: Mapping[int, Shared] = field(default_factory=dict)

    def prior_of(self, sources: Sequence[str]) -> SignalPrior:
        """The prior for a shard's sources."""
        unknown = default_prior(len(sources))
        weight, strength = unknown.signal_weight.copy(), unknown.weight_strength.copy()
        for j, name in enumerate(sources):
            if name in self.sources:
                at = self.sources.index(name)
                weight[j], strength[j] = self.prior.signal_weight[at], self.prior.weight_strength[at]
        return SignalPrior(self.prior.missed_share, self.prior.missed_strength, weight, strength)

    def giant(self, host_hash: int, sources: Sequence[str]) -> Shared:
        """What the pages of a split host share, one of `giants`, for a shard's sources."""
        found, prior = self.giants[host_hash], self.prior_of(sources)
        mine = [j for j, name in enumerate(sources) if name in self.sources]
        theirs = [self.sources.index(sources[j]) for j in mine]

        def column(values: FloatArray, unknown: FloatArray | float) -> FloatArray:
            out = np.full((1, len(sources)), unknown)
            out[0, mine] = values[0, theirs]
            return out

        covariance = np.diag(np.append(0.0, 1.0 / prior.weight_strength))[None]
        to, of = np.array([0, *(1 + j for j in mine)]), np.array([0, *(1 + j for j in theirs)])
        covariance[0][np.ix_(to, to)] = found.pooled.covariance[0][np.ix_(of, of)]
        weight = column(found.pooled.signal_weight, prior.signal_weight)
        of_host = found.rates
        rates = HostRates(
            column(of_host.calm, 0.0),
            column(of_host.kept, 1.0),
            column(of_host.usual, 0.0),
            column(of_host.signals, 0.0),
        )
        bundles, place = Bundles.none(1, len(sources)), dict(zip(theirs, mine, strict=True))
        for i, j in place.items():
            parent = place.get(int(found.bundles.parent[0, i]))
            if parent is not None:
                bundles.parent[0, j], bundles.share[0, j] = parent, found.bundles.share[0, i]
        return Shared(Pooled(found.pooled.missed_share, weight, covariance), rates, bundles)


def share_of_hosts(
    evidence: SignalEvidence,
    heard: PageSignals,
    rate: FloatArray,
    group: IntArray,
    n_hosts: int,
    prior: SignalPrior,
) -> Shared:
    """What the pages of hosts share, n pages of which are given.

    Parameters
    ----------
    evidence : SignalEvidence
    heard : PageSignals
    rate : (n,) float64, per day
        Change rates from crawls alone.
    group : (n,) int64
        Host of each page, 0..n_hosts-1.
    n_hosts : int
    prior : SignalPrior
    """
    pooled = fit_pooled(evidence, rate, group, n_hosts, prior)
    rates = host_rates(heard, rate, group, expected_rates(pooled))
    bundles = choose_bundles(told_together(heard, group, n_hosts), rates.signals)
    return Shared(hold_to_changes(pooled, rates.usual, rates.signals, bundles), rates, bundles)


@dataclass(frozen=True)
class SignalEstimates:
    """Parameters of the pages of a shard whose signals count, and the trust in sources.

    Attributes
    ----------
    pages : RecordBatch of `SIGNALS_TABLE`
    trust : RecordBatch of `TRUST_TABLE`
    forecasts : RecordBatch of `transforms.kept.signal_forecasts.FORECASTS_TABLE`
    change_rate_per_day, information : (r,) float64
        Change rates of these pages, and what is known of them as in `policies.estimation.estimators.rate`.
    """

    pages: pa.RecordBatch
    trust: pa.RecordBatch
    forecasts: pa.RecordBatch
    change_rate_per_day: FloatArray
    information: FloatArray

    @property
    def row(self) -> IntArray:
        """Rows of the pages: (r,) int64, ascending."""
        return self.pages.column("row").to_numpy()


def estimate_signals(
    folded: ShardTables, change_rate_per_day: FloatArray, learned: LearnedTrust, as_of_us: int
) -> SignalEstimates | None:
    """What signals say of the pages of a folded shard; None where it has none.

    Parameters
    ----------
    folded : ShardTables
    change_rate_per_day : (n,) float64
        Change rates of all pages from crawls alone.
    learned : LearnedTrust
    as_of_us : int, UTC microseconds
    """
    found = signal_evidence_of(folded)
    if found is None:
        return None
    hosts = folded.tables["hosts"]
    host = folded.tables["pages"].column("host_code").to_numpy()[found.row].astype(np.int64)
    named, group = np.unique(host, return_inverse=True)
    group = group.astype(np.int64)
    rate = np.maximum(change_rate_per_day[found.row], 1e-12)
    host_hash = hosts.column("host_hash").to_numpy()[named]
    pooled, rates, bundles = _shared(found, rate, group, host_hash, learned)
    heard = found.heard
    heard_of = heard.ended + credible_signals(heard, rate, group, rates)
    signals = page_rates(heard_of, heard.ended_days + heard.running_days, rates.usual, rate, group)
    fit = fit_pages(found.evidence, rate, group, pooled)
    silent = _silent(found, signals, group, len(named), as_of_us)
    trust = _trust_table(found, heard_of, pooled, rate, signals, group, named, silent, bundles)
    unannounced = fit.unsignalled_rate_per_day.copy()
    weight, of_pages = np.where(silent[group], 0.0, fit.signal_weight), take(bundles, group)
    if silent.any():  # what silent sources alone tell goes on, without signals
        every, now = (told(k, signals, of_pages).true_per_day for k in (fit.signal_weight, weight))
        unannounced += np.maximum(every - now, 0.0)
    known = _sources_of(found, group, host_hash, learned)[group]
    return _planned(found, heard_of, fit, unannounced, weight, signals, trust, known, of_pages)


def _sources_of(
    found: ShardSignals, group: IntArray, host_hash: UIntArray, learned: LearnedTrust
) -> BoolArray:
    """(h, S) whether a host is known to have a source: a split one has all of the sample."""
    known = np.zeros((len(host_hash), len(found.sources)), np.bool_)
    row, source = np.nonzero(found.last_at_us != NO_TIME)
    known[group[row], source] = True
    if learned.giants:
        split = np.isin(host_hash, np.array(sorted(learned.giants), np.uint64))
        known[split] = np.isin(found.sources, learned.sources)
    return known


def _shared(
    found: ShardSignals, rate: FloatArray, group: IntArray, host_hash: UIntArray, learned: LearnedTrust
) -> Shared:
    """What the pages of each host share.

    Of a split host a shard has some pages only: what those borrow must not depend on which.
    """
    prior = learned.prior_of(found.sources)
    shared = share_of_hosts(found.evidence, found.heard, rate, group, len(host_hash), prior)
    split = np.isin(host_hash, np.array(sorted(learned.giants), np.uint64))
    for at in np.flatnonzero(split).tolist():
        for mine, of_giant in zip(shared, learned.giant(int(host_hash[at]), found.sources), strict=True):
            for column in fields(mine):
                getattr(mine, column.name)[at] = getattr(of_giant, column.name)[0]
    return shared


def _silent(
    found: ShardSignals, signals: FloatArray, group: IntArray, n_hosts: int, as_of_us: int
) -> BoolArray:
    """(h, S) whether a source has stopped: a feed that broke must not make its pages look fresh."""
    silent = np.zeros((n_hosts, len(found.sources)), np.bool_)
    for j in range(len(found.sources)):
        last = np.full(n_hosts, NO_TIME)
        np.maximum.at(last, group, found.last_at_us[:, j])
        expected = np.bincount(group, weights=signals[:, j], minlength=n_hosts)
        days = (as_of_us - np.where(last == NO_TIME, as_of_us, last)) / US_PER_DAY
        silent[:, j] = (expected * days > SILENT_AFTER_SIGNALS) & (days > SILENT_AFTER_DAYS)
    return silent


def _planned(
    found: ShardSignals,
    heard_of: FloatArray,
    fit: PageFit,
    unannounced: FloatArray,
    moving: FloatArray,
    signals: FloatArray,
    trust: pa.RecordBatch,
    known: BoolArray,
    bundles: Bundles,
) -> SignalEstimates:
    unsignalled, rate, weight = merge_sources(unannounced, moving, signals, bundles)
    true = -np.expm1(-weight) * rate
    change = unsignalled + true
    clock = np.zeros(len(found))
    for j in range(len(found.sources)):
        clock += fit.signal_weight[:, j] * found.pending[:, j]
    pending = found.pending.sum(axis=1)
    rows = np.flatnonzero((true > LEAST_RECALL * change) | ((pending > 0) & (rate > 0.0)))
    spread = summarise(
        fit.unsignalled_rate_per_day[rows],
        moving[rows],
        signals[rows],
        fit.covariance[rows],
        np.maximum(heard_of[rows], 0.5),
        take(bundles, rows),
    )
    relative = spread.change_rate_error / np.maximum(spread.change_rate_per_day, 1e-300)
    columns = {
        "row": found.row[rows],
        "unsignalled_rate_per_day": unsignalled[rows],
        "signal_rate_per_day": rate[rows],
        "signal_weight": weight[rows],
        "clock_of_signals": clock[rows],
        "signals_since_crawl": pending[rows].astype(np.int64),
        "last_signal_us": found.last_at_us[rows].max(axis=1, initial=NO_TIME),
    }
    arrays = [pa.array(columns[n]) for n in SIGNALS_TABLE.names]
    pages = pa.RecordBatch.from_arrays(arrays, schema=SIGNALS_TABLE)
    used = PageFit(fit.unsignalled_rate_per_day[rows], fit.signal_weight[rows], fit.covariance[rows])
    forecasts = forecasts_batch(found.row[rows], found.sources, known[rows], unannounced[rows], used)
    information = 1.0 / np.maximum(np.square(relative), 1e-12)
    return SignalEstimates(pages, trust, forecasts, change[rows], information)


def _trust_table(
    found: ShardSignals,
    heard_of: FloatArray,
    pooled: Pooled,
    rate: FloatArray,
    signals: FloatArray,
    group: IntArray,
    named: IntArray,
    silent: BoolArray,
    bundles: Bundles,
) -> pa.RecordBatch:
    """Trust in each source of each host, from what its pages share."""
    n_hosts, n_sources = pooled.signal_weight.shape
    sent, heard, pending = (
        np.stack([sum_by(group, values[:, j], n_hosts) for j in range(n_sources)], axis=1)
        for values in (signals, heard_of, found.pending)
    )
    trust = summarise(
        pooled.missed_share * sum_by(group, rate, n_hosts),
        pooled.signal_weight,
        sent,
        pooled.covariance,
        np.maximum(heard, 0.5),
        bundles,
    )
    parts = []
    for j, source in enumerate(found.sources):
        last = np.full(n_hosts, NO_TIME)
        np.maximum.at(last, group, found.last_at_us[:, j])
        rows = np.flatnonzero(last != NO_TIME)
        columns = {
            "host_code": named,
            "source": np.full(n_hosts, source, dtype=object),
            "pages": np.bincount(group[found.last_at_us[:, j] != NO_TIME], minlength=n_hosts),
            "signals": heard[:, j],
            "signals_since_crawl": pending[:, j].astype(np.int64),
            "signal_rate_per_day": sent[:, j],
            "signal_precision": trust.precision[:, j],
            "signal_precision_stderr": trust.precision_error[:, j],
            "signal_recall": trust.recall[:, j],
            "signal_recall_stderr": trust.recall_error[:, j],
            "last_signal_us": last,
            "silent": silent[:, j],
        }
        arrays = [pa.array(columns[f.name][rows], f.type) for f in TRUST_TABLE]
        parts.append(pa.RecordBatch.from_arrays(arrays, schema=TRUST_TABLE))
    whole = pa.concat_batches(parts)
    order = np.argsort(whole.column("host_code").to_numpy(), kind="stable")
    return whole.take(pa.array(order))
