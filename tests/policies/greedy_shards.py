"""Shards for greedy sequencing, and the night that evaluates every page in every slot."""

from dataclasses import dataclass, replace

import numpy as np

from policies.greedy.value_curves import ValueCurves
from policies.history.page_state import US_PER_DAY
from policies.objectives import objectives
from policies.sequencing.host_shares import divide, host_limits
from policies.sequencing.shard_pages import ShardPages, priority_order
from policies.signalled.pages import SignalPages


@dataclass
class Shard:
    """Arguments of `policies.greedy.greedy.sequence`."""

    pages: ShardPages
    curves: ValueCurves
    offsets: np.ndarray
    horizon_us: int
    floor: np.ndarray | None = None
    cap: np.ndarray | None = None

    def arguments(self):
        return self.pages, self.curves, self.offsets, self.horizon_us, self.floor, self.cap


def make(rng, n, slots, objective="periodic", ties=False, new=0.0, hosts=0, signals=0.0, floors=0.0, caps=0.0,
         horizon_us=US_PER_DAY, spread=1.0, rate=None, age=1.0):  # fmt: skip
    """A random shard; `new`, `signals`, `floors`, `caps` are shares of pages that have them."""
    change = np.exp(spread * rng.normal(size=n)) * slots / max(n, 1)
    request = np.exp(spread * rng.normal(size=n))
    days = age * rng.exponential(size=n) * n / max(slots, 1)
    if ties:
        change = rng.choice([0.3, 1.0], n) * slots / max(n, 1)
        request = rng.choice([0.0, 1.0, 2.0], n, p=[0.1, 0.6, 0.3])
        days = rng.integers(0, 4, n) / 4.0
        days[rng.random(n) < 0.2] = np.inf
    is_new = rng.random(n) < new
    days = np.where(is_new, np.nan, days)
    goal = objectives.get(objective)
    curves = ValueCurves.of(goal, change, request, days)
    value = goal.crawl_value(change, request, np.where(is_new, np.inf, days))
    rows = np.flatnonzero(rng.random(n) < signals)
    if rows.size:
        recall = rng.choice([0.0, 0.3, 0.9, 1.0], rows.size)
        noise = rng.choice([0.0, 0.2, 2.0], rows.size) * change[rows]
        some = SignalPages.from_rates(request[rows], change[rows], recall, noise)
        n_signals = np.where(is_new[rows], 0.0, rng.integers(0, 4, rows.size))
        curves = curves.with_signals(rows, some, n_signals)
    if rate is None:
        rate = change * (rng.random(n) < 0.9)
    limits = {}
    if hosts:
        sizes = rng.multinomial(n, rng.dirichlet(np.full(hosts, 0.7)))
        limits["host_start"] = np.concatenate(([0], np.cumsum(sizes)))
        step = horizon_us / max(slots, 1)
        limits["host_gap_us"] = ((rng.random(hosts) < 0.7) * rng.exponential(3.0 * step, hosts)).astype(
            np.int64
        )
        most = np.where(rng.random(hosts) < 0.5, 2**40, rng.integers(0, max(slots // 2, 2), hosts))
        limits["host_max_slots"] = most
        limits["host_free_at_us"] = rng.integers(-horizon_us // 10, horizon_us // 5, hosts)
    tie = rng.integers(0, 2**63, n).astype(np.uint64)
    pages = ShardPages(rate, days, is_new, value, tie, **limits)
    scale = slots / max(n, 1)
    floor = np.where(rng.random(n) < floors, scale * rng.choice([0.1, 0.5, 1.0], n), 0.0) if floors else None
    cap = np.where(rng.random(n) < caps, scale * rng.choice([0.0, 0.5, 2.0], n), np.inf) if caps else None
    offsets = np.arange(slots) * horizon_us // max(slots, 1) + horizon_us // max(2 * slots, 1)
    return Shard(pages, curves, offsets, horizon_us, floor, cap)


def naive(shard):
    """Page and moment of each slot, every rule applied to every page."""
    pages, curves, offsets, horizon_us = shard.pages, shard.curves, shard.offsets, shard.horizon_us
    n, slots = pages.tie.size, offsets.size
    latest = np.maximum(np.append(offsets[1:] - 1, horizon_us - 1)[:slots], offsets)
    hosts = host_limits(pages, offsets, latest, horizon_us)
    rate = np.where(pages.is_new, 0.0, pages.crawl_rate_per_day)
    priority = priority_order(pages.crawl_value, pages.tie)
    new_rows = np.flatnonzero(pages.is_new)
    new_rows = new_rows[np.argsort(priority[new_rows])]
    host_rate = np.bincount(hosts.of_page, rate, hosts.limit.size)
    division = divide(slots, host_rate, hosts.limit, new_rows, hosts.of_page[new_rows])
    chosen = np.isin(np.arange(n), division.chosen)
    cap = np.full(n, np.inf) if shard.cap is None else shard.cap
    cap = np.minimum(cap, curves.longest_rate_per_day)
    floor = np.zeros(n) if shard.floor is None else np.minimum(shard.floor, cap)
    most = np.full(hosts.limit.size, slots) if pages.host_max_slots is None else pages.host_max_slots
    by_tie = np.lexsort((np.arange(n), pages.tie))
    last = np.where(pages.is_new, -np.inf, -curves.days)
    signals, is_new = curves.signals.copy(), pages.is_new.copy()
    free, used = hosts.free_us.copy(), np.zeros(hosts.limit.size, np.int64)
    rows, page, due, taken = np.arange(n), np.full(slots, -1), offsets.copy(), 0
    for slot, (now, end) in enumerate(zip(offsets.tolist(), latest.tolist(), strict=True)):
        is_open = (free <= end) & (used < hosts.limit)
        with np.errstate(divide="ignore", invalid="ignore"):
            opens = np.where(np.isinf(cap), -np.inf, np.ceil((last + 1.0 / cap) * US_PER_DAY))
            opens = np.where(is_new, -np.inf, opens)
            miss = np.where(floor > 0, np.floor((last + 1.0 / floor) * US_PER_DAY), np.inf)
        may = is_open[hosts.of_page] & (opens <= now)
        new = rows[may & is_new]
        new = new[np.argsort(priority[new])]
        row = -1
        turns = division.chosen.size
        if taken < turns and (slot + 1) * turns // slots > taken and chosen[new].any():
            row = new[chosen[new]][0]
        late = rows[may & ~is_new & (miss <= end)]
        if row < 0 and late.size:
            first = np.searchsorted(latest, np.clip(miss[late], -1, 1e18).astype(np.int64))
            could = np.searchsorted(offsets, np.clip(opens[late], -1, 1e18).astype(np.int64))
            key = np.maximum(first, could)
            place = np.empty(n, np.int64)
            place[by_tie] = np.arange(n)
            row = late[np.lexsort((place[late], key))[0]]
        if row < 0:
            known = by_tie[(may & ~is_new)[by_tie]]
            known = known[(cap[known] > 0.0) | pages.is_new[known]]
            days = np.maximum(now / US_PER_DAY - last[known], 0.0)
            value = curves.value(known, days, signals[known])
            if value.size and value.max() > 0.0:
                row = known[np.argmax(value)]
        if row < 0 and new.size:
            row = np.concatenate((new[chosen[new]], new[~chosen[new]]))[0]
        if row < 0:
            continue
        taken += bool(is_new[row] and chosen[row])
        host = hosts.of_page[row]
        due[slot] = max(now, int(free[host]))
        used[host] += 1
        free[host] = due[slot] + hosts.gap_us[host]
        if most[host] < slots:
            free[host] = max(int(free[host]), int(used[host]) * horizon_us // int(most[host]))
        page[slot], last[row], signals[row], is_new[row] = row, due[slot] / US_PER_DAY, 0.0, False
    return page, due


def without_limits(shard):
    """The same pages with nothing that limits hosts."""
    names = ("host_start", "host_max_slots", "host_gap_us", "host_free_at_us")
    return replace(shard, pages=replace(shard.pages, **dict.fromkeys(names)))
