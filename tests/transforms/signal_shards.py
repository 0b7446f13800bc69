"""Folded shards with signals, made from drawn intervals instead of logs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from policies.history.evidence import Evidence, from_intervals
from policies.history.page_state import NO_TIME, starts_of
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.signals.evidence import SignalEvidence
from policies.signals.state import SignalState, signature_of
from tests.policies.signal_evidence import take
from tests.policies.signal_simulation import Simulated
from transforms.batches.coders import ShardTables
from transforms.kept.signals import signal_tables
from transforms.night.folding import ShardFold

AS_OF_US = 20_600 * 86_400_000_000
DAY_US = 86_400_000_000


def signal_sums(
    page: IntArray,
    evidence: SignalEvidence,
    heard: BoolArray,
    pending: FloatArray,
    total: FloatArray,
    watched_days: FloatArray,
    last_at_us: IntArray,
    running_days: float = 0.5,
    together: FloatArray | None = None,
) -> tuple[SignalState, FloatArray]:
    """What a fold would hand on of `page`, (n,) rows; `heard` (n, S) says which sources each has.

    `together` (n,) are pairs of signals of the first two sources.
    """
    n, s = evidence.unchanged_signals.shape
    row, source = np.nonzero(heard)
    counts = evidence.row_signals.astype(np.int64)
    signature = signature_of(counts, np.arange(s)).sum(axis=1, dtype=np.uint32)
    paired = np.flatnonzero(np.zeros(n) if together is None else together)
    state = SignalState(
        page=page,
        since_us=np.zeros(n, np.int64),
        exposure_days=evidence.exposure_days,
        dated_changes=evidence.dated_changes,
        watched_days=watched_days,
        source_start=starts_of(row, n),
        source=source.astype(np.int32),
        pending=pending[row, source].astype(np.int32),
        unchanged=evidence.unchanged_signals[row, source],
        total=total[row, source],
        last_at_us=last_at_us[row, source],
        recent=np.zeros(len(row), np.uint64),
        bin_start=starts_of(evidence.row_page, n),
        bin_id=np.zeros(len(signature), np.int32),
        signature=signature,
        bin_weight=evidence.row_weight,
        bin_days=evidence.row_days,
        bin_days_squared=evidence.row_days_squared,
        pair_start=starts_of(paired, n),
        pair=np.ones(len(paired), np.int32),
        near_pending=np.zeros(len(paired), np.int32),
        far_pending=np.zeros(len(paired), np.int32),
        near=np.zeros(0) if together is None else together[paired],
        far=np.zeros(len(paired)),
    )
    return state, np.full(n, running_days)


def shard_of(
    drawn: Simulated,
    host: IntArray,
    sources: Sequence[str],
    pending: FloatArray | None = None,
    last_days: float | FloatArray = 0.5,
    host_hash: IntArray | None = None,
    url_hash: IntArray | None = None,
    together: FloatArray | None = None,
) -> ShardTables:
    """A shard of drawn pages.

    Parameters
    ----------
    drawn : Simulated, n pages
    host : (n,) int64, ascending
        Host of each page, 0..h-1.
    sources : sequence of S str
        A page has those that ever signalled it.
    pending : (n, S) float64, optional
        Signals since the last crawl; none by default.
    last_days : float or (n,) float64
        How long ago the last signal came.
    host_hash : (h,) uint64, optional
    url_hash : (n,) uint64, optional
        By default numbers that ascend.
    together : (n,) float64, optional
        Signals of the first two sources that came together.
    """
    n, h = len(drawn.unsignalled), int(host.max()) + 1
    pending = np.zeros((n, len(sources))) if pending is None else pending
    total = np.zeros((n, len(sources)))
    np.add.at(total, drawn.page, drawn.signals)
    heard = (total + pending) > 0
    last = np.where(heard, AS_OF_US - (np.broadcast_to(last_days, n)[:, None] * DAY_US), NO_TIME)
    watched = np.bincount(drawn.page, weights=drawn.gap, minlength=n)
    # Pages of hosts that ever signalled, as the fold has them.
    rows = np.flatnonzero((np.bincount(host, weights=heard.any(axis=1)) > 0)[host])
    evidence = take(drawn.evidence(), rows)
    sums = signal_sums(
        rows,
        evidence,
        heard[rows],
        pending[rows],
        total[rows],
        watched[rows],
        last.astype(np.int64)[rows],
        together=None if together is None else together[rows],
    )
    plain = from_intervals(drawn.page, drawn.gap, drawn.changed, n_pages=n)
    host_hash = np.arange(1, h + 1, dtype=np.uint64) if host_hash is None else host_hash
    url_hash = np.arange(1, n + 1, dtype=np.uint64) if url_hash is None else url_hash
    pages = {
        "url_hash": pa.array(url_hash, pa.uint64()),
        "host_code": pa.array(host.astype(np.int32)),
        "group_hash": pa.array(host_hash[host], pa.uint64()),
        "exposure_days": plain.exposure_days,
        "dated_changes": plain.dated_changes,
        "n_bins": np.diff(plain.bin_start).astype(np.int32),
        "clicks": np.zeros(n),
        "impressions": np.zeros(n),
        "first_seen_day": np.zeros(n, np.int32),
    }
    hosts = {
        "host": [f"h{v}.test" for v in host_hash.tolist()],
        "host_hash": pa.array(host_hash, pa.uint64()),
        "n_pages": np.bincount(host, minlength=h).astype(np.int32),
    }
    bins = {
        "weight": plain.bin_weight,
        "days": plain.bin_days,
        "days_squared": plain.bin_days_squared,
    }
    named = {"pages": pages, "hosts": hosts, "bins": bins}
    tables = {name: pa.RecordBatch.from_pydict(columns) for name, columns in named.items()}
    return ShardTables(0, {**tables, **signal_tables(*sums, list(sources))})


def plain_evidence(drawn: Simulated) -> Evidence:
    """The same intervals without their signals."""
    return from_intervals(drawn.page, drawn.gap, drawn.changed, n_pages=len(drawn.unsignalled))


def signals_of(fold: ShardFold) -> pa.RecordBatch:
    """What a fold carries of signals."""
    return dict(fold.files())["state/signals"]
