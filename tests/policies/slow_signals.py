"""The fold of signals, one interval at a time, written from the rules and not from the kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.policies.slow_history import DAY, NO_TIME, Page, half_octave

MINUTE, HOUR = 60_000_000, 3_600_000_000


@dataclass
class Heard:
    """What one page's history says with signals; sums have the weights of the present."""

    since: int
    exposure: float = 0.0
    dated: float = 0.0
    watched: float = 0.0
    pending: Counter[int] = field(default_factory=Counter)
    unchanged: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    total: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    last: dict[int, int] = field(default_factory=dict)
    rows: dict[tuple[Any, ...], list[float]] = field(default_factory=dict)  # (signals, dated, bin): 3 sums
    pairs: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # by source: near, far
    pending_pairs: Counter[tuple[int, int, int]] = field(default_factory=Counter)  # (source, source, far)


def hear(
    pages: list[Page],
    host: list[int],
    signals: list[tuple[int, int, int]],
    as_of: int,
    delay: int,
    half_lives: dict[str, Any],
    counts: Counter[str],
) -> dict[int, Heard]:
    """Fold one night of (page, time, source) over pages that were folded from nothing."""
    timely = [s for s in signals if s[1] <= as_of]
    counts["signals"] += len(signals)
    counts["signals_after_as_of"] += len(signals) - len(timely)
    era: dict[int, int] = {}
    for page, at, _ in timely:
        era[host[page]] = min(at, era.get(host[page], at))
    heard = {p: Heard(era[host[p]]) for p in range(len(pages)) if host[p] in era}
    counting = _counting(pages, timely, heard, delay, counts)
    for p, result in heard.items():
        page = pages[p]
        together = _pairs(
            [s for s in counting if s[0] == p and (page.opened == NO_TIME or s[1] > page.opened)]
        )
        for end, gap, changed, age, count in page.intervals:
            inside = Counter(s for q, at, s in counting if q == p and end - gap < at <= end)
            if end - gap < result.since:
                continue
            _add(result, page, (end, gap, changed, age, count), inside, as_of, delay, half_lives)
            weight = page.weight(end, count, *half_lives.values(), as_of)
            for (*names, far), n in Counter(k for at, k in together if end - gap < at <= end).items():
                result.pairs.setdefault(tuple(names), [0.0, 0.0])[far] += weight * n
        seen = page.baseline
        result.pending_pairs.update(k for at, k in together if seen == NO_TIME or at > seen)
        result.pending.update(s for q, at, s in counting if q == p and (seen == NO_TIME or at > seen))
    return heard


def _pairs(signals: list[tuple[int, int, int]]) -> list[tuple[int, tuple[int, int, int]]]:
    """Time of the later one, sources and whether far, of all pairs."""
    found = []
    for i, (_, at, source) in enumerate(signals):
        for _, other_at, other in signals[:i]:
            hours = abs(at // HOUR - other_at // HOUR)
            if source != other and (hours <= 1 or 23 <= hours <= 25):
                names = (min(source, other), max(source, other))
                found.append((max(at, other_at), (*names, int(hours > 1))))
    return found


def _counting(
    pages: list[Page],
    timely: list[tuple[int, int, int]],
    heard: dict[int, Heard],
    delay: int,
    counts: Counter[str],
) -> list[tuple[int, int, int]]:
    counting = []
    for page, at, source in sorted(timely, key=lambda s: (s[1], s[0], s[2])):
        seen = [
            t
            for t in (pages[page].opened, *pages[page].anew, *(i[0] for i in pages[page].intervals))
            if NO_TIME < t < at
        ]
        last = heard[page].last
        if seen and at - max(seen) < delay:
            counts["signals_delayed"] += 1
        elif source in last and at - last[source] < HOUR:
            counts["signals_duplicate"] += 1
        else:
            counts["signals_counted"] += 1
            last[source] = at
            counting.append((page, at, source))
    return counting


def _add(
    result: Heard,
    page: Page,
    interval: tuple[Any, ...],
    inside: Counter[int],
    as_of: int,
    delay: int,
    half_lives: dict[str, Any],
) -> None:
    end, gap, changed, dated, count = interval
    weight = page.weight(end, count, half_lives["half_life_changes"], half_lives["half_life_days"], as_of)
    if gap - delay >= MINUTE:
        result.watched += weight * ((gap - delay) / DAY)
    for source, n in inside.items():
        result.total[source] += weight * n
        if not changed:
            result.unchanged[source] += weight * n
    if not changed:
        result.exposure += weight * (gap / DAY)
        return
    if dated is not None:
        result.exposure += weight * (dated[1] / DAY)
        if not inside:
            result.dated += weight
            return
    before = max(gap - (dated[0] if dated else 0), MINUTE)
    key = (tuple(sorted((s, min(n, 15)) for s, n in inside.items())), dated is not None, half_octave(before))
    sums = result.rows.setdefault(key, [0.0, 0.0, 0.0])
    for i in range(3):
        sums[i] += weight * (before / DAY) ** i
