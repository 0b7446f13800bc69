"""What Beam is told of a step is what it would find."""

from __future__ import annotations

import pickle
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.core import get_function_arguments
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, get_dofn_specs

from transforms.batches.steps import Given, Step, Ungroup


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


SEEN = ReadModifyWriteStateSpec("seen", beam.coders.VarIntCoder())
OF_SEEN: Any = beam.DoFn.StateParam(SEEN)


class _Counting(Step):
    def process(self, element: int) -> list[int]:
        return [element]

    def _count(self, seen: Any = OF_SEEN) -> None: ...


class _CountingToo(_Counting):
    def process(self, element: int) -> list[int]:
        return [-element]


@pytest.mark.parametrize("kind", [_Counting, _CountingToo])
def test_state_is_found_in_a_class_and_in_those_it_comes_from(kind: type[Step]) -> None:
    """Beam looks for it in all methods, and what a step does not name it would not find."""
    assert get_dofn_specs(kind()) == ({SEEN}, set())


def test_given_elements_and_ungrouped_ones() -> None:
    with TestPipeline() as pipeline:
        given = pipeline | "Some" >> Given([(1, "a"), (2, "b"), (1, "c")])
        again = given | beam.GroupByKey() | "Ungroup" >> beam.ParDo(Ungroup())
        assert_that(again, equal_to(["a", "b", "c"]))
        assert_that(pipeline | "None" >> Given([]), equal_to([]), label="none")


def test_nothing_else_is_made_up() -> None:
    step = pickle.loads(pickle.dumps(_Quick()))
    with pytest.raises(AttributeError, match="_Quick has no nothing"):
        _ = step.nothing
    with pytest.raises(AttributeError):
        _ = step._inspect_nothing
