"""Steps of a pipeline that cost little to build and to start.

Beam looks at the signature of each method of a DoFn, its own thirty included, ten times a step and run: of a
small night that was a quarter of the processor time. It finds methods with `dir`, which tells of a step only
what its class has beyond `beam.DoFn`, and asks an object for `_inspect_<method>` first, where a class of ours
keeps what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.transforms.core import get_function_args_defaults
from apache_beam.typehints.decorators import no_annotations
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type

_ASKED = "_inspect_"
# By class: one that overrides a method has other arguments than the one it comes from.
_FOUND: dict[tuple[type, str], tuple[list[str], list[Any]]] = {}
_OWN: dict[type, list[str]] = {}
_HINTS: dict[type, Any] = {}


class Step(beam.DoFn):
    """A DoFn whose methods Beam inspects once.

    `OUTPUTS` has the type of each of several outputs by its name, the main one first, see `outputs`.
    """

    OUTPUTS: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        key = type(self), name.removeprefix(_ASKED)
        if key[1] == name:
            raise AttributeError(f"{key[0].__name__} has no {name}")
        if key not in _FOUND:
            _FOUND[key] = get_function_args_defaults(getattr(self, key[1]))
        return lambda: _FOUND[key]

    def default_type_hints(self) -> Any:
        """What the annotations of `process` say; Beam asks six times a step."""
        kind = type(self)
        if kind not in _HINTS:
            _HINTS[kind] = super().default_type_hints()
        return _HINTS[kind]

    def __dir__(self) -> list[str]:
        kind = type(self)
        if kind not in _OWN:
            own = kind.__mro__[: kind.__mro__.index(beam.DoFn)]
            _OWN[kind] = sorted({name for one in own for name in vars(one)})
        return _OWN[kind]


class _Each(Step):
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @no_annotations
    def process(self, element: Any, *more: Any) -> Iterator[Any]:
        yield self._function(element, *more)


class Given(beam.PTransform):
    """As `beam.Create`: a collection of these elements, all in one bundle. In one step in place of three."""

    def __init__(self, elements: Iterable[Any]) -> None:
        super().__init__()
        self._elements = list(elements)

    def expand(self, start: Any) -> beam.PCollection:
        return start | beam.Impulse() | "Give" >> beam.ParDo(_Give(self._elements))


class _Give(Step):
    def __init__(self, elements: list[Any]) -> None:
        self._elements = elements

    @no_annotations
    def process(self, element: bytes) -> Iterable[Any]:
        return self._elements


class Ungroup(Step):
    """What a `GroupByKey` has gathered, without its keys."""

    @no_annotations
    def process(self, element: tuple[Any, Iterable[Any]]) -> Iterable[Any]:
        return element[1]


def each(function: Callable[..., Any], *more: Any) -> beam.ParDo:
    """As `beam.Map`: what `function` makes of each element and of what else is given, side inputs too."""
    return beam.ParDo(_Each(function), *more)


def outputs(collection: beam.PCollection, label: str, step: Step, *sides: Any) -> dict[str, beam.PCollection]:
    """What a step with several outputs makes of a collection, by the names in its `OUTPUTS`."""
    main, *others = step.OUTPUTS
    found = collection | label >> beam.ParDo(step, *sides).with_outputs(*others, main=main)
    for name, element in step.OUTPUTS.items():  # without its type Beam falls back to pickle
        found[name].element_type = convert_to_beam_type(element)
    return {name: found[name] for name in step.OUTPUTS}
