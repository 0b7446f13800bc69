"""Giving crawls their hours: each where it keeps most requests fresh, as far as hours and hosts have room."""

from __future__ import annotations

import numpy as np

from policies.clocks.worth import INSTANTS
from policies.numerics.typing_ import FloatArray, IntArray


def place(kept: FloatArray, room: IntArray) -> IntArray:
    """Choose an instant for each crawl such that no instant has more crawls than it has room for.

    Crawls choose the instant that is best for them. Where too many choose one, those stay that would lose
    most by their second best, and the others choose again among instants that have room: an instant that is
    full stays full.

    Parameters
    ----------
    kept : (k, instants) float64
        What each crawl brings at each instant, -inf where it may not be.
    room : (instants,) int64
        Most crawls of each; together at least k.

    Returns
    -------
    (k,) int64
    """
    crawls, instants = kept.shape
    chosen = np.full(crawls, -1)
    left = room.astype(np.int64).copy()
    value = kept.copy()
    waiting = np.arange(crawls)
    for _ in range(instants + 1):
        if not waiting.size:
            break
        value[:, left <= 0] = -np.inf
        mine = value[waiting]
        first = mine.argmax(axis=1)
        best = mine[np.arange(waiting.size), first]
        mine[np.arange(waiting.size), first] = -np.inf
        second = mine.max(axis=1)
        with np.errstate(invalid="ignore"):
            regret = np.where(np.isfinite(second), best - second, np.inf)
        # By instant, those who would lose most by going elsewhere first.
        order = np.lexsort((waiting, -regret, first))
        at = first[order]
        begin = np.flatnonzero(np.diff(at, prepend=-1))
        rank = np.arange(at.size) - np.repeat(begin, np.diff(np.append(begin, at.size)))
        stays = rank < left[at]
        winners = order[stays]
        chosen[waiting[winners]] = first[winners]
        left -= np.bincount(first[winners], minlength=instants)
        kept_waiting = np.ones(waiting.size, np.bool_)
        kept_waiting[winners] = False
        waiting = waiting[kept_waiting]
    return chosen


def splitting(clock: FloatArray, share: FloatArray) -> IntArray:
    """The instants before which a share of the night's changes should have come: (k,) int64.

    Parameters
    ----------
    clock : (k, m) float64
        Clock days of each page in each step, the night's instants first.
    share : (k,) float64 in [0, 1]
    """
    passed = np.cumsum(clock[:, :INSTANTS], axis=1)
    found: IntArray = (passed < share[:, None] * passed[:, -1:]).sum(axis=1)
    return np.minimum(found, INSTANTS - 1)


def spread(instant: IntArray, weight: FloatArray, horizon_us: int, instants: int) -> IntArray:
    """Moments of crawls within their instants, evenly apart, those that weigh most first: (k,) int64.

    Microseconds of the night.
    """
    order = np.lexsort((-weight, instant))
    at = instant[order]
    begin = np.flatnonzero(np.diff(at, prepend=-1))
    size = np.diff(np.append(begin, at.size))
    rank = np.arange(at.size) - np.repeat(begin, size)
    moment = np.empty(instant.size, np.int64)
    width = horizon_us / instants
    moment[order] = ((at + (rank + 0.5) / np.repeat(size, size)) * width).astype(np.int64)
    return moment


def keep_gaps(
    host: IntArray, moment_us: IntArray, gap_us: IntArray, free_us: IntArray, horizon_us: int
) -> IntArray:
    """Move crawls as little as their hosts' gaps need: first later, then, at the end of the night, earlier.

    Parameters
    ----------
    host : (k,) int64
    moment_us : (k,) int64
    gap_us, free_us : (hosts,) int64
        Least time between crawls of a host, and from when on it may be crawled.
    horizon_us : int
        Every host has room for its crawls before this, gaps kept.

    Returns
    -------
    (k,) int64
    """
    order = np.lexsort((moment_us, host))
    h, t = host[order], moment_us[order]
    gap = gap_us[h]
    begin = np.flatnonzero(np.diff(h, prepend=-1))
    size = np.diff(np.append(begin, h.size))
    rank = np.arange(h.size) - np.repeat(begin, size)
    # With gaps taken off, moments must not decrease; then from the end backwards.
    t = np.maximum(t, free_us[h]) - rank * gap
    t = _running_max(t, begin, size)
    last = horizon_us - 1 - (np.repeat(size, size) - 1) * gap
    moved = np.empty_like(t)
    moved[order] = np.maximum(np.minimum(t, last), free_us[h]) + rank * gap
    return moved


def _running_max(values: IntArray, begin: IntArray, size: IntArray) -> IntArray:
    """Running maximum within runs of rows."""
    if not values.size:
        return values
    low, span = int(values.min()), int(values.max() - values.min()) + 1
    run = np.repeat(np.arange(begin.size), size)
    if span * begin.size < 1 << 62:
        lifted = np.maximum.accumulate(values - low + run * span)
        result: IntArray = lifted - run * span + low
        return result
    out = values.copy()
    for b, n in zip(begin.tolist(), size.tolist(), strict=True):
        out[b : b + n] = np.maximum.accumulate(values[b : b + n])
    return out
