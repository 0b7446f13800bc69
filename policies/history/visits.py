"""Crawl observations as arrays, and the visits among them in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.history.page_state import NO_TIME, PageState
from policies.numerics.typing_ import BoolArray, ByteArray, IntArray, UIntArray

MIN_GAP_US = 60_000_000
STATUS_NONE = -32768
"""Stands for a missing status; counts as a success."""

REWRITTEN = 1 << 31
"""Set in the form of a digest that is hashed by another text than versions without forms took."""

OTHER = 1
"""The low four bits of the form of a text that looks like no digest; the others are its length."""

SUCCESS, REVISIT, UNMODIFIED, GONE, FAILED = range(5)
"""Kinds of answer, in the order in which rows of one instant are taken."""

# Rows and pages of a block: its arrays stay in the processor's cache.
_BLOCK = 1 << 16

_SAMPLE = 4096


@dataclass(frozen=True, slots=True)
class Observations:
    """Rows of a crawl log, in any order.

    Attributes
    ----------
    page : (k,) int64
        Code of the page, 0..n-1 in the order of the state.
    fetched_at_us : (k,) int64, microseconds since 1970, UTC
    status : (k,) int16, optional
        HTTP status, `STATUS_NONE` where missing.
    digest : (k,) uint64, optional
        Hash of the content, 0 where there is none. The digest of an empty body must come as 0.
    digest_form : (k,) uint32, optional
        What can be seen of its algorithm and spelling, see `same_form`; 0 where that is not known.
    changed : (k,) int8, optional
        What the crawler says: 1 changed, 0 unchanged, -1 nothing.
    not_modified : (k,) bool, optional
    last_modified_us : (k,) int64, microseconds, `NO_TIME` where missing, optional
    """

    page: IntArray
    fetched_at_us: IntArray
    status: NDArray[np.int16] | None = None
    digest: UIntArray | None = None
    changed: NDArray[np.int8] | None = None
    not_modified: BoolArray | None = None
    last_modified_us: IntArray | None = None
    digest_form: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.page)

    def check(self, n: int) -> None:
        """Raise `ValueError` on columns of unequal length or pages outside 0..n-1."""
        for name in (f.name for f in fields(self)):
            column = getattr(self, name)
            if column is not None and len(column) != len(self):
                raise ValueError(f"{name} has {len(column)} rows and page has {len(self)}; give one each")
        if len(self) and not (self.page.min() >= 0 and self.page.max() < n):
            raise ValueError(
                f"page codes {self.page.min()}..{self.page.max()} do not fit a state of {n} pages; "
                f"expand the state first"
            )
        if len(self) and self.fetched_at_us.min() == NO_TIME:
            raise ValueError("fetched_at_us has a missing time; reject such rows before the fold")


@dataclass(slots=True)
class Visits:
    """Visits of a run of pages, sorted by (page, time, content).

    Attributes
    ----------
    page : (k,) int64
    at_us : (k,) int64, microseconds
    code : (k,) uint8
        Kind of answer, plus 8 times the flag: 0 nothing said, 1 unchanged, 2 changed.
    digest : (k,) uint64
    modified_us : (k,) int64, microseconds, or None where no row has a Last-Modified
    form : (k,) uint32, or None where no row has a known form of digest
    """

    page: IntArray
    at_us: IntArray
    code: ByteArray
    digest: UIntArray
    modified_us: IntArray | None
    form: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.page)

    def take(self, rows: IntArray) -> Visits:
        columns = (getattr(self, f.name) for f in fields(self))
        taken: list[Any] = [None if c is None else c.take(rows, mode="clip") for c in columns]
        return Visits(*taken)


def kind_of(status: NDArray[np.int16], not_modified: BoolArray | None) -> ByteArray:
    """Kind of answer of each row: (k,) uint8."""
    answered = ((status >= 200) & (status < 400)) | (status == STATUS_NONE)
    kind: ByteArray = np.where(answered, np.uint8(SUCCESS), np.uint8(FAILED))
    kind[status == 304] = UNMODIFIED
    kind[(status == 404) | (status == 410)] = GONE
    if not_modified is not None and not_modified.any():
        kind[not_modified & ((kind == SUCCESS) | ((kind == FAILED) & (status <= 0)))] = REVISIT
    return kind


def same_form(form: NDArray[np.uint32], known: NDArray[np.uint32]) -> BoolArray:
    """Whether digests can be compared: (k,) bool.

    Digests of two known forms cannot, unless they look like none: then any two, or any of one length. One
    with `REWRITTEN` set, which is no part of the form, cannot be compared with one of unknown form.
    """
    bare, low = form & np.uint32(REWRITTEN - 1), np.uint32(15)
    unlike, known_unlike = (bare & low) == OTHER, (known & low) == OTHER
    same = (bare == known) | (unlike & known_unlike) | (bare == 0)
    same |= (unlike | known_unlike) & ((bare ^ known) <= low)
    fine: BoolArray = np.where(known == 0, form < REWRITTEN, same)
    return fine


class Log:
    """The visits of a log that are newer than the state, sorted, a block of pages at a time.

    Parameters
    ----------
    state : PageState, n pages
    rows : Observations
    as_of_us : int, microseconds
    counts : dict
        Gets the rows that are no such visits: after_as_of, late, duplicate, failed.

    Attributes
    ----------
    last_attempt_at_us : (n,) int64, microseconds
        Last attempt of each page, failed fetches of the log included.
    """

    def __init__(self, state: PageState, rows: Observations, as_of_us: int, counts: dict[str, int]) -> None:
        k = len(rows)
        page = np.asarray(rows.page, dtype=np.int64)
        at_us = np.asarray(rows.fetched_at_us, dtype=np.int64)
        status = np.full(k, STATUS_NONE, dtype=np.int16) if rows.status is None else rows.status
        kind = kind_of(np.asarray(status, dtype=np.int16), rows.not_modified)
        code: ByteArray = kind
        if rows.changed is not None:
            code = kind | ((np.clip(rows.changed, -1, 1) + 1).astype(np.uint8) << np.uint8(3))
        modified = (
            None if rows.last_modified_us is None else np.asarray(rows.last_modified_us, dtype=np.int64)
        )
        if modified is not None and modified.max(initial=NO_TIME) == NO_TIME:
            modified = None
        digest = (
            np.zeros(k, dtype=np.uint64) if rows.digest is None else np.asarray(rows.digest, dtype=np.uint64)
        )
        form = None if rows.digest_form is None else np.asarray(rows.digest_form, dtype=np.uint32)
        self._columns = Visits(page, at_us, code, digest, modified, form)
        self._n = len(state)

        drop = at_us > as_of_us
        counts["after_as_of"] += int(np.count_nonzero(drop))
        failed = kind == FAILED
        if state.last_attempt_at_us.max(initial=NO_TIME) != NO_TIME:
            last = state.last_success_at_us[page]
            behind = at_us <= last
            repeat = (at_us == last) & ~failed
            if failed.any():
                attempt = state.last_attempt_at_us[page]
                repeat |= failed & (at_us == attempt) & ~behind
                behind |= failed & (at_us <= attempt)
            behind &= ~drop
            repeats = int(np.count_nonzero(repeat & behind))
            counts["duplicate"] += repeats
            counts["late"] += int(np.count_nonzero(behind)) - repeats
            drop |= behind
        failed &= ~drop
        self.last_attempt_at_us = state.last_attempt_at_us.copy()
        attempts = np.flatnonzero(failed)
        if len(attempts):
            counts["failed"] += len(attempts)
            np.maximum.at(self.last_attempt_at_us, page[attempts], at_us[attempts])
            drop |= failed
        self._sort(drop)

    def _sort(self, drop: BoolArray) -> None:
        """Sort rows by one integer: page, time and row, of the time as many bits as there is room for."""
        page, at_us = self._columns.page, self._columns.at_us
        k = len(page)
        self._row_bits = max(k - 1, 0).bit_length()
        room = 63 - self._row_bits - max(self._n - 1, 0).bit_length()
        # Few times lie outside the range of a sample; they are cut to it and told apart later, like all ties.
        sample = at_us[:: max(1, k // _SAMPLE)]
        first, last = (int(sample.min()), int(sample.max())) if k else (0, 0)
        lost_bits = max(0, (last - first).bit_length() - room)
        self._page_shift = self._row_bits + (last - first).bit_length() - lost_bits
        key = np.clip(at_us, first, last)
        key -= first
        key >>= lost_bits
        key <<= self._row_bits
        key |= page << self._page_shift
        key |= np.arange(k)
        if drop.any():
            key = key[~drop]
        if not (key[1:] > key[:-1]).all():
            key.sort()
        self._key = key

    def blocks(self) -> Iterator[tuple[int, int, Visits]]:
        """Runs of pages that together cover all of them: first page, last page + 1, their visits."""
        low, begin = 0, 0
        while low < self._n:
            high, end = min(low + _BLOCK, self._n), begin + _BLOCK
            if end < len(self._key):
                high = min(high, max(low + 1, int(self._key[end]) >> self._page_shift))
            if high == self._n:
                end = len(self._key)
            else:
                end = int(np.searchsorted(self._key, high << self._page_shift))
            yield low, high, self._visits(self._key[begin:end])
            low, begin = high, end

    def _visits(self, key: IntArray) -> Visits:
        row = key & ((1 << self._row_bits) - 1)
        same = np.flatnonzero((key[1:] ^ key[:-1]) >> self._row_bits == 0)
        if len(same):
            # These share page and rounded time; they are compared in full.
            tied = np.zeros(len(key), dtype=np.bool_)
            tied[same] = tied[same + 1] = True
            place = np.flatnonzero(tied)
            twins = self._columns.take(row[place])
            content = [
                ~twins.code,
                twins.digest - np.uint64(1),
                twins.code & np.uint8(7),
                twins.at_us,
                twins.page,
            ]
            if twins.modified_us is not None:
                content.insert(0, ~twins.modified_us)
            if twins.form is not None:
                content.insert(0, twins.form)
            row[place] = row[place[np.lexsort(content)]]
        visits = self._columns.take(row)
        visits.page = key >> self._page_shift
        return visits


def drop_repeats(state: PageState, visits: Visits, counts: dict[str, int]) -> Visits:
    """Keep visits at least `MIN_GAP_US` after the last one kept, beginning with the state's."""
    k = len(visits.page)
    if not k:
        return visits
    first = np.ones(k, dtype=np.bool_)
    first[1:] = visits.page[1:] != visits.page[:-1]
    last = state.last_success_at_us[visits.page[np.flatnonzero(first)]]
    dropped = too_near(visits.at_us, first, last, MIN_GAP_US)
    counts["duplicate"] += len(dropped)
    if not len(dropped):
        return visits
    kept = np.ones(k, dtype=np.bool_)
    kept[dropped] = False
    return visits.take(np.flatnonzero(kept))


def too_near(at_us: IntArray, first: BoolArray, last_us: IntArray, min_gap_us: int) -> IntArray:
    """Rows less than a gap after the last one kept of their group.

    Parameters
    ----------
    at_us : (k,) int64, microseconds, ascending in each group
    first : (k,) bool
        Whether a row is the first of its group.
    last_us : (groups,) int64, microseconds
        Last row kept of each group before these, `NO_TIME` if none.
    min_gap_us : int, microseconds

    Returns
    -------
    int64, ascending
    """
    near = np.zeros(len(at_us), dtype=np.bool_)
    near[1:] = (np.diff(at_us) < min_gap_us) & ~first[1:]
    starts = np.flatnonzero(first)
    near[starts] = (last_us != NO_TIME) & (at_us[starts] - np.maximum(last_us, -(1 << 62)) < min_gap_us)
    if not near.any():
        return np.zeros(0, dtype=np.int64)

    # Chains of rows each near the one before; only their heads are kept for sure.
    chained = near.copy()
    chained[:-1] |= near[1:]
    rows = np.flatnonzero(chained)
    chain_at, head = at_us[rows], ~near[rows]
    # Where a group's first row is near the one before these, that one heads the chain.
    behind = np.flatnonzero(first[rows] & near[rows])
    group = np.searchsorted(starts, rows[behind])
    chain_at = np.insert(chain_at, behind, last_us[group])
    head = np.insert(head, behind, True)
    rows = np.insert(rows, behind, -1)
    return rows[~_first_of_each_gap(chain_at, head, min_gap_us)]


def _first_of_each_gap(at_us: IntArray, head: BoolArray, min_gap_us: int) -> BoolArray:
    """In each chain keep the head, then always the next row at least a gap later.

    Each row points to its successor; paths from the heads are followed in steps that double, so a chain
    of a million rows takes twenty passes.
    """
    k = len(at_us)
    axis = np.zeros(k, dtype=np.int64)
    axis[1:] = np.diff(at_us)
    axis[head] = 2 * min_gap_us
    np.cumsum(axis, out=axis)
    chain = np.cumsum(head)
    chain = np.append(chain, -1)
    jump = np.searchsorted(axis, axis + min_gap_us)
    jump[chain[jump] != chain[:-1]] = k
    jump = np.append(jump, k)
    keep = np.append(head, False)
    while True:
        reached = jump[np.flatnonzero(keep)]
        keep[reached] = True
        keep[k] = False
        jump = jump[jump]
        if (jump == k).all():
            return keep[:k]
