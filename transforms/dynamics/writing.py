"""Sums to profiles of each group that is shown, and all results to files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from policies.dynamics import groups, profiles
from policies.dynamics.profiles import CORRECTED, FOUND, Profile
from policies.dynamics.sums import Sums
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.batches.coders import ShardTables
from transforms.batches.counters import added
from transforms.batches.steps import Step
from transforms.dynamics import tables
from transforms.dynamics.summing import RATE_EDGES, Part, Shown
from transforms.files.sinks import FileInfo, write_file, write_json
from transforms.night.guards import check_share

RESULTS = "results.json"
ALL = "all"
_HOURS, _DAYS = 24, 7
_RATES: FloatArray = np.sqrt(
    np.append(RATE_EDGES[:1] / 1.2, RATE_EDGES) * np.append(RATE_EDGES, RATE_EDGES[-1:] * 1.2)
)


class MakeProfiles(Step):
    """Profiles of one group that is shown. Input: its number; output: ShardTables of that number."""

    def __init__(self, by: Sequence[str]) -> None:
        self._by = (ALL, *by)

    def process(self, number: int, part: Part, shown: Shown) -> Iterator[ShardTables]:
        by, name = shown.groups[number]
        yield ShardTables(number, made(part, number, self._by[by], name if by else ALL))


def made(part: Part, number: int, by: str, name: str) -> dict[str, pa.RecordBatch]:
    """Tables of one group: "hours", "weekdays" and "intervals"."""
    sums = part.sums
    hours, weekdays = [tables.HOURS.empty_table()], [tables.WEEKDAYS.empty_table()]
    for week in profiles.weeks(sums, number):
        for rows, schema, profile, bins in (
            (hours, tables.HOURS, week.hours, _HOURS),
            (weekdays, tables.WEEKDAYS, week.weekdays, _DAYS),
        ):
            columns = _keys(by, name, profile.estimate, bins) | {
                schema.names[3]: np.arange(bins),
                "share": profile.share,
                "share_error": profile.error,
                "probability": _probability(profile, sums, part.pages_by_rate[number], number),
                "changes": np.full(bins, profile.changes),
                "told": np.full(bins, profile.told),
            }
            rows.append(_table(columns, schema))
    waits = [tables.WAITS.empty_table()]
    for found in profiles.waits(sums, number):
        bins = len(found.share)
        columns = _keys(by, name, found.estimate, bins) | {
            "from_hours": found.edges_hours[:-1],
            "to_hours": found.edges_hours[1:],
            "share": found.share,
            "share_error": found.error,
            "share_per_hour": found.per_hour,
            "peak": found.peak,
            "changes": np.full(bins, found.changes),
            "resolution_hours": np.full(bins, found.resolution_hours),
        }
        waits.append(_table(columns, tables.WAITS))
    whole = {"hours": hours, "weekdays": weekdays, "intervals": waits}
    return {key: pa.concat_tables(some).combine_chunks().to_batches()[0] if len(some) > 1
            else pa.RecordBatch.from_pylist([], some[0].schema) for key, some in whole.items()}  # fmt: skip


def _keys(by: str, name: str, estimate: str, bins: int) -> dict[str, Any]:
    return {"by": [by] * bins, "group": [name] * bins, "estimate": [estimate] * bins}


def _table(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array(columns[f.name], f.type, from_pandas=True) for f in schema], schema=schema)


def _probability(profile: Profile, sums: Sums, pages: IntArray, number: int) -> FloatArray:
    """Of a change of a page in the bin: its mean over pages, or by crawls, or not known."""
    bins = len(profile.share)
    if profile.estimate == CORRECTED:
        changes = profile.share * (1.0 if bins == _HOURS else _DAYS)
        share = pages / max(int(pages.sum()), 1)
        result: FloatArray = -np.expm1(-_RATES[:, None] * changes).T @ share
        return result
    if profile.estimate != FOUND:
        return np.full(bins, np.nan)
    found, crawls = (
        v[number].sum(axis=0).reshape(_DAYS, _HOURS).sum(axis=0 if bins == _HOURS else 1)
        for v in (sums.found, sums.crawls)
    )
    return np.divide(found, crawls, out=np.full(bins, np.nan), where=crawls > 0)


class WriteDynamics(Step):
    """Writes all tables and `results.json`. Input: one element, anything."""

    def __init__(self, output: str, by: Sequence[str], options: dict[str, Any], most_rejected: float) -> None:
        self._output, self._by, self._options, self._most = output, (ALL, *by), options, most_rejected

    def process(
        self,
        _: Any,
        profiles_of: Sequence[ShardTables],
        moments: Sequence[pa.RecordBatch],
        counts: Sequence[dict[str, int]],
        files: Sequence[FileInfo],
    ) -> Iterator[FileInfo]:
        total = added(counts)
        rejected, accepted = (
            sum(n for k, n in total.items() if k.endswith(f"s_{w}")) for w in ("rejected", "accepted")
        )
        check_share(rejected, rejected + accepted, self._most, total, self._output)
        ordered = sorted(profiles_of, key=lambda s: s.shard)
        for name, schema in (
            ("hours", tables.HOURS),
            ("weekdays", tables.WEEKDAYS),
            ("intervals", tables.WAITS),
        ):
            whole = pa.Table.from_batches([s.tables[name] for s in ordered], schema)
            yield _write(self._output, name, whole)
        of_groups, compared = group_table(moments, self._by)
        yield _write(self._output, "groups", of_groups)
        about = {
            "counters": dict(sorted(total.items())),
            "compared": compared,
            "options": self._options,
            "rejected": [f.path for f in sorted(files, key=lambda f: f.path)],
        }
        yield write_json(self._output, RESULTS, about)


def _write(folder: str, name: str, table: pa.Table) -> FileInfo:
    return write_file(
        folder, f"{name}.parquet", lambda out: pq.write_table(table, out, compression="zstd"), table.num_rows
    )


def group_table(
    moments: Iterable[pa.RecordBatch], by_names: Sequence[str]
) -> tuple[pa.Table, list[dict[str, Any]]]:
    """groups.parquet, and how groups of each column differ and go with an outside number."""
    whole = pa.Table.from_batches(list(moments), tables.MOMENTS)
    # In an order of their values, so that no runner decides in which sums are rounded.
    whole = whole.sort_by([(name, "ascending") for name in tables.MOMENTS.names])
    names = tables.MOMENTS.names[2:]
    summed = whole.group_by(["by", "group"], use_threads=False).aggregate([(name, "sum") for name in names])
    summed = summed.sort_by([("by", "ascending"), ("group", "ascending")])
    v = {name: summed.column(f"{name}_sum").to_numpy() for name in names}
    by, n = summed.column("by").to_numpy(), v["pages"]
    rate = v["rate"] / n
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.maximum(v["rate_squares"] / n - rate * rate, 0.0) * n / (n - 1)
        value = np.where(v["valued"] > 0, v["value"] / v["valued"], np.nan)
        columns = {
            "by": [by_names[b] for b in by.tolist()],
            "group": [
                ALL if not b else g for b, g in zip(by.tolist(), summed["group"].to_pylist(), strict=True)
            ],
            "pages": n,
            "saturated_pages": v["saturated"],
            "intervals": v["intervals"],
            "changes_found": v["changes"],
            "found_per_crawl": v["changes"] / v["intervals"],
            "found_per_day": v["changes"] / v["watched_days"],
            "rate_per_day": rate,
            "rate_error": np.where(n > 1, np.sqrt(spread / n), np.nan),
            "value": value,
        }
    compared = []
    for number, name in list(enumerate(by_names))[1:]:
        mine = by == number
        found = groups.correlation(rate[mine], value[mine], n[mine])
        between = groups.share_between(n[mine], v["log_rate"][mine], v["log_rate_squares"][mine])
        compared.append(
            {
                "by": name,
                "groups": int(mine.sum()),
                "share_between": between,
                "correlation": None if found is None else asdict(found),
            }
        )
    return _table(columns, tables.GROUPS), compared
