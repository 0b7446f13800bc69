"""Trust in sources of signals, in the open: the rows of hosts/, and what the manifest says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.signals.trust import JUNK_WEIGHT
from transforms.batches import schemas
from transforms.kept.state import times

MAX_NAMED = 20

MIN_SILENT_HOSTS, SILENT_SHARE = 3, 0.25

UNLEARNED_STDERR = 0.15
"""Of a precision of which less is known from crawls than was assumed: before anything is known it is 0.22."""

FLOOD_PER_DAY, FLOOD_PRECISION, FLOOD_PER_CHANGE = 300.0, 0.1, 3.0
"""A host floods that sends as many signals a day, so few of them true, and so many for each change."""

MAX_WORST = 3

_Key = TypeVar("_Key", str, tuple[str, str])

_UNIT = 2.0**-20  # rates are summed as whole numbers of it: shards in any order give the same bits


@dataclass(frozen=True)
class TrustSums:
    """What the hosts of some shards say of their sources. They merge in any order.

    Attributes
    ----------
    sources : dict of str to dict of str to int
        By source: hosts, silent hosts, hosts that flood and hosts of which nothing is learned yet, pages,
        signals since their pages' last crawls, and in units of 2**-20 signals a day (`rate`), those of hosts
        of which nothing is learned, true ones (`true`) and changes of the hosts that have it (`changes`).
        Without hosts that are split.
    named : tuple of dict
        The `MAX_NAMED` (host, source) with most signals a day, likewise.
    split : dict of (str, str) to dict of str to int
        By host that is split and source: the same sums over its parts, the number of `parts` and of those
        that are silent, and in the same units `signals`, and standard errors times signals a day.
    worst : dict of str to tuple of dict
        By source the `MAX_WORST` hosts with most false signals a day, as `named`.
    """

    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    named: tuple[Mapping[str, Any], ...] = ()
    split: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    worst: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)

    def merge(self, other: TrustSums) -> TrustSums:
        """Sums over the hosts of both."""
        return TrustSums(
            _added(self.sources, other.sources),
            _most((*self.named, *other.named)),
            _added(self.split, other.split),
            _worst(row for sums in (self, other) for rows in sums.worst.values() for row in rows),
        )

    def account(self) -> dict[str, Any]:
        """What the manifest says of sources and of the hosts with most signals: a split host is one."""
        of_split = [_row_of_parts(*key, sums) for key, sums in self.split.items()]
        whole = [
            {
                row["source"]: {
                    **{k: sums[k] for k in ("pages", "pending", "rate", "true", "changes")},
                    **_one_host(row, sums["rate"]),
                }
            }
            for row, sums in zip(of_split, self.split.values(), strict=True)
        ]
        sources = _added(self.sources, *whole)
        named = _most((*self.named, *of_split))
        worst = _worst((*(row for rows in self.worst.values() for row in rows), *of_split))
        return {
            "sources": [
                {
                    "source": name,
                    "hosts": sums["hosts"],
                    "hosts_silent": sums["silent"],
                    "hosts_not_learned": sums["unlearned"],
                    "hosts_flooding": sums["floods"],
                    "learned": not _mostly_unlearned(sums),
                    "pages": sums["pages"],
                    "signals_since_crawl": sums["pending"],
                    "signal_rate_per_day": sums["rate"] * _UNIT,
                    "signal_precision": sums["true"] / sums["rate"] if sums["rate"] else None,
                    "signal_recall": sums["true"] / sums["changes"] if sums["changes"] else None,
                    "most_false": [_brief(row) for row in worst.get(name, ())],
                    "signal_precision_of_others": _of_others(sums, worst.get(name, ())),
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


def _false_per_day(row: Mapping[str, Any]) -> float:
    rate: float = row["signal_rate_per_day"]
    return rate * (1.0 - row["signal_precision"]) if rate else 0.0


def _worst(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """By source the hosts with most false signals a day."""
    by_source: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(rows, key=lambda r: (r["source"], -_false_per_day(r), r["host"])):
        by_source.setdefault(row["source"], []).append(row)
    return {source: tuple(found[:MAX_WORST]) for source, found in by_source.items()}


def _one_host(row: Mapping[str, Any], rate: int) -> dict[str, int]:
    """What a split host adds to the sums of its source, as one host."""
    brief = _brief(row)
    return {
        "hosts": 1,
        "silent": int(row["silent"]),
        "floods": int(brief["floods"]),
        "unlearned": int(not brief["learned"]),
        "unlearned_rate": 0 if brief["learned"] else rate,
    }


def _brief(row: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a host that makes its source look bad."""
    rate, precision, recall = (row[f"signal_{n}"] for n in ("rate_per_day", "precision", "recall"))
    changes = rate * precision / recall if recall else 0.0
    floods = _floods(*(np.array([x or 0.0]) for x in (rate, precision, changes)), np.array([row["silent"]]))
    return {
        "host": row["host"],
        "signal_rate_per_day": rate,
        "signal_precision": precision,
        "changes_per_day": changes,
        "learned": _is_learned(row),
        "floods": bool(floods[0]),
    }


def _is_learned(row: Mapping[str, Any]) -> bool:
    return bool((row["signal_precision_stderr"] or 0.0) < UNLEARNED_STDERR)


def _floods(rate: FloatArray, precision: FloatArray, changes: FloatArray, silent: BoolArray) -> BoolArray:
    """Hosts that send far more signals than their pages change, hardly any of them true; all (k,)."""
    many = (rate >= FLOOD_PER_DAY) & (rate > FLOOD_PER_CHANGE * changes)
    return many & (precision < FLOOD_PRECISION) & ~silent


def _mostly_unlearned(sums: Mapping[str, int]) -> bool:
    """Whether most hosts, and those that send most signals, have what was assumed of them beforehand."""
    return 2 * sums["unlearned"] > sums["hosts"] and 2 * sums["unlearned_rate"] >= sums["rate"]


def _of_others(sums: Mapping[str, int], worst: Collection[Mapping[str, Any]]) -> float | None:
    """Precision of a source without the host that sends most false signals; None without others."""
    first = next(iter(worst), None)
    if first is None or sums["hosts"] < 2 or not first["signal_rate_per_day"]:
        return None
    rate = sums["rate"] * _UNIT - first["signal_rate_per_day"]
    true = sums["true"] * _UNIT - first["signal_rate_per_day"] * first["signal_precision"]
    return min(max(true / rate, 0.0), 1.0) if rate > sums["hosts"] * _UNIT else None


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


def flood_warnings(signals: Mapping[str, Any] | None) -> list[str]:
    """Hosts that flood a source and are not believed; `signals` is of the manifest."""
    found = []
    for source in (signals or {}).get("sources", ()):
        name, rows = source["source"], [row for row in source.get("most_false", ()) if row["floods"]]
        for row in rows:
            precision = row["signal_precision"]
            junk = -np.log1p(-precision) < JUNK_WEIGHT
            true = f"{precision:.0%}" if precision >= 0.005 else "less than 1%"
            found.append(
                f"host {row['host']} sends {row['signal_rate_per_day']:,.0f} signals of source {name} a day, "
                f"{true} of them true, while its pages change {row['changes_per_day']:,.0f} "
                f"times: they move {'nothing' if junk else 'little'} by now. Tell the site, or leave these "
                "signals out; other hosts keep their own trust in the source"
            )
        if rows and source["hosts_flooding"] > len(rows):
            more = source["hosts_flooding"] - len(rows)
            found.append(f"{more} more host{'s' * (more > 1)} flood source {name} like that: see hosts/")
    return found


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
    hosts: pa.RecordBatch,
    rate: FloatArray,
    slots: IntArray,
    trust: pa.RecordBatch | None,
    clocks: Mapping[str, pa.Array],
) -> pa.RecordBatch:
    """The `schemas.HOSTS_OUT` of a shard.

    Parameters
    ----------
    hosts : RecordBatch of `schemas.HOSTS_TABLE`
    rate : (h,) float64, crawls per day
    slots : (h,) int64
        Tonight's.
    trust : RecordBatch of `transforms.night.trusting.TRUST_TABLE`, or None
    clocks : dict of str to (h,) array
        Columns on when pages change.
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
        **{name: column.take(pa.array(row)) for name, column in clocks.items()},
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
    unlearned = ~(trust.column("signal_precision_stderr").to_numpy() < UNLEARNED_STDERR)
    floods = _floods(rate, precision, changes, silent)
    texts, hosts_of = labels.astype(str), np.asarray(names.to_pylist(), dtype=str)
    worst: list[int] = []
    for name in np.unique(texts).tolist():
        mine = labels == name
        sources[name] = {
            "hosts": int(mine.sum()),
            "silent": int(silent[mine].sum()),
            "floods": int(floods[mine].sum()),
            "unlearned": int(unlearned[mine].sum()),
            "unlearned_rate": int(np.rint(rate[mine & unlearned] / _UNIT).sum()),
            "pages": int(trust.column("pages").to_numpy()[mine].sum()),
            "pending": int(trust.column("signals_since_crawl").to_numpy()[mine].sum()),
            "rate": int(np.rint(rate[mine] / _UNIT).sum()),
            "true": int(np.rint(true[mine] / _UNIT).sum()),
            "changes": int(np.rint(changes[mine] / _UNIT).sum()),
        }
        own = np.flatnonzero(mine)
        worst += own[np.lexsort((hosts_of[own], (true - rate)[own]))[:MAX_WORST]].tolist()
    top = np.lexsort((texts, hosts_of, -rate))[:MAX_NAMED]
    shown = ("source", "pages", "signals", "signal_rate_per_day", "silent")
    shown += tuple(n for n in trust.schema.names if n.startswith(("signal_p", "signal_r")) and n not in shown)

    def rows(some: list[int]) -> Iterable[dict[str, Any]]:
        for at, row in zip(some, trust.take(pa.array(some, pa.int64())).to_pylist(), strict=True):
            yield {"host": names[at].as_py()} | {k: v for k, v in row.items() if k in shown}

    return TrustSums(sources, tuple(rows(top.tolist())), parts, _worst(rows(worst)))


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
