"""Links followed from visit to visit of their sources: which came, and which stayed until the next one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.discovery.sums import Visits
from policies.numerics.typing_ import BoolArray, IntArray, UIntArray


@dataclass(frozen=True)
class Visited:
    """m visits, sorted by the hash of their source and time, and the t links that they showed.

    Attributes
    ----------
    source_hash : (m,) uint64
    at_s, new : (m,) int64
        Seconds since 1970-01-01 UTC; targets that a visit was the first of all to show.
    ok : (m,) bool
        A visit that failed shows nothing, and is no evidence of it.
    partial : (m,) bool
        Some of its links may be missing, so none has come by it.
    visit : (t,) int64
        Of each link, ascending.
    target : (t,) uint64
    """

    source_hash: UIntArray
    at_s: IntArray
    ok: BoolArray
    new: IntArray
    partial: BoolArray
    visit: IntArray
    target: UIntArray


def sources_only(visits: Visited, last_s: IntArray, is_source: BoolArray) -> tuple[BoolArray, BoolArray]:
    """Which visits count: later than what is known, and of a source.

    Parameters
    ----------
    visits : Visited
    last_s : (m,) int64
        When the source of each was last asked.
    is_source : (m,) bool
        Whether it is known or named as one. Others are from the first visit on that brings a new link.

    Returns
    -------
    counts, late : (m,) bool
    """
    late = visits.at_s <= last_s
    brings = (visits.new > 0) & ~late
    start = np.searchsorted(visits.source_hash, visits.source_hash)
    so_far = np.cumsum(brings)
    before = so_far[start] - brings[start] if len(start) else so_far
    return ~late & (is_source | (so_far > before)), late


@dataclass(frozen=True)
class Shown:
    """Links of sources at their last visits, sorted by source.

    Attributes
    ----------
    source_hash, target_hash : (t,) uint64
    came : (t,) bool
        Not there at the visit before.
    """

    source_hash: UIntArray
    target_hash: UIntArray
    came: BoolArray

    def counts(self, source_hash: UIntArray) -> tuple[IntArray, IntArray]:
        """Links of some sources, and those of them that came: (n,) int64 each."""
        begin = np.searchsorted(self.source_hash, source_hash)
        end = np.searchsorted(self.source_hash, source_hash, side="right")
        came = np.append(0, np.cumsum(self.came))
        return end - begin, came[end] - came[begin]


def follow(visits: Visited, row: IntArray, shown: Shown, n: int) -> tuple[Visits, Shown]:
    """Follow links from visit to visit.

    Parameters
    ----------
    visits : Visited
        Of one shard, those that count.
    row : (m,) int64
        The source of each, of n.
    shown : Shown
        At the visits before.
    n : int

    Returns
    -------
    visits : Visits
        Sorted by `row`.
    shown : Shown
        At the last visits; links of sources without a visit stay.
    """
    m = len(row)
    # The number of a visit among those of its source that have not failed, from 1 on; before them is 0.
    done = np.cumsum(visits.ok, dtype=np.int64)
    start = np.searchsorted(visits.source_hash, visits.source_hash)
    number = done - (done[start] - visits.ok[start]) if m else done
    of_old, of_new = _Runs(shown.source_hash), _Runs(visits.source_hash)
    distinct = np.union1d(of_old.values, of_new.values)
    pair = np.concatenate(
        [
            _pairs(of_old.each(np.searchsorted(distinct, of_old.values)), shown.target_hash),
            _pairs(of_new.each(np.searchsorted(distinct, of_new.values))[visits.visit], visits.target),
        ]
    )
    old = len(shown.source_hash)
    visit = np.concatenate([np.full(old, -1), visits.visit])
    of = np.concatenate([np.zeros(old, np.int64), number[visits.visit] if m else visits.visit])
    came = np.concatenate([shown.came, np.ones(len(visits.visit), np.bool_)])
    order = np.argsort(pair, kind="stable")
    pair, of, visit = pair[order], of[order], visit[order]
    same = np.append(False, pair[1:] == pair[:-1]) if len(pair) else np.zeros(0, np.bool_)
    before = np.append(-1, of[:-1]) if len(of) else of
    twice = same & (of == before)
    if twice.any():
        order, of, visit, same = (x[~twice] for x in (order, of, visit, same))
        before = np.append(-1, of[:-1])
    stays = same & (of == before + 1)
    real = visit >= 0
    fresh = np.where(real, ~stays, came[order])
    if visits.partial.any():
        fresh &= ~real | ~visits.partial[visit]
    kept_rows = np.flatnonzero(stays[1:] & fresh[:-1]) + 1
    links = np.bincount(visit[real], minlength=m)
    young = np.bincount(visit[real & fresh], minlength=m)
    kept = np.bincount(visit[kept_rows], minlength=m)
    held = _of_visit_before(visits, number, young, shown)
    # What is there at the last visit of each source.
    ends = np.append(visits.source_hash[1:] != visits.source_hash[:-1], True) if m else np.zeros(0, np.bool_)
    seen = visits.source_hash[ends & (number > 0)]
    lasting = np.zeros(m, np.bool_)
    lasting[:] = number == (number[np.flatnonzero(ends)[np.cumsum(ends) - ends]] if m else number)
    gone = of_old.each(np.isin(of_old.values, seen))
    keep = np.concatenate([~gone, lasting[visits.visit]])[order]
    order, fresh = order[keep], fresh[keep]
    source = np.concatenate([shown.source_hash, visits.source_hash[visits.visit]])[order]
    target = np.concatenate([shown.target_hash, visits.target])[order]
    by_row = np.lexsort((visits.at_s, row))
    made = Visits(
        row[by_row], visits.at_s[by_row], visits.ok[by_row], links[by_row], visits.new[by_row], held[by_row],
        kept[by_row],
    )  # fmt: skip
    return made, Shown(source, target, fresh)


def _of_visit_before(visits: Visited, number: IntArray, young: IntArray, shown: Shown) -> IntArray:
    """How many links came to a source at the visit before each one."""
    made = np.zeros(len(number), np.int64)
    good = np.flatnonzero(visits.ok)
    made[good[1:]] = young[good[:-1]]
    first = good[number[good] == 1]
    made[first] = shown.counts(visits.source_hash[first])[1]
    return made


class _Runs:
    """Equal values that stand together: the distinct ones, and how often each."""

    def __init__(self, values: UIntArray) -> None:
        starts = (
            np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.zeros(0, int)
        )
        self.values = values[starts]
        self._many = np.diff(np.append(starts, len(values)))

    def each(self, of_run: np.ndarray) -> np.ndarray:
        """What belongs to each run, for all of its values."""
        return np.repeat(of_run, self._many)


def _pairs(source: IntArray, target: UIntArray) -> UIntArray:
    """Keys of links, in the order of sources. Of a target 40 bits tell it from others of the source."""
    return (source.astype(np.uint64) << np.uint64(40)) | (target & np.uint64((1 << 40) - 1))
