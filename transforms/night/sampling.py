"""A bounded sample of pages from which the priors are learned, the same for any number of shards.

Pages of a host are taken in layers of `LAYER_PAGES`, in order of their hash; the sample is the first
`SAMPLE_PAGES` pages by (layer, host_hash, url_hash). Many hosts give a few pages each; a single host gives
them all. A host lies in one shard, so a shard knows the layers of its pages; of a giant host that is split
over shards the first pages by hash are kept apart until those of all its parts are together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import apache_beam as beam
import numpy as np
import pyarrow as pa

from policies.estimation import prior
from policies.history.evidence import Evidence
from policies.numerics.lookup import places
from policies.numerics.typing_ import FloatArray, Int32Array, IntArray
from transforms.batches.coders import ShardTables
from transforms.kept.protocol import Sums, merge_sums
from transforms.night import signal_sample

SAMPLE_PAGES = 16_384
LAYER_PAGES = 16
MAX_GIANT_PAGES = 8 * SAMPLE_PAGES

SAMPLE = pa.schema(
    [
        ("layer", pa.int32()),
        ("host_hash", pa.uint64()),
        ("url_hash", pa.uint64()),
        ("group_hash", pa.uint64()),
        ("exposure_days", pa.float64()),
        ("dated_changes", pa.float64()),
        ("bin_weight", pa.list_(pa.float64())),
        ("bin_days", pa.list_(pa.float64())),
        ("bin_days_squared", pa.list_(pa.float64())),
        ("clicks", pa.float64()),
        ("impressions", pa.float64()),
        ("first_seen_day", pa.int32()),
        *signal_sample.COLUMNS,
    ]
)


def evidence_of(pages: pa.RecordBatch, bins: pa.RecordBatch) -> Evidence:
    """The evidence in the tables of a folded shard."""
    return Evidence(
        pages.column("exposure_days").to_numpy(),
        pages.column("dated_changes").to_numpy(),
        np.concatenate([[0], np.cumsum(pages.column("n_bins").to_numpy(), dtype=np.int64)]),
        bins.column("weight").to_numpy(),
        bins.column("days").to_numpy(),
        bins.column("days_squared").to_numpy(),
    )


def pages_per_giant(giants: int) -> int:
    """How many pages of each giant host are kept until all shards are together."""
    return min(SAMPLE_PAGES, MAX_GIANT_PAGES // max(giants, 1))


def sample_shard(folded: ShardTables, giants: Collection[int] = ()) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """A shard's part of the sample: rows of `SAMPLE`.

    Returns
    -------
    sample : RecordBatch
        Of whole hosts, at most `SAMPLE_PAGES` rows.
    giant_sample : RecordBatch
        Of the hosts `giants`, `pages_per_giant` rows each at most.
    """
    hosts = folded.tables["hosts"]
    sizes = hosts.column("n_pages").to_numpy()
    rank = places(sizes)
    layer = (rank // LAYER_PAGES).astype(np.int32)
    giant_rows = np.zeros(0, np.int64)
    if giants:
        split = np.isin(hosts.column("host_hash").to_numpy(), np.array(sorted(giants), np.uint64))
        is_giant = np.repeat(split, sizes)
        giant_rows = np.flatnonzero(is_giant & (rank < pages_per_giant(len(giants))))
        layer[is_giant] = np.iinfo(np.int32).max
    whole = layer[layer < np.iinfo(np.int32).max]
    enough = np.cumsum(np.bincount(whole, minlength=1))
    last = int(np.searchsorted(enough, SAMPLE_PAGES))
    rows = np.flatnonzero(layer <= min(last, np.iinfo(np.int32).max - 1))
    rows = rows[np.argsort(layer[rows], kind="stable")][:SAMPLE_PAGES]  # rows are in order of the hashes
    return _rows(folded, rows, layer[rows]), _rows(folded, giant_rows, np.zeros(len(giant_rows), np.int32))


def _rows(folded: ShardTables, rows: IntArray, layer: Int32Array) -> pa.RecordBatch:
    pages, hosts = folded.tables["pages"], folded.tables["hosts"]
    chosen = evidence_of(pages, folded.tables["bins"]).take(rows)
    take = pa.array(rows)
    offsets = pa.array(chosen.bin_start.astype(np.int32))

    def listed(values: np.ndarray) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(values))

    columns = {
        "layer": pa.array(layer),
        "host_hash": hosts.column("host_hash").take(pages.column("host_code").take(take)),
        "bin_weight": listed(chosen.bin_weight),
        "bin_days": listed(chosen.bin_days),
        "bin_days_squared": listed(chosen.bin_days_squared),
        **signal_sample.sampled_signals(folded, rows),
    }
    for name in SAMPLE.names:
        if name not in columns:
            columns[name] = pages.column(name).take(take)
    return pa.RecordBatch.from_pydict({n: columns[n] for n in SAMPLE.names}, schema=SAMPLE)


def merge_samples(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The sample of several parts of the pages; the order of the parts does not matter."""
    whole = pa.concat_batches([pa.RecordBatch.from_pylist([], SAMPLE), *parts])
    keys = [whole.column(n).to_numpy() for n in ("url_hash", "host_hash", "layer")]
    return whole.take(pa.array(np.lexsort(keys)[:SAMPLE_PAGES]))


def merge_giants(parts: list[pa.RecordBatch], most: int) -> pa.RecordBatch:
    """The first `most` pages of every giant host, with their layers as far as they are known."""
    whole = pa.concat_batches([pa.RecordBatch.from_pylist([], SAMPLE), *parts])
    host = whole.column("host_hash").to_numpy()
    order = np.lexsort((whole.column("url_hash").to_numpy(), host))
    first = np.flatnonzero(np.diff(host[order], prepend=host[order][:1] + np.uint64(1)))
    rank = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    kept = rank < most
    whole = whole.take(pa.array(order[kept]))
    layer = pa.array((rank[kept] // LAYER_PAGES).astype(np.int32))
    return whole.set_column(0, SAMPLE.field("layer"), layer)


@dataclass(frozen=True)
class Overview:
    """What is known of all pages together before anything is estimated.

    Attributes
    ----------
    sample, giant_sample : RecordBatch of `SAMPLE`
        Pages of whole hosts, and those of hosts that are split.
    pages_per_giant : int
    rows_by_day : dict of int to int
        Rows of tonight's crawl log on each day, days since 1970-01-01.
    has_volatile : bool
        Whether any page may be volatile, see `policies.history.volatile`.
    sums : dict of type to object
        What statistics say, see `transforms.kept.protocol.Statistic.sums`.
    """

    sample: pa.RecordBatch
    giant_sample: pa.RecordBatch
    pages_per_giant: int = SAMPLE_PAGES
    rows_by_day: dict[int, int] = field(default_factory=dict)
    has_volatile: bool = False
    sums: Sums = field(default_factory=dict)

    @property
    def whole_sample(self) -> pa.RecordBatch:
        """The sample when all shards are in: only then are the layers of giant hosts' pages known."""
        return merge_samples([self.sample, self.giant_sample])


def merge_overviews(parts: list[Overview]) -> Overview:
    """The overview of several parts of the pages."""
    most = min((p.pages_per_giant for p in parts), default=SAMPLE_PAGES)
    rows_by_day: Counter[int] = Counter()
    for part in parts:
        rows_by_day.update(part.rows_by_day)
    return Overview(
        merge_samples([p.sample for p in parts]),
        merge_giants([p.giant_sample for p in parts], most),
        most,
        dict(sorted(rows_by_day.items())),
        any(p.has_volatile for p in parts),
        merge_sums(p.sums for p in parts),
    )


class MergeOverviews(beam.CombineFn):
    """Merges overviews; an accumulator is a list of at most `_FANIN` of them."""

    _FANIN = 8

    def create_accumulator(self) -> list[Overview]:
        return []

    def add_input(self, accumulator: list[Overview], element: Overview) -> list[Overview]:
        accumulator = [*accumulator, element]
        return [merge_overviews(accumulator)] if len(accumulator) >= self._FANIN else accumulator

    def merge_accumulators(self, accumulators: Iterable[list[Overview]]) -> list[Overview]:
        merged: list[Overview] = []
        for accumulator in accumulators:
            for element in accumulator:
                merged = self.add_input(merged, element)
        return merged

    def compact(self, accumulator: list[Overview]) -> list[Overview]:
        return [merge_overviews(accumulator)] if len(accumulator) > 1 else accumulator

    def extract_output(self, accumulator: list[Overview]) -> Overview:
        return merge_overviews(accumulator)


def sampled_evidence(sample: pa.RecordBatch) -> tuple[Evidence, IntArray]:
    """The evidence of the pages in a sample, and their groups."""

    def flat(name: str) -> np.ndarray:
        return sample.column(name).flatten().to_numpy()

    start = np.asarray(sample.column("bin_weight").offsets).astype(np.int64)
    evidence = Evidence(
        sample.column("exposure_days").to_numpy(),
        sample.column("dated_changes").to_numpy(),
        start - start[0],
        flat("bin_weight"),
        flat("bin_days"),
        flat("bin_days_squared"),
    )
    _, group = np.unique(sample.column("group_hash").to_numpy(), return_inverse=True)
    return evidence, group.astype(np.int64)


def sampled_rates(sample: pa.RecordBatch, change: prior.Prior) -> FloatArray:
    evidence, group = sampled_evidence(sample)
    return prior.estimate(evidence, group, int(group.max(initial=-1)) + 1, change).change_rate_per_day
