"""The job as a graph: coders of its collections, names of its steps."""

from __future__ import annotations

import re

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.pipeline_context import PipelineContext

from pipelines.nightly import nightly
from policies.optimum import search
from transforms.batches.coders import RecordBatchCoder, ShardTablesCoder
from transforms.kept.carrying import Previous
from transforms.shards.sharding import Layout

OPTIONS = {
    "plain": ["--observations=log.parquet"],
    "everything": [
        f"--{kind}=x.parquet"
        for kind in ("observations", "requests", "signals", "sitemaps", "pages", "hosts")
    ]
    + ["--group_columns=section", "--state=state"],
    "giants": ["--observations=log.parquet", "--host_max_per_day=100"],
}
STATE = Previous((("state", "state/shard-00000-of-00001.parquet"),))
PREVIOUS = {"plain": Previous(), "everything": STATE, "giants": Previous()}
LAYOUT = {"giants": Layout(16, {7: 16})}


@pytest.fixture(scope="module", params=OPTIONS)
def proto(request: pytest.FixtureRequest):
    pipeline = beam.Pipeline(options=PipelineOptions([]))
    options = PipelineOptions([*OPTIONS[request.param], "--budget=1", "--as_of=2026-07-01", "--output=o"])
    nightly.build_pipeline(pipeline, options, PREVIOUS[request.param], LAYOUT.get(request.param))
    return pipeline.to_runner_api()


def _producer(proto, collection: str) -> str:
    leaves = [t for t in proto.components.transforms.values() if not t.subtransforms]
    return next(t.unique_name for t in leaves if collection in t.outputs.values())


def _coders(proto) -> dict[str, tuple[object, list[str]]]:
    """By step: the coder of what it gives, and the classes of all coders inside it."""
    context = PipelineContext(proto.components)
    found = {}
    for name, collection in proto.components.pcollections.items():
        coder = context.coders.get_by_id(collection.coder_id)
        todo, classes = [coder], []
        while todo:
            current = todo.pop()
            classes.append(type(current).__name__)
            todo += getattr(current, "_coders", None) or current._get_component_coders() or []
        found[f"{_producer(proto, name)} {name}"] = (coder, classes)
    return found


# What may be pickled: one small value a file, a shard or a round. Batches of rows must never be among them.
_SMALL = re.compile(
    r"(ReadInputs/(Name|Plan|Spread|Take)|LearnPriors|LearnGroupMeans|ShareHostLimits|SolveMultiplier|SolveWithoutSignals|DivideSlots|"
    r"Once|Write|GatherFiles|FoldHistory/|SequenceCrawls/)"
)
_PICKLING = {"PickleCoder", "FastPrimitivesCoder", "DillCoder", "CloudpickleCoder"}


def test_batches_have_their_own_coder(proto):
    """Nothing that carries rows falls back to pickle."""
    batches = {
        k: c for k, c in _coders(proto).items() if "RecordBatchCoder" in c[1] or "ShardTablesCoder" in c[1]
    }
    for step in ("GroupByShard", "FoldHistory", "EstimateParameters", "SequenceCrawls"):
        assert any(step in k for k in batches), step
    for name, (_, classes) in _coders(proto).items():
        if _PICKLING & set(classes):
            assert name not in batches and _SMALL.match(name), (name, classes)


def test_hints_reach_every_tagged_output(proto):
    """The folder's and the sequencer's outputs are batches but for their counts."""
    expected = {"FoldHistory": 2, "SequenceCrawls": 1, "EstimateParameters": 2}
    for step, n in expected.items():
        own = [c for k, (_, c) in _coders(proto).items() if k.startswith(step)]
        assert sum(bool({"RecordBatchCoder", "ShardTablesCoder"} & set(c)) for c in own) == n, (step, own)


def test_the_shuffle_of_rows_is_keyed_by_shard(proto):
    (coder, classes), *_ = [c for k, c in _coders(proto).items() if k.startswith("GroupByShard")]
    assert "VarIntCoder" in classes and "RecordBatchCoder" in classes and coder.is_kv_coder()


def test_coders_are_deterministic():
    assert RecordBatchCoder().is_deterministic() and ShardTablesCoder().is_deterministic()


def test_steps_are_camel_case(proto):
    """Verb phrases; rounds carry their number. Names that Beam makes up inside a step are its own."""
    own = re.compile(r"^[A-Z][A-Za-z0-9]*(\[\d+\])?$")
    names = {t.unique_name.split("/")[0] for t in proto.components.transforms.values()}
    names = {n for n in names if n and not n.startswith("ref_")}  # the root has no name
    assert not [n for n in names if not own.match(n)], names
    assert {
        "FoldHistory",
        "EstimateParameters",
        "SolveMultiplier",
        "SequenceCrawls",
        "WriteManifest",
    } <= names


def test_rounds_are_unrolled(proto):
    names = {t.unique_name for t in proto.components.transforms.values()}
    assert f"SolveMultiplier/Demand[{search.ROUNDS - 1}]" in names
    assert f"SolveMultiplier/Demand[{search.ROUNDS}]" not in names


@pytest.mark.parametrize(
    "num_shards, samples, surveys", [(64, 1, 1), (65, 2, 1), (1024, 2, 1), (1025, 2, 2), (100_000, 4, 2)]
)
def test_no_worker_is_given_what_all_of_many_shards_say(num_shards, samples, surveys):
    """Samples of pages have 5 MB, surveys 320 kB: those of 64 and of 1,024 shards go to one worker."""
    pipeline = beam.Pipeline(options=PipelineOptions([]))
    options = [*OPTIONS["plain"], "--budget=1", "--as_of=2026-07-01", "--output=o"]
    nightly.build_pipeline(
        pipeline, PipelineOptions([*options, f"--num_shards={num_shards}"]), PREVIOUS["plain"]
    )
    names = [t.unique_name for t in pipeline.to_runner_api().components.transforms.values()]
    for combined, steps in (
        ("LearnPriors/MergeOverviews/", samples),
        ("SolveMultiplier/AddSurveys/", surveys),
    ):
        found = [n for n in names if n.startswith(combined) and n.rpartition("/")[2].startswith("Gather")]
        assert len(found) == steps, names


@pytest.mark.parametrize("flags, steps", [(["--host_groups"], 2), ([], 1)])
def test_surveys_of_groups_of_hosts_are_many(flags, steps):
    """A shard has one for each group that it has pages of, where a single giant host has one."""
    pipeline = beam.Pipeline(options=PipelineOptions([]))
    words = ["--observations=x", "--hosts=x", "--budget=1", "--as_of=2026-07-01", "--output=o", *flags]
    nightly.build_pipeline(pipeline, PipelineOptions(words), Previous(), Layout(65, {0: 2}))
    names = [t.unique_name for t in pipeline.to_runner_api().components.transforms.values()]
    of_surveys = [n.rpartition("/")[2] for n in names if n.startswith("ShareHostLimits/AddSurveys/")]
    assert sum(name.startswith("Gather") for name in of_surveys) == steps, of_surveys
