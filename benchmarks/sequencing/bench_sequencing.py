"""CPU time (one thread) of putting a shard in order."""

import time

import numpy as np

from benchmarks.measuring.rows import Row
from policies.greedy import greedy
from policies.greedy.value_curves import ValueCurves
from policies.numerics import special
from policies.objectives import objectives
from policies.sequencing.quotas import slot_offsets_us
from policies.sequencing.sequencing import ShardPages, sequence

DAY_US = 86_400_000_000
SECOND_US = 1_000_000
PAGES_PER_HOST = 100


def _pages(n: int, slots: int, gap_seconds: int | None) -> ShardPages:
    """Pages in mid-life: a fifth overdue, rates over decades; hosts of many sizes if there are gaps."""
    rng = np.random.Generator(np.random.Philox(key=n))
    rate = rng.gamma(0.5, size=n) + 1e-6
    rate *= slots / rate.sum()
    hosts: dict[str, np.ndarray] = {}
    if gap_seconds is not None:
        count = max(n // PAGES_PER_HOST, 1)
        sizes = rng.multinomial(n - count, rng.dirichlet(np.full(count, 0.5))) + 1
        start = np.concatenate(([0], np.cumsum(sizes)))
        limit = DAY_US / (gap_seconds * SECOND_US)
        for _ in range(20):  # cut hosts at their limit, give what they lose to the others
            asked = np.add.reduceat(rate, start[:-1])
            factor = np.where(asked > limit, limit / asked, 1.0)
            rate *= np.repeat(factor, sizes)
            rate[np.repeat(factor == 1.0, sizes)] *= 1.0 + (slots - rate.sum()) / rate.sum()
        rate *= np.repeat(np.minimum(1.0, limit / np.add.reduceat(rate, start[:-1])), sizes)
        hosts = {
            "host_start": start,
            "host_gap_us": np.full(count, gap_seconds * SECOND_US),
            "host_free_at_us": rng.integers(-DAY_US // 100, gap_seconds * SECOND_US, count),
        }
    return ShardPages(
        crawl_rate_per_day=rate,
        days_since_last=rng.exponential(0.7, n) / rate,
        is_new=np.zeros(n, np.bool_),
        crawl_value=rng.random(n),
        tie=rng.integers(0, 2**63, n).astype(np.uint64),
        **hosts,
    )


def _greedy_row(name: str, n: int, slots: int, gap_seconds: int | None) -> Row:
    """Weights are those with which the pages' rates are the optimum."""
    pages = _pages(n, slots, gap_seconds)
    rng = np.random.Generator(np.random.Philox(key=n + 1))
    change = pages.crawl_rate_per_day * rng.exponential(size=n) + 1e-9
    request = change / special.p2(change / pages.crawl_rate_per_day)
    curves = ValueCurves.of(objectives.get("periodic"), change, request, pages.days_since_last)
    offsets = slot_offsets_us([slots], 0, DAY_US)
    begin = time.process_time()
    result = greedy.sequence(pages, curves, offsets, DAY_US)
    spent = time.process_time() - begin
    assert result.counters["used"] >= 0.99 * min(slots, pages.crawl_rate_per_day.sum()), result.counters
    return Row(f"greedy, {name}, {n:,} pages, {slots:,} slots", 1e6 * spent / slots, "us/slot")


def _row(name: str, n: int, slots: int, gap_seconds: int | None, target: float) -> Row:
    pages = _pages(n, slots, gap_seconds)
    offsets = slot_offsets_us([slots], 0, DAY_US)
    times = []
    for _ in range(3):
        begin = time.process_time()
        result = sequence(pages, offsets, DAY_US)
        times.append(time.process_time() - begin)
    used = result.counters["used"]
    assert used >= 0.99 * min(slots, pages.crawl_rate_per_day.sum()), result.counters
    label = f"{name}, {n:,} pages, {slots:,} slots"
    return Row(label, 1e6 * min(times) / slots, "us/slot", target)


def run(scale: float = 1.0) -> list[Row]:
    """Measure on a million slots times `scale`."""
    slots = max(int(1_000_000 * scale), 1000)
    few, many = max(slots // 10, 100), slots
    return [
        _row("no limits", few, slots, None, 0.8),
        _row("no limits", many, slots, None, 0.8),
        _row("gap of 1 s on every host", few, slots, 1, 2.0),
        _row("gap of 1 s on every host", many, slots, 1, 2.0),
        _row("gap of 10 s on every host", many, slots, 10, 2.0),
        _greedy_row("no limits", few, slots, None),
        _greedy_row("no limits", many, slots, None),
        _greedy_row("gap of 1 s on every host", few, slots, 1),
    ]
