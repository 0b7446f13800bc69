"""A runner for small nights: what Beam's in-process runner does to a job, less its machinery.

Of a small night Beam's runner takes two thirds of the processor time, for thirty stages, and threads and
messages between them. Here steps are called one after the other, in this thread, and values are handed on as
they are. The bytes of a night are the same.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam import pvalue
from apache_beam.internal.util import insert_values_in_args
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.transforms.core import ParDo
from apache_beam.utils.windowed_value import WindowedValue

_LOGGER = logging.getLogger(__name__)


class PlainRunner(FnApiRunner):
    """Calls the steps of a pipeline one after the other. It is one of those that run in this process."""

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> PipelineResult:
        """Run a pipeline to its end. Its errors come as they are."""
        pipeline.visit(Steps())
        return Done(PipelineState.DONE)


class Done(PipelineResult):
    """The result of a job that has ended."""

    def wait_until_finish(self, duration: Any = None) -> str:
        """The state."""
        return str(self.state)


class Steps(PipelineVisitor):
    """Visits steps in an order in which what they need is made."""

    def __init__(self) -> None:
        self._made: dict[pvalue.PValue, list[Any]] = {}

    def visit_transform(self, step: AppliedPTransform) -> None:
        """Run a step; its elements are those of steps before it.

        Raises
        ------
        NotImplementedError
            A kind of step that no night has.
        """
        kind = type(step.transform)
        if kind is beam.Impulse:
            self._made[step.outputs[None]] = [b""]
        elif kind is beam.Flatten:
            self._made[step.outputs[None]] = [value for one in step.inputs for value in self._made[one]]
        elif kind is beam.GroupByKey:
            self._made[step.outputs[None]] = self.grouped(step.inputs[0], self._made[step.inputs[0]])
        elif isinstance(step.transform, ParDo):
            self.say(step.full_label)
            self._run(step.transform, self._made[step.inputs[0]], step.outputs)
        else:
            raise NotImplementedError(f"{step.full_label}: {kind.__name__}")

    def say(self, label: str) -> None:
        """Tell that a step begins, as Beam's runner does of stages."""
        _LOGGER.debug("Running %s", label)

    def grouped(self, of: pvalue.PValue, pairs: list[tuple[Any, Any]]) -> list[tuple[Any, list[Any]]]:
        """The values of each key."""
        found: dict[Any, list[Any]] = defaultdict(list)
        for key, value in pairs:
            found[key].append(value)
        return list(found.items())

    def given(self, of: pvalue.PValue, values: list[Any]) -> list[Any]:
        """What a step is given beside its elements."""
        return values

    def taken(self, step: ParDo) -> tuple[Any, Any, Any]:
        """The function of a step, and its arguments."""
        return step.fn, step.args, step.kwargs

    def bundles(self, elements: list[Any]) -> Iterable[list[Any]]:
        """Elements as a step gets them."""
        return (elements,)

    def _side(self, side: pvalue.AsSideInput) -> Any:
        values = self.given(side.pvalue, self._made[side.pvalue])
        return side._from_runtime_iterable(values, side._view_options())

    def _run(self, step: ParDo, elements: list[Any], collections: dict[str | None, pvalue.PValue]) -> None:
        outputs = {tag: self._made.setdefault(made, []) for tag, made in collections.items()}
        function, args, kwargs = self.taken(step)
        args, kwargs = insert_values_in_args(args, kwargs, map(self._side, step.side_inputs))

        def emit(results: Iterable[Any] | None) -> None:
            for result in results or ():
                tag = None
                if isinstance(result, pvalue.TaggedOutput):
                    tag, result = result.tag, result.value
                if tag in outputs:  # else nobody reads it
                    outputs[tag].append(result.value if isinstance(result, WindowedValue) else result)

        function.setup()
        for bundle in self.bundles(elements):
            if bundle:
                function.start_bundle()
                for element in bundle:
                    emit(function.process(element, *args, **kwargs))
                emit(function.finish_bundle())
        function.teardown()
