"""How tonight's slots divide among hosts and between known and new pages, before anything is put in order."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policies.numerics.typing_ import BoolArray, FloatArray, IntArray
from policies.sequencing.shard_pages import ShardPages

BUSY_FRACTION = 0.05
"""A host that uses more than this part of its limit is scheduled as a whole."""
_ROUNDING = 1e-6


def host_slot_limits(
    max_slots: IntArray,
    gap_us: IntArray,
    free_at_us: IntArray,
    earliest_us: int,
    latest_us: int,
    horizon_us: int,
) -> IntArray:
    """Most crawls of each host tonight under its limit and its gap.

    Parameters
    ----------
    max_slots, gap_us, free_at_us : (h,) int64
        Limit of the night in crawls, gap between two crawls, and first moment that is allowed tonight.
    earliest_us, latest_us : int
        First and last moment at which a slot of this shard can be served.
    horizon_us : int
        Length of the night.

    Returns
    -------
    limit : (h,) int64
        The least of `max_slots`, one crawl per gap over the night (at least one), and the crawls that fit
        after `free_at_us`.
    """
    gap = np.maximum(gap_us, 0)
    step = np.maximum(gap, 1)
    room = latest_us - np.maximum(free_at_us, earliest_us)
    fits = np.where(room < 0, 0, np.where(gap > 0, room // step + 1, max_slots))
    nightly = np.where(gap > 0, np.maximum(horizon_us // step, 1), max_slots)
    limit: IntArray = np.maximum(np.minimum(np.minimum(max_slots, nightly), fits), 0)
    return limit


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Hosts of a shard with everything that limits them; one host without limits when there are none.

    Attributes
    ----------
    of_page : (n,) int64
    limit : (h,) int64
        As given by `host_slot_limits`.
    gap_us, free_us : (h,) int64
        Microseconds; a gap that cannot bind is 0.
    binding : (h,) bool
        Whether anything limits the host.
    """

    of_page: IntArray
    limit: IntArray
    gap_us: IntArray
    free_us: IntArray
    binding: BoolArray


def host_limits(pages: ShardPages, offsets: IntArray, latest: IntArray, horizon_us: int) -> HostLimits:
    """Limits of the hosts in a night whose slots have these first and last moments, (slots,) int64 each."""
    n, slots = pages.crawl_rate_per_day.size, offsets.size
    if pages.host_start is None or slots == 0:
        zero = np.zeros(1, np.int64)
        return HostLimits(np.zeros(n, np.int64), np.array([slots]), zero, zero, np.zeros(1, np.bool_))
    count = pages.host_start.size - 1
    of_page = np.repeat(np.arange(count), np.diff(pages.host_start))
    zero = np.zeros(count, np.int64)
    most = np.full(count, slots) if pages.host_max_slots is None else pages.host_max_slots
    gap = zero if pages.host_gap_us is None else pages.host_gap_us
    free = zero if pages.host_free_at_us is None else pages.host_free_at_us
    limit = host_slot_limits(most, gap, free, int(offsets[0]), int(latest[-1]), horizon_us)
    # A gap that no two slots of the shard are inside of cannot bind once the host is free.
    closest = int(np.diff(offsets).min()) if slots > 1 else horizon_us
    gap = np.where((gap <= closest) & (free <= offsets[0]), 0, gap)
    binding = (limit < slots) | (gap > 0) | (free > offsets[0])
    return HostLimits(of_page, limit, gap, free, binding)


@dataclass(frozen=True, slots=True)
class Division:
    """Slots per host, in expectation.

    Attributes
    ----------
    known : (h,) float64
        Slots for pages crawled before; a real number.
    new : (h,) int64
        Slots for pages never crawled.
    chosen : (k,) int64
        The new pages that get these slots, most urgent first.
    cut : (h,) bool
        Hosts that get less than their rates ask for because of their limit.
    """

    known: FloatArray
    new: IntArray
    chosen: IntArray
    cut: BoolArray


def divide(
    slots: int,
    rate_per_day: FloatArray,
    limit: IntArray,
    new_rows: IntArray,
    new_host: IntArray,
    come_due: Callable[[FloatArray], FloatArray] | None = None,
) -> Division:
    """Divide the slots of a shard among its hosts.

    New pages get at most half of the slots of the shard, and of each host, but at least one, while known
    pages can use the rest; what known pages cannot use is theirs. The rest is shared in proportion to the
    rates, no host above its limit; what a host cannot take goes to the others. Where new pages can fill a
    host's limit, they do: of part of a slot that known pages have of it, these take a whole one in turn.

    Parameters
    ----------
    slots : int
        Slots of the shard tonight.
    rate_per_day : (h,) float64
        Sum of the rates of each host's known pages.
    limit : (h,) int64
        Most crawls of each host tonight.
    new_rows, new_host : (k,) int64
        New pages and their hosts, most urgent first.
    come_due : callable, optional
        Of factors of the rates of each host, (h,) float64: crawls of its known pages that come due tonight.
        Without it limits are not filled.
    """
    limit = np.minimum(limit, slots)
    has_known = (rate_per_day > 0.0) & (limit > 0)
    total_rate = float(rate_per_day[has_known].sum())
    asked = np.ceil(rate_per_day * (slots / total_rate)) if total_rate > 0.0 else np.zeros(limit.size)
    waiting = np.bincount(new_host, minlength=limit.size).astype(np.int64)
    spare = limit - np.minimum(asked, limit).astype(np.int64)
    shared = np.minimum(limit, np.maximum(np.maximum(limit // 2, spare), 1))
    per_host = np.minimum(waiting, np.where(has_known, shared, limit))
    others = int(limit[has_known].sum())
    most = max(slots // 2, slots - others, min(1, slots)) if has_known.any() else slots
    order = np.argsort(new_host, kind="stable")
    place = np.empty(new_host.size, np.int64)
    place[order] = np.arange(new_host.size) - np.repeat(np.cumsum(waiting) - waiting, waiting)
    rate = np.where(has_known, rate_per_day, 0.0)

    def choose() -> tuple[IntArray, IntArray]:
        chosen = np.flatnonzero(place < per_host[new_host])[:most]
        return chosen, np.bincount(new_host[chosen], minlength=limit.size).astype(np.int64)

    chosen, new = choose()
    known, cut = _fill_up(float(slots - chosen.size), rate, limit - new)
    # New pages took slots that known ones were thought to use.
    full = has_known & (limit < slots) & (known + new < limit - _ROUNDING) & (waiting > new)
    if come_due is None or not full.any():
        return Division(known, new, new_rows[chosen], cut)
    least = np.floor(known + _ROUNDING)
    whole = np.clip(come_due(known / np.where(has_known, rate_per_day, 1.0)), least, least + 1.0)
    more = limit - new - whole.astype(np.int64)
    full &= waiting >= new + more
    if full.any():
        per_host = np.where(full, new + more, per_host)
        chosen, new = choose()
        full &= new == per_host
        rest = slots - int(new[~full].sum()) - int(limit[full].sum())
        shared_out, cut = _fill_up(float(max(rest, 0)), np.where(full, 0.0, rate), limit - new)
        known = np.where(full, limit - new, shared_out)
    return Division(known, new, new_rows[chosen], cut)


def _fill_up(slots: float, rate_per_day: FloatArray, limit: IntArray) -> tuple[FloatArray, BoolArray]:
    """Share `slots` in proportion to the rates, none above its limit: ``min(c * rate, limit)`` with one c."""
    used = np.flatnonzero(rate_per_day > 0.0)
    known = np.zeros(rate_per_day.size)
    cut = np.zeros(rate_per_day.size, np.bool_)
    if used.size == 0:
        return known, cut
    rate, most = rate_per_day[used], limit[used].astype(np.float64)
    with np.errstate(over="ignore"):
        order = np.argsort(most / rate, kind="stable")
    rate, most = rate[order], most[order]
    rest = np.cumsum(rate[::-1])[::-1]
    before = np.concatenate(([0.0], np.cumsum(most)[:-1]))
    is_cut = (slots - before) * rate > most * rest
    k = int(np.argmin(is_cut)) if not is_cut.all() else used.size
    if k < used.size:
        known[used[order[k:]]] = (slots - before[k]) * (rate[k:] / rest[k])
    known[used[order[:k]]] = most[:k]
    cut[used[order[:k]]] = True
    return known, cut
