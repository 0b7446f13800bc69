"""What a cluster sees of the job: barriers, bytes between stages, the largest element, the hot shard.

Scale 1 is 100,000 pages with 20 observations each in 16 shards.
Counted on Beam's in-process runner at the grouping that every runner must do; no figure is a time.
"""

from __future__ import annotations

import io
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders.coder_impl import create_InputStream
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.runners.portability.fn_api_runner import execution, translations
from apache_beam.runners.worker import bundle_processor

from benchmarks.measuring.rows import Row
from pipelines.door import cli
from pipelines.nightly import nightly
from transforms.kept.carrying import Previous
from transforms.shards.sharding import Layout

OBSERVATIONS_PER_PAGE, SHARDS = 20, 16
PHASES = [
    translations.annotate_downstream_side_inputs,
    translations.fix_side_input_pcoll_coders,
    translations.pack_combiners,
    translations.lift_combiners,
    translations.expand_sdf,
    translations.fix_flatten_coders,
    translations.greedily_fuse,
    translations.sort_stages,
]
"""By which Beam's own local runner fuses. Dataflow's service fuses by the same rules: a stage ends at a
shuffle, and before whatever waits for a side input that the stage itself makes."""
ANY_NIGHT = ["--observations=x", "--budget=1", "--as_of=2026-07-01", "--output=x"]
GIANT = Layout(SHARDS, {0: 2})
PLANS: list[tuple[str, list[str], Layout | None]] = [
    ("", [], None),
    (", a giant host", ["--hosts=x"], GIANT),
    (", signals", ["--signals=x"], None),
    (", a giant host and signals", ["--hosts=x", "--signals=x"], GIANT),
    (", these in 1,000 shards", ["--hosts=x", "--signals=x"], Layout(1000, GIANT.parts)),
]
"""Nights whose plans are counted."""
Sizes = dict[str, dict[bytes, list[int]]]


@contextmanager
def grouped() -> Iterator[Sizes]:
    """Encoded bytes of every element that is grouped in this process, by step and key."""
    sizes: Sizes = defaultdict(lambda: defaultdict(list))

    class Counting(execution.GroupingBuffer):
        step = ""

        def append(self, elements_data: bytes) -> None:
            stream, coder = create_InputStream(elements_data), self._pre_grouped_coder.get_impl()
            while (before := stream.size()) > 0:
                key, _ = coder.decode_from_stream(stream, True).value
                sizes[self.step][self._key_coder.get_impl().encode(key)].append(before - stream.size())
            super().append(elements_data)

    original, get_buffer = execution.GroupingBuffer, execution.BundleContextManager.get_buffer

    def named(self: Any, buffer_id: bytes, transform_id: str) -> Any:
        buffer = get_buffer(self, buffer_id, transform_id)
        if isinstance(buffer, Counting):
            buffer.step = execution.split_buffer_id(buffer_id)[1]
        return buffer

    execution.GroupingBuffer, execution.BundleContextManager.get_buffer = Counting, named  # type: ignore
    try:
        yield sizes
    finally:
        execution.GroupingBuffer = original  # type: ignore
        execution.BundleContextManager.get_buffer = get_buffer  # type: ignore


def barriers(options: PipelineOptions, layout: Layout | None = None) -> tuple[int, int, int]:
    """Fused stages of workers, groupings, and barriers one after the other on the longest path.

    A barrier is a place where the next stage waits for all of the one before: a grouping or a side input.
    """
    pipeline = beam.Pipeline(options=PipelineOptions([]))
    nightly.build_pipeline(pipeline, options, Previous(), layout)
    urns = (
        common_urns.primitives.IMPULSE,
        common_urns.primitives.GROUP_BY_KEY,
        common_urns.primitives.FLATTEN,
    )
    _, stages = translations.create_and_optimize_stages(
        pipeline.to_runner_api(),
        phases=PHASES,
        known_runner_urns=frozenset(urn.urn for urn in urns),
        use_state_iterables=False,
    )
    group, of_runner = urns[1].urn, {urn.urn for urn in urns}
    depth: dict[bytes, int] = {}  # of what a stage leaves for others, by its name
    working = groupings = deepest = 0
    for stage in stages:  # sorted: what a stage takes is known before it
        kinds = {t.spec.urn for t in stage.transforms}
        working += not kinds & of_runner
        groupings += group in kinds
        taken = [t.spec.payload for t in stage.transforms if t.spec.urn == bundle_processor.DATA_INPUT_URN]
        sides = [translations.create_buffer_id(name) for name in stage.side_inputs()]
        reached = max([depth.get(name, 0) for name in taken] + [depth[name] + 1 for name in sides], default=0)
        for t in stage.transforms:
            if t.spec.urn == bundle_processor.DATA_OUTPUT_URN:
                depth[t.spec.payload] = reached + (group in kinds)
        deepest = max(deepest, reached)
    return working, groupings, deepest


def run(scale: float = 1.0) -> list[Row]:
    """Figures of `scale` x 100,000 pages, with even hosts and with one host of 30 % of the pages."""
    pages = max(int(100_000 * scale), 1000)
    rows: list[Row] = []
    for label, words, layout in PLANS:
        stages, groupings, deep = barriers(PipelineOptions([*ANY_NIGHT, *words]), layout)
        rows += [
            Row(f"fused stages of workers{label}", stages, ""),
            Row(f"groupings{label}", groupings, ""),
            Row(f"barriers one after the other{label}", deep, ""),
        ]
    for giant, label in ((0.0, ""), (0.3, ", a host with 30 %")):
        with tempfile.TemporaryDirectory() as name:
            made = f"--pages={pages} --observations={OBSERVATIONS_PER_PAGE * pages} --output={name}/made"
            _quiet("synthesize", *made.split(), f"--giant_host_fraction={giant}")
            arguments = [
                f"--observations={name}/made/logs/*.parquet",
                f"--pages={name}/made/pages.parquet",
                f"--hosts={name}/made/hosts.csv",
                f"--budget={pages / 3}",
                f"--num_shards={SHARDS}",
                "--split_hosts_above=10000",  # as the default does at ten times the pages
                "--as_of=2026-07-01",
                "--runner=DirectRunner",
                f"--output={name}/night",
            ]
            with grouped() as sizes:
                _quiet("nightly", *arguments)
            rows += _figures(sizes, pages, label)
            files = {p: p.stat().st_size for p in Path(name, "night").rglob("shard-*")}
            rows.append(Row(f"largest file written{label}", max(files.values()) / 2**20, "MiB"))
    return rows


def _figures(sizes: Sizes, pages: int, label: str) -> Iterator[Row]:
    observations = OBSERVATIONS_PER_PAGE * pages
    shuffle = next(by_key for step, by_key in sizes.items() if "GroupByShard" in step)
    others = [
        n for step, keys in sizes.items() if "GroupByShard" not in step for k in keys.values() for n in k
    ]
    by_shard = [sum(lengths) for lengths in shuffle.values()]
    yield Row(f"shuffled by shard, per observation{label}", sum(by_shard) / observations, "B", 40.0)
    yield Row(f"all other groupings together{label}", sum(others) / 2**10, "KiB")
    yield Row(f"largest element of them{label}", max(others) / 2**10, "KiB")
    yield Row(f"largest element by shard{label}", max(map(max, shuffle.values())) / 2**20, "MiB")
    yield Row(f"hot shard, all its elements{label}", max(by_shard) / 2**20, "MiB")
    yield Row(f"hot shard over the mean{label}", max(by_shard) * len(by_shard) / sum(by_shard), "x")


def _quiet(*arguments: str) -> None:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        if cli.main(list(arguments)):
            raise RuntimeError(said.getvalue())
