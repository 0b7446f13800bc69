"""The job's graph as Dataflow gets it: how it fuses, what it shuffles and broadcasts, how large it is."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2

from pipelines.nightly import nightly
from policies.optimum import search
from tests.pipelines.jobs import at, crawls, write_rows
from tests.pipelines.jobs import nightly as run_night
from tests.templates import graph, launching
from tests.templates.launching import IMAGE, needs_client
from transforms.files.attempts import MARK

MANY_SHARDS = 1000
ROWS = {"RecordBatchCoder", "ShardTablesCoder"}  # how rows travel; all else is small
# Side inputs by the step that makes them, and why they are small.
BROADCAST = {
    "ReadInputs/ReadFiles/": "names of columns, a list a catalogue file",
    "LearnPriors/FitPriors": "a few parameters",
    "LearnGroupMeans/": "a mean a group",
    "SolveMultiplier/": "sums over shards, a few kilobytes, and the few pages that are not smooth",
    "SolveWithoutSignals/": "the same",
    "DivideSlots/": "two numbers a shard",
    "GatherCounts": "a few dozen counters a shard and file",
    "GatherFiles": "name and checksum of seven files a shard",
    "SequenceCrawls/": "a report of a few numbers a shard",
}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """All inputs of a night, with a night before it."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = [row for i in range(8) for row in crawls(f"https://{i}.example/", "ABBC", first_day=20.0 + i / 9)]
    pages = [{"url": f"https://{i}.example/", "section": "ab"[i % 2]} for i in range(8)]
    first = run_night(folder, "first", observations=rows, pages=pages, group_columns="section", as_of=at(29))
    assert first.committed, first.complaints
    later = {
        "observations": [row for i in range(8) for row in crawls(f"https://{i}.example/", "C", 29.5)],
        "pages": pages,
        "requests": [{"url": "https://1.example/", "day": "2026-06-29", "clicks": 3}],
        "hosts": [{"host": "1.example", "max_per_day": 5}],
        "signals": [{"url": "https://1.example/", "signalled_at": at(29.6), "source": "feed"}],
    }
    found = {kind: str(write_rows(folder / f"{kind}.jsonl", r)) for kind, r in later.items()}
    return found | {"state": str(first.folder / "state"), "output": str(folder / "second")}


def arguments(inputs: dict[str, str]) -> list[str]:
    options = inputs | {
        "budget": "10",
        "as_of": at(30),
        "group_columns": "section",
        "num_shards": MANY_SHARDS,
    }
    return [f"--{name}={value}" for name, value in options.items()]


def portable(inputs: dict[str, str]) -> beam_runner_api_pb2.Pipeline:
    options = PipelineOptions(arguments(inputs))
    pipeline = beam.Pipeline(options=PipelineOptions([]))
    nightly.build_pipeline(pipeline, options)
    return pipeline.to_runner_api()


@pytest.fixture(scope="module")
def launched(inputs: dict[str, str]) -> launching.Launched:
    """A launch of the template."""
    return launching.launch(
        arguments(inputs),
        machine_type="n2-highmem-4",
        num_workers=3,
        max_num_workers=20,
        disk_size_gb=50,
        network="crawling",
        subnetwork="regions/europe-west1/subnetworks/crawling",
    )


@pytest.fixture(scope="module", params=["portable", pytest.param("dataflow", marks=pytest.mark.dataflow)])
def pipeline(request: pytest.FixtureRequest, inputs: dict[str, str]) -> beam_runner_api_pb2.Pipeline:
    """The graph as Beam builds it, and as Beam's Dataflow runner sends it."""
    if request.param == "portable":
        return portable(inputs)
    if launching.apiclient is None:
        pytest.skip("apache-beam[gcp] is not installed here; `make test-dataflow` has it")
    return request.getfixturevalue("launched").pipeline


@pytest.fixture(scope="module")
def fused(pipeline: beam_runner_api_pb2.Pipeline) -> list[frozenset[str]]:
    return graph.stages(pipeline)


def test_stages_are_few(fused):
    """Stages are barriers; on a service each costs seconds. A round is one."""
    # Where signals are used there are two searches: the first tells whose signals the second follows.
    for name in ("SolveMultiplier", "SolveWithoutSignals"):
        rounds = [s for s in fused if any(step.startswith(name) and "[" in step for step in s)]
        assert len(rounds) == search.ROUNDS
    without = [s for s in fused if any(step.startswith("SolveWithoutSignals") for step in s)]
    # Their first step is fused into the stage that folds pages, which is there without them, too.
    groups = [s for s in fused if s and all(step.startswith("LearnGroupMeans") for step in s)]
    assert len(groups) <= 9
    # With many shards samples and surveys are combined in two steps.
    assert len(fused) - len(rounds) - len(groups) - len(without) <= 26, [sorted(s) for s in fused]


def test_no_step_runs_in_two_stages(fused):
    """A step that is fused into every consumer's stage would be computed as often."""
    steps = [step for stage in fused for step in stage if not step.startswith("GatherFiles")]
    assert len(steps) == len(set(steps))


def test_rows_are_shuffled_once(pipeline):
    """Observations and all else of a shard travel together; rejected rows on their own."""
    with_rows = {name for name, coders in graph.shuffles(pipeline).items() if coders & ROWS}
    assert with_rows == {"GroupByShard", "WriteRejected/GroupRejected"}


def test_reading_is_spread_over_workers(fused):
    """Between the one element that names the inputs and the files that are read lies a shuffle."""
    planning, reading = (graph.stage_of(fused, f"ReadInputs/{n}") for n in ("PlanReads", "ReadFiles"))
    assert planning != reading and not any(s.startswith("ReadInputs/NameInputs") for s in reading)
    assert "ReadInputs/TakeReads" in reading  # it begins behind the shuffle


def test_folding_is_one_stage_behind_the_shuffle_and_writes_the_state(fused):
    """The state's rows go from the fold to their file, without another shuffle."""
    folding = graph.stage_of(fused, "FoldHistory")
    assert graph.stage_of(fused, "WriteState") == folding
    for other in ("ReadInputs/ReadFiles", "GroupByShard", "EstimateParameters", "SequenceCrawls"):
        assert graph.stage_of(fused, other) != folding


def test_rounds_read_estimates_and_make_none(fused):
    """Every round starts from the estimates as they were written down: nothing before it runs again."""
    estimating = graph.stage_of(fused, "EstimateParameters")
    for i in range(search.ROUNDS):
        demand = graph.stage_of(fused, f"SolveMultiplier/Demand[{i}]")
        assert demand != estimating
        assert demand == {f"SolveMultiplier/Demand[{i}]"}


def test_sequencing_writes_its_files_in_its_own_stage(fused):
    sequencing = graph.stage_of(fused, "SequenceCrawls")
    assert graph.stage_of(fused, "WriteNight") == sequencing


def test_the_manifest_is_the_last_stage(fused):
    assert any(s.startswith("WriteManifest") for s in fused[-1])


def test_side_inputs_are_results_and_never_rows(pipeline):
    """A side input is sent to every worker whole."""
    found = graph.side_inputs(pipeline)
    assert {s.consumer.split("/")[0].split("[")[0] for s in found} >= {
        "FoldHistory",
        "EstimateParameters",
        "SolveMultiplier",
        "SequenceCrawls",
        "WriteManifest",
    }
    for side in found:
        assert not side.coders & ROWS, side
        assert side.producer.startswith(tuple(BROADCAST)), side


def test_the_graph_is_small(pipeline):
    assert pipeline.ByteSize() < 2**20  # the service takes 10 MB
    assert len(pipeline.components.transforms) < 300


def test_the_graph_does_not_grow_with_shards(inputs):
    few, many = (portable(inputs | {"num_shards": n}).components for n in ("1", str(MANY_SHARDS)))
    assert len(few.transforms) == len(many.transforms)


def test_the_checks_see_what_they_look_for():
    """Rows that are broadcast, and a step behind a shuffle."""
    pipeline = beam.Pipeline(options=PipelineOptions([]))
    batch = pa.RecordBatch.from_pydict({"x": [1]})
    rows = (
        pipeline
        | "One" >> beam.Create([1])
        | "Rows" >> beam.Map(lambda _: batch).with_output_types(pa.RecordBatch)
    )
    keyed = pipeline | "Pairs" >> beam.Create([(1, 2)]) | "Before" >> beam.Map(lambda pair: pair)
    grouped = keyed | "Group" >> beam.GroupByKey()
    _ = grouped | "After" >> beam.Map(lambda _, all_rows: len(all_rows), beam.pvalue.AsList(rows))
    proto = pipeline.to_runner_api()
    (side,) = graph.side_inputs(proto)
    assert (side.consumer, side.producer) == ("After", "Rows") and side.coders & ROWS
    fused = graph.stages(proto)
    assert graph.stage_of(fused, "Before") == graph.stage_of(fused, "Pairs/Map(decode)")
    assert graph.stage_of(fused, "Before") != graph.stage_of(fused, "After")
    assert graph.stage_of(fused, "Rows") != graph.stage_of(fused, "After")


@needs_client
def test_the_job_fits_the_service_and_says_what_was_asked(launched, inputs):
    assert launched.code == 0
    request = launched.staged[launching.JOB_OBJECT]
    assert len(request) < 2**20  # the service takes 20 MB
    job = launched.job
    assert job["type"] == "JOB_TYPE_BATCH"
    (pool,) = job["environment"]["workerPools"]
    assert (pool["numWorkers"], pool["autoscalingSettings"]["maxNumWorkers"]) == (3, 20)
    assert (pool["machineType"], pool["diskSizeGb"]) == ("n2-highmem-4", 50)
    assert (pool["network"], pool["subnetwork"].rsplit("/", 1)[1]) == ("crawling", "crawling")
    assert "zone" not in pool  # a zone keeps a job from the service's own shuffle at its full size
    options = job["environment"]["sdkPipelineOptions"]["options"]
    assert options["region"] == "europe-west1"
    assert {k: options[k] for k in inputs} == inputs
    assert options.get("setup_file") is None and options.get("requirements_file") is None


@needs_client
def test_workers_run_the_image_of_the_template(launched):
    (pool,) = launched.job["environment"]["workerPools"]
    assert [i["containerImage"] for i in pool["sdkHarnessContainerImages"]] == [IMAGE]
    docker = [
        beam_runner_api_pb2.DockerPayload.FromString(e.payload).container_image
        for e in launched.pipeline.components.environments.values()
    ]
    assert docker == [IMAGE]
    agent = launched.job["environment"]["userAgent"]
    assert agent == {"name": "Apache Beam Python 3.11 SDK", "version": beam.__version__}


@needs_client
def test_a_launch_only_hands_over(launched, inputs):
    """Nothing has run: when the launcher ends, the output has the mark of its try alone."""
    output = Path(inputs["output"])
    assert [p.name for p in output.rglob("*") if p.is_file()] == [MARK]
