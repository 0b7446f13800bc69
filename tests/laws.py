"""The laws that every CombineFn must keep, in one test that takes any of them."""

import copy
import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam


def check_combine_laws(fn: beam.CombineFn, elements: Sequence[Any], plain: Callable[[Any], Any]) -> Any:
    """Assert that a CombineFn gives one result however a runner calls it.

    Parameters
    ----------
    fn : CombineFn
    elements : sequence, at least 3
    plain : function
        Turns a result, or an element, into something that `==` compares.

    Returns
    -------
    The result, as `plain` gives it.
    """
    before = [plain_copy(e) for e in elements]

    def add_all(part: Sequence[Any]) -> Any:
        accumulator = fn.create_accumulator()
        for element in part:
            accumulator = fn.add_input(accumulator, element)
        return accumulator

    whole = plain(fn.extract_output(add_all(elements)))
    for order in itertools.islice(itertools.permutations(elements), 24):
        assert plain(fn.extract_output(add_all(order))) == whole, "order of elements"
    for cut in range(len(elements) + 1):
        parts = [add_all(elements[:cut]), fn.create_accumulator(), add_all(elements[cut:])]
        for order in itertools.permutations(range(3)):
            fresh = [pickle.loads(pickle.dumps(parts[i])) for i in order]  # accumulators travel
            assert plain(fn.extract_output(fn.merge_accumulators(a for a in fresh))) == whole, "merge"
    singles = [fn.compact(add_all([e])) for e in elements]
    assert plain(fn.extract_output(fn.compact(fn.merge_accumulators(singles)))) == whole, "compact"
    assert plain(fn.extract_output(fn.merge_accumulators([add_all(elements)]))) == whole, "one accumulator"
    fn.extract_output(fn.merge_accumulators([fn.create_accumulator(), fn.create_accumulator()]))
    assert [plain_copy(e) for e in elements] == before, "inputs were changed"
    return whole


def plain_copy(value: Any) -> bytes:
    """A value's content, to see whether it was changed."""
    return pickle.dumps(copy.deepcopy(value))
