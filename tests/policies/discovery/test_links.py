"""Links followed from visit to visit, against sets."""

from __future__ import annotations

import numpy as np
import pytest

from policies.discovery.links import Shown, Visited, follow, sources_only

NOTHING = Shown(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.bool_))


def _log(seed: int) -> list[tuple[int, int, bool, bool, set[int]]]:
    """Source, time, whether it answered, whether links may be missing, and links; by source, then time."""
    rng = np.random.default_rng(seed)
    rows = []
    for source in (3, 8, 11):
        for at in np.unique(rng.integers(0, 1000, 12)).tolist():
            ok = bool(rng.random() < 0.8)
            links = set(rng.choice(9, rng.integers(0, 6), replace=False).tolist()) if ok else set()
            rows.append((source, at, ok, ok and bool(rng.random() < 0.2), links))
    return rows


def _visited(rows: list[tuple[int, int, bool, bool, set[int]]]) -> Visited:
    source, at, ok, partial, links = zip(*rows, strict=True)
    return Visited(
        np.array(source, np.uint64),
        np.array(at, np.int64),
        np.array(ok),
        np.zeros(len(rows), np.int64),
        np.array(partial),
        np.repeat(np.arange(len(rows)), [len(s) for s in links]),
        np.array([t for s in links for t in sorted(s)], np.uint64),
    )


def _rows(log: Visited) -> np.ndarray:
    return np.searchsorted(np.array([3, 8, 11], np.uint64), log.source_hash)


@pytest.mark.parametrize("seed", range(6))
def test_links_that_came_and_stayed_are_those_of_sets(seed):
    rows = _log(seed)
    log = _visited(rows)
    made, shown = follow(log, _rows(log), NOTHING, 3)
    last: dict[int, tuple[set[int], set[int]]] = {}
    for k, (source, _, ok, partial, links) in enumerate(rows):
        if not ok:
            assert (made.links[k], made.held[k], made.kept[k]) == (0, 0, 0)
            continue
        before, came = last.get(source, (set(), set()))
        assert made.links[k] == len(links)
        assert made.held[k] == len(came)
        assert made.kept[k] == len(came & links)
        last[source] = links, set() if partial else links - before
    there = sorted((s, t, t in came) for s, (links, came) in last.items() for t in links)
    found = zip(shown.source_hash.tolist(), shown.target_hash.tolist(), shown.came.tolist(), strict=True)
    assert sorted(found) == there


@pytest.mark.parametrize("cut", [100, 500, 900])
def test_two_nights_are_one(cut):
    rows = _log(9)
    log = _visited(rows)
    whole, shown = follow(log, _rows(log), NOTHING, 3)
    first = _visited([r for r in rows if r[1] < cut])
    later = _visited([r for r in rows if r[1] >= cut])
    one, between = follow(first, _rows(first), NOTHING, 3)
    two, end = follow(later, _rows(later), between, 3)
    order = np.lexsort((np.append(one.at_s, two.at_s), np.append(one.source, two.source)))
    for name in ("source", "at_s", "links", "held", "kept"):
        both = np.append(getattr(one, name), getattr(two, name))[order]
        assert both.tolist() == getattr(whole, name).tolist()
    for name in ("source_hash", "target_hash", "came"):
        assert getattr(end, name).tolist() == getattr(shown, name).tolist()


def test_a_page_is_a_source_from_its_first_new_link_on():
    log = _visited([(3, 1, True, False, set()), (3, 2, True, False, {1}), (3, 3, True, False, set())])
    log = Visited(*(np.array([0, 1, 0]) if n == "new" else getattr(log, n) for n in log.__dataclass_fields__))
    keep, late = sources_only(log, np.zeros(3, np.int64), np.zeros(3, np.bool_))
    assert keep.tolist() == [False, True, True] and not late.any()
    keep, late = sources_only(log, np.full(3, 2), np.ones(3, np.bool_))
    assert keep.tolist() == [False, False, True] and late.tolist() == [True, True, False]
