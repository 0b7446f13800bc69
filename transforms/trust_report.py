"""Trust in sources of signals, in the open: the rows of hosts/, and what the manifest says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from policies.typing_ import FloatArray, IntArray
from transforms import schemas
from transforms.state import times

MAX_NAMED = 20

MIN_SILENT_HOSTS, SILENT_SHARE = 3, 0.25

_Key = TypeVar("_Key", str, tuple[str, str])

_UNIT = 2.0**-20  # rates are summed as whole numbers of it: shards in any order give the same bits


@dataclass(frozen=True)
class TrustSums:
    """What the hosts of some shards say of their sources. They merge in any order.

    Attributes
    ----------
    sources : dict of str to dict of str to int
        By source: hosts, silent hosts, pages, signals since their pages' last crawls, and in units of 2**-20
        signals a day (`rate`), true ones (`true`) and changes of the hosts that have it (`changes`).
        Without hosts that are split.
    named : tuple of dict
        The `MAX_NAMED` (host, source) with most signals a day, likewise.
    split : dict of (str, str) to dict of str to int
        By host that is split and source: the same sums over its parts, the number of `parts` and of those
        that are silent, and in the same units `signals`, and standard errors times signals a day.
    """

    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    named: tuple[Mapping[str, Any], ...] = ()
    split: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)

    def merge(self, other: TrustSums) -> TrustSums:
        """Sums over the hosts of both."""
        return TrustSums(
            _added(self.sources, other.sources),
            _most((*self.named, *other.named)),
            _added(self.split, other.split),
        )

    def account(self) -> dict[str, Any]:
        """What the manifest says of sources and of the hosts with most signals: a split host is one."""
        whole = [
            {
                source: {
                    **{k: sums[k] for k in ("pages", "pending", "rate", "true", "changes")},
                    "hosts": 1,
                    "silent": int(sums["silent"] == sums["parts"]),
                }
            }
            for (_, source), sums in self.split.items()
        ]
        sources = _added(self.sources, *whole)
        named = _most((*self.named, *(_row_of_parts(*key, sums) for key, sums in self.split.items())))
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
                for name, sums in sources.items()
            ],
            "hosts": [dict(row) for row in named],
        }


def _added(*all_sums: Mapping[_Key, Mapping[str, int]]) -> dict[_Key, dict[str, int]]:
    """Sums by key added up, in order of keys."""
    total: dict[_Key, Counter[str]] = {}
    for sums in all_sums:
        for key, counts in sums.items():
            total.setdefault(key, Counter()).update(counts)
    return {key: dict(total[key]) for key in sorted(total)}


def _most(rows: Collection[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    ordered = sorted(rows, key=lambda r: (-r["signal_rate_per_day"], r["host"], r["source"]))
    return tuple(ordered[:MAX_NAMED])


def _row_of_parts(host: str, source: str, sums: Mapping[str, int]) -> dict[str, Any]:
    """A split host as one: what its parts share is learned together, so their errors are not independent."""
    rate, changes = sums["rate"], sums["changes"]
    return {
        "host": host,
        "source": source,
        "pages": sums["pages"],
        "signals": sums["signals"] * _UNIT,
        "signal_rate_per_day": rate * _UNIT,
        "signal_precision": sums["true"] / rate if rate else None,
        "signal_precision_stderr": sums["precision_stderr"] / rate if rate else None,
        "signal_recall": sums["true"] / changes if changes else None,
        "signal_recall_stderr": sums["recall_stderr"] / rate if rate else None,
        "silent": sums["silent"] == sums["parts"],
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


def trust_sums(hosts: pa.RecordBatch, trust: pa.RecordBatch | None, split: Collection[int] = ()) -> TrustSums:
    """The sums of one shard; `split` has the hashes of hosts of which it may have a part only."""
    if trust is None:
        return TrustSums()
    hashes = hosts.column("host_hash").to_numpy()[trust.column("host_code").to_numpy()]
    is_part = np.isin(hashes, np.array(sorted(split), np.uint64))
    parts = _sums_of_parts(hosts, trust.filter(pa.array(is_part)))
    trust = trust.filter(pa.array(~is_part))
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
    return TrustSums(sources, tuple(rows), parts)


def _sums_of_parts(hosts: pa.RecordBatch, trust: pa.RecordBatch) -> dict[tuple[str, str], dict[str, int]]:
    """`TrustSums.split` of a shard; splits are few, so row by row."""

    def units(x: float) -> int:
        return int(np.rint(x / _UNIT))

    out = {}
    for row in trust.to_pylist():
        rate, precision, recall = (row[f"signal_{n}"] for n in ("rate_per_day", "precision", "recall"))
        out[hosts.column("host")[row["host_code"]].as_py(), row["source"]] = {
            "parts": 1,
            "silent": int(row["silent"]),
            "pages": row["pages"],
            "pending": row["signals_since_crawl"],
            "signals": units(row["signals"]),
            "rate": units(rate),
            "true": units(rate * precision),
            "changes": units(rate * precision / recall) if recall > 0.0 else 0,
            "precision_stderr": units(rate * row["signal_precision_stderr"]),
            "recall_stderr": units(rate * row["signal_recall_stderr"]),
        }
    return out
