"""Signals of two sources that come together: do they tell the same changes?

A site that changes a page moves its sitemap's `lastmod` and pings, too. Two signals of a page make a *near*
pair if they lie in the same clock hour or in neighbouring ones, and a *far* pair if they lie about a day
apart, 23 to 25 clock hours. What comes together by chance, or because sites work by day and machines by the
clock, is as often a day apart, in either direction: near pairs beyond half the far ones are one change told
twice.

Every source's recent hours are kept as bits, so that a pair is found whichever of its signals becomes known
first: a `lastmod` may be read a night after the ping. A pair belongs to the interval of its later signal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policies.numerics.sums import sum_by
from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.signals.counts import REPEAT_US
from policies.signals.evidence import PageSignals
from policies.signals.state import MAX_SOURCES, RECENT_HOURS

_NEAR = 1
_FAR = (23, 25)
_NEAR_HOURS = 3.0  # of a day of 24: the hour of a signal and its neighbours

PRIOR_PAIRS = 2.0
"""Pairs of which none tells the same change, in every host's share: sources are taken to be independent."""


def recent_hours(
    recent: NDArray[np.uint64],
    before_us: IntArray,
    last_at_us: IntArray,
    slot: IntArray,
    at_us: IntArray,
) -> NDArray[np.uint64]:
    """Bits of the clock hours in which sources of pages signalled: bit i is i hours before that of the last.

    Parameters
    ----------
    recent : (k,) uint64
        Yesterday's.
    before_us, last_at_us : (k,) int64, microseconds
        Last signals of yesterday (any number where there is none) and of today.
    slot, at_us : (j,) int64
        Tonight's signals.
    """
    last = last_at_us // REPEAT_US
    shift = np.where(recent != 0, last - before_us // REPEAT_US, 0)
    moved = recent << np.minimum(shift, RECENT_HOURS - 1).astype(np.uint64)
    bits = np.where(shift < RECENT_HOURS, moved, np.uint64(0))
    ago = last[slot] - at_us // REPEAT_US
    some = ago < RECENT_HOURS
    np.bitwise_or.at(bits, slot[some], np.uint64(1) << ago[some].astype(np.uint64))
    return bits


def pairs(
    keys: IntArray, recent: NDArray[np.uint64], before_us: IntArray, slot: IntArray, at_us: IntArray
) -> tuple[IntArray, IntArray, BoolArray]:
    """Pairs of signals of one page and two sources with at least one of tonight's.

    Parameters
    ----------
    keys : (k,) int64, ascending
        ``MAX_SOURCES * row + source`` of every source of a page.
    recent : (k,) uint64
        Yesterday's `recent_hours`.
    before_us : (k,) int64, microseconds
        Yesterday's last signal of each.
    slot, at_us : (j,) int64
        Place in `keys` and time of tonight's signals; those of one source at least `REPEAT_US` apart.

    Returns
    -------
    later : (p,) int64
        Tonight's signal that ends in the interval of the pair: the later one of two.
    pair : (p,) int64
        ``MAX_SOURCES**2 * row + MAX_SOURCES * first source + second source``, first < second.
    far : (p,) bool
    """
    none = np.zeros(0, np.int64)
    row = keys // MAX_SOURCES
    several = np.zeros(len(keys), np.bool_)
    several[1:] = row[1:] == row[:-1]
    several[:-1] |= several[1:]
    new = np.flatnonzero(several[slot])
    if not len(new):
        return none, none, np.zeros(0, np.bool_)
    touched = np.zeros(int(row[-1]) + 1, np.bool_)
    touched[row[slot[new]]] = True
    old = np.flatnonzero(several & touched[row] & (recent != 0))
    which, ago = _bits(recent[old])
    of = np.concatenate([old[which], slot[new]])
    hour = np.concatenate([before_us[old[which]] // REPEAT_US - ago, at_us[new] // REPEAT_US])
    signal = np.concatenate([np.full(len(which), -1), new])
    # Hours of all rows on one axis, rows further apart than a pair may be.
    first = int(hour.min()) - _FAR[1]
    span = int(hour.max()) - first + 1
    axis = (np.cumsum(touched) - 1)[row[of]] * span + hour - first
    order = np.argsort(axis)
    axis, of, signal = axis[order], of[order], signal[order]
    source = keys[of] - row[of] * MAX_SOURCES
    found: list[tuple[IntArray, IntArray, BoolArray]] = [(none, none, np.zeros(0, np.bool_))]
    now, step = np.arange(1, len(axis)), 1
    while len(now):
        apart = axis[now] - axis[now - step]
        close = apart <= _FAR[1]
        now, apart = now[close], apart[close]
        far = apart >= _FAR[0]
        use = (far | (apart <= _NEAR)) & (source[now] != source[now - step])
        use &= (signal[now] >= 0) | (signal[now - step] >= 0)
        found.append((now[use], now[use] - step, far[use]))
        step += 1
        now = now[now >= step]
    now, then, far = (np.concatenate([f[i] for f in found]) for i in range(3))
    a, b = signal[now], signal[then]
    later = np.where(b < 0, a, np.where((a >= 0) & (at_us[a] >= at_us[b]), a, b))
    low, high = np.minimum(source[now], source[then]), np.maximum(source[now], source[then])
    return later, (row[of[now]] * MAX_SOURCES + low) * MAX_SOURCES + high, far


def _bits(mask: NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
    """The set bits of each mask: index of the mask, number of the bit."""
    left = np.arange(len(mask))
    which, number = [left[:0]], [left[:0]]
    while len(left):
        lowest = mask & (~mask + np.uint64(1))
        which.append(left)
        number.append(np.frexp(lowest.astype(np.float64))[1].astype(np.int64) - 1)
        mask = mask ^ lowest
        more = mask != 0
        left, mask = left[more], mask[more]
    return np.concatenate(which), np.concatenate(number)


def told_together(heard: PageSignals, group: IntArray, n_groups: int) -> FloatArray:
    """Share of changes that two sources tell together, of the signals of the one that sends fewer.

    Parameters
    ----------
    heard : PageSignals of n pages and S sources
    group : (n,) int64, 0..n_groups-1
        Host of each page.
    n_groups : int

    Returns
    -------
    (n_groups, S, S) float64, in [0, 1]
        At [g, first, second]; 0 elsewhere.

    Notes
    -----
    By chance come the pairs that are a day apart, or those of two sources that signal at random all day, if
    that is more: in the first days there is no day before. A host depends on its own pages in the order
    given.
    """
    row, first, second = heard.pair_page, heard.pair_first, heard.pair_second
    signals, days = heard.ended + heard.running, heard.ended_days + heard.running_days
    n_sources = signals.shape[1]
    size = n_groups * n_sources * n_sources
    place = (group[row] * n_sources + first) * n_sources + second

    one, two = signals[row, first], signals[row, second]
    fewer = np.minimum(one, two)
    random = np.maximum(one * two - fewer, 0.0) / np.maximum(days[row], 1.0) * (_NEAR_HOURS / 24.0)
    near, far, chance = (sum_by(place, values, size) for values in (heard.near, heard.far, random))
    together = near - np.maximum(0.5 * far, chance)
    # All signals count, those of pages on which the two never met as well.
    some = np.flatnonzero(np.bincount(place, minlength=size))
    common = np.zeros(size)
    for pair in np.unique(some % (n_sources * n_sources)).tolist():
        i, j = divmod(pair, n_sources)
        both = np.bincount(group, np.minimum(signals[:, i], signals[:, j]), n_groups)
        common[pair :: n_sources * n_sources] = both
    share = np.clip(together / (common + PRIOR_PAIRS), 0.0, 1.0)
    return share.reshape(n_groups, n_sources, n_sources)
