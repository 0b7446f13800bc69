"""How far to trust the sources of signals of every host, and what that makes of the pages' parameters.

A shard has whole hosts, so what the pages of a host share is learned there. The prior of hosts comes from the
sample that all priors come from, and so does what is known of hosts that are split over shards: it must not
depend on how they are split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from policies.bursts import credible_signals
from policies.page_state import NO_TIME, US_PER_DAY
from policies.signal_estimation import (
    PageFit,
    Pooled,
    SignalPrior,
    default_prior,
    fit_pages,
    fit_pooled,
    signal_rates,
)
from policies.signal_trust import merge_sources, summarise
from policies.typing_ import BoolArray, FloatArray, IntArray, UIntArray
from transforms.coders import ShardTables
from transforms.signal_forecasts import forecasts_batch
from transforms.signals import ShardSignals, signal_evidence_of

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
"""Pages of a shard whose signals count: several sources as one, see `policies.signal_trust.merge_sources`.
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


@dataclass(frozen=True)
class LearnedTrust:
    """What the sample says of signals, broadcast to every shard.

    Attributes
    ----------
    sources : tuple of str, sorted
    prior : SignalPrior
        For these sources.
    giants : dict of int to Pooled
        What the pages of hosts that are split share, one group each with these sources, by the host's hash.
    giant_rates : dict of int to (S,) float64, per day
        Signals of these sources, of a page of theirs.
    """

    sources: tuple[str, ...] = ()
    prior: SignalPrior = field(default_factory=lambda: default_prior(0))
    giants: Mapping[int, Pooled] = field(default_factory=dict)
    giant_rates: Mapping[int, FloatArray] = field(default_factory=dict)

    def prior_of(self, sources: Sequence[str]) -> SignalPrior:
        """The prior for a shard's sources."""
        unknown = default_prior(len(sources))
        weight, strength = unknown.signal_weight.copy(), unknown.weight_strength.copy()
        for j, name in enumerate(sources):
            if name in self.sources:
                at = self.sources.index(name)
                weight[j], strength[j] = self.prior.signal_weight[at], self.prior.weight_strength[at]
        return SignalPrior(self.prior.missed_share, self.prior.missed_strength, weight, strength)

    def giant(self, host_hash: int, sources: Sequence[str]) -> Pooled | None:
        """What the pages of a split host share, for a shard's sources."""
        found = self.giants.get(host_hash)
        if found is None:
            return None
        prior = self.prior_of(sources)
        d = 1 + len(sources)
        covariance = np.zeros((1, d, d))
        covariance[0, np.arange(1, d), np.arange(1, d)] = 1.0 / prior.weight_strength
        weight = prior.signal_weight[None, :].copy()
        mine = [j for j, name in enumerate(sources) if name in self.sources]
        theirs = [self.sources.index(sources[j]) for j in mine]
        weight[0, mine] = found.signal_weight[0, theirs]
        to, of = np.array([0, *(1 + j for j in mine)]), np.array([0, *(1 + j for j in theirs)])
        covariance[0][np.ix_(to, to)] = found.covariance[0][np.ix_(of, of)]
        return Pooled(found.missed_share, weight, covariance)

    def giant_rate(self, host_hash: int, sources: Sequence[str]) -> FloatArray | None:
        """Signals a day of a page of a split host, (S,) for a shard's sources."""
        found = self.giant_rates.get(host_hash)
        if found is None:
            return None
        return np.array([found[self.sources.index(s)] if s in self.sources else 0.0 for s in sources])


@dataclass(frozen=True)
class SignalEstimates:
    """Parameters of the pages of a shard whose signals count, and the trust in sources.

    Attributes
    ----------
    pages : RecordBatch of `SIGNALS_TABLE`
    trust : RecordBatch of `TRUST_TABLE`
    forecasts : RecordBatch of `transforms.signal_forecasts.FORECASTS_TABLE`
    change_rate_per_day, information : (r,) float64
        Change rates of these pages, and what is known of them as in `policies.estimation.rate`.
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
    pooled = _pooled(found, rate, group, host_hash, learned)
    usual, days = _usual_rates(found, group, host_hash, learned), found.watched_days
    running = credible_signals(
        found.signals, days, found.running_signals, found.running_days, group, len(named), usual
    )
    heard_of = found.signals + running
    signals = signal_rates(heard_of, days + found.running_days, group, len(named), usual)
    expected = _unsignalled(rate, pooled, signals, group)
    fit = fit_pages(found.evidence, expected / pooled.missed_share[group], group, pooled)
    silent = _silent(found, signals, group, len(named), as_of_us)
    trust = _trust_table(found, heard_of, pooled, rate, signals, group, named, silent)
    unannounced = fit.unsignalled_rate_per_day.copy()
    heard = np.where(silent[group], 0.0, signals)
    for j in range(len(found.sources)):  # their changes go on, without signals
        unannounced += np.where(silent[group, j], -np.expm1(-fit.signal_weight[:, j]) * signals[:, j], 0.0)
    known = _sources_of(found, group, host_hash, learned)[group]
    return _planned(found, heard_of, fit, unannounced, heard, trust, known)


def _usual_rates(
    found: ShardSignals, group: IntArray, host_hash: UIntArray, learned: LearnedTrust
) -> FloatArray:
    """Signals of a page a day that hosts have shown in ended intervals, (h, S); NaN where none has any.

    Of a split host a shard has some pages only: what those borrow must not depend on which.
    """
    n_hosts = len(host_hash)
    days = np.bincount(group, weights=found.watched_days, minlength=n_hosts)
    usual = np.full((n_hosts, len(found.sources)), np.nan)
    for j in range(len(found.sources)):
        sent = np.bincount(group, weights=found.signals[:, j], minlength=n_hosts)
        some = (sent > 0.0) & (days > 0.0)
        usual[some, j] = sent[some] / days[some]
    if learned.giant_rates:
        split = np.isin(host_hash, np.array(sorted(learned.giant_rates), np.uint64))
        for at in np.flatnonzero(split).tolist():
            rate = learned.giant_rate(int(host_hash[at]), found.sources)
            if rate is not None:
                usual[at] = rate
    return usual


def _unsignalled(rate: FloatArray, pooled: Pooled, signals: FloatArray, group: IntArray) -> FloatArray:
    """Rate of changes without a signal that pages are taken to have before their own history is seen, (n,).

    The share of the page's change rate that its host has, where that is known. Where it is not, all changes
    that the page's signals do not tell of: a host's first ping must not make its pages change less.
    """
    share = pooled.missed_share[group] * rate
    told = np.zeros(len(rate))
    for j in range(signals.shape[1]):
        told += -np.expm1(-pooled.signal_weight[group, j]) * signals[:, j]
    unknown = np.minimum(pooled.covariance[:, 0, 0], 1.0)[group]
    return share + unknown * np.maximum(rate - told - share, 0.0)


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


def _pooled(
    found: ShardSignals, rate: FloatArray, group: IntArray, host_hash: UIntArray, learned: LearnedTrust
) -> Pooled:
    """What the pages of each host share."""
    pooled = fit_pooled(found.evidence, rate, group, len(host_hash), learned.prior_of(found.sources))
    if not learned.giants:
        return pooled
    missed, weight = pooled.missed_share.copy(), pooled.signal_weight.copy()
    covariance = pooled.covariance.copy()
    for at, name in enumerate(host_hash.tolist()):
        giant = learned.giant(name, found.sources)
        if giant is not None:
            missed[at], weight[at], covariance[at] = (
                giant.missed_share[0],
                giant.signal_weight[0],
                giant.covariance[0],
            )
    return Pooled(missed, weight, covariance)


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
    heard: FloatArray,
    trust: pa.RecordBatch,
    known: BoolArray,
) -> SignalEstimates:
    unsignalled, rate, weight = merge_sources(unannounced, fit.signal_weight, heard)
    true = -np.expm1(-weight) * rate
    change = unsignalled + true
    clock = np.zeros(len(found))
    for j in range(len(found.sources)):
        clock += fit.signal_weight[:, j] * found.pending[:, j]
    pending = found.pending.sum(axis=1)
    rows = np.flatnonzero((true > LEAST_RECALL * change) | ((pending > 0) & (rate > 0.0)))
    spread = summarise(
        fit.unsignalled_rate_per_day[rows],
        fit.signal_weight[rows],
        heard[rows],
        fit.covariance[rows],
        np.maximum(heard_of[rows], 0.5),
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
) -> pa.RecordBatch:
    """Trust in each source of each host, from what its pages share."""
    n_hosts, n_sources = pooled.signal_weight.shape

    def add(values: FloatArray) -> FloatArray:
        return np.bincount(group, weights=values, minlength=n_hosts).astype(np.float64, copy=False)

    sent = np.stack([add(signals[:, j]) for j in range(n_sources)], axis=1)
    heard = np.stack([add(heard_of[:, j]) for j in range(n_sources)], axis=1)
    trust = summarise(
        pooled.missed_share * add(rate), pooled.signal_weight, sent, pooled.covariance, np.maximum(heard, 0.5)
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
            "signals_since_crawl": add(found.pending[:, j]).astype(np.int64),
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
