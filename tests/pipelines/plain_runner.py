"""A runner for tests: what Beam's in-process runner does to a job of recrawl's, less its machinery.

Of a small night Beam's runner takes two thirds of the processor time, for thirty stages, and threads and
messages between them. Here steps are called one after the other. What could go wrong on the way stays: a
step travels pickled, what is grouped or given to other steps travels through its coder, and what has several
elements comes in two bundles. A job that fails here is run by Beam's runner, whose error is what a test sees.

Tests of what runners do have the fixture `beams_runner`; `make test-beam` gives all nights to Beam.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import apache_beam as beam
from apache_beam import coders, pvalue
from apache_beam.internal import cloudpickle_pickler as pickler
from apache_beam.internal.util import insert_values_in_args
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.transforms.core import DoFn, ParDo, get_function_arguments
from apache_beam.typehints.typehints import coerce_to_kv_type
from apache_beam.utils.windowed_value import WindowedValue

from pipelines.nightly import nightly

# "beam" for Beam's runner; "plain" for this one in a process that `started.py` starts, too.
CHOICE = "RECRAWL_TEST_RUNNER"
PLAIN = "plain"


class PlainRunner(FnApiRunner):
    """Calls the steps of a pipeline one after the other, in this thread."""

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> PipelineResult:
        try:
            pipeline.visit(_Steps())
        except Exception:
            return super().run_pipeline(pipeline, options)
        return _Done(PipelineState.DONE)


@contextmanager
def chosen() -> Iterator[None]:
    """Let jobs in this process run plainly, unless Beam's runner or something of it is asked for."""
    found = nightly.local_runner

    def local_runner(options: PipelineOptions) -> Any:
        asked = options.view_as(DirectOptions).get_all_options(drop_default=True, current_only=True)
        runner = found(options)
        return PlainRunner() if runner is not None and not asked else runner

    if os.environ.get(CHOICE) == "beam":
        yield
    else:
        with mock.patch.object(nightly, "local_runner", local_runner):
            yield


class _Done(PipelineResult):
    def wait_until_finish(self, duration: Any = None) -> str:
        return self.state


class _Steps(PipelineVisitor):
    """Visits steps in an order in which what they need is made."""

    def __init__(self) -> None:
        self._made: dict[pvalue.PValue, list[Any]] = {}

    def visit_transform(self, step: AppliedPTransform) -> None:
        kind = type(step.transform)
        if kind is beam.Impulse:
            self._made[step.outputs[None]] = [b""]
        elif kind is beam.Flatten:
            self._made[step.outputs[None]] = [value for one in step.inputs for value in self._made[one]]
        elif kind is beam.GroupByKey:
            self._made[step.outputs[None]] = self._grouped(step.inputs[0])
        elif isinstance(step.transform, ParDo):
            self._run(step.transform, self._made[step.inputs[0]], step.outputs)
        else:
            raise NotImplementedError(f"{step.full_label}: {kind.__name__}")

    def _grouped(self, pairs: pvalue.PValue) -> list[tuple[Any, list[Any]]]:
        of_key, of_value = map(coders.registry.get_coder, coerce_to_kv_type(pairs.element_type).tuple_types)
        found: dict[bytes, list[bytes]] = defaultdict(list)
        for key, value in self._made[pairs]:
            found[of_key.encode(key)].append(of_value.encode(value))
        return [(of_key.decode(k), [of_value.decode(v) for v in values]) for k, values in found.items()]

    def _side(self, side: pvalue.AsSideInput) -> Any:
        coder = coders.registry.get_coder(side.pvalue.element_type or Any)
        values = [coder.decode(coder.encode(value)) for value in self._made[side.pvalue]]
        return side._from_runtime_iterable(values, side._view_options())

    def _run(self, step: ParDo, elements: list[Any], collections: dict[str | None, pvalue.PValue]) -> None:
        outputs = {tag: self._made.setdefault(made, []) for tag, made in collections.items()}
        travelled = pickler.loads(pickler.dumps((step.fn, step.args, step.kwargs)))
        function: DoFn = travelled[0]
        args, kwargs = insert_values_in_args(*travelled[1:], map(self._side, step.side_inputs))
        defaults = get_function_arguments(function, "process")[1]
        if any(isinstance(value, type(DoFn.ElementParam)) for value in defaults):
            raise NotImplementedError(f"{step.label}: parameters that Beam fills in")

        def emit(results: Iterable[Any] | None) -> None:
            for result in results or ():
                tag = None
                if isinstance(result, pvalue.TaggedOutput):
                    tag, result = result.tag, result.value
                if tag in outputs:  # else nobody reads it
                    outputs[tag].append(result.value if isinstance(result, WindowedValue) else result)

        function.setup()
        for bundle in (elements[::2], elements[1::2]):
            if bundle:
                function.start_bundle()
                for element in bundle:
                    emit(function.process(element, *args, **kwargs))
                emit(function.finish_bundle())
        function.teardown()
