"""A runner for tests: the plain one of this machine, but what could go wrong on the way stays.

A step travels pickled, what is grouped or given to other steps travels through its coder, and what has
several elements comes in two bundles. A job that fails here is run by Beam's runner, whose error is what a
test sees.

Tests of what runners do have the fixture `beams_runner`; `make test-beam` gives all nights to Beam.
"""

from __future__ import annotations

import functools
import gettext
import inspect
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam import coders, pvalue
from apache_beam.internal import cloudpickle_pickler as pickler
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.transforms import core, ptransform
from apache_beam.transforms.core import DoFn, ParDo, get_function_arguments
from apache_beam.typehints import decorators
from apache_beam.typehints.decorators import IOTypeHints
from apache_beam.typehints.typehints import coerce_to_kv_type

from pipelines.nightly import nightly, plain_runner

# "beam" for Beam's runner, "own" for the one that a job chooses by itself; "plain" for this one in a process
# that `started.py` starts, too.
CHOICE = "RECRAWL_TEST_RUNNER"
PLAIN = "plain"

_CHECKED: dict[Any, bool] = {}
_check = core._check_fn_use_yield_and_return


def _checked(process: Any) -> bool:
    method = getattr(process, "__func__", process)
    if method not in _CHECKED:
        _CHECKED[method] = _check(process)
    return _CHECKED[method]


_SIGNATURES: tuple[WeakKeyDictionary[Any, inspect.Signature], ...] = (
    WeakKeyDictionary(),
    WeakKeyDictionary(),
)
_signature = decorators.get_signature
_all_options = PipelineOptions.get_all_options


def _signature_once(function: Any) -> inspect.Signature:
    """Of a function, method or class; any other callable is of one job."""
    method = inspect.ismethod(function)
    if not (method or inspect.isfunction(function) or inspect.isclass(function)):
        return _signature(function)
    known, of = _SIGNATURES[method], getattr(function, "__func__", function)
    if of not in known:
        known[of] = _signature(function)
    return known[of]


def _options(self: PipelineOptions, *arguments: Any, display_warnings: bool = False, **more: Any) -> Any:
    """Nothing where only warnings are wanted, of options that the command line has looked at."""
    return {} if display_warnings else _all_options(self, *arguments, **more)


# A fifth of a small night: Beam reads the source and the signatures of each step, notes where each type hint
# comes from, and parses all options once more for warnings; what it pickles while steps are wired is pickled
# again when they run.
_LESS: tuple[tuple[Any, str, Any], ...] = (
    (core, "_check_fn_use_yield_and_return", _checked),
    (core, "get_signature", _signature_once),
    (decorators, "get_signature", _signature_once),
    (PipelineOptions, "get_all_options", _options),
    (ptransform.pickler, "roundtrip", lambda value: value),
    (IOTypeHints, "_make_origin", lambda *_, **__: []),
    (gettext, "find", functools.cache(gettext.find)),
)


class PlainRunner(FnApiRunner):
    """Calls the steps of a pipeline one after the other, in this thread."""

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> PipelineResult:
        try:
            steps = _Steps()
            pipeline.visit(steps)
            steps.run()
        except Exception:
            return super().run_pipeline(pipeline, options)
        return plain_runner.Done(PipelineState.DONE)


@contextmanager
def chosen() -> Iterator[None]:
    """Let jobs in this process run plainly, unless Beam's runner or something of it is asked for."""
    found = nightly.local_runner

    def local_runner(options: PipelineOptions, small: Callable[[], bool] | None = None) -> Any:
        asked = options.view_as(DirectOptions).get_all_options(drop_default=True, current_only=True)
        choice = os.environ.get(CHOICE, PLAIN)
        runner = found(options, small if choice == "own" else None)
        return PlainRunner() if choice == PLAIN and runner is not None and not asked else runner

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(nightly, "local_runner", local_runner))
        for where, name, instead in _LESS:
            stack.enter_context(mock.patch.object(where, name, instead))
        yield


class _Steps(plain_runner.Steps):
    """Steps and what they are given, as they are after a journey."""

    def say(self, label: str) -> None:
        """Nothing: what a night has to complain of is all that tests read."""

    def grouped(self, of: pvalue.PValue, pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        of_key, of_value = map(coders.registry.get_coder, coerce_to_kv_type(of.element_type).tuple_types)
        found: dict[bytes, list[bytes]] = defaultdict(list)
        for key, value in pairs:
            found[of_key.encode(key)].append(of_value.encode(value))
        return [(of_key.decode(k), [of_value.decode(v) for v in values]) for k, values in found.items()]

    def given(self, of: pvalue.PValue, values: list[Any]) -> list[Any]:
        coder = coders.registry.get_coder(of.element_type or Any)
        return [coder.decode(coder.encode(value)) for value in values]

    def taken(self, step: ParDo) -> tuple[Any, Any]:
        args, kwargs = pickler.roundtrip((step.args, step.kwargs))
        return args, kwargs

    def function(self, step: ParDo) -> Any:
        function = pickler.roundtrip(step.fn)
        defaults = get_function_arguments(function, "process")[1]
        if any(isinstance(value, type(DoFn.ElementParam)) for value in defaults):
            raise NotImplementedError(f"{step.label}: parameters that Beam fills in")
        return function

    def queues(self, elements: deque[Any]) -> list[deque[Any]]:
        values = list(elements)
        return [deque(values[::2]), deque(values[1::2])]
