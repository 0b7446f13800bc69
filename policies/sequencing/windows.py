"""When a page's next crawls may happen tonight, from the time of its last crawl.

Everything here works on one or more *groups*: sets of pages, each with a timeline of slots of its own (a
shard; the pages of one busy host on the slots of that host). Rows of a group are contiguous. Time is measured
in slots of the group, from 0 to its number of slots.

A page with share p of the slots gets a sequence of windows of length 1/p, one crawl each. Windows that tile
time from each page's last crawl need not fit into the slots that there are tonight: one number per group,
theta, shifts debts so that they do, and then serving the earliest deadline first meets every window.
"""

from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import FloatArray, IntArray

RELEASE_SLACK_SLOTS = 1e-7
"""Windows open this much early, so that rounding errors do not cost a slot."""

_NEWTON_STEPS = 60
_GRID_BITS = 24
_RANK_BITS = 32
_MARGIN = 64


def solve_theta(
    share: FloatArray, debt: FloatArray, group_start: IntArray, ahead: float | FloatArray = 0.0
) -> FloatArray:
    """Solve ``sum(min(1, share * theta)) = sum(debt) + ahead`` per group.

    The left side is concave, increasing and piecewise linear in theta, so Newton's method from below climbs
    to the solution without passing it and ends exactly when the set of saturated pages no longer changes.

    Parameters
    ----------
    share : (n,) float64
        Share of each page in the slots of its group, above 0.
    debt : (n,) float64
        Crawls each page is short of, in [0, 1].
    group_start : (g + 1,) int64
        Rows ``group_start[j]:group_start[j + 1]`` are group j; no group is empty.
    ahead : float or (g,) float64
        Crawls that others get before their turn, whom these pages have to make room for.

    Returns
    -------
    theta : (g,) float64
        In slots. Where every page owes 1, the longest window (the least solution).
    """
    starts = group_start[:-1]
    sizes = np.diff(group_start)
    single = starts.size == 1
    debts = np.clip(np.add.reduceat(debt, starts) + ahead, 0.0, sizes)
    theta = np.zeros(starts.size)
    saturated = np.full(starts.size, -1.0)
    for _ in range(_NEWTON_STEPS):
        if single:
            free = share * theta[0] < 1.0
            left = np.sum(share * free, keepdims=True)
            full = sizes - float(np.count_nonzero(free))
        else:
            free = share * np.repeat(theta, sizes) < 1.0
            left = np.add.reduceat(share * free, starts)
            full = sizes - np.add.reduceat(free.astype(np.float64), starts)
        moving = (full > saturated) & (left > 0.0)
        if not moving.any():
            return theta
        step = (debts - full) / np.where(left > 0.0, left, 1.0)
        theta = np.where(moving, np.maximum(theta, step), theta)
        saturated = np.where(moving, full, saturated)
    for j in np.flatnonzero(moving).tolist():
        theta[j] = _theta_by_sorting(share[group_start[j] : group_start[j + 1]], float(debts[j]))
    return theta


def _theta_by_sorting(share: FloatArray, debts: float) -> float:
    """Solve one group by looking at every breakpoint: for shares so far apart that Newton's steps are
    many."""
    falling = np.sort(share)[::-1]
    rest = np.cumsum(falling[::-1])[::-1]
    full = np.arange(falling.size)
    at_break = full + rest / falling
    k = min(int(np.searchsorted(at_break, debts)), falling.size - 1)
    return float(max(0.0, debts - k) / rest[k])


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of n pages: the first one, and how they repeat.

    Attributes
    ----------
    first_deadline : (n,) float64
        End of the first window, in slots; its last usable slot is the last whole one before.
    interval : (n,) float64
        Length of a window, in slots.
    count : (n,) int64
        Windows that open by the last slot of the night.
    """

    first_deadline: FloatArray
    interval: FloatArray
    count: IntArray


def windows(share: FloatArray, debt: FloatArray, theta: FloatArray, slots: FloatArray | float) -> Windows:
    """Lay out tonight's windows of pages.

    With ``owed = debt - min(1, share * theta)`` the k-th window is ``[(k - 1 - owed) / share, (k - owed) /
    share)``. It is computed from its end ``(1 - debt) / share + min(1 / share, theta)``, which keeps the ties
    of overdue pages exact.

    Parameters
    ----------
    share, debt : (n,) float64
        As in `solve_theta`.
    theta : (n,) float64
        Solution for the group of each page, in slots.
    slots : (n,) float64
        Number of slots of the group of each page.
    """
    interval = 1.0 / share
    return repeated((1.0 - debt) * interval + np.minimum(interval, theta), share, slots)


def repeated(first_deadline: FloatArray, share: FloatArray, slots: FloatArray | float) -> Windows:
    """Windows of length ``1 / share`` that follow each other, the first of which ends at `first_deadline`.

    Parameters
    ----------
    first_deadline : (n,) float64
        In slots.
    share : (n,) float64
        Share of each page in the slots of its group, above 0.
    slots : (n,) float64
        Number of slots of the group of each page.
    """
    count = np.floor((slots - 1.0 + RELEASE_SLACK_SLOTS - first_deadline) * share) + 2.0
    return Windows(first_deadline, 1.0 / share, np.maximum(count, 0.0).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Jobs:
    """Windows as jobs on one timeline on which the groups follow each other, most urgent job first in each.

    Attributes
    ----------
    row : (j,) int64
        Row of the page whose window it is, by rank: rank 0 is the most urgent job of the first group.
    rank : (j,) int64
        Jobs in the order in which they open (those that open together by rank).
    opening : (slots,) int64
        How many jobs open at each slot of the common timeline.
    """

    row: IntArray
    rank: IntArray
    opening: IntArray


def jobs(
    pages: Windows,
    priority: IntArray,
    priorities: int,
    group: IntArray | None,
    group_slots: IntArray,
    spare: int = 0,
) -> Jobs:
    """Expand windows into jobs, ranked by deadline and then by priority.

    Parameters
    ----------
    pages : Windows
    priority : (n,) int64
        Among equal deadlines the lower one goes first; no two the same, all in [0, priorities].
    priorities : int
    group : (n,) int64 or None
        Group of each row; None when there is one group only.
    group_slots : (g,) int64
        Slots of each group.
    spare : int
        One group keeps the most urgent jobs only: its number of slots and `spare` more, provided that these
        leave no slot without an open window. Nobody can reach the others unless hosts hold the first back.
    """
    total = int(group_slots.sum())
    keep = np.flatnonzero(pages.count > 0)
    limit = total + spare
    if group is None:
        keep = _most_urgent(pages, priority, priorities, keep, total, limit)
    repeats = pages.count[keep]
    row = np.repeat(keep, repeats)
    interval = np.repeat(pages.interval[keep], repeats)
    nth = np.arange(row.size) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    deadline = np.repeat(pages.first_deadline[keep], repeats) + nth * interval
    slots: FloatArray | float = float(total)
    start: FloatArray | float = 0.0
    if group is not None:
        of_row = np.repeat(group[keep], repeats)
        slots = group_slots[of_row].astype(np.float64)
        start = (np.cumsum(group_slots) - group_slots)[of_row].astype(np.float64)
    if group is None and row.size > limit + _MARGIN:
        kept = np.flatnonzero(deadline <= np.partition(deadline, limit + _MARGIN)[limit + _MARGIN])
        opening = _opening(deadline[kept], interval[kept], slots, start, total)[1]
        if np.all(np.cumsum(opening) > np.arange(total)):
            deadline, interval, row = deadline[kept], interval[kept], row[kept]
    slot, opening = _opening(deadline, interval, slots, start, total)
    key = _keys(deadline, slots, start, total, priority[row], priorities)
    order = np.argsort(key)
    by_slot = (slot[order] << _RANK_BITS) | np.arange(order.size)
    by_slot.sort()
    return Jobs(row[order], by_slot & ((1 << _RANK_BITS) - 1), opening)


def _opening(
    deadline: FloatArray,
    interval: FloatArray,
    slots: FloatArray | float,
    start: FloatArray | float,
    total: int,
) -> tuple[IntArray, IntArray]:
    """Slot at which each window opens, and how many open at each slot."""
    opens = np.ceil(deadline - interval - RELEASE_SLACK_SLOTS)
    np.clip(opens, 0.0, slots - 1.0, out=opens)
    slot = (opens + start).astype(np.int64)
    return slot, np.bincount(slot, minlength=total)


def _most_urgent(
    pages: Windows, priority: IntArray, priorities: int, rows: IntArray, total: int, limit: int
) -> IntArray:
    """Drop all but `limit` of the windows that are open at slot 0, and what follows them."""
    first = pages.first_deadline[rows]
    is_open = first - pages.interval[rows] <= RELEASE_SLACK_SLOTS
    if int(np.count_nonzero(is_open)) <= limit:
        return rows
    key = _keys(first[is_open], float(total), 0.0, total, priority[rows[is_open]], priorities)
    kept = ~is_open
    kept[is_open] = key <= np.partition(key, limit)[limit - 1]
    return rows[kept]


def _keys(
    deadline: FloatArray,
    slots: FloatArray | float,
    start: FloatArray | float,
    total: int,
    priority: IntArray,
    priorities: int,
) -> IntArray:
    """Unique integers in the order of (group, deadline, priority).

    Deadlines are rounded to a fine grid, which turns those that differ by rounding errors into ties. Those
    more than twice the night away are squeezed into the length of one more night; their order stays.
    """
    tie_bits = max(1, priorities.bit_length())
    grid_bits = min(_GRID_BITS, 62 - tie_bits - (3 * total).bit_length())
    if grid_bits < 4:
        raise ValueError(f"{priorities} pages and {total} slots in one shard are too many; use more shards")
    place = 3.0 * start + deadline
    far = np.flatnonzero(deadline > 2.0 * slots)
    if far.size:
        night = slots[far] if isinstance(slots, np.ndarray) else slots
        begin = start[far] if isinstance(start, np.ndarray) else start
        place[far] = 3.0 * (begin + night) - 2.0 * night * (night / deadline[far])
    place *= float(1 << grid_bits)
    key: IntArray = np.rint(place, out=place).astype(np.int64)
    key <<= tie_bits
    key |= priority
    return key
