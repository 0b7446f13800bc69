"""Trust in sources of signals, in the open: the rows of hosts/, and what the manifest says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from policies.typing_ import FloatArray, IntArray
from transforms import schemas
from transforms.state import times

MAX_NAMED = 20

MIN_SILENT_HOSTS, SILENT_SHARE = 3, 0.25

_UNIT = 2.0**-20  # rates are summed as whole numbers of it: shards in any order give the same bits


@dataclass(frozen=True)
class TrustSums:
    """What the hosts of some shards say of their sources. They merge in any order.

    Attributes
    ----------
    sources : dict of str to dict of str to int
        By source: hosts, silent hosts, pages, signals since their pages' last crawls, and in units of 2**-20
        signals a day (`rate`), true ones (`true`) and changes of the hosts that have it (`changes`).
    named : tuple of dict
        The `MAX_NAMED` (host, source) with most signals a day.
    """

    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    named: tuple[Mapping[str, Any], ...] = ()

    def merge(self, other: TrustSums) -> TrustSums:
        """Sums over the hosts of both."""
        sources: dict[str, Counter[str]] = {}
        for sums in (self.sources, other.sources):
            for name, counts in sums.items():
                sources.setdefault(name, Counter()).update(counts)
        named = sorted(
            (*self.named, *other.named), key=lambda r: (-r["signal_rate_per_day"], r["host"], r["source"])
        )
        return TrustSums({k: dict(sources[k]) for k in sorted(sources)}, tuple(named[:MAX_NAMED]))

    def account(self) -> dict[str, Any]:
        """What the manifest says of sources and of the hosts with most signals."""
        return {
            "sources": [
                {
                    "source": name,
                    "hosts": sums["hosts"],
                    "hosts_silent": sums["silent"],
                    "pages": sums["pages"],
                    "signals_since_crawl": sums["pending"],
                    "signal_rate_per_day": sums["rate"] * _UNIT,
                    "signal_precision": sums["true"] / sums["rate"] if sums["rate"] else None,
                    "signal_recall": sums["true"] / sums["changes"] if sums["changes"] else None,
                }
                for name, sums in self.sources.items()
            ],
            "hosts": [dict(row) for row in self.named],
        }


def silent_warnings(signals: Mapping[str, Any] | None) -> list[str]:
    """Sources that are silent on so many hosts that the feed may be down; `signals` is of the manifest."""
    return [
        f"source {source['source']} is silent on {source['hosts_silent']} of {source['hosts']} hosts: is the "
        "feed down?"
        for source in (signals or {}).get("sources", ())
        if source["hosts_silent"] >= MIN_SILENT_HOSTS
        and source["hosts_silent"] > SILENT_SHARE * source["hosts"]
    ]


def _trust_columns(trust: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns of hosts/ that are of signals."""
    same = ("source", "signals", "signals_since_crawl", "silent")
    same += tuple(n for n in trust.schema.names if n.startswith(("signal_rate", "signal_p", "signal_r")))
    last = trust.column("last_signal_us").to_numpy()
    return {
        **{name: trust.column(name) for name in same},
        "signalling_pages": trust.column("pages"),
        "last_signal_at": times(last),
    }


def hosts_batch(
    hosts: pa.RecordBatch, rate: FloatArray, slots: IntArray, trust: pa.RecordBatch | None
) -> pa.RecordBatch:
    """The `schemas.HOSTS_OUT` of a shard.

    Parameters
    ----------
    hosts : RecordBatch of `schemas.HOSTS_TABLE`
    rate : (h,) float64, crawls per day
    slots : (h,) int64
        Tonight's.
    trust : RecordBatch of `transforms.trusting.TRUST_TABLE`, or None
    """
    h = hosts.num_rows
    row_of_trust = np.zeros(0, np.int64) if trust is None else trust.column("host_code").to_numpy()
    silent = np.setdiff1d(np.arange(h), row_of_trust)
    row = np.concatenate([row_of_trust.astype(np.int64), silent])
    order = np.argsort(row, kind="stable")
    row = row[order]
    at = np.concatenate([np.arange(len(row_of_trust)), np.full(len(silent), -1)])[order]
    limit = hosts.column("limit_per_day").to_numpy()[row]
    columns: dict[str, pa.Array] = {
        "host": hosts.column("host").take(pa.array(row)),
        "pages": pa.array(hosts.column("n_pages").to_numpy()[row].astype(np.int64)),
        "crawl_rate_per_day": pa.array(rate[row]),
        "limit_per_day": pa.array(limit, mask=np.isinf(limit)),
        "min_gap_seconds": pa.array(hosts.column("gap_us").to_numpy()[row] / 1e6),
        "slots": pa.array(slots[row].astype(np.int64)),
    }
    if trust is not None:
        take = pa.array(at, mask=at < 0)
        columns |= {name: column.take(take) for name, column in _trust_columns(trust).items()}
    schema = schemas.HOSTS_OUT
    return pa.RecordBatch.from_arrays(
        [columns.get(f.name, pa.nulls(len(row), f.type)).cast(f.type) for f in schema], schema=schema
    )


def trust_sums(hosts: pa.RecordBatch, trust: pa.RecordBatch | None) -> TrustSums:
    """The sums of one shard. A split host counts in each of its shards."""
    if trust is None:
        return TrustSums()
    names = hosts.column("host").take(trust.column("host_code"))
    rate, precision, recall = (
        trust.column(f"signal_{n}").to_numpy() for n in ("rate_per_day", "precision", "recall")
    )
    true = rate * precision
    changes = np.where(recall > 0.0, true / np.where(recall > 0.0, recall, 1.0), 0.0)
    silent = trust.column("silent").to_numpy(zero_copy_only=False)
    sources: dict[str, dict[str, int]] = {}
    labels = np.asarray(trust.column("source").to_pylist(), dtype=object)
    for name in np.unique(labels.astype(str)).tolist():
        mine = labels == name
        sources[name] = {
            "hosts": int(mine.sum()),
            "silent": int(silent[mine].sum()),
            "pages": int(trust.column("pages").to_numpy()[mine].sum()),
            "pending": int(trust.column("signals_since_crawl").to_numpy()[mine].sum()),
            "rate": int(np.rint(rate[mine] / _UNIT).sum()),
            "true": int(np.rint(true[mine] / _UNIT).sum()),
            "changes": int(np.rint(changes[mine] / _UNIT).sum()),
        }
    top = np.lexsort((labels.astype(str), np.asarray(names.to_pylist(), dtype=str), -rate))[:MAX_NAMED]
    shown = ("source", "pages", "signals", "signal_rate_per_day", "silent")
    shown += tuple(n for n in trust.schema.names if n.startswith(("signal_p", "signal_r")) and n not in shown)
    some = trust.take(pa.array(top))
    rows = [
        {"host": names[int(at)].as_py()} | {k: v for k, v in row.items() if k in shown}
        for at, row in zip(top, some.to_pylist(), strict=True)
    ]
    return TrustSums(sources, tuple(rows))
