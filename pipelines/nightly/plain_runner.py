"""A runner for one machine: what Beam's in-process runner does to a job, less its machinery.

Between stages Beam's runner hands on bytes, by threads and messages, and keeps them until the job has ended:
two thirds of the processor time of a small night, and an eighth of that of a large one. Here steps are called
in this process, an element goes through all steps that can have it before the next one begins, and what
nobody will read again is let go. The bytes of a night are the same.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam import pvalue
from apache_beam.internal.util import insert_values_in_args
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.transforms.core import ParDo
from apache_beam.utils.windowed_value import WindowedValue

from pipelines.nightly.waiting import Room, Shelf, Waiting, batch_of, taken
from transforms.batches.shard_tables import ShardTables

_LOGGER = logging.getLogger(__name__)


class PlainRunner(FnApiRunner):
    """Calls the steps of a pipeline. It is one of those that run in this process.

    Parameters
    ----------
    threads : int
        That share the elements of a step; the kernels release the interpreter's lock.
    """

    def __init__(self, threads: int = 1) -> None:
        super().__init__()
        self._threads = threads

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> PipelineResult:
        """Run a pipeline to its end. Its errors come as they are."""
        steps = Steps(self._threads)
        pipeline.visit(steps)
        steps.run()
        return Done(PipelineState.DONE)


class Done(PipelineResult):
    """The result of a job that has ended."""

    def wait_until_finish(self, duration: Any = None) -> str:
        """The state."""
        return str(self.state)


class Held:
    """Batches of `Shelf.batch`, which are made anew whenever they are read."""

    def __init__(self) -> None:
        self._kept: list[bytes | Waiting] = []

    def append(self, data: bytes | Waiting) -> None:
        """Add a batch."""
        self._kept.append(data)

    def __iter__(self) -> Iterator[Any]:
        return map(batch_of, self._kept)


Holding = Callable[[list[Any]], Callable[[Any], None]]
"""What takes the values of a step for those that are kept of it."""


class Call(NamedTuple):
    """A step and what it is called with beside its elements."""

    step: AppliedPTransform
    args: Any
    kwargs: Any


class Steps(PipelineVisitor):
    """Takes the steps of a pipeline, in an order in which what they need is made, and runs them."""

    def __init__(self, threads: int = 1) -> None:
        self._threads, self._room = threads, Room()
        self._steps: list[AppliedPTransform] = []
        self._done: set[AppliedPTransform] = set()
        self._made: dict[pvalue.PValue, list[Any]] = {}
        self._readers: dict[pvalue.PValue, list[AppliedPTransform]] = defaultdict(list)
        self._reads: Counter[pvalue.PValue] = Counter()
        self._sides: set[pvalue.PValue] = set()

    def visit_transform(self, step: AppliedPTransform) -> None:
        """Take a step."""
        self._steps.append(step)
        for one in step.inputs:
            self._readers[one].append(step)
        sides = [side.pvalue for side in step.side_inputs]
        self._sides.update(sides)
        self._reads.update([*step.inputs, *sides])

    def run(self) -> None:
        """Run all steps.

        Raises
        ------
        NotImplementedError
            A kind of step that no job has.
        """
        for step in self._steps:
            if step not in self._done:
                self._run(step)

    def _run(self, step: AppliedPTransform) -> None:
        kind = type(step.transform)
        if isinstance(step.transform, ParDo):
            self._run_stage(self._stage(step))
            return
        if kind is beam.Impulse:
            self._made[step.outputs[None]] = [b""]
        elif kind is beam.Flatten:
            made, values = step.outputs[None], list[Any]()
            for one in step.inputs:
                holds = self.holds(made) and not self.holds(one)
                add = _holding(Shelf(self._room), values) if holds else values.append
                for value in self._take(one):
                    add(value)
            self._made[made] = values
        elif kind is beam.GroupByKey:
            pairs = self._take(step.inputs[0])
            self._made[step.outputs[None]] = self.grouped(step.inputs[0], pairs)
        else:
            raise NotImplementedError(f"{step.full_label}: {kind.__name__}")

    def _take(self, of: pvalue.PValue) -> deque[Any]:
        """Values for one reader; the last one gets them for itself."""
        self._reads[of] -= 1
        return deque(self._made[of] if self._reads[of] else self._made.pop(of))

    def _stage(self, first: AppliedPTransform) -> list[AppliedPTransform]:
        """A step, and those that can have its elements at once: all that they need beside is there."""
        stage = [first]
        for step in stage:
            for made in step.outputs.values():
                for reader in self._readers[made]:
                    if isinstance(reader.transform, ParDo) and all(
                        side.pvalue in self._made for side in reader.side_inputs
                    ):
                        stage.append(reader)
        return stage

    def _run_stage(self, stage: list[AppliedPTransform]) -> None:
        elements = self._take(stage[0].inputs[0])
        calls = []
        for step in stage:
            self.say(step.full_label)
            args, kwargs = self.taken(step.transform)
            args, kwargs = insert_values_in_args(args, kwargs, map(self._side, step.side_inputs))
            calls.append(Call(step, args, kwargs))
        for step in stage[1:]:
            self._reads[step.inputs[0]] -= 1
        kept = [made for step in stage for made in step.outputs.values() if self._reads[made]]
        holds: dict[pvalue.PValue, Holding] = {
            made: partial(_holding, Shelf(self._room)) for made in kept if self.holds(made)
        }
        holds |= {made: partial(_waiting, Shelf(self._room)) for made in kept if self.waits(made)}
        bundles = []
        for queue in self.queues(elements):
            sharing = max(1, min(self._threads, len(queue)))
            own = [Bundle(calls, kept, holds, self.function) for _ in range(sharing)]
            _share(queue, own)
            bundles += own
        for made in kept:
            self._made[made] = [value for bundle in bundles for value in bundle.kept[made]]
        if self._threads > 1:
            for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
                pool.release_unused()  # the second is that of NumPy, too
        for step in stage:
            self._done.add(step)
            for side in step.side_inputs:
                self._reads[side.pvalue] -= 1
                if not self._reads[side.pvalue]:
                    del self._made[side.pvalue]

    def say(self, label: str) -> None:
        """Tell that a step begins, as Beam's runner does of stages."""
        _LOGGER.debug("Running %s", label)

    def grouped(self, of: pvalue.PValue, pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """The values of each key."""
        found: dict[Any, Any] = defaultdict(Held if self.holds(of) else list)
        for key, value in pairs:
            found[key].append(value)
        return list(found.items())

    def holds(self, of: pvalue.PValue) -> bool:
        """Whether batches wait as bytes for being grouped: rows of large jobs are all there at once."""
        return (
            self._threads > 1
            and of not in self._sides
            and bool(self._readers[of])
            and all(map(self._groups, self._readers[of]))
            and getattr(of.element_type, "tuple_types", ())[1:] == (pa.RecordBatch,)
        )

    def waits(self, of: pvalue.PValue) -> bool:
        """Whether they are tables, which in large jobs may have to wait in files."""
        return self._threads > 1 and of not in self._sides and of.element_type is ShardTables

    def _groups(self, reader: AppliedPTransform) -> bool:
        kind = type(reader.transform)
        return kind is beam.GroupByKey or (kind is beam.Flatten and self.holds(reader.outputs[None]))

    def given(self, of: pvalue.PValue, values: list[Any]) -> list[Any]:
        """What a step is given beside its elements."""
        return values

    def taken(self, step: ParDo) -> tuple[Any, Any]:
        """The arguments of a step."""
        return step.args, step.kwargs

    def function(self, step: ParDo) -> Any:
        """The function of a step, for one bundle."""
        return step.fn if self._threads == 1 else copy.copy(step.fn)

    def queues(self, elements: deque[Any]) -> Sequence[deque[Any]]:
        """Queues of elements, one after the other; threads share each."""
        return [elements]

    def _side(self, side: pvalue.AsSideInput) -> Any:
        values = self.given(side.pvalue, self._made[side.pvalue])
        return side._from_runtime_iterable(values, side._view_options())


def _holding(shelf: Shelf, values: list[Any]) -> Callable[[tuple[Any, Any]], None]:
    return lambda pair: values.append((pair[0], shelf.batch(pair[1])))


def _waiting(shelf: Shelf, values: list[Any]) -> Callable[[ShardTables], None]:
    return lambda tables: values.append(shelf.tables(tables))


class Bundle:
    """A stage in one thread.

    Attributes
    ----------
    kept : dict of PValue to list
        What steps outside the stage will read.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        kept: Iterable[pvalue.PValue],
        holds: Mapping[pvalue.PValue, Holding],
        function: Callable[[ParDo], Any],
    ) -> None:
        self.kept: dict[pvalue.PValue, list[Any]] = {made: [] for made in kept}
        self._calls = [(call, function(call.step.transform)) for call in calls]
        # By output of a step: who takes it, in this bundle.
        self._takers: dict[pvalue.PValue, list[Callable[[Any], None]]] = defaultdict(list)
        for made, values in self.kept.items():
            self._takers[made].append(holds[made](values) if made in holds else values.append)
        self._feeds = [self._feed(*pair) for pair in self._calls]
        for (call, _), feed in zip(self._calls[1:], self._feeds[1:], strict=True):
            self._takers[call.step.inputs[0]].append(feed)

    def run(self, elements: deque[Any]) -> None:
        """Take elements from a queue until it is empty."""
        if not elements:
            return
        for _, function in self._calls:
            function.setup()
            function.start_bundle()
        while elements:
            try:
                element = elements.popleft()
            except IndexError:  # another thread was faster
                break
            self._feeds[0](taken(element))
            del element
        for call, function in self._calls:
            self._emit(call.step, function.finish_bundle())
            function.teardown()
        # Steps know who takes what they make: left alone, what they hold would outlive many stages.
        self._calls, self._feeds = [], []
        self._takers.clear()

    def _feed(self, call: Call, function: Any) -> Callable[[Any], None]:
        def feed(element: Any) -> None:
            self._emit(call.step, function.process(element, *call.args, **call.kwargs))

        return feed

    def _emit(self, step: AppliedPTransform, results: Iterable[Any] | None) -> None:
        for result in results or ():
            tag = None
            if isinstance(result, pvalue.TaggedOutput):
                tag, result = result.tag, result.value
            if tag not in step.outputs:  # nobody reads it
                continue
            value = result.value if isinstance(result, WindowedValue) else result
            for take in self._takers[step.outputs[tag]]:
                take(value)


def _share(elements: deque[Any], bundles: Sequence[Bundle]) -> None:
    """Run bundles that share a queue, the first in this thread.

    Where one fails the others end after the element that they have, and are waited for: nothing is written
    by a job that has failed.
    """
    if len(bundles) == 1:
        bundles[0].run(elements)
        return
    with ThreadPoolExecutor(len(bundles) - 1) as pool:
        running = [pool.submit(_ending, bundle, elements) for bundle in bundles[1:]]
        _ending(bundles[0], elements)
    for one in running:
        one.result()


def _ending(bundle: Bundle, elements: deque[Any]) -> None:
    """Run a bundle; if it fails nobody finds any more elements."""
    try:
        bundle.run(elements)
    except BaseException:
        elements.clear()
        raise
