"""What a runner would make of a job's graph: fused stages, shuffles, side inputs."""

from __future__ import annotations

from dataclasses import dataclass

from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.runners.portability.fn_api_runner import translations

from benchmarks.night.bench_cluster import PHASES

Pipeline = beam_runner_api_pb2.Pipeline
_PARDO = common_urns.primitives.PAR_DO.urn
_GROUP = common_urns.primitives.GROUP_BY_KEY.urn


@dataclass(frozen=True)
class SideInput:
    """Who reads it, which step makes it, and the classes of all coders inside its coder."""

    consumer: str
    producer: str
    coders: frozenset[str]


def _leaves(pipeline: Pipeline) -> list[beam_runner_api_pb2.PTransform]:
    return [t for t in pipeline.components.transforms.values() if not t.subtransforms]


def producers(pipeline: Pipeline) -> dict[str, str]:
    """By collection: the name of the step that makes it."""
    return {c: t.unique_name for t in _leaves(pipeline) for c in t.outputs.values()}


def coders_of(pipeline: Pipeline, collection: str) -> frozenset[str]:
    """Classes of a collection's coder and of all coders inside it."""
    context = PipelineContext(pipeline.components)
    found, todo = set(), [context.coders.get_by_id(pipeline.components.pcollections[collection].coder_id)]
    while todo:
        coder = todo.pop()
        found.add(type(coder).__name__)
        todo += getattr(coder, "_coders", None) or coder._get_component_coders() or []
    return frozenset(found)


def side_inputs(pipeline: Pipeline) -> list[SideInput]:
    """Every side input of every step."""
    made_by, found = producers(pipeline), []
    for step in _leaves(pipeline):
        if step.spec.urn == _PARDO:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
            for tag in payload.side_inputs:
                collection = step.inputs[tag]
                found.append(
                    SideInput(step.unique_name, made_by[collection], coders_of(pipeline, collection))
                )
    return found


def shuffles(pipeline: Pipeline) -> dict[str, frozenset[str]]:
    """By name of a GroupByKey: the coders of what it shuffles."""
    return {
        t.unique_name: coders_of(pipeline, next(iter(t.inputs.values())))
        for t in _leaves(pipeline)
        if t.spec.urn == _GROUP
    }


def stages(pipeline: Pipeline) -> list[frozenset[str]]:
    """The steps of every fused stage, in an order in which they can run."""
    _, fused = translations.create_and_optimize_stages(
        pipeline,
        phases=PHASES,
        known_runner_urns=frozenset(
            [common_urns.primitives.IMPULSE.urn, _GROUP, common_urns.primitives.FLATTEN.urn]
        ),
        use_state_iterables=False,
    )
    inner = (common_urns.primitives.FLATTEN.urn, "beam:runner:source:v1", "beam:runner:sink:v1")
    return [frozenset(t.unique_name for t in s.transforms if t.spec.urn not in inner) for s in fused]


def stage_of(fused: list[frozenset[str]], step: str) -> frozenset[str]:
    """The one stage that has a step; `step` is the beginning of its name."""
    (found,) = [s for s in fused if any(n == step or n.startswith(step + "/") for n in s)]
    return found
