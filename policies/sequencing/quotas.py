"""Whole slots for a night and its shards, and the moments at which the slots of all shards interleave.

A slot is one crawl opportunity. Rates are real numbers and slots are not, so what rounding takes or gives
tonight is carried into the next night: totals are exact every night and no shard drifts.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from policies.numerics.typing_ import FloatArray, IntArray

HOURS_PER_DAY = 24.0
BIN_US = 600_000_000
"""Ten minutes: the window in which the crawl rate has to be even."""

_EXACT_SHARDS = 16
_SLOTS_PER_SHARD_AND_BIN = 5
_GOLDEN = 0.6180339887498949
_MAX_RANKED_SLOTS = 1_500_000_000
_MAX_ROUNDED_SLOTS = 1 << 25


def total_slots(rate_per_day: float, horizon_hours: float, carried: float = 0.0) -> tuple[int, float]:
    """Number of slots of a night.

    Parameters
    ----------
    rate_per_day : float
        Crawls per day over all pages.
    horizon_hours : float
        Length of the schedule, in hours.
    carried : float
        What the previous night left over, in slots: the second result of the previous call.

    Returns
    -------
    slots : int
        ``floor(rate_per_day * horizon_hours / 24 + carried)``, where a value less than 1e-9 of itself (and
        1e-6) below a whole number counts as that number.
    carried : float
        The fraction left over, in slots; in [-0.5, 1).

    Raises
    ------
    ValueError
        If a rate or a horizon is negative, infinite or NaN, or the carry is not finite.
    """
    if not (math.isfinite(rate_per_day) and rate_per_day >= 0.0):
        raise ValueError(f"rate_per_day is {rate_per_day}; it must be a finite number that is not negative")
    if not (math.isfinite(horizon_hours) and horizon_hours > 0.0):
        raise ValueError(f"horizon_hours is {horizon_hours}; it must be a finite number above 0")
    if not math.isfinite(carried):
        raise ValueError(f"carried is {carried}; it must be finite, start with 0")
    exact = rate_per_day * horizon_hours / HOURS_PER_DAY + carried
    slots = max(0, math.floor(exact + min(0.5, 1e-6 + 1e-9 * abs(exact))))
    return slots, exact - slots


def shard_quotas(rate_per_day: ArrayLike, carry: ArrayLike, slots: int) -> tuple[IntArray, FloatArray]:
    """Share the slots of a night among shards by largest remainder, with the error carried over.

    Each shard is owed ``slots * rate / sum(rate) + carry``. It gets the floor of that, and the slots that are
    left go one each to the largest fractions, ties to the lower shard. The carries are first shifted, in
    proportion to the rates, to add up to 0, so that the totals agree; a shard with rate 0 gets nothing and
    forgets its carry.

    Parameters
    ----------
    rate_per_day : (S,) float
        Crawls per day of each shard.
    carry : (S,) float
        Slots each shard was given short of its due so far; zeros on the first night.
    slots : int
        Slots of the night over all shards.

    Returns
    -------
    quota : (S,) int64
        Slots per shard; adds up to `slots` exactly.
    carry : (S,) float64
        Slots still owed to each shard; adds up to 0, each inside (-1, 1). No rule can promise less: of S
        equal shards that share one slot, one is 1 - 1/S ahead.

    Raises
    ------
    ValueError
        If shapes differ, a rate is negative or not finite, or there are slots and no rate.
    """
    rate = np.asarray(rate_per_day, dtype=np.float64)
    before = np.asarray(carry, dtype=np.float64)
    if rate.ndim != 1 or rate.shape != before.shape:
        raise ValueError(f"rate_per_day {rate.shape} and carry {before.shape} need one number per shard")
    if not (np.all(np.isfinite(rate)) and np.all(rate >= 0.0)):
        raise ValueError("rate_per_day of a shard is negative or not finite; give 0 where there is none")
    if not np.all(np.isfinite(before)):
        raise ValueError("carry of a shard is not finite; start with zeros")
    if slots < 0:
        raise ValueError(f"slots is {slots}; it must not be negative")
    total = math.fsum(rate)
    if total == 0.0:
        if slots:
            raise ValueError(f"{slots} slots but every shard has rate 0; without rates ask for 0 slots")
        return np.zeros(rate.size, np.int64), np.zeros(rate.size)
    share = rate / total
    active = rate > 0.0
    before = np.where(active, before, 0.0)
    due = np.where(active, share * (slots - math.fsum(before)) + before, 0.0)
    quota = np.where(active, np.maximum(np.floor(due), 0.0), 0.0).astype(np.int64)
    missing = slots - int(quota.sum())
    while missing > 0:
        rows = np.flatnonzero(active)
        rows = rows[np.argsort(quota[rows] - due[rows], kind="stable")][:missing]
        quota[rows] += 1
        missing -= rows.size
    while missing < 0:
        rows = np.flatnonzero(quota > 0)
        rows = rows[np.argsort(due[rows] - quota[rows], kind="stable")][:-missing]
        quota[rows] -= 1
        missing += rows.size
    return quota, due - quota


def _uses_ranks(quota: IntArray, horizon_us: int) -> bool:
    shards = int(np.count_nonzero(quota))
    total = int(quota.sum())
    return shards <= _EXACT_SHARDS or total * BIN_US < _SLOTS_PER_SHARD_AND_BIN * shards * horizon_us


def slot_ranks(slots: ArrayLike, shard: int) -> IntArray:
    """Place of each slot of one shard among the slots of all shards.

    Slot k of shard s has the ideal place ``(2k + 1) / (2 slots[s])`` of the night. Ranks order all slots by
    ideal place, ties by shard; over all shards they are 0, 1, ..., B - 1, each once. Integer arithmetic, so
    that shards agree without talking to each other.

    Parameters
    ----------
    slots : (S,) int
        Slots per shard.
    shard : int
        Index of the shard.

    Returns
    -------
    rank : (slots[shard],) int64
        Increasing.

    Raises
    ------
    ValueError
        If quotas are negative or so large that the integers overflow.

    Notes
    -----
    O(slots[shard] x distinct quotas), about 4 ns each.
    """
    quota = _checked_quotas(slots, shard)
    own = int(quota[shard])
    if 2 * own * int(quota.max(initial=0)) + own >= 2**63:
        raise ValueError(f"quotas of {own} and {int(quota.max())} slots are too large; use more shards")
    odd = 2 * np.arange(own, dtype=np.int64) + 1
    rank = np.arange(own, dtype=np.int64)
    # An earlier shard wins a tie, so it counts slots at <= our place; a later one only slots before it.
    for others, add in ((quota[:shard], own), (quota[shard + 1 :], own - 1)):
        values, times = np.unique(others[others > 0], return_counts=True)
        for value, number in zip(values.tolist(), times.tolist(), strict=True):
            rank += number * ((odd * value + add) // (2 * own))
    return rank


def all_slot_ranks(slots: ArrayLike) -> IntArray:
    """`slot_ranks` of all shards, one after the other, at once: (B,) int64.

    Parameters
    ----------
    slots : (S,) int
        Slots per shard.

    Notes
    -----
    O(B log B), whatever the number of shards. Ideal places of two shards are the same or differ by
    1 / (2 slots[s] slots[t]) or more, so below 2**25 slots a shard none are rounded to another order.
    """
    quota = np.asarray(slots, dtype=np.int64)
    if quota.max(initial=0) > _MAX_ROUNDED_SLOTS:
        return np.concatenate([slot_ranks(quota, shard) for shard in range(quota.size)])
    own = np.repeat(quota, quota)
    place = (2 * (np.arange(own.size) - np.repeat(np.cumsum(quota) - quota, quota)) + 1) / (2 * own)
    rank = np.empty(own.size, np.int64)
    rank[np.argsort(place, kind="stable")] = np.arange(own.size)
    return rank


def slot_offsets_us(slots: ArrayLike, shard: int, horizon_us: int) -> IntArray:
    """When each slot of one shard is due, so that all shards together crawl at a constant rate.

    With up to 16 shards, or fewer than 5 slots per shard and ten minutes, slots are spread by global rank:
    ``floor((2 rank + 1) horizon / (2 B))`` with B the slots of all shards and `rank` of `slot_ranks`; any ten
    minutes hold the mean number of slots, rounded up or down. Otherwise ranks would cost more than the
    schedule itself, and the shard spreads its own slots evenly from a phase of its own (multiples of the
    golden ratio): each shard adds at most one slot to its mean in any ten minutes, which with 5 slots or more
    per shard is at most 1.2 times the mean, and far less in practice as the phases are spread evenly too.
    Every shard takes the same of the two ways, as the choice depends on the quotas only.

    Parameters
    ----------
    slots : (S,) int
        Slots per shard.
    shard : int
        Index of the shard.
    horizon_us : int
        Length of the night in microseconds.

    Returns
    -------
    offset_us : (slots[shard],) int64
        Microseconds after the start of the night; in [0, horizon_us), not decreasing.

    Raises
    ------
    ValueError
        If the horizon is not positive, or quotas are negative or too large.

    Notes
    -----
    By ranks O(slots[shard] x distinct quotas), at 4 ns each; by phases O(slots[shard]).
    Memory O(S + slots[shard]).
    """
    quota = _checked_quotas(slots, shard)
    if horizon_us <= 0:
        raise ValueError(f"horizon_us is {horizon_us}; it must be above 0")
    own, total = int(quota[shard]), int(quota.sum())
    if own == 0:
        return np.zeros(0, np.int64)
    if own >= _MAX_RANKED_SLOTS:
        raise ValueError(f"{own} slots in one shard, the limit is {_MAX_RANKED_SLOTS}; use more shards")
    if _uses_ranks(quota, horizon_us):
        if total >= _MAX_RANKED_SLOTS:
            raise ValueError(f"{total} slots in few shards, the limit is {_MAX_RANKED_SLOTS}; use more")
        return _scaled(2 * slot_ranks(quota, shard) + 1, horizon_us, 2 * total)
    phase = math.modf(shard * _GOLDEN)[0]
    return _scaled(np.arange(own, dtype=np.int64), horizon_us, own) + int(phase * horizon_us / own)


def _scaled(numerator: IntArray, factor: int, denominator: int) -> IntArray:
    """Return floor(numerator * factor / denominator) for 0 <= numerator < denominator < 2**31.5, exactly."""
    whole, rest = divmod(factor, denominator)
    result: IntArray = numerator * whole + (numerator * rest) // denominator
    return result


def _checked_quotas(slots: ArrayLike, shard: int) -> IntArray:
    quota = np.asarray(slots, dtype=np.int64)
    if quota.ndim != 1 or np.any(quota < 0):
        raise ValueError("slots must be one number per shard, none of them negative")
    if not 0 <= shard < quota.size:
        raise ValueError(f"shard {shard} is not one of the {quota.size} shards")
    return quota
