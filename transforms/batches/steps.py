"""Steps of a pipeline that cost little to build and to start.

Beam looks at the signature of each method of a DoFn, its own thirty included, six times a step and run: of a
small night that was a quarter of the processor time. It asks an object for `_inspect_<method>` first, where
a class of ours keeps what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.core import get_function_args_defaults
from apache_beam.typehints.decorators import no_annotations

_ASKED = "_inspect_"
# By class: one that overrides a method has other arguments than the one it comes from.
_FOUND: dict[tuple[type, str], tuple[list[str], list[Any]]] = {}


class Step(beam.DoFn):
    """A DoFn whose methods Beam inspects once."""

    def __getattr__(self, name: str) -> Any:
        key = type(self), name.removeprefix(_ASKED)
        if key[1] == name:
            raise AttributeError(f"{key[0].__name__} has no {name}")
        if key not in _FOUND:
            _FOUND[key] = get_function_args_defaults(getattr(self, key[1]))
        return lambda: _FOUND[key]


class _Each(Step):
    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @no_annotations
    def process(self, element: Any, *more: Any) -> Iterator[Any]:
        yield self._function(element, *more)


def each(function: Callable[..., Any], *more: Any) -> beam.ParDo:
    """As `beam.Map`: what `function` makes of each element and of what else is given, side inputs too."""
    return beam.ParDo(_Each(function), *more)
