"""The night's kernels called one after the other in one process: what Beam's overhead is measured against.

    python -m benchmarks.night.without_beam --observations 'logs/*' --budget 1e6 --as_of 2026-07-01
        --output out/

takes the options of `recrawl nightly` and prints seconds per step. Nothing is shuffled: a shard's batches are
kept as they were cut, with their hashes, uncompressed.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import defaultdict

import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.nightly.nightly import fold_settings, night_of
from pipelines.nightly.options import Settings
from policies.objectives import objectives
from policies.optimum import search
from transforms.batches.coders import ShardTables
from transforms.batches.urls import HostTable
from transforms.files.shard_files import write_shard
from transforms.intake.sources import ROWS, plan_files, read_split
from transforms.kept.carrying import Carry, find_previous, read_previous_file
from transforms.night.dividing import ShardTotal, divide_slots
from transforms.night.folding import ShardFold
from transforms.night.guards import KINDS
from transforms.night.learning import estimate_shard, learn, solver_block
from transforms.night.sampling import merge_overviews
from transforms.night.scheduling import ScheduledShard
from transforms.rows.normalise import KINDS as ROW_KINDS
from transforms.shards.catalogue import metadata_columns
from transforms.shards.sharding import Layout, partition


class Clock:
    """Seconds per step."""

    def __init__(self) -> None:
        self.steps: dict[str, float] = defaultdict(float)
        self._last = time.perf_counter()

    def add(self, step: str) -> None:
        now = time.perf_counter()
        self.steps[step] += now - self._last
        self._last = now


def run(argv: list[str]) -> dict[str, float]:
    """Run the night; returns seconds per step."""
    settings = Settings(PipelineOptions(argv))
    settings.follow(None)
    clock, table = Clock(), HostTable()
    n = settings.num_shards or 16
    layout = Layout(n, {})
    shards: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    metadata: set[str] = set()
    for kind in KINDS:
        patterns = getattr(settings, kind)
        for split in plan_files(patterns, kind) if patterns else ():
            for tag, batch in read_split(split, ROW_KINDS[kind], None, table):
                clock.add("read")
                if tag != ROWS:
                    continue
                if kind == "pages":
                    metadata |= set(metadata_columns(batch))
                for number, part in partition(batch, layout):
                    shards[number].append(part)
                clock.add("partition")
    previous = find_previous(settings.state, settings.as_of_us, {})
    for element in previous.files:
        for batch in read_previous_file(element):
            for number, part in partition(batch, layout):
                shards[number].append(part)
    clock.add("read state")
    tables: list[ShardTables] = []
    overviews = []
    chosen = fold_settings(settings, layout, previous)
    for number in range(n):
        fold = ShardFold(chosen, shards.pop(number, []))
        clock.add("fold")
        tables.append(fold.tables(number, sorted(metadata)))
        overviews.append(fold.overview())
        clock.add("tables")
        for kind, batch in fold.files():
            write_shard(settings.output, kind, number, n, batch)
        clock.add("write state")
    learned = learn(merge_overviews(overviews), chosen.clock, settings.weight_by)
    clock.add("prior")
    estimated = [estimate_shard(t, learned, None, chosen.clock) for t in tables]
    clock.add("estimate")
    del tables
    objective = objectives.get(settings.objective)
    blocks = [solver_block(e) for e in estimated]
    found = [search.survey(b, objective, settings.budget_per_day) for b in blocks]
    total = found[0]
    for part in found[1:]:
        total = total.merge(part)
    state = search.begin(total, objective, settings.budget_per_day)
    for _ in range(search.ROUNDS):
        demands = [search.demand(b, objective, state) for b in blocks]
        demand = demands[0]
        for other in demands[1:]:
            demand = demand.merge(other)
        state = search.advance(state, demand)
    result = search.finish(state)
    clock.add("search")
    night = night_of(settings, layout)
    totals = [ShardTotal(i, search.shard_total_per_day(b, objective, result)) for i, b in enumerate(blocks)]
    plan = divide_slots(totals, night, Carry())
    for e in estimated:
        clock.add("quotas")
        scheduled = ScheduledShard(night, e, result, plan)
        clock.add("allocate and sequence")
        for kind, batch in scheduled.files():
            write_shard(settings.output, kind, e.shard, n, batch)
            clock.add(f"write {kind}")
    return clock.steps


if __name__ == "__main__":
    begun = time.perf_counter()
    for step, seconds in run(sys.argv[1:]).items():
        print(f"{step:<24}{seconds:8.2f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{'all':<24}{time.perf_counter() - begun:8.2f} s, peak {peak:.2f} GiB")
