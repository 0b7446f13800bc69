"""What Beam is told of a step is what it would find."""

from __future__ import annotations

import pickle
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.core import get_function_arguments
from apache_beam.transforms.userstate import get_dofn_specs

from transforms.batches.steps import Step


class _Plain(beam.DoFn):
    def process(self, element: int, side: int = 3, time: Any = beam.DoFn.TimestampParam) -> list[int]:
        return [element + side]


class _Quick(Step):
    process = _Plain.process


class _Other(_Quick):
    def process(self, element: int) -> list[int]:  # type: ignore[override]
        return [element]


@pytest.mark.parametrize("method", ["process", "start_bundle", "finish_bundle", "setup", "display_data"])
def test_methods_have_the_arguments_that_beam_finds(method: str) -> None:
    assert get_function_arguments(_Quick(), method) == get_function_arguments(_Plain(), method)
    assert get_dofn_specs(_Quick()) == get_dofn_specs(_Plain()) == (set(), set())


def test_a_class_that_overrides_a_method_has_its_own() -> None:
    assert get_function_arguments(_Quick(), "process")[0] == ["element", "side", "time"]
    assert get_function_arguments(_Other(), "process")[0] == ["element"]
    assert get_function_arguments(_Quick(), "process")[0] == ["element", "side", "time"]


def test_nothing_else_is_made_up() -> None:
    step = pickle.loads(pickle.dumps(_Quick()))
    with pytest.raises(AttributeError, match="_Quick has no nothing"):
        _ = step.nothing
    with pytest.raises(AttributeError):
        _ = step._inspect_nothing
