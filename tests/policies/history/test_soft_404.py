"""Pages of a host that are all alike: who is one of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.history.soft_404 import MAX_CHANGES, MIN_PAGES, pages_alike

S = 77


def alike(host: list[int], digest: list[int], n_changes: list[int]) -> list[int]:
    found = pages_alike(np.array(host, np.int32), np.array(digest, np.uint64), np.array(n_changes, np.int32))
    assert found.dtype == np.int32
    return found.tolist()


@pytest.mark.parametrize("n", [MIN_PAGES - 1, MIN_PAGES, 40])
def test_many_pages_with_one_content_are_alike_and_a_few_are_not(n: int) -> None:
    found = alike([0] * (n + 2), [S] * n + [1, 2], [0] * (n + 2))
    assert found == [n if n >= MIN_PAGES else 0] * n + [0, 0]


def test_hosts_are_counted_apart() -> None:
    """A template of another host, or of a server that has both, says nothing of this one."""
    n = MIN_PAGES - 1
    assert alike([0, 1] * n, [S] * 2 * n, [0] * 2 * n) == [0] * 2 * n


def test_two_contents_of_one_host_are_two_groups() -> None:
    digests = [S] * 40 + [S + 1] * 35
    assert alike([3] * 75, digests, [1] * 75) == [40] * 40 + [35] * 35


def test_pages_that_went_on_changing_are_none() -> None:
    """A live page that happens to show what others do, and one whose digest is not known."""
    changes = [0, MAX_CHANGES] * 20 + [MAX_CHANGES + 1] * 40
    assert alike([0] * 80, [S] * 80, changes) == [40] * 40 + [0] * 40
    assert alike([0] * 80, [0] * 80, [0] * 80) == [0] * 80


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=200))
def test_it_is_a_count_of_rows(rows: list[tuple[int, int, int]]) -> None:
    host, digest, changes = (list(c) for c in zip(*rows, strict=True)) if rows else ([], [], [])
    found = alike(host, digest, changes)
    for (h, d, c), n in zip(rows, found, strict=True):
        same = sum(r[0] == h and r[1] == d and r[2] <= MAX_CHANGES for r in rows)
        assert n == (same if d and c <= MAX_CHANGES and same >= MIN_PAGES else 0)
