"""Intervals of a shard to sums of the groups that are shown, and to moments of all groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.dynamics.sums import Looks, Sums
from policies.estimation import estimators
from policies.history.evidence import Evidence
from policies.history.page_state import NO_TIME, US_PER_DAY
from policies.numerics.scrambling import scramble
from policies.numerics.typing_ import FloatArray, IntArray
from transforms.batches.coders import ShardTables
from transforms.batches.counters import published
from transforms.batches.steps import Step
from transforms.batches.tally import Counts
from transforms.batches.zones import zone_of
from transforms.dynamics import tables

PRIOR_SHAPE = 0.5
"""Of rates around the mean of all pages: a page with few crawls is thought to be near it."""

RATE_EDGES: FloatArray = 10.0 ** (np.arange(-32, 25) / 8.0)
"""Between bins of rates, per day."""

SATURATED_FROM = 5
"""Intervals from which a page that changed in all of them counts as saturated."""


@dataclass(frozen=True)
class Shown:
    """Groups that get profiles, and what is known of all pages together.

    Attributes
    ----------
    groups : tuple of (int, str)
        The number of the column, and the value; the first is all pages.
    end_us : int
        The latest instant of all rows.
    mean_per_day : float
        Changes found for each day watched.
    """

    groups: tuple[tuple[int, str], ...]
    end_us: int
    mean_per_day: float


class ChooseGroups(Step):
    """Chooses of each column the groups with most changes. Input: (0, batches of `tables.COUNTED`)."""

    def __init__(self, most: int) -> None:
        self._most = most

    def process(self, element: tuple[int, Iterable[pa.RecordBatch]]) -> Iterator[Shown]:
        whole = pa.Table.from_batches(list(element[1]), tables.COUNTED)
        sums = [("changes", "sum"), ("watched_us", "sum"), ("end_us", "max")]
        by_group = whole.group_by(["by", "group"]).aggregate(sums)
        keys = [("by", "ascending"), ("changes_sum", "descending"), ("group", "ascending")]
        rows = by_group.sort_by(keys)
        by, names = rows.column("by").to_numpy(), rows.column("group").to_pylist()
        rank = np.arange(len(by)) - np.searchsorted(by, by)
        shown = [
            (int(by[i]), names[i])
            for i in np.flatnonzero((rank < self._most) & (rows["changes_sum"].to_numpy() > 0))
        ]
        alls = by == tables.BY_ALL
        changes, days = (rows.column(f"{n}_sum").to_numpy()[alls].sum() for n in ("changes", "watched_us"))
        end = int(rows.column("end_us_max").to_numpy().max(initial=NO_TIME))
        yield Shown(tuple(shown), end, float((changes + 0.5) / (days / US_PER_DAY + 5.0)))


@dataclass(frozen=True)
class Part:
    """Sums of the groups that are shown, and how many of their pages have which rate, (g, rates) int64."""

    sums: Sums
    pages_by_rate: IntArray


class AddParts(beam.CombineFn):
    """Adds up parts of shards."""

    def create_accumulator(self) -> Part | None:
        return None

    def add_input(self, accumulator: Part | None, element: Part) -> Part:
        if accumulator is None:
            return element
        return Part(accumulator.sums.merge(element.sums), accumulator.pages_by_rate + element.pages_by_rate)

    def merge_accumulators(self, accumulators: Iterable[Part | None]) -> Part | None:
        total: Part | None = None
        for part in accumulators:
            total = total if part is None else self.add_input(total, part)
        return total

    def extract_output(self, accumulator: Part | None) -> Part | None:
        return accumulator


class SumShard(Step):
    """Sums one shard. Outputs: "parts", "moments" (RecordBatch of `tables.MOMENTS`), "counts".

    Parameters
    ----------
    zone : str
        Of pages that the catalogue names none for.
    longest_us : int
        See `Sums.add`.
    """

    OUTPUTS: ClassVar = {"parts": Part, "moments": pa.RecordBatch, "counts": dict[str, int]}

    def __init__(self, zone: str, longest_us: int) -> None:
        self._zone, self._longest_us = zone, longest_us

    def process(self, shard: ShardTables, shown: Shown) -> Iterator[Any]:
        counts = Counts()
        part, moments = sum_shard(shard.tables, shown, self._zone, self._longest_us, counts)
        yield part
        yield beam.pvalue.TaggedOutput("moments", moments)
        yield beam.pvalue.TaggedOutput("counts", published(counts.totals()))


def sum_shard(
    found: dict[str, pa.RecordBatch], shown: Shown, zone: str, longest_us: int, counts: Counts
) -> tuple[Part, pa.RecordBatch]:
    """The part of one shard, and the moments of its groups."""
    pages, n = found["pages"], found["pages"].num_rows
    columns = {
        name: found["intervals"].column(name).to_numpy(zero_copy_only=False)
        for name in tables.INTERVALS.names
    }
    columns["to_us"] = np.where(columns["to_us"] == NO_TIME, shown.end_us, columns["to_us"])
    some = columns["to_us"] > columns["from_us"]
    page, begin, end, changed, *last = (c[some] for c in columns.values())
    days = (end - begin) / US_PER_DAY
    rate = rates(page, days, changed, n, shown.mean_per_day)
    zones = _Zones(pages.column("zone"), zone, counts)
    shift = zones.shift_us(page, end)

    def local(at: IntArray) -> IntArray:
        return np.where(at == NO_TIME, NO_TIME, at + shift)

    drawn = pages.column("url_hash").to_numpy()[page] ^ end.astype(np.uint64)
    scramble(drawn)
    dated = last[2]
    dates = np.zeros(n, np.bool_)
    dates[page[dated != NO_TIME]] = True
    looks = Looks(
        begin + shift, end + shift, changed, rate[page], *(local(t) for t in last), dates[page], drawn
    )
    claims = found["claims"]
    of, who, at = (claims.column(c).to_numpy() for c in tables.CLAIMS.names)
    sums = Sums.empty(len(shown.groups))
    by_rate = np.zeros((len(shown.groups), len(RATE_EDGES) + 1), np.int64)
    bins, moments = np.searchsorted(RATE_EDGES, rate), []
    for by in range(sum(name.startswith("by") for name in pages.schema.names) + 1):
        keys = pages.column(f"by{by}") if by else pa.array([""]).take(pa.array(np.zeros(n, np.int64)))
        names = [name for number, name in shown.groups if number == by]
        first = [number for number, _ in shown.groups].index(by) if names else 0
        at_name = (
            pc.fill_null(pc.index_in(keys, pa.array(names, pa.string())), -1).to_numpy().astype(np.int64)
        )
        group = np.where(at_name >= 0, at_name + first, -1)
        sums = sums.add(looks, group[page], longest_us)
        for one in np.unique(who).tolist():
            told = who == one
            sums.tell(one, at[told] + zones.shift_us(of[told], at[told]), group[of[told]])
        mine = group >= 0
        np.add.at(by_rate, (group[mine], bins[mine]), 1)
        moments.append(_moments(by, keys, page, days, changed, rate, pages.column("value").to_numpy()))
    return Part(sums, by_rate), pa.concat_batches(moments)


def rates(page: IntArray, days: FloatArray, changed: np.ndarray, n: int, mean_per_day: float) -> FloatArray:
    """Change rates of pages, (n,) float64, per day: the default estimator at a prior of all pages.

    A changed interval counts as one that has some change in it, so that rates are not those of found changes.
    """
    still = np.bincount(page, np.where(changed, 0.0, days), n)
    start = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(page[changed], minlength=n), out=start[1:])
    gap = days[changed]
    evidence = Evidence(still, np.zeros(n), start, np.ones(len(gap)), gap, gap * gap)
    return estimators.rate(evidence, PRIOR_SHAPE, mean_per_day)[0]


def _moments(
    by: int,
    keys: pa.Array,
    page: IntArray,
    days: FloatArray,
    changed: np.ndarray,
    rate: FloatArray,
    value: FloatArray,
) -> pa.RecordBatch:
    encoded = keys.dictionary_encode()
    code, g, n = encoded.indices.to_numpy(), len(encoded.dictionary), len(keys)
    crawls, changes = (np.bincount(p, minlength=n) for p in (page, page[changed]))
    known, log = np.isfinite(value), np.log(rate)
    whole = (np.ones(n), (crawls == changes) & (crawls >= SATURATED_FROM), crawls, changes)
    exact = (rate, rate * rate, log, log * log, np.bincount(page, days, n), np.where(known, value, 0.0))
    columns = [
        *(np.bincount(code, v, g).astype(np.int64) for v in whole),
        *(np.bincount(code, v, g) for v in exact),
        np.bincount(code, known, g).astype(np.int64),
    ]
    arrays = [pa.array(np.full(g, by, np.int32)), encoded.dictionary, *map(pa.array, columns)]
    return pa.RecordBatch.from_arrays(arrays, schema=tables.MOMENTS)


class _Zones:
    """Time zones of pages. One that does not exist is counted, and its pages go by the zone of all."""

    def __init__(self, column: pa.Array, default: str, counts: Counts) -> None:
        encoded = column.dictionary_encode()
        self._code = encoded.indices.to_numpy()
        self._names = []
        for name in encoded.dictionary.to_pylist():
            try:
                self._names.append(zone_of(name or default).key)
            except ValueError:
                counts.add("pages_with_unknown_timezone", int((self._code == len(self._names)).sum()))
                self._names.append(zone_of(default).key)

    def shift_us(self, page: IntArray, at_us: IntArray) -> IntArray:
        """By how much the clocks of pages are ahead of UTC at instants, (k,) int64."""
        shift = np.zeros(len(page), np.int64)
        of = self._code[page]
        for code, name in enumerate(self._names):
            mine = np.flatnonzero(of == code)
            if name != "UTC" and len(mine):
                utc = pa.array(at_us[mine]).cast(pa.timestamp("us", tz=name))
                shift[mine] = pc.local_timestamp(utc).cast(pa.int64()).to_numpy() - at_us[mine]
        return shift
