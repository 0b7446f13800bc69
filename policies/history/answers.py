"""What pages answer when a fetch does not find them: redirects, 404 and 410, failures; and since when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.history.visits import FAILED, GONE, REVISIT, STATUS_NONE, SUCCESS, kind_of
from policies.numerics.typing_ import BoolArray, ByteArray, IntArray

FOUND, REDIRECTED, LOST, FAILING = range(4)
"""Classes of answers. A page is found where its last fetch got its content, or heard that it is the same."""

Statuses = NDArray[np.int16]


def class_of(status: Statuses, not_modified: BoolArray | None = None) -> ByteArray:
    """The class of each answer: (k,) uint8.

    Parameters
    ----------
    status : (k,) int16
        HTTP status, `STATUS_NONE` where missing.
    not_modified : (k,) bool, optional
    """
    kind = kind_of(status, not_modified)
    found = np.full(len(kind), FOUND, np.uint8)
    found[(kind == SUCCESS) & (status >= 300)] = REDIRECTED
    found[kind == GONE] = LOST
    found[kind == FAILED] = FAILING
    found[kind == REVISIT] = FOUND
    return found


def last_answers(
    status_before: Statuses,
    since_before_us: IntArray,
    heard_us: IntArray,
    page: IntArray,
    at_us: IntArray,
    status: Statuses,
    not_modified: BoolArray | None,
    as_of_us: int,
) -> tuple[Statuses, IntArray]:
    """The last status of each of n pages that is not found, and since when its answers are of that class.

    Parameters
    ----------
    status_before, since_before_us : (n,) int16, int64 microseconds
        The same up to the night before; `STATUS_NONE` of pages that were found.
    heard_us : (n,) int64, microseconds
        Last fetch up to the night before, failed or not: rows that are no newer count as known.
    page, at_us, status, not_modified : (k,) int64, int64 microseconds, int16, bool
        Rows of tonight's log, in any order.
    as_of_us : int, microseconds
        Later rows are ignored.

    Returns
    -------
    (n,) int16, (n,) int64
        `STATUS_NONE` where the page is found; then its time says nothing. Of rows of one instant one that
        found the page counts, else the greatest status. The same for any cut of a log into nights.
    """
    answer = class_of(status, not_modified)
    new = (at_us > heard_us[page]) & (at_us <= as_of_us)
    concerned = status_before != STATUS_NONE
    concerned[page[new & (answer != FOUND)]] = True
    rows = np.flatnonzero(new & concerned[page])
    if not len(rows):
        return status_before, since_before_us
    rows = rows[np.lexsort((status[rows], answer[rows] == FOUND, at_us[rows], page[rows]))]
    of, kind = page[rows], answer[rows]
    first = np.diff(of, prepend=-1) != 0
    begins = first | (np.diff(kind, prepend=kind[0]) != 0)
    run = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))
    last = np.flatnonzero(np.append(first[1:], True))
    pages, run = of[last], run[last]
    goes_on = first[run] & (status_before[pages] != STATUS_NONE)
    goes_on &= class_of(status_before[pages]) == kind[last]
    said, since = status_before.copy(), since_before_us.copy()
    said[pages] = np.where(kind[last] == FOUND, STATUS_NONE, status[rows[last]])
    since[pages] = np.where(goes_on, since_before_us[pages], at_us[rows[run]])
    return said, since
